"""Refusals: each pair has words, and nothing unknown becomes one."""

from __future__ import annotations

import pytest

from clew.errors import LeaseError, StoreError
from clew.lease.refusal import TABLE, known_refusal, placeholders, refusal
from clew.lineage.refusal import HANDLE_CODES, invalid

PAIRS = sorted(TABLE)

REASONS = {
    "unsupported": {"host_unsupported", "host_disabled"},
    "checkpoint_stale": {"fence_stale", "lease_moved", "record_missing"},
    "conflict": {
        "owner_alive",
        "identity_mismatch",
        "session_exists",
        "conversation_held_elsewhere",
        "claim_conflicted",
    },
    "ownership_unknown": {
        "owner_unproven",
        "no_live_owner",
        "record_missing",
        "replay_superseded",
        "spawn_identity_mismatch",
        "previous_exit_unverifiable",
    },
    "owner_reconciling": {"host_reconciling", "record_unreadable"},
    "operation_invalid": {"id_malformed", "id_future", "request_malformed"},
    "operation_conflict": {"fingerprint_mismatch", "operation_id_reused", "handoff_in_flight"},
    "operation_expired": {""},
    "operation_capacity": {""},
    "operation_unknown": {"outcome_unknown", "result_lost"},
    "identity_required": {"record_missing", "transcript_not_found", "transcript_unreadable"},
    "journal_unreadable": {"corrupt", "unavailable", "written_by_newer"},
    "item_revision_stale": {""},
    "already_resolved": {""},
    **{code: {""} for code in HANDLE_CODES},
}


def test_the_table_holds_every_code_with_its_reasons() -> None:
    assert set(TABLE) == {(code, reason) for code, reasons in REASONS.items() for reason in reasons}


@pytest.mark.parametrize(("code", "reason"), PAIRS)
def test_every_pair_has_a_message_and_an_act_with_and_without_facts(code: str, reason: str) -> None:
    wordings = TABLE[code, reason]
    names = sorted(set().union(*(placeholders(text) for pair in wordings for text in pair)))
    assert not placeholders(wordings[-1][0]) | placeholders(wordings[-1][1])
    for facts in ({}, {name: f"<{name} as it was told>" for name in names}):
        told = refusal(code, reason, **facts)
        assert len(told.message) > 15
        assert len(told.hint) > 10
        assert code not in told.message
        error = told.error()
        assert isinstance(error, LeaseError)
        assert (error.code, error.exit_code, error.hint) == (code, 5, told.hint)
        assert known_refusal(error).message == told.message
    first = refusal(code, reason, **{name: f"<{name}>" for name in placeholders(wordings[0][0])})
    assert all(f"<{name}>" in first.message.replace("'", "") for name in placeholders(wordings[0][0]))


def test_messages_name_the_missing_evidence_and_the_act() -> None:
    told = refusal("ownership_unknown", "owner_unproven", pid=4242, host="h")
    assert "process 4242 on host h, the previous owner, has exited" in told.message
    assert "reopen" in told.hint
    bare = refusal("ownership_unknown", "owner_unproven")
    assert "whether an agent was started" in bare.message
    pending = refusal("ownership_unknown", "no_live_owner", settlement="settle-x-3")
    assert "exited" in pending.message
    assert "Reopen to finish settling" in pending.hint
    moved = refusal("conflict", "identity_mismatch", what="account", recorded="a", given="b")
    assert "`clew convert SESSION --to AGENT --new`" in moved.hint


def test_s94_what_is_no_known_refusal_rises() -> None:
    with pytest.raises(LookupError):
        refusal("conflict", "weather")
    with pytest.raises(LookupError):
        refusal("weather")
    for error in (
        ValueError("x"),
        StoreError("disk"),
        LeaseError("odd", code="weather"),
        LeaseError("odd", code="conflict", reason="weather"),
    ):
        with pytest.raises(type(error)) as risen:
            known_refusal(error)
        assert risen.value is error


def test_a_refusal_of_a_chain_is_known() -> None:
    told = known_refusal(invalid("the link is odd", link="l1"))
    assert told.code == "handle_invalid"
    assert told.message == "the link is odd"


def test_facts_travel_for_the_json_form() -> None:
    shown = refusal("checkpoint_stale", "fence_stale", fence=7, expected=6).error().as_dict()
    assert shown["code"] == "checkpoint_stale"
    assert shown["reason"] == "fence_stale"
    assert shown["fence"] == 7
