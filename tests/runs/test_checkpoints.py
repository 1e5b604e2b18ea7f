"""The log and what is read from it: replay, damage, the unbroken chain, reuse."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clew.errors import UnreadableSource
from clew.platform.clock import FixedClock
from clew.runs.checkpoints import replay, reusable
from clew.runs.engine import RunOptions, carry_out
from clew.runs.lineage import ResumeLineage, Target, read_lineage
from clew.runs.log import RunLog, read_lines
from clew.runs.manifest import Coverage, CoverageItem, Manifest, RunInput
from clew.runs.operation import Done, Item, ItemContext, ItemFailed
from runs.toys import Toy, make_settings


def chain(*records: dict[str, object]) -> bytes:
    """A log whose records name each other in order."""
    lines: list[bytes] = []
    for number, record in enumerate(records):
        head = {"uuid": f"u{number}", "parentUuid": f"u{number - 1}" if number else None, "runId": "r"}
        lines.append(json.dumps(head | record).encode() + b"\n")
    return b"".join(lines)


def item(kind: str, fingerprint: str, **more: object) -> dict[str, object]:
    return {"type": f"item_{kind}", "item_id": f"i-{fingerprint}", "fingerprint": fingerprint, **more}


def manifest(*completed: str, selected: tuple[str, ...] = ()) -> object:
    def items(names: tuple[str, ...]) -> tuple[CoverageItem, ...]:
        return tuple(CoverageItem(f"i-{name}", fingerprint=name) for name in names)

    covered = Coverage(selected=items(selected or completed), completed=items(completed))
    return msgspec.to_builtins(Manifest("r", "review", RunInput("range"), coverage=covered))


START = {"type": "run_start", "mode": "range", "operation": "review"}


def sealed(*names: str) -> dict[str, object]:
    return {"type": "run_sealed", "manifest": manifest(selected=names)}


def end(*names: str) -> dict[str, object]:
    return {"type": "run_end", "run_manifest": manifest(*names)}


def test_scenario_116_the_last_line_of_a_fingerprint_wins() -> None:
    log = chain(
        START,
        item("done", "a", result={"n": 1}),
        item("failed", "a"),
        item("done", "a", result={"n": 2}),
        item("done", "b"),
        item("failed", "b"),
        item("done", ""),
        item("reused", "c", new_path="c.py"),
        {"type": "item_translated_upside_down", "fingerprint": "d"},
    )
    state = replay(log, "r")
    assert set(state.checkpoints) == {"a", "c"}
    assert state.checkpoints["a"].result == {"n": 2}
    assert state.checkpoints["c"].path == "c.py", "the new path stands in for a missing one"


def test_scenario_117_a_bad_line_is_passed_over_or_fatal() -> None:
    log = chain(START, item("done", "a")) + b"{]\n" + chain(item("done", "b"), end("a", "b"))
    state = replay(log, "r")
    assert set(reusable(state)) == {"a", "b"}, "the manifest arbitrates"
    assert state.damaged == 1
    with pytest.raises(UnreadableSource, match="record 2 of run r"):
        replay(log, "r", strict=True)


def test_only_what_the_manifest_vouches_for_is_reused() -> None:
    log = chain(START, item("done", "a"), item("done", "b"), end("a", "c"))
    assert set(reusable(replay(log, "r"))) == {"a"}


def test_a_later_end_without_a_manifest_does_not_clear_it() -> None:
    log = chain(START, item("done", "a"), end("a"), {"type": "run_end"})
    state = replay(log, "r")
    assert state.closed
    assert set(reusable(state)) == {"a"}


def test_scenario_122_a_killed_run_vouches_up_to_the_first_break() -> None:
    whole = chain(START, sealed("a", "b", "c"), item("done", "a"), item("done", "b"), item("done", "c"))
    lines = whole.splitlines(keepends=True)
    assert set(reusable(replay(whole, "r"))) == {"a", "b", "c"}
    torn = whole + b'{"type":"item_done","uuid":"u5","parentUu'
    assert set(reusable(replay(torn, "r"))) == {"a", "b", "c"}
    assert replay(torn, "r").torn
    gap = b"".join(lines[:3] + lines[4:])
    assert set(reusable(replay(gap, "r"))) == {"a"}
    middle = b"".join([*lines[:3], b"{torn\n", *lines[3:]])
    assert set(reusable(replay(middle, "r"))) == {"a"}


def test_a_killed_run_vouches_only_for_its_sealed_set() -> None:
    log = chain(START, sealed("a"), item("done", "a"), item("done", "z"), item("failed", "a"))
    assert set(reusable(replay(log, "r"))) == set()
    assert reusable(replay(chain(START, item("done", "a")), "r")) == {}, "without a seal nothing is vouched for"


kinds = st.lists(st.tuples(st.sampled_from(["done", "failed", "reused"]), st.sampled_from("abcd")), max_size=8)


@settings(max_examples=60, deadline=None)
@given(kinds, st.booleans(), st.data())
def test_law_6_a_truncated_log_loads_and_reuses_no_more(
    outcomes: list[tuple[str, str]], closed: bool, data: st.DataObject
) -> None:
    # In one run an item is decided once: that is what the builder promises.
    decided = {name: kind for kind, name in reversed(outcomes)}
    records = [item(kind, name) for name, kind in decided.items()]
    done = [name for name, kind in decided.items() if kind != "failed"]
    log = chain(START, sealed(*"abcd"), *records, *([end(*done)] if closed else []))
    cut = data.draw(st.integers(0, len(log)))
    assert set(reusable(replay(log[:cut], "r"))) <= set(reusable(replay(log, "r")))
    assert set(reusable(replay(log, "r"))) == set(done)


def test_law_6_at_every_byte_of_a_real_log(tmp_path: Path) -> None:
    def work(item: Item, context: ItemContext) -> Done:
        if item.path == "b.py":
            raise ItemFailed("provider", "HTTP 500")
        context.record("llm_request", {"number": 1, "messages": ["x"]})
        return Done({"findings": []})

    result = carry_out(Toy({"a.py": "1", "b.py": "2", "c.py": "3"}, work), make_settings(tmp_path))
    log = result.log_path.read_bytes()
    whole = set(reusable(replay(log, "run-1")))
    assert len(whole) == 2
    for cut in range(len(log)):
        assert set(reusable(replay(log[:cut], "run-1"))) <= whole


@settings(max_examples=80, deadline=None)
@given(st.binary(max_size=60), st.integers(0, 500), st.integers(0, 8))
def test_no_bytes_make_loading_raise(noise: bytes, place: int, drop: int) -> None:
    log = chain(START, sealed("a", "b"), item("done", "a"), item("done", "b"), end("a"))
    state = replay(log[:place] + noise + log[place + drop :], "r")
    reusable(state)


def test_findings_come_back_as_copies() -> None:
    state = replay(chain(START, item("done", "a", result={"findings": [{"path": "a"}]}), end("a")), "r")
    reusable(state)["a"].result["findings"].append("x")  # type: ignore[union-attr]
    again = replay(chain(START, item("done", "a", result={"findings": [{"path": "a"}]}), end("a")), "r")
    assert again.checkpoints["a"].result == {"findings": [{"path": "a"}]}


# --- writing ----------------------------------------------------------------------------------------------


def test_every_record_names_the_one_before_it(tmp_path: Path) -> None:
    result = carry_out(Toy({"a.py": "1", "b.py": "2"}), make_settings(tmp_path))
    lines = list(read_lines(result.log_path.read_bytes()))
    assert [line.type for line in lines] == ["run_start", "run_sealed", "item_done", "item_done", "run_end"]
    assert all(line.chained for line in lines)
    first = json.loads(result.log_path.read_bytes().splitlines()[0])
    assert (first["time"], first["runId"], first["parentUuid"]) == ("2026-01-02T03:04:05.000Z", "run-1", None)
    assert result.log_path.stat().st_mode & 0o777 == 0o600
    assert result.log_path.parent.stat().st_mode & 0o777 == 0o700


def test_a_log_that_cannot_be_opened_stops_nothing_and_is_reported(tmp_path: Path) -> None:
    taken = tmp_path / "runs"
    settings = make_settings(taken)
    first = carry_out(Toy({"a.py": "1"}), settings)
    again = carry_out(Toy({"a.py": "1"}), make_settings(taken))
    assert again.manifest.terminal_state == "complete"
    assert "could not be opened" in again.delivery_error
    assert str(first.log_path) in again.delivery_error


class Full:
    """A disk that is full after so many bytes, and writes what fits."""

    def __init__(self, room: int) -> None:
        self.room = room

    def __call__(self, fd: int, data: bytes) -> int:
        if not self.room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        fits = data[: self.room]
        self.room -= len(fits)
        return os.write(fd, fits)


@pytest.mark.parametrize("room", [0, 10, 500, 1000, 1500, 2000])
def test_a_full_disk_leaves_whole_records_and_one_error(tmp_path: Path, room: int) -> None:
    contents = {f"{n}.py": str(n) for n in range(6)}
    result = carry_out(Toy(contents), make_settings(tmp_path, write=Full(room)))
    assert result.manifest.terminal_state == "complete"
    assert "No space left" in result.delivery_error
    lines = list(read_lines(result.log_path.read_bytes()))
    assert all(line.chained for line in lines)
    assert all(line.type != "run_end" for line in lines)


def test_a_closed_log_gives_the_same_answer_each_time(tmp_path: Path) -> None:
    clock = FixedClock()
    log = RunLog(tmp_path / "r.jsonl", run_id="r", now=clock.now, new_id=iter("abc").__next__, write=Full(20))
    log.append("run_start", {})
    first = log.close({})
    assert "No space left" in first
    assert log.close({}) == first


def test_text_that_is_no_unicode_is_written_as_replacement(tmp_path: Path) -> None:
    contents = {"a.py": "1"}
    result = carry_out(Toy(contents, lambda item, context: Done({"x": ["a\ud800", ("b",)]})), make_settings(tmp_path))
    assert result.delivery_error == ""
    assert replay(result.log_path.read_bytes(), "run-1").items.popitem()[1].result == {"x": ["a\ufffd", ["b"]]}


def test_scenario_118_lineage_is_on_disk_before_the_end_and_round_trips(tmp_path: Path) -> None:
    settings = make_settings(tmp_path)
    parent = carry_out(Toy({"a.py": "1"}), settings).manifest.run_id
    seen: list[bytes] = []

    def work(item: Item, context: ItemContext) -> Done:
        seen.extend(path.read_bytes() for path in tmp_path.rglob("*.jsonl"))
        return Done()

    other = Toy({"a.py": "2"}, work, target=Target("azure", "m"))
    child = carry_out(other, settings, RunOptions(delta=True, explicit_provider=True), parent=parent)
    assert any(b'"type":"resume_lineage"' in log for log in seen)
    state = replay(child.log_path.read_bytes(), child.manifest.run_id)
    assert state.lineage == ResumeLineage(
        child.manifest.run_id, parent, Target("openai", "m-1"), Target("azure", "m"), delta=True
    )
    assert state.lineage.is_transition


def test_scenario_118_an_unknown_schema_is_ignored_whole_and_the_same_target_is_no_transition() -> None:
    event = ResumeLineage("c", "p", Target("x", "m"), Target("x", "m"))
    decoded = msgspec.to_builtins(event)
    assert read_lineage(decoded) == event
    assert not event.is_transition
    assert read_lineage(decoded | {"schema_version": "other/v1"}) is None
    assert read_lineage({"schema_version": event.schema_version}) is None


def test_a_run_without_a_parent_records_no_lineage(tmp_path: Path) -> None:
    result = carry_out(Toy({"a.py": "1"}), make_settings(tmp_path))
    assert b"resume_lineage" not in result.log_path.read_bytes()
