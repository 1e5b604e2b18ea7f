"""The leases of a store as one process knows them: read, judged, and written with a compare-and-swap.

That a lease is reconciled belongs to this process and the row's present revision; it is never stored. Promises: probes
are taken before a transaction and applied inside it; what this process wrote itself counts as judged only once it is
committed; an unreadable record is never written; a refusal leaves the store as it was. A lease of another host is read
and never judged.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress

import msgspec

from clew.errors import Conflict, LeaseError
from clew.ids import AgentName, NativeId, ThreadId
from clew.lease.acquire import handoff_in_flight, owner_alive, owner_unproven
from clew.lease.lease import Holder, Lease, with_floor
from clew.lease.ledger import Row, load_row, make_operation_id, store_row
from clew.lease.probe import UNPROBED
from clew.lease.record import BareRecord, Record, StoredRecord, UnreadableRecord, read_record, store_record, strand_of
from clew.lease.refusal import Refusal, refusal
from clew.lease.restart import Kind, Probed, adjudicate
from clew.lease.transitions import Proven, Standing
from clew.lineage.edge import StrandId, store_edge
from clew.lineage.link import Fence
from clew.lineage.stored import Malformed
from clew.lineage.strand import store_strand
from clew.platform.clock import Clock
from clew.platform.faults import declare, fault
from clew.store.protocol import StrandRow
from clew.store.record_protocol import FENCE_MOVED, RecordStore
from clew.verbs.probing import Observer

BEFORE_JUDGED = declare("lease.before-judged")
JUDGED_ROW = declare("lease.judged")

_TRIES = 5

HELD: set[tuple[Holder, str]] = set()
"""The owners whose transports this process holds, or is about to, by their spawn tokens: of the whole process, for a
second look at the same store must not take its own agents for abandoned."""


class View(msgspec.Struct, frozen=True):
    """One session record as it is now, and what this process knows of it.

    `probed` is what was looked at last; `kind` what judging came to, None where there was nothing to judge;
    `moved_from` the fence at which judging found an owner dead, and released the lease.
    """

    session_id: StrandId
    row: StrandRow | None
    stored: StoredRecord | None
    reconciled: bool = False
    probed: Probed | None = None
    kind: Kind | None = None
    moved_from: Fence | None = None

    @property
    def record(self) -> Record | None:
        """The record, where one is there and readable."""
        return self.stored if isinstance(self.stored, Record) else None

    @property
    def lease(self) -> Lease:
        """The lease; one that nobody ever held where there is no record."""
        record = self.record
        return Lease() if record is None else record.lease

    @property
    def thread(self) -> ThreadId | None:
        """The thread it belongs to."""
        return None if self.row is None else self.row.thread


class Leases:
    """What one process knows of the leases of a store. For one thread; made once for a process and a store."""

    def __init__(
        self,
        store: RecordStore,
        observer: Observer,
        clock: Clock,
        random: Callable[[int], bytes] = os.urandom,
    ) -> None:
        self.store, self.observer, self.clock, self.random = store, observer, clock, random
        self._judged: dict[StrandId, int] = {}
        self._floor: int | None = None
        self._written: dict[StrandId, int] | None = None

    @property
    def here(self) -> Holder:
        """This process."""
        return self.observer.here

    def now_ms(self) -> int:
        """Returns the time in ms since 1970, UTC."""
        return int(self.clock.now().timestamp() * 1000)

    def new_operation(self) -> str:
        """Returns a new operation id."""
        return make_operation_id(self.now_ms(), self.random(16))

    def new_token(self) -> str:
        """Returns a new spawn token."""
        return self.random(16).hex()

    # --- reading and judging ----------------------------------------------------------------------------------

    def view(self, session_id: StrandId) -> View:
        """Returns a session record as it is now, judged or not."""
        return self.view_row(session_id, self.store.strand(session_id))

    def view_row(self, session_id: StrandId, row: StrandRow | None) -> View:
        """Returns the session record of a row that was read already."""
        if row is None:
            return View(session_id, None, None, reconciled=True)
        stored = self._floored(_agreeing(read_record(row.body), row))
        # A strand that was never attached has no lease that could be anybody's.
        judged = isinstance(stored, BareRecord) or self._judged.get(session_id) == row.revision
        return View(session_id, row, stored, judged)

    def _floored(self, stored: StoredRecord) -> StoredRecord:
        """Lets no fence be granted that may have been granted before a backup came back."""
        if not isinstance(stored, Record):
            return stored
        return msgspec.structs.replace(stored, lease=with_floor(stored.lease, self.floor))

    @property
    def floor(self) -> int:
        """The lowest fence that the store still grants; 0 where nothing was ever restored."""
        if self._floor is None:
            self._floor = self.store.state().fence_floor
        return self._floor

    def look(self, view: View) -> View:
        """Returns the view with what this host sees now, and with what judging would come to; writes nothing."""
        record = view.record
        if record is None:
            return view
        probed = self._look(record)
        judgement = adjudicate(record, self.here, probed, self.now_ms())
        return msgspec.structs.replace(view, stored=judgement.record, probed=probed, kind=judgement.kind)

    def judge(self, session_id: StrandId) -> View:
        """Returns a session record that this process has judged as it is now, where it may judge it at all.

        Judging may evict a dead owner: then the fence has moved. Always comes with a fresh look at the processes.
        """
        self._floor = None
        for _ in range(_TRIES):
            view = self.view(session_id)
            record = view.record
            if record is None:
                return view
            probed = self._look(record)
            if record.location.host != self.here.host or (view.reconciled and self._is_settled(record)):
                return msgspec.structs.replace(view, probed=probed)
            judged = self._judge(session_id, probed)
            if judged is not None:
                return judged
        raise refusal("owner_reconciling", "host_reconciling").error()

    def _is_settled(self, record: Record) -> bool:
        """Whether a judged lease needs no second look: nobody has it, or this process does. Others may have died."""
        lease = record.lease
        return lease.is_free or (lease.stage is None and self._holds(lease))

    def _holds(self, lease: Lease) -> bool:
        return lease.reserved_token is not None and (self.here, lease.reserved_token) in HELD

    def hold(self, token: str) -> None:
        """Notes that this process holds the transport of the owner with that token, or is about to."""
        HELD.add((self.here, token))

    def let_go(self, token: str) -> None:
        """Notes that it does not any more."""
        HELD.discard((self.here, token))

    def _look(self, record: Record) -> Probed:
        return self.observer.look(record, holds=self._holds(record.lease))

    def _judge(self, session_id: StrandId, probed: Probed) -> View | None:
        """Applies a probe inside a transaction; None when the row has changed since it was taken."""
        fault(BEFORE_JUDGED)
        try:
            with self.transaction():
                view = self.view(session_id)
                record = view.record
                if record is None:
                    return view
                judgement = adjudicate(record, self.here, probed, self.now_ms())
                if judgement.kind == "stale":
                    return None
                if judgement.record is not record:
                    self.put(view, judgement.record)
                elif judgement.reconciled and view.row is not None:
                    self._mark(session_id, view.row.revision)
        except Conflict:
            return None
        fault(JUDGED_ROW)
        after = self.view(session_id)
        moved = after.lease.fence != probed.fence
        seen = Probed(after.lease.fence) if moved else probed
        moved_from = probed.fence if judgement.kind == "evicted" else None
        return msgspec.structs.replace(after, probed=seen, kind=judgement.kind, moved_from=moved_from)

    # --- writing ----------------------------------------------------------------------------------------------

    @contextmanager
    def transaction(self) -> Generator[None]:
        """Makes all writes of the block visible together; only then this process has judged what it wrote."""
        if self._written is not None:
            with self.store.transaction():
                yield
            return
        written: dict[StrandId, int] = {}
        self._written = written
        try:
            with self.store.transaction():
                yield
        finally:
            self._written = None
        self._judged.update(written)

    def put(self, view: View, record: Record, *, thread: ThreadId | None = None) -> int:
        """Writes a record in place of what the view saw and returns the row's revision; inside a transaction.

        `thread` is where a record that is not there yet belongs. Raises Conflict when the row is another by now.
        """
        row = view.row
        lease, chain = record.lease, record.chain
        body, now = store_record(record), self.clock.now()
        before = view.record
        if row is not None and before is not None and before.chain == chain and before.location == record.location:
            revision = self.store.put_lease(
                record.session_id, fence=lease.fence, claim=lease.claim, body=body, expected=row.revision, now=now
            )
        else:
            head = chain.head
            where = thread or view.thread
            assert where is not None, "a record belongs to a thread"
            revision = self.store.put_record(
                record.session_id,
                thread=where,
                agent=AgentName(record.namespace.agent),
                native_id=NativeId("" if head is None else head.handle.native_id),
                roots=chain.roots,
                scope=record.location.scope_key,
                fence=lease.fence,
                claim=lease.claim,
                body=body,
                expected=None if row is None else row.revision,
                now=now,
            )
        self._mark(record.session_id, revision)
        return revision

    def put_archive(self, view: View, proven: Proven) -> None:
        """Writes the strand that keeps a chain which was full, and the edge that leads from it; after the record."""
        archived, edge = proven.archived, proven.edge
        if archived is None or edge is None:
            return
        head, thread = archived.chain.head, view.thread
        assert head is not None, "a full chain has a head"
        assert thread is not None, "a record that is there belongs to a thread"
        now = self.clock.now()
        self.store.put_strand(
            archived.strand_id,
            thread=thread,
            agent=AgentName(archived.namespace.agent),
            native_id=NativeId(head.handle.native_id),
            body=store_strand(archived),
            roots=archived.chain.roots,
            expected=None,
            now=now,
        )
        self.store.add_edge(
            edge.kind, from_strand=edge.from_strand, to_strand=edge.to_strand, body=store_edge(edge), now=now
        )

    def _mark(self, session_id: StrandId, revision: int) -> None:
        assert self._written is not None, "records are written inside a transaction"
        self._written[session_id] = revision

    # --- transitions ------------------------------------------------------------------------------------------

    def standing(self, view: View, fence: Fence) -> Standing:
        """Returns with what this process comes to a transition."""
        return Standing(fence, view.reconciled, self.now_ms())

    @contextmanager
    def change(self, session_id: StrandId, fence: Fence) -> Generator[Change]:
        """Opens a transaction in which a record at this fence is changed; nothing is written when it raises.

        Whoever comes with an old fence is refused (`checkpoint_stale`), also where the store notices it first.
        """
        try:
            with self.transaction():
                view = self.view(session_id)
                record = view.record
                if record is None:
                    raise _missing(view).error()
                change = Change(self, view, record, self.standing(view, fence))
                yield change
                if change.record is not record:
                    self.put(view, change.record)
                if change.proven is not None:
                    self.put_archive(view, change.proven)
        except Conflict as error:
            if error.code == FENCE_MOVED:
                now = self.view(session_id).lease.fence
                raise refusal("checkpoint_stale", "lease_moved", fence=now, expected=fence).error() from error
            raise

    # --- the ledger -------------------------------------------------------------------------------------------

    def operation(self, key: str) -> tuple[Row | None, int | None]:
        """Returns a remembered operation and its revision, or two times None; raises LeaseError (`outcome_unknown`)
        where it is there and cannot be read."""
        row = self.store.operation(key)
        if row is None:
            return None, None
        try:
            return load_row(row.body), row.revision
        except Malformed as error:
            told = refusal("operation_unknown", "outcome_unknown", operation=key.rpartition("\0")[2])
            raise told.error() from error

    def open_operations(self, session_id: StrandId, *, caller: str | None = None) -> tuple[tuple[Row, int], ...]:
        """Returns the operations about a session that have no outcome yet, with their revisions; those that cannot be
        read are left as they are."""
        found: list[tuple[Row, int]] = []
        for one in self.store.operations(caller=caller, session=session_id, states=("pending", "running")):
            with suppress(Malformed):
                found.append((load_row(one.body), one.revision))
        return tuple(found)

    def put_operation(self, row: Row, expected: int | None) -> int:
        """Writes an operation in place of the one of that revision; inside a transaction with what it guards."""
        return self.store.put_operation(
            row.key,
            caller=row.caller,
            fingerprint=row.fingerprint,
            state=row.state,
            session=row.session_id,
            expires_ms=row.expires_at,
            body=store_row(row),
            expected=expected,
        )


class Change:
    """One record that is being changed inside a transaction: set `record` to what it shall be, and `proven` where an
    owner was proved, whose full chain may have to be kept."""

    def __init__(self, leases: Leases, view: View, record: Record, standing: Standing) -> None:
        self.leases, self.view, self.record, self.standing = leases, view, record, standing
        self.proven: Proven | None = None


def refusal_of(view: View, here: Holder) -> Refusal | None:
    """Returns why nobody else may write to a session now; None when its lease is free. The view was judged or looked
    at."""
    stored = view.stored
    if isinstance(stored, UnreadableRecord):
        return refusal("owner_reconciling", "record_unreadable", schema=stored.newer, fault=stored.fault)
    record = view.record
    if record is None or record.lease.is_free:
        return None
    lease = record.lease
    if record.location.host != here.host or view.probed is None:
        return owner_unproven(lease)
    if lease.claim == "conflicted":
        return refusal("conflict", "claim_conflicted")
    if lease.owner is None:
        return handoff_in_flight(lease) if view.kind == "in_flight" else owner_unproven(lease)
    return owner_alive(lease) if view.probed.subject.proves == "life" else owner_unproven(lease)


def probe_of(view: View) -> Probed:
    """Returns what was seen of a session's processes, at the fence it was seen at."""
    return view.probed or Probed(view.lease.fence, UNPROBED)


