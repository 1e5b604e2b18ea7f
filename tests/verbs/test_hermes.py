"""Sessions of Hermes through the verbs: carried, gone on with, kept, restored; whatever its database is like."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from clew.conversation.builder import make_assistant, make_call, make_result, make_user
from clew.errors import ClewError, Refused
from clew.formats.hermes import FORMAT
from clew.formats.protocol import Home
from clew.platform.clock import FixedClock
from clew.verbs.context import Context
from clew.verbs.convert import convert
from clew.verbs.keep import keep
from clew.verbs.ls import ls
from clew.verbs.refer import open_session
from clew.verbs.restore import restore
from clew.verbs.resume import resume
from hermes_samples import ID, OTHER, database, keys, place, written_rows

TALK = (
    make_user("Which knots?", time_ms=1_800_000_000_000),
    make_assistant("I look.", make_call("c1", "terminal", '{"command":"ls"}'), time_ms=1_800_000_001_000),
    make_result("c1", "bowline\n"),
    make_assistant("One knot.", time_ms=1_800_000_002_000),
)


def sql(root: Path, *statements: str) -> None:
    with closing(sqlite3.connect(database(Home(root)))) as connection, connection:
        for statement in statements:
            connection.execute(statement)


@pytest.fixture
def ctx(tmp_path: Path) -> Iterator[Context]:
    home = Home(tmp_path)
    assert FORMAT.surroundings is not None
    place(home, written_rows(TALK))
    place(home, written_rows((make_user("Another talk."),), id_=OTHER, **FORMAT.surroundings(home, "/")), id_=OTHER)
    sql(tmp_path, f"UPDATE sessions SET title = 'Knots' WHERE id = '{ID}'")
    clock = FixedClock(datetime(2031, 1, 1, 12, tzinfo=UTC))
    with Context(home, tmp_path / "clew-data", cwd=tmp_path, clock=clock) as made:
        yield made


def rows_of(root: Path, id_: str = ID) -> bytes | None:
    assert FORMAT.present_rows is not None
    found = FORMAT.present_rows(Home(root), f"state.db#{id_}")
    return None if found is None else bytes(found)


def delete(root: Path) -> None:
    """Deletes a session as the agent does."""
    sql(root, f"DELETE FROM messages WHERE session_id = '{ID}'", f"DELETE FROM sessions WHERE id = '{ID}'")


def go_on(path: str) -> None:
    """Adds a turn to a Codex thread, as its user would."""
    content = [{"type": "input_text", "text": "One more turn."}]
    item = {"type": "message", "role": "user", "content": content}
    line = {"timestamp": "2030-06-01T00:00:00.000Z", "type": "response_item", "payload": item}
    with Path(path).open("ab") as file:
        file.write(json.dumps(line).encode() + b"\n")


def test_sessions_are_listed_and_resumed(ctx: Context) -> None:
    assert {(row.id, row.title, row.messages) for row in ls(ctx, every_folder=True)} == {
        (ID, "Knots", 3),
        (OTHER, "Another talk.", 1),
    }
    assert resume(ctx, ID, dry_run=True).argv == ("hermes", "--resume", ID)


def test_what_came_later_is_put_behind_the_rows_that_are_there(ctx: Context, tmp_path: Path) -> None:
    rows, other = rows_of(tmp_path), rows_of(tmp_path, OTHER)
    assert rows is not None
    made = convert(ctx, ID, to="codex")
    go_on(made.to.path)
    back = convert(ctx, f"codex:{made.to.session_id}", to="hermes")
    assert (back.to.session_id, back.report.mode, back.report.rendered_messages) == (ID, "prefix", 1)
    after = rows_of(tmp_path)
    assert after is not None
    assert after.startswith(rows)
    assert rows_of(tmp_path, OTHER) == other
    assert open_session(ctx, ID).session.messages[-1].text == "One more turn."


def test_a_deleted_session_comes_back_equal_in_every_column_and_goes_on(ctx: Context, tmp_path: Path) -> None:
    rows = rows_of(tmp_path)
    assert rows is not None
    list(keep(ctx, [ID]))
    made = convert(ctx, ID, to="codex")
    delete(tmp_path)
    restore(ctx, ID)
    assert rows_of(tmp_path) == rows
    delete(tmp_path)
    go_on(made.to.path)
    back = convert(ctx, f"codex:{made.to.session_id}", to="hermes")
    assert (back.to.session_id, back.report.mode) == (ID, "prefix")
    after = rows_of(tmp_path)
    assert after is not None
    assert after.startswith(rows)


def test_where_others_have_its_numbers_only_a_second_session_is_made(ctx: Context, tmp_path: Path) -> None:
    list(keep(ctx, [ID]))
    made = convert(ctx, ID, to="codex")
    delete(tmp_path)
    sql(tmp_path, f"UPDATE messages SET id = 1 WHERE session_id = '{OTHER}'")  # a database that began anew
    with pytest.raises(Refused, match=r"table '\w+' is in the way \(\w+ .*, which belongs to session "):
        restore(ctx, ID)
    fresh = convert(ctx, f"codex:{made.to.session_id}", to="hermes", new=True)
    assert fresh.to.session_id not in (ID, OTHER)
    assert keys(open_session(ctx, fresh.to.session_id).session.messages) == keys(TALK)


def usage(root: Path) -> list[tuple[str, ...]]:
    with closing(sqlite3.connect(database(Home(root)))) as connection:
        return connection.execute("SELECT session_id, model FROM session_model_usage").fetchall()


@pytest.mark.parametrize("counted", [True, False])
def test_rows_left_without_their_session_are_named_with_what_to_do(counted: bool, ctx: Context, tmp_path: Path) -> None:
    count = f"INSERT INTO session_model_usage (session_id, model) VALUES ('{ID}', 'm-1')"
    if counted:
        sql(tmp_path, count)
    list(keep(ctx, [ID]))
    made = convert(ctx, ID, to="codex")
    delete(tmp_path)
    if not counted:
        sql(tmp_path, count)
    go_on(made.to.path)
    path = str(database(Home(tmp_path)))
    for act in (lambda: restore(ctx, ID), lambda: convert(ctx, f"codex:{made.to.session_id}", to="hermes")):
        with pytest.raises(Refused) as caught:
            act()
        error = caught.value
        assert (error.code, error.concerns["path"], error.concerns["table"]) == (
            "target_diverged",
            path,
            "session_model_usage",
        )
        assert error.message.startswith(f"{path}: a row of the table 'session_model_usage' is in the way (")
        assert f"session_id '{ID}', model 'm-1'" in error.message
        assert f"left of session {ID}, which is gone" in error.message
        assert "UNIQUE" not in error.message
        assert error.hint.startswith(f"With the agent ended, take the rows of session {ID} out of session_model_usage")
        assert rows_of(tmp_path) is None
    assert usage(tmp_path) == [(ID, "m-1")]
    sql(tmp_path, "DELETE FROM session_model_usage")
    restore(ctx, ID)
    assert open_session(ctx, ID).found is not None


def test_a_second_session_has_numbers_of_its_own(ctx: Context, tmp_path: Path) -> None:
    before = rows_of(tmp_path)
    made = convert(ctx, ID, to="hermes", new=True)
    assert made.report.mode == "rebased"
    assert rows_of(tmp_path) == before
    session = open_session(ctx, made.to.session_id).session
    assert (session.title, keys(session.messages)) == ("", keys(TALK))


def spoil(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[:4096] + b"\x5a" * (len(data) - 4096))


@pytest.mark.parametrize(
    "change",
    [
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(b"no database"),
        lambda path: path.with_name("state.db-journal").write_bytes(b"\xd9\xd5\x05\xf9 hot"),
        spoil,
        "UPDATE schema_version SET version = 23",
        "DROP TABLE schema_version",
        "ALTER TABLE messages DROP COLUMN api_content",
        "DROP TABLE messages",
    ],
)
def test_no_database_makes_it_stumble_or_write(
    ctx: Context, tmp_path: Path, change: str | Callable[[Path], object]
) -> None:
    made = convert(ctx, ID, to="codex")
    go_on(made.to.path)
    path = database(Home(tmp_path))
    if isinstance(change, str):
        sql(tmp_path, change)
    else:
        change(path)
    before = path.read_bytes()
    for new in (False, True):
        with pytest.raises(ClewError):
            convert(ctx, f"codex:{made.to.session_id}", to="hermes", new=new)
    list(ls(ctx, every_folder=True))
    assert path.read_bytes() == before
