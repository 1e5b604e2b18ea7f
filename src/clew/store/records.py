"""Session records as rows: strands with their leases, and the fence that only grows.

Everything of `records.db` comes together here: threads, records, ledger and journals are one object with one
transaction. Each grant of a fence is counted in the store and told to its witnesses, so that a backup in its place is
noticed (`clew.store.restored`). SQL that SQLite and PostgreSQL both take; no body is read.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from clew.ids import AgentName, NativeId, ThreadId
from clew.platform.clock import Clock
from clew.store.journals import SqlJournals
from clew.store.ledger import SqlLedger
from clew.store.protocol import Sql, StrandRow
from clew.store.record_protocol import StoreState
from clew.store.restored import Guard
from clew.store.rows import make_conflict, make_fence_conflict, make_floor_conflict, make_micros, make_text
from clew.store.threads import SqlThreads
from clew.store.witness import Witness

_FENCE = "SELECT fence FROM strands WHERE id = ?"
_STANDING = "SELECT revision, agent, fence, claim FROM strands WHERE id = ?"
_PUT_LEASE = (
    "UPDATE strands SET revision = revision + 1, updated_at = ?, body = ?, claim = ? "
    "WHERE id = ? AND revision = ? AND fence = ? AND claim IS NOT NULL RETURNING revision"
)


class SqlRecords(SqlThreads, SqlLedger, SqlJournals):
    """The RecordStore over any `Sql`.

    With a witness, a grant on SQLite is told to it, durably, before the commit: all who grant share the file. On a
    server it is told after the commit what this machine has seen; and so is the one in the folder `outside`.
    """

    def __init__(
        self,
        sql: Sql,
        witness: Witness | None = None,
        outside: Path | None = None,
        clock: Clock | None = None,
    ) -> None:
        super().__init__(sql)
        self.guard = Guard(sql, witness, outside, clock)
        self._own = False

    @contextmanager
    def transaction(self) -> Generator[None]:
        """Makes the writes inside visible together, or none of them."""
        if self._sql.in_transaction:
            with self._sql.transaction():
                yield
            return
        guard = self.guard
        guard.look()
        self._own, guard.has_granted = True, False
        try:
            with self._sql.transaction():
                yield
                if guard.has_granted and guard.is_exact:
                    guard.tell()
            if guard.has_granted:
                if not guard.is_exact:
                    guard.tell()
                guard.tell_outside()
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
        """Returns what the store knows of itself, after comparing it with what its witnesses know."""
        return self.guard.state()

    def mark_restored(self) -> StoreState:
        """Raises the floor above every fence that may ever have been granted."""
        self.guard.mark_restored()
        return self.state()

    def require(self) -> None:
        """Raises StoreDamaged when the witness knows a store and there is none: it was there, and is gone."""
        self.guard.require()

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
        if not self.guard.grant(fence, own=self._own):
            raise make_floor_conflict(strand, fence)
