"""The builder of a manifest: two boundaries, one terminal state an item, exactly-once coverage."""

from __future__ import annotations

import threading
from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clew.runs.builder import ManifestBuilder
from clew.runs.manifest import (
    SCHEMA,
    CoverageItem,
    Manifest,
    ManifestError,
    RunFailure,
    RunInput,
    read_manifest,
)


def make(items: str = "abc", **header: object) -> ManifestBuilder:
    fields: dict[str, object] = {"run_id": "r", "operation": "review", "input": RunInput("range")} | header
    builder = ManifestBuilder(Manifest(**fields), {"range", "staged"})  # type: ignore[arg-type]
    for name in items:
        builder.register(CoverageItem(name, path=f"{name}.py", fingerprint=f"f{name}"))
    return builder


def ids(items: tuple[CoverageItem, ...]) -> str:
    return "".join(item.item_id for item in items)


def test_scenario_110_the_terminal_state_follows_the_coverage() -> None:
    def state(decide: Callable[[ManifestBuilder], None], items: str = "ab") -> str:
        builder = make(items)
        builder.seal()
        decide(builder)
        return builder.finalize(1).terminal_state

    def all_done(builder: ManifestBuilder) -> None:
        builder.mark_completed("a")
        builder.mark_waived("b", "vendored")

    def one_failed(builder: ManifestBuilder) -> None:
        builder.mark_reused("a")
        builder.mark_failed("b", "provider", "HTTP 500")

    def none_done(builder: ManifestBuilder) -> None:
        builder.mark_failed("a", "provider", "x")
        builder.mark_failed("b", "timeout", "x")

    def run_failed(builder: ManifestBuilder) -> None:
        all_done(builder)
        builder.set_run_failure("internal", "the disk is full")

    assert state(all_done) == "complete"
    assert state(one_failed) == "partial"
    assert state(none_done) == "failed"
    assert state(lambda _: None, items="") == "skipped"
    assert state(run_failed) == "failed"


def test_scenario_110_a_run_failure_keeps_the_outcomes() -> None:
    builder = make("ab")
    builder.mark_completed("a")
    builder.set_run_failure("timeout", "over")
    manifest = builder.finalize(1)
    assert ids(manifest.coverage.completed) == "a"
    assert manifest.run_failure == RunFailure("timeout", "over")


@pytest.mark.parametrize(
    ("failure", "pending", "classification", "reason"),
    [
        ("timeout", None, "timeout", "why"),
        ("internal", None, "unknown", "why"),
        ("unknown", "budget", "unknown", "why"),
        ("cancelled", "budget", "cancelled", "why"),
        (None, "budget", "budget", "why"),
        (None, None, "unknown", "no terminal outcome recorded"),
    ],
)
def test_scenario_111_undecided_items_take_the_cause(
    failure: str | None, pending: str | None, classification: str, reason: str
) -> None:
    builder = make("ab")
    builder.seal()
    builder.mark_completed("a")
    if pending:
        builder.set_pending_cause(pending, "why")
    if failure:
        builder.set_run_failure(failure, "why")
    manifest = builder.finalize(1)
    assert [(i.item_id, i.classification, i.reason) for i in manifest.coverage.failed] == [
        ("b", classification, reason)
    ]
    assert manifest.terminal_state == ("failed" if failure else "partial")


def test_scenario_112_an_item_has_one_terminal_state() -> None:
    builder = make("ab")
    builder.seal()
    builder.mark_completed("a")
    builder.mark_completed("a")
    with pytest.raises(ManifestError, match="is completed already"):
        builder.mark_failed("a", "provider", "late")
    builder.mark_failed("b", "provider", "first")
    builder.mark_failed("b", "provider", "second")
    with pytest.raises(ManifestError, match="failed provider already"):
        builder.mark_failed("b", "timeout", "third")
    manifest = builder.finalize(1)
    assert ids(manifest.coverage.completed) == "a"
    assert [(i.classification, i.reason) for i in manifest.coverage.failed] == [("provider", "first")]


def test_scenario_113_the_two_boundaries() -> None:
    builder = make("a")
    builder.register(CoverageItem("a", path="another.py"))
    builder.seal()
    builder.seal()
    with pytest.raises(ManifestError, match="after the seal"):
        builder.register(CoverageItem("b"))
    builder.mark_completed("a")
    manifest = builder.finalize(5)
    assert manifest.coverage.selected[0].path == "a.py", "the first registration stays"
    for call in (
        lambda: builder.mark_completed("a"),
        lambda: builder.set_run_failure("input", "x"),
        lambda: builder.set_pending_cause("budget", "x"),
        lambda: builder.register(CoverageItem("c")),
        lambda: builder.seal(),
    ):
        with pytest.raises(ManifestError):
            call()
    again = builder.finalize(99)
    assert again == manifest
    assert again is not manifest
    assert again.elapsed_ms == 5


