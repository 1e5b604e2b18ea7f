"""What a host observed of a process, and what that proves.

A probe is a host's observation; no client can supply one. Promises: only proof counts. "No such process" proves death,
a bare pid proves nothing, token against start time proves nothing, and another host proves nothing about this one.
Does not observe: the facts are handed in.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from clew.lease.lease import Evidence, EvidenceKind, Holder, OwnerProcess
from clew.lineage.link import Fence

SLACK_TICKS: Final = 200
"""Start times (hundredths of a second) within 2 s count as equal: they are read through two clocks on some systems."""

Outcome = Literal[
    "exit_observed",
    "pid_absent",
    "identity_mismatch",
    "identity_matched",
    "reservation_unused",
    "indeterminate",
]
Proves = Literal["death", "life", "nothing_started", "nothing"]
Signal = Literal["absent", "present", "not_permitted", "failed"]


class Seen(msgspec.Struct, frozen=True):
    """What a host saw of one pid.

    `host` is the observer's. `exit_seen`: this host itself saw that very process exit. `signal` is the answer to
    signal 0. `token` is the spawn token the process carries, `start_ticks` and `boot` its start; None: not to be had.
    """

    host: str
    exit_seen: bool = False
    signal: Signal = "failed"
    token: str | None = None
    boot: str | None = None
    start_ticks: int | None = None


class SeenReservation(msgspec.Struct, frozen=True):
    """What a host saw of a spawn token that nobody has claimed yet.

    `carriers` are the pids that carry it, None where processes cannot be listed (or some would not tell);
    `agent_active`: whether the agent's own files show activity since the reservation, None when that is not known.
    """

    host: str
    carriers: tuple[int, ...] | None = None
    agent_active: bool | None = None


class Probe(msgspec.Struct, frozen=True):
    """The outcome of a probe. `fields` are those that matched, or the one that did not; `reason` says why nothing
    is proved."""

    outcome: Outcome
    fields: tuple[str, ...] = ()
    reason: str = ""

    @property
    def proves(self) -> Proves:
        """What follows from it."""
        if self.outcome in ("exit_observed", "pid_absent", "identity_mismatch"):
            return "death"
        if self.outcome == "identity_matched" and self.fields:
            return "life"
        return "nothing_started" if self.outcome == "reservation_unused" else "nothing"


UNPROBED: Final = Probe("indeterminate", reason="not_probed")


def classify_owner(owner: OwnerProcess, seen: Seen) -> Probe:
    """Returns what the observation proves about a recorded owner."""
    return _classify(owner.host, owner.boot, owner.start_ticks, owner.spawn_token, seen)


def classify_holder(holder: Holder, seen: Seen) -> Probe:
    """Returns what the observation proves about the clew process that holds an owner; it carries no token."""
    return _classify(holder.host, holder.boot, holder.start_ticks, None, seen)


def classify_reservation(host: str, seen: SeenReservation) -> Probe:
    """Returns what the observation proves about a reservation, made on `host`, that names no process."""
    if seen.host != host:
        return Probe("indeterminate", reason="other_host")
    if seen.carriers is None:
        return Probe("indeterminate", reason="processes_not_listed")
    if seen.carriers:
        return Probe("indeterminate", reason="token_on_a_live_process")
    if seen.agent_active is None:
        return Probe("indeterminate", reason="agent_activity_unknown")
    if seen.agent_active:
        return Probe("indeterminate", reason="agent_active_since")
    return Probe("reservation_unused")


def may_be_stopped(probe: Probe) -> bool:
    """Tells whether an owner that outlived its transport may be signalled: token *and* start time must match.

    A process found by its token alone may be any descendant of the agent, and is never signalled.
    """
    return probe.outcome == "identity_matched" and {"spawn_token", "start_time"} <= set(probe.fields)


def evidence_of(probe: Probe, now: int, owner_fence: Fence, last_proven_alive: int | None) -> Evidence:
    """Returns the evidence that a probe of death, or of nothing started, leaves behind; `now` in ms."""
    assert probe.proves in ("death", "nothing_started"), "only proof becomes evidence"
    kinds: dict[str, EvidenceKind] = {
        "exit_observed": "exit_observed",
        "pid_absent": "pid_absent",
        "identity_mismatch": "identity_mismatch",
        "reservation_unused": "never_spawned",
    }
    return Evidence(kinds[probe.outcome], ",".join(probe.fields), now, owner_fence, last_proven_alive)


def _classify(host: str, boot: str | None, start_ticks: int | None, token: str | None, seen: Seen) -> Probe:
    if seen.host != host:
        return Probe("indeterminate", reason="other_host")
    if seen.exit_seen:
        return Probe("exit_observed")
    if boot and seen.boot and boot != seen.boot:
        return Probe("identity_mismatch", ("boot",))
    if seen.signal == "absent":
        return Probe("pid_absent")
    token_agrees = None if token is None or seen.token is None else token == seen.token
    start_agrees = _start_agrees(start_ticks, seen.start_ticks)
    if token_agrees is False:
        return Probe("identity_mismatch", ("spawn_token",))
    if start_agrees is False:
        if token_agrees:
            return Probe("indeterminate", reason="token_agrees_start_time_differs")
        return Probe("identity_mismatch", ("start_time",))
    matched = (("spawn_token",) if token_agrees else ()) + (("start_time",) if start_agrees else ())
    if not matched:
        return Probe("indeterminate", reason="pid_alone")
    return Probe("identity_matched", matched)


def _start_agrees(recorded: int | None, seen: int | None) -> bool | None:
    if recorded is None or seen is None:
        return None
    return abs(recorded - seen) <= SLACK_TICKS
