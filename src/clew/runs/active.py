"""The active lock: tells a run that is going on from one that is over, however it ended.

A side file `<run>.lock` is locked for the life of the run; the lock, not a missing end record and not elapsed time,
is the evidence, and it falls with the process. The file itself stays. A second opener of one run is refused; where a
file system cannot lock, the run goes on and its state is simply not shown as running.

A resume holds a second file of its parent, `<run>.resume.lock`, likewise: two resumes of one run at a time would both
do, and pay for, the same items. It is not the parent's own lock, because the parent does not run.
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Literal

from clew.errors import RunError, StoreError, StoreLocked
from clew.platform.lock import FileLock, wait_for_flock

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

Activity = Literal["active", "inactive", "unknown"]

ACTIVE = "already active"
RESUMED = "already being resumed"

# A probe holds the lock for microseconds; a run that starts in the same moment tries again. (Waiting in the kernel's
# queue would leave a late waiter that takes the lock once more after its holder is gone.)
_TRIES = 20
_PAUSE_S = 0.01


class ActiveLock:
    """Holds one run's lock for the block; RunError (`run_active`) when another process has it."""

    def __init__(self, path: Path, run_id: str, what: str = ACTIVE) -> None:
        self._run_id = run_id
        self._what = what
        self._lock = FileLock(path)
        self.supported = False

    def __enter__(self) -> ActiveLock:
        for left in reversed(range(_TRIES)):
            try:
                self._lock.acquire(0)
            except StoreLocked as error:
                if not left:
                    raise self._held(error) from error
                threading.Event().wait(_PAUSE_S)
            except (OSError, StoreError):
                return self
            else:
                self.supported = True
                return self
        raise AssertionError("the last try returns or raises")

    def _held(self, error: StoreLocked) -> RunError:
        return RunError(
            f"run {self._run_id} is {self._what}",
            code="run_active",
            hint="Wait for it, or stop its process."
            if self._what == ACTIVE
            else "Resume the run that goes on with it.",
            run=self._run_id,
            holder=error.concerns.get("holder"),
        )

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Gives the lock back; a second call does nothing."""
        self._lock.close()


def probe(path: Path) -> Activity:
    """Tells whether the run of this lock file goes on; takes nothing and leaves nothing held.

    `unknown` is for an error other than "held", and is to be shown as not running.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return "inactive"
    except OSError:
        return "unknown"
    try:
        return "inactive" if wait_for_flock(fd, 0) else "active"
    except OSError:
        # A file system that cannot lock never had a holder.
        return "inactive"
    finally:
        os.close(fd)
