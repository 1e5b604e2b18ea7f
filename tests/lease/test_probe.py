"""Probes: what an observation proves, and what it does not."""

from __future__ import annotations

import pytest

from clew.lease.probe import (
    Probe,
    Seen,
    SeenReservation,
    classify_holder,
    classify_owner,
    classify_reservation,
    evidence_of,
    may_be_stopped,
)
from clew.lineage.link import Fence
from lease_cases import ALIVE, HERE, NOTHING, NOW, OWNER, TOKEN


@pytest.mark.parametrize(
    ("seen", "outcome", "proves"),
    [
        (Seen("h1", exit_seen=True, signal="present"), "exit_observed", "death"),
        (Seen("h1", signal="absent"), "pid_absent", "death"),
        (Seen("h1", signal="not_permitted"), "indeterminate", "nothing"),
        (Seen("h1", signal="failed"), "indeterminate", "nothing"),
        (Seen("h1", signal="present"), "indeterminate", "nothing"),
        (Seen("h1", signal="present", token="another"), "identity_mismatch", "death"),
        (Seen("h1", signal="present", boot="boot", start_ticks=7201), "identity_mismatch", "death"),
        (Seen("h1", signal="present", boot="boot", start_ticks=7200), "identity_matched", "life"),
        (Seen("h1", signal="present", token=TOKEN), "identity_matched", "life"),
        (Seen("h1", signal="not_permitted", start_ticks=7000), "identity_matched", "life"),
        (Seen("h1", signal="present", token=TOKEN, start_ticks=9999), "indeterminate", "nothing"),
        (Seen("h1", signal="present", token=TOKEN, boot="later"), "identity_mismatch", "death"),
        (Seen("h2", exit_seen=True, signal="absent"), "indeterminate", "nothing"),
    ],
)
def test_what_an_observation_of_an_owner_proves(seen: Seen, outcome: str, proves: str) -> None:
    probe = classify_owner(OWNER, seen)
    assert (probe.outcome, probe.proves) == (outcome, proves)


def test_s67_a_bare_pid_is_neither_life_nor_death() -> None:
    assert classify_owner(OWNER, Seen("h1", signal="present")).reason == "pid_alone"
    assert Probe("identity_matched").proves == "nothing"


def test_a_holder_is_told_by_its_start_alone() -> None:
    assert classify_holder(HERE, Seen("h1", signal="present", token="any", start_ticks=5000)).proves == "life"
    assert classify_holder(HERE, Seen("h1", signal="present", start_ticks=9000)).proves == "death"


@pytest.mark.parametrize(
    ("seen", "reason"),
    [
        (SeenReservation("h1", (), agent_active=False), ""),
        (SeenReservation("h1", (), agent_active=True), "agent_active_since"),
        (SeenReservation("h1", (), agent_active=None), "agent_activity_unknown"),
        (SeenReservation("h1", None, agent_active=False), "processes_not_listed"),
        (SeenReservation("h1", (4242,), agent_active=False), "token_on_a_live_process"),
        (SeenReservation("h2", (), agent_active=False), "other_host"),
    ],
)
def test_what_proves_that_nothing_started(seen: SeenReservation, reason: str) -> None:
    probe = classify_reservation("h1", seen)
    assert probe.reason == reason
    assert probe.proves == ("nothing" if reason else "nothing_started")


def test_only_a_full_match_may_be_stopped() -> None:
    assert may_be_stopped(ALIVE)
    assert not may_be_stopped(Probe("identity_matched", ("spawn_token",)))
    assert not may_be_stopped(NOTHING)


def test_only_proof_becomes_evidence() -> None:
    assert evidence_of(Probe("pid_absent"), NOW, Fence(3), 5).kind == "pid_absent"
    assert evidence_of(Probe("reservation_unused"), NOW, Fence(3), None).kind == "never_spawned"
    with pytest.raises(AssertionError):
        evidence_of(NOTHING, NOW, Fence(3), None)
