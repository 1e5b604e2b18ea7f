"""A store that was put back from a backup is noticed, and no fence is granted twice."""

from __future__ import annotations

import shutil
import stat
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import apsw
import pytest

from clew.errors import Conflict, SchemaTooNew, StoreDamaged, StoreError
from clew.platform import faults
from clew.platform.clock import FixedClock
from clew.store.opening import open_stores
from clew.store.record_protocol import FENCE_FLOOR, RecordStore
from clew.store.witness import SLOT_SIZE, UNREADABLE, Seen, Witness
from record_making import NOW, SESSION, THREAD, put

ID = "0123456789abcdef" * 2


def grant(store: RecordStore, *, above: int = 0) -> int:
    """Moves the fence of the session by the rule of the lease, and returns it."""
    row = store.strand(SESSION)
    if row is None:
        fence = max(1, store.state().fence_floor)
        put(store, fence=fence, claim="reserved")
        return fence
    fence = max(row.fence + 1, store.state().fence_floor, above)
    store.put_lease(SESSION, fence=fence, claim="reserved", body=b"", expected=row.revision, now=NOW)
    return fence


def grants(data: Path, count: int = 1) -> list[int]:
    with open_stores(data) as stores:
        return [grant(stores.records) for _ in range(count)]


def copy(data: Path, to: Path) -> Path:
    """A backup of the database, made while nobody has it open."""
    with apsw.Connection(str(data / "records.db")) as raw:
        raw.pragma("wal_checkpoint", "TRUNCATE")
    raw.close()
    shutil.copy(data / "records.db", to)
    return to


def put_back(backup: Path, data: Path) -> None:
    for name in ("records.db", "records.db-wal", "records.db-shm"):
        (data / name).unlink(missing_ok=True)
    shutil.copy(backup, data / "records.db")


# --- the file ---------------------------------------------------------------------------------------------


def test_a_witness_remembers_the_most_it_was_told(tmp_path: Path):
    witness = Witness(tmp_path / "deep" / "w")
    assert witness.read() is None
    for seen in (Seen(ID, 1, 1), Seen(ID, 2, 2**53), Seen(ID, 7, 3)):
        witness.write(seen, durable=True)
        assert witness.read() == seen
    witness.write(Seen(ID, 6, 9), durable=True)
    assert witness.read() == Seen(ID, 7, 3)
    witness.write(Seen("f" * 32, 1, 1), durable=False)
    assert witness.read() == Seen("f" * 32, 1, 1)
    assert stat.S_IMODE(witness.path.stat().st_mode) == 0o600
    assert witness.path.stat().st_size == 2 * SLOT_SIZE


@pytest.mark.parametrize("at", range(0, 2 * SLOT_SIZE, 7))
def test_a_torn_write_leaves_the_other_slot(tmp_path: Path, at: int):
    witness = Witness(tmp_path / "w")
    for number in (1, 2):
        witness.write(Seen(ID, number, number), durable=False)
    data = bytearray(witness.path.read_bytes())
    data[at] ^= 0x55
    witness.path.write_bytes(data)
    assert witness.read() in (Seen(ID, 1, 1), Seen(ID, 2, 2))


def test_a_witness_that_says_nothing_is_not_the_same_as_none(tmp_path: Path):
    for data in (b"", b"x" * 500, b"clew-witness-1 "):
        (tmp_path / "w").write_bytes(data)
        assert Witness(tmp_path / "w").read() == UNREADABLE
    (tmp_path / "folder").mkdir()
    with pytest.raises(StoreError):
        Witness(tmp_path / "folder").read()


# --- restored stores --------------------------------------------------------------------------------------


def test_a_store_that_nobody_restored_grants_one_fence_after_the_other(tmp_path: Path):
    assert grants(tmp_path, 2) + grants(tmp_path, 2) + grants(tmp_path) == [1, 2, 3, 4, 5]
    with open_stores(tmp_path) as stores:
        assert stores.records.state().fence_floor == 0


