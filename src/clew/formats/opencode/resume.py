"""Command lines of OpenCode, and who holds a session now.

OpenCode takes no lock: it reads the database anew at each step. Its sign is a process of its own that has the database
open. One whose command line names the session holds that one; one that stands in the session's folder may hold it, and
is taken to, before anything is written there.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from clew.formats.opencode.locate import LOCATE
from clew.formats.openers import openers_of
from clew.formats.protocol import Found, Home, Owner


class OpenCodeResume:
    """The resume room of OpenCode."""

    program = "opencode"

    def argv(self, session_id: str, *, model: str = "", extra: tuple[str, ...] = ()) -> tuple[str, ...]:
        """Returns the command line that resumes a session; it has to be run in the session's own folder."""
        chosen = ("--model", model) if model else ()
        return (self.program, "--session", session_id, *chosen, *extra)

    def fork_argv(self, session_id: str) -> tuple[str, ...]:
        """Returns the command line that forks a session."""
        return (self.program, "--session", session_id, "--fork")

    def owner(self, found: Found, home: Home) -> Owner | None:
        """Returns a process that holds the session or may hold it, or None."""
        if found.path.suffix == ".json":
            return None
        for process in openers_of(found.path, self.program):
            if found.id in process.args:
                return Owner(process.pid, "named on its command line")
            if found.cwd_hint and _same_folder(found.cwd_hint, process.cwd):
                return Owner(process.pid, "at work in the session's folder")
        return None

    def owners(self, home: Home) -> Mapping[str, Owner]:
        """Returns the sessions that a process holds: named on its command line, else the newest of its folder."""
        owners: dict[str, Owner] = {}
        for path in LOCATE.databases(home):
            processes = list(openers_of(path, self.program))
            if not processes:
                continue
            there = [found for found in LOCATE.find(home) if found.path == path and not found.problem]
            for process in processes:
                named = [found for found in there if found.id in process.args]
                here = [found for found in there if _same_folder(found.cwd_hint, process.cwd)]
                held = named or sorted(here, key=lambda found: found.stamp)[-1:]
                owners |= {found.id: Owner(process.pid, "has the database open") for found in held}
        return owners


def _same_folder(one: str, other: str) -> bool:
    try:
        return bool(one and other) and os.path.realpath(one) == os.path.realpath(other)
    except (OSError, ValueError):
        return False


RESUME = OpenCodeResume()
