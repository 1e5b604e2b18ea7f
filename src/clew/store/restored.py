"""Noticing that a store came back from a backup, and the floor under its fences.

A store cannot know by itself that it is an old one. Three things can: its witness, which lies beside it and is told of
every grant before that counts; a second witness outside of its folder, told after each grant, for the folder may go
back as a whole; and where it lay when it last granted anything (`Sql.origin`), which a copy does not share. Whatever
notices it, the floor is raised above every fence that may have been granted meanwhile, and nothing below is granted any
more. Where nothing can notice it, a person says so (`mark_restored`). A false alarm costs nothing but numbers.

Where nobody remembers how many fences were granted, the floor is the time in microseconds: no store grants faster than
that, and the same backup may be put back again and again. It is a number above others, nothing is decided by it.

Promises: what is only read is not written to; a store that cannot be written tells the floor that it would have.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import msgspec

from clew.errors import StoreDamaged, StoreError
from clew.platform.clock import Clock
from clew.platform.faults import declare, fault
from clew.store.protocol import Sql
from clew.store.record_protocol import StoreState
from clew.store.rows import make_micros
from clew.store.witness import UNREADABLE, Seen, Witness

MARGIN: Final = 1_000_000
"""More fences than what nobody remembers can have granted."""

_HIGHEST: Final = 2**53
_LATEST: Final = 2**52
"""A clock that is far in the future leaves room for fences: they lie within 2^53."""

_NEVER: Final = object()

BEFORE_WITNESS = declare("records.before-witness")
AFTER_WITNESS = declare("records.after-witness")

_STATE = "SELECT store_id, fence_floor, grants, highest_fence, origin FROM store WHERE id = 1"
_GRANT = (
    "UPDATE store SET grants = grants + 1, highest_fence = CASE WHEN highest_fence < ? THEN ? ELSE highest_fence END, "
    "origin = coalesce(?, origin) WHERE id = 1 AND fence_floor <= ? RETURNING store_id, grants, highest_fence"
)
_MOST = "SELECT max(fence) FROM strands WHERE fence <= 9007199254740992"
_RAISE = "UPDATE store SET grants = ?, highest_fence = ?, fence_floor = ?, origin = ? WHERE id = 1 RETURNING store_id"


def outside_path(folder: Path, store_id: str) -> Path:
    """Returns the file of a store's witness in the folder of those that lie outside."""
    return folder / f"records-{store_id}.witness"


class _Alarm(msgspec.Struct, frozen=True):
    """Something says that the store is an old one: what it has seen of a newer, and how far that may be behind.

    `remembers` tells whether anything has seen the newer one at all.
    """

    seen: Seen
    margin: int
    remembers: bool = True


