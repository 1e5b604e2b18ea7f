"""Command lines of Codex, and who holds a thread now.

Codex takes an OS lock (`flock`) on `thread-writer-locks/<thread id>.lock` for as long as a process has the thread
open. The file itself proves nothing: it stays behind a killed process. So the lock is tried, never the file.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Mapping
from pathlib import Path

from clew.formats.codex.locate import LOCATE
from clew.formats.protocol import Found, Home, Owner
from clew.ids import is_safe_name
from clew.platform.process import identify

LOCKS = "thread-writer-locks"
_SUFFIX = ".lock"


class CodexResume:
    """The resume room of Codex."""

    program = "codex"

    def argv(self, session_id: str, *, model: str = "", extra: tuple[str, ...] = ()) -> tuple[str, ...]:
        """Returns the command line that resumes a thread."""
        chosen = ("-m", model) if model else ()
        return (self.program, "resume", session_id, *chosen, *extra)

    def fork_argv(self, session_id: str) -> tuple[str, ...]:
        """Returns the command line that forks a thread."""
        return (self.program, "fork", session_id)

    def owner(self, found: Found, home: Home) -> Owner | None:
        """Returns the process that has the thread open, or None."""
        if not is_safe_name(found.id):
            return None
        return _holder(LOCATE.base(home) / LOCKS / f"{found.id}{_SUFFIX}")

    def owners(self, home: Home) -> Mapping[str, Owner]:
        """Returns all threads that a process has open, in one look at the lock folder."""
        owners: dict[str, Owner] = {}
        try:
            names = sorted(os.listdir(LOCATE.base(home) / LOCKS))
        except OSError:
            return owners
        for name in names:
            if name.endswith(_SUFFIX) and not name.startswith("."):
                holder = _holder(LOCATE.base(home) / LOCKS / name)
                if holder is not None:
                    owners[name.removesuffix(_SUFFIX)] = holder
        return owners


def _holder(path: Path) -> Owner | None:
    """Returns who holds the lock on a file; None where nobody does or there is no such file.

    Where the kernel does not tell, the lock is tried shared and given back at once: an agent that starts in this very
    moment may be refused once. Then nobody knows who it is: process 0.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError):
        return None
    try:
        pid = _pid_by_kernel(os.fstat(fd))
        if pid is not None:
            identity = identify(pid)
            return Owner(pid, "writer lock", None if identity is None else identity.start_ticks)
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return Owner(0, "writer lock")
    except OSError:
        return None
    finally:
        os.close(fd)
    return None


def _pid_by_kernel(facts: os.stat_result) -> int | None:
    """Returns who holds a lock on this file by the kernel's own list (Linux), or None."""
    key = f"{os.major(facts.st_dev):02x}:{os.minor(facts.st_dev):02x}:{facts.st_ino}"
    for line in _read_locks().splitlines():
        fields = line.split()
        if key in fields and "->" not in fields:
            pid = fields[fields.index(key) - 1]
            if pid.isdigit() and pid != "0":
                return int(pid)
    return None


def _read_locks() -> str:
    try:
        return Path("/proc/locks").read_text("ascii", "replace")
    except OSError:
        return ""


RESUME = CodexResume()
