"""One SQLite file: how it is made, opened, brought up to date, locked, and what it says when it is
damaged."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from clew.errors import ClewError, SchemaTooNew, StoreDamaged, StoreError, StoreLocked
from clew.ids import ThreadId
from clew.platform import faults
from clew.platform.lock import locked
from clew.store import sqlite
from clew.store.opening import open_stores
from clew.store.sqlite import Database
from store_making import NOW, make_groups, put

T = ThreadId("t0000000000000001")


@pytest.fixture
def schema(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[int, str], None]:
    """Lets a test write the migrations of a schema called `tried`."""
    monkeypatch.setattr(sqlite, "_MIGRATIONS", tmp_path / "migrations")
    folder = tmp_path / "migrations" / "tried"
    folder.mkdir(parents=True)

    def write(number: int, text: str) -> None:
        (folder / f"{number:04}_step.sql").write_text(text)

    return write


def test_nothing_is_touched_before_the_first_use(tmp_path: Path):
    with open_stores(tmp_path / "data") as stores:
        assert stores.records.threads() == ()
        assert stores.residue.captures() == ()
        assert stores.index.get_all(None) == {}  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


def test_what_is_empty_cannot_be_written_by_mistake(tmp_path: Path):
    database = Database(tmp_path / "x.db", "records")
    with pytest.raises(StoreError):
        database.execute("DELETE FROM threads")
    assert list(tmp_path.iterdir()) == []


def test_files_and_folder_are_private_whatever_the_umask(tmp_path: Path):
    old = os.umask(0)
    try:
        with open_stores(tmp_path / "deep" / "data") as stores:
            stores.records.put_thread(T, b"", expected=None, now=NOW)
            put(stores.residue, make_groups(3))
            modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in stores.data.iterdir()}
    finally:
        os.umask(old)
    assert {"records.db", "records.db.lock", "records.db-wal", "residue.db", "residue.db.lock"} <= set(modes)
    assert set(modes.values()) == {0o600}
    for folder in (tmp_path / "deep", tmp_path / "deep" / "data"):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_file_says_whose_it_is_and_of_what_version(tmp_path: Path):
    with open_stores(tmp_path) as stores:
        stores.records.put_thread(T, b"", expected=None, now=NOW)
    head = (tmp_path / "records.db").read_bytes()[:100]
    assert head.startswith(b"SQLite format 3\0")
    assert head[68:72] == b"clew"
    assert int.from_bytes(head[60:64], "big") == 3


def test_a_commit_is_synced(tmp_path: Path):
    with open_stores(tmp_path) as stores:
        stores.records.put_thread(T, b"", expected=None, now=NOW)
        assert stores.sql.execute("PRAGMA synchronous") == [(2,)]
        assert stores.sql.execute("PRAGMA journal_mode") == [("wal",)]


def test_another_process_sees_what_was_written_and_stores_stay_open(tmp_path: Path):
    with open_stores(tmp_path) as one, open_stores(tmp_path) as other:
        assert other.records.thread(T) is None
        one.records.put_thread(T, b"1", expected=None, now=NOW)
        row = other.records.thread(T)
        assert row is not None
        assert row.body == b"1"
        other.records.put_thread(T, b"2", expected=1, now=NOW)
        assert one.records.thread(T) == other.records.thread(T)


def test_a_snapshot_stands_still(tmp_path: Path):
    one, other = Database(tmp_path / "x.db", "records"), Database(tmp_path / "x.db", "records")
    with one.transaction():
        pass
    count = "SELECT count(*) FROM threads"
    with one.snapshot():
        assert one.execute(count) == [(0,)]
        with other.transaction():
            other.execute("INSERT INTO threads VALUES ('t', 1, 0, 0, x'')")
        assert one.execute(count) == [(0,)]
    assert one.execute(count) == [(1,)]
    one.close()
    other.close()


# --- migrations -------------------------------------------------------------------------------------------


def test_migrations_run_in_order_and_once(tmp_path: Path, schema: Callable[[int, str], None]):
    path = tmp_path / "x.db"
    schema(1, "CREATE TABLE one (a INTEGER);")
    first = Database(path, "tried")
    with first.transaction():
        first.execute("INSERT INTO one VALUES (1)")
    first.close()
    schema(2, "ALTER TABLE one ADD COLUMN b INTEGER; UPDATE one SET b = a + 1;")
    schema(3, "CREATE TABLE three (c INTEGER);")
    second = Database(path, "tried")
    assert second.execute("SELECT a, b FROM one") == [(1, 2)]
    assert second.execute("PRAGMA user_version") == [(3,)]
    second.close()
    third = Database(path, "tried")
    assert third.execute("SELECT count(*) FROM three") == [(0,)]
    third.close()


@pytest.mark.parametrize("fault", ["a bad statement", "store.in-migration"])
def test_a_migration_that_fails_changes_nothing(tmp_path: Path, schema: Callable[[int, str], None], fault: str):
    path = tmp_path / "x.db"
    schema(1, "CREATE TABLE one (a INTEGER);")
    first = Database(path, "tried")
    with first.transaction():
        first.execute("INSERT INTO one VALUES (1)")
    first.close()
    schema(2, "CREATE TABLE two (b INTEGER);")
    schema(3, "DELETE FROM one; " + ("INSERT INTO none VALUES (1);" if fault == "a bad statement" else ""))
    second = Database(path, "tried")
    if fault == "a bad statement":
        with pytest.raises(StoreDamaged):
            second.execute("SELECT a FROM one")
    else:
        with faults.installed(f"{fault}@2=raise"), pytest.raises(faults.InjectedFault):
            second.execute("SELECT a FROM one")
    with apsw.Connection(str(path)) as raw:
        assert raw.execute("SELECT a FROM one").fetchall() == [(1,)]
        assert raw.pragma("user_version") == 1
    schema(3, "INSERT INTO two SELECT a FROM one;")
    assert second.execute("SELECT b FROM two") == [(1,)]
    second.close()


def test_a_newer_file_is_read_and_never_written(tmp_path: Path):
    path = tmp_path / "records.db"
    with open_stores(tmp_path) as stores:
        stores.records.put_thread(T, b"1", expected=None, now=NOW)
    with apsw.Connection(str(path)) as raw:
        raw.execute("ALTER TABLE threads ADD COLUMN later INTEGER; PRAGMA user_version=99")
    raw.close()
    before = path.read_bytes()
    with open_stores(tmp_path) as stores:
        assert [row.body for row in stores.records.threads()] == [b"1"]
        with pytest.raises(SchemaTooNew) as caught:
            stores.records.put_thread(T, b"2", expected=1, now=NOW)
        assert "Update clew" in caught.value.hint
        assert str(path) in caught.value.message
    assert path.read_bytes() == before


def test_a_file_that_becomes_newer_while_it_is_open_is_no_longer_written(tmp_path: Path):
    with open_stores(tmp_path) as stores:
        stores.records.put_thread(T, b"1", expected=None, now=NOW)
        with apsw.Connection(str(tmp_path / "records.db")) as raw:
            raw.execute("PRAGMA user_version=99")
        raw.close()
        with pytest.raises(SchemaTooNew):
            stores.records.put_thread(T, b"2", expected=1, now=NOW)
        assert [row.body for row in stores.records.threads()] == [b"1"]


def test_a_newer_file_without_the_tables_says_so(tmp_path: Path):
    with open_stores(tmp_path) as stores:
        stores.records.put_thread(T, b"1", expected=None, now=NOW)
    with apsw.Connection(str(tmp_path / "records.db")) as raw:
        raw.execute("DROP TABLE threads; PRAGMA user_version=99")
    raw.close()
    with open_stores(tmp_path) as stores, pytest.raises(SchemaTooNew):
        stores.records.threads()


# --- damage -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["records.db", "residue.db"])
@pytest.mark.parametrize("kind", ["empty", "text", "folder", "dangling", "foreign", "no_table", "cut", "zeros"])
def test_a_file_that_is_no_store_is_named_and_left_alone(tmp_path: Path, name: str, kind: str):
    path = tmp_path / name
    with open_stores(tmp_path) as stores:
        stores.records.put_thread(T, b"1", expected=None, now=NOW)
        put(stores.residue, make_groups(300))
    whole = path.read_bytes()
    if kind == "empty":
        path.write_bytes(b"")
    elif kind == "text":
        path.write_bytes(b"hello " * 2000)
    elif kind == "zeros":
        path.write_bytes(b"\0" * len(whole))
    elif kind == "cut":
        path.write_bytes(whole[: len(whole) // 2 // 4096 * 4096])
    elif kind in ("folder", "dangling", "foreign"):
        path.unlink()
        if kind == "folder":
            path.mkdir()
        elif kind == "dangling":
            path.symlink_to("nowhere")
        else:
            with apsw.Connection(str(path)) as raw:
                raw.execute("CREATE TABLE threads (id); CREATE TABLE captures (id)")
            raw.close()
    else:
        with apsw.Connection(str(path)) as raw:
            raw.execute("DROP TABLE IF EXISTS threads; DROP TABLE IF EXISTS captures")
        raw.close()
    before = path.read_bytes() if path.is_file() else None
    with open_stores(tmp_path) as stores:
        for act in (
            lambda: stores.records.threads() if name == "records.db" else stores.residue.captures(),
            lambda: (
                stores.records.put_thread(T, b"2", expected=1, now=NOW)
                if name == "records.db"
                else put(stores.residue, make_groups(400))
            ),
        ):
            with pytest.raises(StoreError) as caught:
                act()
            assert str(path) in caught.value.message
            assert caught.value.hint
            if kind not in ("folder", "dangling"):
                assert isinstance(caught.value, StoreDamaged)
    assert (path.read_bytes() if path.is_file() else None) == before


def test_a_log_left_by_a_deleted_file_does_not_get_into_the_new_one(tmp_path: Path):
    stores = open_stores(tmp_path)
    stores.records.put_thread(T, b"old", expected=None, now=NOW)
    log = (tmp_path / "records.db-wal").read_bytes()
    stores.close()
    (tmp_path / "records.db").unlink()
    (tmp_path / "records.db-wal").write_bytes(log)
    with open_stores(tmp_path) as fresh:
        assert fresh.records.threads() == ()
        fresh.records.put_thread(ThreadId("t2"), b"new", expected=None, now=NOW)
        assert [row.id for row in fresh.records.threads()] == ["t2"]


def test_a_full_disk_is_said_and_leaves_what_was_there(tmp_path: Path):
    with open_stores(tmp_path) as stores:
        stores.records.put_thread(T, b"1", expected=None, now=NOW)
        stores.sql.execute("PRAGMA max_page_count=1")
        with pytest.raises(StoreError) as caught:
            stores.records.put_thread(T, b"x" * 1_000_000, expected=1, now=NOW)
        assert caught.value.code == "disk_full"
        row = stores.records.thread(T)
        assert row is not None
        assert row.body == b"1"


ON_SMALL_DISK = """
import sys
from pathlib import Path
from clew.errors import StoreError
from clew.store.sqlite import Database
database = Database(Path(sys.argv[1]) / "residue.db", "residue")
try:
    with database.transaction():
        pass
    print("sound" if database.check() == [] else "damaged")
