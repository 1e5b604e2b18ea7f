"""Closing a journal so that it is either closed or kept for another try, never lost.

A close that fails has not released its handle; calling again is a real second attempt. Whoever is unwinding another
error hands the journal to a registry of the process: `close_or_retain` tells what happened and never raises, so the
first error is what the caller gets. At teardown `retry_all` closes what can be closed; the rest stays and is reported.
"""

from __future__ import annotations

from threading import Lock
from typing import Protocol

import msgspec


class Closable(Protocol):
    """A journal that holds something until it is closed."""

    @property
    def directory(self) -> str:
        """Where it lives, for people."""
        ...

    def close(self) -> None:
        """Releases what it holds; raises when it could not, and may be called again."""
        ...


class Closing(msgspec.Struct, frozen=True):
    """What a try to close came to; `error` is what was raised."""

    closed: bool
    error: Exception | None = None


class CloseRegistry:
    """The journals of one process that could not be closed yet. Safe to use from several threads."""

    def __init__(self) -> None:
        """Begins empty."""
        self._held: dict[int, Closable] = {}
        self._lock = Lock()

    def close_or_retain(self, journal: Closable) -> Closing:
        """Closes a journal, or keeps it (once, by identity) for `retry_all`. Never raises."""
        try:
            journal.close()
        except Exception as error:  # noqa: BLE001 - another error is unwinding; this one is a value
            with self._lock:
                self._held[id(journal)] = journal
            return Closing(False, error)
        with self._lock:
            self._held.pop(id(journal), None)
        return Closing(True)

    def retry_all(self) -> tuple[Closing, ...]:
        """Tries again to close every held journal and returns the failures; what closes leaves the registry."""
        with self._lock:
            waiting = list(self._held.values())
        tries = [self.close_or_retain(journal) for journal in waiting]
        return tuple(one for one in tries if not one.closed)

    def held_directories(self) -> tuple[str, ...]:
        """Returns where the held journals live, sorted."""
        with self._lock:
            return tuple(sorted(journal.directory for journal in self._held.values()))
