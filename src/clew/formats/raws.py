"""Values of a record that are looked at only where they are needed: slices of the file with a type of their own.

Total: whatever a value is, a reader here gives something of the asked type, or nothing.
"""

from __future__ import annotations

from typing import Generic, TypeVar

import msgspec

from clew.conversation.text import JsonString, JsonValue, Lazy

T = TypeVar("T")

NONE = msgspec.Raw(b"")
"""Stands for a member that is not there."""

DECODE_ERRORS = (msgspec.DecodeError, RecursionError)

_ANYTHING = msgspec.json.Decoder().decode
_MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_RAWS = msgspec.json.Decoder(list[msgspec.Raw]).decode
_TEXT = msgspec.json.Decoder(str).decode


def first_byte(raw: msgspec.Raw) -> int:
    """Returns the first byte of a JSON value, or 0 when there is none."""
    return memoryview(raw)[0] if raw is not NONE else 0


def is_text(raw: msgspec.Raw) -> bool:
    """Tells whether a value is a JSON string."""
    return raw is not NONE and memoryview(raw)[0] == 0x22


def as_text(raw: msgspec.Raw) -> Lazy:
    """Returns a JSON string as a text, undecoded; nothing for any other value."""
    return JsonString(raw) if is_text(raw) else ""


def as_word(value: object) -> str:
    """Returns a short text as it is; nothing for any other value."""
    return value if isinstance(value, str) else ""


def as_arguments(raw: msgspec.Raw) -> Lazy:
    """Returns the arguments of a call: a text as itself, any other value as its own spelling."""
    if is_text(raw):
        return JsonString(raw)
    return JsonValue(raw) if raw is not NONE else ""


def read_text(raw: msgspec.Raw) -> str:
    """Returns a short text, decoded, or nothing where the value is none."""
    if not is_text(raw):
        return ""
    try:
        return _TEXT(raw)
    except (*DECODE_ERRORS, UnicodeDecodeError):
        return ""


class Shape(Generic[T]):
    """Reads values of one struct: a single one, or the soundest part of a list of them."""

    def __init__(self, kind: type[T], kinds: type[list[T]]) -> None:
        self._one = msgspec.json.Decoder(kind).decode
        self._many = msgspec.json.Decoder(kinds).decode

    def one(self, raw: msgspec.Raw) -> T | None:
        """Returns the value, or None where it has another shape."""
        if first_byte(raw) != 0x7B:
            return None
        try:
            return self._one(raw)
        except DECODE_ERRORS:
            return None

    def many(self, raw: msgspec.Raw) -> list[T]:
        """Returns the values of a list; what has another shape is left out, what is no list has none."""
        if first_byte(raw) != 0x5B:
            return []
        try:
            return self._many(raw)
        except DECODE_ERRORS:
            pass
        found: list[T] = []
        try:
            for item in _RAWS(raw):
                try:
                    found.append(self._one(item))
                except DECODE_ERRORS:
                    continue
        except DECODE_ERRORS:
            pass
        return found


class OddRecords(Generic[T]):
    """Decodes what the decoder of records refuses: a member of another type, a number that no double holds.

    `nested` names the members that must be objects, each with those of its members that are never looked into.
    """

    def __init__(self, kind: type[T], raw: frozenset[str], nested: dict[str, frozenset[str]]) -> None:
        self._decode = msgspec.json.Decoder(kind).decode
        self._raw, self._nested = raw, nested

    def decode(self, data: bytes, /) -> T:
        """Returns the record without its odd members; raises msgspec.DecodeError for what is no JSON object."""
        try:
            return self._decode(data)
        except msgspec.DecodeError:
            members = _MEMBERS(data)
        for name, value in list(members.items()):
            try:
                if name in self._nested:
                    members[name] = _sound(value, self._nested[name])
                elif name not in self._raw:
                    _ANYTHING(value)
            except DECODE_ERRORS:
                del members[name]
        return self._decode(msgspec.json.encode(members))


def _sound(value: msgspec.Raw, raw: frozenset[str]) -> msgspec.Raw:
    members = _MEMBERS(value)
    for name, inner in list(members.items()):
        if name not in raw:
            try:
                _ANYTHING(inner)
            except DECODE_ERRORS:
                del members[name]
    return msgspec.Raw(msgspec.json.encode(members))
