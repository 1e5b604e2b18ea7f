"""The RecordStore in memory: session records, ledger and journals beside the threads, with one transaction.

Passes the same law suite as the stores that last. One object is for one thread; nothing outlives it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime

import msgspec

from clew.errors import NotFoundError
from clew.ids import AgentName, NativeId, ThreadId
from clew.store.memory import MemoryThreads, by_creation, swapped
from clew.store.protocol import StrandRow
from clew.store.record_protocol import (
    JournalHead,
    JournalRow,
    OperationCounts,
    OperationRow,
    Place,
    StoreState,
    check_rows,
)
from clew.store.rows import make_conflict, make_fence_conflict, make_floor_conflict, make_journal_conflict

_STATE = StoreState("0" * 32, 0)


class MemoryRecords(MemoryThreads):
    """The RecordStore in memory. `tables` hold rows by name and key; a failed block puts them back."""

    def __init__(self) -> None:
        super().__init__()
        self.tables |= {"store": {1: _STATE}, "operation": {}, "journal": {}, "rows": {}}

    # --- records ------------------------------------------------------------------------------------------

    def state(self) -> StoreState:
        """Returns what the store knows of itself."""
        return self.tables["store"][1]

    def mark_restored(self) -> StoreState:
        """Raises the floor above every fence that may ever have been granted."""
        state = self.state()
        highest = max([state.fence_floor, *(row.fence for row in self.strands())])
        self.tables["store"][1] = StoreState(state.store_id, highest + 1_000_000)
        return self.state()

    def records(self, *, scope: str | None = None, claims: Collection[str] = ()) -> tuple[StrandRow, ...]:
        """Returns the strands that have a claim, by time of creation, then by id."""
        found = (
            row
            for row in self.strands()
            if row.claim is not None and scope in (None, row.scope) and (not claims or row.claim in claims)
        )
        return tuple(sorted(found, key=by_creation))

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
        if self.thread(thread) is None:
            raise NotFoundError(f"there is no thread {thread}", thread=thread)
        there = self.strand(strand)
        revision = swapped("strand", strand, there, expected)
        if there is not None and there.agent != agent:
            raise make_conflict("strand", strand, expected, there.revision)
        self._check_fence(strand, there, fence)
        created = there.created_at if there else now
        self.tables["strand"][strand] = StrandRow(
            strand, thread, agent, native_id, body, tuple(roots), revision, created, now, scope, fence, claim
        )
        return revision

    def put_lease(self, strand: str, *, fence: int, claim: str, body: bytes, expected: int, now: datetime) -> int:
        """Writes a strand whose lease changed and nothing of its lineage; raises Conflict."""
        there = self.strand(strand)
        revision = swapped("strand", strand, there, expected)
        if there is None or there.claim is None:
            raise make_conflict("strand", strand, expected, revision - 1)
        self._check_fence(strand, there, fence)
        self.tables["strand"][strand] = msgspec.structs.replace(
            there, body=body, fence=fence, claim=claim, revision=revision, updated_at=now
        )
        return revision

    def expect_fence(self, strand: str, fence: int) -> None:
        """Raises Conflict unless the strand is at this fence."""
        there = self.strand(strand)
        if there is None or there.fence != fence:
            raise make_fence_conflict(strand, fence, there.fence if there is not None else None)

    def _check_fence(self, strand: str, there: StrandRow | None, fence: int) -> None:
        present = there.fence if there is not None else 0
        if fence < present:
            raise make_fence_conflict(strand, fence, present)
        if present < fence < self.state().fence_floor:
            raise make_floor_conflict(strand, fence)

    def remove_thread(self, thread: ThreadId, *, expected: int) -> None:
        """Removes a thread with its strands, their journals and the edges that touch only them."""
        strands = {row.id for row in self.strands(thread=thread)}
        super().remove_thread(thread, expected=expected)
        for name in [head.name for head in self.tables["journal"].values() if head.strand in strands]:
            del self.tables["journal"][name]
            self.tables["rows"].pop(name, None)

    # --- ledger -------------------------------------------------------------------------------------------

    def operation(self, key: str) -> OperationRow | None:
        """Returns one operation, or None."""
        return self.tables["operation"].get(key)

    def operations(
        self, *, caller: str | None = None, session: str | None = None, states: Collection[str] = ()
    ) -> tuple[OperationRow, ...]:
        """Returns the operations that agree with all that is given, by key."""
        rows: Iterable[OperationRow] = self.tables["operation"].values()
        found = (
            row
            for row in rows
            if caller in (None, row.caller) and session in (None, row.session) and (not states or row.state in states)
        )
        return tuple(sorted(found, key=lambda row: row.key.encode("utf-8", "surrogatepass")))

    def count_operations(self, caller: str) -> OperationCounts:
        """Returns how many operations are remembered."""
        return OperationCounts(len(self.operations(caller=caller)), len(self.tables["operation"]))

    def put_operation(
        self,
        key: str,
        *,
        caller: str,
        fingerprint: str,
        state: str,
        session: str | None,
        expires_ms: int,
        body: bytes,
        expected: int | None,
    ) -> int:
        """Writes an operation; raises Conflict when its revision, caller or fingerprint is another."""
        there = self.operation(key)
        revision = swapped("operation", key, there, expected)
        if there is not None and (there.caller, there.fingerprint) != (caller, fingerprint):
            raise make_conflict("operation", key, expected, there.revision)
        self.tables["operation"][key] = OperationRow(
            key, caller, fingerprint, state, session, expires_ms, body, revision
        )
        return revision

    def drop_operations(self, now_ms: int, states: Collection[str]) -> int:
        """Removes the operations in one of these states whose time is over."""
        gone = [row.key for row in self.operations() if row.expires_ms < now_ms and row.state in states]
        for key in gone:
            del self.tables["operation"][key]
        return len(gone)

    # --- journals -----------------------------------------------------------------------------------------

    def journal(self, name: str) -> JournalHead | None:
        """Returns a journal's head, or None."""
        return self.tables["journal"].get(name)

    def journals(self, strand: str) -> tuple[JournalHead, ...]:
        """Returns the journals of a strand, by name."""
        heads: Iterable[JournalHead] = self.tables["journal"].values()
        return tuple(sorted((head for head in heads if head.strand == strand), key=lambda head: head.name))

    def journal_rows(
        self, name: str, *, after: Place | None = None, limit: int | None = None
    ) -> tuple[JournalRow, ...] | None:
        """Returns the rows behind a place in order; None means "reload"."""
        rows: tuple[JournalRow, ...] = self.tables["rows"].get(name, ())
        if after is not None:
            head = self.journal(name)
            if head is None or after.epoch != head.epoch or after.sequence > head.sequence:
                return None
            rows = tuple(row for row in rows if row.epoch == after.epoch and row.sequence > after.sequence)
        return rows[:limit]

    def append_journal(self, name: str, rows: Sequence[JournalRow], *, last: Place, fence: int) -> None:
        """Adds rows behind the journal's last one; raises Conflict."""
        check_rows(rows, last, fence)
        if not rows:
            return
        head = self._checked(name, None, fence, last)
        assert head is not None, "a journal that ends somewhere is there"
        place = rows[-1].place
        self.tables["journal"][name] = msgspec.structs.replace(head, epoch=place.epoch, sequence=place.sequence)
        self.tables["rows"][name] += tuple(rows)

    def rewrite_journal(
        self,
        name: str,
        rows: Sequence[JournalRow],
        *,
        strand: str,
        fence: int,
        expected: Place | None,
        keep: Place | None = None,
        identity: bytes | None = None,
    ) -> None:
        """Begins a journal, rolls it to a new epoch, or cuts it behind `keep`; raises Conflict."""
        assert rows or keep is not None, "a journal without rows is none"
        check_rows(rows, keep if keep is not None else Place(rows[0].epoch, 0), fence)
        head = self._checked(name, strand, fence, expected)
        old: tuple[JournalRow, ...] = self.tables["rows"].get(name, ())
        kept = tuple(row for row in old if keep is not None and row.epoch == keep.epoch and row.place <= keep)
        last = rows[-1].place if rows else keep
        assert last is not None, "there are rows, or the last one that is kept"
        known = head.identity if head is not None else b""
        self.tables["journal"][name] = JournalHead(
            name, strand, last.epoch, last.sequence, known if identity is None else identity
        )
        self.tables["rows"][name] = (*kept, *rows)

    def _checked(self, name: str, strand: str | None, fence: int, expected: Place | None) -> JournalHead | None:
        """Returns the journal's head when it ends where it should and its strand is at the fence."""
        head = self.journal(name)
        guard = strand if strand is not None else head.strand if head is not None else None
        if guard is not None:
            self.expect_fence(guard, fence)
        found = head.place if head is not None else None
        if found != expected or (head is not None and strand not in (None, head.strand)):
            raise make_journal_conflict(name, expected, found)
        return head
