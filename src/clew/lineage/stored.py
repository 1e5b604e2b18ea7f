"""JSON objects whose unknown members survive: how values of this room (and of the lease) lie in a store.

A stored object is taken apart into members (name, raw JSON). What the reader knows it takes out, each with a strict
decoder; the rest it keeps, text for text, and writes back behind its own. So a member that a later clew added survives
a rewrite by this one. Promises `Malformed` for everything that does not fit; nothing is guessed, nothing converted.
An object that names one member twice is malformed: it would say two things at once.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final, TypeVar

import msgspec

Extra = tuple[tuple[str, str], ...]
"""Unknown members in their order: name and raw JSON text."""

T = TypeVar("T")

BOUND: Final = 2**53
"""Integers lie within ±2^53, so that every JSON reader has them exactly."""

TEXT: Final[msgspec.json.Decoder[str]] = msgspec.json.Decoder(str)
TEXT_OR_NONE: Final[msgspec.json.Decoder[str | None]] = msgspec.json.Decoder(str | None)
NUMBER: Final[msgspec.json.Decoder[int]] = msgspec.json.Decoder(int)
NUMBER_OR_NONE: Final[msgspec.json.Decoder[int | None]] = msgspec.json.Decoder(int | None)
FLAG: Final[msgspec.json.Decoder[bool]] = msgspec.json.Decoder(bool)
RAW: Final[msgspec.json.Decoder[msgspec.Raw]] = msgspec.json.Decoder(msgspec.Raw)
RAW_LIST: Final[msgspec.json.Decoder[list[msgspec.Raw]]] = msgspec.json.Decoder(list[msgspec.Raw])

_MEMBERS: Final[msgspec.json.Decoder[dict[str, msgspec.Raw]]] = msgspec.json.Decoder(dict[str, msgspec.Raw])


class Malformed(ValueError):
    """Stored bytes do not have the shape they must have; the message says where."""


class Members:
    """The members of one stored object, from which a reader takes what it knows."""

    def __init__(self, data: bytes, what: str) -> None:
        """Takes the object apart; raises Malformed when `data` is no JSON object. `what` names it in messages."""
        self.what = what
        try:
            raw = _MEMBERS.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise Malformed(f"{what}: {error}") from error
        self._members: dict[str, bytes] = {name: bytes(value) for name, value in raw.items()}

    def has(self, name: str) -> bool:
        """Tells whether a member of that name is left."""
        return name in self._members

    def take(self, name: str, decoder: msgspec.json.Decoder[T]) -> T:
        """Takes one member that must be there and fit; raises Malformed."""
        raw = self._members.pop(name, None)
        if raw is None:
            raise Malformed(f"{self.what}: {name} is missing")
        try:
            value = decoder.decode(raw)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise Malformed(f"{self.what}: {name}: {error}") from error
        if isinstance(value, int) and abs(value) > BOUND:
            raise Malformed(f"{self.what}: {name}: beyond 2^53")
        return value

    def take_object(self, name: str) -> bytes:
        """Takes one member undecoded; raises Malformed when it is missing."""
        raw = self._members.pop(name, None)
        if raw is None:
            raise Malformed(f"{self.what}: {name} is missing")
        return raw

    def take_object_or_none(self, name: str) -> bytes | None:
        """Takes one member undecoded; None when it is null, or missing."""
        raw = self._members.pop(name, b"null")
        return None if raw == b"null" else raw

    def take_or(self, name: str, decoder: msgspec.json.Decoder[T], missing: T) -> T:
        """Takes one member, or `missing` when it is not there; raises Malformed when it does not fit."""
        return self.take(name, decoder) if name in self._members else missing

    def rest(self) -> Extra:
        """Returns what nobody took, in the order of the object."""
        return tuple((name, raw.decode()) for name, raw in self._members.items())


def refuse_doubles(data: bytes, what: str) -> None:
    """Raises Malformed when any object in `data`, at any depth, names a member twice."""

    def pairs(members: list[tuple[str, Any]]) -> None:
        names = [name for name, _ in members]
        if len(set(names)) != len(names):
            raise Malformed(f"{what}: a member is named twice")

    try:
        json.loads(data, object_pairs_hook=pairs)
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Malformed(f"{what}: {error}") from error


def raw_items(data: bytes, what: str) -> tuple[bytes, ...]:
    """Takes a stored list apart; raises Malformed when `data` is no JSON list."""
    try:
        return tuple(bytes(item) for item in RAW_LIST.decode(data))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Malformed(f"{what}: {error}") from error


def json_text(value: object) -> bytes:
    """Returns the compact JSON of a plain value; raises Malformed when it holds a lone surrogate."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError as error:
        raise Malformed(f"a lone surrogate cannot be stored: {error}") from error


def write_object(members: Iterable[tuple[str, bytes]], extra: Extra = ()) -> bytes:
    """Returns the JSON object of these members, in order, the unknown ones behind them."""
    parts = [json_text(name) + b":" + raw for name, raw in members]
    parts.extend(json_text(name) + b":" + raw.encode() for name, raw in extra)
    return b"{" + b",".join(parts) + b"}"


def write_list(items: Iterable[bytes]) -> bytes:
    """Returns the JSON list of these items."""
    return b"[" + b",".join(items) + b"]"


def is_storable(text: str) -> bool:
    """Tells whether `text` has a UTF-8 form: no lone surrogate."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


S = TypeVar("S", bound=msgspec.Struct)


def store_open(value: msgspec.Struct) -> bytes:
    """Returns the stored form of a struct: its fields by name, then its `extra`, the members nobody knew."""
    names = [name for name in value.__struct_fields__ if name != "extra"]
    return write_object([(name, json_text(getattr(value, name))) for name in names], getattr(value, "extra", ()))


def load_open(data: bytes, kind: type[S], what: str) -> S:
    """Returns the struct of a stored form, unknown members in its `extra`; raises Malformed. Fields may be missing
    where the struct has a default for them."""
    members = Members(data, what)
    known = [name for name in kind.__struct_fields__ if name != "extra" and members.has(name)]
    body = write_object([(name, members.take_object(name)) for name in known])
    try:
        value = msgspec.json.decode(body, type=kind)
    except msgspec.DecodeError as error:
        raise Malformed(f"{what}: {error}") from error
    return msgspec.structs.replace(value, extra=members.rest())
