"""Where a Droid session of a working folder lies: the folder names that Droid derives from paths.

The name is not unique, and nothing can be told from it: it is a place, never an identity.
"""

from __future__ import annotations

import re

from clew.ids import is_safe_name

SESSIONS = "sessions"
ENDING = ".jsonl"
SIDE_ENDINGS = (".settings.json", ".settings.json.bak", ".jsonl.bak", ".bak")

_RUN = re.compile("/+")


def folder_name(cwd: str) -> str:
    """Returns the name of the folder for sessions of a working folder (an absolute real path)."""
    return "-" + _RUN.sub("-", re.sub(r"[\\/]+\Z", "", cwd).lstrip("/"))


def stream_path(cwd: str, session_id: str) -> str:
    """Returns where a session's file lies, relative to the base folder; asserts that the id may name a file."""
    assert is_safe_name(session_id), "the caller gives ids of clew's own making"
    return f"{SESSIONS}/{folder_name(cwd)}/{session_id}{ENDING}"
