"""Folders as people name them: compared as the system that wrote them compares.

A path with a drive letter (or a UNC path) is a Windows path wherever it is read: case and the direction of slashes do
not count, and WSL's /mnt/c is the same drive. POSIX paths are compared exactly.
"""

from __future__ import annotations

import re

_DRIVE = re.compile(r"([A-Za-z]):[\\/]")
_WSL = re.compile(r"/mnt/([a-z])(?=/|\Z)")


def folder_key(path: str) -> str:
    """Returns a text that is equal for two spellings of one folder, and only for those."""
    if _DRIVE.match(path) or path.startswith("\\\\"):
        text = path.replace("\\", "/").casefold()
        return text.rstrip("/") or "/"
    wsl = _WSL.match(path)
    if wsl:
        return f"{wsl.group(1)}:{path[wsl.end() :]}".casefold().rstrip("/") or "/"
    return path.rstrip("/") or "/"


def is_within(path: str, folder: str) -> bool:
    """Tells whether `path` is `folder` or lies below it."""
    one, other = folder_key(path), folder_key(folder)
    return one == other or one.startswith(other.rstrip("/") + "/")
