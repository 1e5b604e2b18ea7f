"""A database that cannot be read: told with its reason by the list, and by whoever asks for a session in it."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

import hermes_samples
import opencode_samples
from clew.conversation.builder import make_user
from clew.errors import FormatError, NotFoundError
from clew.formats.protocol import Home
from clew.formats.registry import get_format
from clew.platform.clock import FixedClock
from clew.verbs.context import Context
from clew.verbs.convert import convert
from clew.verbs.keep import keep
from clew.verbs.ls import ls
from clew.verbs.refer import open_session
from kept_databases import BASES, make

TALK = (make_user("Which knots?", time_ms=1_800_000_000_000),)


@contextmanager
def at_work(root: Path) -> Iterator[Context]:
    clock = FixedClock(datetime(2031, 1, 1, tzinfo=UTC))
    with Context(Home(root / "home"), root / "data", cwd=root, clock=clock) as ctx:
        yield ctx


def opencode(home: Path) -> tuple[Path, str]:
    opencode_samples.place(Home(home), opencode_samples.written_rows(TALK))
    return opencode_samples.database(Home(home)), opencode_samples.ID


def hermes(home: Path) -> tuple[Path, str]:
    hermes_samples.place(Home(home), hermes_samples.written_rows(TALK))
    return hermes_samples.database(Home(home)), hermes_samples.ID


def kept(number: int) -> Callable[[Path], tuple[Path, str]]:
    def build(home: Path) -> tuple[Path, str]:
        return make(BASES[number], home), BASES[number].ids[0]

    return build


AGENTS = {
    "opencode": opencode,
    "hermes": hermes,
    **{base.agent: kept(number) for number, base in enumerate(BASES)},
}


def overwrite(path: Path) -> None:
    path.write_bytes(b"no database at all, and long enough to be looked at" * 40)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:5000])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def link(path: Path) -> None:
    path.rename(path.with_name("elsewhere.bin"))
    path.symlink_to("elsewhere.bin")


def directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def drop(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db, db:
        names = [row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for name in names:
            if not name.startswith("sqlite_") and "fts" not in name:
                db.execute(f'ALTER TABLE "{name}" RENAME TO "was_{name}"')


@pytest.mark.parametrize("spoil", [overwrite, truncate, empty, link, directory, drop], ids=lambda one: one.__name__)
@pytest.mark.parametrize("agent", AGENTS)
def test_a_session_in_a_database_that_cannot_be_read_is_not_said_to_be_missing(
    agent: str, spoil: Callable[[Path], None], tmp_path: Path
) -> None:
    path, session_id = AGENTS[agent](tmp_path / "home")
    for extra in ("-wal", "-shm"):
        Path(f"{path}{extra}").unlink(missing_ok=True)
    spoil(path)
    with at_work(tmp_path) as ctx:
        (row,) = ls(ctx, agent=agent, every_folder=True)
        assert (row.state, row.path, ctx.notes) == ("unreadable", str(path), [])
        assert list(ls(ctx, agent=agent)) == []
        assert ctx.notes == [f"{row.detail}; its sessions are not listed"]
        assert row.detail.startswith(str(path))
        assert row.detail.count(str(path)) == 1
        asks: tuple[Callable[[], object], ...] = (
            lambda: open_session(ctx, f"{agent}:{session_id}"),
            lambda: open_session(ctx, session_id),
            lambda: open_session(ctx, f"{agent}:@"),
            lambda: list(keep(ctx, [f"{agent}:{session_id}"])),
            lambda: convert(ctx, f"{agent}:{session_id}", to="codex"),
            lambda: open_session(ctx, f"{agent}:{row.id}"),
        )
        for ask in asks:
            with pytest.raises(FormatError) as caught:
                ask()
            error = caught.value
            assert (error.exit_code, error.concerns["path"]) == (6, str(path))
            assert error.message.count(str(path)) == 1
            assert error.message.startswith(row.detail)
            assert error.hint


def test_what_is_wrong_now_is_told_not_what_was(tmp_path: Path) -> None:
    path, _ = opencode(tmp_path / "home")
    with at_work(tmp_path) as ctx:
        overwrite(path)
        assert "no SQLite database" in next(iter(ls(ctx, every_folder=True))).detail
        directory(path)
        assert "is a directory" in next(iter(ls(ctx, every_folder=True))).detail


def test_what_clew_kept_and_what_other_agents_have_is_found_all_the_same(tmp_path: Path) -> None:
    path, session_id = opencode(tmp_path / "home")
    with at_work(tmp_path) as ctx:
        list(keep(ctx, [session_id]))
        made = convert(ctx, session_id, to="codex")
        overwrite(path)
        assert open_session(ctx, session_id).session.messages[0].text == "Which knots?"
        assert open_session(ctx, made.to.session_id).format.name == "codex"
        shutil.rmtree(path.parent)
        with pytest.raises(NotFoundError):
            open_session(ctx, "opencode:ses_none")


def place_of(agent: str, home: Path) -> Path:
    form = get_format(agent)
    return next(place for place in (*form.locate.places(Home(home)), form.locate.base(Home(home))) if not place.suffix)


FOLDERS = ["claude", "cline", "codex", "droid", "gemini", "goose", "grok", "kimi", "openhands", "pi", "qwen", "vibe"]


@pytest.mark.parametrize("way", ["file", "link"])
@pytest.mark.parametrize("agent", FOLDERS)
def test_a_place_that_cannot_be_looked_into_is_told(agent: str, way: str, tmp_path: Path) -> None:
    place = place_of(agent, tmp_path / "home")
    place.parent.mkdir(parents=True)
    if way == "file":
        place.write_bytes(b"")
    else:
        place.symlink_to("/nowhere/at-all")
    says = "is no folder" if way == "file" else "is a link that leads nowhere"
    with at_work(tmp_path) as ctx:
        assert list(ls(ctx, agent=agent, every_folder=True)) == []
        (note,) = ctx.notes
        assert note.startswith(f"{place} {says}")
        for name in (f"{agent}:0123abcd", "0123abcd"):
            with pytest.raises(FormatError) as caught:
                open_session(ctx, name)
            assert caught.value.message.startswith(f"{place} {says}")
            assert (caught.value.exit_code, caught.value.concerns["path"]) == (6, str(place))
            assert caught.value.hint
