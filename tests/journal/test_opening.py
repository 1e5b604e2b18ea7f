"""Opening a journal: what is found, and what a repair keeps."""

from __future__ import annotations

import json

import pytest

from clew.journal.opening import (
    Corrupt,
    New,
    Opening,
    Readable,
    ReadOnly,
    Repair,
    classify,
    is_blank,
    plan_import,
    plan_new,
    plan_repair,
    plan_sibling,
    sibling_name,
)
from clew.journal.rows import Dispatch, Epoch, Lifecycle, Row, store_row
from clew.journal.submissions import fold
from journal_cases import NOW, item, journal, more, said, sent, stored

ROWS = journal(said("a"), sent("a"), Dispatch("a", "accepted", item_key="k1"), item("k1"), item("k2", "x"), item("k3"))
NEWER = b'{"schema":9,"moon":"full"}'
HISTORY = (item("k1"), item("k2", "x"), item("k3"), item("k4", "more"))


def damaged(data: list[bytes]) -> Corrupt:
    opening = classify(data)
    assert isinstance(opening, Corrupt), opening
    return opening


def follow(rows: tuple[Row, ...], repair: Repair) -> tuple[Row, ...]:
    """The rows in the store after the repair's transaction."""
    kept = () if repair.keep is None else tuple(row for row in rows if row.cursor <= repair.keep)
    return (*kept, *repair.append)


def test_nothing_there_is_a_new_journal() -> None:
    assert isinstance(classify([]), New)
    repair = plan_new(NOW, 1)
    assert repair.rows == (Row(1, 1, NOW, 1, Epoch("created")),)
    assert classify(stored(repair.rows)) == Readable(repair.rows)


def test_a_sound_journal_is_replayed() -> None:
    assert classify(stored(ROWS)) == Readable(ROWS)


def test_s92_a_gap_keeps_the_rows_before_it_and_is_rebuilt_on_a_new_epoch() -> None:
    data = stored(ROWS)
    del data[6]
    data += stored(more(ROWS, item("k9"))[-1:])
    damage = damaged(data)
    assert (damage.cause, damage.dropped, len(damage.rows)) == ("gap", 1, 6)
    assert damage.rows == ROWS[:6]
    repair = plan_repair(damage, HISTORY, NOW, 2)
    assert repair.report.epoch == 2
    assert repair.report.reset
    assert repair.report.imported == 2
    assert repair.report.error is None
    after = follow(damage.rows, repair)
    assert after == repair.rows
    assert classify(stored(after)) == Readable(after)
    assert [row.body for row in after[1:6]] == [row.body for row in ROWS[1:6]]
    assert any(isinstance(row.body, Lifecycle) and row.body.event == "repaired" for row in after)
    assert [row.body for row in after[-2:]] == [item("k3"), item("k4", "more")]
    assert [(s.client_id, s.state) for s in fold(after)] == [("a", "accepted")]


def test_s93_one_newer_row_makes_it_read_only_wherever_it_is() -> None:
    for place in range(len(ROWS) + 1):
        data = stored(ROWS)
        data.insert(place, NEWER)
        opening = classify(data)
        assert isinstance(opening, ReadOnly)
        assert opening.schema == 9
        assert opening.rows == ROWS[:place]
    behind_a_gap = [*stored(ROWS[:2]), *stored(ROWS[4:5]), b"torn", NEWER]
    opening = classify(behind_a_gap)
    assert isinstance(opening, ReadOnly)
    assert opening.rows == ROWS[:2]
    sibling = plan_sibling(opening, HISTORY, NOW, 3)
    assert sibling_name("journal-7", 9) == "journal-7-recovered-v9"
    assert classify(stored(sibling.rows)) == Readable(sibling.rows)
    assert sibling.report.imported == 4
    empty = plan_sibling(opening, None, NOW, 3, "no such file")
    assert (empty.report.imported, empty.report.error) == (0, "no such file")


def broken_anchor() -> list[bytes]:
    return stored(ROWS[1:])


