"""The active lock: tells a run that is going on from one that is over, however it ended.

A side file `<run>.lock` is locked for the life of the run; the lock, not a missing end record and not elapsed time,
is the evidence, and it falls with the process. The file itself stays. A second opener of one run is refused; where a
file system cannot lock, the run goes on and its state is simply not shown as running.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Literal

from clew.errors import RunError, StoreError, StoreLocked
from clew.platform.lock import FileLock, wait_for_flock

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

Activity = Literal["active", "inactive", "unknown"]

# A probe holds the lock for microseconds; a run that starts meanwhile waits that long.
_PROBE_S = 0.2


class ActiveLock:
    """Holds one run's lock for the block; RunError (`run_active`) when another process has it."""

    def __init__(self, path: Path, run_id: str) -> None:
        self._run_id = run_id
        self._lock = FileLock(path)
        self.supported = False

    def __enter__(self) -> ActiveLock:
        try:
            self._lock.acquire(_PROBE_S)
        except StoreLocked as error:
            raise RunError(
                f"run {self._run_id} is already active",
                code="run_active",
                hint="Wait for it, or stop its process.",
                run=self._run_id,
                holder=error.concerns.get("holder"),
            ) from error
        except (OSError, StoreError):
            return self
        self.supported = True
        return self

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
