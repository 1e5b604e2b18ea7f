"""May this call become the owner? The decision, with its checks in their fixed order.

Pure and without time: no clock, no deadline is looked at. A grant names the fence to move to; a retry the reservation
that this very operation holds already, for which nothing is spawned a second time.
"""

from __future__ import annotations

import msgspec

from clew.lease.lease import Holder, Lease
from clew.lease.probe import Probe
from clew.lease.refusal import Refusal, refusal
from clew.lineage.link import Fence


class Grant(msgspec.Struct, frozen=True):
    """The caller may reserve, at this fence."""

    fence: Fence


class Retry(msgspec.Struct, frozen=True):
    """The caller's own reservation stands: same fence, same token, no second spawn."""

    fence: Fence
    token: str


class Acquisition(msgspec.Struct, frozen=True, kw_only=True):
    """What the decision looks at.

    `reconciled`: this process has judged the lease at the row's present revision. `record_host` is the host of the
    record's location, `here` the asking clew process. `probe` is of the owner, or, without one, of the reservation.
    """

    lease: Lease
    reconciled: bool
    expected_fence: Fence
    operation_id: str
    probe: Probe
    record_host: str
    here: Holder


def decide_acquisition(asked: Acquisition) -> Grant | Retry | Refusal:
    """Returns whether the lease may be acquired; the first check that answers decides (docs/ownership.md, A4).

    Before the table stands what one host owes another: a lease of another host that anybody may hold is never judged
    here, whatever its deadline.
    """
    lease = asked.lease
    if asked.record_host != asked.here.host and not lease.is_free:
        return owner_unproven(lease)
    if not asked.reconciled:
        return refusal("owner_reconciling", "host_reconciling")
    if asked.expected_fence != lease.fence:
        return refusal("checkpoint_stale", "fence_stale", fence=lease.fence, expected=asked.expected_fence)
    if lease.claim == "conflicted":
        return refusal("conflict", "claim_conflicted")
    if lease.stage == "recovering":
        return owner_unproven(lease)
    if lease.stage is not None and lease.operation_id not in (None, asked.operation_id):
        return handoff_in_flight(lease)
    token = lease.reserved_token
    if lease.operation_id == asked.operation_id and lease.owner is None and lease.claim == "reserved" and token:
        # Two processes may hold one operation id; only the one that made the reservation may be spawning.
        if lease.holder is not None and lease.holder != asked.here:
            return handoff_in_flight(lease)
        return Retry(lease.fence, token)
    return _judge_owner(lease, asked.probe)


def owner_unproven(lease: Lease) -> Refusal:
    """Returns the refusal that names the process whose exit nobody can prove."""
    owner = lease.owner
    if owner is None:
        return refusal("ownership_unknown", "owner_unproven")
    return refusal("ownership_unknown", "owner_unproven", pid=owner.pid, host=owner.host)


def owner_alive(lease: Lease) -> Refusal:
    """Returns the refusal that names the process which has the session open."""
    owner = lease.owner
    if owner is None:
        return refusal("conflict", "owner_alive")
    return refusal("conflict", "owner_alive", pid=owner.pid, host=owner.host)


def handoff_in_flight(lease: Lease) -> Refusal:
    """Returns the refusal that names the process which is just opening the session."""
    holder = lease.holder
    if holder is None:
        return refusal("operation_conflict", "handoff_in_flight")
    return refusal("operation_conflict", "handoff_in_flight", pid=holder.pid, host=holder.host)


def _judge_owner(lease: Lease, probe: Probe) -> Grant | Refusal:
    if lease.owner is not None:
        if probe.proves == "life":
            return owner_alive(lease)
        if probe.proves != "death":
            return owner_unproven(lease)
        return Grant(lease.next_fence)
    if lease.claim == "reserved" and probe.proves != "nothing_started":
        return owner_unproven(lease)
    return Grant(lease.next_fence)
