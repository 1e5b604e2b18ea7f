"""Hermes's database: read as it stands without a trace, written in one transaction or not at all."""

from __future__ import annotations

import hashlib
import os
import shutil
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from clew.conversation.builder import make_assistant, make_call, make_result, make_user
from clew.errors import ClewError, NotFoundError, Refused, UnreadableSource, UnsupportedVersion
from clew.formats.hermes import FORMAT
from clew.formats.protocol import Found, Home
from clew.platform.faults import InjectedFault, installed
from hermes_samples import ID, NOW, OTHER, database, find, joined, load, options, place, written_rows

TALK = (
    make_user("Which knots?", time_ms=1_800_000_000_000),
    make_assistant("I look.", make_call("c1", "bash", '{"command":"ls"}'), time_ms=1_800_000_001_000),
    make_result("c1", "bowline\n"),
    make_assistant("One knot.", time_ms=1_800_000_002_000),
)
MORE = (make_user("And now?", time_ms=1_800_000_003_000), make_assistant("Nothing.", time_ms=1_800_000_004_000))


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


@pytest.fixture
def kept(home: Home) -> bytes:
    rows = written_rows(TALK)
    place(home, rows)
    return rows


def spliced(home: Home) -> bytes:
    assert FORMAT.splice is not None
    assert FORMAT.surroundings is not None
    return joined(FORMAT.splice(load(home), MORE, options(**FORMAT.surroundings(home, "/x"))))


def another(home: Home, id_: str = OTHER) -> bytes:
    assert FORMAT.surroundings is not None
    return written_rows(TALK, id_=id_, **FORMAT.surroundings(home, "/x"))


def digests(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}


def sql(home: Home, *statements: str) -> None:
    with closing(sqlite3.connect(database(home))) as connection, connection:
        for statement in statements:
            connection.execute(statement)


def present(home: Home, id_: str = ID) -> bytes | None:
    assert FORMAT.present_rows is not None
    found = FORMAT.present_rows(home, f"state.db#{id_}")
    return None if found is None else bytes(found)


# --- reading ------------------------------------------------------------------------------------------------------


def test_a_new_database_is_private_and_holds_the_session(home: Home, kept: bytes) -> None:
    assert stat.S_IMODE(database(home).stat().st_mode) == 0o600
    assert [path.name for path in database(home).parent.iterdir()] == ["state.db"]
    assert present(home) == kept
    assert find(home).kind == "session"
    assert find(home).cwd_hint == "/home/dev1/proj/loom"


@pytest.fixture
def killed(home: Home, kept: bytes) -> Path:
    """A database whose newest rows are only in its log, as a killed process leaves it."""
    path = database(home)
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA wal_autocheckpoint=0")
    connection.execute(
        "INSERT INTO messages (session_id, role, content, timestamp) VALUES (?, 'user', ?, 1800000009)",
        (ID, "In the log only."),
    )
    copy = path.parent.parent / "copied"
    copy.mkdir()
    for name in ("state.db", "state.db-wal"):
        shutil.copyfile(path.with_name(name), copy / name)
    connection.close()
    shutil.rmtree(path.parent)
    copy.rename(path.parent)
    return path


def test_what_is_only_in_the_log_is_read_and_nothing_is_touched(home: Home, killed: Path) -> None:
    before = digests(killed.parent)
    assert len(before) == 2
    assert load(home).messages[-1].text == "In the log only."
    assert digests(killed.parent) == before


def test_a_folder_that_cannot_be_written_is_read(home: Home, killed: Path) -> None:
    killed.parent.chmod(0o500)
    killed.chmod(0o400)
    try:
        assert load(home).messages[-1].text == "In the log only."
        assert len(list(killed.parent.iterdir())) == 2
    finally:
        killed.parent.chmod(0o700)


def test_a_torn_log_gives_what_was_committed(home: Home, killed: Path) -> None:
    log = killed.with_name("state.db-wal")
    log.write_bytes(log.read_bytes()[:-1000])
    assert load(home).messages[-1].text in ("One knot.", "In the log only.")
    log.write_bytes(b"no log at all")
    assert load(home).messages[-1].text == "One knot."


