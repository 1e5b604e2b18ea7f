"""The pager: long output on a terminal goes through `$PAGER`, else `less -FRX`, and its first screen comes at once.

A pager that is missing, empty or `cat` means no pager. A reader who leaves early is no failure. Nothing is started
unless the output is a terminal; that is the caller's question.
"""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Mapping
from typing import IO

DEFAULT = "less -FRX"


def pager_command(env: Mapping[str, str]) -> list[str]:
    """Returns the pager's command line; empty where none is wanted."""
    text = env.get("PAGER", DEFAULT)
    try:
        argv = shlex.split(text)
    except ValueError:
        return []
    return [] if not argv or argv == ["cat"] else argv


def start_pager(env: Mapping[str, str]) -> subprocess.Popen[bytes] | None:
    """Starts the pager with a pipe to write to; None where there is none."""
    argv = pager_command(env)
    if not argv:
        return None
    # A bare `less` would show colours as escapes; its own variable wins where the user has set it.
    surroundings = {"LESS": "FRX", "LESSCHARSET": "utf-8", **env}
    try:
        return subprocess.Popen(argv, stdin=subprocess.PIPE, env=surroundings)
    except OSError:
        return None


def end_pager(process: subprocess.Popen[bytes], pipe: IO[str]) -> None:
    """Closes the pipe and waits until the reader leaves; Ctrl-C belongs to the pager meanwhile."""
    try:
        pipe.close()
    except BrokenPipeError:
        pass
    while True:
        try:
            process.wait()
            return
        except KeyboardInterrupt:
            continue
