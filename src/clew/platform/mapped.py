"""Reading a session's file: its bytes and the facts of the file, or a plain refusal.

Promised: the open never blocks and never follows a link at the last component (with `root`: at none below
it); what is no regular file is refused before it is opened. A file of 8 MB or more is mapped, not read, so
that a session of hundreds of megabytes costs no memory of its own. Not promised: a snapshot. Agents append;
bytes behind the size seen at the open are not delivered. A mapped file that is cut short by another program
while it is read ends this process with SIGBUS: no agent is known to do that to a large session.
"""

from __future__ import annotations

import errno
import mmap
import os
import stat
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from clew.errors import ClewError, NotFoundError, UnreadableSource

MAP_FROM = 8 << 20
"""Files of at least this many bytes are mapped."""

_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NOCTTY
_FOLDER_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_DIRECTORY | os.O_CLOEXEC

_KINDS = (
    (stat.S_ISLNK, "a symbolic link", "Name the file that it points to."),
    (stat.S_ISDIR, "a folder", "Name a file in it."),
    (stat.S_ISFIFO, "a pipe", "Name a regular file."),
    (stat.S_ISSOCK, "a socket", "Name a regular file."),
    (stat.S_ISCHR, "a device", "Name a regular file."),
    (stat.S_ISBLK, "a device", "Name a regular file."),
)


class Mapped:
    """An open session file: `data` (bytes, or a read-only mapping that is used like bytes), `path`, and its
    facts.

    `mode` are the permission bits, `size` and the other facts those of the moment it was opened. Use as a
    context manager, or call `close`.
    """

    def __init__(self, path: Path, data: bytes | mmap.mmap, facts: os.stat_result) -> None:
        self.path = path
        self.data = data
        self.mode = stat.S_IMODE(facts.st_mode)
        self.size = facts.st_size
        self.mtime_ns = facts.st_mtime_ns
        self.inode = facts.st_ino

    def release(self, upto: int | None = None) -> None:
        """Gives the memory of what was read so far (the bytes before `upto`; all by default) back to the
        system.

        The bytes can still be read; they come from the disk again.
        """
        if isinstance(self.data, mmap.mmap):
            length = self.size if upto is None else upto - upto % mmap.PAGESIZE
            if length > 0:
                self.data.madvise(mmap.MADV_DONTNEED, 0, length)

    def close(self) -> None:
        """Unmaps the file. Views that the caller still holds stay readable until they are gone."""
        if isinstance(self.data, mmap.mmap):
            with suppress(BufferError):
                self.data.close()

    def __enter__(self) -> Mapped:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def open_source(path: Path, *, root: Path | None = None) -> Mapped:
    """Opens one session file for reading; with `root`, no component below it may be a link.

    Raises NotFoundError when nothing is there (any more), UnreadableSource for a folder, a link, a loop of
    links, a pipe, a device, or when it may not be read.
    """
    try:
        folder, name = _enter(path, root)
        try:
            return _open_at(path, folder, name)
        finally:
            if folder is not None:
                os.close(folder)
    except OSError as error:
        raise _refusal(path, error) from error
    except ValueError as error:  # A NUL in the name, or a mapping of a size that no address space has.
        raise UnreadableSource(f"{path!s} cannot be opened: {error}", path=str(path)) from error


def _enter(path: Path, root: Path | None) -> tuple[int | None, str]:
    """Returns a descriptor of the folder that holds `path`, reached without a link below `root`, and the
    name."""
    if root is None:
        return None, str(path)
    parts = path.relative_to(root).parts
    if not parts or ".." in parts:
        raise UnreadableSource(f"{path} does not lie below {root}", path=str(path))
    folder = os.open(root, _FOLDER_FLAGS & ~os.O_NOFOLLOW)
    for part in parts[:-1]:
        try:
            deeper = os.open(part, _FOLDER_FLAGS, dir_fd=folder)
        finally:
            os.close(folder)
        folder = deeper
    return folder, parts[-1]


def _open_at(path: Path, folder: int | None, name: str) -> Mapped:
    # Looking before opening: to open a device can already do something, whatever the flags.
    _check_regular(path, os.stat(name, dir_fd=folder, follow_symlinks=False))
    fd = os.open(name, _FLAGS, dir_fd=folder)
    try:
        facts = os.fstat(fd)
        _check_regular(path, facts)
        if facts.st_size < MAP_FROM:
            data = _read(fd, facts.st_size)
            return Mapped(path, data, facts)
        data = mmap.mmap(fd, facts.st_size, access=mmap.ACCESS_READ)
        data.madvise(mmap.MADV_SEQUENTIAL)
        return Mapped(path, data, facts)
    finally:
        os.close(fd)


def _read(fd: int, size: int) -> bytes:
    """Reads the first `size` bytes, or fewer when the file has become shorter."""
    pieces: list[bytes] = []
    while size > 0:
        piece = os.read(fd, size)
        if not piece:
            break
        pieces.append(piece)
        size -= len(piece)
    return b"".join(pieces)


def _check_regular(path: Path, facts: os.stat_result) -> None:
    for is_kind, kind, hint in _KINDS:
        if is_kind(facts.st_mode):
            raise UnreadableSource(f"{path} is {kind}, not a session file", hint=hint, path=str(path))


def _refusal(path: Path, error: OSError) -> ClewError:
    if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ESTALE):
        return NotFoundError(
            f"{path} is not there", hint="`clew ls --all` shows the sessions that are.", path=str(path)
        )
    if error.errno in (errno.EACCES, errno.EPERM):
        return UnreadableSource(
            f"{path} may not be read: {error.strerror}",
            hint="Give yourself permission to read the file and its folder, or run clew as its owner.",
            path=str(path),
        )
    if error.errno == errno.ELOOP:
        return UnreadableSource(
            f"{path} leads through a symbolic link, or round in a loop of them",
            hint="Name the file itself.",
            path=str(path),
        )
    return UnreadableSource(f"{path} cannot be read: {error.strerror}", path=str(path))
