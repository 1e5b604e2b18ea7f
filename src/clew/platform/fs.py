"""Writing files so that nothing can go missing: all or nothing, durable, and only over what was expected.

Promised by every function here: the new bytes are complete and on the disk before they get their name; what
lies at the path is looked at under a lock on its folder at the moment of the swap, and anything but what was
expected refuses (`target_diverged`); an existing file is never overwritten by a creation; no component below
`root` is reached through a link (`through_link`); whatever fails, no temporary file and no half-written one
stays behind (a killed process may leave one `.clew-*.tmp`, see `remove_stale_temps`). Where the system can
let two names change places, what was replaced is looked at once more *after* the swap, and put back if
somebody wrote to it in between.

Not promised: anything against a program that holds the old file open and writes to it later.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import stat
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec
from blake3 import blake3

from clew.errors import ClewError, Refused, StoreLocked
from clew.ids import Digest
from clew.platform import swap
from clew.platform.faults import declare, fault
from clew.platform.lock import wait_for_flock
from clew.platform.mapped import Mapped, open_source

__all__ = [
    "ABSENT",
    "Absent",
    "Exactly",
    "Expected",
    "Mapped",
    "Written",
    "append_file",
    "ensure_folder",
    "open_source",
    "remove_expected",
    "remove_stale_temps",
    "replace_file",
    "write_new",
]

LOCK_TIMEOUT_S = 30.0
_BLOCK = 1 << 20
_TEMP = ".clew-"
_TEMP_END = ".tmp"
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_OLD = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

AFTER_TEMP = declare("place.after-temp")
BEFORE_SYNC = declare("place.before-sync")
BEFORE_SWAP = declare("place.before-swap")
AFTER_SWAP = declare("place.after-swap")
BEFORE_FOLDER_SYNC = declare("place.before-folder-sync")
BEFORE_REMOVE = declare("place.before-remove")

Chunk = bytes | bytearray | memoryview


class Absent(msgspec.Struct, frozen=True):
    """Nothing is expected at the path."""


class Exactly(msgspec.Struct, frozen=True):
    """A file of `size` bytes whose plain BLAKE3 is `digest` (hex) is expected at the path."""

    size: int
    digest: Digest


Expected = Absent | Exactly
ABSENT = Absent()


class Written(msgspec.Struct, frozen=True):
    """What now lies at the path: bytes, plain BLAKE3 in hex, and the facts by which the file is known
    again."""

    path: Path
    size: int
    digest: Digest
    inode: int
    mtime_ns: int


def write_new(path: Path, chunks: Iterable[Chunk], *, root: Path, mode: int = 0o600) -> Written:
    """Creates a file of these chunks; raises Refused (`target_diverged`) when anything is there already."""
    return replace_file(path, chunks, root=root, expect=ABSENT, mode=mode)


def replace_file(path: Path, chunks: Iterable[Chunk], *, root: Path, expect: Expected, mode: int = 0o600) -> Written:
    """Puts a file of these chunks at `path`, in place of exactly what is expected there.

    `chunks` are consumed one by one. Missing folders below `root` are made (0700). Raises Refused
    (`target_diverged`, `through_link`), StoreLocked, or ClewError (`disk_full`, `no_permission`,
    `write_failed`); then what was there is still there.
    """
    with _writing(path), _folder_of(path, root) as folder, _temp_in(folder, mode) as (fd, temp):
        size, digest = _write(fd, chunks)
        fault(BEFORE_SYNC)
        _sync(fd)
        with _folder_lock(folder, path):
            _swap(folder, temp, path, expect)
        facts = os.fstat(fd)
        return Written(path, size, digest, facts.st_ino, facts.st_mtime_ns)


def append_file(path: Path, chunks: Iterable[Chunk], *, root: Path, expect: Exactly, mode: int = 0o600) -> Written:
    """Puts the expected bytes followed by these chunks at `path`, by a swap as in replace_file.

    The present bytes are copied piece by piece, so nothing large is held in memory.
    """

    def joined() -> Iterator[Chunk]:
        yield from _present(path, root, expect.size)
        yield from chunks

    return replace_file(path, joined(), root=root, expect=expect, mode=mode)


def remove_expected(path: Path, *, root: Path, expect: Exactly) -> None:
    """Removes the file at `path` if it is exactly what is expected; raises as replace_file."""
    with _writing(path), _folder_of(path, root, make=False) as folder, _folder_lock(folder, path):
        seen = _check(folder, path, expect)
        fault(BEFORE_REMOVE)
        temp = _temp_name()
        os.rename(path.name, temp, src_dir_fd=folder, dst_dir_fd=folder)
        if _facts(folder, temp) != seen:
            swap.create(folder, temp, path.name)
            raise _diverged(path, "was written to while it was about to be removed")
        os.unlink(temp, dir_fd=folder)
        _sync(folder)


def ensure_folder(path: Path, *, mode: int = 0o700) -> Path:
    """Makes a folder and its missing parents (all with `mode`) and returns it; an existing one is left as it
    is."""
    with _writing(path):
        missing = [folder for folder in (path, *path.parents) if not folder.is_dir()]
        for folder in reversed(missing):
            with suppress(FileExistsError):
                folder.mkdir(mode=mode)
    return path


def remove_stale_temps(folder: Path) -> int:
    """Removes the temporary files that killed processes left in `folder` and returns how many.

    A temporary file in use is locked by its writer and stays.
    """
    removed = 0
    for entry in folder.iterdir():
        if entry.name.startswith(_TEMP) and entry.name.endswith(_TEMP_END):
            with suppress(OSError):
                fd = os.open(entry, _OLD)
                try:
                    if wait_for_flock(fd, 0):
                        entry.unlink()
                        removed += 1
                finally:
                    os.close(fd)
    return removed


# --- folders ----------------------------------------------------------------------------------------------


@contextmanager
def _folder_of(path: Path, root: Path, *, make: bool = True) -> Generator[int]:
    """Opens the folder that holds `path`, walking from `root` without following any link.

    Folders made on the way are removed again when the block fails.
    """
    parts = path.relative_to(root).parts if path.is_relative_to(root) else ()
    if not parts or ".." in parts:
        raise Refused(f"{path} does not lie below {root}", code="through_link", path=str(path))
    folders = [os.open(root, _FOLDER)]
    made: list[tuple[int, str]] = []
    try:
        for part in parts[:-1]:
            if make and _make_folder(folders[-1], part):
                made.append((folders[-1], part))
            folders.append(_enter(folders[-1], part, path))
        yield folders[-1]
    except BaseException:
        for parent, part in reversed(made):
            with suppress(OSError):
                os.rmdir(part, dir_fd=parent)
        raise
    finally:
        for folder in folders:
            os.close(folder)


def _make_folder(parent: int, part: str) -> bool:
    try:
        os.mkdir(part, 0o700, dir_fd=parent)
    except FileExistsError:
        return False
    _sync(parent)
    return True


def _enter(parent: int, part: str, path: Path) -> int:
    try:
        return os.open(part, _FOLDER | os.O_NOFOLLOW, dir_fd=parent)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR, errno.EMLINK) and _is_link(parent, part):
            raise Refused(
                f"{path} leads through the symbolic link {part!r}; clew writes through none",
                code="through_link",
                hint="Name a folder outside of the link, or replace the link by the folder itself.",
                path=str(path),
            ) from error
        raise


def _is_link(folder: int, name: str) -> bool:
    return stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)


@contextmanager
def _folder_lock(folder: int, path: Path) -> Generator[None]:
    """Locks the folder itself, which leaves no lock file among an agent's files. Unlocked when it is
    closed."""
    try:
        taken = wait_for_flock(folder, LOCK_TIMEOUT_S)
    except OSError as error:
        # Some network file systems lock no folders; the checks at the swap remain.
        if error.errno not in (errno.EBADF, errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EINVAL):
            raise
        taken = True
    if not taken:
        raise StoreLocked(
            f"another clew command has been writing in {path.parent} for more than {LOCK_TIMEOUT_S:g} s",
            hint="Wait for it, or stop it.",
            path=str(path),
        )
    yield


# --- the new file -----------------------------------------------------------------------------------------


def _temp_name() -> str:
    return f"{_TEMP}{secrets.token_hex(8)}{_TEMP_END}"


@contextmanager
def _temp_in(folder: int, mode: int) -> Generator[tuple[int, str]]:
    """Makes a locked temporary file that is gone after the block, unless it was renamed."""
    name = _temp_name()
    fd = os.open(name, _NEW, 0o600, dir_fd=folder)
    try:
        with suppress(OSError):
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fault(AFTER_TEMP)
        os.fchmod(fd, mode)
        yield fd, name
    finally:
        os.close(fd)
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=folder)


def _write(fd: int, chunks: Iterable[Chunk]) -> tuple[int, Digest]:
    """Writes the chunks, small ones gathered, and returns the size and the digest."""
    digest = blake3()
    size = 0
    gathered = bytearray()
    for chunk in chunks:
        size += len(chunk)
        if len(chunk) < _BLOCK:
            gathered += chunk
            if len(gathered) < _BLOCK:
                continue
            _write_all(fd, gathered)
            digest.update(gathered)
            gathered = bytearray()
        else:
            for piece in (gathered, chunk):
                _write_all(fd, piece)
                digest.update(piece)
            gathered = bytearray()
    _write_all(fd, gathered)
    digest.update(gathered)
    return size, Digest(digest.hexdigest())


def _write_all(fd: int, data: Chunk) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def _present(path: Path, root: Path, size: int) -> Iterator[bytes]:
    """Yields the first `size` bytes at `path`; fewer bytes are found out by the check at the swap."""
    with _folder_of(path, root, make=False) as folder:
        try:
            fd = os.open(path.name, _OLD, dir_fd=folder)
        except FileNotFoundError:
            return
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise _link_at(path) from error
            raise
        try:
            while size > 0 and (piece := os.read(fd, min(size, _BLOCK))):
                size -= len(piece)
                yield piece
        finally:
            os.close(fd)


def _sync(fd: int) -> None:
    """Brings a file or folder to the disk; where a plain fsync stops at the drive's cache, past that."""
    full = getattr(fcntl, "F_FULLFSYNC", None)
    if full is not None:
        with suppress(OSError):
            fcntl.fcntl(fd, full)
            return
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno != errno.EINVAL:  # A file system that cannot sync folders.
            raise


