"""From a reservation to a proved owner: sample, start, commit, prove; and back, when any of it fails.

Promises: the agent's history is looked at while no child can move it; processless proof is cleared, durably, before
each spawn; what fails is settled by what was seen of the child, together with its operation, in one transaction; the
first error is what the caller gets, and both where settling fails too.
"""

from __future__ import annotations

from clew.errors import ClewError, LeaseError
from clew.host.protocol import Adapter, Child, Launch, Proof
from clew.journal.opening import Readable
from clew.journal.reconcile import Window
from clew.lease.lease import Holder, OwnerProcess, admits_writer
from clew.lease.ledger import Row, fail
from clew.lease.record import Record
from clew.lease.refusal import refusal
from clew.lease.reserve import Replayed, Reserved
from clew.lease.transitions import (
    ChildSeen,
    Reservation,
    clear_processless,
    commit_process,
    prove_owner,
    settle_failed,
    settle_live,
)
from clew.lineage.link import Fence, Link, Origin, make_link_id
from clew.platform.faults import declare, fault
from clew.verbs.journaling import Journal, Looked, checkpoint_of, look_at_journal
from clew.verbs.leases import Leases
from clew.verbs.own import archive_id
from clew.verbs.reserving import Attachment
from clew.verbs.seat import CLOSING

SAMPLED = declare("attach.sampled")
CLEARED = declare("attach.cleared")
SPAWNED = declare("attach.spawned")
COMMITTED = declare("attach.committed")
ANSWERED = declare("attach.answered")
PROVED = declare("attach.proved")


def check_support(adapter: Adapter) -> None:
    """Raises LeaseError (`unsupported`) where an agent cannot be driven here, or may not be."""
    why = adapter.unsupported()
    if why is not None:
        raise refusal("unsupported", why.reason, agent=adapter.namespace.agent, detail=why.detail).error()


class Acquiring:
    """One acquisition of a reserved session. `child` and `proof` are there as far as it came."""

    def __init__(self, leases: Leases, wanted: Attachment, answer: Reserved | Replayed) -> None:
        self.leases, self.asked, self.adapter, self.answer = leases, wanted.asked, wanted.adapter, answer
        self.token = answer.token or ""
        self.child: Child | None = None
        self.proof: Proof | None = None
        self.looked: Looked | None = None

    def sample(self, record: Record) -> Window | None:
        """Looks at the agent's own history while no child can move it. Best effort: None leaves all unknown."""
        head = record.chain.head
        check_support(self.adapter)
        if head is None:
            fault(SAMPLED)
            return None
        self.looked = look_at_journal(self.leases, record)
        opening = self.looked.opening
        after = checkpoint_of(opening.rows) if isinstance(opening, Readable) else None
        try:
            window = self.adapter.window(head.handle, record.account_home.path, after)
        except Exception:  # noqa: BLE001 - an adapter's reading is best effort; attach goes on without a window
            window = None
        fault(SAMPLED)
        return window

    def acquire(self, record: Record) -> None:
        """Starts the agent with the reserved token, commits its process, proves the conversation."""
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

    def settle_failed(self, error: BaseException) -> None:
        """Settles a failed acquisition and its operation in one transaction; both errors rise if that fails too."""
        leases, record = self.leases, self.answer.record
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
                self._fail_row(self.answer.row, error)
        except LeaseError:
            # Another process settled it meanwhile: the first error stands.
            pass
        except Exception as second:  # noqa: BLE001 - whatever it is, it rises together with the first
            raise _both(error, second) from error
        finally:
            leases.let_go(self.token)

    def unwind(self, journal: Journal | None, error: BaseException) -> None:
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
            record = self.answer.record
            assert record is not None, "something was reserved"
            with leases.change(self.asked.session_id, record.lease.fence) as change:
                change.record = settle_live(change.record, change.standing, seen, _why(error))
                self._fail_row(self.answer.row, error)
            assert fence >= record.lease.fence, "fences never fall"
        except LeaseError:
            pass
        except Exception as second:  # noqa: BLE001 - whatever it is, it rises together with the first
            raise _both(error, second) from error
        finally:
            leases.let_go(self.token)

    def _fail_row(self, reserved: Row, error: BaseException) -> None:
        row, revision = self.leases.operation(reserved.key)
        if row is None:
            return
        code, message = "host_failed", _why(error)
        if isinstance(error, ClewError):
            code, message = error.code, error.message
        self.leases.put_operation(fail(row, code, message), revision)


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


def _why(error: BaseException) -> str:
    return (error.message if isinstance(error, ClewError) else str(error)) or type(error).__name__


def _both(first: BaseException, second: Exception) -> BaseException:
    if isinstance(first, Exception):
        return ExceptionGroup("attaching failed, and so did settling it", [first, second])
    return first
