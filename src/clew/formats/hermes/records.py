"""What Hermes keeps of a session: rows of `sessions` and `messages`, as typed records whose texts stay undecoded.

A cell is one value of a row in the export form (`formats.rows`). Nothing here raises: a cell of another sort than the
one that is asked for is none.
"""

from __future__ import annotations

import base64
import json
from typing import Any

import msgspec

from clew.conversation.text import JsonString, JsonValue, Lazy, mend_surrogates, text_of
from clew.formats import raws

RAW = msgspec.Raw
NONE = raws.NONE

LISTED = "\x00json:"
"""How the text of a message begins that is a list of parts as JSON."""


class Columns(msgspec.Struct, frozen=True, gc=False):
    """The columns that are looked at, of any table."""

    id: RAW = NONE
    key: RAW = NONE
    value: RAW = NONE
    role: RAW = NONE
    content: RAW = NONE
    tool_call_id: RAW = NONE
    tool_calls: RAW = NONE
    timestamp: RAW = NONE
    finish_reason: RAW = NONE
    reasoning: RAW = NONE
    reasoning_content: RAW = NONE
    active: RAW = NONE
    compacted: RAW = NONE
    model: RAW = NONE
    model_config: RAW = NONE
    parent_session_id: RAW = NONE
    source: RAW = NONE
    end_reason: RAW = NONE
    cwd: RAW = NONE
    title: RAW = NONE
    billing_provider: RAW = NONE


class Line(msgspec.Struct, frozen=True, gc=False):
    """One exported row, as far as it is looked at."""

    table: str
    row: Columns


class Function(msgspec.Struct, frozen=True, gc=False):
    """What is called, and with which arguments."""

    name: Any = None
    arguments: RAW = NONE


class ToolCall(msgspec.Struct, frozen=True, gc=False):
    """One call of a reply; an older form has name and arguments outside of `function`."""

    id: Any = None
    call_id: Any = None
    function: RAW = NONE
    name: Any = None
    arguments: RAW = NONE


class Address(msgspec.Struct, frozen=True, gc=False):
    """Where an image is."""

    url: Any = None


class Part(msgspec.Struct, frozen=True, gc=False):
    """One part of a message that is a list."""

    type: Any = None
    text: RAW = NONE
    image_url: RAW = NONE


class Multimodal(msgspec.Struct, frozen=True, gc=False):
    """A result with images, before the agent makes one text of it."""

    content: RAW = NONE


class _Special(msgspec.Struct, frozen=True, gc=False):
    json: RAW = NONE
    text: Any = None
    blob: Any = None


LINE = msgspec.json.Decoder(Line)
CALLS = raws.Shape(ToolCall, list[ToolCall])
FUNCTIONS = raws.Shape(Function, list[Function])
PARTS = raws.Shape(Part, list[Part])
ADDRESSES = raws.Shape(Address, list[Address])
CONTENTS = raws.Shape(Multimodal, list[Multimodal])
_SPECIALS = raws.Shape(_Special, list[_Special])


def text_in(cell: RAW) -> Lazy | None:
    """Returns the text in a cell, undecoded; None where there is none."""
    first = raws.first_byte(cell)
    if first == 0x22:
        return JsonString(cell)
    if first != 0x7B:
        return None
    special = _SPECIALS.one(cell)
    if special is None:
        return None
    if special.json is not NONE:
        return JsonValue(special.json)
    for given in (special.text, special.blob):
        if isinstance(given, str):
            return _unpacked(given)
    return None


def _unpacked(given: str) -> str | None:
    try:
        return base64.b64decode(given, validate=True).decode("utf-8", "replace")
    except ValueError:
        return None


def word_in(cell: RAW) -> str:
    """Returns a short text in a cell; empty where there is none."""
    text = text_in(cell)
    return text_of(text) if text is not None else ""


def number_in(cell: RAW) -> float | None:
    """Returns the number in a cell; None where there is none."""
    if cell is NONE or memoryview(cell)[0] not in b"-0123456789":
        return None
    try:
        return float(bytes(cell))
    except (ValueError, OverflowError):
        return None


def time_in(cell: RAW) -> int | None:
    """Returns the milliseconds since 1970 that a cell with seconds names; None where it names no such time."""
    seconds = number_in(cell)
    return round(seconds * 1000) if seconds is not None and 0 < seconds < 1e11 else None


def json_in(cell: RAW) -> RAW:
    """Returns the JSON that the text in a cell is, undecoded; NONE where the text is none."""
    text = text_in(cell)
    if isinstance(text, JsonValue):
        return text.raw
    if text is None:
        return NONE
    return json_of(text_of(text))


def json_of(text: str) -> RAW:
    """Returns a text as undecoded JSON; halves of surrogate pairs are mended; NONE where it is none."""
    if text[:1] not in ("{", "[") and not text[:1].isspace():
        return NONE
    data = text.strip().encode("utf-8", "replace")
    try:
        msgspec.json.decode(data)
        return msgspec.Raw(data)
    except (msgspec.DecodeError, RecursionError):
        pass
    try:
        value = json.loads(text, strict=False)
        spelled = mend_surrogates(json.dumps(value, ensure_ascii=False, separators=(",", ":"))).encode()
        msgspec.json.decode(spelled)
    except (ValueError, RecursionError):
        return NONE
    return msgspec.Raw(spelled)
