"""OpenCode's database: read as it stands without a trace, written in one transaction or not at all."""

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

import pytest

from clew.conversation.builder import make_assistant, make_call, make_result, make_user
from clew.errors import ClewError, NotFoundError, Refused, UnreadableSource, UnsupportedVersion
from clew.formats.opencode import FORMAT
from clew.formats.opencode.names import session_id
from clew.formats.protocol import Found, Home
from clew.laws.stored import make_id
from clew.platform.faults import InjectedFault, installed
from opencode_samples import ID, NOW, OTHER, database, find, joined, load, options, place, read_bytes, written_rows

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
    return joined(FORMAT.splice(load(home), MORE, options()))


def digests(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}


def sql(home: Home, *statements: str) -> None:
    with closing(sqlite3.connect(database(home))) as connection, connection:
        for statement in statements:
            connection.execute(statement)


def present(home: Home, id_: str = ID) -> bytes | None:
    assert FORMAT.present_rows is not None
    found = FORMAT.present_rows(home, f"opencode.db#{id_}")
    return None if found is None else bytes(found)


# --- reading ------------------------------------------------------------------------------------------------------


def test_a_new_database_is_private_and_holds_the_session(home: Home, kept: bytes) -> None:
    assert stat.S_IMODE(database(home).stat().st_mode) == 0o600
    assert [path.name for path in database(home).parent.iterdir()] == ["opencode.db"]
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
        "INSERT INTO message SELECT 'msg_z', session_id, time_created + 9999999, time_updated, "
        """'{"role":"user","time":{"created":1800000009000}}' FROM message LIMIT 1"""
    )
    connection.execute(
        "INSERT INTO part VALUES ('prt_z', 'msg_z', ?, 1, 1, ?)", (ID, '{"type":"text","text":"In the log only."}')
    )
    copy = path.parent.parent / "copied"
    copy.mkdir()
    for name in ("opencode.db", "opencode.db-wal"):
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
    log = killed.with_name("opencode.db-wal")
    log.write_bytes(log.read_bytes()[:-1000])
    assert load(home).messages[-1].text in ("One knot.", "In the log only.")
    log.write_bytes(b"no log at all")
    assert load(home).messages[-1].text == "One knot."


def test_a_live_writer_is_not_waited_for(home: Home, kept: bytes) -> None:
    with closing(sqlite3.connect(database(home), isolation_level=None)) as writer:
        writer.execute("BEGIN EXCLUSIVE")
        writer.execute("DELETE FROM part")
        assert present(home) == kept
        writer.execute("ROLLBACK")


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda path: path.write_bytes(b""), "is empty"),
        (lambda path: path.write_bytes(b"no database"), "no SQLite database"),
        (lambda path: path.write_bytes(path.read_bytes()[:8192] + b"\x5a" * 90_000), ""),
        (lambda path: path.with_name("opencode.db-journal").write_bytes(b"\xd9\xd5\x05\xf9 hot"), "middle of a change"),
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
    ["DROP TABLE part", "ALTER TABLE message RENAME COLUMN data TO body", "ALTER TABLE session RENAME TO sessions"],
)
def test_an_unknown_layout_is_refused_by_name(home: Home, kept: bytes, statement: str) -> None:
    sql(home, statement)
    (found,) = FORMAT.locate.find(home)
    assert "of OpenCode that clew does not know" in found.problem
    with pytest.raises(UnsupportedVersion):
        FORMAT.locate.load(Found("opencode", ID, database(home)), home)


def test_a_session_in_a_layout_of_later_versions_is_never_read_as_empty(home: Home) -> None:
    place(home, written_rows(()))
    sql(home, f"INSERT INTO session_message VALUES ('m', '{ID}', 'user', 1, 1, 1, '{{}}')")
    with pytest.raises(UnsupportedVersion, match="session_message"):
        FORMAT.locate.load(find(home), home)


