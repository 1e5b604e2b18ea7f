"""Progress of long work: one line on standard error, on a terminal only, and only when it takes a while.

The line is gone when the work is done or something else is written. The clock is an argument.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TextIO

from clew.cli.safe import make_safe

DELAY_SECONDS = 0.5
PAUSE_SECONDS = 0.1
_CLEAR = "\r\x1b[K"


class Progress:
    """Called as `progress(what, done, total)`; `total` of 0 means that nobody knows."""

    def __init__(self, stream: TextIO, *, active: bool, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream, self._active, self._clock = stream, active, clock
        self._started: float | None = None
        self._next = 0.0
        self._shown = False

    def __call__(self, what: str, done: int, total: int) -> None:
        """Shows how far it is, unless it began a moment ago."""
        if not self._active:
            return
        now = self._clock()
        if self._started is None:
            self._started = now
            self._next = now + DELAY_SECONDS
        if now < self._next:
            return
        self._next = now + PAUSE_SECONDS
        amount = f" {done:,} of {total:,}" if total else f" {done:,}" if done else ""
        self._stream.write(_CLEAR + make_safe(what, line=True)[:60] + amount)
        self._stream.flush()
        self._shown = True

    def clear(self) -> None:
        """Takes the line away, if there is one."""
        if self._shown:
            self._stream.write(_CLEAR)
            self._stream.flush()
            self._shown = False
