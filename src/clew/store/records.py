"""Session records as rows: strands with their leases, and the fence that only grows.

Everything of `records.db` comes together here: threads, records, ledger and journals are one object with one
transaction. Each grant of a fence is counted in the store and told to the witness; a store that knows of fewer grants
than its witness came back from a backup, and grants nothing below its floor from then on. SQL that SQLite and
PostgreSQL both take; no body is read.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Final

from clew.errors import StoreDamaged, StoreError
from clew.ids import AgentName, NativeId, ThreadId
from clew.platform.faults import declare, fault
from clew.store.journals import SqlJournals
from clew.store.ledger import SqlLedger
from clew.store.protocol import Sql, StrandRow
from clew.store.record_protocol import StoreState
from clew.store.rows import make_conflict, make_fence_conflict, make_floor_conflict, make_micros, make_text
from clew.store.threads import SqlThreads
from clew.store.witness import UNREADABLE, Seen, Witness

MARGIN: Final = 1_000_000
"""More fences than what nobody remembers can have granted."""

_NEVER: Final = object()

BEFORE_WITNESS = declare("records.before-witness")
AFTER_WITNESS = declare("records.after-witness")

_STATE = "SELECT store_id, fence_floor, grants, highest_fence FROM store WHERE id = 1"
_FENCE = "SELECT fence FROM strands WHERE id = ?"
_STANDING = "SELECT revision, agent, fence, claim FROM strands WHERE id = ?"
_PUT_LEASE = (
    "UPDATE strands SET revision = revision + 1, updated_at = ?, body = ?, claim = ? "
    "WHERE id = ? AND revision = ? AND fence = ? AND claim IS NOT NULL RETURNING revision"
)
_GRANT = (
    "UPDATE store SET grants = grants + 1, highest_fence = CASE WHEN highest_fence < ? THEN ? ELSE highest_fence END "
    "WHERE id = 1 AND fence_floor <= ? RETURNING grants"
)
_RAISE = "UPDATE store SET grants = ?, highest_fence = ?, fence_floor = ? WHERE id = 1 RETURNING store_id"


class SqlRecords(SqlThreads, SqlLedger, SqlJournals):
    """The RecordStore over any `Sql`.

    With a witness, a grant on SQLite is told to it, durably, before the commit: all who grant share the file. On a
    server it is told after the commit what this machine has seen.
    """

    def __init__(self, sql: Sql, witness: Witness | None = None) -> None:
        super().__init__(sql)
        self._witness = witness
        self._looked_at: object = _NEVER
        self._own = False
        self._granted = False

    @contextmanager
    def transaction(self) -> Generator[None]:
        """Makes the writes inside visible together, or none of them."""
        if self._sql.in_transaction:
            with self._sql.transaction():
                yield
            return
        self._look()
        self._own, self._granted = True, False
        try:
            with self._sql.transaction():
                yield
                if self._granted and self._is_exact:
                    self._tell()
            if self._granted and not self._is_exact:
                self._tell()
        finally:
            self._own = False

    @contextmanager
    def _writing(self) -> Generator[None]:
        if self._sql.in_transaction:
            yield
            return
        with self.transaction():
            yield

    # --- the store ----------------------------------------------------------------------------------------

    def state(self) -> StoreState:
        """Returns what the store knows of itself, after comparing it with what its witness knows."""
        self._look()
        return StoreState(*self._state()[:2])

    def mark_restored(self) -> StoreState:
        """Raises the floor above every fence that may ever have been granted."""
        with self._writing():
            self._raise_floor(None, MARGIN)
        return self.state()

    def require(self) -> None:
        """Raises StoreDamaged when the witness knows a store and there is none: it was there, and is gone."""
        if self._witness is not None and not self._sql.is_there and self._witness.read() is not None:
            path = self._witness.path
            raise StoreDamaged(
                f"the store that {path} knows is gone",
                hint=f"Put a backup in its place; to begin anew, delete {path} as well.",
                path=str(path),
            )

    @property
    def _is_exact(self) -> bool:
        """Whether the witness is told of every grant before it counts."""
        return self._sql.dialect == "sqlite"

    def _state(self) -> tuple[Any, ...]:
        rows = self._sql.execute(_STATE)
        if not rows:
            raise StoreDamaged("the store's row about itself is gone", hint="Put a backup in its place.")
        return rows[0]

    def _look(self) -> None:
        """Compares the store with its witness, once for each time it was opened."""
        if self._witness is None or self._looked_at == self._sql.opened or self._sql.in_transaction:
            return
        seen = self._witness.read()
        if seen is not None:
            self._compare(seen)
        self._looked_at = self._sql.opened

    def _compare(self, seen: Seen) -> None:
        assert self._witness is not None, "something was seen"
        path = self._witness.path
        self.require()
        store_id, _, grants, _ = self._state()
        if seen.store_id not in ("", store_id):
            raise StoreDamaged(
                f"the store is another one than {path} knows",
                hint=f"Put the right one in its place; if this one is right, delete {path}.",
                path=str(path),
            )
        if seen == UNREADABLE or grants < seen.grants:
            # One grant that the witness knows exactly may also be one whose commit was cut off.
            margin = 1 if self._is_exact and grants == seen.grants - 1 else MARGIN
            with self._sql.transaction():
                self._raise_floor(seen, margin)
                if self._is_exact:
                    self._tell()
            if not self._is_exact:
                self._tell()

    def _raise_floor(self, seen: Seen | None, margin: int) -> None:
        _, floor, grants, highest = self._sql.execute(_STATE + self._sql.lock)[0]
        if seen is not None and seen != UNREADABLE and grants >= seen.grants:
            return  # Another process noticed it first.
        there = self._sql.execute("SELECT max(fence) FROM strands")[0][0] or 0
        known = max(floor, highest, there, seen.fence if seen is not None else 0)
        granted = max(grants, seen.grants if seen is not None else 0) + 1
        self._sql.execute(_RAISE, (granted, known + margin, known + margin))
        self._granted = True

    def _tell(self) -> None:
        """Tells the witness how far the store has come."""
        if self._witness is None:
            return
        store_id, _, grants, highest = self._state()
        fault(BEFORE_WITNESS)
        try:
            self._witness.write(Seen(store_id, grants, highest), durable=self._is_exact)
        except StoreError:
            if self._is_exact:
                raise
        fault(AFTER_WITNESS)

    # --- records ------------------------------------------------------------------------------------------

    def records(self, *, scope: str | None = None, claims: Collection[str] = ()) -> tuple[StrandRow, ...]:
        """Returns the strands that have a claim, by time of creation, then by id."""
        conditions, values = ["claim IS NOT NULL"], list[Any]()
        if scope is not None:
            conditions.append("scope = ?")
            values.append(make_text(scope))
        if claims:
            conditions.append(f"claim IN ({', '.join('?' * len(claims))})")
            values.extend(claims)
        return self._strands(" AND ".join(conditions), values)

    def put_record(
        self,
        strand: str,
        *,
        thread: ThreadId,
        agent: AgentName,
        native_id: NativeId,
        roots: Iterable[str],
        scope: str,
        fence: int,
        claim: str,
        body: bytes,
        expected: int | None,
        now: datetime,
    ) -> int:
        """Writes a strand with its lease; raises Conflict, or NotFoundError without thread."""
        at, native, place = make_micros(now), make_text(native_id), make_text(scope)
        with self._writing():
            self._require_thread(thread)
            if expected is None:
                self._check_absent(strand)
                self._grant(strand, 0, fence)
                rows = self._sql.execute(
                    "INSERT INTO strands (id, thread, agent, native_id, revision, created_at, updated_at, body, "
                    "scope, fence, claim) VALUES (?, ?, ?, ?, 1, ?, ?, ?, ?, ?, ?) "
                    "ON CONFLICT DO NOTHING RETURNING revision",
                    (strand, thread, agent, native, at, at, body, place, fence, claim),
                )
            else:
                self._check_swap(strand, expected, fence, agent)
                rows = self._sql.execute(
                    "UPDATE strands SET thread = ?, native_id = ?, revision = revision + 1, updated_at = ?, body = ?, "
                    "scope = ?, fence = ?, claim = ? WHERE id = ? AND revision = ? RETURNING revision",
                    (thread, native, at, body, place, fence, claim, strand, expected),
                )
            revision = self._won(rows, "strand", strand, expected)
            self._put_roots(strand, roots)
            return revision

    def put_lease(self, strand: str, *, fence: int, claim: str, body: bytes, expected: int, now: datetime) -> int:
        """Writes a strand whose lease changed and nothing of its lineage; raises Conflict."""
        at = make_micros(now)
        if self._sql.dialect == "postgresql":
            # Where the fence stays, one statement does it.
            rows = self._sql.change(_PUT_LEASE, (at, body, claim, strand, expected, fence))
            if rows:
                return int(rows[0][0])
        with self._writing():
            self._check_swap(strand, expected, fence, None)
            rows = self._sql.execute(
                "UPDATE strands SET revision = revision + 1, updated_at = ?, body = ?, fence = ?, claim = ? "
                "WHERE id = ? AND revision = ? RETURNING revision",
                (at, body, fence, claim, strand, expected),
            )
            return self._won(rows, "strand", strand, expected)

    def expect_fence(self, strand: str, fence: int) -> None:
        """Holds the strand at this fence until the transaction ends; raises Conflict."""
        assert self._sql.in_transaction, "a fence is only held within a transaction"
        rows = self._sql.execute(_FENCE + self._sql.lock, (strand,))
        if not rows or rows[0][0] != fence:
            raise make_fence_conflict(strand, fence, rows[0][0] if rows else None)

    def _check_absent(self, strand: str) -> None:
        there = self._sql.execute("SELECT revision FROM strands WHERE id = ?", (strand,))
        if there:
            raise make_conflict("strand", strand, None, there[0][0])

    def _check_swap(self, strand: str, expected: int, fence: int, agent: AgentName | None) -> None:
        """Raises Conflict unless the strand may be written so; before the first effect. Counts the grant."""
        rows = self._sql.execute(_STANDING + self._sql.lock, (strand,))
        if not rows:
            raise make_conflict("strand", strand, expected, None)
        revision, its_agent, present, claim = rows[0]
        fits = claim is not None if agent is None else its_agent == agent
        if revision != expected or not fits:
            raise make_conflict("strand", strand, expected, revision)
        if fence < present:
            raise make_fence_conflict(strand, fence, present)
        self._grant(strand, present, fence)

    def _grant(self, strand: str, present: int, fence: int) -> None:
        """Counts a fence that was moved; raises Conflict when it is below the floor."""
        if fence == present:
            return
        if not self._sql.execute(_GRANT, (fence, fence, fence)):
            raise make_floor_conflict(strand, fence)
        self._granted = True
        if not self._own and self._is_exact:
            self._tell()