# --- the swap ---------------------------------------------------------------------------------------------

_Facts = tuple[int, int, int, int]


def _swap(folder: int, temp: str, path: Path, expect: Expected) -> None:
    seen = _check(folder, path, expect)
    fault(BEFORE_SWAP)
    if seen is None:
        try:
            swap.create(folder, temp, path.name)
        except FileExistsError as error:
            raise _diverged(path, "has appeared meanwhile") from error
    elif swap.exchange(folder, temp, path.name):
        try:
            fault(AFTER_SWAP)
            if _facts(folder, temp) != seen:
                raise _diverged(path, "was written to at the last moment")
        except BaseException:
            swap.exchange(folder, temp, path.name)
            raise
        os.unlink(temp, dir_fd=folder)
    else:
        if _facts(folder, path.name) != seen:
            raise _diverged(path, "was written to at the last moment")
        os.rename(temp, path.name, src_dir_fd=folder, dst_dir_fd=folder)
    fault(BEFORE_FOLDER_SYNC)
    _sync(folder)


def _check(folder: int, path: Path, expect: Expected) -> _Facts | None:
    """Returns the facts of the expected file, None for an expected absence; raises Refused otherwise."""
    try:
        facts = os.stat(path.name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        if isinstance(expect, Absent):
            return None
        raise _diverged(path, "is gone") from None
    if stat.S_ISLNK(facts.st_mode):
        raise _link_at(path)
    if isinstance(expect, Absent):
        raise _diverged(path, "is there already")
    if not stat.S_ISREG(facts.st_mode):
        raise _diverged(path, "is no regular file")
    if facts.st_size != expect.size:
        raise _diverged(path, f"has {facts.st_size} bytes where {expect.size} were expected")
    seen, digest = _digest_of(folder, path.name)
    if digest != expect.digest or seen[1] != expect.size:
        raise _diverged(path, "holds other bytes than expected")
    return seen


def _digest_of(folder: int, name: str) -> tuple[_Facts, str]:
    """Returns the digest of a file and its facts as they were before the first byte was read."""
    fd = os.open(name, _OLD, dir_fd=folder)
    try:
        seen = _facts_of(os.fstat(fd))
        digest = blake3()
        while piece := os.read(fd, _BLOCK):
            digest.update(piece)
        return seen, digest.hexdigest()
    finally:
        os.close(fd)


def _facts(folder: int, name: str) -> _Facts:
    return _facts_of(os.stat(name, dir_fd=folder, follow_symlinks=False))


def _facts_of(facts: os.stat_result) -> _Facts:
    """Returns what a write would change. The change time is no part of it: a rename moves it on many
    systems."""
    return facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_dev


# --- refusals ---------------------------------------------------------------------------------------------


def _diverged(path: Path, what: str) -> Refused:
    return Refused(
        f"{path} {what}; nothing was written",
        code="target_diverged",
        hint="Look at what is there now, or write to a new session (--new).",
        path=str(path),
    )


def _link_at(path: Path) -> Refused:
    return Refused(
        f"{path} is a symbolic link; clew writes through none",
        code="through_link",
        hint="Remove the link, or name the file that it points to.",
        path=str(path),
    )


@contextmanager
def _writing(path: Path) -> Generator[None]:
    """Turns what the system refuses into an error that names the path and what to do."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            code, hint = "disk_full", "Free some space on that disk; nothing was changed."
        elif error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            code, hint = "no_permission", "Give yourself permission to write there; nothing was changed."
        else:
            code, hint = "write_failed", "Look at that disk and folder, then try again."
        raise ClewError(f"cannot write {path}: {reason}", code=code, hint=hint, path=str(path)) from error
