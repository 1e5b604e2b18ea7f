"""The records of Kimi Code's journal (`wire.jsonl`), as far as the conversation needs them.

A line is decoded once into a shallow record; what is large stays raw until somebody looks. Members of another type
than the agent writes are taken for absent, so that no odd value costs a record.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any, cast

import msgspec

from clew.formats.raws import NONE as NONE
from clew.formats.typed import as_arguments as as_arguments
from clew.formats.typed import as_text as as_text
from clew.formats.typed import decode as decode
from clew.formats.typed import decode_list as decode_list
from clew.formats.typed import decode_mark as decode_mark
from clew.formats.typed import first_byte as first_byte
from clew.formats.typed import text as text

APPEND, LOOP, COMPACT, UNDO, CLEAR, SWITCHED = (
    "context.append_message",
    "context.append_loop_event",
    "context.apply_compaction",
    "context.undo",
    "context.clear",
    "agent.switched",
)


class Line(msgspec.Struct, gc=False):
    """One record; only the members that some record of the conversation has."""

    type: Any = None
    time: Any = None
    message: msgspec.Raw = NONE
    event: msgspec.Raw = NONE
    count: Any = None
    summary: msgspec.Raw = NONE
    context_summary: msgspec.Raw = msgspec.field(default=NONE, name="contextSummary")
    compacted_count: Any = msgspec.field(default=None, name="compactedCount")
    kept: Any = msgspec.field(default=None, name="keptUserMessageCount")
    legacy_tail: Any = msgspec.field(default=None, name="legacyTail")
    legacy_undo: Any = msgspec.field(default=None, name="legacyUndoLine")
    base: msgspec.Raw = NONE
    model_alias: Any = msgspec.field(default=None, name="modelAlias")
    model: Any = None
    created_at: Any = None
    protocol_version: Any = None
    clew: msgspec.Raw = NONE


class Message(msgspec.Struct, gc=False):
    """A whole message, as `context.append_message` holds it."""

    role: Any = None
    content: msgspec.Raw = NONE
    calls: msgspec.Raw = msgspec.field(default=NONE, name="toolCalls")
    call_id: Any = msgspec.field(default=None, name="toolCallId")
    is_error: Any = msgspec.field(default=None, name="isError")
    duration_ms: Any = msgspec.field(default=None, name="durationMs")
    note: Any = None
    origin: msgspec.Raw = NONE


class Event(msgspec.Struct, gc=False):
    """A piece of a step: a part, a call, a result, its beginning or its end."""

    type: Any = None
    uuid: Any = None
    step_uuid: Any = msgspec.field(default=None, name="stepUuid")
    part: msgspec.Raw = NONE
    call_id: Any = msgspec.field(default=None, name="toolCallId")
    name: Any = None
    args: msgspec.Raw = NONE
    result: msgspec.Raw = NONE


class Result(msgspec.Struct, gc=False):
    """What a tool gave back."""

    output: msgspec.Raw = NONE
    is_error: Any = msgspec.field(default=None, name="isError")
    duration_ms: Any = msgspec.field(default=None, name="durationMs")
    note: Any = None


class Part(msgspec.Struct, gc=False):
    """One part of a message's content."""

    type: Any = None
    text: msgspec.Raw = NONE
    think: msgspec.Raw = NONE
    image: msgspec.Raw = msgspec.field(default=NONE, name="imageUrl")


class Url(msgspec.Struct, gc=False):
    """Where an image is: a data URL, a reference to a blob of the session, or an address."""

    url: msgspec.Raw = NONE


class ToolCall(msgspec.Struct, gc=False):
    """A call inside a whole message; `arguments` is JSON as a text."""

    id: Any = None
    name: Any = None
    arguments: msgspec.Raw = NONE


class OriginOf(msgspec.Struct, gc=False):
    """Who put a message there."""

    kind: Any = None
    variant: Any = None
    trigger: Any = None
    in_turn: Any = msgspec.field(default=None, name="inTurn")


class Base(msgspec.Struct, gc=False):
    """From where on a branch goes its own way."""

    line: Any = None


class State(msgspec.Struct):
    """The session's own description (`state.json`)."""

    id: Any = None
    version: Any = None
    cwd: Any = None
    title: Any = None
    created_at: Any = msgspec.field(default=None, name="createdAt")
    updated_at: Any = msgspec.field(default=None, name="updatedAt")
    archived: Any = None
    forked_from: Any = msgspec.field(default=None, name="forkedFrom")
    agents: Any = None
    clew: msgspec.Raw = NONE


LINE = msgspec.json.Decoder(Line)


def decode_parts(raw: msgspec.Raw) -> list[Part]:
    """Returns the parts of a content; a plain string is one text; what is no part is left out."""
    return [Part("text", raw)] if first_byte(raw) == 0x22 else decode_list(raw, Part)


def decode_calls(raw: msgspec.Raw) -> list[ToolCall]:
    """Returns the calls of a whole message."""
    return decode_list(raw, ToolCall)


def number(value: object) -> int | None:
    """Returns a whole number, None for another type or a fraction."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return int(value) if abs(value) < 1 << 53 else None


_DAY = re.compile(r"\d{4}-\d\d-\d\dT")


def time_of(value: object) -> int | None:
    """Returns a time in ms since 1970: a number of ms, or ISO 8601."""
    found = number(value)
    if found is not None:
        return found if 0 < found < 253_402_300_800_000 else None
    if isinstance(value, str) and _DAY.match(value):
        try:
            return round(datetime.fromisoformat(value).timestamp() * 1000)
        except (ValueError, OverflowError):
            return None
    return None


def agents_of(state: State) -> tuple[str, ...]:
    """Returns the names of the session's agents besides the main one."""
    found: object = state.agents
    if not isinstance(found, dict):
        return ()
    return tuple(name for name in cast("dict[str, object]", found) if name != "main")
