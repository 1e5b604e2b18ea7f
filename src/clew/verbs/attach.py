"""Attach: one owner, proved, journaled, reconciled; the one place where a session becomes live (docs/ownership.md, A9).

The steps run in a fixed order, each durable before the next: reserve, sample the agent's history while no child runs,
start with the reserved token, commit the process, prove the conversation, open the journal, settle what was in flight,
reconcile, import, publish, record the outcome. Promises: a failed attach leaves no lease in the act of proving, the
first error is what the caller gets, and nothing is ever sent here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import msgspec

from clew.errors import ClewError, LeaseError
from clew.host.child import stop_process
from clew.host.protocol import Adapter, Child, Launch, NotStarted, Proof
from clew.ids import ThreadId
from clew.journal.crash import settle_crash
from clew.journal.opening import Report, is_blank, plan_import
from clew.journal.reconcile import Window, reconcile
from clew.journal.rows import Cursor, Item, Row
from clew.lease.lease import Holder, OwnerProcess, admits_writer
from clew.lease.ledger import Row as LedgerRow
from clew.lease.ledger import fail, replayed_error, settle_after_crash, succeed
from clew.lease.probe import may_be_stopped
from clew.lease.record import Record
from clew.lease.refusal import Refusal, refusal
from clew.lease.reserve import (
    Replayed,
    Request,
    Reserved,
    Snapshot,
    Transcript,
    decide_reservation,
    reservation_fingerprint,
)
from clew.lease.transitions import (
    ChildSeen,
    Reservation,
    clear_processless,
    commit_process,
    finish_settlement,
    prove_owner,
    settle_failed,
    settle_live,
)
from clew.lineage.edge import StrandId
from clew.lineage.link import Fence, Link, Origin, make_link_id
from clew.platform.faults import declare, fault
from clew.platform.process import ProcessIdentity
from clew.verbs.journaling import Journal, OpenedJournal, open_journal
from clew.verbs.leases import Leases, View, probe_of
from clew.verbs.own import archive_id
from clew.verbs.seat import CLOSING, SETTLED_STATES, Seat, settle_operations

BEGUN = declare("attach.begun")
RECOVERED = declare("attach.recovered")
RESERVED = declare("attach.reserved")
SAMPLED = declare("attach.sampled")
CLEARED = declare("attach.cleared")
SPAWNED = declare("attach.spawned")
COMMITTED = declare("attach.committed")
ANSWERED = declare("attach.answered")
PROVED = declare("attach.proved")
OPENED = declare("attach.opened")
IN_FLIGHT_SETTLED = declare("attach.in-flight-settled")
RECONCILED = declare("attach.reconciled")
IMPORTED = declare("attach.imported")
PUBLISHED = declare("attach.published")
DONE = declare("attach.done")

PAGE = 200
"""How many rows of the journal the answer brings along."""


class Adoption(msgspec.Struct, frozen=True):
    """A conversation to be taken over: what its transcript says, read and decoded before anything is reserved."""

    state: Transcript
    items: tuple[Item, ...] = ()
    path: str = ""
    fault: str = ""


class Attached(msgspec.Struct, frozen=True):
    """The answer of an attach. `seat` is None when another call's outcome was only told again."""

    replayed: bool
    fence: int
    cursor: Cursor | None = None
    page: tuple[Row, ...] = ()
    unconfirmed: tuple[str, ...] = ()
    report: Report | None = None
    seat: Seat | None = None


