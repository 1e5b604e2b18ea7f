"""Where a session of a working folder lies below Kimi Code's base folder."""

from __future__ import annotations

import re
from hashlib import sha256

_OTHER = re.compile(r"[^a-z0-9._-]+")
_EDGES = re.compile(r"\A-+|-+\Z")
_LONGEST = 40

SESSIONS = "sessions"


def folder_name(cwd: str) -> str:
    """Returns the name of a working folder's place: a slug of its last part and a hash of the whole path."""
    path = cwd.replace("\\", "/").rstrip("/")
    slug = _EDGES.sub("", _OTHER.sub("-", path.rsplit("/", 1)[-1].lower()))
    slug = _EDGES.sub("", slug[:_LONGEST])
    if slug in ("", ".", ".."):
        slug = "workspace"
    return f"wd_{slug}_{sha256(path.encode('utf-8', 'surrogatepass')).hexdigest()[:12]}"


def session_path(cwd: str, session_id: str) -> str:
    """Returns the folder of a session relative to the base folder, with a slash behind it."""
    return f"{SESSIONS}/{folder_name(cwd)}/{session_id}/"
