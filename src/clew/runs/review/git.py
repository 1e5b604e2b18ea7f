"""The git command, run so that it changes nothing and that nothing of the surroundings changes its answer.

Only plumbing and explicit options; no optional locks, hooks, external diffs, text conversions, replaced objects,
prompts or lazy fetches. The environment is handed in, and what it says about another repository is left out.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import tempfile
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NewType

from msgspec import Struct

from clew.errors import ClewError, NotFoundError, UsageError

CommitId = NewType("CommitId", str)
"""A full commit id."""

TreeId = NewType("TreeId", str)
"""A full tree id."""

TIMEOUT_S = 300.0

_KEPT = ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM")
_FIXED = {
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_LFS_SKIP_SMUDGE": "1",
    "LC_ALL": "C",
}
_SETTINGS = (
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.quotePath=false",
    "core.attributesFile=/dev/null",
    "diff.suppressBlankEmpty=false",
    "diff.orderFile=/dev/null",
)
_OPTIONS = tuple(part for setting in _SETTINGS for part in ("-c", setting))


class GitFailed(ClewError):
    """The git command failed; the message holds what it said."""

    default_code = "git_failed"


def clean_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Returns the environment without what points git at another repository, index or configuration."""
    kept = {name: value for name, value in environment.items() if not name.startswith("GIT_") or name in _KEPT}
    return kept | _FIXED


class Git(Struct, frozen=True):
    """One repository: its top folder (of a bare one: the repository itself), its git folder, the environment."""

    root: Path
    git_dir: Path
    environment: dict[str, str]

    def run(
        self, *arguments: str, ok: Sequence[int] = (0,), extra: Mapping[str, str] | None = None, stdin: bytes = b""
    ) -> bytes:
        """Returns what a git command writes; raises GitFailed when it ends with another status than `ok`."""
        return self._run(("-C", str(self.root)), arguments, ok, extra, stdin)

    def run_bare(self, *arguments: str, stdin: bytes = b"") -> bytes:
        """Runs git as if there were no work tree: its attribute files, committed or not, play no part."""
        return self._run(("-c", "core.bare=true", f"--git-dir={self.git_dir}"), arguments, (0,), None, stdin)

    def _run(
        self,
        where: tuple[str, ...],
        arguments: tuple[str, ...],
        ok: Sequence[int],
        extra: Mapping[str, str] | None,
        stdin: bytes,
    ) -> bytes:
        done = _call((*where, *_OPTIONS, *arguments), self.environment | dict(extra or {}), stdin)
        if done.returncode not in ok:
            said = done.stderr.decode("utf-8", "replace").strip() or f"status {done.returncode}"
            raise GitFailed(f"git {arguments[0]} failed in {self.root}: {said}", path=str(self.root))
        return done.stdout

    def line(self, *arguments: str) -> str:
        """Returns the one line that a git command writes."""
        return self.run(*arguments).decode("utf-8", "replace").strip()


