"""Locks between processes: an advisory `flock` on a file that is never deleted.

Promised: the lock dies with its holder, however that ends; waiters are served in turn (the kernel queues
them); descriptors are close-on-exec, so no child keeps a dead holder's lock; a lock file that somebody
deleted or replaced is noticed and taken anew. Not promised: a lock on a network drive, or against programs
that do not take it. A lock says who is at work on this machine now; it replaces no fence.
"""

from __future__ import annotations

import errno
import fcntl
import os
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from clew.errors import StoreError, StoreLocked

_FLAGS = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0)


class FileLock:
    """One lock file, held by at most one FileLock object of all processes at a time. Not for use by two
    threads.

    The descriptor stays open between uses, which makes taking a free lock cost a few microseconds.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd = -1
        self._held = False

    def acquire(self, timeout_s: float = 30.0) -> None:
        """Takes the lock, waiting at most `timeout_s` seconds; raises StoreLocked, or StoreError without a
        file."""
        assert not self._held, "a lock is not taken twice"
        while True:
            fd = self._open()
            taken = False
            try:
                taken = wait_for_flock(fd, timeout_s)
                if not taken:
                    raise self._timed_out(timeout_s)
            finally:
                if not taken:
                    self.close()
            if self._is_current(fd):
                break
            self.close()
        self._held = True
        with suppress(OSError):  # The lock needs no space on the disk; only the hint of a waiter needs this.
            os.pwrite(fd, b"%-20d\n" % os.getpid(), 0)

    def release(self) -> None:
        """Gives the lock back; the file stays."""
        assert self._held, "only a held lock is released"
        self._held = False
        fcntl.flock(self._fd, fcntl.LOCK_UN)

    def close(self) -> None:
        """Closes the descriptor, which also gives a held lock back."""
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1
        self._held = False

    @contextmanager
    def held(self, timeout_s: float = 30.0) -> Generator[None]:
        """Holds the lock for the block."""
        self.acquire(timeout_s)
        try:
            yield
        finally:
            if self._held:
                self.release()

    def _open(self) -> int:
        if self._fd < 0:
            try:
                self._fd = os.open(self.path, _FLAGS, 0o600)
            except OSError as error:
                raise StoreError(
                    f"cannot open the lock file {self.path}: {error.strerror}",
                    hint="Check that its folder exists and is yours to write.",
                    path=str(self.path),
                ) from error
        return self._fd

    def _is_current(self, fd: int) -> bool:
        """Tells whether the path still names the file that is locked: somebody may have deleted it
        meanwhile."""
        try:
            there = self.path.lstat()
        except FileNotFoundError:
            return False
        here = os.fstat(fd)
        return (here.st_dev, here.st_ino) == (there.st_dev, there.st_ino)

    def _timed_out(self, timeout_s: float) -> StoreLocked:
        holder = self._holder()
        by = f" by process {holder}" if holder else ""
        return StoreLocked(
            f"{self.path} has been held{by} for more than {timeout_s:g} s",
            hint="Wait for the other clew command, or stop it; do not delete the lock file.",
            path=str(self.path),
            holder=holder,
        )

    def _holder(self) -> int | None:
        text = os.pread(self._fd, 32, 0).split(b"\n")[0].strip()
        return int(text) if text.isdigit() else None


@contextmanager
def locked(path: Path, timeout_s: float = 30.0) -> Generator[None]:
    """Holds the lock at `path` for the block; raises StoreLocked after `timeout_s` seconds of waiting."""
    lock = FileLock(path)
    try:
        with lock.held(timeout_s):
            yield
    finally:
        lock.close()


def wait_for_flock(fd: int, timeout_s: float) -> bool:
    """Takes an exclusive `flock` on `fd` within `timeout_s` seconds and tells whether it did.

    Trying again and again would starve a waiter beside a busy writer, so a contended lock is waited for in
    the kernel's queue, by a thread of its own that gives the lock back when it comes too late. So when this
    returns False or raises, `fd` must be closed and not be locked again: that thread still waits for it.
    """
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in (errno.EWOULDBLOCK, errno.EACCES, errno.EINTR):
            raise
    else:
        return True
    return timeout_s > 0 and _Waiter(fd).wait(timeout_s)


class _Waiter:
    """Waits for one flock in a thread, so that the wait can be given up."""

    def __init__(self, fd: int) -> None:
        # The duplicate shares the lock: flock belongs to the open file, not to the descriptor.
        self._fd = os.dup(fd)
        self._taken = threading.Event()
        self._guard = threading.Lock()
        self._given_up = False
        threading.Thread(target=self._run, name="clew-lock", daemon=True).start()

    def wait(self, timeout_s: float) -> bool:
        done = False
        try:
            done = self._taken.wait(timeout_s)
        finally:
            with self._guard:
                done = done or self._taken.is_set()
                self._given_up = not done
        return done

    def _run(self) -> None:
        fcntl.flock(self._fd, fcntl.LOCK_EX)
        with self._guard:
            if self._given_up:
                fcntl.flock(self._fd, fcntl.LOCK_UN)
            else:
                self._taken.set()
        os.close(self._fd)