def test_reading_makes_no_witness(tmp_path: Path):
    with open_stores(tmp_path) as stores:
        stores.records.put_thread(THREAD, b"", expected=None, now=NOW)
        assert stores.records.state().fence_floor == 0
        put(stores.records)
    assert not (tmp_path / "records.witness").exists()


@pytest.mark.parametrize("lost", [1, 2, 5])
def test_a_restored_backup_grants_no_fence_twice(tmp_path: Path, lost: int):
    data = tmp_path / "data"
    granted = grants(data, 3)
    backup = copy(data, tmp_path / "backup")
    granted += grants(data, lost)
    put_back(backup, data)
    granted += grants(data, 2)
    put_back(backup, data)
    granted += grants(data, 2)
    assert len(set(granted)) == len(granted)


def test_a_session_that_the_backup_does_not_know_begins_above_what_it_had(tmp_path: Path):
    data = tmp_path / "data"
    with open_stores(data) as stores:
        stores.records.put_thread(THREAD, b"", expected=None, now=NOW)
    backup = copy(data, tmp_path / "backup")
    granted = grants(data, 3)
    put_back(backup, data)
    with open_stores(data) as stores:
        with pytest.raises(Conflict) as caught:
            put(stores.records, fence=1, claim="reserved")
        assert caught.value.code == FENCE_FLOOR
    assert grants(data)[0] > max(granted)


def test_a_lost_or_unreadable_witness_does_no_harm(tmp_path: Path):
    granted = grants(tmp_path, 2)
    (tmp_path / "records.witness").unlink()
    granted += grants(tmp_path)
    assert granted == [1, 2, 3]
    (tmp_path / "records.witness").write_bytes(b"nonsense")
    granted += grants(tmp_path, 2)
    assert len(set(granted)) == 5
    granted += grants(tmp_path)
    assert granted[-1] == granted[-2] + 1


def test_a_witness_may_lie_elsewhere_and_then_the_whole_folder_may_go_back(tmp_path: Path):
    data, witness = tmp_path / "data", tmp_path / "state" / "w"

    def some() -> list[int]:
        with open_stores(data, witness=witness) as stores:
            return [grant(stores.records) for _ in range(3)]

    granted = some()
    copy(data, tmp_path / "backup")
    shutil.copytree(data, tmp_path / "folder")
    granted += some()
    shutil.rmtree(data)
    shutil.copytree(tmp_path / "folder", data)
    granted += some()
    assert len(set(granted)) == 9


def grant_some(data: Path, outside: Path | None = None, count: int = 3, day: int = 1) -> list[int]:
    with open_stores(data, outside=outside, clock=FixedClock(datetime(2026, 1, day, tzinfo=UTC))) as stores:
        return [grant(stores.records) for _ in range(count)]


def swap(folder: Path, backup: Path, way: str) -> None:
    """Puts a whole folder back: as a new one, or file by file over what is there."""
    if way == "anew":
        shutil.rmtree(folder)
        shutil.copytree(backup, folder)
        return
    for name in ("records.db-wal", "records.db-shm"):
        (folder / name).unlink(missing_ok=True)
    for path in backup.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())


@pytest.mark.parametrize("way", ["anew", "over it"])
@pytest.mark.parametrize("lost", [1, 4])
def test_a_whole_folder_that_went_back_is_noticed_by_what_lies_outside(tmp_path: Path, way: str, lost: int):
    data, outside = tmp_path / "data", tmp_path / "state"
    granted = grant_some(data, outside)
    shutil.copytree(data, tmp_path / "backup")
    for _ in range(2):
        granted += grant_some(data, outside, lost)
        swap(data, tmp_path / "backup", way)
    granted += grant_some(data, outside)
    assert granted == sorted(set(granted))
    with open_stores(data, outside=outside) as stores:
        assert stores.records.state().fence_floor > 1_000_000


