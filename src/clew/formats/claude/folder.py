"""Where a session of a working folder lies: the folder names that Claude Code derives from paths.

Measured on 2.1.332, the rule for long paths included. The name is not unique: it is a place, never an identity.
"""

from __future__ import annotations

import re

_OTHER = re.compile("[^A-Za-z0-9]")
_LONGEST = 200
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"

PROJECTS = "projects"
HELPERS = "subagents"
RESULTS = "tool-results"
HISTORY = "file-history"
LIVE = "sessions"


def folder_name(cwd: str) -> str:
    """Returns the name of the project folder for a working folder, which must be a real path (no links in it).

    Every UTF-16 unit that is no ASCII letter or digit becomes a hyphen; of a name of more than 200 units the first
    200 stay, followed by a hyphen and a hash of the whole path.
    """
    units = cwd.encode("utf-16-le", "surrogatepass")
    text = "".join(chr(units[i] | units[i + 1] << 8) for i in range(0, len(units), 2))
    name = _OTHER.sub("-", text)
    return name if len(name) <= _LONGEST else f"{name[:_LONGEST]}-{_short_hash(text)}"


def stream_path(cwd: str, session_id: str) -> str:
    """Returns where a session's file lies, relative to the agent's base folder."""
    return f"{PROJECTS}/{folder_name(cwd)}/{session_id}.jsonl"


def folder_of(path: str) -> str:
    """Returns the project folder's name in a stream's path, or nothing."""
    parts = path.split("/")
    return parts[parts.index(PROJECTS) + 1] if PROJECTS in parts[:-2] else ""


def is_helper_path(path: str) -> bool:
    """Tells whether a stream's path is that of a helper's transcript: in subagents/, or named agent-*."""
    parts = path.split("/")
    return HELPERS in parts[:-1] or parts[-1].startswith("agent-")


def _short_hash(text: str) -> str:
    """The 32-bit polynomial hash (factor 31) over the units, its absolute value in base 36."""
    value = 0
    for sign in text:
        value = (value * 31 + ord(sign)) & 0xFFFFFFFF
    value = (1 << 32) - value if value >> 31 else value
    digits = ""
    while value:
        value, digit = divmod(value, 36)
        digits = _DIGITS[digit] + digits
    return digits or "0"
