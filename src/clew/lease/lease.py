"""The lease of a session: who owns it, since which fence, and whether anybody may write.

The fence only grows and is never reused; nothing here expires. That this process has *reconciled* a lease (has judged
it at the row's present revision) is no part of it: it belongs to a process and a row and is handed in. `admits_writer`
is the one predicate of every mutating path. Stored form: one JSON object whose unknown members are kept.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec

from clew.lineage.edge import StrandId
from clew.lineage.link import Fence
from clew.lineage.stored import Extra

TTL_MS: Final = 30_000
"""After this silence people are told that the owner is late; no decision looks at it."""

RENEW_MS: Final = 10_000

Claim = Literal["reserved", "live", "released", "conflicted"]
Stage = Literal["new_owner_proving", "recovering"]
EvidenceKind = Literal["exit_observed", "pid_absent", "identity_mismatch", "never_spawned", "declared"]
Verdict = Literal["live", "exited", "unverifiable"]

Number = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
Pid = Annotated[int, msgspec.Meta(ge=1, le=2**53)]
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=512)]


class Holder(msgspec.Struct, frozen=True):
    """A clew process: the one that holds an owner's transport, or the one that is asking.

    `host` is the id made once per machine and PID namespace; `boot` names the host's boot; `start_ticks` is the start
    time in hundredths of a second (on Linux since the boot). None: not known.
    """

    host: Name
    pid: Pid
    boot: str | None = None
    start_ticks: Number | None = None


class OwnerProcess(msgspec.Struct, frozen=True):
    """The agent's process that owns a session, with the spawn token it carries; fields as in Holder."""

    host: Name
    pid: Pid
    spawn_token: Name
    boot: str | None = None
    start_ticks: Number | None = None


class Checkpoint(msgspec.Struct, frozen=True, order=True):
    """A place in the session's journal; may only move forward."""

    epoch: Annotated[int, msgspec.Meta(ge=1, le=2**53)]
    sequence: Number


class Evidence(msgspec.Struct, frozen=True):
    """Why an owner counts as gone. `at` and `last_proven_alive` in ms; `by` is who declared it, for `declared`."""

    kind: EvidenceKind
    detail: str
    at: int
    owner_fence: Number
    last_proven_alive: int | None = None
    by: str | None = None


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    """The lease of one session; the rest of its rules stand with the transitions.

    `minimum_next_fence` only after a backup was restored. `holder` is the clew process that reserved and holds the
    transport; None for an independent owner. `independent`: the owner will not be (is not) held by its transport.
    `processless_at` is set when an attempt failed before any spawn. `deadline` and `renewed_at` (ms) are reported to
    people and consulted by no decision. `settlement_retry` names the settlement of a dead owner's journal that is
    still to be done.
    """

    fence: Annotated[Fence, msgspec.Meta(ge=0, le=2**53)] = Fence(0)
    minimum_next_fence: Number | None = None
    claim: Claim = "released"
    stage: Stage | None = None
    owner: OwnerProcess | None = None
    holder: Holder | None = None
    independent: bool = False
    reserved_token: Name | None = None
    processless_at: int | None = None
    proven_link_id: str | None = None
    operation_id: str | None = None
    deadline: int | None = None
    renewed_at: int | None = None
    claim_key_id: str | None = None
    checkpoint: Checkpoint | None = None
    evidence: Evidence | None = None
    settlement_retry: str | None = None
    extra: Extra = ()

    @property
    def next_fence(self) -> Fence:
        """The fence that the next grant or eviction moves to."""
        return Fence(max(self.fence + 1, self.minimum_next_fence or 0))

    @property
    def is_free(self) -> bool:
        """Released, with nothing held and nothing that could still start: never held, or let go."""
        return self.claim == "released" and self.owner is None and self.reserved_token is None and self.stage is None


def with_floor(lease: Lease, floor: int) -> Lease:
    """Returns the lease whose next fence is not below `floor` (the store's: it came back from a backup); the same one
    where it is not anyway. Every lease that is read from a store is taken so."""
    return lease if lease.next_fence >= floor else msgspec.structs.replace(lease, minimum_next_fence=floor)


def admits_writer(lease: Lease, *, reconciled: bool) -> bool:
    """Tells whether somebody may write through this lease. `reconciled`: this process has judged it as it is now."""
    return reconciled and lease.stage is None and lease.claim == "live" and lease.owner is not None


def owner_verdict(lease: Lease, *, reconciled: bool) -> Verdict:
    """Returns what people are told of the owner: live, exited (on evidence alone), or unverifiable."""
    if admits_writer(lease, reconciled=reconciled):
        return "live"
    if lease.is_free and lease.evidence is not None:
        return "exited"
    return "unverifiable"


def is_late(lease: Lease, now: int) -> bool:
    """Tells people whether the owner has been silent past its deadline; `now` in ms. It decides nothing."""
    return lease.owner is not None and lease.deadline is not None and now > lease.deadline


def lease_fault(lease: Lease) -> str:
    """Returns what makes a lease impossible by itself, or an empty text."""
    if lease.claim == "live" and (lease.owner is None or lease.proven_link_id is None):
        return "live without an owner and its proof"
    if lease.claim == "live" and lease.stage == "new_owner_proving":
        return "live and still proving"
    if lease.claim == "reserved" and lease.reserved_token is None:
        return "reserved without a token"
    if lease.claim == "released" and lease.owner is not None:
        return "released with an owner"
    if lease.fence == 0 and lease.claim not in ("released", "conflicted"):
        return "owned at fence 0"
    return ""


def settlement_id(session_id: StrandId, fence: Fence) -> str:
    """Returns the stable id of the settlement of the owner at this fence."""
    return f"settle-{session_id}-{fence}"
