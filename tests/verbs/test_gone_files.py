"""Files that are gone, named as people name them: by the path at which clew captured them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from clew.errors import NotFoundError
from clew.formats.protocol import Home
from clew.laws.stored import group_keys
from clew.platform.clock import FixedClock
from clew.verbs.context import Context
from clew.verbs.convert import convert
from clew.verbs.keep import keep
from clew.verbs.ls import list_all
from clew.verbs.refer import open_session
from clew.verbs.restore import restore
from kept_samples import SAMPLES

RUN = next(one for one in SAMPLES if one.agent == "mini-swe-agent")
CLOCK = datetime(2026, 12, 1, 9, 0, tzinfo=UTC)


@pytest.fixture
def ctx(tmp_path: Path) -> Iterator[Context]:
    with Context(Home(tmp_path / "home"), tmp_path / "data", cwd=tmp_path, clock=FixedClock(CLOCK)) as one:
        yield one


def lay(path: Path, data: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def test_a_file_that_is_gone_is_named_by_its_path(ctx: Context, tmp_path: Path) -> None:
    path = lay(tmp_path / "runs" / "run.traj.json", RUN.data)
    list(keep(ctx, [str(path)]))
    keys = group_keys(open_session(ctx, str(path)).session.messages)
    path.unlink()
    assert group_keys(open_session(ctx, str(path)).session.messages) == keys
    assert restore(ctx, "runs/run.traj.json").paths == (str(path),)
    assert path.read_bytes() == RUN.data


def test_of_two_files_with_one_id_the_one_that_was_named_comes_back(ctx: Context, tmp_path: Path) -> None:
    one = lay(tmp_path / "a" / "run.traj.json", RUN.data)
    other = lay(tmp_path / "b" / "run.traj.json", RUN.data.replace(b"a", b"e", 1) + b"\n")
    list(keep(ctx, [str(one), str(other)]))
    one.unlink()
    assert restore(ctx, str(one)).paths == (str(one),)
    assert restore(ctx, str(one)).unchanged == (str(one),)
    other.unlink()
    assert restore(ctx, str(other)).paths == (str(other),)
    assert one.read_bytes() == RUN.data


def test_a_path_that_nothing_was_kept_of_is_refused(ctx: Context, tmp_path: Path) -> None:
    list(keep(ctx, [str(lay(tmp_path / "a" / "run.traj.json", RUN.data))]))
    for verb in (open_session, restore):
        with pytest.raises(NotFoundError, match="does not exist, and clew kept no session"):
            verb(ctx, str(tmp_path / "b" / "run.traj.json"))


@pytest.mark.parametrize("left", ["folders", "description"])
def test_a_session_of_which_only_folders_are_left_is_put_back(ctx: Context, tmp_path: Path, left: str) -> None:
    source = lay(tmp_path / "a" / "run.traj.json", RUN.data)
    kimi = convert(ctx, str(source), to="kimi", cwd="/w")
    back = convert(ctx, f"kimi:{kimi.to.session_id}", to="codex", cwd="/w")
    before = {path: path.read_bytes() for path in (tmp_path / "home" / ".kimi-code").rglob("*") if path.is_file()}
    for path in before:
        if left == "folders" or path.name == "wire.jsonl":
            path.unlink()
    if left == "folders":
        assert [row.state for row in list_all(ctx, "kimi")] == ["gone"]
    again = convert(ctx, f"codex:{back.to.session_id}", to="kimi", cwd="/w")
    assert again.to.session_id == kimi.to.session_id
    assert [path for path in before if path.name == "wire.jsonl"]
    assert {path: path.read_bytes() for path in before if path.name == "wire.jsonl"}.items() <= before.items()
