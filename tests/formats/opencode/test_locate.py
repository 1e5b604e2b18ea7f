"""Where OpenCode's sessions lie, which project a folder is of, what is set, and who holds a session."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from clew.conversation.builder import make_user
from clew.errors import AmbiguousError
from clew.formats.opencode import FORMAT
from clew.formats.opencode.names import renamed, session_id, timed_id
from clew.formats.opencode.project import find_project
from clew.formats.opencode.resume import RESUME
from clew.formats.protocol import Found, Home
from clew.laws.stored import make_id
from opencode_samples import ID, OTHER, database, find, load, place, written_rows

TALK = (make_user("hi", time_ms=1_800_000_000_000),)


def sql(home: Home, *statements: str) -> None:
    with closing(sqlite3.connect(database(home))) as connection, connection:
        for statement in statements:
            connection.execute(statement)


# --- where ---------------------------------------------------------------------------------------------------------


def test_the_agents_own_variables_are_followed(tmp_path: Path) -> None:
    locate = FORMAT.locate
    assert locate.base(Home(tmp_path)) == tmp_path / ".local/share/opencode"
    moved = Home(tmp_path, {"XDG_DATA_HOME": str(tmp_path / "data")})
    assert locate.base(moved) == tmp_path / "data/opencode"
    named = Home(tmp_path, {"OPENCODE_DB": str(tmp_path / "mine.db")})
    assert locate.places(named)[0] == tmp_path / "mine.db"
    place(named, written_rows(TALK, database=str(tmp_path / "mine.db")), id_=ID)
    assert locate.surroundings(Home(tmp_path), "/x")["database"] == "opencode.db"  # type: ignore[attr-defined]


def test_databases_of_other_channels_are_found_too(tmp_path: Path) -> None:
    home = Home(tmp_path)
    place(home, written_rows(TALK))
    database(home).rename(database(home).with_name("opencode-dev.db"))
    place(home, written_rows(TALK, id_=OTHER), id_=OTHER)
    assert {(found.id, found.path.name) for found in FORMAT.locate.find(home)} == {
        (ID, "opencode-dev.db"),
        (OTHER, "opencode.db"),
    }
    assert load(home).messages[0].text == "hi"


def test_nothing_is_found_where_nothing_is(tmp_path: Path) -> None:
    assert list(FORMAT.locate.find(Home(tmp_path))) == []
    assert RESUME.owners(Home(tmp_path)) == {}


def test_helpers_and_archived_sessions_are_marked(tmp_path: Path) -> None:
    home = Home(tmp_path)
    place(home, written_rows(TALK))
    place(home, written_rows(TALK, id_=OTHER), id_=OTHER)
    sql(home, f"UPDATE session SET parent_id = '{ID}' WHERE id = '{OTHER}'", "UPDATE session SET time_archived = 5")
    assert find(home).kind == "archived"
    assert find(home, OTHER).kind == "helper"


@pytest.mark.parametrize("hostile", ["../../../etc/passwd", "/etc/passwd", "a/b", "", "ses_\x00", "é" * 50])
def test_hostile_ids_build_no_path(tmp_path: Path, hostile: str) -> None:
    home = Home(tmp_path)
    place(home, written_rows(TALK))
    with closing(sqlite3.connect(database(home))) as connection, connection:
        connection.execute("UPDATE session SET id = ?", (hostile,))
        connection.execute("UPDATE message SET session_id = ?", (hostile,))
        connection.execute("UPDATE part SET session_id = ?", (hostile,))
    (found,) = FORMAT.locate.find(home)
    source = FORMAT.locate.load(found, home)
    assert found.id == hostile
    assert "/" not in source.streams[0].path
    assert ".." not in Path(source.streams[0].path).parts
    assert FORMAT.read(source).messages[0].text == "hi"


def test_a_database_that_is_named_gives_its_only_session(tmp_path: Path) -> None:
    home = Home(tmp_path)
    place(home, written_rows(TALK))
    path = tmp_path / "copy.db"
    path.write_bytes(database(home).read_bytes())
    assert FORMAT.locate.claims(path, path.read_bytes()[:100])
    elsewhere = Home(tmp_path / "elsewhere")
    assert FORMAT.read(FORMAT.locate.load(Found("opencode", "copy", path), elsewhere)).id == ID
    place(home, written_rows(TALK, id_=OTHER), id_=OTHER)
    path.write_bytes(database(home).read_bytes())
    with pytest.raises(AmbiguousError):
        FORMAT.locate.load(Found("opencode", "copy", path), elsewhere)
    assert FORMAT.read(FORMAT.locate.load(Found("opencode", OTHER, path), elsewhere)).id == OTHER


def test_other_databases_are_not_claimed(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE t (x)")
    assert not FORMAT.locate.claims(path, path.read_bytes()[:100])


# --- what is set ---------------------------------------------------------------------------------------------------


def test_the_model_is_that_of_the_configuration_or_the_last_used(tmp_path: Path) -> None:
    home = Home(tmp_path)
    assert FORMAT.locate.settings(home).model == ""
    state = tmp_path / ".local/state/opencode/model.json"
    state.parent.mkdir(parents=True)
    state.write_text(json.dumps({"recent": [{"providerID": "used", "modelID": "last"}]}))
    assert (FORMAT.locate.settings(home).provider, FORMAT.locate.settings(home).model) == ("used", "last")
    config = tmp_path / ".config/opencode/opencode.json"
    config.parent.mkdir(parents=True)
    config.write_text('{\n  // mine\n  "model": "set/by/me",\n}')
    assert (FORMAT.locate.settings(home).provider, FORMAT.locate.settings(home).model) == ("set", "by/me")
    for broken in ("", "[]", "{", '{"model": 5}', '{"model":"' + "x"):
        config.write_text(broken)
        assert FORMAT.locate.settings(home).provider == "used"


def test_else_it_is_the_model_of_the_newest_session(tmp_path: Path) -> None:
    home = Home(tmp_path)
    assert FORMAT.surroundings is not None
    assert "model" not in FORMAT.surroundings(home, "/x")
    place(home, written_rows(TALK, model="lab/one"))
    assert FORMAT.surroundings(home, "/x")["model"] == "lab/one"


# --- projects ------------------------------------------------------------------------------------------------------


def repository(folder: Path, remote: str = "") -> Path:
    (folder / ".git").mkdir(parents=True)
    text = "[core]\n\tbare = false\n" + (f'[remote "origin"]\n\turl = {remote}\n\tfetch = +refs/*\n' if remote else "")
    (folder / ".git" / "config").write_text(text)
    return folder


def test_a_folder_without_git_is_global(tmp_path: Path) -> None:
    assert find_project(tmp_path / "x.db", str(tmp_path)) == {"project": "global", "worktree": "/"}
    assert find_project(tmp_path / "x.db", "C:\\work")["project"] == "global"


@pytest.mark.parametrize(
    "remote",
    [
        "https://Example.com/loom/thread.git",
        "https://user:pw@example.com/loom/thread.git/",
        "git@example.com:loom/thread.git",
        "ssh://git@example.com:22/loom/thread",
    ],
)
def test_a_repository_is_known_by_the_address_of_its_origin(tmp_path: Path, remote: str) -> None:
    folder = repository(tmp_path / "loom", remote) / "deep" / "inside"
    found = find_project(tmp_path / "x.db", str(folder))
    assert found["project"] == "191ffb1fff921c15eff5dee30291f682201dffea"
    assert (found["worktree"], found["vcs"]) == (str(tmp_path / "loom"), "git")


def test_a_repository_without_origin_is_known_by_what_the_agent_noted(tmp_path: Path) -> None:
    folder = repository(tmp_path / "loom", "file:///srv/x.git")
    assert find_project(tmp_path / "x.db", str(folder))["project"] == "global"
    (folder / ".git" / "opencode").write_text("abc123\n")
    assert find_project(tmp_path / "x.db", str(folder))["project"] == "abc123"


def test_a_linked_worktree_shares_its_repository(tmp_path: Path) -> None:
    main = repository(tmp_path / "loom", "git@example.com:loom/thread.git")
    (main / ".git" / "worktrees" / "w").mkdir(parents=True)
    (main / ".git" / "worktrees" / "w" / "commondir").write_text("../..\n")
    linked = tmp_path / "w"
    linked.mkdir()
    (linked / ".git").write_text(f"gitdir: {main}/.git/worktrees/w\n")
    assert (
        find_project(tmp_path / "x.db", str(linked))["project"] == find_project(tmp_path / "x.db", str(main))["project"]
    )


def test_the_agents_own_word_on_a_worktree_goes_first(tmp_path: Path) -> None:
    home = Home(tmp_path)
    folder = repository(tmp_path / "loom", "git@example.com:loom/thread.git")
    place(home, written_rows(TALK, cwd=str(folder), project="known", worktree=str(folder), vcs="git"))
    assert find_project(database(home), str(folder / "deep"))["project"] == "known"


def test_a_session_is_written_for_the_folders_project(tmp_path: Path) -> None:
    home = Home(tmp_path)
    folder = repository(tmp_path / "loom", "git@example.com:loom/thread.git") / "deep"
    assert FORMAT.surroundings is not None
    facts = FORMAT.surroundings(home, str(folder))
    place(home, written_rows(TALK, cwd=str(folder), **facts))
    with closing(sqlite3.connect(database(home))) as connection:
        row = connection.execute("SELECT project_id, directory, path FROM session").fetchone()
        project = connection.execute("SELECT id, worktree, vcs, sandboxes FROM project").fetchone()
    assert row == (facts["project"], str(folder), "deep")
    assert project == (facts["project"], str(tmp_path / "loom"), "git", "[]")


# --- ids -----------------------------------------------------------------------------------------------------------


def test_ids_ascend_with_time_and_count() -> None:
    ids = [timed_id("msg", ms, count, "x") for ms in (1_796_066_502_784, 1_796_066_502_785) for count in (0, 1, 4095)]
    assert ids == sorted(ids)
    assert ids[0].startswith("msg_22de7e880000")
    assert len(set(map(len, ids))) == 1 == len({len(ids[0])} & {30})


def test_a_derived_id_is_always_the_same() -> None:
    assert session_id(make_id("x")) == session_id(make_id("x")) != session_id(make_id("y"))
    assert len(ID) == 30
    assert renamed(ids := timed_id("prt", 1, 1, "x"), "a") != renamed(ids, "b")
    assert renamed(ids, "a")[:16] == ids[:16]
    assert renamed("odd", "a").startswith("odd")


# --- who holds it --------------------------------------------------------------------------------------------------

AGENT = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1])
db.execute("PRAGMA journal_mode=WAL")
db.execute("SELECT count(*) FROM message").fetchone()
print("open", flush=True)
sys.stdin.readline()
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the kernel's list of locks is Linux's")
def test_a_process_that_has_the_database_open_holds_its_session(tmp_path: Path) -> None:
    home, folder = Home(tmp_path / "home"), tmp_path / "work"
    folder.mkdir()
    place(home, written_rows(TALK, cwd=str(folder)))
    place(home, written_rows(TALK, id_=OTHER), id_=OTHER)
    assert RESUME.owner(find(home), home) is None
    for named, held in (((), ID), (("--session", OTHER), OTHER)):
        argv = [sys.executable, "-c", AGENT, str(database(home)), *named]
        with subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=folder if held == ID else "/"
        ) as agent:
            assert agent.stdin is not None
            assert agent.stdout is not None
            assert agent.stdout.readline() == "open\n"
            owners = RESUME.owners(home)
            assert {id_: owner.pid for id_, owner in owners.items()} == {held: agent.pid}
            owner = RESUME.owner(find(home, held), home)
            assert owner is not None
            assert owner.pid == agent.pid
            assert RESUME.owner(find(home, ID if held == OTHER else OTHER), home) is None
            agent.stdin.write("\n")
    assert RESUME.owners(home) == {}


def test_command_lines() -> None:
    assert RESUME.argv("ses_1") == ("opencode", "--session", "ses_1")
    assert RESUME.argv("ses_1", model="a/b", extra=("-x",)) == (
        "opencode",
        "--session",
        "ses_1",
        "--model",
        "a/b",
        "-x",
    )
    assert RESUME.fork_argv("ses_1") == ("opencode", "--session", "ses_1", "--fork")
