"""Sessions that name no folder: what is made of them is for the folder that one is in, where the agent finds it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from clew.formats.protocol import Home
from clew.formats.registry import all_formats
from clew.laws.stored import group_keys
from clew.platform.clock import FixedClock
from clew.verbs.context import Context
from clew.verbs.convert import convert
from clew.verbs.ls import list_all
from clew.verbs.refer import open_session
from kept_samples import SAMPLES

RUN = next(one for one in SAMPLES if one.agent == "mini-swe-agent")
CLOCK = datetime(2026, 12, 1, 9, 0, tzinfo=UTC)
IN_FILES = [f.name for f in all_formats() if f.traits.writes and f.write and not (f.place_rows or f.traits.exported)]


@pytest.fixture
def ctx(tmp_path: Path) -> Iterator[Context]:
    (tmp_path / "shop").mkdir()
    with Context(Home(tmp_path / "home"), tmp_path / "data", cwd=tmp_path / "shop", clock=FixedClock(CLOCK)) as one:
        yield one


@pytest.fixture
def run(tmp_path: Path) -> Path:
    path = tmp_path / "run.traj.json"
    path.write_bytes(RUN.data)
    return path


@pytest.mark.parametrize("agent", IN_FILES)
def test_a_session_without_a_folder_is_where_its_new_agent_finds_it(ctx: Context, run: Path, agent: str) -> None:
    source = open_session(ctx, str(run))
    assert source.session.cwd == ""
    done = convert(ctx, str(run), to=agent)
    here = str(ctx.cwd)
    (row,) = [row for row in list_all(ctx, agent) if row.id == done.to.session_id]
    assert row.state != "gone"
    assert (row.cwd, done.to.cwd, done.resume.cwd) == (here, here, here)
    assert [w for w in done.report.warnings if here in w and "--cwd" in w]
    there = open_session(ctx, f"{agent}:{done.to.session_id}")
    assert there.found is not None
    assert group_keys(there.session.messages) == group_keys(source.session.messages)
    assert not convert(ctx, str(run), to=agent).written


def test_a_folder_that_was_named_stays(ctx: Context, run: Path) -> None:
    done = convert(ctx, str(run), to="claude", cwd="/w")
    assert done.to.cwd == "/w"
    assert not [w for w in done.report.warnings if "names no folder" in w]


def test_a_file_of_no_agent_needs_no_folder(ctx: Context, run: Path, tmp_path: Path) -> None:
    done = convert(ctx, str(run), to="atif", out=tmp_path / "out")
    assert done.to.cwd == ""
    assert not done.report.warnings