except StoreError as error:
    print("refused:", error.message)
"""


@pytest.mark.parametrize("kilobytes", [40, 80, 136, 152])
def test_a_file_that_does_not_fit_on_the_disk_is_not_left_there_in_part(tmp_path: Path, kilobytes: int):
    """On a disk of that size, where one may be mounted; then it grows."""
    (tmp_path / "script.py").write_text(ON_SMALL_DISK)
    disk, run = tmp_path / "disk", f"{sys.executable} {tmp_path}/script.py {tmp_path}/disk"
    disk.mkdir()
    mount = f"mount -t tmpfs -o size={kilobytes}k tmpfs {disk} && {run}; mount -o remount,size=4m {disk} && {run}"
    done = subprocess.run(["unshare", "-rm", "sh", "-c", mount], capture_output=True, text=True, check=False)
    if "mount:" in done.stderr or "unshare:" in done.stderr:
        pytest.skip("nothing can be mounted here")
    first, second = done.stdout.splitlines()
    assert first == "sound" or first.startswith("refused:")
    assert "damaged" not in first
    assert second == "sound"


def test_a_folder_that_cannot_be_made_is_said(tmp_path: Path):
    (tmp_path / "file").touch()
    with open_stores(tmp_path / "file" / "data") as stores, pytest.raises(ClewError) as caught:
        stores.records.put_thread(T, b"", expected=None, now=NOW)
    assert str(tmp_path / "file") in caught.value.message


# --- locks ------------------------------------------------------------------------------------------------


def test_a_writer_waits_for_the_lock_and_says_who_has_it(tmp_path: Path):
    database = Database(tmp_path / "x.db", "records", timeout_s=0)
    with database.transaction():
        pass
    with locked(tmp_path / "x.db.lock"):
        with pytest.raises(StoreLocked) as caught, database.transaction():
            pass
        assert str(os.getpid()) in caught.value.message
        assert database.execute("SELECT count(*) FROM threads") == [(0,)]
    with database.transaction():
        pass
    database.close()


def test_a_program_that_does_not_take_the_lock_is_waited_for_as_well(tmp_path: Path):
    database = Database(tmp_path / "x.db", "records", timeout_s=0)
    with database.transaction():
        pass
    raw = apsw.Connection(str(tmp_path / "x.db"))
    raw.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreLocked), database.transaction():
        pass
    raw.close()
    with database.transaction():
        database.execute("INSERT INTO threads VALUES ('t', 1, 0, 0, x'')")
    database.close()


COMPETE = """
import sys
from pathlib import Path
from clew.errors import Conflict
from clew.ids import ThreadId
from clew.store.opening import open_stores
from clew.platform.clock import FixedClock
now = FixedClock().now()
won = 0
with open_stores(Path(sys.argv[1])) as stores:
    print("up", flush=True)
    sys.stdin.readline()
    while won < 50:
        row = stores.records.thread(ThreadId("t1"))
        try:
            stores.records.put_thread(ThreadId("t1"), b"", expected=row.revision if row else None, now=now)
            won += 1
        except Conflict:
            pass