def test_wrong_calls_are_refused() -> None:
    builder = make("a")
    with pytest.raises(ManifestError, match="needs an id"):
        builder.register(CoverageItem(""))
    with pytest.raises(ManifestError, match="never registered"):
        builder.mark_completed("z")
    with pytest.raises(ManifestError, match="no class of failure"):
        builder.mark_failed("a", "", "x")
    with pytest.raises(ManifestError, match="without a reason"):
        builder.mark_waived("a", " \x00\n")
    with pytest.raises(ManifestError, match="no class of a run failure"):
        builder.set_run_failure("panic", "x")
    builder.set_run_failure("input", "first")
    builder.set_run_failure("input", "second")
    with pytest.raises(ManifestError, match="is input already"):
        builder.set_run_failure("budget", "x")
    assert builder.finalize(1).run_failure == RunFailure("input", "first")


def test_a_validation_failure_freezes_and_decides_nothing() -> None:
    builder = make("ab", input=RunInput("elsewhere"))
    builder.seal()
    with pytest.raises(ManifestError, match="no mode 'elsewhere'"):
        builder.finalize(1)
    assert builder.boundary == "sealed"
    builder.mark_completed("a")
    builder.mark_completed("b")


def test_a_run_over_the_index_carries_no_commit_and_no_parent() -> None:
    for wrong in ({"resolved_head": "c" * 40}, {"exact_range": "a..b"}, {"requested_from": "main"}):
        builder = make("a", input=RunInput("staged", snapshot_tree="t" * 40, **wrong))
        with pytest.raises(ManifestError, match="carries no commit"):
            builder.finalize(1)
    builder = make("a", input=RunInput("staged", snapshot_tree="t" * 40), parent_run_id="p")
    with pytest.raises(ManifestError, match="carries no commit"):
        builder.finalize(1)
    make("a", input=RunInput("staged", snapshot_tree="t" * 40, resolved_base="b" * 40)).finalize(1)


def test_reasons_are_sanitised_at_the_door() -> None:
    builder = make("ab")
    builder.mark_failed("a", "provider", "Bearer abc\ndef")
    builder.mark_waived("b", "password=hunter2")
    builder.set_run_failure("internal", "https://u:p@h/x")
    text = msgspec.json.encode(builder.finalize(1)).decode()
    assert "abc" not in text
    assert "hunter2" not in text
    assert "u:p" not in text


def test_a_manifest_goes_through_json_with_its_arrays() -> None:
    builder = make("")
    manifest = builder.finalize(1)
    decoded = msgspec.json.decode(msgspec.json.encode(manifest))
    assert decoded["coverage"] == {"selected": [], "completed": [], "reused": [], "failed": [], "waived": []}
    assert decoded["schema_version"] == SCHEMA
    assert read_manifest(decoded) == (SCHEMA, manifest)
    assert read_manifest(decoded | {"schema_version": "v9", "coverage": 3}) == ("v9", None)
    assert read_manifest(decoded | {"coverage": 3}) == (SCHEMA, None)
    assert read_manifest("x") == ("", None)


def test_scenario_115_marks_from_many_threads_cover_exactly_once() -> None:
    names = [f"{number:03}" for number in range(200)]
    builder = make("")
    for name in names:
        builder.register(CoverageItem(name))
    builder.seal()
    barrier = threading.Barrier(8)

    def mark(offset: int) -> None:
        barrier.wait()
        for number in range(len(names)):
            name = names[(number * 7 + offset * 25) % len(names)]
            try:
                if offset % 2:
                    builder.mark_completed(name)
                else:
                    builder.mark_failed(name, "provider", "x")
            except ManifestError:
                pass

    threads = [threading.Thread(target=mark, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    covered = builder.finalize(1).coverage
    decided = [i.item_id for group in (covered.completed, covered.reused, covered.failed) for i in group]
    assert sorted(decided) == names
    assert [i.item_id for i in covered.selected] == names


marks = st.lists(
    st.tuples(st.sampled_from(["done", "reused", "provider", "timeout", "waived"]), st.sampled_from("abcdex")),
    max_size=12,
)


@settings(max_examples=80)
@given(marks)
def test_law_4_selected_is_partitioned_by_any_marks(sequence: list[tuple[str, str]]) -> None:
    builder = make("abcde")
    builder.seal()
    expected: dict[str, str] = {}
    for kind, name in sequence:
        legal = name != "x" and expected.get(name, kind) == kind
        try:
            if kind == "done":
                builder.mark_completed(name)
            elif kind == "reused":
                builder.mark_reused(name)
            elif kind == "waived":
                builder.mark_waived(name, "r")
            else:
                builder.mark_failed(name, kind, "r")
        except ManifestError:
            assert not legal
        else:
            assert legal
            expected[name] = kind
    covered = builder.finalize(1).coverage
    told = {i.item_id: "done" for i in covered.completed} | {i.item_id: "reused" for i in covered.reused}
    told |= {i.item_id: i.classification for i in covered.failed} | {i.item_id: "waived" for i in covered.waived}
    assert told == {name: expected.get(name, "unknown") for name in "abcde"}
    sizes = len(covered.completed) + len(covered.reused) + len(covered.failed) + len(covered.waived)
    assert sizes == len(covered.selected) == 5