def test_a_live_writer_is_not_waited_for(home: Home, kept: bytes) -> None:
    with closing(sqlite3.connect(database(home), isolation_level=None)) as writer:
        writer.execute("BEGIN EXCLUSIVE")
        writer.execute("DELETE FROM messages")
        assert present(home) == kept
        writer.execute("ROLLBACK")


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda path: path.write_bytes(b""), "is empty"),
        (lambda path: path.write_bytes(b"no database"), "no SQLite database"),
        (lambda path: path.write_bytes(path.read_bytes()[:8192] + b"\x5a" * 90_000), ""),
        (lambda path: path.with_name("state.db-journal").write_bytes(b"\xd9\xd5\x05\xf9 hot"), "middle of a change"),
    ],
)
def test_a_spoiled_database_is_listed_with_the_reason(
    home: Home, kept: bytes, spoil: Callable[[Path], object], says: str
) -> None:
    spoil(database(home))
    founds = list(FORMAT.locate.find(home))
    for found in founds:
        try:
            FORMAT.read(FORMAT.locate.load(found, home))
        except ClewError:
            continue
    assert founds
    assert says in founds[0].problem


@pytest.mark.parametrize(
    "statement",
    [
        "DROP TABLE messages",
        "ALTER TABLE messages RENAME COLUMN tool_calls TO calls",
        "ALTER TABLE sessions RENAME TO s",
    ],
)
def test_an_unknown_layout_is_refused_by_name(home: Home, kept: bytes, statement: str) -> None:
    sql(home, statement)
    (found,) = FORMAT.locate.find(home)
    assert "of Hermes that clew does not know" in found.problem
    with pytest.raises(UnsupportedVersion):
        FORMAT.locate.load(Found("hermes", ID, database(home)), home)


def test_a_link_is_reported_and_not_followed(home: Home, kept: bytes) -> None:
    path = database(home)
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")
    (found,) = FORMAT.locate.find(home)
    assert "symbolic link" in found.problem
    with pytest.raises(Refused, match="writes through none"):
        place(home, another(home), id_=OTHER)


def test_a_session_that_is_not_there_is_not_found(home: Home, kept: bytes) -> None:
    with pytest.raises(NotFoundError):
        FORMAT.locate.load(Found("hermes", OTHER, database(home)), home)
    assert present(home, OTHER) is None
    assert present(Home(home.root / "nowhere")) is None


def test_a_stamp_changes_with_the_session_and_with_no_other(home: Home, kept: bytes) -> None:
    place(home, another(home), id_=OTHER)
    mine, other = find(home).stamp, find(home, OTHER).stamp
    place(home, spliced(home), kept)
    assert find(home).stamp != mine
    assert find(home, OTHER).stamp == other
    changed = find(home).stamp
    sql(home, f"UPDATE messages SET active = 0, compacted = 1 WHERE session_id = '{ID}' AND role = 'tool'")
    assert find(home).stamp != changed


def test_values_of_every_sort_are_exported_exactly(home: Home, kept: bytes) -> None:
    sql(
        home,
        "UPDATE sessions SET actual_cost_usd = 9e999, title = CAST(x'ff' AS TEXT), user_id = x'00ff', "
        "handoff_state = '[1, 2]'",
    )
    rows = present(home)
    assert rows is not None
    for form in (
        b'"actual_cost_usd":{"real":"inf"}',
        b'"title":{"text":"/w=="}',
        b'"user_id":{"blob":"AP8="}',
        b'"handoff_state":{"json":[1, 2]}',
    ):
        assert form in rows
    other = Home(home.root / "other")
    place(other, rows)
    assert present(other) == rows


def test_counts_and_goals_come_along_and_notes_of_others_do_not(home: Home, kept: bytes) -> None:
    sql(
        home,
        f"INSERT INTO session_model_usage (session_id, model) VALUES ('{ID}', 'm-1'), ('{OTHER}', 'm-2')",
        f"INSERT INTO state_meta VALUES ('goal:{ID}', 'wind it up'), ('goal:{OTHER}', 'other'), ('auto', '1')",
        "INSERT INTO state_meta VALUES ('clew:message:99', '{}')",
    )
    rows = present(home)
    assert rows is not None
    assert b"wind it up" in rows
    assert b"m-1" in rows
    assert not any(word in rows for word in (b"m-2", b"other", b"auto", b"message:99"))
    place(home, kept, rows)
    assert present(home) == kept
    place(home, rows, kept)
    assert present(home) == rows


# --- writing ------------------------------------------------------------------------------------------------------


def test_only_the_sessions_own_rows_are_written(home: Home, kept: bytes) -> None:
    place(home, another(home), id_=OTHER)
    other = present(home, OTHER)
    place(home, spliced(home), kept)
    assert present(home, OTHER) == other


