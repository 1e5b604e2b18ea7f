"""What a store of records promises: strands with their leases, the ledger and the journals, in one transaction.

A session record *is* a strand's row (`StrandRow`): the same body, with the lease's columns beside it. The store reads
no body; it keeps rows, and the columns by which they are found and guarded. Promised by every implementation, and
checked by one law suite (tests/store/test_records_law.py):

* what is written inside `transaction()` (strands, threads, edges, operations, journal rows) becomes visible together or
  not at all, and durable before the block ends;
* what a transaction has read of a strand by its id or by a root, or of an operation by its key, stays so until it ends:
  a decision over them is not overtaken;
* every write is a compare-and-swap on a row's revision; the loser gets Conflict, and nothing of it remains;
* a fence never falls; `expect_fence` and every write to a journal hold the fence until the transaction ends;
* no fence is granted twice, not even after a backup was put in the store's place (`state`);
* a journal is gapless, and what is replaced goes in the transaction that publishes what follows;
* bodies come back byte for byte, whether anybody can read them or not.

Conflict carries `code`: `store_conflict` for a revision or a place that is another, or one of those below.
Times are whole milliseconds since 1970, as the lease and the journal have them; nothing here asks what time it is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from typing import Final, Protocol

import msgspec

from clew.ids import AgentName, NativeId, ThreadId
from clew.store.protocol import StrandRow, ThreadStore

FENCE_MOVED: Final = "fence_moved"
"""The strand is at another fence than the caller saw (`expected`, `found`), or a write would lower it."""

FENCE_FLOOR: Final = "fence_floor"
"""A fence below `StoreState.fence_floor` was to be granted; the store came back from a backup."""

STRAND_HELD: Final = "strand_held"
"""A strand was to be written without its lease (`put_strand`) while somebody holds it."""


class StoreState(msgspec.Struct, frozen=True):
    """What a store knows of itself. `store_id` is made once.

    No fence below `fence_floor` is granted any more: whoever decides takes it as the lease's minimum next fence, for
    records that are there and for those that begin. It grows whenever the store is seen to have come back from a
    backup; revisions seen before that say nothing. 0: nothing was ever restored.
    """

    store_id: str
    fence_floor: int


class OperationRow(msgspec.Struct, frozen=True):
    """One remembered operation. `key` is the ledger's key, `state` its word; `session` the strand it is about."""

    key: str
    caller: str
    fingerprint: str
    state: str
    session: str | None
    expires_ms: int
    body: bytes
    revision: int


class OperationCounts(msgspec.Struct, frozen=True):
    """How many operations are remembered: of one caller, and in all."""

    caller: int
    total: int


class Place(msgspec.Struct, frozen=True, order=True):
    """A place in a journal: everything up to and with this row."""

    epoch: int
    sequence: int


class JournalRow(msgspec.Struct, frozen=True):
    """One row of a journal. `body` is its whole stored form, `fence` the one it was written at."""

    epoch: int
    sequence: int
    kind: str
    time_ms: int
    fence: int
    body: bytes

    @property
    def place(self) -> Place:
        """Where the row stands."""
        return Place(self.epoch, self.sequence)


def check_rows(rows: Sequence[JournalRow], last: Place, fence: int) -> None:
    """States what callers owe: rows numbered on from `last` without a gap, each at the fence."""
    for number, row in enumerate(rows, last.sequence + 1):
        assert (row.epoch, row.sequence) == (last.epoch, number), "rows of a journal are numbered without a gap"
        assert row.fence == fence, "a row is written at the fence it names"


class JournalHead(msgspec.Struct, frozen=True):
    """A journal as such: its name, the strand whose fence guards it, its last row, and whose it is (`identity`)."""

    name: str
    strand: str
    epoch: int
    sequence: int
    identity: bytes

    @property
    def place(self) -> Place:
        """Where its last row stands."""
        return Place(self.epoch, self.sequence)


