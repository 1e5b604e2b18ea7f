import io
import json
from pathlib import Path

import pytest

from clew.cli.ending import ReaderGone
from clew.cli.pager import pager_command
from clew.cli.progress import Progress
from clew.cli.screen import Screen
from clew.cli.settings import Settings
from cli_samples import HOSTILE


class Stream(io.StringIO):
    """A text stream that may be a terminal and may break."""

    def __init__(self, *, tty=False, encoding="utf-8", broken=False):
        super().__init__()
        self.tty, self.coding, self.broken = tty, encoding, broken

    encoding = property(lambda self: self.coding)

    def isatty(self):
        return self.tty

    def write(self, text):
        if self.broken:
            raise BrokenPipeError
        return super().write(text)


def make(out=None, err=None, env=None, **settings):
    return Screen(out or Stream(), err or Stream(), Settings(Path("/d"), **settings), env or {})


TTY = {"TERM": "xterm"}


@pytest.mark.parametrize(
    ("tty", "env", "settings", "color"),
    [
        (True, TTY, {}, True),
        (False, TTY, {}, False),
        (True, {"TERM": "dumb"}, {}, False),
        (True, {**TTY, "NO_COLOR": "1"}, {}, False),
        (True, {**TTY, "NO_COLOR": ""}, {}, True),
        (False, {"FORCE_COLOR": "1"}, {}, True),
        (True, {**TTY, "FORCE_COLOR": "0"}, {}, False),
        (True, {**TTY, "NO_COLOR": "1", "FORCE_COLOR": "1"}, {}, False),
        (False, {"NO_COLOR": "1"}, {"color": "always"}, True),
        (True, {"FORCE_COLOR": "1"}, {"color": "never"}, False),
        (True, TTY, {"plain": True}, False),
    ],
)
def test_when_there_is_colour(tty, env, settings, color):
    assert make(Stream(tty=tty), env=env, **settings).look.color is color


def test_plain_is_no_terminal():
    look = make(Stream(tty=True), env=TTY, plain=True).look
    assert (look.terminal, look.width) == (False, 0)


def test_the_width_is_that_of_the_environment_first():
    assert make(Stream(tty=True), env={"COLUMNS": "132", **TTY}).look.width == 132
    assert make(Stream(tty=True), env={"COLUMNS": "wide", **TTY}).look.width == 80
    assert make(Stream(), env={"COLUMNS": "132"}).look.width == 0


def test_json_is_one_line_without_controls():
    out = Stream()
    make(out, json=True).json({"text": HOSTILE.replace("\ud800", "")})
    (line,) = out.getvalue().splitlines()
    assert json.loads(line)["text"] == HOSTILE.replace("\ud800", "")
    assert not any(char in line for char in "\x1b\x7f\x9b\u202e\u200b")


def test_notes_can_be_silenced_and_failures_not():
    err = Stream()
    screen = make(err=err, quiet=True)
    screen.note("a note")
    screen.warn("a warning")
    screen.tell("a failure")
    assert err.getvalue() == "a failure\n"


def test_warnings_are_made_safe():
    err = Stream()
    make(err=err).warn("\x1b[2J\nx")
    assert err.getvalue() == "! ␛[2J x\n"


def test_our_signs_have_ascii_forms():
    out = Stream(encoding="ascii")
    make(out).line("── ▸ ✗ → … ● ◇ ·")
    assert out.getvalue() == "-- > x > ~ * <> -\n"


def test_a_reader_who_has_left_is_told_apart():
    with pytest.raises(ReaderGone):
        make(Stream(broken=True)).line("x")
    with pytest.raises(ReaderGone):
        make(err=Stream(broken=True)).tell("x")


def test_nothing_is_paged_outside_of_a_terminal(tmp_path):
    out = Stream()
    screen = make(out, env={"PAGER": f"touch {tmp_path}/started"})
    with screen.paged():
        screen.line("x")
    assert out.getvalue() == "x\n"
    assert not (tmp_path / "started").exists()


@pytest.mark.parametrize(
    ("env", "argv"),
    [
        ({}, ["less", "-FRX"]),
        ({"PAGER": "most -s"}, ["most", "-s"]),
        ({"PAGER": ""}, []),
        ({"PAGER": "cat"}, []),
        ({"PAGER": "'"}, []),
    ],
)
def test_which_pager(env, argv):
    assert pager_command(env) == argv


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def test_progress_waits_then_shows_then_goes_away():
    err, clock = Stream(), Clock()
    progress = Progress(err, active=True, clock=clock)
    progress("reading sessions", 0, 10)
    clock.now = 0.4
    progress("reading sessions", 4, 10)
    assert err.getvalue() == ""
    clock.now = 0.6
    progress("reading sessions", 3100, 10000)
    assert err.getvalue() == "\r\x1b[Kreading sessions 3,100 of 10,000"
    clock.now = 0.65
    progress("reading sessions", 3101, 10000)
    progress.clear()
    assert err.getvalue() == "\r\x1b[Kreading sessions 3,100 of 10,000\r\x1b[K"


def test_progress_is_silent_where_it_is_not_wanted():
    err, clock = Stream(tty=True), Clock()
    for screen in (make(err=Stream()), make(err=err, env=TTY, quiet=True), make(err=err, env=TTY, json=True)):
        screen.progress._clock = clock
        screen.progress("x", 0, 1)
        clock.now += 10
        screen.progress("x", 1, 1)
    assert err.getvalue() == ""


def test_progress_cannot_be_used_to_write_controls():
    err, clock = Stream(), Clock()
    progress = Progress(err, active=True, clock=clock)
    progress("\x1b[2J", 0, 0)
    clock.now = 1
    progress("\x1b[2J", 0, 0)
    assert "\x1b[2J" not in err.getvalue()
