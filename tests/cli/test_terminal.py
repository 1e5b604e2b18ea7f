"""The command line on a real terminal (a pty): width, colour, pager, signals, and becoming another program."""

import errno
import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios

import pytest

ENV = {"PATH": "/usr/bin:/bin", "PYTHONPATH": ":".join(p for p in sys.path if p), "TERM": "xterm", "TZ": "UTC"}

LIST = """
import sys, clew.verbs.ls
from cli_samples import make_row, make_rows, HOSTILE
clew.verbs.ls.ls = lambda ctx, **o: iter([*make_rows(), make_row(title=HOSTILE)])
from clew.cli.main import cli
cli.main(sys.argv[1:])
"""

SHOW = """
import sys, clew.verbs.show, msgspec
from cli_samples import make_shown
shown = make_shown()
shown = msgspec.structs.replace(shown, messages=shown.messages * 300)
clew.verbs.show.show = lambda ctx, ref, **o: shown
from clew.cli.main import cli
cli.main(sys.argv[1:])
"""


class Run:
    """A program on a terminal of its own: everything it wrote, and its status."""

    def __init__(self, program, *words, columns=80, env=None, cwd=None, signal_at=b""):
        self.parent, child = pty.openpty()
        fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        settings = termios.tcgetattr(child)
        settings[1] &= ~termios.OPOST
        termios.tcsetattr(child, termios.TCSANOW, settings)
        argv = [sys.executable, "-c", program, *words]
        home = {"HOME": "/nonexistent", "XDG_DATA_HOME": "/nonexistent"}
        self.process = subprocess.Popen(
            argv, stdin=child, stdout=child, stderr=child, env={**ENV, **home, **(env or {})}, cwd=cwd, close_fds=True
        )
        os.close(child)
        self.data = b""
        try:
            self._read(signal_at)
            self.status = self.process.wait(30)
        finally:
            if self.process.poll() is None:
                self.process.kill()
            os.close(self.parent)
        self.text = self.data.decode()

    def _read(self, signal_at):
        while True:
            ready, _, _ = select.select([self.parent], [], [], 30)
            assert ready, "the program says nothing any more"
            try:
                piece = os.read(self.parent, 65536)
            except OSError as error:
                if error.errno != errno.EIO:
                    raise
                return
            if not piece:
                return
            self.data += piece
            if signal_at and signal_at in self.data:
                self.process.send_signal(signal.SIGINT)
                signal_at = b""


@pytest.mark.parametrize("columns", [140, 80, 50])
def test_the_list_takes_the_width_of_the_terminal(columns):
    run = Run(LIST, "ls", "--color", "never", columns=columns, env={"PAGER": "cat"})
    assert run.status == 0
    assert run.text.splitlines()[0] != ""
    longest = max(len(line) for line in run.text.splitlines()[:-1])
    assert columns - 12 <= longest <= columns


def test_there_is_colour_on_a_terminal_and_none_with_no_color():
    assert "\x1b[35mclaude" in Run(LIST, "ls", env={"PAGER": "cat"}).text
    assert "\x1b" not in Run(LIST, "ls", env={"PAGER": "cat", "NO_COLOR": "1"}).text
    assert "\x1b" not in Run(LIST, "ls", env={"PAGER": "cat", "TERM": "dumb"}).text


def test_plain_on_a_terminal_is_the_plain_list():
    assert "\tclaude\t" in Run(LIST, "ls", "--plain").text


def test_session_text_does_nothing_to_the_terminal():
    text = Run(LIST, "ls", "--color", "never", env={"PAGER": "cat"}).text
    assert "␛]52;c;cm0gLXJm␇" in Run(LIST, "ls", "--plain").text
    assert not any(char in text for char in "\x1b\x07\x9b\u202e")


def test_an_ascii_terminal_gets_ascii():
    run = Run(LIST, "ls", env={"PAGER": "cat", "PYTHONIOENCODING": "ascii", "NO_COLOR": "1"})
    assert run.status == 0
    assert run.data.isascii()
    assert b"* live" in run.data


