"""Where runs lie: one folder for each repository, in it one log and one lock file for each run.

    <data>/runs/<repository path>-<hash>/<run id>.jsonl     0600
    <data>/runs/<repository path>-<hash>/<run id>.lock
    <data>/runs/<repository path>-<hash>/<run id>.resume.lock    of a run that was resumed

The readable part of a folder's name is not injective (`a/b-c`, `a-b/c`), so a hash of the path follows it. A run id
is one path element; anything else is refused before a path is built from it.
"""

from __future__ import annotations

import hashlib
import os
import re
from typing import TYPE_CHECKING

from msgspec import Struct

from clew.errors import AmbiguousError, NotFoundError, RunError, UsageError
from clew.ids import is_safe_name
from clew.platform.fs import ensure_folder
from clew.runs.active import ActiveLock, Activity, probe
from clew.runs.checkpoints import RunState, replay

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LOG = ".jsonl"
LOCK = ".lock"
RESUME_LOCK = ".resume.lock"

_READABLE = 80
_HASH = 12


class FoundRun(Struct, frozen=True):
    """One run's log on the disk."""

    run_id: str
    path: Path

    @property
    def lock_path(self) -> Path:
        """The side file whose lock tells that the run goes on."""
        return self.path.with_suffix(LOCK)

    @property
    def resume_path(self) -> Path:
        """The side file whose lock tells that another run goes on with this one."""
        return self.path.with_suffix(RESUME_LOCK)

    def activity(self) -> Activity:
        """Tells whether the run goes on."""
        return probe(self.lock_path)

    def load(self, *, strict: bool = False) -> RunState:
        """Returns what the log tells; raises NotFoundError when it cannot be read."""
        try:
            data = self.path.read_bytes()
        except OSError as error:
            raise NotFoundError(
                f"the log of run {self.run_id} cannot be read: {self.path}: {error.strerror}",
                hint="`clew run list` shows the runs that can.",
                path=str(self.path),
            ) from error
        return replay(data, self.run_id, strict=strict, path=self.path)


def encode_scope(scope: Path) -> str:
    """Returns the folder name of a repository or folder: readable, then a hash that tells apart what reads alike."""
    text = os.fspath(scope)
    readable = re.sub(r"[^A-Za-z0-9._-]", "-", text.strip("/\\").replace("\\", "/").replace("/", "-"))
    readable = readable[-_READABLE:].lstrip(".-") or "empty"
    return f"{readable}-{hashlib.sha256(os.fsencode(text)).hexdigest()[:_HASH]}"


def scope_folder(runs: Path, scope: Path) -> Path:
    """Returns the folder that holds the runs of one repository, made or not."""
    return runs / encode_scope(scope)


def check_run_id(run_id: str) -> str:
    """Returns `run_id` when it is one path element; raises UsageError otherwise."""
    if not is_safe_name(run_id):
        raise UsageError(f"{run_id!r} is no run's id", code="run_id_invalid", hint="`clew run list` shows the ids.")
    return run_id


def find_all(runs: Path) -> Iterator[FoundRun]:
    """Yields every run's log, in no particular order; a missing folder holds none, other files are passed over."""
    try:
        folders = sorted(runs.iterdir())
    except OSError:
        return
    for folder in folders:
        yield from find_in(folder)


def find_in(folder: Path) -> Iterator[FoundRun]:
    """Yields the logs of one repository's folder."""
    if folder.is_symlink() or not folder.is_dir():
        return
    try:
        entries = sorted(folder.iterdir())
    except OSError:
        return
    for entry in entries:
        if entry.suffix == LOG and is_safe_name(entry.stem) and entry.is_file() and not entry.is_symlink():
            yield FoundRun(entry.stem, entry)


def get_run(runs: Path, name: str) -> FoundRun:
    """Returns the run of an id, or of a unique beginning of one.

    Raises UsageError, NotFoundError, or AmbiguousError that lists all; one id may stand under several repositories.
    """
    check_run_id(name)
    found = list(find_all(runs))
    exact = [run for run in found if run.run_id == name]
    matching = exact or [run for run in found if run.run_id.startswith(name)]
    if not matching:
        raise NotFoundError(
            f"no run is called {name}; looked at {len(found)} in {runs}",
            code="run_not_found",
            hint="`clew run list --all` shows the runs.",
            run=name,
        )
    if len(matching) > 1:
        raise AmbiguousError(
            f"{name} names {len(matching)} runs: {', '.join(str(run.path) for run in matching)}",
            code="run_ambiguous",
            hint="Give more of the id, or name the folder with --cwd.",
            run=name,
            candidates=[str(run.path) for run in matching],
        )
    return matching[0]


def delete_run(runs: Path, name: str, scope: Path | None) -> FoundRun:
    """Deletes a run's log and lock files and returns what was deleted.

    With `scope`, only when the log records that folder: otherwise RunError `run_other_repo`, or `run_unverifiable`
    when it records none. A run that is active, or a log that does not lie directly in a runs folder, is refused.
    """
    run = get_run(runs, name)
    if run.path.resolve().parent.parent != runs.resolve():
        raise RunError(f"{run.path} does not lie directly in a runs folder", code="through_link", path=str(run.path))
    if scope is not None:
        _check_scope(run, scope)
    if run.activity() == "active":
        raise RunError(f"run {run.run_id} is active", code="run_active", hint="Wait for it, or stop its process.")
    with ActiveLock(run.lock_path, run.run_id):
        run.path.unlink()
        run.lock_path.unlink(missing_ok=True)
        run.resume_path.unlink(missing_ok=True)
    return run


def _check_scope(run: FoundRun, scope: Path) -> None:
    start = run.load().start
    recorded = start.cwd if start is not None else ""
    if not recorded:
        raise RunError(
            f"run {run.run_id} records no folder, so it cannot be shown to belong to {scope}",
            code="run_unverifiable",
            hint="Delete it by its id alone: --any-repo.",
            run=run.run_id,
        )
    if os.path.realpath(recorded) != os.path.realpath(scope):
        raise RunError(
            f"run {run.run_id} belongs to {recorded}, not to {scope}",
            code="run_other_repo",
            hint="Delete it there, or by its id alone: --any-repo.",
            run=run.run_id,
            path=recorded,
        )


def ensure_scope_folder(runs: Path, scope: Path) -> Path:
    """Makes the folder of one repository's runs (0700) and returns it."""
    return ensure_folder(scope_folder(runs, scope))
