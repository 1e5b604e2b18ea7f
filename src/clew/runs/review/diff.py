"""The changes that a review is about, file by file, as git tells them between two pinned states.

Each change keeps its patch as git wrote it, with full blob ids: equal patches mean equal old and new contents. Names
come from git's raw listing, never from patch headers, so any file name is safe.
"""

from __future__ import annotations

import itertools
import os
import re
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from msgspec import Struct, structs

from clew.errors import ClewError
from clew.runs.review.git import CommitId, Git, TreeId, copied_index, empty_tree, find_head

Status = Literal["added", "changed", "deleted", "renamed", "copied", "unmerged"]

_STATUS: dict[str, Status] = {
    "A": "added",
    "M": "changed",
    "T": "changed",
    "D": "deleted",
    "R": "renamed",
    "C": "copied",
    "U": "unmerged",
}
_FORMAT = (
    "--no-color",
    "--no-ext-diff",
    "--no-textconv",
    "--full-index",
    "--no-abbrev",
    "--find-renames=50%",
    "-l1000",
    "--diff-algorithm=myers",
    "--indent-heuristic",
    "--unified=3",
    "--inter-hunk-context=0",
    "--src-prefix=a/",
    "--dst-prefix=b/",
    "--ignore-submodules=dirty",
)
_BINARY = re.compile(rb"^(?:Binary files .* differ|GIT binary patch)$", re.MULTILINE)
_START = re.compile(rb"^diff --git ", re.MULTILINE)
_SPELT_ESCAPE = re.compile(r"\\x[89a-f][0-9a-f]")

SUBMODULE = "160000"
LINK = "120000"
_NONE = "000000"


class Change(Struct, frozen=True):
    """One changed file: `old_path` is empty when it was added, `path` when it was deleted.

    Paths are texts for people; bytes that are no UTF-8 are shown as escapes, and `raw_path` is the new path as it is.
    `blob` names the new content, empty where it only lies in the work tree; `content` holds it then.
    """

    status: Status
    path: str
    old_path: str
    patch: bytes
    mode: str = ""
    blob: str = ""
    content: bytes | None = None
    raw_path: bytes = b""

    @property
    def name(self) -> str:
        """The path to speak of: the new one, or the old one of a deleted file."""
        return self.path or self.old_path

    @property
    def is_binary(self) -> bool:
        """Tells whether git sees no text in it."""
        head = self.patch.partition(b"\n@@ ")[0]
        return _BINARY.search(head) is not None


def changes_between(git: Git, base: CommitId | TreeId, head: CommitId | TreeId) -> tuple[Change, ...]:
    """Returns what changed from one commit or tree to another."""
    pinned = ("diff-tree", "-r", *_FORMAT)
    raw = git.run_bare(*pinned, "--raw", "-z", base, head, "--")
    return _join(_entries(raw), git.run_bare(*pinned, "-p", base, head, "--"))


def changes_staged(git: Git) -> tuple[Change, ...]:
    """Returns what the index holds against the commit that is checked out."""
    base = find_head(git) or empty_tree(git)
    pinned = ("diff-index", "--cached", *_FORMAT)
    raw = git.run(*pinned, "--raw", "-z", base, "--")
    return _join(_entries(raw), git.run(*pinned, "-p", base, "--"))


def changes_in_worktree(git: Git) -> tuple[Change, ...]:
    """Returns what differs from the commit that is checked out: staged, unstaged and untracked, with its contents."""
    base = find_head(git) or empty_tree(git)
    # `git diff` and not diff-index: only it looks at the contents where nothing but a time stamp moved. It writes what
    # it found out back to the index, so it is given a copy.
    with copied_index(git) as index:
        raw = git.run("diff", *_FORMAT, "--raw", "-z", base, "--", extra=index)
        tracked = _join(_entries(raw), git.run("diff", *_FORMAT, "-p", base, "--", extra=index))
    listed = git.run("ls-files", "--others", "--exclude-standard", "-z")
    found = [_with_content(git, change) for change in tracked]
    found += [change for name in listed.split(b"\0") if name and (change := _untracked(git, name)) is not None]
    return tuple(found)


class _Entry(Struct, frozen=True):
    status: str
    mode: str
    blob: str
    old: bytes
    new: bytes