def test_long_output_goes_through_the_pager_with_its_colours(tmp_path):
    pager = tmp_path / "pager"
    pager.write_text('#!/bin/sh\necho "[$LESS]"\nexec head -n 3\n')
    pager.chmod(0o755)
    run = Run(SHOW, "show", env={"PAGER": str(pager)})
    assert run.status == 0, run.text
    lines = run.text.splitlines()
    assert lines[0] == "[FRX]"
    assert lines[1] == "\x1b[1mRead UTF-8 in load()\x1b[0m"
    assert len(lines) == 4


def test_a_pager_that_is_not_there_is_done_without():
    run = Run(SHOW, "show", env={"PAGER": "/nonexistent/pager"})
    assert run.status == 0
    assert "Read UTF-8 in load()" in run.text


def test_the_plain_pager_is_less_when_it_is_there():
    run = Run(LIST, "ls", "--color", "never")
    assert run.status == 0
    assert "Fix the parser" in run.text


def test_ctrl_c_ends_with_130():
    program = (
        "import sys, signal, clew.verbs.ls\n"
        "def ls(ctx, **o):\n"
        "    print('waiting', flush=True)\n"
        "    signal.pause()\n"
        "clew.verbs.ls.ls = ls\n"
        "from clew.cli.main import cli\n"
        "cli.main(['ls'])\n"
    )
    run = Run(program, signal_at=b"waiting", env={"NO_COLOR": "1"})
    assert run.status == 130
    assert run.text.splitlines() == ["waiting", "clew: interrupted"]


def test_progress_is_shown_on_a_terminal_and_taken_away():
    program = (
        "import sys, clew.verbs.ls, clew.cli.progress\n"
        "from cli_samples import make_rows\n"
        "clew.cli.progress.DELAY_SECONDS = clew.cli.progress.PAUSE_SECONDS = 0\n"
        "def ls(ctx, **o):\n"
        "    ctx.progress('reading sessions', 1, 3)\n"
        "    ctx.progress('reading sessions', 2, 3)\n"
        "    return iter(make_rows())\n"
        "clew.verbs.ls.ls = ls\n"
        "from clew.cli.main import cli\n"
        "cli.main(['ls', '--color', 'never'])\n"
    )
    text = Run(program, env={"PAGER": "cat"}).text
    shown = text.index("reading sessions 2 of 3")
    assert text.index("\r\x1b[K", shown) < text.index("Fix the parser")


def test_resume_becomes_the_agent_with_the_same_process(tmp_path):
    agent = tmp_path / "agent"
    agent.write_text('#!/bin/sh\n[ -t 0 ] && t=tty\necho "$$ $t $PWD $HOME [$CODEX_HOME] $*"\nexit 7\n')
    agent.chmod(0o755)
    folder = tmp_path / "work shop"
    folder.mkdir()
    program = (
        "import os, sys, clew.verbs.resume as r\n"
        "print(os.getpid(), flush=True)\n"
        "r.resume = lambda ctx, ref, **o: r.ResumePlan(\n"
        "    ('agent', 'resume', *o['extra']), sys.argv[1], agent='codex', session_id='01a2')\n"
        "from clew.cli.main import cli\n"
        "cli.main(['resume', '--root', sys.argv[2], '--', '-v', 'x y'])\n"
    )
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin", "CODEX_HOME": "/elsewhere"}
    run = Run(program, str(folder), str(tmp_path), env=env)
    assert run.status == 7, run.text
    pid, line = run.text.splitlines()
    assert line == f"{pid} tty {folder} {tmp_path} [] resume -v x y"


def test_a_missing_agent_says_what_to_install():
    program = (
        "import clew.verbs.resume as r\n"
        "r.resume = lambda ctx, ref, **o: r.ResumePlan(('no-such-agent',), '/', agent='codex')\n"
        "from clew.cli.main import cli\n"
        "cli.main(['resume'])\n"
    )
    run = Run(program)
    assert run.status == 3
    assert "no-such-agent is not installed" in run.text
