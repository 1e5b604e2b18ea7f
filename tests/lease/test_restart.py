"""Adjudication: what becomes of a lease when a process looks at it anew; and hosts that are gone."""

from __future__ import annotations

from typing import Any

import pytest

from clew.errors import LeaseError
from clew.lease.acquire import Acquisition, Grant, decide_acquisition
from clew.lease.declare import declare_gone
from clew.lease.lease import owner_verdict
from clew.lease.probe import UNPROBED, Probe
from clew.lease.record import Record
from clew.lease.refusal import Refusal
from clew.lease.restart import Judgement, Judgements, Probed, adjudicate
from lease_cases import (
    ABROAD,
    ALIVE,
    DEAD,
    HERE,
    NOTHING,
    NOW,
    OTHER,
    OTHER_OPERATION,
    SESSION,
    UNUSED,
    committed,
    live,
    reservation,
    reserved,
    standing,
    with_lease,
)


def judge(record: Record, subject: Probe = UNPROBED, holder: Probe = UNPROBED, **fields: Any) -> Judgement:
    """Judges as another process (OTHER) of the same host."""
    here = fields.pop("here", OTHER)
    return adjudicate(record, here, Probed(record.lease.fence, subject, holder, **fields), NOW + 3_600_000)


@pytest.mark.parametrize("probe", [NOTHING, ALIVE, UNPROBED, UNUSED])
def test_s66_time_alone_evicts_nobody(probe: Probe) -> None:
    late = with_lease(live(), deadline=NOW - 3_600_000)
    judged = judge(late, probe, DEAD)
    assert judged.record.lease.owner is not None
    assert judged.record.lease.fence == 1
    gone = judge(late, DEAD, DEAD)
    assert (gone.kind, gone.record.lease.fence) == ("evicted", 2)
    assert gone.record.lease.evidence is not None
    assert gone.record.lease.evidence.kind == "pid_absent"


def test_s69_an_owner_that_proves_nothing_is_recovering() -> None:
    judged = judge(live(), NOTHING, DEAD)
    lease = judged.record.lease
    assert (judged.kind, lease.stage, lease.fence, lease.claim) == ("recovering", "recovering", 1, "live")
    assert lease.owner is not None
    assert judge(judged.record, NOTHING, DEAD).record is judged.record
    assert judge(judged.record, DEAD, DEAD).kind == "evicted"


def test_s70_another_start_time_evicts_exactly_once() -> None:
    record = live()
    probed = Probed(record.lease.fence, Probe("identity_mismatch", ("start_time",)), DEAD)
    first = adjudicate(record, OTHER, probed, NOW)
    assert (first.kind, first.record.lease.fence) == ("evicted", 2)
    second = adjudicate(first.record, OTHER, probed, NOW)
    assert (second.kind, second.reconciled, second.record) == ("stale", False, first.record)
    assert judge(first.record).kind == "free"


def test_s71_a_released_lease_with_a_latched_stage_is_free() -> None:
    evicted = judge(live(), DEAD, DEAD).record
    latched = with_lease(evicted, stage="recovering")
    judged = judge(latched)
    assert (judged.kind, judged.record.lease.stage, judged.record.lease.fence) == ("free", None, 2)
    assert judged.record.lease.evidence == evicted.lease.evidence


def test_s72_a_reservation_that_never_spawned_is_released() -> None:
    judged = judge(reserved(), UNUSED, DEAD)
    lease = judged.record.lease
    assert (judged.kind, lease.fence, lease.claim, lease.reserved_token) == ("evicted", 2, "released", None)
    assert lease.evidence is not None
    assert lease.evidence.kind == "never_spawned"
    assert owner_verdict(lease, reconciled=True) == "exited"
    assert lease.settlement_retry is None


def test_a_reservation_whose_maker_died_is_released_without_evidence() -> None:
    judged = judge(reserved(), NOTHING, DEAD)
    assert (judged.kind, judged.record.lease.evidence) == ("evicted", None)
    assert owner_verdict(judged.record.lease, reconciled=True) == "unverifiable"


def test_a_reservation_for_a_users_own_terminal_stays_refused() -> None:
    record = reserved(made=reservation(independent=True))
    judged = judge(record, NOTHING, DEAD)
    assert (judged.kind, judged.record.lease.fence) == ("recovering", 1)
    assert judge(judged.record, NOTHING, DEAD).kind == "unproven"
    assert judge(judged.record, UNUSED, DEAD).kind == "evicted"


