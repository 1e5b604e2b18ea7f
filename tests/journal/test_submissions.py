"""Submissions: their states, and what a stop leaves in doubt."""

from __future__ import annotations

import pytest

from clew.journal.crash import reject_never_started, settle_crash
from clew.journal.rows import Dispatch, SubmissionState
from clew.journal.submissions import fold, known_items, timeline, unconfirmed
from journal_cases import item, journal, more, said, sent, states


def test_states_follow_the_rows() -> None:
    rows = journal(said("a"), said("b"), sent("b"), said("c"), sent("c"), Dispatch("c", "accepted", item_key="k"))
    assert states(rows) == {"a": ("queued", None), "b": ("pending", None), "c": ("accepted", None)}
    assert unconfirmed(fold(rows)) == ("b",)


@pytest.mark.parametrize("settled", ["accepted", "rejected"])
@pytest.mark.parametrize("later", ["queued", "pending", "unknown", "accepted", "rejected"])
def test_a_settled_state_is_not_reopened(settled: SubmissionState, later: SubmissionState) -> None:
    rows = journal(said("a"), sent("a"), Dispatch("a", settled, "first"), Dispatch("a", later, "second"))
    assert states(rows) == {"a": (settled, "first")}


def test_unknown_is_not_weakened_but_may_be_settled() -> None:
    rows = journal(said("a"), sent("a"), Dispatch("a", "unknown", "sharp"), sent("a"))
    assert states(rows) == {"a": ("unknown", "sharp")}
    assert states(more(rows, Dispatch("a", "accepted")))["a"][0] == "accepted"


def test_a_sharper_reason_is_not_replaced_by_a_restart() -> None:
    rows = journal(said("a"), sent("a"), Dispatch("a", "unknown", "sharp"), Dispatch("a", "unknown", "host_restarted"))
    assert states(rows) == {"a": ("unknown", "sharp")}
    assert states(more(rows, Dispatch("a", "unknown", "sharper"))) == {"a": ("unknown", "sharper")}


def test_a_dispatch_of_nobody_and_a_second_submission_change_nothing() -> None:
    rows = journal(said("a", "one"), sent("nobody"), said("a", "two"))
    (only,) = fold(rows)
    assert only.submission.body == b"one"


def test_s81_an_accepted_submission_and_the_agents_copy_are_one_bubble() -> None:
    before = journal(said("a"), sent("a"), item("k1"), item("k2", "other"), Dispatch("a", "accepted", item_key="k1"))
    after = journal(said("a"), sent("a"), Dispatch("a", "accepted", item_key="k1"), item("k1"), item("k2", "other"))
    for rows in (before, after):
        shown = timeline(rows)
        assert [(b.standing is not None, b.item.item_key if b.item else None) for b in shown] == [
            (True, "k1"),
            (False, "k2"),
        ]
    assert known_items(before) == {"k1", "k2"}


def test_what_was_in_flight_becomes_unknown_once() -> None:
    rows = journal(
        said("queued"),
        said("pending"),
        sent("pending"),
        said("sharp"),
        sent("sharp"),
        Dispatch("sharp", "unknown", "write_failed"),
        said("done"),
        Dispatch("done", "accepted", item_key="k"),
        said("no"),
        Dispatch("no", "rejected", "agent said no"),
    )
    told = settle_crash(fold(rows))
    after = more(rows, *told)
    assert states(after) == {
        "queued": ("queued", None),
        "pending": ("unknown", "host_restarted"),
        "sharp": ("unknown", "write_failed"),
        "done": ("accepted", None),
        "no": ("rejected", "agent said no"),
    }
    assert all(s.recovered for s in fold(after) if s.state == "unknown")
    assert settle_crash(fold(after)) == ()


def test_s82_a_rejected_write_failure_is_still_rejected_after_a_crash() -> None:
    rows = journal(said("a"), sent("a"), Dispatch("a", "rejected", "write_failed"))
    assert settle_crash(fold(rows)) == ()


def test_a_child_that_never_answered_its_handshake_ran_nothing() -> None:
    rows = journal(said("a"), sent("a"), said("b"), sent("b"), said("c"))
    told = reject_never_started(fold(rows), {"a", "c"})
    after = more(rows, *told)
    assert states(after) == {
        "a": ("rejected", "agent_never_started"),
        "b": ("pending", None),
        "c": ("queued", None),
    }