class Guard:
    """What one store knows of itself. `outside` is the folder of the witness that does not lie beside the store."""

    def __init__(self, sql: Sql, witness: Witness | None, outside: Path | None, clock: Clock | None) -> None:
        self._sql, self._witness, self._outside, self._clock = sql, witness, outside, clock
        self._looked_at: object = _NEVER
        self.has_granted = False
        self._told = UNREADABLE

    @property
    def is_exact(self) -> bool:
        """Whether the witness is told of every grant before it counts: all who grant share the file."""
        return self._sql.dialect == "sqlite"

    def state(self) -> StoreState:
        """Returns what the store knows of itself, after comparing it with what others know of it."""
        try:
            self.look()
        except StoreDamaged:
            raise
        except StoreError:
            # It cannot be written, so it grants nothing either; whoever looks sees what would hold.
            store_id, floor, grants, highest, _ = self._row()
            alarm = self._alarm()
            return StoreState(store_id, floor if alarm is None else self._above(alarm, floor, grants, highest)[2])
        return StoreState(*self._row()[:2])

    def mark_restored(self) -> None:
        """Raises the floor on a person's word, also over a witness of another store; within no transaction."""
        seen = self._witness.read() if self._witness is not None else None
        outer = self._outer_seen()
        known = [one for one in (seen, outer) if one is not None]
        most = Seen("", max((one.grants for one in known), default=0), max((one.fence for one in known), default=0))
        self._raise_floor(_Alarm(most, MARGIN, remembers=False), by_word=True)
        self._looked_at = self._sql.opened

    def require(self) -> None:
        """Raises StoreDamaged when the witness knows a store and there is none: it was there, and is gone."""
        if self._witness is not None and not self._sql.is_there and self._witness.read() is not None:
            path = self._witness.path
            raise StoreDamaged(
                f"the store that {path} knows is gone",
                hint=f"Put a backup in its place; to begin anew, delete {path} as well.",
                path=str(path),
            )

    def look(self) -> None:
        """Compares the store with what others know of it, once for each time it was opened; may raise its floor."""
        if self._looked_at == self._sql.opened or self._sql.in_transaction:
            return
        alarm = self._alarm()
        if alarm is not None:
            self._raise_floor(alarm)
        self._looked_at = self._sql.opened

    # --- granting -----------------------------------------------------------------------------------------

    def grant(self, fence: int, *, own: bool) -> bool:
        """Counts a fence that is granted; returns whether it may be. `own`: `tell` and `tell_outside` will follow."""
        granted = self._sql.execute(_GRANT, (fence, fence, self._sql.origin, fence))
        if not granted:
            return False
        self._told = Seen(*granted[0])
        self.has_granted = True
        if not own and self.is_exact:
            self.tell()
        return True

    def tell(self) -> None:
        """Tells the witness how far the store has come: before the commit where it is exact, after it elsewhere."""
        if self._witness is None:
            return
        fault(BEFORE_WITNESS)
        try:
            self._witness.write(self._now(), durable=self.is_exact)
        except StoreError:
            if self.is_exact:
                raise
        fault(AFTER_WITNESS)

    def tell_outside(self) -> None:
        """Tells the witness outside, after the commit. A second opinion: nothing fails without it."""
        now = self._now()
        outer = self.outer(now.store_id)
        if outer is None:
            return
        try:
            outer.write(now, durable=False)
        except StoreError:
            return

    def outer(self, store_id: str) -> Witness | None:
        """Returns the witness outside, by the store's own id: several folders of data share one place."""
        return None if self._outside is None else Witness(outside_path(self._outside, store_id))

    # --- the rest -----------------------------------------------------------------------------------------

    def _row(self) -> tuple[Any, ...]:
        rows = self._sql.execute(_STATE)
        if not rows:
            raise StoreDamaged("the store's row about itself is gone", hint="Put a backup in its place.")
        if not all(0 <= number <= _HIGHEST for number in rows[0][1:4]):
            raise StoreDamaged(
                "the store's row about itself holds numbers that no store can have",
                hint="Put a backup in its place, then say `clew store restored`.",
            )
        return rows[0]

    def _now(self) -> Seen:
        """Returns how far the store has come. A server is not asked again: what the last grant said is near enough."""
        if not self.is_exact:
            return self._told
        store_id, _, grants, highest, _ = self._row()
        return Seen(store_id, grants, highest)

    def _outer_seen(self) -> Seen | None:
        outer = self.outer(self._row()[0])
        try:
            seen = outer.read() if outer is not None else None
        except StoreError:
            return None
        return None if seen == UNREADABLE else seen

    def _alarm(self) -> _Alarm | None:
        seen = self._witness.read() if self._witness is not None else None
        if seen is not None:
            self.require()
        store_id, _, grants, highest, origin = self._row()
        if seen is not None and seen.store_id not in ("", store_id):
            assert self._witness is not None, "something was seen"
            path = self._witness.path
            raise StoreDamaged(
                f"the store is another one than {path} knows",
                hint="Put the right one in its place; if this one is right, say so: `clew store restored`.",
                path=str(path),
            )
        alarms: list[_Alarm] = []
        if seen is not None and (seen == UNREADABLE or grants < seen.grants):
            # One grant that the witness knows exactly may also be one whose commit was cut off.
            cut_off = self.is_exact and grants == seen.grants - 1
            alarms.append(_Alarm(seen, 1 if cut_off else MARGIN))
        outer = self._outer_seen()
        if outer is not None and grants < outer.grants:
            alarms.append(_Alarm(outer, MARGIN))
        here = self._sql.origin
        if origin is not None and here is not None and origin != here:
            alarms.append(_Alarm(Seen(store_id, grants + 1, highest), MARGIN, remembers=False))
        if not alarms:
            return None
        most = Seen(store_id, max(one.seen.grants for one in alarms), max(one.seen.fence for one in alarms))
        return _Alarm(most, max(one.margin for one in alarms), all(one.remembers for one in alarms))

    def _above(self, alarm: _Alarm, floor: int, grants: int, highest: int) -> tuple[int, int, int]:
        """Returns grants, highest fence and floor as they are to be after an alarm."""
        there = self._sql.execute(_MOST)[0][0] or 0
        known = max(floor, highest, there, alarm.seen.fence) + alarm.margin
        if not alarm.remembers and self._clock is not None:
            known = max(known, min(make_micros(self._clock.now()), _LATEST))
        return max(grants, alarm.seen.grants) + 1, known, known

    def _raise_floor(self, alarm: _Alarm, *, by_word: bool = False) -> None:
        with self._sql.transaction():
            row = self._sql.execute(_STATE + self._sql.lock)
            _, floor, grants, highest, _ = row[0] if row else self._row()
            if not by_word and self._alarm() is None:
                return  # Another process noticed it first.
            raised = self._above(alarm, floor, grants, highest)
            ((store_id,),) = self._sql.execute(_RAISE, (*raised, self._sql.origin))
            self._told = Seen(store_id, *raised[:2])
            if self.is_exact:
                self.tell()
        if not self.is_exact:
            self.tell()
        self.tell_outside()
