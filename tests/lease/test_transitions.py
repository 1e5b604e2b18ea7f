"""The transitions of a lease, one by one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from clew.errors import LeaseError
from clew.lease.lease import Checkpoint, Evidence, owner_verdict
from clew.lease.probe import Probe
from clew.lease.record import Record, read_record, store_record
from clew.lease.transitions import (
    ChildSeen,
    after_restore,
    append_free,
    clear_processless,
    commit_process,
    evict,
    finish_settlement,
    mark_processless,
    prove_owner,
    release_reservation,
    renew,
    set_checkpoint,
    settle_failed,
    settle_live,
)
from clew.lineage.chain import LINK_LIMIT
from clew.lineage.edge import StrandId
from clew.lineage.handle import Handle
from clew.lineage.link import Link
from lease_cases import (
    ALIVE,
    CODEX,
    DEAD,
    HERE,
    NOTHING,
    NOW,
    OPERATION,
    OWNER,
    blank,
    bound,
    committed,
    link,
    live,
    reservation,
    reserved,
    standing,
    with_lease,
)

GONE = Evidence("pid_absent", "", NOW, 1)


def refused(act: Callable[[], object]) -> str:
    with pytest.raises(LeaseError) as told:
        act()
    return f"{told.value.code}/{told.value.concerns.get('reason', '')}".rstrip("/")


def test_s55_create_commit_prove() -> None:
    record = reserved()
    assert (record.lease.claim, record.lease.fence) == ("reserved", 1)
    assert refused(lambda: prove_owner(record, standing(record), link())) == "ownership_unknown/no_live_owner"
    named = committed(record)
    assert named.lease.claim == "reserved"
    proven = prove_owner(named, standing(named), link()).record
    assert proven.lease.claim == "live"
    assert proven.lease.stage is None
    assert proven.lease.operation_id is None
    assert proven.lease.proven_link_id == "l1"
    assert len(proven.chain.links) == 1
    assert read_record(store_record(proven)) == proven


def test_s56_a_child_with_another_token_is_not_the_owner() -> None:
    record = reserved()
    stranger = msgspec.structs.replace(OWNER, spawn_token="token-2")
    told = refused(lambda: commit_process(record, standing(record), stranger))
    assert told == "ownership_unknown/spawn_identity_mismatch"
    assert record.lease.claim == "reserved"
    assert record.lease.owner is None


def test_s57_a_proof_of_another_provider_or_fence() -> None:
    record = committed()
    other = link(namespace=CODEX)
    assert refused(lambda: prove_owner(record, standing(record), other)) == "handle_provider_mismatch"
    for fence in (0, 2):
        late = link(fence=fence)
        assert refused(lambda late=late: prove_owner(record, standing(record), late)) == "handle_stale_fence"


def test_s58_proving_twice() -> None:
    record = live()
    again = link("l2", cursor="9", origin="resumed")
    assert refused(lambda: prove_owner(record, standing(record), again)) == "ownership_unknown/owner_unproven"


def test_an_elided_proof_keeps_the_old_heads_id() -> None:
    record = committed(reserved(bound(blank(), link("adopted-1", origin="adopted"))))
    proven = prove_owner(record, standing(record), link("resumed-1", origin="resumed")).record
    assert proven.lease.proven_link_id == "adopted-1"
    assert len(proven.chain.links) == 1


def test_an_independent_owner_has_no_holder() -> None:
    assert committed().lease.holder == HERE
    free = committed(reserved(made=reservation(independent=True)))
    assert free.lease.holder is None
    assert free.lease.owner == OWNER


@pytest.mark.parametrize(
    "act",
    [
        lambda r, s: commit_process(r, s, OWNER),
        lambda r, s: prove_owner(r, s, link()),
        lambda r, s: renew(r, s, ALIVE),
        lambda r, s: evict(r, s, GONE),
        lambda r, s: settle_failed(r, s, reservation(), "unproven"),
        lambda r, s: settle_live(r, s, "unproven"),
        lambda r, s: set_checkpoint(r, s, Checkpoint(1, 1)),
        lambda r, s: append_free(r, s, link()),
        lambda r, s: finish_settlement(r, s, "x"),
        lambda r, s: clear_processless(r, s),
        lambda r, s: mark_processless(r, s),
        lambda r, s: release_reservation(r, s),
    ],
)
def test_every_transition_needs_the_fence_and_a_reconciled_lease(act: Callable[[Record, Any], object]) -> None:
    record = reserved()
    for fence in (0, 2):
        told = refused(lambda fence=fence: act(record, standing(record, fence=fence)))
        assert told == "checkpoint_stale/lease_moved"
    told = refused(lambda: act(record, standing(record, reconciled=False)))
    assert told == "owner_reconciling/host_reconciling"


def test_s67_renewal_needs_proof_of_life() -> None:
    record = live()
    later = standing(record, now=NOW + 10_000)
    assert renew(record, later, ALIVE).lease.deadline == NOW + 40_000
    for probe in (NOTHING, DEAD, Probe("identity_matched")):
        assert refused(lambda probe=probe: renew(record, later, probe)) == "ownership_unknown/owner_unproven"
    assert renew(record, later, NOTHING, still_held=True).lease.renewed_at == NOW + 10_000
    assert refused(lambda: renew(reserved(), standing(reserved()), ALIVE)) == "ownership_unknown/owner_unproven"


def test_evicting_moves_the_fence_keeps_evidence_and_leaves_a_settlement() -> None:
    record = evict(live(), standing(live()), GONE)
    lease = record.lease
    assert (lease.fence, lease.claim, lease.owner, lease.reserved_token) == (2, "released", None, None)
    assert lease.evidence == GONE
    assert lease.settlement_retry == "settle-session-0001-1"
    assert owner_verdict(lease, reconciled=True) == "exited"
    told = refused(lambda: evict(record, standing(record), GONE))
    assert told == "ownership_unknown/no_live_owner"
    settled = finish_settlement(record, standing(record), "settle-session-0001-1")
    assert settled.lease.settlement_retry is None
    assert finish_settlement(settled, standing(settled), "settle-session-0001-1") is settled
    assert refused(lambda: finish_settlement(record, standing(record), "settle-other")).startswith("owner")


@pytest.mark.parametrize(
    ("child", "with_owner", "claim", "stage", "fence", "kind"),
    [
        ("exit_proven", True, "released", None, 2, "exit_observed"),
        ("root_exit_observed", True, "released", None, 2, "exit_observed"),
        ("exit_proven", False, "released", None, 2, "exit_observed"),
        ("processless", False, "released", None, 2, "never_spawned"),
        ("unproven", True, "reserved", "recovering", 1, None),
        ("unproven", False, "released", None, 2, None),
    ],
)
def test_a_failed_acquisition_is_settled_by_what_was_seen(
    child: ChildSeen, with_owner: bool, claim: str, stage: str | None, fence: int, kind: str | None
) -> None:
    record = committed() if with_owner else reserved()
    lease = settle_failed(record, standing(record), reservation(), child).lease
    assert (lease.claim, lease.stage, lease.fence) == (claim, stage, fence)
    assert lease.stage != "new_owner_proving"
    assert lease.operation_id is None
    assert (None if lease.evidence is None else lease.evidence.kind) == kind
    assert (lease.processless_at is not None) == (child == "processless")
    if child == "root_exit_observed":
        assert lease.evidence is not None
        assert "descendants" in lease.evidence.detail


def test_only_this_very_acquisition_is_settled() -> None:
    record = committed()
    for made in (reservation(token="other"), reservation(operation="other")):
        told = refused(lambda made=made: settle_failed(record, standing(record), made, "exit_proven"))
        assert told == "ownership_unknown/replay_superseded"
    done = settle_failed(record, standing(record), reservation(), "unproven")
    again = refused(lambda: settle_failed(done, standing(done), reservation(), "unproven"))
    assert again == "ownership_unknown/replay_superseded"


def test_a_failed_journal_attach_is_settled_from_live() -> None:
    record = live()
    kept = settle_live(record, standing(record), "unproven").lease
    assert (kept.claim, kept.stage, kept.fence, kept.owner) == ("live", "recovering", 1, OWNER)
    gone = settle_live(record, standing(record), "exit_proven").lease
    assert (gone.claim, gone.fence) == ("released", 2)
    assert refused(lambda: settle_live(committed(), standing(committed()), "exit_proven")).startswith("own")


def test_a_checkpoint_only_moves_forward() -> None:
    record = set_checkpoint(live(), standing(live()), Checkpoint(2, 5))
    for behind in (Checkpoint(1, 99), Checkpoint(2, 4)):
        told = refused(lambda behind=behind: set_checkpoint(record, standing(record), behind))
        assert told == "checkpoint_stale/lease_moved"
    assert set_checkpoint(record, standing(record), Checkpoint(3, 0)).lease.checkpoint == Checkpoint(3, 0)


def test_a_free_lease_takes_a_link_at_the_fence_as_it_stands() -> None:
    record = append_free(blank(), standing(blank()), link(fence=0))
    assert record.lease.fence == 0
    evicted = evict(live(), standing(live()), GONE)
    assert evicted.lease.proven_link_id == "l1"
    superseding = msgspec.structs.replace(link("l2", 2, "S2"), supersedes=Handle(link().handle.namespace, "S").key)
    moved = append_free(evicted, standing(evicted), superseding)
    assert moved.lease.proven_link_id is None
    assert read_record(store_record(moved)) == moved
    for held in (reserved(), live()):
        told = refused(lambda held=held: append_free(held, standing(held), link("l9")))
        assert told == "ownership_unknown/owner_unproven"
    assert refused(lambda: append_free(blank(), standing(blank()), link(fence=1))) == "handle_stale_fence"
    other = link(fence=0, namespace=CODEX)
    assert refused(lambda: append_free(blank(), standing(blank()), other)) == "handle_provider_mismatch"


def test_a_person_releases_a_reservation_but_not_an_owner() -> None:
    stuck = with_lease(reserved(), stage="recovering", operation_id=None)
    freed = release_reservation(stuck, standing(stuck))
    assert (freed.lease.fence, freed.lease.is_free, freed.lease.evidence) == (2, True, None)
    assert owner_verdict(freed.lease, reconciled=True) == "unverifiable"
    for held in (live(), blank()):
        assert refused(lambda held=held: release_reservation(held, standing(held))).startswith("ownership")


def test_processless_proof_is_single_use() -> None:
    marked = mark_processless(reserved(), standing(reserved()))
    assert marked.lease.processless_at == NOW
    assert clear_processless(marked, standing(marked)).lease.processless_at is None
    assert refused(lambda: mark_processless(committed(), standing(committed()))).startswith("ownership")


def test_after_a_restore_no_fence_is_granted_twice() -> None:
    old = live()
    lost = with_lease(old, fence=7)
    restored = after_restore(old, 1_700_000, NOW)
    assert restored.lease.fence == 1
    assert restored.lease.claim == "live"
    assert restored.lease.next_fence == 1_700_000
    again = reserved(evict(restored, standing(restored), GONE))
    assert again.lease.fence > lost.lease.fence
    assert after_restore(old, 0, NOW).lease.next_fence == 3


def test_a_full_chain_is_archived_and_the_record_goes_on() -> None:
    links = [link()] + [link(f"r{n}", 1, cursor=str(n), origin="resumed") for n in range(LINK_LIMIT - 1)]
    full = committed(reserved(with_lease(bound(blank(), *links), fence=1)))
    new = link("new", 2, cursor="next", origin="resumed")
    assert refused(lambda: prove_owner(full, standing(full), new)) == "handle_chain_overflow"
    proven = prove_owner(full, standing(full), new, StrandId("session-0001-c1"))
    assert [one.origin for one in proven.record.chain.links] == ["adopted", "resumed"]
    assert proven.record.lease.proven_link_id == "new"
    assert proven.archived is not None
    assert proven.archived.chain == full.chain
    assert proven.edge is not None
    assert (proven.edge.kind, proven.edge.from_strand) == ("rolled_over", "session-0001-c1")
    assert read_record(store_record(proven.record)) == proven.record
    fork = Link(
        link_id="fork",
        handle=Handle(new.handle.namespace, "S9"),
        origin="forked",
        minted_at_fence=new.minted_at_fence,
        observed_at=NOW,
        forked_from=full.chain.links[-1].handle.key,
    )
    forked = prove_owner(full, standing(full), fork, StrandId("session-0001-c1")).record
    assert [one.origin for one in forked.chain.links] == ["adopted", "forked"]


def test_an_operation_in_flight_is_named_until_proof() -> None:
    assert committed().lease.operation_id == OPERATION
    assert live().lease.operation_id is None
