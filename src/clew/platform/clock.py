"""The clock, as a value that is handed in.

Nothing below the verbs asks the system what time it is: it gets a `Clock`, and tests hand in a `FixedClock`.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Protocol


class Clock(Protocol):
    """Tells the time of day (may jump) and a monotonic time (never goes back, has no meaning but
    differences)."""

    def now(self) -> datetime:
        """Returns the present time, aware, in UTC."""
        ...

    def monotonic(self) -> float:
        """Returns seconds since some fixed moment."""
        ...


class SystemClock:
    """The machine's own clock."""

    def now(self) -> datetime:
        """Returns the present time, aware, in UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Returns seconds since some fixed moment."""
        return time.monotonic()


class FixedClock:
    """A clock that stands still until it is moved, for tests and for writing reproducible files."""

    def __init__(self, now: datetime = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)) -> None:
        assert now.tzinfo is not None, "a clock tells aware times"
        self._now = now.astimezone(UTC)
        self._monotonic = 0.0

    def now(self) -> datetime:
        """Returns the time it was set to."""
        return self._now

    def monotonic(self) -> float:
        """Returns the seconds it was moved forward since it was made."""
        return self._monotonic

    def advance(self, seconds: float) -> None:
        """Moves both times forward."""
        self._now += timedelta(seconds=seconds)
        self._monotonic += seconds

    def set(self, now: datetime) -> None:
        """Sets the time of day, also back; the monotonic time stays."""
        self._now = now.astimezone(UTC)
