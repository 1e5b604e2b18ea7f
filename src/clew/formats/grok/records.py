"""The lines of Grok's `chat_history.jsonl`, of its `updates.jsonl`, and its `summary.json`, as far as they are needed.

A line is decoded once into a shallow record; what is large stays raw until somebody looks. Members of another type
than the agent writes are taken for absent, so that no odd value costs a line.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any

import msgspec

from clew.formats.raws import NONE as NONE
from clew.formats.typed import as_arguments as as_arguments
from clew.formats.typed import as_text as as_text
from clew.formats.typed import decode as decode
from clew.formats.typed import decode_list as decode_list
from clew.formats.typed import decode_mark as decode_mark
from clew.formats.typed import first_byte as first_byte
from clew.formats.typed import text as text


class Item(msgspec.Struct, gc=False):
    """One line of the history. Format 0 has `role`, OpenAI's calls and thoughts inside the reply; format 1 `type`."""

    type: Any = None
    role: Any = None
    content: msgspec.Raw = NONE
    reason: Any = msgspec.field(default=None, name="synthetic_reason")
    prompt_index: Any = None
    calls: msgspec.Raw = msgspec.field(default=NONE, name="tool_calls")
    model: Any = msgspec.field(default=None, name="model_id")
    fingerprint: Any = msgspec.field(default=None, name="model_fingerprint")
    call_id: Any = msgspec.field(default=None, name="tool_call_id")
    images: msgspec.Raw = NONE
    summary: msgspec.Raw = NONE
    kind: msgspec.Raw = NONE
    thought: msgspec.Raw = msgspec.field(default=NONE, name="reasoning_content")
    clew: msgspec.Raw = NONE


class Part(msgspec.Struct, gc=False):
    """One part of a content or of a thought's summary."""

    type: Any = None
    text: msgspec.Raw = NONE
    url: msgspec.Raw = NONE


class Function(msgspec.Struct, gc=False):
    """The inner half of a call of format 0."""

    name: Any = None
    arguments: msgspec.Raw = NONE


class Call(msgspec.Struct, gc=False):
    """A call: `arguments` is JSON as a text."""

    id: Any = None
    name: Any = None
    arguments: msgspec.Raw = NONE
    function: msgspec.Raw = NONE


class ServerCall(msgspec.Struct, gc=False):
    """A call that the provider made by itself."""

    type: Any = msgspec.field(default=None, name="tool_type")
    id: Any = None
    name: Any = None
    call_id: Any = None
    action: msgspec.Raw = NONE
    input: msgspec.Raw = NONE
    code: msgspec.Raw = NONE


class Update(msgspec.Struct, gc=False):
    """One line of the stream for display."""

    params: msgspec.Raw = NONE


class Params(msgspec.Struct, gc=False):
    """What a line for display says, and when."""

    update: msgspec.Raw = NONE
    meta: msgspec.Raw = msgspec.field(default=NONE, name="_meta")


class Shown(msgspec.Struct, gc=False):
    """One piece of display: a prompt, a piece of a reply, a call, what came of it, a compaction."""

    type: Any = msgspec.field(default=None, name="sessionUpdate")
    content: msgspec.Raw = NONE
    call_id: Any = msgspec.field(default=None, name="toolCallId")
    title: Any = None
    status: Any = None
    raw_input: msgspec.Raw = msgspec.field(default=NONE, name="rawInput")
    raw_output: msgspec.Raw = msgspec.field(default=NONE, name="rawOutput")
    meta: msgspec.Raw = msgspec.field(default=NONE, name="_meta")


class ShownMeta(msgspec.Struct, gc=False):
    """Facts about a piece of display."""

    host_turn: Any = msgspec.field(default=None, name="hostTurn")
    time: Any = msgspec.field(default=None, name="agentTimestampMs")


class ShownContent(msgspec.Struct, gc=False):
    """A content inside a piece of display; those of a call have one more around it."""

    type: Any = None
    text: msgspec.Raw = NONE
    content: msgspec.Raw = NONE


class Info(msgspec.Struct, gc=False):
    """Which session a description is of."""

    id: Any = None
    cwd: Any = None


class Summary(msgspec.Struct):
    """The session's own description."""

    info: msgspec.Raw = NONE
    session_summary: Any = None
    generated_title: Any = None
    created_at: Any = None
    updated_at: Any = None
    last_active_at: Any = None
    model: Any = msgspec.field(default=None, name="current_model_id")
    format: Any = msgspec.field(default=None, name="chat_format_version")
    kind: Any = msgspec.field(default=None, name="session_kind")
    parent: Any = msgspec.field(default=None, name="parent_session_id")
    hidden: Any = None


class CallMark(msgspec.Struct, frozen=True, omit_defaults=True):
    """What was changed of one call: its id, its name, its arguments wrapped; `said`: its result is guarded."""

    id: str | None = None
    name: str | None = None
    text: bool = False
    said: bool = False


class ReplyMark(msgspec.Struct, frozen=True, omit_defaults=True, rename={"from_": "from"}):
    """What clew's writer notes of one reply in `model_fingerprint`, the one free text that the agent keeps."""

    from_: str = ""
    calls: tuple[CallMark | None, ...] = ()
    said: bool = False
    standin: bool = False


ITEM = msgspec.json.Decoder(Item)
UPDATE = msgspec.json.Decoder(Update)
FINGERPRINT = "clew"
_REPLY_MARK = msgspec.json.Decoder(ReplyMark)


def decode_parts(raw: msgspec.Raw) -> list[Part]:
    """Returns the parts of a content; a plain string is one text."""
    return [Part("text", raw)] if first_byte(raw) == 0x22 else decode_list(raw, Part)


def decode_reply_mark(value: object) -> ReplyMark | None:
    """Returns what clew's writer noted of a reply, or None where it wrote none."""
    if not isinstance(value, str) or not value.startswith(FINGERPRINT + "{"):
        return None
    try:
        return _REPLY_MARK.decode(value[len(FINGERPRINT) :].encode("utf-8", "replace"))
    except (msgspec.DecodeError, RecursionError):
        return None


def number(value: object) -> int | None:
    """Returns a whole number, None for another type or a fraction."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


_TIME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.\d+)?(Z|[+-]\d\d:\d\d)\Z")


def time_of(value: object) -> int | None:
    """Returns an RFC 3339 time in ms since 1970; of its nanoseconds the first three digits count."""
    found = _TIME.match(value) if isinstance(value, str) else None
    if found is None:
        return None
    try:
        seconds = datetime.fromisoformat(found.group(1) + found.group(3).replace("Z", "+00:00")).timestamp()
    except (ValueError, OverflowError):
        return None
    return round(seconds * 1000) + int((found.group(2) or ".0")[1:4].ljust(3, "0"))