def malformed() -> list[bytes]:
    data = stored(ROWS)
    data[3] = b'{"schema":1,"epoch":1'
    return data


@pytest.mark.parametrize(
    ("data", "cause", "kept", "dropped"),
    [
        (broken_anchor(), "bad_anchor", 0, 6),
        ([b"torn", *stored(ROWS)], "bad_anchor", 0, 8),
        (malformed(), "malformed_row", 3, 4),
        ([*stored(ROWS[:3]), *stored(ROWS[:3])], "gap", 3, 3),
        ([*stored(ROWS[:3]), *stored(journal(said("z"), epoch=2))], "gap", 3, 2),
        ([*stored(ROWS[:3]), store_row(Row(1, 4, NOW, 1, Epoch("again")))], "malformed_row", 3, 1),
    ],
)
def test_damage_cuts_at_the_first_fault(data: list[bytes], cause: str, kept: int, dropped: int) -> None:
    damage = damaged(data)
    assert (damage.cause, len(damage.rows), damage.dropped) == (cause, kept, dropped)


def test_a_gap_before_a_malformed_row_is_a_gap() -> None:
    data = stored(ROWS)
    del data[2]
    data[4] = b"torn"
    assert damaged(data).cause == "gap"


@pytest.mark.parametrize("history", [None, ()])
@pytest.mark.parametrize("data", [malformed(), broken_anchor(), [b"torn"]])
def test_without_history_the_prefix_stays_behind_a_marker_and_is_tried_again(
    history: tuple[()] | None, data: list[bytes]
) -> None:
    damage = damaged(data)
    repair = plan_repair(damage, history, NOW, 2, None if history is not None else "disk")
    assert repair.report.imported == 0
    assert repair.report.error == ("disk" if history is None else "the agent's history is empty")
    after = follow(damage.rows, repair)
    assert after == repair.rows
    again = damaged(stored(after))
    assert (again.cause, again.marked, again.dropped) == ("repair_unfinished", True, 0)
    assert [row.body for row in again.rows if not isinstance(row.body, Epoch)] == [
        row.body for row in damage.rows if not isinstance(row.body, Epoch)
    ]
    still = plan_repair(again, history, NOW, 3, "disk")
    assert damaged(stored(follow(again.rows, still))).rows == again.rows
    rebuilt = plan_repair(again, HISTORY, NOW, 3)
    opened: Opening = classify(stored(follow(again.rows, rebuilt)))
    assert opened == Readable(rebuilt.rows)
    assert rebuilt.report.epoch == again.epoch + 1


@pytest.mark.parametrize("history", [None, HISTORY])
def test_what_was_queued_before_a_cut_may_have_been_handed_over(history: object) -> None:
    rows = journal(said("a"), said("b"), sent("b"))
    damage = damaged([*stored(rows[:3]), b"torn"])
    repair = plan_repair(damage, history, NOW, 2)  # type: ignore[arg-type]
    assert {s.client_id: (s.state, s.reason) for s in fold(repair.rows)} == {
        "a": ("unknown", "journal_damaged"),
        "b": ("unknown", "journal_damaged"),
    }
    assert not repair.known


def test_a_history_that_brings_nothing_new_still_finishes_the_repair() -> None:
    damage = damaged([*stored(ROWS), b"torn"])
    repair = plan_repair(damage, HISTORY[:3], NOW, 2)
    assert repair.report.imported == 0
    assert classify(stored(repair.rows)) == Readable(repair.rows)


def test_importing_only_fills_a_blank_journal() -> None:
    blank = journal()
    assert is_blank(blank)
    rows = (*blank, *plan_import(blank, HISTORY, NOW, 1))
    assert classify(stored(rows)) == Readable(rows)
    assert not is_blank(rows)
    assert plan_import(rows, HISTORY, NOW, 1) == ()
    assert plan_import(more(blank, said("a")), HISTORY, NOW, 1) == ()


def test_the_stored_form_is_json() -> None:
    assert all(json.loads(data)["schema"] == 1 for data in stored(ROWS))
