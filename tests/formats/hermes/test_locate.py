"""Where Hermes's sessions lie, what is set, and who holds a session."""

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
from clew.formats.goose import FORMAT as GOOSE
from clew.formats.hermes import FORMAT
from clew.formats.hermes.resume import RESUME
from clew.formats.protocol import Found, Home
from hermes_samples import ID, OTHER, database, find, place, written_rows

TALK = (make_user("hi", time_ms=1_800_000_000_000),)


def sql(home: Home, *statements: str) -> None:
    with closing(sqlite3.connect(database(home))) as connection, connection:
        for statement in statements:
            connection.execute(statement)


def place_other(home: Home, cwd: str = "/elsewhere") -> None:
    assert FORMAT.surroundings is not None
    place(home, written_rows(TALK, id_=OTHER, cwd=cwd, **FORMAT.surroundings(home, cwd)), id_=OTHER)


def test_the_agents_own_variable_is_followed(tmp_path: Path) -> None:
    assert FORMAT.locate.base(Home(tmp_path)) == tmp_path / ".hermes"
    moved = Home(tmp_path, {"HERMES_HOME": str(tmp_path / "mine")})
    assert FORMAT.locate.places(moved) == (tmp_path / "mine/state.db",)
    place(moved, written_rows(TALK))
    assert find(moved).cwd_hint == "/home/dev1/proj/loom"


def test_nothing_is_found_where_nothing_is(tmp_path: Path) -> None:
    assert list(FORMAT.locate.find(Home(tmp_path))) == []
    assert RESUME.owners(Home(tmp_path)) == {}
    assert FORMAT.surroundings is not None
    assert FORMAT.surroundings(Home(tmp_path), "/x") == {}


def test_sessions_are_of_three_kinds(tmp_path: Path) -> None:
    home = Home(tmp_path)
    place(home, written_rows(TALK))
    place_other(home)
    sql(home, f"UPDATE sessions SET parent_session_id = '{ID}' WHERE id = '{OTHER}'")
    assert (find(home).kind, find(home, OTHER).kind) == ("session", "session")
    sql(home, f"UPDATE sessions SET end_reason = 'compression' WHERE id = '{ID}'")
    assert (find(home).kind, find(home, OTHER).kind) == ("archived", "session")
    sql(home, f"""UPDATE sessions SET model_config = '{{"_delegate_from":"x"}}' WHERE id = '{OTHER}'""")
    sql(home, f"UPDATE sessions SET end_reason = NULL, archived = 1 WHERE id = '{ID}'")
    assert (find(home).kind, find(home, OTHER).kind) == ("archived", "helper")


@pytest.mark.parametrize("hostile", ["../../../etc/passwd", "/etc/passwd", "a/b", "", "s\x00", "é" * 50])
def test_hostile_ids_build_no_path(tmp_path: Path, hostile: str) -> None:
    home = Home(tmp_path)
    place(home, written_rows(TALK))
    with closing(sqlite3.connect(database(home))) as connection, connection:
        connection.execute("UPDATE sessions SET id = ?", (hostile,))
        connection.execute("UPDATE messages SET session_id = ?", (hostile,))
    (found,) = FORMAT.locate.find(home)
    source = FORMAT.locate.load(found, home)
    assert found.id == hostile
    assert "/" not in source.streams[0].path
    assert ".." not in Path(source.streams[0].path).parts
    assert FORMAT.read(source).messages[0].text == "hi"


def test_a_database_that_is_named_gives_its_only_session(tmp_path: Path) -> None:
    home, elsewhere = Home(tmp_path), Home(tmp_path / "elsewhere")
    place(home, written_rows(TALK))
    path = tmp_path / "copy.db"
    path.write_bytes(database(home).read_bytes())
    assert FORMAT.locate.claims(path, path.read_bytes()[:100])
    assert not GOOSE.locate.claims(path, path.read_bytes()[:100])
    assert FORMAT.read(FORMAT.locate.load(Found("hermes", "copy", path), elsewhere)).id == ID
    place_other(home)
    path.write_bytes(database(home).read_bytes())
    with pytest.raises(AmbiguousError):
        FORMAT.locate.load(Found("hermes", "copy", path), elsewhere)
    assert FORMAT.read(FORMAT.locate.load(Found("hermes", OTHER, path), elsewhere)).id == OTHER


def test_other_databases_are_not_claimed(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE sessions (id text, description text)")
        connection.execute("CREATE TABLE messages (id integer, session_id text, content_json text)")
    assert not FORMAT.locate.claims(path, path.read_bytes()[:100])
    assert not FORMAT.locate.claims(path, b"no database")


def test_the_model_is_that_of_the_configuration(tmp_path: Path) -> None:
    home = Home(tmp_path)
    assert FORMAT.locate.settings(home).model == ""
    config = tmp_path / ".hermes/config.yaml"
    config.parent.mkdir()
    config.write_text(
        'other:\n  default: x\nmodel:  # mine\n  provider: "custom"\n\n  default: lab-model # it\nmore: 1\n'
    )
    assert (FORMAT.locate.settings(home).provider, FORMAT.locate.settings(home).model) == ("custom", "lab-model")
    for broken in ("", "model: plain\n", "model:\n", "model:\n  default:\n", "\x00"):
        config.write_text(broken)
        assert FORMAT.locate.settings(home).model == ""


def test_a_writer_is_told_of_numbers_titles_and_columns(tmp_path: Path) -> None:
    home = Home(tmp_path)
    place(home, written_rows((*TALK, *TALK)))
    sql(home, "UPDATE sessions SET title = 'Knots'", "DELETE FROM messages WHERE id = 2")
    assert FORMAT.surroundings is not None
    facts = FORMAT.surroundings(home, "/x")
    assert facts["last"] == "2"  # a number is never given twice
    assert json.loads(facts["titles"]) == ["Knots"]
    assert facts["columns.state_meta"] == "key,value"
    database(home).write_bytes(b"spoiled")
    assert FORMAT.surroundings(home, "/x") == {}


AGENT = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1])
db.execute("PRAGMA journal_mode=WAL")
db.execute("SELECT count(*) FROM messages").fetchone()
print("open", flush=True)
sys.stdin.readline()
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the kernel's list of locks is Linux's")
def test_a_process_that_has_the_database_open_holds_its_session(tmp_path: Path) -> None:
    home, folder = Home(tmp_path / "home"), tmp_path / "work"
    folder.mkdir()
    place(home, written_rows(TALK, cwd=str(folder)))
    place_other(home)
    assert RESUME.owner(find(home), home) is None
    for named, held in (((), ID), (("--resume", OTHER), OTHER)):
        argv = [sys.executable, "-c", AGENT, str(database(home)), *named]
        with subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=folder if held == ID else "/"
        ) as agent:
            assert agent.stdin is not None
            assert agent.stdout is not None
            assert agent.stdout.readline() == "open\n"
            assert {id_: owner.pid for id_, owner in RESUME.owners(home).items()} == {held: agent.pid}
            owner = RESUME.owner(find(home, held), home)
            assert owner is not None
            assert owner.pid == agent.pid
            assert RESUME.owner(find(home, ID if held == OTHER else OTHER), home) is None
            agent.stdin.write("\n")
    assert RESUME.owners(home) == {}


def test_command_lines() -> None:
    assert RESUME.argv("s1") == ("hermes", "--resume", "s1")
    assert RESUME.argv("s1", model="m", extra=("-x",)) == ("hermes", "--resume", "s1", "--model", "m", "-x")
    assert RESUME.fork_argv("s1") == ()
