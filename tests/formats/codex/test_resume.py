"""Command lines, and who holds a thread: the lock is asked, never its file."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from clew.formats.codex import resume
from clew.formats.codex.resume import RESUME
from clew.formats.protocol import Found, Home
from codex_samples import ID, OTHER


def lock_file(home: Path, name: str = ID) -> Path:
    path = home / ".codex" / "thread-writer-locks" / f"{name}.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    return path


def one(id_: str = ID) -> Found:
    return Found("codex", id_, Path("x"))


def test_command_lines() -> None:
    assert RESUME.argv(ID) == ("codex", "resume", ID)
    assert RESUME.argv(ID, model="gpt-5.5", extra=("--search",)) == ("codex", "resume", ID, "-m", "gpt-5.5", "--search")
    assert RESUME.fork_argv(ID) == ("codex", "fork", ID)


def test_a_lock_file_alone_is_no_owner(tmp_path: Path) -> None:
    assert RESUME.owner(one(), Home(tmp_path)) is None
    lock_file(tmp_path)
    assert RESUME.owner(one(), Home(tmp_path)) is None
    assert RESUME.owners(Home(tmp_path)) == {}


@pytest.mark.parametrize("by_kernel", [True, False])
def test_a_held_lock_is_an_owner(tmp_path: Path, by_kernel: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not by_kernel:
        monkeypatch.setattr(resume, "_read_locks", lambda: "")
    lock_file(tmp_path, OTHER)
    fd = os.open(lock_file(tmp_path), os.O_RDWR)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        owner = RESUME.owner(one(), Home(tmp_path))
        assert owner is not None
        assert owner.pid in (0, os.getpid())
        assert set(RESUME.owners(Home(tmp_path))) == {ID}
        assert RESUME.owner(one(OTHER), Home(tmp_path)) is None
    finally:
        os.close(fd)
    assert RESUME.owner(one(), Home(tmp_path)) is None


def test_a_hostile_id_builds_no_path(tmp_path: Path) -> None:
    lock_file(tmp_path)
    for id_ in ("../thread-writer-locks/x", "/etc/passwd", "", ".", "a\x00b"):
        assert RESUME.owner(one(id_), Home(tmp_path)) is None


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    target = tmp_path / "elsewhere"
    target.touch()
    path = lock_file(tmp_path)
    path.unlink()
    path.symlink_to(target)
    fd = os.open(target, os.O_RDWR)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        assert RESUME.owner(one(), Home(tmp_path)) is None
    finally:
        os.close(fd)
