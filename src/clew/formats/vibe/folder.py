"""Where sessions of Mistral Vibe lie: the names of its folders and files in both layouts."""

from __future__ import annotations

import re

from clew.formats.times import write_time
from clew.ids import is_safe_name

SESSIONS = "logs/session"
UNIFIED = "logs/session/unified"
MESSAGES = "messages.jsonl"
META = "meta.json"
CURRENT = "CURRENT"

_LEGACY = re.compile(r"session_\d{8}_\d{6}_(.+)\Z", re.ASCII)
_IN_STORE = re.compile(r"(?:\A|/)unified/([^/]+)/(chunks|generations|journal)/", re.ASCII)


def folder_path(session_id: str, now_ms: int) -> str:
    """Returns the folder of a new session in the 2.x layout; asserts that the id may be part of a name."""
    assert is_safe_name(session_id), "the caller gives ids of clew's own making"
    moment = write_time(now_ms)
    day, time = moment[:10].replace("-", ""), moment[11:19].replace(":", "")
    return f"{SESSIONS}/session_{day}_{time}_{session_id[:8]}"


def id_in_name(name: str) -> str:
    """Returns what a folder of the 2.x layout tells of its session's id: the first signs of it."""
    found = _LEGACY.match(name)
    return found.group(1) if found else name.removeprefix("session_")


def store_kind(path: str) -> str:
    """Returns what a stream of the unified store is (chunks, generations, journal); nothing for another path."""
    found = _IN_STORE.search(path)
    return found.group(2) if found else ""


def store_folder(path: str) -> str:
    """Returns the folder of the unified session that a stream belongs to, or nothing."""
    found = _IN_STORE.search(path)
    return path[: found.start(2) - 1] if found else ""
