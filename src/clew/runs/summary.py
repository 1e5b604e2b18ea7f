"""Lists and shows runs: a summary of each, from its manifest where it has one, else counted from its checkpoints.

A summary without a manifest is flagged `legacy` and is never "complete". A run without an end is `running` while its
lock is held, else `aborted`; never judged by its age.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from clew.errors import NotFoundError
from clew.runs import log
from clew.runs.checkpoints import RunState, reusable
from clew.runs.folder import FoundRun, find_all, find_in, scope_folder
from clew.runs.lineage import ResumeLineage
from clew.runs.log import SessionRef
from clew.runs.manifest import Execution, RunFailure

if TYPE_CHECKING:
    from pathlib import Path


class Summary(Struct, frozen=True, kw_only=True):
    """One run in a list. `reusable` counts the items that a resume would not do again."""

    run_id: str
    state: str
    operation: str = ""
    mode: str = ""
    started: str = ""
    ended: str = ""
    cwd: str = ""
    branch: str = ""
    provider: str = ""
    model: str = ""
    requested: dict[str, object] = {}
    parent_run_id: str = ""
    parent_interrupted: bool = False
    selected: int = 0
    completed: int = 0
    reused: int = 0
    failed: int = 0
    waived: int = 0
    reusable: int = 0
    findings: int = 0
    elapsed_ms: int = 0
    legacy: bool = False
    damaged_records: int = 0
    run_failure: RunFailure | None = None
    path: str = ""


class ShownItem(Struct, frozen=True):
    """One item of a run: what became of it, in which run its result was made, and in which agent's session."""

    item_id: str
    path: str
    outcome: str
    findings: int = 0
    source_run: str = ""
    session: SessionRef | None = None
    classification: str = ""
    reason: str = ""


class Shown(Struct, frozen=True):
    """One run in full."""

    summary: Summary
    items: tuple[ShownItem, ...]
    lineage: ResumeLineage | None = None


def list_runs(runs: Path, scope: Path | None = None) -> tuple[Summary, ...]:
    """Returns the runs of one repository, or of all, newest start first; unreadable logs are passed over."""
    found = find_all(runs) if scope is None else find_in(scope_folder(runs, scope))
    summaries: list[Summary] = []
    for run in found:
        try:
            summaries.append(summarise(run, run.load()))
        except NotFoundError:
            continue
    return tuple(sorted(summaries, key=lambda s: (s.started, s.run_id), reverse=True))


def summarise(run: FoundRun, state: RunState) -> Summary:
    """Returns a run's summary."""
    start, manifest = state.start, state.manifest
    header = manifest or state.sealed
    execution = header.execution if header is not None else Execution()
    selected, counts = _counts(state)
    return Summary(
        run_id=run.run_id,
        state=_state(run, state),
        operation=header.operation if header is not None else (start.operation if start is not None else ""),
        mode=state.mode or (header.input.mode if header is not None else ""),
        started=start.time if start is not None else "",
        ended=state.ended,
        cwd=start.cwd if start is not None else "",
        branch=start.branch if start is not None else "",
        provider=execution.provider or (start.provider if start is not None else ""),
        model=execution.model or (start.model if start is not None else ""),
        requested=start.requested if start is not None else {},
        parent_run_id=header.parent_run_id if header is not None else (start.resumed_from if start is not None else ""),
        parent_interrupted=header.parent_interrupted if header is not None else False,
        selected=selected,
        completed=counts.get(log.ITEM_DONE, 0),
        reused=counts.get(log.ITEM_REUSED, 0),
        failed=counts.get(log.ITEM_FAILED, 0),
        waived=counts.get(log.ITEM_WAIVED, 0),
        reusable=len(reusable(state)),
        findings=sum(_finding_count(item) for item in state.checkpoints.values()),
        elapsed_ms=state.elapsed_ms,
        legacy=manifest is None,
        damaged_records=state.damaged,
        run_failure=manifest.run_failure if manifest is not None else None,
        path=str(run.path),
    )


def _state(run: FoundRun, state: RunState) -> str:
    if not state.closed:
        return "running" if run.activity() == "active" else "aborted"
    if state.manifest is not None:
        return state.manifest.terminal_state
    return "failed" if any(item.type == log.ITEM_FAILED for item in state.items.values()) else "ended"


def _counts(state: RunState) -> tuple[int, dict[str, int]]:
    if state.manifest is not None:
        covered = state.manifest.coverage
        return len(covered.selected), {
            log.ITEM_DONE: len(covered.completed),
            log.ITEM_REUSED: len(covered.reused),
            log.ITEM_FAILED: len(covered.failed),
            log.ITEM_WAIVED: len(covered.waived),
        }
    counts: dict[str, int] = {}
    for item in state.items.values():
        counts[item.type] = counts.get(item.type, 0) + 1
    return len(state.sealed.coverage.selected) if state.sealed is not None else len(state.items), counts


def _finding_count(item: log.ItemRecord) -> int:
    findings = item.result.get("findings")
    return len(findings) if isinstance(findings, list) else 0  # pyright: ignore[reportUnknownArgumentType]


_OUTCOMES = {
    log.ITEM_DONE: "done",
    log.ITEM_REUSED: "reused",
    log.ITEM_FAILED: "failed",
    log.ITEM_WAIVED: "waived",
}


def show_run(run: FoundRun) -> Shown:
    """Returns a run in full: summary, items in the order of their paths, lineage."""
    state = run.load()
    shown: dict[str, ShownItem] = {}
    for item in state.items.values():
        shown[item.item_id] = ShownItem(
            item.item_id,
            item.path,
            _OUTCOMES.get(item.type, item.type),
            _finding_count(item),
            item.source_run,
            item.session,
            item.classification,
            item.error,
        )
    if state.manifest is not None:
        # Items that were never dispatched have no checkpoint; the manifest says why.
        for item in state.manifest.coverage.failed:
            shown.setdefault(
                item.item_id,
                ShownItem(item.item_id, item.path, "failed", classification=item.classification, reason=item.reason),
            )
    elif state.sealed is not None:
        for item in state.sealed.coverage.selected:
            shown.setdefault(item.item_id, ShownItem(item.item_id, item.path, "undecided"))
    items = tuple(sorted(shown.values(), key=lambda item: (item.path, item.item_id)))
    return Shown(summarise(run, state), items, state.lineage)
