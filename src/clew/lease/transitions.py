"""The transitions of a lease: each takes a record and returns the next one, or raises LeaseError.

Promises: a fence moves only by a reservation, an eviction, a settlement or a declaration, always upwards; a transition
at another fence than the present one is `checkpoint_stale`, on a lease this process has not reconciled
`owner_reconciling`, on any other mismatch `ownership_unknown`; the record given is left as it was. The caller writes
the result in one transaction with whatever it guards.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from clew.errors import LeaseError
from clew.lease.acquire import Grant, owner_unproven
from clew.lease.lease import (
    TTL_MS,
    Checkpoint,
    Evidence,
    Holder,
    Lease,
    OwnerProcess,
    admits_writer,
    settlement_id,
)
from clew.lease.probe import Probe
from clew.lease.record import Record
from clew.lease.refusal import refusal
from clew.lineage.chain import Chain, append, roll_over
from clew.lineage.edge import Edge, StrandId
from clew.lineage.link import Fence, Link, make_link_id
from clew.lineage.refusal import CHAIN_OVERFLOW, PROVIDER_MISMATCH, STALE_FENCE, refuse
from clew.lineage.strand import Strand


class Standing(msgspec.Struct, frozen=True):
    """With what a process comes to a transition: the fence it saw, whether it has reconciled the lease, the time.

    `now` in ms; it is written down and decides nothing.
    """

    fence: Fence
    reconciled: bool
    now: int


class Reservation(msgspec.Struct, frozen=True):
    """What a reservation records: the token minted before the child, the operation, and the reserving process.

    `independent`: the owner will not be held by this process (an agent in the user's own terminal).
    """

    token: str
    operation_id: str
    holder: Holder
    independent: bool = False
    claim_key_id: str | None = None


class Proven(msgspec.Struct, frozen=True):
    """A proved owner: the record, now live; and, where its chain was full, the strand that keeps the old chain with
    the edge that leads from it."""

    record: Record
    archived: Strand | None = None
    edge: Edge | None = None


ChildSeen = Literal["exit_proven", "root_exit_observed", "processless", "unproven"]
"""What was observed of the child of a failed acquisition; `root_exit_observed` says nothing of its descendants."""


def reserve(record: Record, grant: Grant, made: Reservation, now: int) -> Record:
    """Returns the record reserved at the granted fence; proof, owner and evidence are cleared."""
    assert grant.fence > record.lease.fence, "a grant moves the fence"
    lease = msgspec.structs.replace(
        record.lease,
        fence=grant.fence,
        minimum_next_fence=None,
        claim="reserved",
        stage="new_owner_proving",
        owner=None,
        holder=made.holder,
        independent=made.independent,
        reserved_token=made.token,
        processless_at=None,
        proven_link_id=None,
        operation_id=made.operation_id,
        deadline=now + TTL_MS,
        renewed_at=now,
        claim_key_id=made.claim_key_id,
        evidence=None,
    )
    return _with(record, lease, now)


def clear_processless(record: Record, standing: Standing) -> Record:
    """Returns the record without proof that nothing was spawned: durable *before* each attempt to spawn."""
    _check(record.lease, standing)
    return _with(record, msgspec.structs.replace(record.lease, processless_at=None), standing.now)


def mark_processless(record: Record, standing: Standing) -> Record:
    """Returns the record with the proof that the attempt failed before any spawn."""
    _check(record.lease, standing)
    if record.lease.claim != "reserved" or record.lease.owner is not None:
        raise owner_unproven(record.lease).error()
    return _with(record, msgspec.structs.replace(record.lease, processless_at=standing.now), standing.now)


def commit_process(record: Record, standing: Standing, process: OwnerProcess) -> Record:
    """Returns the record with its owner's process; the process must carry the reserved token."""
    lease = record.lease
    _check(lease, standing)
    if lease.claim != "reserved" or lease.owner is not None:
        raise owner_unproven(lease).error()
    if process.spawn_token != lease.reserved_token:
        raise refusal("ownership_unknown", "spawn_identity_mismatch", pid=process.pid).error()
    holder = None if lease.independent else lease.holder
    return _with(record, msgspec.structs.replace(lease, owner=process, holder=holder), standing.now)


def prove_owner(record: Record, standing: Standing, link: Link, archive_id: StrandId | None = None) -> Proven:
    """Returns the record live, with the handle that the owner proved appended to its chain.

    A full chain refuses (`handle_chain_overflow`) unless `archive_id` names the strand that is to keep it: then the
    record goes on with a chain that adopts the old head. Raises LeaseError.
    """
    lease = record.lease
    _check(lease, standing)
    if lease.claim != "reserved" or lease.stage != "new_owner_proving" or lease.owner is None:
        raise _not_proving(lease)
    if link.handle.namespace != record.namespace:
        message = f"the session is one of {record.namespace}, the link of {link.handle.namespace}"
        raise refuse(PROVIDER_MISMATCH, message, link=link.link_id)
    if link.minted_at_fence != lease.fence:
        message = f"the link was made at fence {link.minted_at_fence}, the session is at {lease.fence}"
        raise refuse(STALE_FENCE, message, link=link.link_id, fence=lease.fence)
    chain, archived, edge = _append_or_roll(record, link, archive_id)
    head = chain.head
    assert head is not None, "an append leaves a head"
    live = msgspec.structs.replace(lease, stage=None, claim="live", proven_link_id=head.link_id, operation_id=None)
    return Proven(_with(msgspec.structs.replace(record, chain=chain), live, standing.now), archived, edge)


def renew(record: Record, standing: Standing, probe: Probe, *, still_held: bool = False) -> Record:
    """Returns the record with its deadline moved: the owner was proved alive just now.

    `still_held`: this process holds the child and has not seen it exit; that counts here and nowhere else.
    """
    lease = record.lease
    _check(lease, standing)
    if lease.owner is None or not (still_held or probe.proves == "life"):
        raise owner_unproven(lease).error()
    renewed = msgspec.structs.replace(lease, deadline=standing.now + TTL_MS, renewed_at=standing.now)
    return _with(record, renewed, standing.now)


def evict(record: Record, standing: Standing, evidence: Evidence | None) -> Record:
    """Returns the record released at the next fence; where an owner was, its journal is still to be settled.

    Without evidence only for a reservation that nothing can drive any more. Raises LeaseError, also while the
    settlement of an earlier owner is pending.
    """
    lease = record.lease
    _check(lease, standing)
    if lease.settlement_retry is not None:
        raise refusal("ownership_unknown", "no_live_owner", settlement=lease.settlement_retry).error()
    assert evidence is not None or lease.owner is None, "an owner is only evicted on evidence"
    return _with(record, _released(record, lease, evidence), standing.now)


def settle_failed(record: Record, standing: Standing, made: Reservation, child: ChildSeen, detail: str = "") -> Record:
    """Returns the record after an acquisition that failed; one transaction with the operation's row.

    Raises LeaseError unless this very acquisition (fence, token, operation) is still proving. Afterwards nothing is
    left in the stage `new_owner_proving`.
    """
    lease = record.lease
    _check(lease, standing)
    same = (lease.reserved_token, lease.operation_id) == (made.token, made.operation_id)
    if not same or lease.stage != "new_owner_proving":
        raise refusal("ownership_unknown", "replay_superseded", operation=made.operation_id).error()
    return _with(record, _settled(record, lease, child, detail, standing.now), standing.now)


def settle_live(record: Record, standing: Standing, child: ChildSeen, detail: str = "") -> Record:
    """Returns the record after an owner was proved and what followed failed (its journal could not be opened)."""
    lease = record.lease
    _check(lease, standing)
    if lease.claim != "live" or child == "processless":
        raise owner_unproven(lease).error()
    return _with(record, _settled(record, lease, child, detail, standing.now), standing.now)


def finish_settlement(record: Record, standing: Standing, settlement: str) -> Record:
    """Returns the record whose dead owner's journal is settled now; the same settlement again changes nothing."""
    lease = record.lease
    _check(lease, standing)
    if lease.settlement_retry is None:
        return record
    if lease.settlement_retry != settlement:
        raise refusal("ownership_unknown", "no_live_owner", settlement=lease.settlement_retry).error()
    return _with(record, msgspec.structs.replace(lease, settlement_retry=None), standing.now)


def set_checkpoint(record: Record, standing: Standing, checkpoint: Checkpoint) -> Record:
    """Returns the record with its journal's checkpoint moved forward; LeaseError when it is behind the stored one."""
    lease = record.lease
    _check(lease, standing)
    if lease.checkpoint is not None and checkpoint < lease.checkpoint:
        raise refusal("checkpoint_stale", "lease_moved", fence=lease.fence).error()
    return _with(record, msgspec.structs.replace(lease, checkpoint=checkpoint), standing.now)


def append_free(record: Record, standing: Standing, link: Link) -> Record:
    """Returns the record with a link that no owner proved: convert, restore, or a fork found on disk.

    Only while the lease is free, at the fence as it stands (0 if nobody ever held it). An old proof goes, for its
    link may have been superseded.
    """
    lease = record.lease
    _check(lease, standing)
    if not lease.is_free:
        raise owner_unproven(lease).error()
    if link.handle.namespace != record.namespace:
        message = f"the session is one of {record.namespace}, the link of {link.handle.namespace}"
        raise refuse(PROVIDER_MISMATCH, message, link=link.link_id)
    if link.minted_at_fence != lease.fence:
        message = f"the link was made at fence {link.minted_at_fence}, the session is at {lease.fence}"
        raise refuse(STALE_FENCE, message, link=link.link_id, fence=lease.fence)
    chain = append(record.chain, link)
    free = msgspec.structs.replace(lease, proven_link_id=None)
    return _with(msgspec.structs.replace(record, chain=chain), free, standing.now)


def after_restore(record: Record, above: int, now: int) -> Record:
    """Returns the record as it must be after its store came back from a backup: the next fence is a new one.

    `above` is a number that no fence can have reached (seconds since 1970 at the time of the restore serve): a backup
    may lack more than one grant. Fence, owner, claim and stage stay as they are; adjudication follows.
    """
    lease = record.lease
    minimum = max(lease.next_fence + 1, above)
    return _with(record, msgspec.structs.replace(lease, minimum_next_fence=minimum), now)


def release_reservation(record: Record, standing: Standing) -> Record:
    """Returns the record released, without evidence: a person says that no agent was started.

    Only where no owner was ever recorded; an owner is released on proof, or by declaring its host gone.
    """
    lease = record.lease
    _check(lease, standing)
    if lease.owner is not None or lease.is_free:
        raise owner_unproven(lease).error()
    return _with(record, _released(record, lease, None), standing.now)


def release_at_next_fence(record: Record, evidence: Evidence | None) -> Lease:
    """Returns the record's lease released at the next fence, with this evidence or none."""
    return _released(record, record.lease, evidence)


def _check(lease: Lease, standing: Standing) -> None:
    if standing.fence != lease.fence:
        raise refusal("checkpoint_stale", "lease_moved", fence=lease.fence, expected=standing.fence).error()
    if not standing.reconciled:
        raise refusal("owner_reconciling", "host_reconciling").error()


def _not_proving(lease: Lease) -> Exception:
    if admits_writer(lease, reconciled=True) or lease.owner is not None:
        return owner_unproven(lease).error()
    return refusal("ownership_unknown", "no_live_owner").error()


def _with(record: Record, lease: Lease, now: int) -> Record:
    return msgspec.structs.replace(record, lease=lease, updated_at=max(now, record.updated_at))


def _released(record: Record, lease: Lease, evidence: Evidence | None) -> Lease:
    retry = lease.settlement_retry
    if lease.owner is not None:
        retry = settlement_id(record.session_id, lease.fence)
    return msgspec.structs.replace(
        lease,
        fence=lease.next_fence,
        minimum_next_fence=None,
        claim="released",
        stage=None,
        owner=None,
        holder=None,
        independent=False,
        reserved_token=None,
        operation_id=None,
        deadline=None,
        evidence=evidence,
        settlement_retry=retry,
    )


def _settled(record: Record, lease: Lease, child: ChildSeen, detail: str, now: int) -> Lease:
    if child == "unproven" and lease.owner is not None:
        return msgspec.structs.replace(lease, stage="recovering", operation_id=None)
    if child == "unproven":
        return _released(record, lease, None)
    if child == "processless":
        evidence = Evidence("never_spawned", detail, now, lease.fence, None)
        return msgspec.structs.replace(_released(record, lease, evidence), processless_at=now)
    told = detail or ("exit proven" if child == "exit_proven" else "its process exited, descendants unknown")
    return _released(record, lease, Evidence("exit_observed", told, now, lease.fence, lease.renewed_at))


def _append_or_roll(
    record: Record, link: Link, archive_id: StrandId | None
) -> tuple[Chain, Strand | None, Edge | None]:
    """Appends; where the chain is full and may be archived, closes it and goes on with one that adopts its head."""
    chain, head = record.chain, record.chain.head
    try:
        return append(chain, link), None, None
    except LeaseError as refused:
        if refused.code != CHAIN_OVERFLOW or archive_id is None or head is None:
            raise
    adopted = Link(
        link_id=make_link_id(head.handle, link.minted_at_fence, {*chain.link_ids, link.link_id}),
        handle=head.handle,
        origin="adopted",
        minted_at_fence=link.minted_at_fence,
        observed_at=link.observed_at,
    )
    following = append(roll_over(chain, adopted), link)
    edge = Edge(
        kind="rolled_over",
        from_strand=archive_id,
        from_key=head.handle.key,
        to_strand=record.session_id,
        to_key=head.handle.key,
        at=link.observed_at,
    )
    return following, Strand(archive_id, record.namespace, chain), edge
