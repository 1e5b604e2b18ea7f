"""Reading segments and side files back out of their packs.

The last few packs stay at hand, since neighbours mostly lie together. A long reading has the next packs taken
apart by a worker thread meanwhile; a short one starts none.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from clew.errors import StoreDamaged
from clew.store.pack import Contents, read_pack
from clew.store.protocol import Sql

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

_PLACES = "SELECT digest, pack, slot FROM places WHERE digest = ? AND kind = ?"
_PACKS_AT_HAND = 4
_PACKS_AHEAD = 2

Places = Mapping[bytes, tuple[int, int]]
"""Pack and slot, by digest."""


class SlotReader:
    """Finds and reads slots of packs. `close` it when done."""

    def __init__(self, sql: Sql, kind: int) -> None:
        self._sql = sql
        self._kind = kind
        self._at_hand: OrderedDict[int, Contents | None] = OrderedDict()
        self._coming: dict[int, Future[Contents | None]] = {}
        self._ahead: deque[int] = deque()
        self._pool: ThreadPoolExecutor | None = None

    def find(self, digests: Iterable[bytes]) -> Places:
        """Returns the places of those digests that have one."""
        rows = self._sql.execute_many(_PLACES, [(digest, self._kind) for digest in digests])
        return {digest: (pack, slot) for digest, pack, slot in rows}

    def read_ahead(self, places: Places) -> None:
        """Makes ready for reading these places in their order, if that is a long reading."""
        packs = tuple(dict.fromkeys(pack for pack, _ in places.values()))
        if len(packs) > _PACKS_AT_HAND:
            self._ahead = deque(packs)

    def read(self, digest: bytes, places: Places) -> tuple[tuple[int, ...], bytes | None]:
        """Returns lengths and bytes of one item, or ((), None) when they cannot be had."""
        place = places.get(digest)
        if place is None:
            return (), None
        contents = self._contents(place[0])
        if contents is None:
            # Another process may have put it into another pack since it was looked up.
            place = self.find([digest]).get(digest, place)
            contents = self._contents(place[0])
        if contents is None or place[1] >= len(contents):
            return (), None
        return contents.lengths(place[1]), contents.data(place[1])

    def close(self) -> None:
        """Ends the worker thread, if there is one."""
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
        self._pool = None

    def _contents(self, pack: int) -> Contents | None:
        if pack not in self._at_hand:
            coming = self._coming.pop(pack, None)
            if self._ahead:
                self._send_ahead(pack)
            self._at_hand[pack] = coming.result() if coming is not None else _take_apart(load_pack(self._sql, pack))
            if len(self._at_hand) > _PACKS_AT_HAND:
                self._at_hand.popitem(last=False)
        return self._at_hand[pack]

    def _send_ahead(self, wanted: int) -> None:
        """Hands the packs that come after the wanted one to the worker."""
        if self._pool is None:
            from concurrent.futures import ThreadPoolExecutor

            self._pool = ThreadPoolExecutor(1, "clew-unpack")
        while self._ahead and len(self._coming) < _PACKS_AHEAD:
            pack = self._ahead.popleft()
            if pack != wanted and pack not in self._at_hand and pack not in self._coming:
                self._coming[pack] = self._pool.submit(_take_apart, load_pack(self._sql, pack))


def load_pack(sql: Sql, pack: int) -> bytes | None:
    """Returns the compressed bytes of a pack, or None when they cannot be had."""
    try:
        rows = sql.execute("SELECT data FROM packs WHERE id = ?", (pack,))
    except StoreDamaged:
        return None
    return rows[0][0] if rows else None


def _take_apart(data: bytes | None) -> Contents | None:
    return read_pack(data) if data is not None else None