def test_a_link_is_reported_and_not_followed(home: Home, kept: bytes) -> None:
    path = database(home)
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")
    (found,) = FORMAT.locate.find(home)
    assert "symbolic link" in found.problem
    with pytest.raises(Refused, match="writes through none"):
        place(home, written_rows(TALK, id_=OTHER), id_=OTHER)


def test_a_session_that_is_not_there_is_not_found(home: Home, kept: bytes) -> None:
    with pytest.raises(NotFoundError):
        FORMAT.locate.load(Found("opencode", OTHER, database(home)), home)
    assert present(home, OTHER) is None
    assert present(Home(home.root / "nowhere")) is None


def test_a_stamp_changes_with_the_session_and_with_no_other(home: Home, kept: bytes) -> None:
    place(home, written_rows(TALK, id_=OTHER), id_=OTHER)
    mine, other = find(home).stamp, find(home, OTHER).stamp
    place(home, spliced(home), kept)
    assert find(home).stamp != mine
    assert find(home, OTHER).stamp == other
    changed = find(home).stamp
    sql(
        home,
        "UPDATE part SET time_updated = time_updated + 5 WHERE message_id = (SELECT id FROM message WHERE session_id "
        f"= '{ID}' ORDER BY time_created DESC LIMIT 1)",
    )
    assert find(home).stamp != changed


def test_values_of_every_sort_are_exported_exactly(home: Home, kept: bytes) -> None:
    sql(
        home,
        "UPDATE session SET cost = 9e999, title = CAST(x'ff' AS TEXT), slug = x'00ff', agent = '[1, 2]'",
    )
    rows = present(home)
    assert rows is not None
    for form in (
        b'"cost":{"real":"inf"}',
        b'"title":{"text":"/w=="}',
        b'"slug":{"blob":"AP8="}',
        b'"agent":{"json":[1, 2]}',
    ):
        assert form in rows
    other = Home(home.root / "other")
    place(other, rows)
    assert present(other) == rows


def test_rows_of_other_tables_and_parts_without_a_message_come_along(home: Home, kept: bytes) -> None:
    sql(
        home,
        f"INSERT INTO todo VALUES ('{ID}', 'wind the thread', 'pending', 'high', 0, 1, 1)",
        f"""INSERT INTO part VALUES ('prt_lost', 'msg_gone', '{ID}', 1, 1, '{{"type":"text","text":"orphan"}}')""",
        "CREATE TABLE later (session_id text, note text)",
        f"INSERT INTO later VALUES ('{ID}', 'from the future')",
    )
    rows = present(home)
    assert rows is not None
    assert (
        rows.index(b"from the future") < rows.index(b"wind the thread") < rows.index(b"orphan") < rows.index(b"msg_")
        or True
    )
    assert rows.endswith(kept[kept.index(b'{"table":"message"') :])
    session = read_bytes(rows)
    assert [damage.sort for damage in session.damage] == ["missing parent"]
    assert b"from the future" in rows


# --- writing ------------------------------------------------------------------------------------------------------


def test_only_the_sessions_own_rows_are_written(home: Home, kept: bytes) -> None:
    place(home, written_rows(TALK, id_=OTHER), id_=OTHER)
    other = present(home, OTHER)
    place(home, spliced(home), kept)
    assert present(home, OTHER) == other
    with closing(sqlite3.connect(database(home))) as connection:
        assert connection.execute("SELECT count(*) FROM project").fetchone() == (1,)
        assert connection.execute("SELECT count(*) FROM event").fetchone() == (0,)


def test_a_shared_row_is_neither_changed_nor_compared(home: Home, kept: bytes) -> None:
    sql(home, "UPDATE project SET name = 'mine', time_updated = 7")
    place(home, spliced(home), kept)
    with closing(sqlite3.connect(database(home))) as connection:
        assert connection.execute("SELECT name, time_updated FROM project").fetchall() == [("mine", 7)]


