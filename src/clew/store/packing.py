"""Putting segments and side files into packs: once each, compressed beside the caller's own work.

What is there already (by digest) is not stored again. The first pack is compressed in the caller's thread;
when a second one is due, a worker thread takes over, since zstd runs beside Python. At most a few packs are
held at a time.

A session captured after each of its turns would leave a crumb each time. So a small last pack is written
together with the small one that the segment before lies in: the old pack goes, its bytes and digests stay the
same, only the places say another pack. A damaged pack is left alone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING

from clew.conversation.digest import bytes_digest, framed_digest
from clew.platform.faults import declare, fault
from clew.store.pack import PACK_SIZE, SEGMENTS, Compressor, Contents, read_pack
from clew.store.protocol import Data, Sql

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

AFTER_PACK = declare("store.after-pack")

_IN_FLIGHT = 3
_PLACES_AT_ONCE = 50_000

_KNOWN = "SELECT digest FROM places WHERE digest = ? AND kind = ?"
_ADD_PACK = "INSERT INTO packs (kind, size, stored, data) VALUES (?, ?, ?, ?) RETURNING id"
_ADD_PLACE = "INSERT INTO places (digest, kind, pack, slot, size) VALUES (?, ?, ?, ?, ?)"
_LEADS_TO = "SELECT 1 FROM places WHERE digest = ? AND kind = ? AND pack = ? AND slot = ?"
_MOVE_PLACE = "UPDATE places SET pack = ?, slot = ? WHERE digest = ? AND kind = ? AND pack = ?"


class _Item:
    """One segment or side file on its way into a pack; `old` is the pack it is moved from."""

    __slots__ = ("data", "digest", "lengths", "old")

    def __init__(self, digest: bytes, lengths: Sequence[int], data: bytes | memoryview, old: int = 0) -> None:
        self.digest = digest
        self.lengths = lengths
        self.data = data
        self.old = old


class Packer:
    """Takes items of one kind within one transaction. `finish` writes the last pack; leaving the block cleans
    up."""

    def __init__(self, sql: Sql, kind: int = SEGMENTS) -> None:
        self._sql = sql
        self._kind = kind
        self._incoming: dict[bytes, _Item] = {}
        self._incoming_size = 0
        self._fresh: list[_Item] = []
        self._fresh_size = 0
        self._in_flight: deque[tuple[list[_Item], Future[bytes]]] = deque()
        self._taken: set[bytes] = set()
        self._places: list[tuple[bytes, int, int, int, int]] = []
        self._compressor = Compressor()
        self._pool: ThreadPoolExecutor | None = None
        self._submitted = 0
        self.added = 0
        """How many items were not there before."""

    def __enter__(self) -> Packer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)

    def add(self, digest: bytes, lengths: Sequence[int], data: Data) -> None:
        """Takes one item; its bytes are copied unless they are `bytes`, or large enough for a pack of their
        own."""
        if len(data) >= PACK_SIZE:
            self._sift()
            self._add_large(digest, lengths, data if isinstance(data, bytes) else memoryview(data))
            return
        self._incoming[digest] = _Item(digest, lengths, bytes(data))
        self._incoming_size += len(data)
        if self._incoming_size >= PACK_SIZE:
            self._sift()
            if self._fresh_size >= PACK_SIZE // 2:
                self._submit()

    def finish(self, beside: bytes | None = None) -> None:
        """Writes what is left; a small rest goes into one pack with the small one that holds the item
        `beside`."""
        self._sift()
        if self._fresh:
            if beside is not None and self._fresh_size < PACK_SIZE // 2:
                self._take_up(beside)
            self._submit()
        while self._in_flight:
            self._land()
        self._write_places()

    def move(self, pack: int, items: Sequence[tuple[bytes, Sequence[int], bytes]]) -> None:
        """Takes items (digest, lengths, data) out of an old pack, which the caller then deletes."""
        for digest, lengths, data in items:
            self._fresh.append(_Item(digest, lengths, data, pack))
            self._fresh_size += len(data)
        if self._fresh_size >= PACK_SIZE:
            self._submit()

    # --- inside -------------------------------------------------------------------------------------------

    def _sift(self) -> None:
        """Moves the incoming items that are not stored yet to the fresh ones."""
        incoming, self._incoming = self._incoming, {}
        self._incoming_size = 0
        if not incoming:
            return
        known = {row[0] for row in self._sql.execute_many(_KNOWN, [(digest, self._kind) for digest in incoming])}
        for digest, item in incoming.items():
            if digest not in known and digest not in self._taken:
                self._taken.add(digest)
                self._fresh.append(item)
                self._fresh_size += len(item.data)
                self.added += 1

    def _add_large(self, digest: bytes, lengths: Sequence[int], data: bytes | memoryview) -> None:
        if digest in self._taken or self._sql.execute(_KNOWN, (digest, self._kind)):
            return
        self._taken.add(digest)
        self.added += 1
        # Compressed at once: the caller may not keep the buffer, and a copy of something large would cost
        # memory.
        item = _Item(digest, lengths, data)
        while self._in_flight:
            self._land()
        self._write([item], self._compressor.compress_large(lengths, data))

    def _submit(self) -> None:
        items, self._fresh, self._fresh_size = self._fresh, [], 0
        self._submitted += 1
        if self._submitted == 1:
            self._write(items, self._compress(items))
            return
        if self._pool is None:
            from concurrent.futures import ThreadPoolExecutor

            self._pool = ThreadPoolExecutor(1, "clew-pack")
        self._in_flight.append((items, self._pool.submit(self._compress, items)))
        if len(self._in_flight) > _IN_FLIGHT:
            self._land()

    def _compress(self, items: list[_Item]) -> bytes:
        lengths = [item.lengths for item in items]
        return self._compressor.compress(lengths, [bytes(item.data) for item in items])

    def _land(self) -> None:
        items, future = self._in_flight.popleft()
        self._write(items, future.result())

    def _write(self, items: list[_Item], data: bytes) -> None:
        size = sum(len(item.data) for item in items)
        pack = self._sql.execute(_ADD_PACK, (self._kind, size, len(data), data))[0][0]
        for slot, item in enumerate(items):
            if item.old:
                self._sql.execute(_MOVE_PLACE, (pack, slot, item.digest, self._kind, item.old))
            else:
                self._places.append((item.digest, self._kind, pack, slot, len(item.data)))
        if len(self._places) >= _PLACES_AT_ONCE:
            self._write_places()
        fault(AFTER_PACK)

    def _write_places(self) -> None:
        """Writes the places in the order of their digests, which the table keeps them in: denser and
        faster."""
        self._sql.execute_many(_ADD_PLACE, sorted(self._places))
        # Written places answer for themselves; only those not yet written have to be remembered.
        self._taken.difference_update(place[0] for place in self._places)
        self._places = []

    def _take_up(self, beside: bytes) -> None:
        """Puts the items of the small pack that holds `beside` before the fresh ones, and deletes that
        pack."""
        where = self._sql.execute("SELECT pack FROM places WHERE digest = ? AND kind = ?", (beside, self._kind))
        if not where:
            return
        pack = int(where[0][0])
        row = self._sql.execute("SELECT size, data FROM packs WHERE id = ? AND kind = ?", (pack, self._kind))
        if not row or row[0][0] >= PACK_SIZE // 2:
            return
        contents = read_pack(row[0][1])
        if contents is None:
            return
        items = live_items(self._sql, pack, self._kind, contents)
        if len(items) == len(contents):
            self._fresh[:0] = [_Item(digest, lengths, data, pack) for digest, lengths, data in items]
            self._sql.execute("DELETE FROM packs WHERE id = ?", (pack,))


def live_items(sql: Sql, pack: int, kind: int, contents: Contents) -> list[tuple[bytes, tuple[int, ...], bytes]]:
    """Returns the items of a pack (digest, lengths, data) that places lead to, with their digests made
    anew."""
    items: list[tuple[bytes, tuple[int, ...], bytes]] = []
    for slot, (lengths, data) in enumerate(contents):
        digest = bytes.fromhex(slot_digest(kind, lengths, data))
        if sql.execute(_LEADS_TO, (digest, kind, pack, slot)):
            items.append((digest, lengths, data))
    return items


def slot_digest(kind: int, lengths: Sequence[int], data: bytes) -> str:
    """Returns the digest that the contents of a slot have, in hex."""
    return framed_digest(lengths, data) if kind == SEGMENTS else bytes_digest(data)
