"""Raw values taken as what a format expects: an object as a struct, a list as structs, nothing for the rest.

For formats whose records are decoded once, shallowly: what is large stays raw until somebody looks. No odd value costs
a record, and nothing here raises on any bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from types import GenericAlias
from typing import TypeVar

import msgspec

from clew.conversation.text import JsonString, JsonValue, Lazy
from clew.formats.marks import Mark
from clew.formats.raws import NONE

T = TypeVar("T")

_RAWS = msgspec.json.Decoder(list[msgspec.Raw])


@cache
def _decoder(kind: type[T]) -> msgspec.json.Decoder[T]:
    return msgspec.json.Decoder(kind)


@cache
def _list_decoder(kind: type[T]) -> msgspec.json.Decoder[list[T]]:
    return msgspec.json.Decoder(GenericAlias(list, (kind,)))


def decode(raw: msgspec.Raw | bytes | memoryview, kind: type[T]) -> T:
    """Returns a value of this kind; an empty one for what is no object."""
    try:
        return _decoder(kind).decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return kind()


def decode_list(raw: msgspec.Raw, kind: type[T]) -> list[T]:
    """Returns the objects of a list; what is no object is left out."""
    if raw is NONE or first_byte(raw) != 0x5B:
        return []
    try:
        return _list_decoder(kind).decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return list(_objects(raw, kind))


def _objects(raw: msgspec.Raw, kind: type[T]) -> Iterator[T]:
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
