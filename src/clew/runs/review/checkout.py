"""The sealed commit in a work tree of its own, so that HEAD, local changes and the folder are no input of a run.

A checkout lies in a folder that is handed in, is named after its run, and is removed when the run ends; those that
killed runs left behind are removed by the next one.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

from clew.errors import ClewError
from clew.platform.fs import ensure_folder
from clew.runs.review.git import Git, GitFailed, keep_index_tree


@contextmanager
def checked_out(
    git: Git, commit: str, folder: Path, run_id: str, *, index_tree: str = "", left_out: Sequence[str] = ()
) -> Generator[Path]:
    """Makes a work tree of `commit` below `folder` for the block; with `index_tree`, of what the index holds.

    `left_out` are names at its top that are not to be there: what an agent would take settings or addresses from.
    Raises ClewError (`checkout_failed`) when git cannot make it; nothing of it stays then.
    """
    if not commit:
        raise ClewError(
            f"{git.root} has no commit yet, so there is nothing to check out for an agent",
            code="checkout_failed",
            hint="Ask an endpoint (--provider), or commit something first.",
        )
    path = ensure_folder(folder) / run_id
    try:
        try:
            git.run("worktree", "add", "--quiet", "--detach", "--force", str(path), commit)
            if index_tree:
                # The run exists now, so the index's tree may be kept as objects; then it is laid out.
                keep_index_tree(git)
                git.run("-C", str(path), "read-tree", "--reset", "-u", index_tree)
        except GitFailed as error:
            raise ClewError(
                error.message, code="checkout_failed", hint="Ask an endpoint (--provider) instead."
            ) from error
        for name in left_out:
            _remove(path / name)
        yield path
    finally:
        remove_checkout(git, path)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def remove_checkout(git: Git, path: Path) -> None:
    """Removes a work tree and what git remembers of it; one that is gone already is fine."""
    with contextlib.suppress(GitFailed):
        git.run("worktree", "remove", "--force", "--force", str(path))
    shutil.rmtree(path, ignore_errors=True)
    with contextlib.suppress(GitFailed):
        git.run("worktree", "prune")


def remove_stale_checkouts(git: Git, folder: Path, is_active: Callable[[str], bool]) -> int:
    """Removes the work trees of runs that are over and returns how many; `is_active` tells by the run's id."""
    removed = 0
    listed = git.run("worktree", "list", "--porcelain", "-z").split(b"\0")
    ours = [Path(entry[9:].decode("utf-8", "surrogateescape")) for entry in listed if entry.startswith(b"worktree ")]
    for path in ours:
        if path.parent == folder.resolve() and not is_active(path.name):
            remove_checkout(git, path)
            removed += 1
    return removed