def test_a_copy_of_the_folder_is_noticed_by_where_it_lies(tmp_path: Path):
    data = tmp_path / "data"
    granted = grant_some(data)
    shutil.copytree(data, tmp_path / "backup")
    granted += grant_some(data)
    # The folder is gone with all that remembered, as after a move to another machine.
    data.rename(tmp_path / "old")
    shutil.copytree(tmp_path / "backup", data)
    granted += grant_some(data)
    assert granted == sorted(set(granted))
    # And again: the copy that is put back knows nothing of the first time.
    data.rename(tmp_path / "older")
    shutil.copytree(tmp_path / "backup", data)
    granted += grant_some(data, day=2)
    assert granted == sorted(set(granted))
    # Moving a folder on its disk is no copy.
    data.rename(tmp_path / "moved")
    assert grant_some(tmp_path / "moved", count=1) == [granted[-1] + 1]


@pytest.mark.parametrize("other", [False, True])
def test_a_person_says_what_nothing_can_notice(tmp_path: Path, other: bool):
    data = tmp_path / "data"
    granted = grant_some(data)
    shutil.copytree(data, tmp_path / "backup")
    granted += grant_some(data)
    swap(data, tmp_path / "backup", "over it")
    if other:
        grants(tmp_path / "b")
        (data / "records.witness").write_bytes((tmp_path / "b" / "records.witness").read_bytes())
        with open_stores(data) as stores, pytest.raises(StoreDamaged) as caught:
            stores.records.state()
        assert "clew store restored" in caught.value.hint
    with open_stores(data) as stores:
        floor = stores.records.mark_restored().fence_floor
        assert stores.records.state().fence_floor == floor
    granted += grant_some(data)
    assert granted[6] == floor
    assert granted == sorted(set(granted))
    with open_stores(data) as stores:
        assert stores.records.mark_restored().fence_floor > granted[-1]


def test_a_store_that_cannot_be_written_is_read_with_the_floor_it_would_have(tmp_path: Path):
    data = tmp_path / "data"
    backup = (grants(data), copy(data, tmp_path / "backup"))[1]
    granted = grants(data, 3)
    put_back(backup, data)
    newer = apsw.Connection(str(data / "records.db"))
    version = newer.pragma("user_version")
    newer.pragma("user_version", version + 1)
    newer.close()
    before = (data / "records.db").read_bytes()
    with open_stores(data) as stores:
        assert stores.records.state().fence_floor > max(granted)
        with pytest.raises(SchemaTooNew):
            grant(stores.records)
    assert (data / "records.db").read_bytes() == before


def test_a_clock_far_in_the_future_leaves_room(tmp_path: Path):
    grants(tmp_path)
    for year in (9999, 1970):
        with open_stores(tmp_path, clock=FixedClock(datetime(year, 1, 1, tzinfo=UTC))) as stores:
            assert stores.records.mark_restored().fence_floor < 2**53
    assert grants(tmp_path, 2)[1] > 2**52


def test_a_folder_that_cannot_be_written_is_read_as_it_lies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    data = tmp_path / "data"
    granted = grant_some(data, count=3)
    shutil.copytree(data, tmp_path / "mounted")
    data = tmp_path / "mounted"
    before = {path.name: path.read_bytes() for path in data.iterdir()}
    monkeypatch.setattr("clew.store.sqlite.os.access", lambda path, mode: False)
    with open_stores(data) as stores:
        row = stores.records.strand(SESSION)
        assert row is not None
        assert row.fence == 3
        assert stores.records.state().fence_floor > max(granted)
        with pytest.raises(StoreError, match="only read"):
            grant(stores.records)
    assert {path.name: path.read_bytes() for path in data.iterdir()} == before


def test_what_lies_outside_is_a_second_opinion_and_never_in_the_way(tmp_path: Path):
    data, outside = tmp_path / "data", tmp_path / "state"
    assert grant_some(data, outside) == [1, 2, 3]
    (path,) = outside.iterdir()
    assert Witness(path).read() == Witness(data / "records.witness").read()
    path.write_bytes(b"nonsense")
    assert grant_some(data, outside) == [4, 5, 6]
    assert Witness(path).read() == Witness(data / "records.witness").read()
    path.unlink()
    path.mkdir()
    assert grant_some(data, outside) == [7, 8, 9]
    shutil.rmtree(outside)
    outside.write_text("a file where the folder should be")
    assert grant_some(data, outside) == [10, 11, 12]
    # A store that was made anew has a name of its own there.
    shutil.rmtree(data)
    outside.unlink()
    assert grant_some(data, outside) == [1, 2, 3]


