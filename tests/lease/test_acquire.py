"""The acquisition table: each rule, and that the first one decides."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from clew.lease.acquire import Acquisition, Grant, Retry, decide_acquisition
from clew.lease.lease import Lease, admits_writer, is_late, owner_verdict
from clew.lease.refusal import Refusal
from clew.lineage.link import Fence
from lease_cases import (
    ALIVE,
    DEAD,
    HERE,
    NOTHING,
    NOW,
    OPERATION,
    OTHER,
    OTHER_OPERATION,
    UNUSED,
    blank,
    committed,
    live,
    reserved,
    with_lease,
)


def decide(lease: Lease, **fields: Any) -> Grant | Retry | Refusal:
    asked = Acquisition(
        lease=lease,
        reconciled=True,
        expected_fence=lease.fence,
        operation_id=OTHER_OPERATION,
        probe=NOTHING,
        record_host="h1",
        here=HERE,
    )
    return decide_acquisition(msgspec.structs.replace(asked, **fields))


def reason(decided: Grant | Retry | Refusal) -> str:
    assert isinstance(decided, Refusal)
    return f"{decided.code}/{decided.reason}"


def test_a_free_lease_is_granted_at_the_next_fence() -> None:
    assert decide(blank().lease) == Grant(Fence(1))
    assert decide(with_lease(blank(), fence=4, minimum_next_fence=9).lease) == Grant(Fence(9))


def test_s68_an_unreconciled_lease_is_refused_before_anything_else() -> None:
    assert reason(decide(live().lease, reconciled=False, expected_fence=Fence(9), probe=DEAD)) == (
        "owner_reconciling/host_reconciling"
    )


def test_another_fence_is_stale_and_names_the_present_one() -> None:
    decided = decide(live().lease, expected_fence=Fence(0), probe=DEAD)
    assert reason(decided) == "checkpoint_stale/fence_stale"
    assert isinstance(decided, Refusal)
    assert dict(decided.facts)["fence"] == 1


def test_a_conflicted_claim_is_refused_whatever_the_probe_says() -> None:
    lease = with_lease(live(), claim="conflicted").lease
    for probe in (DEAD, ALIVE, NOTHING, UNUSED):
        assert reason(decide(lease, probe=probe)) == "conflict/claim_conflicted"


def test_a_recovering_lease_is_unproven_even_with_proof_of_death() -> None:
    lease = with_lease(live(), stage="recovering").lease
    assert reason(decide(lease, probe=DEAD)) == "ownership_unknown/owner_unproven"


def test_a_handoff_of_another_operation_is_in_flight() -> None:
    assert reason(decide(committed().lease, probe=DEAD)) == "operation_conflict/handoff_in_flight"


def test_the_same_operation_is_a_retry_without_a_second_spawn() -> None:
    lease = reserved().lease
    assert decide(lease, operation_id=OPERATION) == Retry(Fence(1), "token-1")
    assert reason(decide(lease, operation_id=OPERATION, here=OTHER)) == "operation_conflict/handoff_in_flight"


@pytest.mark.parametrize(
    ("probe", "expected"),
    [(ALIVE, "conflict/owner_alive"), (NOTHING, "ownership_unknown/owner_unproven")],
)
def test_an_owner_that_is_not_proved_dead_stays(probe: Any, expected: str) -> None:
    decided = decide(live().lease, probe=probe)
    assert reason(decided) == expected
    assert isinstance(decided, Refusal)
    assert "4242" in decided.message
    assert "h1" in decided.message


def test_a_dead_owner_gives_way_at_the_next_fence() -> None:
    assert decide(live().lease, probe=DEAD) == Grant(Fence(2))


def test_a_reservation_without_a_process_needs_proof_that_nothing_started() -> None:
    lease = with_lease(reserved(), operation_id=None, stage=None).lease
    for probe in (NOTHING, ALIVE, DEAD):
        assert reason(decide(lease, probe=probe)) == "ownership_unknown/owner_unproven"
    assert decide(lease, probe=UNUSED) == Grant(Fence(2))


def test_s140_another_hosts_lease_is_never_judged_here() -> None:
    held = with_lease(live(), deadline=NOW - 3_600_000).lease
    for probe in (NOTHING, DEAD, ALIVE):
        for reconciled in (True, False):
            decided = decide(held, record_host="h2", probe=probe, reconciled=reconciled)
            assert reason(decided) == "ownership_unknown/owner_unproven"


def test_who_admits_a_writer_and_what_people_are_told() -> None:
    held = live().lease
    assert admits_writer(held, reconciled=True)
    assert not admits_writer(held, reconciled=False)
    assert not admits_writer(committed().lease, reconciled=True)
    assert not admits_writer(with_lease(live(), stage="recovering").lease, reconciled=True)
    assert owner_verdict(held, reconciled=True) == "live"
    assert owner_verdict(held, reconciled=False) == "unverifiable"
    assert owner_verdict(blank().lease, reconciled=True) == "unverifiable"
    assert is_late(held, NOW + 30_001)
    assert not is_late(held, NOW + 30_000)
