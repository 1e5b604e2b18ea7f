"""A session that is put back is one that its agent lists: what it needs besides its own files is made anew."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from clew.formats.protocol import Home
from clew.formats.registry import all_formats, get_format
from clew.platform.clock import FixedClock
from clew.verbs.context import Context
from clew.verbs.convert import convert
from clew.verbs.keep import keep
from clew.verbs.ls import ls
from clew.verbs.own import disown, own_session
from clew.verbs.restore import restore
from clew_corpus import Case, own_case

FILES = [
    form.name
    for form in all_formats()
    if form.splice is not None and form.place_rows is None and not form.traits.exported and form.name != "claude"
]
LONG = "/srv/" + "\u00e4" * 50
"""A folder that Grok's places do not spell: it is too long where each sign is six."""


@pytest.fixture
def case() -> Case:
    return own_case("claude", "tools")


@pytest.fixture
def ctx(case: Case, tmp_path: Path) -> Iterator[Context]:
    home, clock = case.copy_home(tmp_path / "home"), FixedClock(datetime(2026, 12, 1, 9, tzinfo=UTC))
    with Context(Home(home), tmp_path / "data", cwd=tmp_path, clock=clock) as made:
        yield made


def tree(root: Path) -> dict[str, bytes]:
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def lasting(ctx: Context, case: Case, agent: str, cwd: str) -> tuple[str, dict[str, bytes]]:
    """Makes a session of an agent; returns its name and the files that came with it."""
    before = tree(ctx.home.root)
    done = convert(ctx, f"claude:{case.session_id}", to=agent, cwd=cwd)
    return f"{agent}:{done.to.session_id}", {p: d for p, d in tree(ctx.home.root).items() if p not in before}


@pytest.mark.parametrize(("agent", "cwd"), [*((agent, "/srv/My Shop") for agent in FILES), ("grok", LONG)])
def test_in_an_empty_home_lies_all_that_was_written_for_it(
    agent: str, cwd: str, ctx: Context, case: Case, tmp_path: Path
) -> None:
    name, made = lasting(ctx, case, agent, cwd)
    empty = tmp_path / "empty"
    done = restore(ctx, name, to=empty)
    assert tree(empty).keys() == made.keys()
    listed = {Path(path).relative_to(empty).as_posix() for path in done.listed}
    own = {Path(path).relative_to(empty).as_posix() for path in done.paths}
    assert (listed | own, listed & own) == (set(made), set())
    assert {path: tree(empty)[path] for path in own} == {path: made[path] for path in own}
    again = restore(ctx, name, to=empty)
    assert (again.paths, again.listed, set(again.unchanged)) == ((), (), set(done.paths))
    clock = FixedClock(datetime(2026, 12, 2, tzinfo=UTC))
    with Context(Home(empty), tmp_path / "other", cwd=tmp_path, clock=clock) as other:
        assert [(row.cwd, f"{row.agent}:{row.id}") for row in ls(other, every_folder=True, hidden=True)] == [
            (cwd, name)
        ]


@pytest.mark.parametrize("agent", FILES)
def test_what_is_lost_at_home_comes_back_and_what_is_there_stays(agent: str, ctx: Context, case: Case) -> None:
    name, made = lasting(ctx, case, agent, LONG)
    home = ctx.home.root
    for path in made:
        (home / path).unlink()
    done = restore(ctx, name)
    assert made.keys() <= tree(home).keys()
    for path in done.listed:
        Path(path).write_bytes(b"somebody else's")
    again = restore(ctx, name)
    assert (again.paths, again.listed) == ((), ())
    assert all(Path(path).read_bytes() == b"somebody else's" for path in done.listed)


# --- Gemini CLI: the mark that says which folder a slug is of ------------------------------------------------------


def gemini(ctx: Context, case: Case) -> tuple[str, Path]:
    name, _ = lasting(ctx, case, "gemini", "/srv/My Shop")
    list(keep(ctx, [name]))
    base = ctx.home.root / ".gemini"
    shutil.rmtree(base)
    return name, base


def test_gemini_gets_the_mark_and_nothing_over_others(ctx: Context, case: Case) -> None:
    name, base = gemini(ctx, case)
    done = restore(ctx, name)
    mark = base / "tmp" / "my-shop" / ".project_root"
    assert (done.listed, mark.read_text()) == ((str(mark),), "/srv/My Shop")


@pytest.mark.parametrize("by", ["list", "mark", "history"])
def test_a_slug_that_is_now_another_folders_stays_theirs(by: str, ctx: Context, case: Case) -> None:
    name, base = gemini(ctx, case)
    if by == "list":
        base.mkdir()
        (base / "projects.json").write_text('{"projects": {"/other/my-shop": "my-shop"}}')
    else:
        place = base / ("tmp" if by == "mark" else "history") / "my-shop"
        place.mkdir(parents=True)
        (place / ".project_root").write_text("/other/my-shop")
    before = tree(base)
    done = restore(ctx, name)
    assert done.listed == ()
    assert {path: data for path, data in tree(base).items() if "/chats/" not in path} == before


def test_a_conversion_that_brings_a_session_home_marks_its_slug_too(ctx: Context, case: Case) -> None:
    name, base = gemini(ctx, case)
    done = convert(ctx, f"claude:{case.session_id}", to="gemini", cwd="/srv/My Shop")
    assert (f"gemini:{done.to.session_id}", done.report.mode) == (name, "whole")
    assert (base / "tmp" / "my-shop" / ".project_root").read_text() == "/srv/My Shop"


def test_a_session_that_a_living_process_owns_is_listed_as_live(case: Case, ctx: Context) -> None:
    def state() -> str:
        (row,) = ls(ctx, every_folder=True, agent="claude")
        return row.state

    before = state()
    owned = own_session(ctx, get_format("claude"), case.session_id or "", "/")
    assert (before, state()) == ("idle", "live")
    disown(ctx, owned, "done")
    assert state() == "idle"
