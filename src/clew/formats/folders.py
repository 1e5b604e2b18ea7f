"""Looking into folders of an agent's home: entries in order, links told apart, files opened when somebody asks.

Nothing is written here, no link is followed, and one entry that cannot be looked at hides no other.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from clew.formats.protocol import Found
from clew.platform.mapped import open_source

LINK = "a symbolic link; clew follows none"
"""What stands against opening a session that lies behind one."""

PUT_RIGHT = "Put it right (the file itself where it belongs, readable by you), then try again."
"""What to do where nothing better is known."""

REAL_PLACE = "Put the database itself where the link is, or name the home that it lies in."


def entries_of(folder: Path, *, strict: bool = False) -> list[os.DirEntry[str]]:
    """Returns a folder's entries by name; nothing for one that cannot be read, or OSError where it is `strict`."""
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except (OSError, ValueError):
        if strict:
            raise
        return []


def is_folder(entry: os.DirEntry[str]) -> bool:
    """Tells whether an entry is a folder itself, and no link to one."""
    try:
        return entry.is_dir(follow_symlinks=False)
    except OSError:
        return False


def odd_kind(name: str, mode: int) -> str:
    """Returns what stands against a file that describes a session: a link, or no regular file; "" for a regular one."""
    if stat.S_ISREG(mode):
        return ""
    return f"{name} is {LINK}" if stat.S_ISLNK(mode) else f"{name} is no regular file"


def name_below(path: Path, base: Path) -> str:
    """Returns a stream's name: relative to the base folder where the file lies below it, else its whole path."""
    return path.relative_to(base).as_posix() if path.is_relative_to(base) else path.as_posix()


def hiding(agent: str, path: Path, problem: str, hint: str = "") -> Found:
    """Returns the entry that stands for a database which cannot be read: its sessions are hidden, and it is not."""
    return Found(agent, path.stem, path, (path,), problem=problem, hint=hint or PUT_RIGHT, hides=True)


def small_file(path: Path, limit: int = 1 << 24) -> bytes:
    """Returns the bytes of a small regular file; raises OSError for anything else: a pipe is not waited for.

    For settings and descriptions, which people do link; a session's own files go through `open_source`.
    """
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    with open(fd, "rb") as file:
        facts = os.fstat(fd)
        if not stat.S_ISREG(facts.st_mode) or facts.st_size > limit:
            raise OSError(errno.EINVAL, "not a small regular file", str(path))
        return file.read(limit)


class Later:
    """Opens a file when it is asked for; below `root` no link is followed."""

    __slots__ = ("path", "root")

    def __init__(self, path: Path, root: Path | None) -> None:
        self.path, self.root = path, root

    def __call__(self) -> memoryview:
        """Returns the file's bytes; raises NotFoundError or UnreadableSource."""
        return memoryview(open_source(self.path, root=self.root).data)
