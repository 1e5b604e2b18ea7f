"""The command line that resumes a session, and the agent's own sign of who holds one.

Cline resumes on a terminal only, in the folder it is run in. While it holds a session the session's description says
so, with the number of the process; the agent's own daemon, which outlives it, holds none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from clew.formats.cline.folder import MANIFEST, SESSIONS
from clew.formats.cline.locate import LOCATE, read_object
from clew.formats.loose import NONE, scalar_in, word_in
from clew.formats.protocol import Found, Home, Owner
from clew.platform.process import identify

_HELD = ("running", "idle", "pending")
_DAEMONS = "locks/hub"


class ClineResume:
    """How Cline is told to go on with a session."""

    program = "cline"

    def argv(self, session_id: str, *, model: str = "", extra: tuple[str, ...] = ()) -> tuple[str, ...]:
        """Returns the command line that resumes a session; it is run on a terminal, in the session's folder."""
        return (self.program, "--id", session_id, *(("-m", model) if model else ()), *extra)

    def fork_argv(self, session_id: str) -> tuple[str, ...]:
        """Returns nothing: the agent forks only from within."""
        return ()

    def owner(self, found: Found, home: Home) -> Owner | None:
        """Returns the live process that holds the session by its own description, or None."""
        data = LOCATE.data(home)
        return _owner_in(data / SESSIONS / found.id, set(_daemons(data))) if found.kind == "session" else None

    def owners(self, home: Home) -> Mapping[str, Owner]:
        """Returns all live owners by session id, in one look."""
        data = LOCATE.data(home)
        daemons = set(_daemons(data))
        folders = sorted(path for path in (data / SESSIONS).glob("*") if path.is_dir() and not path.is_symlink())
        found = {folder.name: _owner_in(folder, daemons) for folder in folders}
        return {session_id: owner for session_id, owner in found.items() if owner is not None}


def _owner_in(folder: Path, daemons: set[int]) -> Owner | None:
    facts = read_object(folder / (folder.name + MANIFEST))
    status, pid = word_in(facts.get("status", NONE)), scalar_in(facts.get("pid", NONE))
    if status not in _HELD or not isinstance(pid, int) or isinstance(pid, bool) or pid in daemons:
        return None
    identity = identify(pid)
    return Owner(pid, f"cline, process {pid}, {status}", identity.start_ticks) if identity is not None else None


def _daemons(data: Path) -> Iterator[int]:
    for path in (data / _DAEMONS).glob("*.json"):
        pid = scalar_in(read_object(path).get("pid", NONE))
        if isinstance(pid, int):
            yield pid


RESUME = ClineResume()
