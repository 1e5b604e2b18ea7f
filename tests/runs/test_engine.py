"""A run from its seal to its end: reuse, concurrency, budget, failures, interruption."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clew.errors import ClewError, NotFoundError, RunError, UnreadableSource, UsageError
from clew.platform.faults import installed
from clew.runs.checkpoints import replay, reusable
from clew.runs.engine import Progress, RunOptions, RunResult, carry_out
from clew.runs.lineage import Target
from clew.runs.log import SessionRef
from clew.runs.operation import Done, Item, ItemContext, ItemFailed, Usage, Waived
from runs.toys import Toy, echo, make_settings, tree_of

CONTENTS = {f"{name}.py": name for name in "abcdef"}


def paths(items: object) -> list[str]:
    return sorted(item.path for item in items)  # type: ignore[attr-defined]


def failing(*names: str, classification: str = "provider"):
    def work(item: Item, context: ItemContext) -> Done:
        if item.path in names:
            raise ItemFailed(classification, f"no answer for {item.path}")
        return echo(item, context)

    return work


def test_a_run_covers_its_items_and_a_resume_does_the_rest(tmp_path: Path) -> None:
    settings = make_settings(tmp_path)
    first = carry_out(Toy(CONTENTS, failing("b.py", "c.py")), settings)
    assert first.manifest.terminal_state == "partial"
    assert paths(first.manifest.coverage.failed) == ["b.py", "c.py"]
    worked: list[str] = []

    def work(item: Item, context: ItemContext) -> Done:
        worked.append(item.path)
        return echo(item, context)

    second = carry_out(Toy(CONTENTS, work), settings, parent=first.manifest.run_id)
    assert second.manifest.terminal_state == "complete"
    assert sorted(worked) == ["b.py", "c.py"]
    assert paths(second.manifest.coverage.reused) == ["a.py", "d.py", "e.py", "f.py"]
    assert second.manifest.parent_run_id == first.manifest.run_id
    assert not second.manifest.parent_interrupted
    assert {i.source_run for i in second.items.values()} == {"", first.manifest.run_id}


def results(result: RunResult) -> dict[str, object]:
    return {name: item.result for name, item in result.items.items()}


def test_the_results_are_those_of_an_uninterrupted_run(tmp_path: Path) -> None:
    settings = make_settings(tmp_path)
    first = carry_out(Toy(CONTENTS, failing("b.py")), settings)
    second = carry_out(Toy(CONTENTS), settings, parent=first.manifest.run_id)
    assert results(second) == results(carry_out(Toy(CONTENTS), settings))


def test_scenario_95_a_parent_that_finished_nothing_is_resumable(tmp_path: Path) -> None:
    settings = make_settings(tmp_path)
    first = carry_out(Toy(CONTENTS, failing(*CONTENTS)), settings)
    assert first.manifest.terminal_state == "failed"
    assert carry_out(Toy(CONTENTS), settings, parent=first.manifest.run_id).manifest.terminal_state == "complete"


def test_scenario_100_delta_reuses_what_is_the_same(tmp_path: Path) -> None:
    settings = make_settings(tmp_path)
    first = carry_out(Toy(CONTENTS), settings)
    changed = CONTENTS | {"a.py": "changed", "new.py": "n"}
    with pytest.raises(RunError, match="its input changed") as caught:
        carry_out(Toy(changed), settings, parent=first.manifest.run_id)
    assert f"--delta-from {first.manifest.run_id}" in caught.value.hint
    second = carry_out(Toy(changed), settings, RunOptions(delta=True), parent=first.manifest.run_id)
    assert paths(second.manifest.coverage.completed) == ["a.py", "new.py"]
    assert len(second.manifest.coverage.reused) == 5


@settings(max_examples=50, deadline=None)
@given(st.lists(st.sets(st.sampled_from(sorted(CONTENTS))), max_size=4))
def test_law_5_along_a_chain_of_resumes_what_is_final_stays_so(
    tmp_path_factory: pytest.TempPathFactory, failures: list[set[str]]
) -> None:
    settings = make_settings(tmp_path_factory.mktemp("runs"))
    parent, final = "", set[str]()
    for broken in failures:
        result = carry_out(Toy(CONTENTS, failing(*broken)), settings, parent=parent)
        parent = result.manifest.run_id
        now = set(reusable(replay(result.log_path.read_bytes(), parent)))
        assert final <= now
        final = now
        covered = result.manifest.coverage
        assert {i.fingerprint for i in (*covered.completed, *covered.reused)} == final


def test_a_failed_item_that_is_waived_in_the_child(tmp_path: Path) -> None:
    settings = make_settings(tmp_path)
    first = carry_out(Toy(CONTENTS, failing("b.py")), settings)
    options = RunOptions(waived={"b.py": "generated code"})
    second = carry_out(Toy(CONTENTS, failing("b.py")), settings, options, parent=first.manifest.run_id)
    assert second.manifest.terminal_state == "complete"
    assert [(i.path, i.reason) for i in second.manifest.coverage.waived] == [("b.py", "generated code")]


def test_work_may_waive_and_panics_stay_with_their_item(tmp_path: Path) -> None:
    def work(item: Item, context: ItemContext) -> Done | Waived:
        if item.path == "a.py":
            raise ZeroDivisionError("api_key=hunter2 by zero")
        if item.path == "b.py":
            raise UnreadableSource("b.py is no text")
        if item.path == "c.py":
            raise ClewError("something else")
        return Waived("not today") if item.path == "d.py" else echo(item, context)

    result = carry_out(Toy(CONTENTS, work), make_settings(tmp_path))
    told = {i.path: (i.classification, i.reason) for i in result.manifest.coverage.failed}
    assert told == {
        "a.py": ("panic", "ZeroDivisionError: api_key=[REDACTED] by zero"),
        "b.py": ("input", "b.py is no text"),
        "c.py": ("unknown", "something else"),
    }
    assert result.manifest.terminal_state == "partial"
    assert "hunter2" not in result.log_path.read_text()


def test_many_workers_cover_exactly_once_and_report_progress(tmp_path: Path) -> None:
    contents = {f"{n:03}.py": str(n) for n in range(60)}
    worked: list[str] = []
    heard: list[Progress] = []

    def work(item: Item, context: ItemContext) -> Done:
        worked.append(item.path)
        return Done(usage=Usage(2, 1))

    result = carry_out(
        Toy(contents, work), make_settings(tmp_path), RunOptions(concurrency=8), on_progress=heard.append
    )
    assert sorted(worked) == sorted(contents)
    assert result.manifest.execution.configured_concurrency == 8
    assert [p.done for p in heard] == list(range(1, 61))
    assert heard[-1].spent == Usage(120, 60) == result.spent


def test_a_budget_ends_the_run_in_order_and_leaves_it_resumable(tmp_path: Path) -> None:
    def work(item: Item, context: ItemContext) -> Done:
        return Done(usage=Usage(80, 20))

    settings = make_settings(tmp_path)
    first = carry_out(Toy(CONTENTS, work, tokens=100), settings, RunOptions(budget_tokens=350))
    assert first.manifest.terminal_state == "partial"
    assert first.manifest.run_failure is None
    assert paths(first.manifest.coverage.completed) == ["a.py", "b.py", "c.py"]
    assert {i.classification for i in first.manifest.coverage.failed} == {"budget"}
    assert "budget of 350 tokens" in first.manifest.coverage.failed[0].reason
    second = carry_out(Toy(CONTENTS, work, tokens=100), settings, parent=first.manifest.run_id)
    assert second.manifest.terminal_state == "complete"
    assert second.spent.total == 300


def test_an_item_has_a_time_of_its_own(tmp_path: Path) -> None:
    settings = make_settings(tmp_path)

    def work(item: Item, context: ItemContext) -> Done:
        if item.path == "b.py":
            settings.clock.advance(20)  # type: ignore[attr-defined]
            context.check()
        return Done()

    result = carry_out(Toy(CONTENTS, work), settings, RunOptions(item_timeout_s=10))
    assert [(i.path, i.classification) for i in result.manifest.coverage.failed] == [("b.py", "timeout")]
    assert result.manifest.elapsed_ms == 20_000


def test_an_interrupted_run_ends_in_order(tmp_path: Path) -> None:
    cancelled = threading.Event()
    settings = make_settings(tmp_path)

    def work(item: Item, context: ItemContext) -> Done:
        if item.path == "c.py":
            cancelled.set()
            context.check()
        return Done()

    result = carry_out(Toy(CONTENTS, work), settings, cancelled=cancelled)
    assert result.manifest.terminal_state == "failed"
    assert result.manifest.run_failure is not None
    assert result.manifest.run_failure.classification == "cancelled"
    assert paths(result.manifest.coverage.completed) == ["a.py", "b.py"]
    assert {i.classification for i in result.manifest.coverage.failed} == {"cancelled"}
    again = carry_out(Toy(CONTENTS), settings, parent=result.manifest.run_id)
    assert paths(again.manifest.coverage.reused) == ["a.py", "b.py"]


def test_an_operation_that_cannot_open_fails_the_run_with_its_reason(tmp_path: Path) -> None:
    class Broken(Toy):
        def open(self, sealed: object, run_id: str):  # type: ignore[no-untyped-def]
            raise ClewError("no room for a checkout")

    result = carry_out(Broken(CONTENTS), make_settings(tmp_path))
    assert result.manifest.terminal_state == "failed"
    assert result.manifest.run_failure is not None
    assert result.manifest.run_failure.reason == "no room for a checkout"


def test_a_defect_in_the_machinery_ends_the_log_and_rises(tmp_path: Path) -> None:
    def broken(progress: Progress) -> None:
        raise LookupError("a defect of the face")

    with pytest.raises(LookupError):
        carry_out(Toy(CONTENTS), make_settings(tmp_path), on_progress=broken)
    [path] = tmp_path.rglob("*.jsonl")
    state = replay(path.read_bytes(), "run-1")
    assert state.manifest is not None
    assert state.manifest.run_failure is not None
    assert state.manifest.run_failure.classification == "internal"
    assert len(reusable(state)) == 1


def test_a_fault_before_the_first_item_still_ends_the_log(tmp_path: Path) -> None:
    with installed("run.after-seal=raise:EIO"), pytest.raises(OSError, match="injected"):
        carry_out(Toy(CONTENTS), make_settings(tmp_path))
    [path] = tmp_path.rglob("*.jsonl")
    state = replay(path.read_bytes(), "run-1")
    assert state.manifest is not None
    assert state.manifest.terminal_state == "failed"


def test_an_empty_selection_creates_nothing(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="nothing to toy: the input is empty") as caught:
        carry_out(Toy({}), make_settings(tmp_path / "runs"))
    assert caught.value.code == "nothing_selected"
    assert tree_of(tmp_path) == {}


@pytest.mark.parametrize(
    ("parent", "error"),
    [("nobody", NotFoundError), ("../run-1", UsageError), ("", None), ("..", UsageError), ("a/b", UsageError)],
)
def test_an_unknown_parent_is_named_and_nothing_is_created(
    tmp_path: Path, parent: str, error: type[ClewError] | None
) -> None:
    settings = make_settings(tmp_path / "runs")
    if error is None:
        carry_out(Toy(CONTENTS), settings, parent=parent)
        return
    with pytest.raises(error):
        carry_out(Toy(CONTENTS), settings, parent=parent)
    assert tree_of(tmp_path) == {}


def test_an_active_parent_is_refused(tmp_path: Path) -> None:
    settings = make_settings(tmp_path)
    seen: list[str] = []

    def work(item: Item, context: ItemContext) -> Done:
        before = tree_of(tmp_path)
        with pytest.raises(RunError, match="still active") as caught:
            carry_out(Toy(CONTENTS), settings, parent=context.run_id)
        seen.append(caught.value.code)
        assert tree_of(tmp_path) == before
        return Done()

    carry_out(Toy({"a.py": "1"}, work), settings)
    assert seen == ["run_active"]


def test_the_sessions_of_agents_are_kept_and_told(tmp_path: Path) -> None:
    told: list[tuple[str, str, SessionRef]] = []
    session = SessionRef("claude", "5e55")

    def work(item: Item, context: ItemContext) -> Done:
        if item.path == "b.py":
            raise ItemFailed("provider", "refused", session=session)
        return Done(session=session)

    settings = make_settings(tmp_path, linked=lambda run, item, ref: told.append((run, item, ref)))
    toy = Toy({"a.py": "1", "b.py": "2"}, work, target=Target("agent:claude", "m"))
    result = carry_out(toy, settings)
    assert [ref for _, _, ref in told] == [session, session]
    assert {i.session for i in result.items.values()} == {session}


def test_a_session_that_cannot_be_linked_costs_no_result(tmp_path: Path) -> None:
    def refuse(run_id: str, item_id: str, session: SessionRef) -> None:
        raise ClewError("the store is locked")

    toy = Toy({"a.py": "1"}, lambda item, context: Done(session=SessionRef("claude", "5e55")))
    result = carry_out(toy, make_settings(tmp_path, linked=refuse))
    assert result.manifest.terminal_state == "complete"
    assert '"link_failed"' in result.log_path.read_text()


def test_a_result_that_cannot_be_kept_is_none(tmp_path: Path) -> None:
    result = carry_out(Toy({"a.py": "1"}, lambda item, context: Done({"x": object()})), make_settings(tmp_path))
    assert [i.classification for i in result.manifest.coverage.failed] == ["panic"]


def test_planted_secrets_are_in_no_manifest_and_no_lineage(tmp_path: Path) -> None:
    """Law 7, for reasons, labels and rules."""
    planted = "tok_Hidden9"

    def work(item: Item, context: ItemContext) -> Done:
        raise ItemFailed("provider", f"Authorization: Bearer {planted}")

    settings = make_settings(tmp_path)
    toy = Toy(CONTENTS, work, rules=(f"password={planted}",), target=Target(f"https://u:{planted}@h", f"key={planted}"))
    first = carry_out(toy, settings)
    second = carry_out(toy, settings, parent=first.manifest.run_id)
    assert second.manifest.terminal_state == "failed"
    for result in (first, second):
        for line in result.log_path.read_text().splitlines():
            assert planted not in line
