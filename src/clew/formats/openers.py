"""Who has an SQLite database open: the processes behind the locks on the index beside it.

Promised: nothing is opened, locked or written, and nothing raises. A database that is not kept with a write-ahead log
has no such index, so that nobody is seen there.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec

_LINUX = sys.platform.startswith("linux")


class Opener(msgspec.Struct, frozen=True):
    """A process that has a database open; without arguments and folder where it does not let itself be looked at."""

    pid: int
    args: tuple[str, ...]
    cwd: str


def openers_of(database: Path, program: str) -> Iterator[Opener]:
    """Yields the processes that have a database open: each holds a lock on the index that they share beside it.

    Where the system has no list of locks, they are those that are called like `program`.
    """
    try:
        facts = Path(f"{database}-shm").stat()
    except OSError:
        return
    pids = _by_kernel(facts) if _LINUX else _by_name(program)
    if not pids:
        return
    import psutil

    for pid in sorted(pids - {os.getpid()}):
        try:
            process = psutil.Process(pid)
            yield Opener(pid, tuple(process.cmdline()), process.cwd())
        except (psutil.Error, OSError):
            yield Opener(pid, (), "")


def _by_kernel(facts: os.stat_result) -> set[int]:
    """Returns who holds a lock on a file by the kernel's own list."""
    key = f"{os.major(facts.st_dev):02x}:{os.minor(facts.st_dev):02x}:{facts.st_ino}"
    try:
        lines = Path("/proc/locks").read_text("ascii", "replace").splitlines()
    except OSError:
        return set()
    found: set[int] = set()
    for line in lines:
        fields = line.split()
        if "->" not in fields and key in fields:
            pid = fields[fields.index(key) - 1]
            found |= {int(pid)} if pid.isdigit() and pid != "0" else set()
    return found


def _by_name(program: str) -> set[int]:
    """Returns the processes that are called like the agent, or whose first arguments name it."""
    import psutil

    found: set[int] = set()
    for process in psutil.process_iter(["name", "cmdline"]):
        info: dict[str, object] = process.info  # type: ignore[attr-defined]
        given = info.get("cmdline")
        words = [str(info.get("name") or ""), *(map(str, given[:2]) if isinstance(given, list) else ())]  # type: ignore[index]
        if any(program in Path(word).name for word in words):
            found.add(process.pid)
    return found
