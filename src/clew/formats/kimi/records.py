"""The records of Kimi Code's journal (`wire.jsonl`), as far as the conversation needs them.

A line is decoded once into a shallow record; what is large stays raw until somebody looks. Members of another type
than the agent writes are taken for absent, so that no odd value costs a record.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from functools import cache
from typing import Any, TypeVar, cast

import msgspec

from clew.conversation.text import JsonString, JsonValue, Lazy
from clew.formats.marks import Mark

NONE = msgspec.Raw(b"")
"""What an absent member is."""

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
T = TypeVar("T")

_RAWS = msgspec.json.Decoder(list[msgspec.Raw])
_PARTS = msgspec.json.Decoder(list[Part])
_CALLS = msgspec.json.Decoder(list[ToolCall])


@cache
def _decoder(kind: type[T]) -> msgspec.json.Decoder[T]:
    return msgspec.json.Decoder(kind)


def decode(raw: msgspec.Raw | bytes | memoryview, kind: type[T]) -> T:
    """Returns a value of this kind; an empty one for what is no object."""
    try:
        return _decoder(kind).decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return kind()


def decode_parts(raw: msgspec.Raw) -> list[Part]:
    """Returns the parts of a content; a plain string is one text; what is no part is left out."""
    head = first_byte(raw)
    if head == 0x22:
        return [Part("text", raw)]
    return _list(raw, _PARTS, Part) if head == 0x5B else []


def decode_calls(raw: msgspec.Raw) -> list[ToolCall]:
    """Returns the calls of a whole message."""
    return _list(raw, _CALLS, ToolCall) if first_byte(raw) == 0x5B else []


def _list(raw: msgspec.Raw, decoder: msgspec.json.Decoder[list[T]], kind: type[T]) -> list[T]:
    try:
        return decoder.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return list(_one_by_one(raw, kind))


def _one_by_one(raw: msgspec.Raw, kind: type[T]) -> Iterator[T]:
    try:
        pieces = _RAWS.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return
    for piece in pieces:
        if first_byte(piece) == 0x7B:
            yield decode(piece, kind)


def decode_mark(raw: msgspec.Raw) -> Mark | None:
    """Returns the mark of clew's writer, or None where there is none."""
    if raw is NONE or first_byte(raw) != 0x7B:
        return None
    try:
        return _decoder(Mark).decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return None


def first_byte(raw: msgspec.Raw) -> int:
    """Returns the first byte of a raw value, 0 for an absent one."""
    if raw is NONE:
        return 0
    view = memoryview(raw)
    return view[0] if len(view) else 0


def as_text(raw: msgspec.Raw) -> JsonString | None:
    """Returns a string as a lazy text, None for anything else."""
    return JsonString(raw) if first_byte(raw) == 0x22 else None


def as_arguments(raw: msgspec.Raw) -> Lazy:
    """Returns arguments: the text of a string, the spelling of any other value, nothing for null or an absent one."""
    head = first_byte(raw)
    if head == 0x22:
        return JsonString(raw)
    return "" if not head or bytes(memoryview(raw)[:4]) == b"null" else JsonValue(raw)


def text(value: object) -> str:
    """Returns a text member, nothing for another type."""
    return value if isinstance(value, str) else ""


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
