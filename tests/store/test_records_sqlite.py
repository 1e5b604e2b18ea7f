"""The records in their file: older ones are taken over, killed processes leave all or nothing."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from clew.errors import SchemaTooNew
from clew.store import sqlite
from clew.store.opening import open_stores
from record_making import SESSION, begin, place, put, put_operation, rows

FIRST = Path(sqlite.__file__).with_name("migrations") / "records" / "0001_threads.sql"


def test_strands_of_before_there_were_leases_become_records(tmp_path: Path):
    raw = apsw.Connection(str(tmp_path / "records.db"))
    raw.execute(f"PRAGMA journal_mode=WAL; PRAGMA application_id={sqlite.APPLICATION_ID}").fetchall()
    with raw:
        raw.execute(FIRST.read_text(encoding="utf-8"))
        raw.execute(
            "INSERT INTO threads VALUES ('t0000000000000001', 1, 0, 0, x''); "
            "INSERT INTO strands VALUES ('session-0001', 't0000000000000001', 'claude', x'6e', 4, 5, 6, x'00ff'); "
            "INSERT INTO strand_roots VALUES ('session-0001', 0, x'72'); PRAGMA user_version=1"
        )
    raw.close()
    with open_stores(tmp_path) as stores:
        row = stores.records.strand(SESSION)
        assert row is not None
        assert (row.body, row.roots, row.revision, row.native_id) == (b"\x00\xff", ("r",), 4, "n")
        assert (row.scope, row.fence, row.claim) == (None, 0, None)
        assert put(stores.records, expected=4, fence=1, claim="reserved") == 5
        assert len(stores.records.state().store_id) == 32


def test_records_of_a_newer_clew_are_read_and_not_written(tmp_path: Path):
    with open_stores(tmp_path) as stores:
        begin(stores.records, 2)
    with apsw.Connection(str(tmp_path / "records.db")) as raw:
        raw.pragma("user_version", 99)
    raw.close()
    with open_stores(tmp_path) as stores:
        assert stores.records.strand(SESSION) is not None
        assert stores.records.journal_rows(SESSION) == rows(1, 1, 2)
        for write in (
            lambda: put(stores.records, expected=1),
            lambda: put_operation(stores.records),
            lambda: stores.records.append_journal(SESSION, rows(1, 3, 1), last=place(1, 2), fence=1),
        ):
            with pytest.raises(SchemaTooNew):
                write()


CHILD = """
import sys
from pathlib import Path
from clew.platform import faults
from clew.store.opening import open_stores
from record_making import put, put_operation, rows, place, SESSION
with open_stores(Path(sys.argv[1])) as stores:
    store = stores.records
    store.state()
    faults.install(sys.argv[2] + "=kill")
    with store.transaction():
        put(store, fence=2, claim="live", expected=1)
        put_operation(store)
        store.append_journal(SESSION, rows(1, 4, 1, fence=2), last=place(1, 3), fence=2)
        store.rewrite_journal(SESSION, rows(2, 1, 2, fence=2), strand=SESSION, fence=2, expected=place(1, 4))
"""


@pytest.mark.parametrize(
    "point",
    [
        "journal.after-head",
        "journal.after-head@2",
        "journal.after-deleted",
        "records.before-witness",
        "records.after-witness",
        "store.before-commit",
        "store.after-commit",
    ],
)
def test_a_process_killed_anywhere_leaves_all_or_nothing(
    tmp_path: Path, point: str, run_child: Callable[..., subprocess.CompletedProcess[bytes]]
):
    with open_stores(tmp_path) as stores:
        begin(stores.records, 3)
    assert run_child(CHILD, str(tmp_path), point).returncode == -9
    done = point == "store.after-commit"
    with open_stores(tmp_path) as stores:
        row = stores.records.strand(SESSION)
        assert row is not None
        assert row.fence == (2 if done else 1)
        assert (stores.records.operation("c\x001") is not None) == done
        assert stores.records.journal_rows(SESSION) == (rows(2, 1, 2, fence=2) if done else rows(1, 1, 3))
