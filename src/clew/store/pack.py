"""Packs: how segments and side files lie on the disk, a few hundred of them compressed together.

A pack is one zstd frame with a checksum. Inside, in this order, all numbers 4 bytes little-endian: the number
of slots; the number of records of all slots; for each slot the number of its records; for each record its
length; then all records end to end. A slot is one segment, or one side file (which is one record). Packs
describe themselves: with the digest rule, everything the places table says about a pack can be made again
from the pack.

Level 1 and 256 kB were measured on real sessions: 0.18 of their size at 350 MB/s a core; level 3 gives 0.177
at 230 MB/s, and 64 kB packs 0.21.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, chain

from clew.errors import StoreError

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

PACK_SIZE = 256 << 10
"""Bytes of records after which a pack is closed. One larger segment is a pack of its own."""

SEGMENTS = 0
SIDE_FILES = 1

_LEVEL = 1
_OPTIONS: dict[int, int] = {
    zstd.CompressionParameter.compression_level: _LEVEL,
    zstd.CompressionParameter.checksum_flag: 1,
}
_U32_MAX = 0xFFFFFFFF


class Contents:
    """A pack taken apart: slots by number."""

    def __init__(self, raw: bytes) -> None:
        slots, total = struct.unpack_from("<II", raw)
        counts: tuple[int, ...] = struct.unpack_from(f"<{slots}I", raw, 8)
        lengths: tuple[int, ...] = struct.unpack_from(f"<{total}I", raw, 8 + 4 * slots)
        if sum(counts) != total or 8 + 4 * (slots + total) + sum(lengths) != len(raw):
            raise ValueError("the head of the pack does not fit its records")
        self._raw = raw
        self._lengths = lengths
        self._first = tuple(accumulate(counts, initial=0))
        self._starts = tuple(accumulate(lengths, initial=8 + 4 * (slots + total)))

    def __len__(self) -> int:
        return len(self._first) - 1

    def lengths(self, slot: int) -> tuple[int, ...]:
        """Returns the lengths of the records of a slot."""
        return self._lengths[self._first[slot] : self._first[slot + 1]]

    def data(self, slot: int) -> bytes:
        """Returns the records of a slot, end to end."""
        return self._raw[self._starts[self._first[slot]] : self._starts[self._first[slot + 1]]]

    def __iter__(self) -> Iterator[tuple[tuple[int, ...], bytes]]:
        return ((self.lengths(slot), self.data(slot)) for slot in range(len(self)))


class Compressor:
    """Makes packs. One object is for one thread at a time, and cheaper to use again than to make anew."""

    def __init__(self) -> None:
        self._zstd = zstd.ZstdCompressor(options=_OPTIONS)

    def compress(self, lengths: Sequence[Sequence[int]], parts: Iterable[bytes]) -> bytes:
        """Returns the pack of these slots; `parts` are their bytes."""
        return self._zstd.compress(b"".join((_head(lengths), *parts)), zstd.ZstdCompressor.FLUSH_FRAME)

    def compress_large(self, lengths: Sequence[int], data: bytes | memoryview) -> bytes:
        """Returns the pack of one slot, without copying its bytes."""
        head = self._zstd.compress(_head([lengths]))
        return head + self._zstd.compress(data, zstd.ZstdCompressor.FLUSH_FRAME)


def read_pack(data: bytes) -> Contents | None:
    """Returns the contents of a pack, or None when it is damaged. The slots' digests are not checked here."""
    try:
        return Contents(zstd.decompress(data))
    except (zstd.ZstdError, struct.error, ValueError, MemoryError):
        return None


def _head(lengths: Sequence[Sequence[int]]) -> bytes:
    flat = tuple(chain.from_iterable(lengths))
    if flat and max(flat) > _U32_MAX:
        raise StoreError("a record of 4 GiB or more cannot be kept", hint="Leave that session out.")
    counts = tuple(map(len, lengths))
    return struct.pack(f"<{2 + len(counts) + len(flat)}I", len(counts), len(flat), *counts, *flat)
