"""Agents that are only read and kept, through the verbs: carried into another agent, put back from the store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from clew.errors import Refused, UnwritableContent, UsageError
from clew.formats.protocol import Home
from clew.laws.stored import group_keys
from clew.platform.clock import FixedClock
from clew.verbs.context import Context
from clew.verbs.convert import convert
from clew.verbs.keep import Kept, keep
from clew.verbs.refer import open_session
from clew.verbs.restore import restore
from clew.verbs.resume import resume
from kept_databases import BASES, Base, everything, make, run_in
from kept_samples import SAMPLES, Sample

every_sample = pytest.mark.parametrize("sample", SAMPLES, ids=str)
CLOCK = datetime(2026, 12, 1, 9, 0, tzinfo=UTC)


@contextmanager
def at_work(folder: Path) -> Iterator[Context]:
    with Context(Home(folder / "home"), folder / "data", cwd=folder, clock=FixedClock(CLOCK)) as ctx:
        yield ctx


def put(sample: Sample, folder: Path) -> Path:
    name = sample.path or {"copilot": "x/VSGitHubCopilot_traces.jsonl", "kiro": "x/payload.json"}[sample.agent]
    path = folder / "home" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(sample.data)
    return path


@every_sample
def test_a_session_is_kept_carried_away_and_put_back(sample: Sample, tmp_path: Path) -> None:
    path = put(sample, tmp_path)
    with at_work(tmp_path) as ctx:
        opened = open_session(ctx, str(path))
        assert opened.format.name == sample.agent
        (kept,) = keep(ctx, [str(path)])
        assert isinstance(kept, Kept)
        done = convert(ctx, str(path), to="codex", cwd="/w")
        there = open_session(ctx, f"codex:{done.to.session_id}")
        assert group_keys(there.session.messages) == group_keys(opened.session.messages)
        path.unlink()
        restore(ctx, f"{sample.agent}:{opened.session.id}")
    assert path.read_bytes() == sample.data


@every_sample
def test_nothing_goes_on_in_such_an_agent(sample: Sample, tmp_path: Path) -> None:
    path = put(sample, tmp_path)
    with at_work(tmp_path) as ctx:
        with pytest.raises(Refused, match="no way to go on") as caught:
            resume(ctx, str(path), accept=("cwd", "provider", "model"))
        assert caught.value.code == "not_resumable"
        with pytest.raises(UnwritableContent):
            convert(ctx, str(path), to=sample.agent, new=True)


def test_a_trajectory_is_written_where_it_is_told_to_be(tmp_path: Path) -> None:
    sample = next(one for one in SAMPLES if one.agent == "amp")
    path = put(sample, tmp_path)
    with at_work(tmp_path) as ctx:
        with pytest.raises(UsageError, match="no home holds"):
            convert(ctx, str(path), to="atif")
        done = convert(ctx, str(path), to="atif", out=tmp_path / "out")
        assert done.resume.argv == ()
        (written,) = (tmp_path / "out").iterdir()
        again = convert(ctx, str(path), to="atif", out=tmp_path / "out")
        assert not again.written
        there = open_session(ctx, str(written))
        assert there.format.name == "atif"
        assert there.session.foreign == f"amp:{open_session(ctx, str(path)).session.id}"
        with pytest.raises(Refused, match="no way to go on"):
            resume(ctx, str(written))


@pytest.mark.parametrize("base", BASES, ids=lambda b: b.agent)
def test_a_session_in_a_database_is_kept_and_carried_away(base: Base, tmp_path: Path) -> None:
    path = make(base, tmp_path / "home")
    before = path.read_bytes()
    name = f"{base.agent}:{base.ids[0]}"
    with at_work(tmp_path) as ctx:
        opened = open_session(ctx, f"{path}#{base.ids[0]}")
        assert group_keys(open_session(ctx, name).session.messages) == group_keys(opened.session.messages)
        (kept,) = keep(ctx, [name])
        assert isinstance(kept, Kept)
        done = convert(ctx, name, to="claude", cwd="/w")
        there = open_session(ctx, f"claude:{done.to.session_id}")
        assert group_keys(there.session.messages) == group_keys(opened.session.messages)
        assert restore(ctx, name).unchanged
        path.unlink()
        with pytest.raises(Refused, match="does not exist"):
            restore(ctx, name)
        assert group_keys(open_session(ctx, name).session.messages) == group_keys(opened.session.messages)
        path.write_bytes(before)
    assert path.read_bytes() == before


@pytest.mark.parametrize("base", BASES, ids=lambda b: b.agent)
def test_a_session_that_its_agent_deleted_is_put_back(base: Base, tmp_path: Path) -> None:
    path = make(base, tmp_path / "home")
    other = make(base, tmp_path / "other")
    before = everything(path)
    name = f"{base.agent}:{base.ids[0]}"
    with at_work(tmp_path) as ctx:
        list(keep(ctx, [name]))
        run_in(path, *base.removal)
        run_in(other, *base.removal)
        assert restore(ctx, name).paths == (str(path),)
        assert everything(path) == before
        assert restore(ctx, name).unchanged == (str(path),)
        assert restore(ctx, name, to=tmp_path / "other").paths == (str(other),)
        assert everything(other) == before
        run_in(path, base.spoil)
        changed = everything(path)
        with pytest.raises(Refused, match="other bytes") as caught:
            restore(ctx, name)
        assert caught.value.code == "target_diverged"
    assert everything(path) == changed


@pytest.mark.parametrize("base", [base for base in BASES if base.agent in ("goose", "crush")], ids=lambda b: b.agent)
def test_rows_left_without_their_session_are_named_with_what_to_do(base: Base, tmp_path: Path) -> None:
    path = make(base, tmp_path / "home")
    whole, (left, *head) = everything(path), base.removal
    table = left.split()[2]
    with at_work(tmp_path) as ctx:
        name = f"{base.agent}:{base.ids[0]}"
        list(keep(ctx, [name]))
        run_in(path, *head)
        before = everything(path)
        with pytest.raises(Refused) as caught:
            restore(ctx, name)
        assert caught.value.code == "target_diverged"
        assert caught.value.message.startswith(f"{path}: a row of the table '{table}' is in the way (")
        assert f"left of session {base.ids[0]}, which is gone" in caught.value.message
        assert f"take the rows of session {base.ids[0]} out of {table}" in caught.value.hint
        assert everything(path) == before
        run_in(path, left)
        restore(ctx, name)
    assert everything(path) == whole
