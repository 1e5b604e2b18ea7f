"""Where a command's output goes: lines for people, JSON for programs, notes on standard error.

Promises that with `--json` standard output holds JSON only; that a reader who has left is no failure; and that what
is written can be encoded. Callers pass session text through `Look.safe` first: nothing here looks at it again.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from io import TextIOWrapper
from typing import Any, TextIO

from clew.cli.ending import ReaderGone
from clew.cli.progress import Progress
from clew.cli.safe import make_safe, write_json
from clew.cli.settings import Settings
from clew.cli.style import Look

_FIRST_SCREEN = 60


class Screen:
    """The two streams of one command, and what they can show."""

    def __init__(self, out: TextIO, err: TextIO, settings: Settings, env: Mapping[str, str]) -> None:
        self._out, self._err, self._env = out, err, env
        self.is_json, self.quiet, self.verbose = settings.json, settings.quiet, settings.verbose
        self.look = _make_look(out, settings, env)
        self.errors = _make_look(err, settings, env)
        self.progress = Progress(
            err,
            active=self.errors.terminal and not (settings.quiet or settings.json),
        )
        self._lines = 0

    def line(self, text: str = "") -> None:
        """Writes one line of the answer."""
        self.progress.clear()
        self._lines += 1
        try:
            self._out.write(self.look.own(text) + "\n")
            if self._lines == _FIRST_SCREEN:
                self._out.flush()
        except BrokenPipeError as error:
            raise ReaderGone from error

    def lines(self, texts: Iterable[str]) -> None:
        """Writes many lines, each as soon as it is there."""
        for text in texts:
            self.line(text)

    def json(self, value: Any) -> None:
        """Writes a value as one line of JSON."""
        self.line(write_json(value))

    def note(self, text: str) -> None:
        """Writes one line on standard error, unless notes are unwanted; `text` is safe already.

        With JSON there are none: standard error then holds a failure's object, or nothing.
        """
        if not self.quiet and not self.is_json:
            self.tell(text)

    def tell(self, text: str) -> None:
        """Writes one line on standard error whatever the settings say."""
        self.progress.clear()
        try:
            self._err.write(self.errors.own(text) + "\n")
            self._err.flush()
        except BrokenPipeError as error:
            raise ReaderGone from error

    def warn(self, text: str) -> None:
        """Notes something odd that stopped nothing; takes any text."""
        sign = self.errors.paint("warn", "!")
        self.note(f"{sign} {make_safe(text, line=True, encoding=self.errors.encoding)}")

    def flush(self) -> None:
        """Writes out what is held back."""
        self.progress.clear()
        try:
            self._out.flush()
        except BrokenPipeError as error:
            raise ReaderGone from error

    @contextmanager
    def paged(self) -> Generator[None]:
        """Sends the lines written inside through the pager, where standard output is a terminal."""
        from clew.cli.pager import end_pager, start_pager

        self.flush()
        process = start_pager(self._env) if self.look.terminal else None
        if process is None or process.stdin is None:
            yield
            return
        pipe = TextIOWrapper(process.stdin, self.look.encoding, errors="backslashreplace", newline="\n")
        direct, self._out, self._lines = self._out, pipe, 0
        try:
            yield
        except ReaderGone:
            pass
        finally:
            self._out = direct
            end_pager(process, pipe)


def _make_look(stream: TextIO, settings: Settings, env: Mapping[str, str]) -> Look:
    is_tty = stream.isatty()
    terminal = is_tty and not settings.plain and env.get("TERM") != "dumb"
    encoding = getattr(stream, "encoding", None) or "utf-8"
    return Look(
        width=_width(stream, env) if terminal else 0,
        color=_wants_color(settings, env, terminal=terminal),
        encoding=encoding,
        terminal=terminal,
    )


def _wants_color(settings: Settings, env: Mapping[str, str], *, terminal: bool) -> bool:
    """Decides by the option, then NO_COLOR, then FORCE_COLOR, then whether it is a terminal that knows colour."""
    if settings.color != "auto":
        return settings.color == "always"
    if settings.plain or env.get("NO_COLOR"):
        return False
    if env.get("FORCE_COLOR"):
        return env["FORCE_COLOR"] != "0"
    return terminal


def _width(stream: TextIO, env: Mapping[str, str]) -> int:
    text = env.get("COLUMNS", "")
    if text.isdecimal() and 0 < int(text) < 10_000:
        return int(text)
    try:
        return os.get_terminal_size(stream.fileno()).columns or 80
    except (OSError, ValueError):
        return 80