print(won)
"""


def test_of_two_processes_each_swap_is_won_by_one(tmp_path: Path):
    children = [
        subprocess.Popen([sys.executable, "-c", COMPETE, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for _ in range(2)
    ]
    for child in children:
        assert child.stdout is not None
        assert child.stdout.readline() == b"up\n"
    outputs = []
    for child in children:
        assert child.stdin is not None
        child.stdin.write(b"go\n")
        child.stdin.flush()
    for child in children:
        outputs.append(child.communicate(timeout=120)[0])
    assert outputs == [b"50\n", b"50\n"]
    with open_stores(tmp_path) as stores:
        row = stores.records.thread(ThreadId("t1"))
        assert row is not None
        assert row.revision == 100


# --- killed -----------------------------------------------------------------------------------------------

CRASH = """
import sys
from pathlib import Path
from clew.ids import ThreadId
from clew.platform import faults
from clew.platform.clock import FixedClock
from clew.store.opening import open_stores
with open_stores(Path(sys.argv[1])) as stores:
    faults.install(sys.argv[2] + "=kill")
    with stores.records.transaction():
        stores.records.put_thread(ThreadId("t1"), b"", expected=None, now=FixedClock().now())
        stores.records.put_thread(ThreadId("t2"), b"", expected=None, now=FixedClock().now())
"""


@pytest.mark.parametrize(
    ("point", "written"),
    [
        ("store.in-migration", 0),
        ("store.before-created", 0),
        ("store.before-commit", 0),
        ("store.after-commit", 2),
    ],
)
def test_killed_anywhere_a_transaction_is_whole_or_not_there(tmp_path: Path, point: str, written: int):
    done = subprocess.run([sys.executable, "-c", CRASH, str(tmp_path), point], timeout=60, check=False)
    assert done.returncode == -9
    with open_stores(tmp_path) as stores:
        assert len(stores.records.threads()) == written
        stores.records.put_thread(ThreadId("t3"), b"", expected=None, now=NOW)
        assert len(stores.records.threads()) == written + 1
