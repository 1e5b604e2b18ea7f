"""The command lines that resume and fork a session, and the agent's own sign of who holds one.

While it runs, the agent keeps `<id>.runtime.json` beside the session, with its process and its host.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from clew.errors import ClewError
from clew.formats.protocol import Found, Home, Owner
from clew.formats.qwen.locate import LOCATE
from clew.formats.qwen.writer import CHATS, PROJECTS
from clew.platform.mapped import open_source
from clew.platform.process import identify

_SIGN = ".runtime.json"


class Sign(msgspec.Struct):
    """What the agent says of itself while it runs."""

    pid: Any = None
    session_id: Any = None
    hostname: Any = None


class QwenResume:
    """How Qwen Code is told to go on with a session; it looks only at those of the folder that it runs in."""

    program = "qwen"

    def argv(self, session_id: str, *, model: str = "", extra: tuple[str, ...] = ()) -> tuple[str, ...]:
        """Returns the command line that resumes a session."""
        return (self.program, "--resume", session_id, *(("-m", model) if model else ()), *extra)

    def fork_argv(self, session_id: str) -> tuple[str, ...]:
        """Returns the command line that forks a session."""
        return (self.program, "--resume", session_id, "--fork-session")

    def owner(self, found: Found, home: Home) -> Owner | None:
        """Returns the process that runs the session, or None."""
        path = found.path.with_name(found.path.name.removesuffix(".jsonl") + _SIGN)
        read = _read_sign(path)
        return None if read is None or read[0] != found.id else read[1]

    def owners(self, home: Home) -> Mapping[str, Owner]:
        """Returns all sessions that a process runs, in one look at the chats."""
        found = (_read_sign(path) for path in _signs(LOCATE.base(home) / PROJECTS))
        return {read[0]: read[1] for read in found if read is not None}


def _signs(projects: Path) -> Iterator[Path]:
    try:
        yield from projects.glob(f"*/{CHATS}/*{_SIGN}")
    except OSError:
        return


def _read_sign(path: Path) -> tuple[str, Owner] | None:
    try:
        with open_source(path) as opened:
            sign = msgspec.json.decode(bytes(opened.data[:65536]), type=Sign)
    except (ClewError, OSError, msgspec.DecodeError, RecursionError):
        return None
    if type(sign.pid) is not int or sign.pid <= 0 or not isinstance(sign.session_id, str):
        return None
    if sign.hostname != socket.gethostname():
        return None
    identity = identify(sign.pid)
    return None if identity is None else (sign.session_id, Owner(sign.pid, "runtime file", identity.start_ticks))


RESUME = QwenResume()
