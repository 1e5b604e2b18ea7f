"""Judging a lease anew: after a start, and whenever another process changed its row.

That a lease is reconciled belongs to a process and a row's revision (`Judgements`), and is never stored. Probes are
taken first, outside the transaction; `adjudicate` applies them inside, and only to a lease still at the fence they were
taken at. Promises: time is not looked at; only proof evicts; a lease of another host is read, never judged; a running
clew process keeps its agent whatever another one thinks of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from clew.lease.lease import Evidence, Holder, Lease
from clew.lease.probe import UNPROBED, Probe, evidence_of
from clew.lease.record import Record
from clew.lease.transitions import release_at_next_fence
from clew.lineage.edge import StrandId
from clew.lineage.link import Fence

Kind = Literal["free", "kept", "in_flight", "evicted", "recovering", "unproven", "foreign", "stale"]
"""free: nobody has it. kept: its owner lives where it is. in_flight: a living process is opening it. evicted: released
at the next fence. recovering: an owner without transport, or one that cannot be proved; keep asking. unproven: a
reservation that cannot be judged, left as it is. foreign: of another host. stale: the probe is of an older state."""

JUDGED: Final = frozenset({"free", "kept", "in_flight", "evicted", "recovering", "unproven"})


class Judgement(msgspec.Struct, frozen=True):
    """The result: what was found and the record as it must be now (the same object when nothing changed)."""

    kind: Kind
    record: Record

    @property
    def reconciled(self) -> bool:
        """Whether this process has now judged the lease."""
        return self.kind in JUDGED


class Probed(msgspec.Struct, frozen=True):
    """What was probed, and at which fence. `subject` is the probe of the owner, or of the reservation without one;
    `holder` that of the clew process that holds it. `holds`: this very process holds the owner's transport, or is
    making the reservation."""

    fence: Fence
    subject: Probe = UNPROBED
    holder: Probe = UNPROBED
    holds: bool = False


class Judgements(msgspec.Struct, frozen=True):
    """Which rows one process has judged, and at which revision."""

    revisions: Mapping[StrandId, int] = {}

    def holds(self, session_id: StrandId, revision: int) -> bool:
        """Tells whether the row has been judged as it is now."""
        return self.revisions.get(session_id) == revision

    def judged(self, session_id: StrandId, revision: int) -> Judgements:
        """Returns the judgements with this row judged at this revision (also after this process wrote it)."""
        return Judgements({**self.revisions, session_id: revision})


def adjudicate(record: Record, here: Holder, probed: Probed, now: int) -> Judgement:
    """Returns what becomes of a lease that this process has not judged yet (docs/ownership.md, A6).

    `now` (ms) is written into evidence and decides nothing.
    """
    lease = record.lease
    if record.location.host != here.host:
        return Judgement("foreign", record)
    if probed.fence != lease.fence:
        return Judgement("stale", record)
    if lease.claim == "conflicted":
        return Judgement("unproven", record)
    holder = _holder_state(lease, here, probed)
    if lease.owner is not None:
        return _judge_owner(record, holder, probed.subject, now)
    if lease.claim == "released" and lease.reserved_token is None:
        return _free(record)
    return _judge_reservation(record, holder, probed.subject, now)


_HolderState = Literal["mine", "alive", "dead", "unknown", "none"]


def _holder_state(lease: Lease, here: Holder, probed: Probed) -> _HolderState:
    if lease.holder is None:
        return "none"
    if lease.holder == here:
        # This process is named, but holds nothing: it let the child go without proof of its end.
        return "mine" if probed.holds else "dead"
    if probed.holder.proves == "life":
        return "alive"
    return "dead" if probed.holder.proves == "death" else "unknown"


def _judge_owner(record: Record, holder: _HolderState, probe: Probe, now: int) -> Judgement:
    lease = record.lease
    if probe.proves == "death":
        evidence = evidence_of(probe, now, lease.fence, lease.renewed_at)
        return _evicted(record, evidence)
    if holder == "mine":
        return _restored(record)
    if holder == "alive" or (holder == "none" and probe.proves == "life"):
        return Judgement("kept", record)
    if lease.stage == "recovering":
        return Judgement("recovering", record)
    return _changed("recovering", record, stage="recovering", operation_id=None)


def _judge_reservation(record: Record, holder: _HolderState, probe: Probe, now: int) -> Judgement:
    lease = record.lease
    if holder in ("mine", "alive"):
        return Judgement("in_flight", record)
    if lease.processless_at is not None:
        detail = "the attempt failed before any spawn"
        return _evicted(record, Evidence("never_spawned", detail, now, lease.fence, None))
    if probe.proves == "nothing_started":
        return _evicted(record, evidence_of(probe, now, lease.fence, None))
    if holder == "dead" and not lease.independent:
        # Nothing can drive such a child: its standard streams died with their parent. That is no proof of death.
        return _evicted(record, None)
    if holder == "unknown" or lease.stage == "recovering":
        return Judgement("unproven", record)
    return _changed("recovering", record, stage="recovering", operation_id=None)


def _free(record: Record) -> Judgement:
    if record.lease.stage is None:
        return Judgement("free", record)
    return _changed("free", record, stage=None)


def _restored(record: Record) -> Judgement:
    """Another process could not prove this one alive and marked the lease; its holder knows better."""
    if record.lease.stage != "recovering":
        return Judgement("kept", record)
    return _changed("kept", record, stage=None if record.lease.claim == "live" else "new_owner_proving")


def _evicted(record: Record, evidence: Evidence | None) -> Judgement:
    lease = release_at_next_fence(record, evidence)
    return Judgement("evicted", msgspec.structs.replace(record, lease=lease))


def _changed(kind: Kind, record: Record, **fields: object) -> Judgement:
    lease = msgspec.structs.replace(record.lease, **fields)
    return Judgement(kind, msgspec.structs.replace(record, lease=lease))