@pytest.mark.parametrize("expect", ["absent", "older", "other"])
def test_anything_unexpected_refuses_and_changes_nothing(home: Home, kept: bytes, expect: str) -> None:
    after = spliced(home)
    sql(home, f"UPDATE sessions SET title = 'changed' WHERE id = '{ID}'")
    before = present(home)
    given = {"absent": None, "older": kept, "other": kept.replace(b"bowline", b"sheepshank")}[expect]
    with pytest.raises(Refused) as refused:
        place(home, after, given)
    assert refused.value.code == "target_diverged"
    assert present(home) == before


def test_a_session_that_is_gone_is_no_session_to_go_on_with(home: Home, kept: bytes) -> None:
    after = spliced(home)
    sql(home, f"DELETE FROM sessions WHERE id = '{ID}'")
    with pytest.raises(Refused, match="is gone meanwhile"):
        place(home, after, kept)


def test_rows_go_back_to_what_they_were(home: Home, kept: bytes) -> None:
    after = spliced(home)
    place(home, after, kept)
    place(home, kept, after)
    assert present(home) == kept


@pytest.mark.parametrize("point", ["rows.before-check", "rows.before-commit"])
def test_a_fault_leaves_all_as_it_was(home: Home, kept: bytes, point: str) -> None:
    after = spliced(home)
    with installed(f"{point}=raise"), pytest.raises(InjectedFault):
        place(home, after, kept)
    assert present(home) == kept
    place(home, after, kept)
    assert present(home) == after


@pytest.mark.parametrize("point", ["rows.before-check", "rows.before-commit"])
def test_a_fault_while_a_database_is_made_leaves_none(home: Home, point: str) -> None:
    with installed(f"{point}=raise"), pytest.raises(InjectedFault):
        place(home, written_rows(TALK))
    assert list(database(home).parent.iterdir()) == []


