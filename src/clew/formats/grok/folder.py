"""Where a session of a working folder lies below Grok's base folder."""

from __future__ import annotations

import re
from urllib.parse import quote, unquote

from blake3 import blake3

SESSIONS = "sessions"
CWD = ".cwd"

_LONGEST = 255
_SLUG = 40
_OTHER = re.compile("[^a-z0-9]+")


def group_name(cwd: str) -> str:
    """Returns the name of a working folder's place: the percent-encoded path, a slug and a hash where it is long."""
    name = quote(cwd.encode("utf-8", "replace"), safe="")
    if len(name) <= _LONGEST:
        return name
    leaf = next((part for part in reversed(cwd.split("/")) if part), "")
    slug = _OTHER.sub("-", leaf.lower()).strip("-")[:_SLUG] or "workspace"
    return f"{slug}-{blake3(cwd.encode('utf-8', 'replace')).hexdigest()[:16]}"


def is_hashed(cwd: str) -> bool:
    """Tells whether the place of a working folder does not spell the path, so that a file in it must."""
    return "%2F" not in group_name(cwd)


def cwd_of(name: str) -> str:
    """Returns the path that a place's name spells, or nothing."""
    found = unquote(name)
    return found if found.startswith("/") or found[1:3] in (":\\", ":/") else ""


def session_path(cwd: str, session_id: str) -> str:
    """Returns the folder of a session relative to the base folder, with a slash behind it."""
    return f"{SESSIONS}/{group_name(cwd)}/{session_id}/"
