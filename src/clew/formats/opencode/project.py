"""Which project of OpenCode's a folder belongs to: what the agent looks at before it lists a session there.

A folder in no git repository belongs to the project `global`. In one, the project's id is made of the address of the
remote `origin`, else it is what the agent noted in the repository, else (of a repository that it has never seen, with
no remote) the first commit, which only git can tell: then `global` is given, and the agent moves the session to the
right project when it is started in the repository's root.
"""

from __future__ import annotations

import configparser
import hashlib
import re
from pathlib import Path
from urllib.parse import urlsplit

from clew.errors import ClewError
from clew.formats.sqlite import Tables, read_database

GLOBAL = {"project": "global", "worktree": "/"}


def find_project(database: Path, cwd: str) -> dict[str, str]:
    """Returns project (its id), worktree and, in a repository, vcs for a folder; nothing is run."""
    worktree, store = _repository(Path(cwd)) if cwd.startswith("/") else (None, None)
    if worktree is None or store is None:
        return dict(GLOBAL)
    known = _known(database, str(worktree)) or _remote_id(store) or _noted_id(store)
    if not known:
        return dict(GLOBAL)
    return {"project": known, "worktree": str(worktree), "vcs": "git"}


def _repository(folder: Path) -> tuple[Path | None, Path | None]:
    """Returns the root of the repository around a folder and the folder that its worktrees share."""
    for place in (folder, *folder.parents):
        git = place / ".git"
        try:
            if git.is_dir():
                return place, git
            if git.is_file():
                return place, _shared(place, git)
        except OSError:
            return None, None
    return None, None


def _shared(place: Path, git: Path) -> Path:
    """Returns the folder that a linked worktree or a submodule points to."""
    text = git.read_text("utf-8", "replace")
    target = (place / text.removeprefix("gitdir:").strip()).resolve()
    common = target / "commondir"
    return (target / common.read_text("utf-8", "replace").strip()).resolve() if common.is_file() else target


def _known(database: Path, worktree: str) -> str:
    """Returns the project that the agent itself has for a worktree."""
    if not database.is_file():
        return ""

    def read(tables: Tables) -> str:
        if not {"id", "worktree"} <= set(tables.columns("project")):
            return ""
        rows = tables.query("SELECT id FROM project WHERE worktree = ? ORDER BY time_updated DESC", (worktree,))
        return next((str(row[0]) for row in rows if row[0] != "global"), "")

    try:
        return read_database(database, read)
    except ClewError:
        return ""


def _noted_id(store: Path) -> str:
    try:
        return (store / "opencode").read_text("utf-8").strip()
    except (OSError, ValueError):
        return ""


def _remote_id(store: Path) -> str:
    config = configparser.ConfigParser(strict=False, interpolation=None, allow_no_value=True)
    try:
        text = (store / "config").read_text("utf-8")
        config.read_string("\n".join(line.strip() for line in text.splitlines()))
        url = config.get('remote "origin"', "url", fallback="") or ""
    except (OSError, ValueError, configparser.Error):
        return ""
    address = _address(url.strip())
    return hashlib.sha1(f"git-remote:{address}".encode(), usedforsecurity=False).hexdigest() if address else ""


def _address(url: str) -> str:
    """Returns host and path of a remote as the agent spells them; nothing for a local one."""
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", url):
        parts = urlsplit(url)
        host, path = (parts.hostname or ""), parts.path
        if parts.scheme == "file":
            return ""
    else:
        found = re.match(r"(?:[^@/:]+@)?([^/:]+):(.+)$", url)
        if found is None:
            return ""
        host, path = found.groups()
    path = re.sub(r"\.git/?$", "", path.lstrip("/")).rstrip("/")
    return f"{host.lower()}/{path}" if host and path else ""