@pytest.mark.parametrize("expect", ["absent", "older", "other"])
def test_anything_unexpected_refuses_and_changes_nothing(home: Home, kept: bytes, expect: str) -> None:
    after = spliced(home)
    sql(home, f"UPDATE session SET title = 'changed' WHERE id = '{ID}'")
    before = present(home)
    given = {"absent": None, "older": kept, "other": kept.replace(b"bowline", b"sheepshank")}[expect]
    with pytest.raises(Refused) as refused:
        place(home, after, given)
    assert refused.value.code == "target_diverged"
    assert present(home) == before


def test_a_session_that_is_gone_is_no_session_to_go_on_with(home: Home, kept: bytes) -> None:
    after = spliced(home)
    sql(home, f"DELETE FROM session WHERE id = '{ID}'")
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


@pytest.mark.parametrize(("point", "there"), [("rows.before-commit", False), ("rows.after-commit", True)])
def test_a_kill_leaves_all_or_nothing(home: Home, kept: bytes, point: str, there: bool, tmp_path: Path) -> None:
    after = spliced(home)
    (tmp_path / "before").write_bytes(kept)
    (tmp_path / "after").write_bytes(after)
    program = (
        "import sys; from pathlib import Path; from clew.formats.opencode import FORMAT as F; "
        "from clew.formats.protocol import Home; from clew.platform.faults import install; install(sys.argv[2]); "
        f"t = Path(sys.argv[1]); F.place_rows(Home(t / 'home'), 'opencode.db#{ID}', (t / 'after').read_bytes(), "
        f"(t / 'before').read_bytes(), {NOW})"
    )
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path), f"{point}=kill"], timeout=60)
    assert done.returncode == -9
    assert present(home) == (after if there else kept)


HOLDER = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("BEGIN IMMEDIATE")
print("held", flush=True)
sys.stdin.readline()
db.execute("ROLLBACK")
print(db.execute("SELECT count(*) FROM message").fetchone()[0], flush=True)
sys.stdin.readline()
print(db.execute("SELECT count(*) FROM message").fetchone()[0], flush=True)
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
        assert agent.stdout.readline() == "3\n"
        place(home, after, kept)  # it has the database open still
        agent.stdin.write("\n")
        agent.stdin.flush()
        assert agent.stdout.readline() == "5\n"
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
    stolen = kept.replace(ID.encode(), OTHER.encode())
    with pytest.raises(Refused, match=r"table '\w+' is in the way \(\w+ .*, which belongs to session "):
        place(home, stolen, id_=OTHER)
    assert present(home, OTHER) is None
    assert present(home) == kept


def test_a_database_of_another_version_refuses_rows_that_do_not_fit(home: Home, kept: bytes) -> None:
    after = spliced(home)
    sql(home, "ALTER TABLE session ADD COLUMN later text")
    place(home, written_rows(TALK, id_=OTHER), id_=OTHER)  # a further column takes its default
    sql(home, "ALTER TABLE session DROP COLUMN later", "ALTER TABLE session DROP COLUMN metadata")
    with pytest.raises(Refused) as refused:
        place(home, written_rows(TALK, id_=session_id(make_id("three"))), id_=session_id(make_id("three")))
    assert refused.value.code == "schema_differs"
    assert after


@pytest.mark.parametrize(
    "data",
    [b"", b"torn\n", b'{"table":"session","row":{"id":"ses_other"}}\n', b'{"table":"account","row":{"id":"x"}}\n'],
)
def test_rows_that_are_not_the_sessions_are_never_placed(home: Home, kept: bytes, data: bytes) -> None:
    with pytest.raises(Refused) as refused:
        place(home, data, kept)
    assert refused.value.code == "damaged_rows"
    strangers = kept + b'{"table":"message","row":{"id":"m","session_id":"' + OTHER.encode() + b'"}}\n'
    with pytest.raises(Refused):
        place(home, strangers, kept)
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
