"""Opening is lazy and cheap, and the list cache forgets rather than fails."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import apsw
import pytest

from clew.errors import UsageError
from clew.platform.lock import locked
from clew.store.opening import open_stores
from clew.store.protocol import Cached, FileFacts
from store_making import CLAUDE, NOW

ONE = Cached(FileFacts(1, 2, 3), b"body")


def test_stores_elsewhere_are_refused_with_a_hint(tmp_path: Path):
    for given in ({"url": "mysql://x"}, {"blobs": "s3://x"}):
        with pytest.raises(UsageError) as caught:
            open_stores(tmp_path, **given)
        assert caught.value.hint
    assert "has no object store" in caught.value.message
    assert list(tmp_path.iterdir()) == []


def test_opening_imports_no_database():
    code = (
        "import sys; from pathlib import Path; from clew.store.opening import open_stores\n"
        "open_stores(Path('/nowhere')).close()\n"
        "print([name for name in ('apsw', 'backports.zstd', 'psutil', 'concurrent.futures') if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60, check=True)
    assert done.stdout == b"[]\n"


@pytest.mark.parametrize("kind", ["text", "empty", "foreign", "cut", "no_table"])
def test_a_damaged_index_is_silently_begun_anew(tmp_path: Path, kind: str):
    path = tmp_path / "index.db"
    with open_stores(tmp_path) as stores:
        stores.index.put_many(CLAUDE, [(f"/{number}", ONE) for number in range(3000)])
    whole = path.read_bytes()
    if kind == "no_table":
        with apsw.Connection(str(path)) as raw:
            raw.execute("DROP TABLE files")
        raw.close()
    elif kind == "foreign":
        path.unlink()
        with apsw.Connection(str(path)) as raw:
            raw.execute("CREATE TABLE files (id)")
        raw.close()
    else:
        path.write_bytes({"text": b"hello" * 1000, "empty": b"", "cut": whole[: len(whole) // 2]}[kind])
    with open_stores(tmp_path) as stores:
        stores.index.put_many(CLAUDE, [("/new", ONE)])
        assert stores.index.get_all(CLAUDE)["/new"] == ONE
    with open_stores(tmp_path) as stores:
        assert stores.index.get_all(CLAUDE)["/new"] == ONE


def test_an_index_that_was_deleted_is_begun_anew(tmp_path: Path):
    with open_stores(tmp_path) as stores:
        stores.index.put_many(CLAUDE, [("/a", ONE)])
    (tmp_path / "index.db").unlink()
    with open_stores(tmp_path) as stores:
        assert stores.index.get_all(CLAUDE) == {}
        stores.index.put_many(CLAUDE, [("/b", ONE)])
        assert stores.index.get_all(CLAUDE) == {"/b": ONE}


def test_an_index_of_a_newer_clew_is_left_alone(tmp_path: Path):
    with open_stores(tmp_path) as stores:
        stores.index.put_many(CLAUDE, [("/a", ONE)])
    with apsw.Connection(str(tmp_path / "index.db")) as raw:
        raw.execute("ALTER TABLE files RENAME TO later; PRAGMA user_version=99")
    raw.close()
    before = (tmp_path / "index.db").read_bytes()
    with open_stores(tmp_path) as stores:
        assert stores.index.get_all(CLAUDE) == {}
        stores.index.put_many(CLAUDE, [("/b", ONE)])
        stores.index.remove(CLAUDE, ["/a"])
    assert (tmp_path / "index.db").read_bytes() == before


def test_an_index_that_cannot_be_made_remembers_nothing(tmp_path: Path):
    (tmp_path / "file").touch()
    with open_stores(tmp_path / "file") as stores:
        stores.index.put_many(CLAUDE, [("/b", ONE)])
        assert stores.index.get_all(CLAUDE) == {}
    (tmp_path / "data" / "index.db").mkdir(parents=True)
    with open_stores(tmp_path / "data") as stores:
        stores.index.put_many(CLAUDE, [("/b", ONE)])
        assert stores.index.get_all(CLAUDE) == {}


def test_an_index_that_is_busy_remembers_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with open_stores(tmp_path) as stores:
        stores.index.put_many(CLAUDE, [("/a", ONE)])
        monkeypatch.setattr(stores._open[0], "_timeout_s", 0)
        with locked(tmp_path / "index.db.lock"):
            stores.index.put_many(CLAUDE, [("/b", ONE)])
            assert stores.index.get_all(CLAUDE) == {"/a": ONE}


def test_a_transaction_spans_tables_of_other_modules(tmp_path: Path):
    def half() -> None:
        with stores.sql.transaction():
            stores.records.put_thread("t1", b"", expected=None, now=NOW)  # type: ignore[arg-type]
            stores.sql.execute("CREATE TABLE leases (id TEXT)")
            stores.sql.execute_many("INSERT INTO leases VALUES (?)", [("a",), ("b",)])
            raise UsageError("half way")

    with open_stores(tmp_path) as stores:
        with pytest.raises(UsageError, match="half way"):
            half()
        assert stores.records.threads() == ()
        assert stores.sql.execute("SELECT name FROM sqlite_schema WHERE name = 'leases'") == []


@pytest.mark.parametrize("kind", ["text", "schema", "page"])
def test_damaged_records_are_named_by_a_check(tmp_path: Path, kind: str):
    path = tmp_path / "records.db"
    with open_stores(tmp_path) as stores:
        assert stores.check_records() == []
        assert not path.exists()
        for number in range(300):
            stores.records.put_thread(f"t{number}", b"x" * 100, expected=None, now=NOW)  # type: ignore[arg-type]
        assert stores.check_records() == []
    whole = path.read_bytes()
    half = len(whole) // 2
    damaged = {
        "text": b"junk" * 1000,
        "schema": whole.replace(b"CREATE TABLE threads", b"CREATE TABLO threads"),
        "page": whole[:half] + b"\xff" * 4096 + whole[half + 4096 :],
    }
    assert damaged[kind] != whole
    path.write_bytes(damaged[kind])
    with open_stores(tmp_path) as stores:
        assert stores.check_records()
    assert path.read_bytes() == damaged[kind]
