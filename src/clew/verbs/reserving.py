"""Reserving a session in the store: the first durable step of an attach, before any process exists.

What is adopted is read before, processes are looked at before; the decision (`clew.lease.reserve`), the record and the
operation's row are one transaction. Promises: a refusal leaves the store as it was; a reservation that stands already
is never followed by a second spawn.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from clew.errors import LeaseError
from clew.host.protocol import Adapter
from clew.ids import ThreadId
from clew.journal.rows import Item
from clew.lease.ledger import Row, settle_after_crash
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
from clew.lineage.edge import StrandId
from clew.lineage.link import Fence
from clew.verbs.leases import Leases, View, probe_of
from clew.verbs.seat import SETTLED_STATES, Seat


class Adoption(msgspec.Struct, frozen=True):
    """A conversation to be taken over: what its transcript says, read and decoded before anything is reserved."""

    state: Transcript
    items: tuple[Item, ...] = ()
    path: str = ""
    fault: str = ""


class Attachment(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be attached. `thread` is where a new record belongs; `read_transcript` decodes what is adopted;
    `publish` shows a finished session to subscribers, before the outcome is recorded."""

    asked: Request
    adapter: Adapter
    thread: ThreadId
    read_transcript: Callable[[], Adoption] | None = None
    publish: Callable[[Seat], None] | None = None


class Reserving:
    """The reservation of one attach."""

    def __init__(self, leases: Leases, wanted: Attachment) -> None:
        self.leases, self.wanted, self.asked = leases, wanted, wanted.asked
        self.adoption: Adoption | None = None
        self._moved: dict[Fence, Fence] = {}

    def read_transcript(self, view: View) -> None:
        """Reads and decodes what is to be adopted, where the record has no conversation yet."""
        stored = view.stored
        new = stored is None or (isinstance(stored, Record) and not stored.chain.links)
        if self.asked.adopt is None or not new or self.wanted.read_transcript is None:
            return
        self.adoption = self.wanted.read_transcript()
        if self.adoption.state == "ready" and not self.adoption.items:
            self.adoption = Adoption("unreadable", (), self.adoption.path, "it holds nothing")

    def reserve(self) -> Reserved | Replayed:
        """Reserves the session, or finds the call known; raises LeaseError, and then the store is as it was."""
        leases, asked, now = self.leases, self.asked, self.leases.now_ms()
        probed = probe_of(self.judge())
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

    def judge(self) -> View:
        """Returns the record, judged; remembers at which fence a dead owner was released."""
        view = self.leases.judge(self.asked.session_id)
        if view.moved_from is not None:
            self._moved[view.moved_from] = view.lease.fence
        return view

    def _as_judged(self, row: Row | None, view: View) -> Request:
        """Returns the call as it stands after this very attach released a dead owner: whoever saw the fence before
        that saw the present one. Its operation keeps the fingerprint that the caller declared."""
        asked = self.asked
        if row is not None or asked.expected_fence is None or asked.fingerprint != reservation_fingerprint(asked):
            return asked
        if self._moved.get(asked.expected_fence) != view.lease.fence:
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
        for row, revision in leases.open_operations(self.asked.session_id):
            if not row.caller or row.key == answer.row.key:
                continue
            leases.put_operation(settle_after_crash(row, may_have_happened=True), revision)

    def _refuse_second_spawn(self, record: Record) -> None:
        """A reservation that stands already may have had its child: nothing is spawned a second time."""
        if record.lease.processless_at is None:
            raise refusal("ownership_unknown", "owner_unproven").error()
