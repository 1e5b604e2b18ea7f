"""Every later mutation of a live session goes through one gate, in one order.

Fingerprint, ledger, writer, fence: so a refused call leaves no row, and a retry that crossed a change of owner still
gets its recorded answer. Where the owner's transport is another process's, the mutation is its business.
"""

from __future__ import annotations

import msgspec

from clew.lease.acquire import handoff_in_flight, owner_alive, owner_unproven
from clew.lease.lease import Holder, Lease, admits_writer
from clew.lease.ledger import Admit, Replay, Row, admit
from clew.lease.refusal import Refusal, refusal
from clew.lineage.link import Fence


class Mutation(msgspec.Struct, frozen=True, kw_only=True):
    """One call: what its caller declares (`declared`) and what this process computed of it (`computed`)."""

    caller: str
    operation_id: str
    declared: str
    computed: str
    expected_fence: Fence


class State(msgspec.Struct, frozen=True, kw_only=True):
    """What the store and this process know at that moment; `now` in ms."""

    row: Row | None
    lease: Lease
    reconciled: bool
    here: Holder
    now: int
    caller_rows: int = 0
    all_rows: int = 0


def admit_mutation(asked: Mutation, state: State) -> Admit | Replay | Refusal:
    """Returns whether a mutation may take effect, is answered from the ledger, or is refused."""
    if asked.declared != asked.computed:
        return refusal("operation_conflict", "fingerprint_mismatch")
    known = admit(
        state.row,
        caller=asked.caller,
        operation_id=asked.operation_id,
        print_=asked.computed,
        now=state.now,
        caller_rows=state.caller_rows,
        all_rows=state.all_rows,
    )
    if not isinstance(known, Admit):
        return known
    lease = state.lease
    return _writer_refusal(lease, state) or _fence_refusal(lease, asked.expected_fence) or known


def _writer_refusal(lease: Lease, state: State) -> Refusal | None:
    if not state.reconciled:
        return refusal("owner_reconciling", "host_reconciling")
    if admits_writer(lease, reconciled=True):
        return None if lease.holder == state.here else owner_alive(lease)
    if lease.owner is not None:
        return owner_unproven(lease)
    if lease.claim == "reserved":
        return handoff_in_flight(lease)
    return refusal("ownership_unknown", "no_live_owner", settlement=lease.settlement_retry)


def _fence_refusal(lease: Lease, expected: Fence) -> Refusal | None:
    if expected == lease.fence:
        return None
    return refusal("checkpoint_stale", "fence_stale", fence=lease.fence, expected=expected)
