"""Where a pi session of a working folder lies: names derived from paths, times and ids.

pi looks only into the folder of the working folder for its list; the name of the file does not matter to it.
"""

from __future__ import annotations

import re

from clew.formats.times import write_time
from clew.ids import is_safe_name

SESSIONS = "sessions"
ENDING = ".jsonl"

_NAMED = re.compile(r"\d{4}-\d\d-\d\dT[0-9-]{6,14}Z_(.+)\Z", re.ASCII)
_HEAD = re.compile(r"\A[/\\]")
_SEPARATOR = re.compile(r"[/\\:]")


def folder_name(cwd: str) -> str:
    """Returns the name of the folder for sessions of a working folder (an absolute path)."""
    return f"--{_SEPARATOR.sub('-', _HEAD.sub('', cwd))}--"


def file_name(session_id: str, now_ms: int) -> str:
    """Returns the name of a new session's file; asserts that the id may be part of one."""
    assert is_safe_name(session_id), "the caller gives ids of clew's own making"
    return f"{re.sub('[:.]', '-', write_time(now_ms))}_{session_id}{ENDING}"


def id_in_name(name: str) -> str:
    """Returns the session id that a file's name carries, or the name without its ending where it carries none."""
    stem = name.removesuffix(ENDING)
    found = _NAMED.match(stem)
    return found.group(1) if found else stem


def has_id(name: str) -> bool:
    """Tells whether a file's name is one that pi gives, with the session's id in it."""
    return _NAMED.match(name.removesuffix(ENDING)) is not None