def _call(
    arguments: tuple[str, ...], environment: Mapping[str, str], stdin: bytes = b""
) -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(
            ("git", *arguments),
            env=dict(environment),
            input=stdin,
            capture_output=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    except FileNotFoundError as error:
        raise GitFailed(
            "git is not installed, or not on PATH",
            code="git_missing",
            hint="Install git; clew reads repositories by it.",
        ) from error
    except subprocess.TimeoutExpired as error:
        raise GitFailed(f"git did not answer within {TIMEOUT_S:g} s: git {' '.join(arguments)}") from error


def open_repository(folder: Path, environment: Mapping[str, str]) -> Git:
    """Returns the repository that `folder` lies in; raises NotFoundError (`no_repository`) when it lies in none."""
    cleaned = clean_environment(environment)
    asked = ("-C", str(folder), "rev-parse", "--is-bare-repository", "--absolute-git-dir")
    done = _call(asked, cleaned)
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").strip().removeprefix("fatal: ")
        raise NotFoundError(
            f"{folder} lies in no git repository: {said}",
            code="no_repository",
            hint="Go into a repository, or name one with --cwd.",
            path=str(folder),
        )
    bare, _, git_dir = done.stdout.decode("utf-8", "surrogateescape").rstrip("\n").partition("\n")
    root = git_dir
    if bare != "true":
        top = _call(("-C", str(folder), "rev-parse", "--show-toplevel"), cleaned)
        root = top.stdout.decode("utf-8", "surrogateescape").rstrip("\n") or str(folder)
    return Git(Path(root), Path(git_dir), cleaned)


def resolve_commit(git: Git, ref: str) -> CommitId:
    """Returns the commit that a ref names now; raises NotFoundError (`ref_not_found`)."""
    try:
        return CommitId(git.line("rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}"))
    except GitFailed as error:
        raise NotFoundError(
            f"{ref!r} names no commit in {git.root}",
            code="ref_not_found",
            hint="`git log` shows the commits; fetch it first if it lies elsewhere.",
            ref=ref,
            path=str(git.root),
        ) from error


def find_head(git: Git) -> CommitId | None:
    """Returns the commit that is checked out; None in a repository without one."""
    try:
        return resolve_commit(git, "HEAD")
    except NotFoundError:
        return None


def merge_base(git: Git, one: CommitId, other: CommitId) -> CommitId:
    """Returns the merge base of two commits; raises NotFoundError (`no_merge_base`) when they share no history."""
    found = git.run("merge-base", one, other, ok=(0, 1)).decode().strip()
    if not found:
        raise NotFoundError(
            f"{one[:12]} and {other[:12]} have no merge base in {git.root}",
            code="no_merge_base",
            hint="Review a single commit (--commit), or fetch the missing history (git fetch --unshallow).",
            path=str(git.root),
        )
    return CommitId(found)


def empty_tree(git: Git) -> TreeId:
    """Returns the id of the tree without files, in this repository's hash; it need not exist as an object."""
    return TreeId(git.run("hash-object", "-t", "tree", "--stdin").decode().strip())


def first_parent(git: Git, commit: CommitId) -> CommitId | None:
    """Returns a commit's first parent; None for a root commit.

    Raises NotFoundError (`no_parent`) where a shallow clone has cut it off: against nothing, the whole project would
    be taken for the change.
    """
    parents = git.line("rev-list", "--parents", "--max-count=1", commit, "--").split()[1:]
    if parents:
        return CommitId(parents[0])
    head = git.run("cat-file", "commit", commit).partition(b"\n\n")[0]
    if any(line.startswith(b"parent ") for line in head.split(b"\n")):
        raise NotFoundError(
            f"the parent of {commit[:12]} is not here: this clone is shallow ({git.root})",
            code="no_parent",
            hint="Fetch it first: git fetch --deepen=1, or git fetch --unshallow.",
            path=str(git.root),
        )
    return None


def need_work_tree(git: Git) -> None:
    """Raises UsageError (`no_worktree`) in a bare repository, and inside of a repository's own folder."""
    if git.line("rev-parse", "--is-inside-work-tree") != "true":
        raise UsageError(
            f"{git.root} has no work tree, so there are no local changes",
            code="no_worktree",
            hint="Name commits (--from and --to, or --commit), or a work tree with --cwd.",
            path=str(git.root),
        )


def branch_name(git: Git) -> str:
    """Returns the branch that is checked out; the empty string when none is."""
    return git.run("symbolic-ref", "--quiet", "--short", "HEAD", ok=(0, 1)).decode("utf-8", "replace").strip()


def remote_address(git: Git) -> str:
    """Returns the address of `origin`, else of the first remote by name, as configured; empty without a remote."""
    listed = git.run("config", "--get-regexp", "-z", r"^remote\..*\.url$", ok=(0, 1))
    found: dict[str, str] = {}
    for entry in filter(None, listed.split(b"\0")):
        name, _, url = entry.decode("utf-8", "replace").partition("\n")
        found.setdefault(name.removeprefix("remote.").removesuffix(".url"), url)
    if not found:
        return ""
    return found.get("origin") or found[min(found)]


def read_blob(git: Git, blob: str) -> bytes:
    """Returns the bytes of a blob."""
    return git.run("cat-file", "blob", blob)


def blob_sizes(git: Git, blobs: Sequence[str]) -> dict[str, int]:
    """Returns the sizes of blobs in bytes; one that is missing is left out."""
    if not blobs:
        return {}
    told = git.run("cat-file", "--batch-check=%(objectname) %(objectsize)", stdin="\n".join(blobs).encode() + b"\n")
    sizes: dict[str, int] = {}
    for row in told.decode("utf-8", "replace").splitlines():
        name, _, size = row.partition(" ")
        if size.isdecimal():
            sizes[name] = int(size)
    return sizes


@contextmanager
def copied_index(git: Git) -> Generator[dict[str, str]]:
    """Gives, for the block, the variables that make git use a copy of the index; an absent index stays absent."""
    with tempfile.TemporaryDirectory(prefix="clew-") as folder:
        copy = Path(folder) / "index"
        with contextlib.suppress(FileNotFoundError):
            shutil.copyfile(_git_path(git, "index"), copy)
        yield {"GIT_INDEX_FILE": str(copy)}


def index_tree(git: Git) -> TreeId:
    """Returns the tree that the index holds; neither the index nor the repository is written to."""
    with tempfile.TemporaryDirectory(prefix="clew-") as folder:
        objects = {
            "GIT_OBJECT_DIRECTORY": folder,
            "GIT_ALTERNATE_OBJECT_DIRECTORIES": str(_git_path(git, "objects")),
        }
        return _write_tree(git, objects)


def keep_index_tree(git: Git) -> TreeId:
    """Returns the tree that the index holds and keeps its objects in the repository; the index stays as it is."""
    return _write_tree(git, {})


def _write_tree(git: Git, objects: Mapping[str, str]) -> TreeId:
    # `git write-tree` writes back to the index what it worked out, too.
    with copied_index(git) as index:
        try:
            return TreeId(git.run("write-tree", extra={**objects, **index}).decode().strip())
        except GitFailed as error:
            raise GitFailed(
                f"the index of {git.root} cannot be reviewed: {error.message}", hint="Finish the merge first."
            ) from error


def _git_path(git: Git, name: str) -> Path:
    return git.root / git.run("rev-parse", "--git-path", name).decode("utf-8", "surrogateescape").rstrip("\n")