HOLDER = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("BEGIN IMMEDIATE")
print("held", flush=True)
sys.stdin.readline()
db.execute("ROLLBACK")
print(db.execute("SELECT count(*) FROM messages").fetchone()[0], flush=True)
sys.stdin.readline()
print(db.execute("SELECT count(*) FROM messages").fetchone()[0], flush=True)
"""


def test_a_database_in_use_is_written_when_its_user_rests_and_refused_when_not(
    home: Home, kept: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    after = spliced(home)
    monkeypatch.setattr("clew.formats.sqlite.BUSY_MS", 50)
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(database(home))], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as agent:
        assert agent.stdin is not None
        assert agent.stdout is not None
        assert agent.stdout.readline() == "held\n"
        with pytest.raises(Refused) as refused:
            place(home, after, kept)
        assert refused.value.code == "database_busy"
        agent.stdin.write("\n")
        agent.stdin.flush()
        assert agent.stdout.readline() == "4\n"
        place(home, after, kept)  # it has the database open still
        agent.stdin.write("\n")
        agent.stdin.flush()
        assert agent.stdout.readline() == "6\n"
    assert present(home) == after


def test_a_log_without_its_database_is_never_adopted(home: Home, killed: Path) -> None:
    killed.unlink()
    before = digests(killed.parent)
    with pytest.raises(Refused) as refused:
        place(home, written_rows(TALK))
    assert refused.value.code == "orphaned_log"
    assert digests(killed.parent) == before


def test_a_database_that_appears_meanwhile_is_not_replaced(home: Home) -> None:
    def appear() -> None:
        database(home).write_bytes(b"somebody else's")

    with installed(rows__before_commit=appear), pytest.raises(Refused) as refused:
        place(home, written_rows(TALK))
    assert refused.value.code == "target_diverged"
    assert database(home).read_bytes() == b"somebody else's"


def test_ids_of_another_session_stand_in_the_way(home: Home, kept: bytes) -> None:
    stolen = kept.replace(ID.encode(), OTHER.encode())  # numbers of messages are keys of the whole table
    with pytest.raises(Refused, match=r"table '\w+' is in the way \(\w+ .*, which belongs to session "):
        place(home, stolen, id_=OTHER)
    assert present(home, OTHER) is None
    assert present(home) == kept


@pytest.mark.parametrize(
    ("statement", "says"),
    [
        ("UPDATE schema_version SET version = 23", "newer than the one that clew writes"),
        ("UPDATE schema_version SET version = 21", "not brought up to layout 22: layout 21"),
        ("DELETE FROM schema_version", "not brought up to layout 22: layout unknown"),
        ("INSERT INTO schema_version VALUES (22)", "layout 22, 22"),
        ("DROP TABLE schema_version", "layout unknown"),
        ("ALTER TABLE messages DROP COLUMN api_content", "no column messages.api_content"),
        ("DROP TABLE state_meta", "no column state_meta.key"),
    ],
)
def test_another_layout_is_read_and_never_written(home: Home, kept: bytes, statement: str, says: str) -> None:
    after = spliced(home)
    sql(home, statement)
    before = digests(database(home).parent)
    assert load(home).messages[-1].text == "One knot."
    with pytest.raises(UnsupportedVersion) as refused:
        place(home, after, present(home))
    assert says in refused.value.message
    assert "nothing was written" in refused.value.message
    assert digests(database(home).parent) == before


def test_columns_that_a_later_version_added_take_their_defaults(home: Home, kept: bytes) -> None:
    sql(home, "ALTER TABLE messages ADD COLUMN later TEXT DEFAULT 'new'", "ALTER TABLE sessions ADD COLUMN more INT")
    place(home, another(home), id_=OTHER)
    assert load(home, OTHER).messages[-1].text == "One knot."
    rows = present(home, OTHER)
    assert rows is not None
    assert rows.count(b'"later":"new"') == 4


def test_the_agents_search_finds_what_is_written(home: Home, kept: bytes) -> None:
    connection = apsw.Connection(str(database(home)))
    connection.execute("CREATE VIRTUAL TABLE messages_fts USING fts5(content, tokenize='trigram')")
    connection.execute(
        "CREATE TRIGGER t AFTER INSERT ON messages BEGIN "
        "INSERT INTO messages_fts(rowid, content) VALUES (new.id, new.content); END"
    )
    place(home, spliced(home), kept)
    found = connection.execute("SELECT rowid FROM messages_fts WHERE messages_fts MATCH 'Nothing'").fetchall()
    connection.execute("DROP TABLE messages_fts")
    assert found == [(6,)]
    with pytest.raises(Refused, match="nothing was written"):  # half a migration: triggers without their table
        place(home, another(home), id_=OTHER)
    connection.close()
    assert present(home, OTHER) is None


def test_a_session_that_is_being_compacted_is_left_alone(home: Home, kept: bytes) -> None:
    after = spliced(home)
    sql(
        home,
        "CREATE TABLE compression_locks (session_id TEXT PRIMARY KEY, holder TEXT, acquired_at REAL, expires_at REAL)",
        f"INSERT INTO compression_locks VALUES ('{ID}', 'me', 0, {NOW / 1000 + 60})",
    )
    with pytest.raises(Refused) as refused:
        place(home, after, kept)
    assert refused.value.code == "live_owner"
    sql(home, f"UPDATE compression_locks SET expires_at = {NOW / 1000 - 60}")
    place(home, after, kept)
    assert present(home) == after


@pytest.mark.parametrize(
    "data",
    [b"", b"torn\n", b'{"table":"sessions","row":{"id":"other"}}\n', b'{"table":"gateway_routing","row":{}}\n'],
)
def test_rows_that_are_not_the_sessions_are_never_placed(home: Home, kept: bytes, data: bytes) -> None:
    with pytest.raises(Refused) as refused:
        place(home, data, kept)
    assert refused.value.code == "damaged_rows"
    for stranger in (
        b'{"table":"messages","row":{"id":50,"session_id":"' + OTHER.encode() + b'"}}\n',
        b'{"table":"state_meta","row":{"key":"clew:message:50","value":"{}"}}\n',
        b'{"table":"state_meta","row":{"key":"auto","value":"1"}}\n',
    ):
        with pytest.raises(Refused):
            place(home, kept + stranger, kept)
    assert present(home) == kept


def test_a_database_that_cannot_be_written_is_refused(home: Home, kept: bytes) -> None:
    if os.geteuid() == 0:
        pytest.skip("nothing is forbidden to root")
    after = spliced(home)
    database(home).chmod(0o400)
    with pytest.raises(Refused):
        place(home, after, kept)
    assert present(home) == kept


def test_what_is_no_database_is_not_written(home: Home) -> None:
    database(home).parent.mkdir(parents=True)
    database(home).write_bytes(b"no database, and not ours")
    with pytest.raises((Refused, UnreadableSource)):
        place(home, written_rows(TALK))
    assert database(home).read_bytes() == b"no database, and not ours"
