"""Command lines of Hermes, and who holds a session now.

Hermes takes no lock but while it compacts: its sign is a process of its own that has the database open. One whose
command line names the session holds that one; one that stands in the session's folder may hold it (a resume goes
there by itself), and is taken to, before anything is written there.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from clew.formats.hermes.locate import LOCATE
from clew.formats.openers import Opener, openers_of
from clew.formats.protocol import Found, Home, Owner


class HermesResume:
    """The resume room of Hermes."""

    program = "hermes"

    def argv(self, session_id: str, *, model: str = "", extra: tuple[str, ...] = ()) -> tuple[str, ...]:
        """Returns the command line that resumes a session; it goes to the session's own folder by itself."""
        chosen = ("--model", model) if model else ()
        return (self.program, "--resume", session_id, *chosen, *extra)

    def fork_argv(self, session_id: str) -> tuple[str, ...]:
        """Returns nothing: the agent forks on its own screen only."""
        return ()

    def owner(self, found: Found, home: Home) -> Owner | None:
        """Returns a process that holds the session or may hold it, or None."""
        for process in openers_of(found.path, self.program):
            if found.id in process.args:
                return Owner(process.pid, "named on its command line")
            if found.cwd_hint and _same_folder(found.cwd_hint, process):
                return Owner(process.pid, "at work in the session's folder")
        return None

    def owners(self, home: Home) -> Mapping[str, Owner]:
        """Returns the sessions that a process holds: named on its command line, else the newest of its folder."""
        processes = list(openers_of(LOCATE.database(home), self.program))
        if not processes:
            return {}
        owners: dict[str, Owner] = {}
        there = [found for found in LOCATE.find(home) if not found.problem]
        for process in processes:
            named = [found for found in there if found.id in process.args]
            here = [found for found in there if _same_folder(found.cwd_hint, process)]
            held = named or sorted(here, key=lambda found: found.stamp)[-1:]
            owners |= {found.id: Owner(process.pid, "has the database open") for found in held}
        return owners


def _same_folder(folder: str, process: Opener) -> bool:
    try:
        return bool(folder and process.cwd) and os.path.realpath(folder) == os.path.realpath(process.cwd)
    except (OSError, ValueError):
        return False


RESUME = HermesResume()
