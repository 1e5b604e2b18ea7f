"""The values inside a content: parts, calls, responses, images; taken as they come, checked where used.

Promised: nothing here raises on any JSON; what is no part is left out. Texts stay slices of the source.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from clew.conversation.model import Image
from clew.conversation.text import JsonString, JsonValue, Lazy
from clew.formats.marks import Mark

NONE = msgspec.Raw(b"")


class Part(msgspec.Struct, gc=False, rename="camel"):
    """One part of a content; which member is there says what it is."""

    text: msgspec.Raw = NONE
    thought: Any = None
    inline_data: msgspec.Raw = NONE
    file_data: msgspec.Raw = NONE
    function_call: msgspec.Raw = NONE
    function_response: msgspec.Raw = NONE


class FunctionCall(msgspec.Struct, gc=False):
    """A call as the model made it."""

    id: Any = None
    name: Any = None
    args: msgspec.Raw = NONE


class FunctionResponse(msgspec.Struct, gc=False):
    """The answer to a call; `parts` holds pictures where they are not beside it."""

    id: Any = None
    name: Any = None
    response: msgspec.Raw = NONE
    parts: msgspec.Raw = NONE


class RecordMark(Mark, frozen=True, omit_defaults=True):
    """The reserved member of a record that may hold several calls: `calls` has one mark a call id, as written."""

    calls: dict[str, Mark] = {}  # noqa: RUF012 - a struct copies its defaults


class _Data(msgspec.Struct, gc=False, rename="camel"):
    mime_type: Any = None
    data: msgspec.Raw = NONE
    file_uri: Any = None


class _Output(msgspec.Struct, gc=False):
    output: msgspec.Raw = NONE
    error: msgspec.Raw = NONE


ERRORS = (msgspec.DecodeError, RecursionError, UnicodeDecodeError)
"""What a decoder raises on bytes that are no such value."""

_PARTS = msgspec.json.Decoder(list[Part]).decode
_PART = msgspec.json.Decoder(Part).decode
_RAWS = msgspec.json.Decoder(list[msgspec.Raw]).decode
_CALL = msgspec.json.Decoder(FunctionCall).decode
_RESPONSE = msgspec.json.Decoder(FunctionResponse).decode
_DATA = msgspec.json.Decoder(_Data).decode
_OUTPUT = msgspec.json.Decoder(_Output).decode
_MARK = msgspec.json.Decoder(RecordMark).decode
_TEXT = msgspec.json.Decoder(str).decode
_TEXTS = msgspec.json.Decoder(list[str]).decode


def first_byte(raw: msgspec.Raw) -> int:
    """Returns the first byte of a JSON value, or 0 where there is none."""
    view = memoryview(raw)
    return view[0] if len(view) else 0


def is_text(raw: msgspec.Raw) -> bool:
    """Tells whether a value is a JSON string."""
    if raw is NONE:
        return False
    view = memoryview(raw)
    return len(view) > 0 and view[0] == 0x22


def is_object(raw: msgspec.Raw) -> bool:
    """Tells whether a value is a JSON object."""
    if raw is NONE:
        return False
    view = memoryview(raw)
    return len(view) > 0 and view[0] == 0x7B


def read_items(raw: msgspec.Raw) -> list[msgspec.Raw]:
    """Returns the items of a list; nothing where the value is none."""
    if raw is NONE or first_byte(raw) != 0x5B:
        return []
    try:
        return _RAWS(raw)
    except ERRORS:
        return []


def read_parts(raw: msgspec.Raw) -> list[Part]:
    """Returns the parts of a content: of a list, of one part alone, or of a plain text."""
    if raw is NONE:
        return []
    first = first_byte(raw)
    if first == 0x22:
        return [Part(raw)]
    if first == 0x7B:
        return _one_part(raw)
    if first != 0x5B:
        return []
    try:
        return _PARTS(raw)
    except ERRORS:
        return [part for item in read_items(raw) for part in (_one_part(item) if is_object(item) else _plain(item))]


def _plain(raw: msgspec.Raw) -> list[Part]:
    return [Part(raw)] if is_text(raw) else []


def _one_part(raw: msgspec.Raw) -> list[Part]:
    try:
        return [_PART(raw)]
    except ERRORS:
        return []


def read_call(raw: msgspec.Raw) -> FunctionCall | None:
    """Returns a call, or None."""
    try:
        return _CALL(raw)
    except ERRORS:
        return None


def read_response(raw: msgspec.Raw) -> FunctionResponse | None:
    """Returns a response, or None."""
    try:
        return _RESPONSE(raw)
    except ERRORS:
        return None


def read_output(raw: msgspec.Raw) -> tuple[Lazy, bool]:
    """Returns the text of a response as the model gets it, and whether it tells of an error.

    The carrier (`output`, else `error`) is taken off where it holds a text; any other response is its own spelling.
    """
    first = first_byte(raw)
    if first == 0x22:
        return JsonString(raw), False
    if first == 0x7B:
        try:
            found = _OUTPUT(raw)
        except ERRORS:
            return JsonValue(raw), False
        if is_text(found.output):
            return JsonString(found.output), False
        if is_text(found.error):
            return JsonString(found.error), True
    return (JsonValue(raw), False) if first else ("", False)


def read_image(part: Part) -> Image | None:
    """Returns the picture that a part holds, or None; any bytes in place count as one."""
    raw = part.inline_data if is_object(part.inline_data) else part.file_data
    if raw is NONE or not is_object(raw):
        return None
    try:
        found = _DATA(raw)
    except ERRORS:
        return Image("")
    kind = found.mime_type if isinstance(found.mime_type, str) else ""
    url = found.file_uri if isinstance(found.file_uri, str) else ""
    return Image(kind, JsonString(found.data) if is_text(found.data) else "", url)


def read_mark(raw: msgspec.Raw) -> RecordMark | None:
    """Returns the mark that a writer of clew left on a record, or None."""
    if raw is NONE or not is_object(raw):
        return None
    try:
        return _MARK(raw)
    except ERRORS:
        return None


def read_text(raw: msgspec.Raw) -> str:
    """Returns a short text, or nothing where the value is none."""
    if not is_text(raw):
        return ""
    try:
        return _TEXT(raw)
    except ERRORS:
        return ""


def read_texts(raw: msgspec.Raw) -> list[str]:
    """Returns a list of short texts; nothing where the value is none."""
    if raw is NONE or first_byte(raw) != 0x5B:
        return []
    try:
        return _TEXTS(raw)
    except ERRORS:
        return []


def as_text(value: object) -> str:
    """Returns a member that should be a text, or nothing where it is not."""
    return value if isinstance(value, str) else ""


# --- beginnings of texts ------------------------------------------------------------------------------------------

_WHOLE_SIGNS = re.compile(rb'(?:[^"\\]+|\\u[0-9A-Fa-f]{4}|\\[^u])*')
_HEAD_BYTES = 512


def may_begin(source: Lazy, signs: bytes) -> bool:
    """Tells from its first byte alone whether the first sign of a text that is no blank may be one of `signs`."""
    if not isinstance(source, JsonString):
        return True
    view = memoryview(source.raw)
    first = view[1] if len(view) > 1 else 0
    return first >= 0x80 or first in signs or first in b" \\"


def head_of(source: Lazy) -> str:
    """Returns the beginning of a text (some 80 signs or more, all of it where it is shorter), decoding no more."""
    if isinstance(source, str):
        return source[:_HEAD_BYTES]
    view = memoryview(source.raw)
    if isinstance(source, JsonValue):
        return bytes(view[:_HEAD_BYTES]).decode("utf-8", "replace")
    found = _WHOLE_SIGNS.match(bytes(view[1 : _HEAD_BYTES + 1]))
    spelled = found.group() if found is not None else b""
    text = spelled.decode("utf-8", "ignore")
    try:
        return _TEXT(b'"' + text.encode() + b'"')
    except ERRORS:
        return text
