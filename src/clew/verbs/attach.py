"""Attach: one owner, proved, journaled, reconciled; the one place where a session becomes live (docs/ownership.md, A9).

The steps run in a fixed order, each durable before the next: reserve (`reserving.py`), sample the agent's history while
no child runs, start with the reserved token, commit the process, prove the conversation (`acquiring.py`), open the
journal, settle what was in flight, reconcile, import, publish, record the outcome. Promises: a failed attach leaves no
lease in the act of proving, the first error is what the caller gets, and nothing is ever sent here.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from clew.host.protocol import Proof
from clew.journal.crash import settle_crash
from clew.journal.opening import Report, is_blank, plan_import
from clew.journal.reconcile import Window, reconcile
from clew.journal.rows import Cursor, Item, Row
from clew.lease.ledger import replayed_error, succeed
from clew.lease.record import Record
from clew.lease.refusal import refusal
from clew.lease.reserve import Replayed, Reserved
from clew.lease.transitions import finish_settlement
from clew.platform.faults import declare, fault
from clew.verbs.acquiring import Acquiring, check_support
from clew.verbs.journaling import Journal, OpenedJournal, open_journal
from clew.verbs.leases import Leases
from clew.verbs.recovering import recover
from clew.verbs.reserving import Adoption, Attachment, Reserving
from clew.verbs.seat import Seat, settle_operations

BEGUN = declare("attach.begun")
RECOVERED = declare("attach.recovered")
RESERVED = declare("attach.reserved")
OPENED = declare("attach.opened")
IN_FLIGHT_SETTLED = declare("attach.in-flight-settled")
RECONCILED = declare("attach.reconciled")
IMPORTED = declare("attach.imported")
PUBLISHED = declare("attach.published")
DONE = declare("attach.done")

PAGE = 200
"""How many rows of the journal the answer brings along."""


class Attached(msgspec.Struct, frozen=True):
    """The answer of an attach. `seat` is None when another call's outcome was only told again."""

    replayed: bool
    fence: int
    cursor: Cursor | None = None
    page: tuple[Row, ...] = ()
    unconfirmed: tuple[str, ...] = ()
    report: Report | None = None
    seat: Seat | None = None


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
        self.reserving = Reserving(leases, wanted)

    def run(self) -> Attached:
        fault(BEGUN)
        self._check_handles()
        check_support(self.adapter)
        reserving = self.reserving
        reserving.read_transcript(self.leases.view(self.asked.session_id))
        recover(self.leases, reserving.judge())
        fault(RECOVERED)
        answer = reserving.reserve()
        if isinstance(answer, Replayed) and answer.token is None:
            return self._replay(answer)
        record = answer.record
        assert record is not None, "a standing reservation has a record"
        acquiring = Acquiring(self.leases, self.wanted, answer)
        fault(RESERVED)
        try:
            window = acquiring.sample(record)
            acquiring.acquire(record)
        except BaseException as error:
            acquiring.settle_failed(error)
            raise
        return self._finish(acquiring, window)

    def _check_handles(self) -> None:
        asked = self.asked
        for handle in (asked.handle, asked.adopt):
            if handle is not None and handle.namespace != self.adapter.namespace:
                told = f"a handle of {handle.namespace} for an agent of {self.adapter.namespace}"
                raise refusal("operation_invalid", "request_malformed", fault=told).error()

    def _replay(self, answer: Replayed) -> Attached:
        error = replayed_error(answer.row)
        if error is not None:
            raise error
        record = answer.record
        assert record is not None, "a settled success has its record"
        return Attached(True, record.lease.fence)

    def _finish(self, acquiring: Acquiring, window: Window | None) -> Attached:
        leases = self.leases
        record = leases.view(self.asked.session_id).record
        assert record is not None, "the owner was proved just now"
        assert acquiring.child is not None, "the owner was proved just now"
        journal: Journal | None = None
        try:
            opened = open_journal(leases, record, lambda: self._history(record), acquiring.looked)
            journal = opened.journal
            fault(OPENED)
            self._settle(record, opened, window)
            self._import(record, opened, acquiring.proof)
            fault(IMPORTED)
            seat = Seat(leases, record, acquiring.child, journal)
            if self.wanted.publish is not None:
                self.wanted.publish(seat)
            fault(PUBLISHED)
            self._record_outcome(acquiring.answer)
            fault(DONE)
        except BaseException as error:
            acquiring.unwind(journal, error)
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

    def _import(self, record: Record, opened: OpenedJournal, proof: Proof | None) -> None:
        """Takes in what the conversation held before clew had it: exactly what was decoded before reserving."""
        journal = opened.journal
        if not is_blank(journal.rows):
            return
        resumed = proof is not None and proof.origin == "resumed"
        items: Sequence[Item] | None = self.reserving.adoption.items if self.reserving.adoption is not None else None
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


__all__ = ["Adoption", "Attached", "Attachment", "attach"]
