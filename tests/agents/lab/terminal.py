"""Looks at a program through a terminal of its own, as far as a list on a screen needs it.

`look` runs a program on a pseudo terminal until its screen is ready and at rest, and returns the screen's lines. The
screen knows cursor movement, erasing and text; colours and modes are passed over.
"""

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from agents.lab.process import TooSlow, end_tree

__all__ = ["Screen", "look"]

ROWS, COLUMNS = 60, 160

QUIET_SECONDS = 0.4
"""A screen that has not changed for so long is at rest."""

SEQUENCE = re.compile(
    r"\x1b\[(?P<private>[?>=]?)(?P<numbers>[0-9;]*)(?P<final>[a-zA-Z@`])"
    r"|\x1b\].*?(?:\x07|\x1b\\)|\x1b[()][A-Z0-9]|\x1b[a-zA-Z0-9=>]",
    re.DOTALL,
)


class Screen:
    """A grid of characters that follows what a program writes."""

    def __init__(self, rows: int = ROWS, columns: int = COLUMNS) -> None:
        self._cells = [[" "] * columns for _ in range(rows)]
        self._rows, self._columns = rows, columns
        self._row = self._column = 0

    @property
    def lines(self) -> list[str]:
        """The lines as one sees them, without trailing blanks."""
        return ["".join(row).rstrip() for row in self._cells]

    def feed(self, text: str) -> None:
        """Takes what the program wrote; a sequence must not be cut between two calls."""
        at = 0
        while at < len(text):
            found = SEQUENCE.match(text, at)
            if found:
                if found["final"] and not found["private"]:
                    numbers = [int(number or 0) for number in found["numbers"].split(";")]
                    self._move(found["final"], numbers)
                at = found.end()
            else:
                self._put(text[at])
                at += 1

    def _put(self, character: str) -> None:
        if character == "\r":
            self._column = 0
        elif character == "\n":
            if self._row + 1 == self._rows:
                self._cells = [*self._cells[1:], [" "] * self._columns]
            self._row = min(self._rows - 1, self._row + 1)
        elif character == "\b":
            self._column = max(0, self._column - 1)
        elif character >= " ":
            if self._column < self._columns:
                self._cells[self._row][self._column] = character
            self._column += 1

    def _move(self, final: str, numbers: list[int]) -> None:
        count = max(1, numbers[0])
        match final:
            case "A":
                self._row = max(0, self._row - count)
            case "B":
                self._row = min(self._rows - 1, self._row + count)
            case "C":
                self._column += count
            case "D":
                self._column = max(0, self._column - count)
            case "G":
                self._column = count - 1
            case "H":
                self._row = min(self._rows, count) - 1
                self._column = max(1, numbers[1] if len(numbers) > 1 else 1) - 1
            case "J":
                self._erase(numbers[0])
            case "K":
                self._erase_line(numbers[0])
            case _:
                pass

    def _erase(self, how: int) -> None:
        if how == 0:
            self._erase_line(0)
            rows = range(self._row + 1, self._rows)
        else:
            rows = range(self._rows)
        for row in rows:
            self._cells[row] = [" "] * self._columns

    def _erase_line(self, how: int) -> None:
        start = self._column if how == 0 else 0
        end = self._column + 1 if how == 1 else self._columns
        for column in range(min(start, self._columns), min(end, self._columns)):
            self._cells[self._row][column] = " "


def look(
    argv: Sequence[str | Path],
    cwd: Path,
    env: Mapping[str, str],
    is_ready: Callable[[str], bool],
    seconds: float = 30.0,
) -> list[str]:
    """Returns the lines of a program's screen once it is ready and at rest; the program is then ended.

    Raises TooSlow with the screen as it was.
    """
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    child = subprocess.Popen(
        [str(part) for part in argv],
        cwd=cwd,
        env=dict(env) | {"TERM": "xterm-256color"},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    data = b""
    try:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if select.select([ours], [], [], QUIET_SECONDS)[0]:
                try:
                    data += os.read(ours, 1 << 16)
                except OSError:  # the program has closed its terminal
                    break
                continue
            lines = _screen(data).lines
            if is_ready("\n".join(lines)):
                return lines
        shown = "\n".join(line for line in _screen(data).lines if line)
        raise TooSlow(f"the screen was not ready after {seconds:g} s:\n{shown}")
    finally:
        end_tree(child)
        os.close(ours)


def _screen(data: bytes) -> Screen:
    screen = Screen()
    screen.feed(data.decode("utf-8", "replace"))
    return screen
