"""The ordered list of a capture's segments: keys, digests, end marks, kept so that grown captures share it.

A list continues another one: it names it, says how many of its entries come first, and holds only its own. So
a capture of a session that grew by two segments costs two entries, whatever its length. After 64 steps a list
is written out in full, which bounds the reading of any list to as many rows.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Sequence
from typing import Any

import msgspec

from clew.errors import StoreDamaged
from clew.store.protocol import Sql

MAX_DEPTH = 64
_WIDTH = 32

_LOAD = "SELECT prev, prev_count, count, keys, digests, ends FROM lists WHERE id = ?"
_LOAD_KEYS = "SELECT prev, prev_count, count, keys FROM lists WHERE id = ?"
_SHAPE = "SELECT prev, prev_count, count, depth FROM lists WHERE id = ?"
_ADD = (
    "INSERT INTO lists (prev, prev_count, count, depth, keys, digests, ends) VALUES (?, ?, ?, ?, ?, ?, ?) RETURNING id"
)


class Entries(msgspec.Struct, frozen=True):
    """The segments of a capture in order, without their bytes: 32 bytes of key and of digest each, and end
    marks."""

    keys: bytes = b""
    digests: bytes = b""
    ends: tuple[int, ...] = ()

    def __len__(self) -> int:
        return len(self.digests) // _WIDTH

    def key(self, number: int) -> bytes:
        """Returns the key of an entry."""
        return self.keys[number * _WIDTH : (number + 1) * _WIDTH]

    def digest(self, number: int) -> bytes:
        """Returns the digest of an entry."""
        return self.digests[number * _WIDTH : (number + 1) * _WIDTH]

    def first(self, count: int) -> Entries:
        """Returns the first `count` entries."""
        ends = tuple(end for end in self.ends if end < count)
        return Entries(self.keys[: count * _WIDTH], self.digests[: count * _WIDTH], ends)

    def after(self, count: int) -> Entries:
        """Returns the entries from number `count` on, numbered from 0."""
        ends = tuple(end - count for end in self.ends if end >= count)
        return Entries(self.keys[count * _WIDTH :], self.digests[count * _WIDTH :], ends)

    def plus(self, others: Entries) -> Entries:
        """Returns these entries followed by others."""
        own = len(self)
        return Entries(
            self.keys + others.keys,
            self.digests + others.digests,
            self.ends + tuple(end + own for end in others.ends),
        )

    def common(self, others: Entries) -> int:
        """Returns how many entries agree from the start."""
        low, high = 0, min(len(self), len(others))
        while low < high:
            middle = (low + high + 1) // 2
            if self.first(middle) == others.first(middle):
                low = middle
            else:
                high = middle - 1
        return low


def load_entries(sql: Sql, number: int, count: int) -> Entries:
    """Returns the first `count` entries of a list; raises StoreDamaged when they are not all there."""
    pieces: list[Entries] = []
    wanted = count
    while wanted > 0:
        prev, prev_count, own, keys, digests, ends = _row(sql, _LOAD, number)
        _check(number, own, wanted - prev_count, keys, digests)
        piece = Entries(keys, digests, read_ends(ends))
        pieces.append(piece.first(max(0, wanted - prev_count)))
        number, wanted = prev, min(prev_count, wanted)
    whole = Entries()
    for piece in reversed(pieces):
        whole = whole.plus(piece)
    return whole


def load_keys(sql: Sql, number: int, count: int) -> bytes:
    """Returns the first `count` keys of a list, without touching the rest."""
    pieces: list[bytes] = []
    wanted = count
    while wanted > 0:
        prev, prev_count, own, keys = _row(sql, _LOAD_KEYS, number)
        _check(number, own, wanted - prev_count, keys, keys)
        pieces.append(keys[: max(0, wanted - prev_count) * _WIDTH])
        number, wanted = prev, min(prev_count, wanted)
    return b"".join(reversed(pieces))


def add_list(sql: Sql, base: int, shared: int, new: Entries) -> int:
    """Stores the first `shared` entries of the list `base`, followed by new ones, and returns the list's
    number."""
    # Start from the list that really holds the last shared entry, not from one that only passes it on.
    prev, depth = base, 0
    while shared > 0:
        older, older_count, _, depth = _row(sql, _SHAPE, prev)
        if shared > older_count:
            break
        prev = older
    if shared == 0:
        return _add(sql, None, 0, 0, new)
    if depth + 1 >= MAX_DEPTH:
        return _add(sql, None, 0, 0, load_entries(sql, prev, shared).plus(new))
    return _add(sql, prev, shared, depth + 1, new)


def make_ends(numbers: Sequence[int]) -> bytes:
    """Returns numbers as 4 bytes little-endian each."""
    packed = array("I", numbers)
    if sys.byteorder == "big":
        packed.byteswap()
    return packed.tobytes()


def read_ends(data: bytes) -> tuple[int, ...]:
    """Returns the numbers that `make_ends` was given; a torn last one is left out."""
    packed = array("I")
    packed.frombytes(data[: len(data) - len(data) % 4])
    if sys.byteorder == "big":
        packed.byteswap()
    return tuple(packed)


def _add(sql: Sql, prev: int | None, prev_count: int, depth: int, new: Entries) -> int:
    row = (prev, prev_count, len(new), depth, new.keys, new.digests, make_ends(new.ends))
    return int(sql.execute(_ADD, row)[0][0])


def _row(sql: Sql, statement: str, number: int) -> tuple[Any, ...]:
    rows = sql.execute(statement, (number,))
    if not rows:
        raise StoreDamaged(f"the list {number} of a capture is gone", hint="`clew store check` tells more.")
    return rows[0]


def _check(number: int, own: int, wanted: int, keys: bytes, digests: bytes) -> None:
    if wanted > own or len(keys) != own * _WIDTH or len(digests) != own * _WIDTH:
        raise StoreDamaged(f"the list {number} of a capture is torn", hint="`clew store check` tells more.")