def test_a_store_that_was_there_and_is_gone_is_no_empty_one(tmp_path: Path):
    grants(tmp_path)
    for name in ("records.db", "records.db-wal", "records.db-shm"):
        (tmp_path / name).unlink(missing_ok=True)
    for act in (
        lambda stores: stores.records.threads(),
        lambda stores: stores.records.state(),
        lambda stores: put(stores.records, fence=1),
    ):
        with open_stores(tmp_path) as stores:
            assert stores.has_records
            with pytest.raises(StoreDamaged) as caught:
                act(stores)
            assert "records.witness" in caught.value.hint
    assert not (tmp_path / "records.db").exists()
    (tmp_path / "records.witness").unlink()
    assert grants(tmp_path) == [1]


def test_another_store_in_its_place_is_refused(tmp_path: Path):
    grants(tmp_path / "a")
    grants(tmp_path / "b")
    put_back(copy(tmp_path / "b", tmp_path / "copy"), tmp_path / "a")
    with open_stores(tmp_path / "a") as stores, pytest.raises(StoreDamaged, match="another one"):
        stores.records.state()


@pytest.mark.parametrize("act", ["delete", "replace"])
@pytest.mark.parametrize("use", ["read", "write"])
def test_a_file_that_changes_under_an_open_store_is_noticed(tmp_path: Path, act: str, use: str):
    data = tmp_path / "data"
    grants(data)
    backup = copy(data, tmp_path / "backup")
    with open_stores(data) as stores:
        assert grant(stores.records) == 2
        (data / "records.db").unlink()
        if act == "replace":
            shutil.copy(backup, data / "records.db")
        with pytest.raises(StoreDamaged):
            stores.records.strand(SESSION) if use == "read" else put(stores.records, expected=2)


# --- crashes ----------------------------------------------------------------------------------------------

POINTS = ("records.before-witness", "records.after-witness", "store.before-commit", "store.after-commit")

CHILD = """
import sys
from pathlib import Path
from clew.platform import faults
from clew.store.opening import open_stores
from record_making import NOW, SESSION
with open_stores(Path(sys.argv[1])) as stores:
    row = stores.records.strand(SESSION)
    fence = max(row.fence + 1, stores.records.state().fence_floor)
    faults.install(sys.argv[2] + "=kill")
    stores.records.put_lease(SESSION, fence=fence, claim="reserved", body=b"", expected=row.revision, now=NOW)
    print(fence)
"""


@pytest.mark.parametrize("point", POINTS)
def test_a_grant_that_is_cut_off_anywhere_is_granted_at_most_once(
    tmp_path: Path, point: str, run_child: Callable[..., subprocess.CompletedProcess[bytes]]
):
    assert grants(tmp_path, 2) == [1, 2]
    killed = run_child(CHILD, str(tmp_path), point)
    assert killed.returncode == -9
    with open_stores(tmp_path) as stores:
        row = stores.records.strand(SESSION)
        assert row is not None
        assert row.fence == (3 if point == "store.after-commit" else 2)
        assert stores.records.state().fence_floor in (0, 4)
    assert grants(tmp_path, 2) in ([3, 4], [4, 5])


def test_a_witness_that_cannot_be_written_grants_nothing(tmp_path: Path):
    grants(tmp_path)
    with open_stores(tmp_path) as stores:
        with faults.installed("records.before-witness=raise:ENOSPC"), pytest.raises(OSError, match="injected"):
            grant(stores.records)
        row = stores.records.strand(SESSION)
        assert row is not None
        assert row.fence == 1
