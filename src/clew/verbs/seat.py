"""A seat: the hold of this process on one live session; sends, renews, and ends it.

Promises: what is sent is durable before it is handed over, and is handed over at most once whatever happens; every
write carries the fence, so that a seat which lost its lease can write nothing; an exit is only recorded when it was
seen. A seat is for one thread.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from clew.errors import InDoubt, LeaseError
from clew.host.protocol import Accepted, Child, Event, Exited, ItemSeen, Payload, Rejected
from clew.journal.closing import CloseRegistry, Closing
from clew.journal.crash import settle_crash
from clew.journal.rows import (
    Body,
    Checkpoint,
    Dispatch,
    Item,
    Lifecycle,
    Submission,
    SubmissionState,
    is_plain_text,
    text_fingerprint,
)
from clew.journal.submissions import unconfirmed
from clew.lease.lease import Checkpoint as LeaseCheckpoint
from clew.lease.lease import Evidence, admits_writer
from clew.lease.ledger import CALLER_LIMIT, Replay, Row, claim, fail, fingerprint, replayed_error, succeed
from clew.lease.mutation import Mutation, State, admit_mutation
from clew.lease.probe import UNPROBED
from clew.lease.record import Record
from clew.lease.refusal import Refusal, refusal
from clew.lease.transitions import ChildSeen, evict, finish_settlement, renew, set_checkpoint, settle_live
from clew.lineage.edge import StrandId
from clew.lineage.link import Fence
from clew.platform.faults import declare, fault
from clew.verbs.journaling import Journal
from clew.verbs.leases import Change, Leases

SEND_BEGUN = declare("send.begun")
SEND_RECORDED = declare("send.recorded")
SEND_CLAIMED = declare("send.claimed")
SEND_ANSWERED = declare("send.answered")
SEND_SETTLED = declare("send.settled")
RENEW_BEGUN = declare("renew.begun")
RENEWED = declare("renew.renewed")
EVICT_BEGUN = declare("evict.begun")
EVICTED = declare("evict.evicted")
EVICT_SETTLED = declare("evict.settled")
CLOSE_BEGUN = declare("close.begun")
CLOSE_CHILD_ENDED = declare("close.child-ended")
CLOSE_RELEASED = declare("close.released")
CLOSE_SETTLED = declare("close.settled")

SETTLED_STATES = ("succeeded", "failed", "unknown")
_MAX_EVENTS = 1000

CLOSING = CloseRegistry()
"""The journals of this process that could not be closed yet."""


class Sent(msgspec.Struct, frozen=True):
    """What became of one message: its client id (which is its operation's id), and where it stands."""

    client_id: str
    state: SubmissionState
    reason: str | None = None
    item_key: str | None = None
    replayed: bool = False


class Seat:
    """One live session that this process drives."""

    def __init__(self, leases: Leases, record: Record, child: Child, journal: Journal) -> None:
        self.leases, self.child, self.journal = leases, child, journal
        self.session_id: StrandId = record.session_id
        self.fence: Fence = record.lease.fence
        self.ended: Literal["", "released", "exited", "lost"] = ""

    @property
    def unconfirmed(self) -> tuple[str, ...]:
        """The client ids of what is neither known to be sent nor known to have failed."""
        return unconfirmed(self.journal.standings)

    # --- sending ----------------------------------------------------------------------------------------------

    def send(self, text: str, operation_id: str | None = None, *, declared: str | None = None) -> Sent:
        """Sends one text block; the operation's id is the client message id, and repeats answer with the outcome.

        `declared` is the fingerprint that a caller on a wire says its call has. Raises LeaseError when it is refused
        or its outcome is unknown; InDoubt when the agent did not answer: then it is `unknown`, and never sent again.
        """
        fault(SEND_BEGUN)
        operation_id = operation_id or self.leases.new_operation()
        computed = send_fingerprint(self.session_id, text)
        self._stay_judged()
        known = self._record(operation_id, declared or computed, computed, text)
        if known is not None:
            return known
        fault(SEND_RECORDED)
        return self._dispatch(operation_id, text)

    def _record(self, operation_id: str, declared: str, computed: str, text: str) -> Sent | None:
        """Makes the submission durable; returns the answer of a call that is known and settled already."""
        leases = self.leases
        with self.journal.writing(), leases.change(self.session_id, self.fence) as change:
            row, _ = leases.operation(operation_id)
            state = self._state(change, row)
            mutation = Mutation(
                caller="",
                operation_id=operation_id,
                declared=declared,
                computed=computed,
                expected_fence=self.fence,
            )
            answer = admit_mutation(mutation, state)
            if isinstance(answer, Refusal):
                raise answer.error()
            if isinstance(answer, Replay):
                return self._replayed(answer.row, change)
            leases.put_operation(msgspec.structs.replace(answer.row, session_id=self.session_id), None)
            body, plain = text.encode("utf-8", "surrogatepass"), is_plain_text((text,))
            self.journal.append([Submission(operation_id, text_fingerprint(text), body, plain)])
        return None

    def _state(self, change: Change, row: Row | None) -> State:
        store, now = self.leases.store, self.leases.now_ms()
        counts = store.count_operations("")
        if max(counts.caller, counts.total) >= CALLER_LIMIT:
            store.drop_operations(now, SETTLED_STATES)
            counts = store.count_operations("")
        # Sends have no caller of their own: what one session may have outstanding is counted by the session.
        mine = counts.caller
        if mine >= CALLER_LIMIT:
            mine = len(store.operations(caller="", session=self.session_id))
        return State(
            row=row,
            lease=change.record.lease,
            reconciled=change.view.reconciled,
            here=self.leases.here,
            now=now,
            caller_rows=mine,
            all_rows=counts.total,
        )

    def _replayed(self, row: Row, change: Change) -> Sent | None:
        """Returns the recorded outcome; None for a message that was never handed over and may be now."""
        standing = self.journal.standing(row.operation_id)
        if row.state == "pending" and standing is not None and standing.state == "queued":
            lease = change.record.lease
            if not admits_writer(lease, reconciled=change.view.reconciled) or lease.holder != self.leases.here:
                raise refusal("ownership_unknown", "no_live_owner").error()
            return None
        if row.state == "failed":
            return Sent(row.operation_id, "rejected", row.message, replayed=True)
        error = replayed_error(row)
        if error is not None:
            raise error
        if row.state != "succeeded":
            raise refusal("operation_unknown", "outcome_unknown", operation=row.operation_id).error()
        if standing is None or standing.state != "accepted":
            # The journal was cut, and with it went what the agent answered.
            raise refusal("operation_unknown", "result_lost", operation=row.operation_id).error()
        return Sent(row.operation_id, "accepted", None, standing.item_key, replayed=True)

    def _dispatch(self, operation_id: str, text: str) -> Sent:
        """Claims the right to hand the message over, hands it over, and records what came of it."""
        self._claim(operation_id)
        fault(SEND_CLAIMED)
        payload = Payload(operation_id, text.encode("utf-8", "surrogatepass"), text)
        try:
            answer = self.child.send(payload)
        except InDoubt as error:
            self._settle(operation_id, Dispatch(operation_id, "unknown", "no_answer"))
            error.concerns.setdefault("operation", operation_id)
            raise
        except BaseException:
            self._settle(operation_id, Dispatch(operation_id, "unknown", "interrupted"))
            raise
        fault(SEND_ANSWERED)
        told = _dispatch_of(operation_id, answer)
        self._settle(operation_id, told)
        fault(SEND_SETTLED)
        return Sent(operation_id, told.state, told.reason, told.item_key)

    def _claim(self, operation_id: str) -> None:
        with self.journal.writing(), self.leases.change(self.session_id, self.fence):
            row, revision = self.leases.operation(operation_id)
            claimed = None if row is None else claim(row)
            if claimed is None:
                raise refusal("operation_unknown", "outcome_unknown", operation=operation_id).error()
            self.leases.put_operation(claimed, revision)
            self.journal.append([Dispatch(operation_id, "pending")])

    def _settle(self, operation_id: str, told: Dispatch) -> None:
        """Records an outcome. A seat that has lost its lease meanwhile records nothing: the next owner compares."""
        with self.journal.writing(), self.leases.change(self.session_id, self.fence):
            row, revision = self.leases.operation(operation_id)
            assert row is not None, "a claimed operation is remembered"
            self.leases.put_operation(settled_row(row, told, self.session_id), revision)
            self.journal.append([told])

    # --- what the agent says ----------------------------------------------------------------------------------

    def pump(self, timeout_s: float = 0.0) -> tuple[Event, ...]:
        """Takes what the agent said into the journal and returns it; waits at most `timeout_s` for the first event.

        An exit ends the seat: the lease is released at the next fence, on that evidence.
        """
        events: list[Event] = []
        wait = timeout_s
        while len(events) < _MAX_EVENTS:
            event = self.child.receive(wait)
            if event is None:
                break
            events.append(event)
            wait = 0.0
        items: list[Body] = [event.item for event in events if isinstance(event, ItemSeen)]
        if items and not self.ended:
            with self.journal.writing(), self.leases.change(self.session_id, self.fence):
                self.journal.append(items)
        if any(isinstance(event, Exited) for event in events) and not self.ended:
            self.child_ended()
        return tuple(events)

    def interrupt(self) -> None:
        """Asks the agent to stop its turn."""
        self.child.interrupt()

    # --- keeping and ending -----------------------------------------------------------------------------------

    def renew(self) -> None:
        """Says that the owner is alive, on proof; raises LeaseError when it is not, or the lease is another's."""
        fault(RENEW_BEGUN)
        view = self._stay_judged()
        with self.leases.change(self.session_id, self.fence) as change:
            owner = change.record.lease.owner
            probe = UNPROBED if owner is None else self.leases.observer.owner(owner)
            held = not self.child.has_exited()
            change.record = renew(change.record, change.standing, probe, still_held=held)
        assert view is not None, "the session was judged"
        fault(RENEWED)

    def child_ended(self) -> None:
        """Releases the lease of an agent that this process saw exit, then settles what was in flight."""
        fault(EVICT_BEGUN)
        seen = self.child.release()
        if seen == "unproven":
            self._stay_judged()
            self._end(seen, "it stopped talking", "exited")
            return
        self.leases.observer.saw_exit(self.child.process)
        self._stay_judged(lost_is_fine=True)
        if self.ended == "lost":
            self.close_journal()
            return
        with self.leases.change(self.session_id, self.fence) as change:
            lease = change.record.lease
            evidence = Evidence("exit_observed", seen, self.leases.now_ms(), lease.fence, lease.renewed_at)
            change.record = evict(change.record, change.standing, evidence)
        self._forget("exited")
        fault(EVICTED)
        self._finish("exited")
        fault(EVICT_SETTLED)

    def release(self, why: str = "released") -> ChildSeen:
        """Ends the agent and gives the session back; returns what was seen of the agent's end. Idempotent.

        A seat that has lost its lease ends its agent and writes nothing: the session is another's.
        """
        if self.ended and self.ended != "lost":
            return "exit_proven"
        fault(CLOSE_BEGUN)
        seen = self.child.release()
        if seen != "unproven":
            self.leases.observer.saw_exit(self.child.process)
        self._stay_judged(lost_is_fine=True)
        if self.ended == "lost":
            self.close_journal()
            return seen
        if seen != "unproven":
            for event in self._rest():
                self._keep_quietly(event)
        fault(CLOSE_CHILD_ENDED)
        self._end(seen, why, "released")
        fault(CLOSE_SETTLED)
        return seen

    def close_journal(self) -> Closing:
        """Closes the journal, or keeps it for another try."""
        return CLOSING.close_or_retain(self.journal)

    def _end(self, seen: ChildSeen, why: str, ended: Literal["released", "exited"]) -> None:
        with self.leases.change(self.session_id, self.fence) as change:
            change.record = settle_live(change.record, change.standing, seen, f"{why}: {seen}")
        self._forget(ended)
        fault(CLOSE_RELEASED)
        if seen != "unproven":
            self._finish(why)
        self.close_journal()

    def _finish(self, why: str) -> None:
        """Settles the journal of the owner that is gone, at the fence of its release."""
        leases, journal = self.leases, self.journal
        view = leases.judge(self.session_id)
        record = view.record
        assert record is not None, "the record was written just now"
        journal.fence = fence = record.lease.fence
        with journal.writing(), leases.change(self.session_id, fence) as change:
            bodies: list[Body] = [*settle_crash(journal.standings), Lifecycle("agent_ended", why)]
            last = _last_item(journal)
            if last is not None and last != journal.checkpoint() and not unconfirmed(journal.standings):
                bodies.append(Checkpoint(last))
            journal.append(bodies)
            settle_operations(leases, journal)
            at, before = LeaseCheckpoint(journal.cursor.epoch, journal.cursor.sequence), change.record.lease.checkpoint
            # What stands in for a journal of a newer clew may be behind it: no news, and no reason to hold the session.
            is_news = before is None or at > before
            done = set_checkpoint(change.record, change.standing, at) if is_news else change.record
            retry = done.lease.settlement_retry
            change.record = done if retry is None else finish_settlement(done, change.standing, retry)

    def _rest(self) -> tuple[Event, ...]:
        events: list[Event] = []
        while len(events) < _MAX_EVENTS and (event := self.child.receive(0.0)) is not None:
            events.append(event)
        return tuple(events)

    def _keep_quietly(self, event: Event) -> None:
        if isinstance(event, ItemSeen):
            with self.journal.writing(), self.leases.change(self.session_id, self.fence):
                self.journal.append([event.item])

    def _forget(self, ended: Literal["released", "exited", "lost"]) -> None:
        self.ended = ended
        self.leases.let_go(self.child.token)

    def _stay_judged(self, *, lost_is_fine: bool = False) -> object:
        """Judges the lease anew where another process changed its row; raises LeaseError when it is lost."""
        view = self.leases.view(self.session_id)
        if not view.reconciled:
            view = self.leases.judge(self.session_id)
        if view.lease.fence != self.fence:
            self._forget("lost")
            if not lost_is_fine:
                raise refusal("checkpoint_stale", "lease_moved", fence=view.lease.fence, expected=self.fence).error()
        return view


def send_fingerprint(session_id: StrandId, text: str) -> str:
    """Returns the fingerprint of a send: which session, and what."""
    return fingerprint("send", session_id, {"payload": text_fingerprint(text)})


def settled_row(row: Row, told: Dispatch, session_id: StrandId) -> Row:
    """Returns an operation's row with the outcome that a dispatch tells; one in flight stays as it is."""
    if told.state == "accepted":
        return succeed(row, session_id)
    if told.state == "rejected":
        return fail(row, "rejected", told.reason or "the agent refused it")
    if told.state == "unknown" and not row.is_settled:
        return msgspec.structs.replace(row, state="unknown")
    return row


def settle_operations(leases: Leases, journal: Journal) -> None:
    """Gives the operations of a session's sends the outcome that its journal has; inside a transaction.

    One that is only queued was never handed over, and stays open for its caller's next try.
    """
    for row, revision in leases.open_operations(journal.session_id, caller=""):
        standing = journal.standing(row.operation_id)
        if standing is None or standing.state in ("queued", "pending"):
            continue
        told = Dispatch(row.operation_id, standing.state, standing.reason)
        leases.put_operation(settled_row(row, told, journal.session_id), revision)


def _dispatch_of(operation_id: str, answer: Accepted | Rejected) -> Dispatch:
    if isinstance(answer, Rejected):
        return Dispatch(operation_id, "rejected", answer.reason)
    return Dispatch(operation_id, "accepted", None, False, answer.item_key, answer.receipt)


def _last_item(journal: Journal) -> str | None:
    """Returns the key of the newest item that the journal has, as an item or as an accepted submission."""
    for row in reversed(journal.rows):
        if isinstance(row.body, Item):
            return row.body.item_key
        if isinstance(row.body, Dispatch) and row.body.state == "accepted" and row.body.item_key is not None:
            return row.body.item_key
    return None


__all__ = ["CLOSING", "LeaseError", "Seat", "Sent", "send_fingerprint", "settle_operations", "settled_row"]
