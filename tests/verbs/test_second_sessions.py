"""`--new`, `--cwd` and `--model` in every format that writes: a session of its own, where and for whom it was asked."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from clew.formats.protocol import Format, Home
from clew.formats.registry import all_formats
from clew.platform.clock import FixedClock
from clew.verbs.context import Context
from clew.verbs.convert import convert
from clew.verbs.refer import open_session
from clew_corpus import own_case

WRITERS = [form for form in all_formats() if form.write is not None and form.traits.writes]
every_writer = pytest.mark.parametrize("form", WRITERS, ids=lambda form: form.name)


@pytest.fixture
def ctx(tmp_path: Path) -> Context:
    case = own_case("claude", "tools")
    clock = FixedClock(datetime(2026, 12, 1, 9, 0, tzinfo=UTC))
    return Context(Home(case.copy_home(tmp_path / "home")), tmp_path / "data", cwd=tmp_path, clock=clock)


def source() -> str:
    return f"claude:{own_case('claude', 'tools').session_id}"


@every_writer
def test_each_second_session_is_one_of_its_own(ctx: Context, form: Format, tmp_path: Path) -> None:
    out = tmp_path / "out" if form.traits.exported else None
    with ctx:
        made = [convert(ctx, source(), to=form.name, new=True, out=out) for _ in range(3)]
        ids = [one.to.session_id for one in made]
        assert len(set(ids)) == 3
        for one in made if out is None else ():
            opened = open_session(ctx, f"{form.name}:{one.to.session_id}")
            assert opened.session.id == one.to.session_id


@every_writer
def test_a_second_session_lies_where_it_was_asked_for(ctx: Context, form: Format, tmp_path: Path) -> None:
    out = tmp_path / "out" if form.traits.exported else None
    with ctx:
        for folder in ("/tmp/one", "/tmp/other"):
            made = convert(ctx, source(), to=form.name, new=True, cwd=folder, out=out)
            assert (made.to.cwd, made.resume.cwd) == (folder, folder)
            assert made.report.mode == "plain"


@pytest.mark.parametrize("form", [f for f in WRITERS if f.name != "claude"], ids=lambda form: form.name)
def test_one_that_goes_on_stays_in_its_folder_and_says_so(ctx: Context, form: Format, tmp_path: Path) -> None:
    out = tmp_path / "out" if form.traits.exported else None
    with ctx:
        first = convert(ctx, source(), to=form.name, cwd="/tmp/one", out=out)
        again = convert(ctx, source(), to=form.name, cwd="/tmp/other", out=out)
        same = convert(ctx, source(), to=form.name, cwd="/tmp/one", out=out)
    assert first.report.warnings == same.report.warnings == ()
    assert (again.to.session_id, again.to.cwd) == (first.to.session_id, "/tmp/one")
    assert [warning for warning in again.report.warnings if "/tmp/one" in warning and "--new" in warning]


@pytest.mark.parametrize("form", [f for f in WRITERS if not f.traits.exported], ids=lambda form: form.name)
def test_the_model_that_was_asked_for_goes_on_or_it_is_told(ctx: Context, form: Format) -> None:
    with ctx:
        for model in ("a/one", "b/two"):
            made = convert(ctx, source(), to=form.name, new=True, model=model)
            opened = open_session(ctx, f"{form.name}:{made.to.session_id}")
            told = [warning for warning in made.report.warnings if model in warning]
            assert (model in (opened.session.model, *made.resume.argv)) != bool(told)


@pytest.mark.parametrize("form", [f for f in WRITERS if f.traits.listed_by], ids=lambda form: form.name)
def test_the_file_that_lists_a_session_comes_back_as_it_was_kept(ctx: Context, form: Format, tmp_path: Path) -> None:
    (name,) = form.traits.listed_by
    with ctx:
        there = convert(ctx, source(), to=form.name)
        (lister,) = (tmp_path / "home").rglob(name)
        data = lister.read_bytes().replace(b"}", b" }")  # as its agent would have written it
        lister.write_bytes(data)
        assert convert(ctx, source(), to=form.name).report.mode == "whole"  # and this is kept
        twin = lister.parent / "notify" / name  # another file of that name is not it
        twin.parent.mkdir()
        twin.write_bytes(b"{}")
        lister.unlink()
        again = convert(ctx, source(), to=form.name)
    assert again.to.session_id == there.to.session_id
    assert lister.read_bytes() == data