def _entries(raw: bytes) -> list[_Entry]:
    """Takes a raw listing apart: `:mode mode blob blob status`, then one name, or two of a rename or a copy."""
    parts = iter(raw.split(b"\0"))
    found: list[_Entry] = []
    for part in parts:
        if not part.startswith(b":"):
            continue
        _, mode, _, blob, status = part[1:].decode("ascii").split(" ")
        first = next(parts)
        second = next(parts) if status[0] in "RC" else first
        letter = status[0]
        old = b"" if letter == "A" else first
        new = b"" if letter == "D" else second
        found.append(_Entry(letter, mode, "" if set(blob) == {"0"} else blob, old, new))
    return found


def _join(entries: Iterable[_Entry], patch: bytes) -> tuple[Change, ...]:
    starts = [match.start() for match in _START.finditer(patch)]
    chunks = [patch[start:end] for start, end in itertools.pairwise([*starts, len(patch)])]
    found: list[Change] = []
    place = 0
    for entry in entries:
        # A change of type is told as a deletion and an addition; an unmerged file has no patch of its own.
        wanted = {"T": 2, "U": 0}.get(entry.status, 1)
        own = b"".join(chunks[place : place + wanted])
        place += wanted
        status = _STATUS.get(entry.status)
        if status is None:
            raise ClewError(f"git tells of a change {entry.status!r} that is not known here", code="git_failed")
        found.append(
            Change(status, show_name(entry.new), show_name(entry.old), own, entry.mode, entry.blob, raw_path=entry.new)
        )
    if place != len(chunks):
        raise ClewError(
            f"git's listing has {len(found)} changes and its patch {len(chunks)}: the work tree is being written to",
            code="git_failed",
            hint="Try again when nothing changes the files.",
        )
    return tuple(found)


def show_name(name: bytes) -> str:
    """Returns a file's name as text: bytes that are no UTF-8 as escapes. Patterns are laid over this form.

    No two names are shown alike: in a name with such bytes, and in one that spells such an escape itself, each
    backslash is doubled. Every other name is shown as it is.
    """
    try:
        text = name.decode("utf-8")
    except UnicodeDecodeError:
        return name.replace(b"\\", b"\\\\").decode("utf-8", "backslashreplace")
    return text.replace("\\", "\\\\") if _SPELT_ESCAPE.search(text) else text


def show_pattern(pattern: bytes) -> str:
    """Returns a pattern as text: one that is text already says how names are shown, another is shown as a name."""
    try:
        return pattern.decode("utf-8")
    except UnicodeDecodeError:
        return show_name(pattern)


def _with_content(git: Git, change: Change) -> Change:
    if change.blob or not change.path or change.mode == SUBMODULE:
        return change
    found = _read(git.root / os.fsdecode(change.raw_path))
    return change if found is None else structs.replace(change, content=found[1])


def _untracked(git: Git, name: bytes) -> Change | None:
    found = _read(git.root / os.fsdecode(name))
    if found is None:
        return None
    mode, content = found
    return Change("added", show_name(name), "", added_patch(name, mode, content), mode, content=content)


def _read(path: Path) -> tuple[str, bytes] | None:
    """Returns git's mode and the content of a file or link in the work tree; None when it is neither, or gone."""
    try:
        facts = path.lstat()
        if stat.S_ISLNK(facts.st_mode):
            return LINK, os.fsencode(path.readlink())
        if not stat.S_ISREG(facts.st_mode):
            return None
        return ("100755" if facts.st_mode & stat.S_IXUSR else "100644"), path.read_bytes()
    except OSError:
        return None


def added_patch(name: bytes, mode: str, content: bytes) -> bytes:
    """Returns the patch that adds a file, in git's form, for a file that git does not track."""
    head = b"diff --git a/%s b/%s\nnew file mode %s\n" % (name, name, mode.encode())
    if b"\0" in content[:8000]:
        return head + b"Binary files /dev/null and b/%s differ\n" % name
    if not content:
        return head
    lines = content.split(b"\n")
    whole = lines[-1] == b""
    if whole:
        lines.pop()
    count = b"+1" if len(lines) == 1 else b"+1,%d" % len(lines)
    body = b"".join(b"+%s\n" % line for line in lines)
    end = b"" if whole else b"\\ No newline at end of file\n"
    return head + b"--- /dev/null\n+++ b/%s\n@@ -0,0 %s @@\n" % (name, count) + body + end
