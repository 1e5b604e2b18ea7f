"""Locks between processes, played out with real processes and with two lock objects of one."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from clew.errors import StoreError, StoreLocked
from clew.platform.lock import FileLock, locked


def test_the_lock_is_exclusive_and_the_file_stays(tmp_path: Path):
    path = tmp_path / "x.lock"
    with locked(path):
        with pytest.raises(StoreLocked) as caught, locked(path, timeout_s=0):
            pass
        assert caught.value.concerns["holder"] == os.getpid()
        assert str(path) in caught.value.message
        assert caught.value.hint
    with locked(path, timeout_s=0):
        pass
    assert path.exists()
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_waiter_gets_the_lock_when_it_is_given_back(tmp_path: Path):
    path = tmp_path / "x.lock"
    got: list[str] = []
    first = FileLock(path)
    first.acquire()

    def wait() -> None:
        with locked(path, timeout_s=30):
            got.append("second")

    thread = threading.Thread(target=wait)
    thread.start()
    got.append("first")
    first.release()
    thread.join(30)
    first.close()
    assert got == ["first", "second"]


def test_a_waiter_that_came_too_late_does_not_keep_the_lock(tmp_path: Path):
    path = tmp_path / "x.lock"
    holder, late = FileLock(path), FileLock(path)
    holder.acquire()
    with pytest.raises(StoreLocked):
        late.acquire(0.01)
    holder.release()
    late.acquire(30)
    with pytest.raises(StoreLocked):
        holder.acquire(0)
    late.close()
    holder.close()


def test_a_lock_dies_with_its_holder(tmp_path: Path):
    path = tmp_path / "x.lock"
    code = (
        "import sys; from pathlib import Path; from clew.platform.lock import FileLock\n"
        "FileLock(Path(sys.argv[1])).acquire(); print('held', flush=True); sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"held\n"
        with pytest.raises(StoreLocked) as caught, locked(path, timeout_s=0):
            pass
        assert caught.value.concerns["holder"] == child.pid
        child.kill()
        with locked(path, timeout_s=30):
            pass


def test_a_child_does_not_inherit_the_lock(tmp_path: Path):
    path = tmp_path / "x.lock"
    lock = FileLock(path)
    lock.acquire()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        lock.close()
        with locked(path, timeout_s=0):
            pass
        child.kill()


def test_a_lock_file_that_was_deleted_is_noticed(tmp_path: Path):
    path = tmp_path / "x.lock"
    one = FileLock(path)
    with one.held():
        pass
    path.unlink()
    with one.held():
        assert path.exists()
        with pytest.raises(StoreLocked), locked(path, timeout_s=0):
            pass
    one.close()


def test_without_a_folder_the_error_names_the_file(tmp_path: Path):
    with pytest.raises(StoreError, match=r"missing/x\.lock"), locked(tmp_path / "missing" / "x.lock"):
        pass


def test_a_lock_file_that_is_a_link_is_refused(tmp_path: Path):
    (tmp_path / "real").touch()
    (tmp_path / "x.lock").symlink_to(tmp_path / "real")
    with pytest.raises(StoreError), locked(tmp_path / "x.lock"):
        pass
