"""Reserving: create and ensure, replays, and everything that refuses them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from clew.lease.ledger import DAY_MS, MINUTE_MS, Row, fail, succeed
from clew.lease.record import AccountHome, BareRecord, Location, Record, UnreadableRecord
from clew.lease.refusal import Refusal
from clew.lease.reserve import Replayed, Request, Reserved, Snapshot, decide_reservation, reservation_fingerprint
from clew.lease.restart import Probed, adjudicate
from clew.lease.transitions import evict, settle_failed
from clew.lineage.edge import StrandId
from clew.lineage.handle import Handle
from clew.lineage.link import Fence
from clew.lineage.strand import Strand
from lease_cases import (
    ABROAD,
    ALIVE,
    CLAUDE,
    CODEX,
    DEAD,
    NOTHING,
    NOW,
    OPERATION,
    OTHER,
    OTHER_OPERATION,
    PLACE,
    SESSION,
    TOKEN,
    UNUSED,
    blank,
    bound,
    committed,
    link,
    live,
    request,
    reservation,
    reserved,
    snapshot,
    standing,
    with_lease,
)


def test_no_fence_below_the_floor_of_the_store_is_granted() -> None:
    created = won(decide(request(), snapshot(None, fence_floor=50)))
    assert created.record.lease.fence == created.row.fence == 50
    free = evict(reserved(), standing(reserved()), None)
    for record in (free, BareRecord(Strand(SESSION, CLAUDE))):
        fence = free.lease.fence if record is free else 0
        opened = won(decide(request(expected_fence=Fence(fence)), snapshot(record, fence_floor=50)))
        assert opened.record.lease.fence == 50
    high = with_lease(free, fence=60)
    assert won(decide(request(expected_fence=Fence(60)), snapshot(high, fence_floor=50))).record.lease.fence == 61


def decide(asked: Request, seen: Snapshot) -> Reserved | Replayed | Refusal:
    return decide_reservation(asked, seen, TOKEN)


def word(answer: object) -> str:
    assert isinstance(answer, Refusal), answer
    return f"{answer.code}/{answer.reason}".rstrip("/")


def won(answer: object) -> Reserved:
    assert isinstance(answer, Reserved), answer
    return answer


def again(asked: Request, **fields: Any) -> Request:
    return msgspec.structs.replace(asked, **fields)


def ensure(fence: int = 1, **fields: Any) -> Request:
    return request(operation_id=OTHER_OPERATION, expected_fence=Fence(fence), **fields)


def first() -> Reserved:
    return won(decide(request(), snapshot()))


def test_creating_reserves_at_fence_1() -> None:
    made = first()
    assert made.disposition == "created"
    assert (made.record.lease.fence, made.record.lease.claim) == (1, "reserved")
    assert made.record.chain.links == ()
    assert (made.row.state, made.row.fence, made.row.session_id) == ("pending", 1, SESSION)
    assert made.token == TOKEN


def test_s59_create_with_a_fence_and_create_over_an_owned_session() -> None:
    assert word(decide(ensure(), snapshot())) == "checkpoint_stale/record_missing"
    for owned in (live(), reserved(made=reservation(operation="x"))):
        asked = request(operation_id=OTHER_OPERATION)
        assert word(decide(asked, snapshot(owned, probe=DEAD))) == "conflict/session_exists"


@pytest.mark.parametrize(
    "fields",
    [
        {"account_home": AccountHome("CLAUDE_CONFIG_DIR", "/home/u/other")},
        {"namespace": CODEX},
        {"namespace": msgspec.structs.replace(CLAUDE, cursor_in_key=False)},
        {"location": msgspec.structs.replace(PLACE, workspace="/work/else")},
        {"location": msgspec.structs.replace(PLACE, workspace_kind="git_worktree")},
        {"location": msgspec.structs.replace(PLACE, container="box")},
        {"location": msgspec.structs.replace(PLACE, host="h2")},
    ],
)
def test_s60_another_identity_is_a_conflict_even_with_proof_of_death(fields: dict[str, Any]) -> None:
    assert word(decide(ensure(**fields), snapshot(live(), probe=DEAD))) == "conflict/identity_mismatch"


def test_s61_of_two_reservations_against_a_dead_owner_one_is_granted() -> None:
    granted = won(decide(ensure(), snapshot(live(), probe=DEAD)))
    assert granted.record.lease.fence == 2
    second = request(operation_id=OPERATION, expected_fence=Fence(1))
    lost = decide(second, snapshot(granted.record, probe=DEAD))
    assert word(lost) == "checkpoint_stale/fence_stale"


def test_s62_of_two_creates_one_makes_the_record() -> None:
    made = first()
    second = decide(request(operation_id=OTHER_OPERATION), snapshot(made.record))
    assert word(second) == "conflict/session_exists"
    assert made.record.lease.fence == 1


def test_s63_the_same_operation_is_replayed_at_the_same_fence() -> None:
    made = first()
    answer = decide(request(), snapshot(made.record, made.row))
    assert isinstance(answer, Replayed)
    assert (answer.disposition, answer.token, answer.row) == ("replayed", TOKEN, made.row)
    assert answer.record is made.record
    other = request(account_home=AccountHome("CLAUDE_CONFIG_DIR", "/else"))
    assert word(decide(other, snapshot(made.record, made.row))) == "operation_conflict/operation_id_reused"


def test_the_same_operation_from_another_process_does_not_act_beside_the_first() -> None:
    made = first()
    answer = decide(request(), snapshot(made.record, made.row, here=OTHER))
    assert word(answer) == "operation_conflict/handoff_in_flight"


def test_s64_a_refusal_changes_nothing() -> None:
    record, calls = live(), []
    before = (record, record.lease)
    answer = decide_reservation(ensure(), snapshot(record, probe=ALIVE), lambda: calls.append(1) or "t")
    assert word(answer) == "conflict/owner_alive"
    assert (record, record.lease) == before
    assert calls == []


def test_a_token_supplier_is_called_once_and_only_for_a_new_reservation() -> None:
    calls: list[int] = []

    def supply() -> str:
        calls.append(1)
        return "fresh"

    made = won(decide_reservation(request(), snapshot(), supply))
    assert (made.token, made.record.lease.reserved_token, calls) == ("fresh", "fresh", [1])
    decide_reservation(request(), snapshot(made.record, made.row), supply)
    decide_reservation(ensure(), snapshot(live(), probe=NOTHING), supply)
    assert calls == [1]


def test_s66_time_decides_nothing() -> None:
    late = with_lease(live(), deadline=NOW - 3_600_000)
    assert word(decide(ensure(), snapshot(late, probe=NOTHING))) == "ownership_unknown/owner_unproven"
    assert word(decide(ensure(), snapshot(late, probe=ALIVE))) == "conflict/owner_alive"


def test_a_probe_of_an_earlier_owner_says_nothing_about_this_one() -> None:
    second = live(reserved_again(live()), link("l2", 2, cursor="9", origin="resumed"))
    assert second.lease.fence == 2
    answer = decide(ensure(2), snapshot(second, probe=DEAD, probed_fence=Fence(1)))
    assert word(answer) == "ownership_unknown/owner_unproven"


def reserved_again(record: Record) -> Record:
    return committed(won(decide(ensure(), snapshot(record, probe=DEAD))).record)


def test_s68_an_unreconciled_lease_is_refused() -> None:
    answer = decide(ensure(), snapshot(live(), reconciled=False, probe=DEAD))
    assert word(answer) == "owner_reconciling/host_reconciling"
    made = first()
    replay = decide(request(), snapshot(made.record, made.row, reconciled=False))
    assert word(replay) == "owner_reconciling/host_reconciling"


def test_s74_s75_an_unreadable_record_is_refused_and_says_update() -> None:
    newer = UnreadableRecord(b"x", "schema 7", 7)
    answer = decide(ensure(), snapshot(newer))
    assert word(answer) == "owner_reconciling/record_unreadable"
    assert isinstance(answer, Refusal)
    assert "Update clew" in answer.hint
    broken = decide(request(), snapshot(UnreadableRecord(b"x", "no proof")))
    assert word(broken) == "owner_reconciling/record_unreadable"


def test_s76_another_payload_than_declared_leaves_no_row() -> None:
    asked = request(fingerprint="0" * 64)
    made = first()
    for seen in (snapshot(), snapshot(made.record, made.row)):
        assert word(decide(asked, seen)) == "operation_conflict/fingerprint_mismatch"


def test_s77_what_may_differ_between_attempt_and_retry() -> None:
    made = first()
    retry = again(request(), options=(("model", "y"),), launch_environment=(("A", "1"),), launch_arguments=("--x",))
    answer = decide_reservation(
        retry, snapshot(made.record, made.row, probe=NOTHING, transcript="not_found"), "another-token"
    )
    assert isinstance(answer, Replayed)
    assert answer.token == TOKEN


def test_s78_another_adopted_handle_is_another_call() -> None:
    one, two = (request(adopt=Handle(CLAUDE, name)) for name in ("A", "B"))
    assert reservation_fingerprint(one) != reservation_fingerprint(two)
    assert reservation_fingerprint(one) != reservation_fingerprint(request(handle=Handle(CLAUDE, "A")))
    assert reservation_fingerprint(one) != reservation_fingerprint(
        request(adopt=Handle(CLAUDE, "A"), expected_fence=Fence(0))
    )


def test_s79_s80_the_ledger_refuses_before_the_record_is_looked_at() -> None:
    assert word(decide(request(), snapshot(now=NOW + 25 * 60 * MINUTE_MS))) == "operation_expired"
    assert word(decide(request(), snapshot(live(), caller_rows=512))) == "operation_capacity"
    assert word(decide(request(operation_id="x"), snapshot())) == "operation_invalid/id_malformed"


@pytest.mark.parametrize(
    "fields",
    [
        {"handle": Handle(CODEX, "A")},
        {"adopt": Handle(CODEX, "A")},
        {"options": tuple((f"o{n}", "") for n in range(33))},
        {"launch_environment": (("A", "x" * 65537),)},
        {"launch_environment": (("A", "1"), ("A", "2"))},
        {"launch_arguments": ("x",) * 257},
        {"location": Location("h9", "/x", "folder")},
    ],
)
def test_a_malformed_call_is_refused_first(fields: dict[str, Any]) -> None:
    assert word(decide(request(**fields), snapshot())) == "operation_invalid/request_malformed"


def test_adopting_seeds_the_chain_at_the_granted_fence() -> None:
    asked = request(adopt=Handle(CLAUDE, "A", "leaf"))
    made = won(decide(asked, snapshot(transcript="ready")))
    (only,) = made.record.chain.links
    assert (only.origin, only.minted_at_fence, only.handle) == ("adopted", 1, Handle(CLAUDE, "A", "leaf"))


@pytest.mark.parametrize(
    ("transcript", "reason"),
    [
        ("missing", "record_missing"),
        ("not_found", "transcript_not_found"),
        ("unreadable", "transcript_unreadable"),
    ],
)
def test_s88_adopting_without_a_decoded_transcript_is_refused(transcript: Any, reason: str) -> None:
    calls: list[int] = []
    answer = decide_reservation(
        request(adopt=Handle(CLAUDE, "A")), snapshot(transcript=transcript), lambda: calls.append(1) or "t"
    )
    assert word(answer) == f"identity_required/{reason}"
    assert calls == []


def test_a_conversation_held_by_another_record_is_not_adopted() -> None:
    asked = request(adopt=Handle(CLAUDE, "A"))
    seen = snapshot(transcript="ready", held_elsewhere=StrandId("session-0009"))
    answer = decide(asked, seen)
    assert word(answer) == "conflict/conversation_held_elsewhere"
    assert isinstance(answer, Refusal)
    assert "session-0009" in answer.message
    plain = decide(request(), snapshot(held_elsewhere=StrandId("session-0009")))
    assert isinstance(plain, Reserved)


def test_adopting_another_conversation_than_the_records_is_a_conflict() -> None:
    held = evict(live(), standing(live()), _gone())
    same = ensure(2, adopt=Handle(CLAUDE, "S"))
    assert isinstance(decide(same, snapshot(held)), Reserved)
    other = ensure(2, adopt=Handle(CLAUDE, "Z"))
    assert word(decide(other, snapshot(held))) == "conflict/identity_mismatch"


def _gone() -> Any:
    return adjudicate(live(), OTHER, Probed(Fence(1), DEAD, DEAD), NOW).record.lease.evidence


def test_a_session_that_never_came_to_anything_is_created_again_on_proof() -> None:
    failed = settle_failed(reserved(), standing(reserved()), reservation(), "processless")
    made = won(decide(request(operation_id=OTHER_OPERATION), snapshot(failed)))
    assert (made.disposition, made.record.lease.fence) == ("created", 3)
    unproven = settle_failed(reserved(), standing(reserved()), reservation(), "unproven")
    answer = decide(request(operation_id=OTHER_OPERATION), snapshot(unproven))
    assert word(answer) == "ownership_unknown/previous_exit_unverifiable"
    ensured = won(decide(ensure(2), snapshot(unproven)))
    assert (ensured.disposition, ensured.record.lease.fence) == ("reserved", 3)
    bound_before = evict(live(), standing(live()), _gone())
    refused = decide(request(operation_id=OTHER_OPERATION), snapshot(bound_before))
    assert word(refused) == "conflict/session_exists"


def test_a_bare_strand_is_opened_at_fence_0() -> None:
    chain = bound(blank(), link(fence=0)).chain
    bare = BareRecord(Strand(SESSION, CLAUDE, chain))
    asked = ensure(0, launch_arguments=("--x",))
    made = won(decide(asked, snapshot(bare)))
    assert (made.disposition, made.record.lease.fence) == ("reserved", 1)
    assert made.record.chain == chain
    assert (made.record.location, made.record.launch_arguments) == (PLACE, ("--x",))
    assert word(decide(request(), snapshot(bare))) == "conflict/session_exists"


def test_launch_arguments_are_pinned_at_the_first_reservation() -> None:
    record = msgspec.structs.replace(live(), launch_arguments=("--first",))
    made = won(decide(ensure(launch_arguments=("--second",)), snapshot(record, probe=DEAD)))
    assert made.record.launch_arguments == ("--first",)


# --- replays -----------------------------------------------------------------------------------------------------


def settled(record: Record | None, row: Row) -> Reserved | Replayed | Refusal:
    return decide(request(), snapshot(record, row))


def test_a_settled_row_answers_from_any_state_of_the_record() -> None:
    made = first()
    failed = fail(made.row, "conflict", "no")
    for record in (None, made.record, live(), blank()):
        answer = settled(record, failed)
        assert isinstance(answer, Replayed)
        assert answer.row == failed
    done = succeed(made.row, SESSION)
    assert isinstance(settled(live(), done), Replayed)
    assert word(settled(None, done)) == "ownership_unknown/record_missing"


def test_a_pending_row_whose_reservation_was_released_goes_on_at_the_next_fence() -> None:
    made = first()
    judged = adjudicate(made.record, OTHER, Probed(Fence(1), UNUSED, DEAD), NOW)
    answer = won(decide_reservation(request(), snapshot(judged.record, made.row, here=OTHER), "token-2"))
    assert (answer.disposition, answer.record.lease.fence, answer.token) == ("reserved", 3, "token-2")
    assert answer.row.key == made.row.key
    late = snapshot(judged.record, made.row, here=OTHER, now=NOW + 3 * DAY_MS)
    assert isinstance(decide(request(), late), Reserved)


def test_a_pending_row_whose_reservation_is_anothers_is_superseded() -> None:
    made = first()
    taken = reserved(
        settle_failed(made.record, standing(made.record), reservation(), "processless"),
        reservation("token-9", OTHER_OPERATION),
    )
    for record in (taken, live(), None):
        assert word(settled(record, made.row)) == "ownership_unknown/replay_superseded"


def test_an_expired_pending_row_is_only_tolerated_when_released() -> None:
    made = first()
    late = snapshot(made.record, made.row, now=NOW + 3 * DAY_MS)
    assert word(decide(request(), late)) == "operation_expired"


def test_one_operation_under_two_callers_is_a_retry() -> None:
    made = first()
    answer = decide(again(request(), caller="somebody else"), snapshot(made.record))
    assert word(answer) == "conflict/session_exists"
    other = request(caller="somebody else", expected_fence=Fence(1))
    retry = won(decide(other, snapshot(made.record)))
    assert (retry.disposition, retry.token, retry.record) == ("retry_reservation", TOKEN, made.record)


# --- several processes -------------------------------------------------------------------------------------------


def test_s137_an_attach_beside_a_running_host_names_its_process() -> None:
    answer = decide(ensure(), snapshot(live(), here=OTHER, probe=ALIVE))
    assert word(answer) == "conflict/owner_alive"
    assert isinstance(answer, Refusal)
    assert "process 4242" in answer.message


def test_s140_another_hosts_lease_is_owner_unproven_and_a_free_one_lives_there() -> None:
    held = with_lease(live(), deadline=NOW - 3_600_000)
    for probe in (DEAD, NOTHING):
        answer = decide(ensure(), snapshot(held, here=ABROAD, probe=probe, reconciled=False))
        assert word(answer) == "ownership_unknown/owner_unproven"
    free = evict(live(), standing(live()), _gone())
    answer = decide(ensure(2), snapshot(free, here=ABROAD, reconciled=False))
    assert word(answer) == "conflict/identity_mismatch"
