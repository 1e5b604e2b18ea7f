"""How the agent is started on a document, and who holds it: a file `owner` beside it with a process id."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from clew.formats.folders import small_file
from clew.formats.protocol import Found, Home, Owner
from clew_format_tiny.locate import TinyLocate


class TinyResume:
    """Command lines of an agent that does not exist."""

    program = "tiny"

    def argv(self, session_id: str, *, model: str = "", extra: tuple[str, ...] = ()) -> tuple[str, ...]:
        return ("tiny", "resume", session_id, *(("--model", model) if model else ()), *extra)

    def fork_argv(self, session_id: str) -> tuple[str, ...]:
        return ("tiny", "fork", session_id)

    def owner(self, found: Found, home: Home) -> Owner | None:
        return _owner(found.path.parent)

    def owners(self, home: Home) -> Mapping[str, Owner]:
        found = {path.parent.name: _owner(path.parent) for path in TinyLocate().base(home).glob("*/owner")}
        return {session_id: owner for session_id, owner in found.items() if owner is not None}


def _owner(folder: Path) -> Owner | None:
    try:
        return Owner(int(small_file(folder / "owner")), "the owner file")
    except (OSError, ValueError):  # no such file, or one that says nothing
        return None
