"""The operation ledger and the gate of every mutation."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec
import pytest

from clew.lease.ledger import (
    DAY_MS,
    MINUTE_MS,
    Admit,
    Replay,
    Row,
    admit,
    claim,
    fail,
    fingerprint,
    ledger_key,
    load_row,
    make_operation_id,
    may_drop,
    operation_time,
    replayed_error,
    settle_after_crash,
    store_row,
    succeed,
)
from clew.lease.mutation import Mutation, State, admit_mutation
from clew.lease.refusal import Refusal
from clew.lineage.link import Fence
from clew.lineage.stored import Malformed
from lease_cases import HERE, NOW, OPERATION, OTHER, SESSION, blank, committed, live, reserved, with_lease


def ask(row: Row | None = None, **fields: Any) -> Admit | Replay | Refusal:
    values: dict[str, Any] = {
        "caller": "me",
        "operation_id": OPERATION,
        "print_": "p",
        "now": NOW,
        "caller_rows": 0,
        "all_rows": 0,
        **fields,
    }
    return admit(row, **values)


def word(answer: object) -> str:
    assert isinstance(answer, Refusal)
    return f"{answer.code}/{answer.reason}".rstrip("/")


def new_row(**fields: Any) -> Row:
    answer = ask(**fields)
    assert isinstance(answer, Admit)
    return answer.row


def test_ids_tell_their_time() -> None:
    assert operation_time(OPERATION) == NOW
    assert operation_time(make_operation_id(5, bytes(16))) == 5
    for wrong in ("", "x", OPERATION.upper() + "A", OPERATION[:-1], OPERATION + "0", OPERATION.replace("-", "_")):
        assert operation_time(wrong) is None
        assert word(ask(operation_id=wrong)) == "operation_invalid/id_malformed"


def test_s63_the_same_call_is_replayed_and_another_one_refused() -> None:
    row = new_row()
    assert ask(row) == Replay(row)
    assert word(ask(row, print_="q")) == "operation_conflict/operation_id_reused"


def test_s79_future_and_old_ids() -> None:
    assert word(ask(now=NOW - 6 * MINUTE_MS)) == "operation_invalid/id_future"
    assert isinstance(ask(now=NOW - 5 * MINUTE_MS), Admit)
    assert word(ask(now=NOW + 25 * 60 * MINUTE_MS)) == "operation_expired"
    assert isinstance(ask(now=NOW + DAY_MS), Admit)
    row = new_row()
    assert ask(row, now=NOW + 25 * 60 * MINUTE_MS) == Replay(row)


def test_s80_capacity_refuses_and_drops_nothing() -> None:
    assert word(ask(caller_rows=512)) == "operation_capacity"
    assert word(ask(all_rows=4096)) == "operation_capacity"
    assert isinstance(ask(caller_rows=511, all_rows=4095), Admit)
    row = new_row()
    assert ask(row, caller_rows=512, all_rows=4096) == Replay(row)
    assert not may_drop(row, NOW)


def test_a_row_expires_a_day_and_five_minutes_after_the_later_time() -> None:
    row = succeed(new_row(now=NOW + 60_000), SESSION)
    assert row.expires_at == NOW + 60_000 + DAY_MS + 5 * MINUTE_MS
    assert not may_drop(row, row.expires_at)
    assert may_drop(row, row.expires_at + 1)
    early = new_row(now=NOW - 60_000)
    assert early.expires_at == NOW + DAY_MS + 5 * MINUTE_MS
    assert not may_drop(early, early.expires_at + DAY_MS)


def test_keys() -> None:
    assert ledger_key("me", OPERATION) == f"me\0{OPERATION}"
    assert ledger_key("", OPERATION) == OPERATION
    assert new_row().key == f"me\0{OPERATION}"


def test_one_of_two_claims_runs() -> None:
    row = new_row()
    running = claim(row)
    assert running is not None
    assert running.state == "running"
    assert claim(running) is None
    assert claim(succeed(row, SESSION)) is None


def test_outcomes_are_settled_once() -> None:
    row = new_row()
    done = succeed(row, SESSION)
    assert (done.state, done.session_id) == ("succeeded", SESSION)
    assert fail(done, "x", "y") is done
    failed = fail(row, "conflict", "somebody has it")
    assert succeed(failed, SESSION) is failed
    told = replayed_error(failed)
    assert told is not None
    assert (told.code, told.message) == ("conflict", "somebody has it")
    assert replayed_error(done) is None
    assert replayed_error(row) is None


def test_a_crash_settles_unknown_where_the_effect_may_have_happened() -> None:
    running = claim(new_row())
    assert running is not None
    lost = settle_after_crash(running, may_have_happened=True)
    assert lost.state == "unknown"
    told = replayed_error(lost)
    assert told is not None
    assert told.code == "operation_unknown"
    assert settle_after_crash(running, may_have_happened=False).state == "pending"
    done = succeed(running, SESSION)
    assert settle_after_crash(done, may_have_happened=True) is done


def test_s73_a_row_survives_being_stored_with_what_nobody_knows() -> None:
    row = msgspec.structs.replace(fail(new_row(), "c", 'm"\0é'), fence=Fence(3))
    data = store_row(row)[:-1] + b',"mood":1.50}'
    again = load_row(data)
    assert store_row(again) == data
    assert msgspec.structs.replace(again, extra=()) == row
    for wrong in (b"{}", b"[]", data.replace(b'"failed"', b'"odd"'), data.replace(OPERATION.encode(), b"x")):
        with pytest.raises(Malformed):
            load_row(wrong)


def test_fingerprints_are_canonical() -> None:
    one = fingerprint("send", "s", {"b": [1, {"y": None, "x": "é"}], "a": msgspec.UNSET})
    other = fingerprint("send", "s", {"b": [1, {"x": "é", "y": None}]})
    assert one == other
    assert len(one) == 64
    assert one != fingerprint("send", "s", {"b": [1, {"x": "é"}]})
    assert one != fingerprint("send", "t", {"b": [1, {"x": "é", "y": None}]})
    assert one != fingerprint("attach", "s", {"b": [1, {"x": "é", "y": None}]})
    told = b'{"fields":{"A":2,"a":1},"method":"m","session_id":null}'
    assert fingerprint("m", None, {"a": 1, "A": 2}) == hashlib.sha256(told).hexdigest()


# --- mutations ---------------------------------------------------------------------------------------------------


def mutate(state: State, **fields: Any) -> Admit | Replay | Refusal:
    asked = Mutation(caller="", operation_id=OPERATION, declared="p", computed="p", expected_fence=state.lease.fence)
    return admit_mutation(msgspec.structs.replace(asked, **fields), state)


def state(**fields: Any) -> State:
    return msgspec.structs.replace(State(row=None, lease=live().lease, reconciled=True, here=HERE, now=NOW), **fields)


def test_a_mutation_is_admitted_for_the_holder_at_its_fence() -> None:
    answer = mutate(state())
    assert isinstance(answer, Admit)
    assert answer.row.key == OPERATION


def test_s76_a_payload_that_is_not_its_fingerprint_comes_first_and_leaves_no_row() -> None:
    row = new_row(caller="")
    assert word(mutate(state(row=row), computed="q")) == "operation_conflict/fingerprint_mismatch"


def test_a_retry_that_crossed_a_change_of_owner_gets_its_recorded_answer() -> None:
    row = succeed(new_row(caller=""), SESSION)
    for lease in (blank().lease, reserved().lease, live().lease):
        assert mutate(state(row=row, lease=lease, reconciled=False), expected_fence=Fence(9)) == Replay(row)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"reconciled": False}, "owner_reconciling/host_reconciling"),
        ({"here": OTHER}, "conflict/owner_alive"),
        ({"lease": blank().lease}, "ownership_unknown/no_live_owner"),
        ({"lease": reserved().lease}, "operation_conflict/handoff_in_flight"),
        ({"lease": committed().lease}, "ownership_unknown/owner_unproven"),
        ({"lease": with_lease(live(), stage="recovering").lease}, "ownership_unknown/owner_unproven"),
    ],
)
def test_a_mutation_needs_a_writer_of_this_process(fields: dict[str, Any], expected: str) -> None:
    assert word(mutate(state(**fields), expected_fence=Fence(77))) == expected


def test_a_mutation_at_another_fence_is_stale() -> None:
    assert word(mutate(state(), expected_fence=Fence(0))) == "checkpoint_stale/fence_stale"


@pytest.mark.parametrize("now", [-(2**60), -1, 0, 10**13 - 1, 10**13, 2**60])
def test_any_clock_makes_an_operation_id(now: int) -> None:
    made = operation_time(make_operation_id(now, bytes(16)))
    assert made == min(max(now, 0), 10**13 - 1)
