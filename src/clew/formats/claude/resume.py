"""The command lines that resume and fork a session, and the agent's own sign of who holds one."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from clew.formats.claude.folder import LIVE
from clew.formats.claude.locate import ClaudeLocate
from clew.formats.folders import small_file
from clew.formats.protocol import Found, Home, Owner
from clew.platform.process import identify


class Live(msgspec.Struct, rename="camel"):
    """One entry of the agent's registry of running processes (`sessions/<pid>.json`)."""

    pid: Any = None
    session_id: Any = None
    proc_start: Any = None
    status: Any = None
    entrypoint: Any = None


class ClaudeResume:
    """How Claude Code is told to go on with a session."""

    program = "claude"

    def argv(self, session_id: str, *, model: str = "", extra: tuple[str, ...] = ()) -> tuple[str, ...]:
        """Returns the command line that resumes a session; it is run in the session's folder."""
        chosen = ("--model", model) if model else ()
        return (self.program, "--resume", session_id, *chosen, *extra)

    def fork_argv(self, session_id: str) -> tuple[str, ...]:
        """Returns the command line that goes on in a copy of a session."""
        return (self.program, "--resume", session_id, "--fork-session")

    def owner(self, found: Found, home: Home) -> Owner | None:
        """Returns the live process that holds the session by the agent's own registry, or None."""
        return self.owners(home).get(found.id)

    def owners(self, home: Home) -> Mapping[str, Owner]:
        """Returns all live owners by session id, in one look.

        The registry survives a kill, so an entry counts only if its process is there and began when it says
        (on Linux; elsewhere the start is written in another way, and a living process of that number counts).
        """
        found: dict[str, Owner] = {}
        for path in sorted((ClaudeLocate().base(home) / LIVE).glob("*.json")):
            live = _read(path)
            if live is None or type(live.session_id) is not str or type(live.pid) is not int:
                continue
            identity = identify(live.pid)
            if identity is None:
                continue
            if _LINUX and isinstance(live.proc_start, str) and live.proc_start != str(identity.start_ticks):
                continue
            status = live.status if isinstance(live.status, str) else "running"
            detail = f"claude, process {live.pid}, {status}"
            found.setdefault(live.session_id, Owner(live.pid, detail, identity.start_ticks))
        return found


_LINUX = sys.platform.startswith("linux")
_DECODE = msgspec.json.Decoder(Live).decode


def _read(path: Path) -> Live | None:
    try:
        if path.is_symlink() or path.stat().st_size > 1 << 20:
            return None
        return _DECODE(small_file(path))
    except (OSError, msgspec.DecodeError, RecursionError):
        return None