class Attachment(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be attached. `thread` is where a new record belongs; `read_transcript` decodes what is adopted;
    `publish` shows a finished session to subscribers, before the outcome is recorded."""

    asked: Request
    adapter: Adapter
    thread: ThreadId
    read_transcript: Callable[[], Adoption] | None = None
    publish: Callable[[Seat], None] | None = None


def attach(leases: Leases, wanted: Attachment) -> Attached:
    """Makes this process drive a session, or answers why not; raises LeaseError, HostError or what a step raised.

    A refusal, and every failure before the reservation, leaves the store as it was.
    """
    return _Attach(leases, wanted).run()


class _Attach:
    """One attach, step by step."""

    def __init__(self, leases: Leases, wanted: Attachment) -> None:
        self.leases, self.wanted = leases, wanted
        self.asked, self.adapter = wanted.asked, wanted.adapter
        self.adoption: Adoption | None = None
        self.child: Child | None = None
        self.proof: Proof | None = None
        self.token = ""
        self.was_admitted = False
        self.moved: dict[Fence, Fence] = {}

    def run(self) -> Attached:
        fault(BEGUN)
        self._check_support()
        view = self.leases.view(self.asked.session_id)
        self._read_transcript(view)
        recover(self.leases, self._judge())
        fault(RECOVERED)
        answer = self._reserve()
        if isinstance(answer, Replayed) and answer.token is None:
            return self._replay(answer)
        record = answer.record
        assert record is not None, "a standing reservation has a record"
        self.token = answer.token or ""
        fault(RESERVED)
        try:
            window = self._sample(record)
            self._acquire(record, answer)
        except BaseException as error:
            self._settle_failed(answer, error)
            raise
        return self._finish(answer, window)

    # --- before anything is reserved --------------------------------------------------------------------------

    def _check_support(self) -> None:
        asked = self.asked
        for handle in (asked.handle, asked.adopt):
            if handle is not None and handle.namespace != self.adapter.namespace:
                told = f"a handle of {handle.namespace} for an agent of {self.adapter.namespace}"
                raise refusal("operation_invalid", "request_malformed", fault=told).error()
        why = self.adapter.unsupported()
        if why:
            error = refusal("unsupported", "host_unsupported", agent=self.adapter.namespace.agent).error()
            error.concerns["detail"] = why
            raise error

    def _read_transcript(self, view: View) -> None:
        stored = view.stored
        new = stored is None or (isinstance(stored, Record) and not stored.chain.links)
        if self.asked.adopt is None or not new or self.wanted.read_transcript is None:
            return
        self.adoption = self.wanted.read_transcript()
        if self.adoption.state == "ready" and not self.adoption.items:
            self.adoption = Adoption("unreadable", (), self.adoption.path, "it holds nothing")

    # --- reserving --------------------------------------------------------------------------------------------

    def _reserve(self) -> Reserved | Replayed:
        leases, asked, now = self.leases, self.asked, self.leases.now_ms()
        probed = probe_of(self._judge())
        with leases.transaction():
            view = leases.view(asked.session_id)
            leases.store.drop_operations(now, SETTLED_STATES)
            row, revision = leases.operation(f"{asked.caller}\0{asked.operation_id}")
            counts = leases.store.count_operations(asked.caller)
            seen = Snapshot(
                record=view.stored,
                row=row,
                here=leases.here,
                now=now,
                reconciled=view.reconciled,
                probe=probed.subject,
                probed_fence=probed.fence,
                held_elsewhere=self._held_elsewhere(),
                transcript="missing" if self.adoption is None else self.adoption.state,
                caller_rows=counts.caller,
                all_rows=counts.total,
                fence_floor=leases.floor,
            )
            answer = decide_reservation(self._as_judged(row, view), seen, leases.new_token)
            if isinstance(answer, Refusal):
                raise self._refused(answer)
            if isinstance(answer, Reserved):
                self._supersede(answer)
                if answer.disposition != "retry_reservation":
                    leases.put(view, answer.record, thread=self.wanted.thread)
                kept = msgspec.structs.replace(answer.row, fingerprint=asked.fingerprint)
                leases.put_operation(kept, revision)
        if isinstance(answer, Reserved):
            leases.hold(answer.token)
            if answer.disposition == "retry_reservation":
                self._refuse_second_spawn(answer.record)
        elif answer.token is not None and answer.record is not None:
            self._refuse_second_spawn(answer.record)
        return answer

    def _judge(self) -> View:
        view = self.leases.judge(self.asked.session_id)
        if view.moved_from is not None:
            self.moved[view.moved_from] = view.lease.fence
        return view

    def _as_judged(self, row: LedgerRow | None, view: View) -> Request:
        """Returns the call as it stands after this very attach released a dead owner: whoever saw the fence before
        that saw the present one. Its operation keeps the fingerprint that the caller declared."""
        asked = self.asked
        if row is not None or asked.expected_fence is None or asked.fingerprint != reservation_fingerprint(asked):
            return asked
        if self.moved.get(asked.expected_fence) != view.lease.fence:
            return asked
        fresh = msgspec.structs.replace(asked, expected_fence=view.lease.fence)
        return msgspec.structs.replace(fresh, fingerprint=reservation_fingerprint(fresh))

    def _held_elsewhere(self) -> StrandId | None:
        adopt = self.asked.adopt
        if adopt is None:
            return None
        rows = self.leases.store.strands(root=adopt.root)
        return next((StrandId(row.id) for row in rows if row.id != self.asked.session_id), None)

    def _refused(self, answer: Refusal) -> LeaseError:
        error = answer.error()
        adoption = self.adoption
        if error.code == "identity_required" and adoption is not None and adoption.path:
            told = refusal(answer.code, answer.reason, path=adoption.path, fault=adoption.fault or "it holds nothing")
            return told.error()
        return error

    def _supersede(self, answer: Reserved) -> None:
        """Settles the attaches before this one that nobody can finish any more: what they did is not known."""
        leases = self.leases
        for found in leases.store.operations(session=self.asked.session_id, states=("pending", "running")):
            row, revision = leases.operation(found.key)
            if row is None or not row.caller or row.key == answer.row.key:
                continue
            leases.put_operation(settle_after_crash(row, may_have_happened=True), revision)

    def _refuse_second_spawn(self, record: Record) -> None:
        """A reservation that stands already may have had its child: nothing is spawned a second time."""
        if record.lease.processless_at is None:
            raise refusal("ownership_unknown", "owner_unproven").error()

    def _replay(self, answer: Replayed) -> Attached:
        error = replayed_error(answer.row)
        if error is not None:
            raise error
        record = answer.record
        assert record is not None, "a settled success has its record"
        return Attached(True, record.lease.fence)

    # --- acquiring --------------------------------------------------------------------------------------------

    def _sample(self, record: Record) -> Window | None:
        """Looks at the agent's own history while no child can move it. Best effort: None leaves all unknown."""
        head = record.chain.head
        self._support_again()
        if head is None:
            fault(SAMPLED)
            return None
        after = _stored_checkpoint(self.leases, record)
        try:
            window = self.adapter.window(head.handle, record.account_home.path, after)
        except Exception:  # noqa: BLE001 - an adapter's reading is best effort; attach goes on without a window
            window = None
        fault(SAMPLED)
        if window is not None and self.was_admitted:
            window = msgspec.structs.replace(window, turn_in_flight=True)
        return window

    def _support_again(self) -> None:
        why = self.adapter.unsupported()
        if why:
            raise NotStarted(f"{self.adapter.namespace.agent} cannot be driven here: {why}", hint="Use another agent.")

    def _acquire(self, record: Record, answer: Reserved | Replayed) -> None:
        leases, fence, session_id = self.leases, record.lease.fence, self.asked.session_id
        head = record.chain.head
        with leases.change(session_id, fence) as change:
            change.record = clear_processless(change.record, change.standing)
        fault(CLEARED)
        self.child = self.adapter.start(
            Launch(
                token=self.token,
                cwd=record.location.workspace,
                home=record.account_home.path,
                handle=None if head is None else head.handle,
                options=record.options,
                arguments=record.launch_arguments,
                environment=dict(self.asked.launch_environment),
            )
        )
        fault(SPAWNED)
        process = owner_of(leases.here, self.child)
        with leases.change(session_id, fence) as change:
            change.record = commit_process(change.record, change.standing, process)
        fault(COMMITTED)
        self.proof = self.child.prove()
        fault(ANSWERED)
        self._prove(self.proof, fence)
        fault(PROVED)

    def _prove(self, proof: Proof, fence: Fence) -> None:
        leases, session_id = self.leases, self.asked.session_id
        if proof.token is not None and proof.token != self.token:
            assert self.child is not None, "something answered"
            pid = self.child.process.pid
            raise refusal("ownership_unknown", "spawn_identity_mismatch", pid=pid).error()
        with leases.change(session_id, fence) as change:
            link = _link_of(proof, change.record, leases.now_ms())
            change.proven = prove_owner(change.record, change.standing, link, archive_id(session_id, fence))
            change.record = change.proven.record

    # --- from the proof to the answer -------------------------------------------------------------------------

    def _finish(self, answer: Reserved | Replayed, window: Window | None) -> Attached:
        leases = self.leases
        record = leases.view(self.asked.session_id).record
        assert record is not None, "the owner was proved just now"
        assert self.child is not None, "the owner was proved just now"
        journal: Journal | None = None
        try:
            opened = open_journal(leases, record, lambda: self._history(record))
            journal = opened.journal
            fault(OPENED)
            self._settle(record, opened, window)
            self._import(record, opened)
            fault(IMPORTED)
            seat = Seat(leases, record, self.child, journal)
            if self.wanted.publish is not None:
                self.wanted.publish(seat)
            fault(PUBLISHED)
            self._record_outcome(answer)
            fault(DONE)
        except BaseException as error:
            self._unwind(answer, journal, error)
            raise
        return Attached(
            False,
            record.lease.fence,
            journal.cursor,
            journal.rows[-PAGE:],
            seat.unconfirmed,
            opened.report,
            seat,
        )

    def _history(self, record: Record) -> tuple[Item, ...] | None:
        head = record.chain.head
        return None if head is None else self.adapter.history(head.handle, record.account_home.path)

    def _settle(self, record: Record, opened: OpenedJournal, window: Window | None) -> None:
        leases, journal = self.leases, opened.journal
        with journal.writing(), leases.change(record.session_id, record.lease.fence):
            journal.append(settle_crash(journal.standings))
        fault(IN_FLIGHT_SETTLED)
        with journal.writing(), leases.change(record.session_id, record.lease.fence) as change:
            journal.append(reconcile(journal.standings, opened.known, window))
            settle_operations(leases, journal)
            retry = change.record.lease.settlement_retry
            if retry is not None:
                change.record = finish_settlement(change.record, change.standing, retry)
        fault(RECONCILED)

    def _import(self, record: Record, opened: OpenedJournal) -> None:
        """Takes in what the conversation held before clew had it: exactly what was decoded before reserving."""
        journal = opened.journal
        if not is_blank(journal.rows):
            return
        resumed = self.proof is not None and self.proof.origin == "resumed"
        items: Sequence[Item] | None = self.adoption.items if self.adoption is not None else None
        if items is None and resumed:
            items = self._history(record)
            if items is None:
                told = "the agent resumed a conversation, but its history is not there"
                raise refusal("journal_unreadable", "unavailable", fault=told).error()
        rows = plan_import(journal.rows, tuple(items or ()), self.leases.now_ms(), record.lease.fence)
        with journal.writing(), self.leases.change(record.session_id, record.lease.fence):
            journal.append([row.body for row in rows])

    def _record_outcome(self, answer: Reserved | Replayed) -> None:
        leases = self.leases
        with leases.transaction():
            row, revision = leases.operation(answer.row.key)
            assert row is not None, "the row was written with the reservation"
            leases.put_operation(succeed(row, self.asked.session_id), revision)

    # --- failing ----------------------------------------------------------------------------------------------

    def _settle_failed(self, answer: Reserved | Replayed, error: BaseException) -> None:
        """Settles a failed acquisition and its operation in one transaction; both errors rise if that fails too."""
        leases, record = self.leases, answer.record
        assert record is not None, "something was reserved"
        child: ChildSeen = "processless" if self.child is None else self.child.release()
        if self.child is not None and child != "unproven":
            leases.observer.saw_exit(self.child.process)
        made = Reservation(self.token, self.asked.operation_id, leases.here, record.lease.independent)
        try:
            leases.judge(self.asked.session_id)
            with leases.change(self.asked.session_id, record.lease.fence) as change:
                lease = change.record.lease
                if admits_writer(lease, reconciled=True):
                    change.record = settle_live(change.record, change.standing, child, _why(error))
                else:
                    change.record = settle_failed(change.record, change.standing, made, child, _why(error))
                self._fail_row(answer.row, error)
        except LeaseError:
            # Another process settled it meanwhile: the first error stands.
            pass
        except Exception as second:  # noqa: BLE001 - whatever it is, it rises together with the first
            raise _both(error, second) from error
        finally:
            leases.let_go(self.token)

    def _unwind(self, answer: Reserved | Replayed, journal: Journal | None, error: BaseException) -> None:
        """Undoes an attach whose owner is live already: the journal first, then the child, then the lease."""
        leases, child = self.leases, self.child
        assert child is not None, "the owner was proved"
        if journal is not None:
            CLOSING.close_or_retain(journal)
        seen = child.release()
        if seen != "unproven":
            leases.observer.saw_exit(child.process)
        try:
            fence = leases.judge(self.asked.session_id).lease.fence
            record = answer.record
            assert record is not None, "something was reserved"
            with leases.change(self.asked.session_id, record.lease.fence) as change:
                change.record = settle_live(change.record, change.standing, seen, _why(error))
                self._fail_row(answer.row, error)
            assert fence >= record.lease.fence, "fences never fall"
        except LeaseError:
            pass
        except Exception as second:  # noqa: BLE001 - whatever it is, it rises together with the first
            raise _both(error, second) from error
        finally:
            leases.let_go(self.token)

    def _fail_row(self, reserved: LedgerRow, error: BaseException) -> None:
        row, revision = self.leases.operation(reserved.key)
        if row is None:
            return
        code, message = "host_failed", _why(error)
        if isinstance(error, ClewError):
            code, message = error.code, error.message
        self.leases.put_operation(fail(row, code, message), revision)


# --- recovery ---------------------------------------------------------------------------------------------------


def recover(leases: Leases, view: View, kind_s: float = 2.0) -> Literal["nothing", "stopped", "kept"]:
    """Stops an agent that outlived the clew process which held its transport: nobody can drive it any more.

    Only on this host, only an agent that clew drove (never one in a user's own terminal), only with token and start
    time both agreeing. What comes of it is judged anew by the caller.
    """
    record, probed = view.record, view.probed
    if record is None or probed is None or record.location.host != leases.here.host:
        return "nothing"
    lease = record.lease
    owner = lease.owner
    if owner is None or lease.independent or lease.stage != "recovering":
        return "nothing"
    probe = leases.observer.owner(owner)
    if probe.proves == "death":
        return "nothing"
    if not may_be_stopped(probe) or owner.boot is None or owner.start_ticks is None:
        return "kept"
    identity = ProcessIdentity(owner.boot, owner.pid, owner.start_ticks)
    if not stop_process(identity, kind_s):
        return "kept"
    return "stopped"


def owner_of(here: Holder, child: Child) -> OwnerProcess:
    """Returns a started child as an owner's process."""
    process = child.process
    return OwnerProcess(here.host, process.pid, child.token, process.boot_id or None, process.start_ticks)


def _link_of(proof: Proof, record: Record, now: int) -> Link:
    head, fence = record.chain.head, record.lease.fence
    origin: Origin = proof.origin
    forked_from = None
    if head is not None and origin == "created" and proof.handle.root == head.handle.root:
        origin = "resumed"
    if origin == "forked" and head is not None:
        forked_from = head.handle.key
    return Link(
        link_id=make_link_id(proof.handle, fence, record.chain.link_ids),
        handle=proof.handle,
        origin=origin,
        minted_at_fence=fence,
        observed_at=now,
        forked_from=forked_from,
    )


def _stored_checkpoint(leases: Leases, record: Record) -> str | None:
    """Returns up to which item the journal has the agent's history, as far as it can be read now."""
    from clew.journal.opening import Readable
    from clew.verbs.journaling import classify_journal

    opening = classify_journal(leases, record.session_id)
    if not isinstance(opening, Readable):
        return None
    return Journal(leases, record, record.session_id, opening.rows).checkpoint()


def _why(error: BaseException) -> str:
    return (error.message if isinstance(error, ClewError) else str(error)) or type(error).__name__


def _both(first: BaseException, second: Exception) -> BaseException:
    if isinstance(first, Exception):
        return ExceptionGroup("attaching failed, and so did settling it", [first, second])
    return first


__all__ = ["Adoption", "Attached", "Attachment", "attach", "owner_of", "recover"]