def test_a_reservation_of_a_living_process_is_in_flight() -> None:
    for subject in (UNUSED, NOTHING):
        judged = judge(reserved(), subject, ALIVE)
        assert (judged.kind, judged.record) == ("in_flight", reserved())
    assert judge(reserved(), NOTHING, NOTHING).kind == "unproven"
    assert judge(reserved(), UNUSED, here=HERE, holds=True).kind == "in_flight"


def test_an_attempt_that_failed_before_any_spawn_is_proof() -> None:
    marked = with_lease(reserved(), processless_at=NOW)
    assert judge(marked, NOTHING, NOTHING).record.lease.evidence is not None


def test_s137_a_running_host_keeps_its_agent() -> None:
    for subject in (ALIVE, NOTHING):
        judged = judge(live(), subject, ALIVE)
        assert (judged.kind, judged.record) == ("kept", live())
    asked = Acquisition(
        lease=live().lease,
        reconciled=True,
        expected_fence=live().lease.fence,
        operation_id=OTHER_OPERATION,
        probe=ALIVE,
        record_host="h1",
        here=OTHER,
    )
    decided = decide_acquisition(asked)
    assert isinstance(decided, Refusal)
    assert (decided.code, decided.reason) == ("conflict", "owner_alive")


def test_s138_an_agent_that_outlived_its_host_is_recovering_then_evicted() -> None:
    judged = judge(live(), ALIVE, DEAD)
    assert (judged.kind, judged.record.lease.fence) == ("recovering", 1)
    stopped = judge(judged.record, Probe("exit_observed"), DEAD)
    assert (stopped.kind, stopped.record.lease.fence) == ("evicted", 2)


def test_s139_an_agent_in_a_terminal_is_its_own_owner() -> None:
    record = live(committed(reserved(made=reservation(independent=True))))
    judged = judge(record, ALIVE)
    assert (judged.kind, judged.record) == ("kept", record)
    gone = judge(record, DEAD).record
    assert gone.lease.is_free
    asked = Acquisition(
        lease=gone.lease,
        reconciled=True,
        expected_fence=gone.lease.fence,
        operation_id=OTHER_OPERATION,
        probe=UNPROBED,
        record_host="h1",
        here=OTHER,
    )
    decided = decide_acquisition(asked)
    assert isinstance(decided, Grant)
    assert decided.fence == 3


def test_s140_another_hosts_lease_is_read_and_never_judged() -> None:
    for record in (live(), reserved(), committed()):
        for probe in (DEAD, UNUSED):
            judged = judge(record, probe, probe, here=ABROAD)
            assert (judged.kind, judged.reconciled, judged.record) == ("foreign", False, record)


def test_a_holder_that_was_thought_lost_takes_its_lease_back() -> None:
    marked = judge(live(), ALIVE, NOTHING).record
    assert marked.lease.stage == "recovering"
    back = judge(marked, ALIVE, here=HERE, holds=True)
    assert (back.kind, back.record.lease.stage) == ("kept", None)
    proving = judge(committed(), NOTHING, DEAD).record
    assert judge(proving, ALIVE, here=HERE, holds=True).record.lease.stage == "new_owner_proving"
    let_go = judge(marked, ALIVE, here=HERE, holds=False)
    assert let_go.kind == "recovering"


def test_a_conflicted_claim_is_left_alone() -> None:
    record = with_lease(live(), claim="conflicted")
    assert judge(record, DEAD, DEAD).record is record


def test_judgements_belong_to_a_revision() -> None:
    known = Judgements().judged(SESSION, 3)
    assert known.holds(SESSION, 3)
    assert not known.holds(SESSION, 4)
    assert not Judgements().holds(SESSION, 3)
    assert not known.judged(SESSION, 4).holds(SESSION, 3)


def test_a_person_declares_a_host_gone() -> None:
    record = live()
    freed = declare_gone(record, standing(record, reconciled=False), gone="h1", here="h2", by="ann")
    lease = freed.lease
    assert (lease.fence, lease.claim, freed.location.host) == (2, "released", "h2")
    assert lease.evidence is not None
    assert (lease.evidence.kind, lease.evidence.by) == ("declared", "ann")
    for wrong in ({"gone": "h3", "here": "h2"}, {"gone": "h1", "here": "h1"}):
        with pytest.raises(LeaseError) as told:
            declare_gone(record, standing(record), by="ann", **wrong)
        assert told.value.code == "conflict"
    with pytest.raises(LeaseError) as told:
        declare_gone(record, standing(record, fence=9), gone="h1", here="h2", by="ann")
    assert told.value.code == "checkpoint_stale"
