"""Rows of a database in one fixed export form: a record of a session that lives in a database is one line of it.

A line is JSON: `{"table":"part","row":{"id":"prt_1","time_created":1790,"data":{"json":{...}}}}`, the columns in the
order in which the table declares them. The value of a column is exact: NULL is `null`, an INTEGER an integer, a REAL
a number with a point or an exponent, a TEXT a string. Four things have a form of their own: `{"json":...}` is a text
that is itself a JSON object or array on one line, letter by letter; `{"blob":"<base64>"}` a BLOB; `{"text":
"<base64>"}` a text that is no UTF-8; `{"real":"inf"}` an infinite number. `"shared":true` marks a row that belongs
to several sessions: it is put where it is missing and never changed. Nothing here opens a database.
"""

from __future__ import annotations

import base64
import binascii
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

import msgspec

from clew.conversation.source import Buffer
from clew.formats.jsonl import line_ends


class BadText(msgspec.Struct, frozen=True):
    """A TEXT whose bytes are no UTF-8."""

    data: bytes


class PlainJson(msgspec.Struct, frozen=True, gc=False):
    """A TEXT that a writer has just encoded: an object or array in compact JSON, which is not looked at again."""

    data: bytes


Value: TypeAlias = int | float | str | bytes | BadText | None
"""What a column holds: NULL, INTEGER, REAL, TEXT, BLOB, or a TEXT that is no UTF-8."""


class Special(msgspec.Struct, frozen=True, gc=False):
    """A value that plain JSON cannot say; exactly one member is there."""

    json: msgspec.Raw = msgspec.Raw()
    text: str | None = None
    blob: str | None = None
    real: str | None = None


Cell: TypeAlias = int | float | str | Special | None
"""A value as a line has it."""


class Line(msgspec.Struct, frozen=True, gc=False):
    """One line: the table, and the row, which a reader decodes as far as it needs it."""

    table: str
    row: msgspec.Raw
    shared: bool = False


class Row(msgspec.Struct, frozen=True):
    """One row as values, the columns in order."""

    table: str
    values: dict[str, Value]
    shared: bool = False


class NoRow(ValueError):
    """Bytes that are no line of the export form."""


LINE = msgspec.json.Decoder(Line)
_CELLS = msgspec.json.Decoder(dict[str, Cell])
_RAW = msgspec.json.Decoder(msgspec.Raw)
_encode = msgspec.json.Encoder().encode
_MIN, _MAX = -(1 << 63), (1 << 63) - 1


def encode_row(
    table: str, columns: Sequence[str], values: Sequence[Value | PlainJson], *, shared: bool = False
) -> bytes:
    """Returns the line of a row, with its newline."""
    cells = b",".join(_encode(name) + b":" + encode_value(value) for name, value in zip(columns, values, strict=True))
    mark = b'"shared":true,' if shared else b""
    return b'{"table":' + _encode(table) + b"," + mark + b'"row":{' + cells + b"}}\n"


def encode_value(value: Value | PlainJson) -> bytes:
    """Returns a value as it stands in a line."""
    if isinstance(value, PlainJson):
        return b'{"json":' + value.data + b"}"
    if isinstance(value, str):
        data = value.encode()
        return b'{"json":' + data + b"}" if _is_plain_json(data) else _encode(value)
    if isinstance(value, bytes):
        return _encode({"blob": base64.b64encode(value).decode()})
    if isinstance(value, BadText):
        return _encode({"text": base64.b64encode(value.data).decode()})
    if isinstance(value, float) and not math.isfinite(value):
        return _encode({"real": str(value)})
    return _encode(value)


def _is_plain_json(data: bytes) -> bool:
    """Tells whether a text is an object or array on one line that comes out of a decoder letter by letter."""
    if data[:1] not in (b"{", b"[") or b"\n" in data or b"\r" in data:
        return False
    try:
        return bytes(_RAW.decode(data)) == data
    except (msgspec.DecodeError, RecursionError):
        return False


def decode_cell(cell: Cell) -> Value:
    """Returns the value of a cell; raises NoRow when it has none."""
    if not isinstance(cell, Special):
        if type(cell) is int and not _MIN <= cell <= _MAX:
            raise NoRow("an integer of more than 64 bits")
        return cell
    try:
        if cell.blob is not None:
            return base64.b64decode(cell.blob, validate=True)
        if cell.text is not None:
            return BadText(base64.b64decode(cell.text, validate=True))
        if cell.real is not None:
            return float(cell.real)
        return bytes(cell.json).decode()
    except (binascii.Error, ValueError) as error:
        raise NoRow(str(error)) from error


def decode_row(data: Buffer) -> Row:
    """Returns the row of one line; raises NoRow."""
    try:
        line = LINE.decode(data)
        cells = _CELLS.decode(line.row)
    except (msgspec.DecodeError, RecursionError) as error:
        raise NoRow(str(error)) from error
    return Row(line.table, {name: decode_cell(cell) for name, cell in cells.items()}, line.shared)


def split_lines(data: Buffer) -> Iterator[memoryview]:
    """Yields the lines of exported rows laid end to end, each with its newline."""
    view, begin = memoryview(data), 0
    for end in line_ends(view):
        yield view[begin:end]
        begin = end


def decode_rows(data: Buffer) -> list[Row]:
    """Returns all rows of an export; raises NoRow where a line is none. Blank lines are passed over."""
    return [decode_row(line) for line in split_lines(data) if bytes(line).strip()]


def own_lines(data: Buffer) -> bytes:
    """Returns the lines of rows that belong to the session alone: what is compared before something is placed."""
    return b"".join(bytes(line) for line in split_lines(data) if not _is_shared(bytes(line[:200])))


def _is_shared(head: bytes) -> bool:
    return b'"shared":true' in head.partition(b',"row":')[0]  # a column may say so of something else


def row_key(row: Row, names: Iterable[str]) -> tuple[Value, ...]:
    """Returns the values of the named columns, by which a row is known again."""
    return tuple(row.values.get(name) for name in names)


def name_rows(path: str, session_id: str) -> str:
    """Returns the stream path of one session's rows: the database's own path, `#`, the id spelled safely."""
    safe = "".join(c if c.isascii() and (c.isalnum() or c in "_-.") else f"%{ord(c):06x}" for c in session_id)
    return f"{path}#{safe}"


def session_of(path: str) -> str:
    """Returns the session's id in a stream path of rows."""
    return re.sub("%([0-9a-f]{6})", lambda found: chr(int(found.group(1), 16)), path.partition("#")[2])


def is_rows(path: str) -> bool:
    """Tells whether a stream path names rows of a database."""
    return "#" in path


def database_of(path: str) -> str:
    """Returns the database's path in a stream path of rows; the path itself where it names a file."""
    return path.partition("#")[0]


def changed_columns(one: Mapping[str, Value], other: Mapping[str, Value]) -> dict[str, Value]:
    """Returns the columns of `other` that are not the same in `one`; 1 and 1.0 differ."""
    return {
        name: value
        for name, value in other.items()
        if name not in one or type(one[name]) is not type(value) or one[name] != value
    }
