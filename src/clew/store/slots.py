"""Reading segments and side files back out of their packs."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

from clew.errors import StoreDamaged
from clew.store.pack import Contents, read_pack
from clew.store.protocol import Sql

_PLACES = "SELECT digest, pack, slot FROM places WHERE digest = ? AND kind = ?"
_PACKS_AT_HAND = 4


class SlotReader:
    """Finds and reads slots of packs, with the last few packs at hand: neighbours mostly lie together."""

    def __init__(self, sql: Sql) -> None:
        self._sql = sql
        self._at_hand: OrderedDict[int, Contents | None] = OrderedDict()

    def find(self, digests: Iterable[bytes], kind: int) -> dict[bytes, tuple[int, int]]:
        """Returns pack and slot of those digests that have a place."""
        rows = self._sql.execute_many(_PLACES, [(digest, kind) for digest in digests])
        return {digest: (pack, slot) for digest, pack, slot in rows}

    def read(
        self, digest: bytes, kind: int, places: dict[bytes, tuple[int, int]]
    ) -> tuple[tuple[int, ...], bytes | None]:
        """Returns lengths and bytes of one item, or ((), None) when they cannot be had."""
        place = places.get(digest)
        if place is not None and self._contents(place[0]) is None:
            # Another process may have put it into another pack since it was looked up.
            place = self.find([digest], kind).get(digest)
        contents = self._contents(place[0]) if place is not None else None
        if place is None or contents is None or place[1] >= len(contents):
            return (), None
        return contents.lengths(place[1]), contents.data(place[1])

    def _contents(self, pack: int) -> Contents | None:
        if pack not in self._at_hand:
            data = load_pack(self._sql, pack)
            self._at_hand[pack] = read_pack(data) if data is not None else None
            if len(self._at_hand) > _PACKS_AT_HAND:
                self._at_hand.popitem(last=False)
        return self._at_hand[pack]


def load_pack(sql: Sql, pack: int) -> bytes | None:
    """Returns the compressed bytes of a pack, or None when they cannot be had."""
    try:
        rows = sql.execute("SELECT data FROM packs WHERE id = ?", (pack,))
    except StoreDamaged:
        return None
    return rows[0][0] if rows else None
