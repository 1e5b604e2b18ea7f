"""Listing and showing runs."""

from __future__ import annotations

from pathlib import Path

from clew.runs.engine import RunOptions, carry_out
from clew.runs.folder import get_run
from clew.runs.operation import Done, Item, ItemContext, ItemFailed
from clew.runs.summary import list_runs, show_run
from runs.toys import Toy, echo, make_settings

CONTENTS = {"a.py": "1", "b.py": "2", "c.py": "3"}


def fail_b(item: Item, context: ItemContext) -> Done:
    if item.path == "b.py":
        raise ItemFailed("provider", "HTTP 500")
    return echo(item, context)


def test_newest_first_with_counts_from_the_manifest(tmp_path: Path) -> None:
    settings = make_settings(tmp_path)
    first = carry_out(Toy(CONTENTS, fail_b), settings)
    settings.clock.advance(60)  # type: ignore[attr-defined]
    second = carry_out(Toy(CONTENTS), settings, parent=first.manifest.run_id)
    (tmp_path / "stray").write_text("x")
    (first.log_path.parent / "notes.txt").write_text("x")
    newest, oldest = list_runs(tmp_path)
    assert (newest.run_id, oldest.run_id) == (second.manifest.run_id, first.manifest.run_id)
    assert (oldest.state, oldest.completed, oldest.failed, oldest.reusable, oldest.findings) == ("partial", 2, 1, 2, 2)
    assert (newest.state, newest.completed, newest.reused) == ("complete", 1, 2)
    assert newest.parent_run_id == first.manifest.run_id
    assert not newest.legacy
    assert list_runs(tmp_path, Path("/home/dev/shop")) == (newest, oldest)
    assert list_runs(tmp_path, Path("/elsewhere")) == ()
    assert list_runs(tmp_path / "missing") == ()


def test_scenario_120_without_an_end_the_lock_tells_running_from_aborted(tmp_path: Path) -> None:
    settings = make_settings(tmp_path)
    seen: list[str] = []

    def work(item: Item, context: ItemContext) -> Done:
        seen.append(list_runs(tmp_path)[0].state)
        return Done()

    result = carry_out(Toy({"a.py": "1"}, work), settings)
    assert seen == ["running"]
    whole = result.log_path.read_bytes().splitlines(keepends=True)
    result.log_path.write_bytes(b"".join(whole[:-1]))
    [told] = list_runs(tmp_path)
    assert (told.state, told.legacy, told.completed, told.selected, told.reusable) == ("aborted", True, 1, 1, 1)


def test_a_legacy_run_is_never_complete(tmp_path: Path) -> None:
    result = carry_out(Toy(CONTENTS), make_settings(tmp_path))
    lines = result.log_path.read_bytes().splitlines(keepends=True)
    result.log_path.write_bytes(b"".join([*lines[:-1], b'{"type":"run_end","uuid":"x"}\n']))
    [told] = list_runs(tmp_path)
    assert (told.state, told.legacy, told.reusable) == ("ended", True, 0)


def test_show_names_every_item_and_where_its_result_was_made(tmp_path: Path) -> None:
    settings = make_settings(tmp_path)
    first = carry_out(Toy(CONTENTS, fail_b), settings, RunOptions(budget_tokens=0))
    second = carry_out(Toy(CONTENTS, fail_b), settings, parent=first.manifest.run_id)
    shown = show_run(get_run(tmp_path, second.manifest.run_id))
    told = [(i.path, i.outcome, i.source_run, i.findings, i.reason) for i in shown.items]
    source = first.manifest.run_id
    assert told == [
        ("a.py", "reused", source, 1, ""),
        ("b.py", "failed", "", 0, "HTTP 500"),
        ("c.py", "reused", source, 1, ""),
    ]
    assert shown.lineage is not None
    assert shown.lineage.parent_run_id == source


def test_items_that_were_never_dispatched_are_shown(tmp_path: Path) -> None:
    spent = carry_out(Toy(CONTENTS, tokens=10), make_settings(tmp_path), RunOptions(budget_tokens=5))
    shown = show_run(get_run(tmp_path, spent.manifest.run_id))
    assert [(i.outcome, i.classification) for i in shown.items] == [("failed", "budget")] * 3
    lines = spent.log_path.read_bytes().splitlines(keepends=True)
    spent.log_path.write_bytes(b"".join(lines[:-1]))
    shown = show_run(get_run(tmp_path, spent.manifest.run_id))
    assert [i.outcome for i in shown.items] == ["undecided"] * 3