def told_here(error: LeaseError, here: Holder) -> LeaseError:
    """Returns a refusal that says "this machine" where it means this one, and how a record moves here from another."""
    message, hint = error.message, error.hint
    if error.concerns.get("host") == here.host:
        message = message.replace(f" on host {here.host}", " on this machine")
    if error.code == "conflict" and error.concerns.get("what") == "host":
        gone = error.concerns.get("recorded")
        hint = f"Open it there; if that host is gone: `clew release --declare-gone {gone}`."
    return LeaseError(message, code=error.code, hint=hint, **error.concerns)


def _agreeing(stored: StoredRecord, row: StrandRow) -> StoredRecord:
    """Returns the record; an unreadable one where its row says another fence or claim than it does itself."""
    if not isinstance(stored, Record) or (row.fence, row.claim) == (stored.lease.fence, stored.lease.claim):
        return stored
    lease = stored.lease
    told = f"its row says {row.claim} at fence {row.fence}, its record {lease.claim} at {lease.fence}"
    return UnreadableRecord(row.body, told)


def _missing(view: View) -> Refusal:
    stored = view.stored
    if isinstance(stored, UnreadableRecord):
        return refusal("owner_reconciling", "record_unreadable", schema=stored.newer, fault=stored.fault)
    return refusal("checkpoint_stale", "record_missing", session=view.session_id)


__all__ = ["BareRecord", "Change", "Leases", "View", "probe_of", "refusal_of", "strand_of", "told_here"]