class SessionRecordStore(ThreadStore, Protocol):
    """Strands as session records: their leases, fences, and what the store knows of itself."""

    def state(self) -> StoreState:
        """Returns what the store knows of itself. Notices that a backup was put in its place, and raises the floor
        then; so a process asks before it decides about leases."""
        ...

    def mark_restored(self) -> StoreState:
        """Raises the floor above every fence that may ever have been granted: a backup was put in the store's place
        and nobody can notice it. Does no harm where that is not so."""
        ...

    def records(self, *, scope: str | None = None, claims: Collection[str] = ()) -> tuple[StrandRow, ...]:
        """Returns the strands that were ever attached (that have a claim), of one scope and with one of these claims
        where given; by time of creation, then by id."""
        ...

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
        """Writes a strand with its lease and returns its new revision; `expected` is the present one, None for "there
        is none". `native_id` is empty while the chain is.

        Raises Conflict (also FENCE_MOVED, FENCE_FLOOR), NotFoundError when there is no such thread. A strand's agent
        never changes: Conflict.
        """
        ...

    def put_lease(self, strand: str, *, fence: int, claim: str, body: bytes, expected: int, now: datetime) -> int:
        """Writes a strand whose lease changed and nothing of its lineage; returns its new revision.

        Raises Conflict as put_record; also for a strand without claim.
        """
        ...

    def expect_fence(self, strand: str, fence: int) -> None:
        """Holds the strand at this fence until the transaction ends; raises Conflict (FENCE_MOVED) when it is at
        another, or when there is no such strand. Only inside `transaction()`."""
        ...


class LedgerStore(Protocol):
    """Keeps the outcome of operations. A claim is a swap: of two that read a pending row, one writes."""

    def operation(self, key: str) -> OperationRow | None:
        """Returns one operation, or None. Inside a transaction it stays so until that ends."""
        ...

    def operations(
        self, *, caller: str | None = None, session: str | None = None, states: Collection[str] = ()
    ) -> tuple[OperationRow, ...]:
        """Returns the operations that agree with all that is given, by key."""
        ...

    def count_operations(self, caller: str) -> OperationCounts:
        """Returns how many operations are remembered, expired ones included."""
        ...

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
        """Writes an operation and returns its new revision; `expected` is the present one, None for "there is none".

        Raises Conflict when it is another. Caller and fingerprint never change: Conflict.
        """
        ...

    def drop_operations(self, now_ms: int, states: Collection[str]) -> int:
        """Removes the operations in one of these states whose time is over, and returns how many they were."""
        ...


class JournalStore(Protocol):
    """Keeps journals: rows without gaps, written at the fence of their strand or not at all."""

    def journal(self, name: str) -> JournalHead | None:
        """Returns a journal's head, or None when there is no such journal."""
        ...

    def journals(self, strand: str) -> tuple[JournalHead, ...]:
        """Returns the journals of a strand, by name."""
        ...

    def journal_rows(
        self, name: str, *, after: Place | None = None, limit: int | None = None
    ) -> tuple[JournalRow, ...] | None:
        """Returns the rows behind a place in order, all without one; at most `limit`.

        None means "reload": the place is of another epoch, or ahead of the journal. Without `after` every row that is
        there is returned, also such as no journal should have.
        """
        ...

    def append_journal(self, name: str, rows: Sequence[JournalRow], *, last: Place, fence: int) -> None:
        """Adds rows behind the journal's last one, each numbered one higher, all at this fence.

        Raises Conflict when `last` is not the journal's last place (or there is no journal), with FENCE_MOVED when its
        strand is at another fence.
        """
        ...

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
        """Begins a journal, rolls it to a new epoch, or cuts it: all rows but those up to `keep`, in that epoch, go;
        then these are added behind `keep`, or from sequence 1 on without it.

        `expected` is the place of the journal's head, None for "there is none"; `identity` None leaves it as it is.
        Raises Conflict as append_journal.
        """
        ...


class RecordStore(SessionRecordStore, LedgerStore, JournalStore, Protocol):
    """Everything of `records.db`, or of a server that stands for it: one object, one `transaction()` over all."""
