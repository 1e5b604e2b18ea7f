"""What runs look like: the end of one, the list, one in full, two compared; for people and as JSON.

Everything that came from a model, a repository or a log is made safe for the terminal here.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

import msgspec

import clew
from clew.cli import words
from clew.cli.ending import INTERRUPTED
from clew.cli.group import Invocation
from clew.cli.safe import write_json
from clew.cli.style import Look, Role
from clew.errors import ClewError, UsageError
from clew.runs.compare import Comparison
from clew.runs.engine import RunResult
from clew.runs.finding import Finding, findings_of, sort_key
from clew.runs.folder import FoundRun
from clew.runs.report import Report, as_markdown, make_report
from clew.runs.sarif import as_sarif
from clew.runs.summary import Summary

_ROLES: dict[str, Role] = {
    "complete": "ok",
    "partial": "warn",
    "failed": "error",
    "aborted": "warn",
    "running": "live",
    "skipped": "muted",
}
_SEVERITY: dict[str, Role] = {"critical": "error", "major": "error", "minor": "warn", "info": "muted"}


def exit_status(result: RunResult) -> int:
    """Returns the exit status of a run: 0 complete, 130 interrupted, 1 anything else."""
    failure = result.manifest.run_failure
    if failure is not None and failure.classification == "cancelled":
        return INTERRUPTED
    return 0 if result.manifest.terminal_state in ("complete", "skipped") and not result.delivery_error else 1


def check_output(run: Invocation, output: str | None) -> None:
    """Raises UsageError where no report can be written, before a run has cost anything."""
    if output is None:
        return
    path = run.around.cwd / output
    if path.is_dir():
        raise UsageError(f"the report cannot be written to {path}: it is a folder", path=str(path))
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        why = "nothing can be written there" if path.parent.is_dir() else f"there is no folder {path.parent}"
        raise UsageError(f"the report cannot be written to {path}: {why}", path=str(path))


def write_report(run: Invocation, folder: Path, result: RunResult, form: str | None, output: str | None) -> None:
    """Writes what came of a run: the report in the form that was asked for, and how to go on."""
    manifest = result.manifest
    if result.delivery_error:
        run.screen.warn(f"{result.delivery_error}; the run cannot be resumed beyond what its log holds")
    found = FoundRun(manifest.run_id, result.log_path)
    # The log may be missing or cut: then the manifest alone is told, which is the same value.
    report = make_report(found) if not result.delivery_error else _bare_report(found, result)
    if form is None and run.screen.is_json and output is None:
        run.screen.json(_as_json(report, result))
    else:
        _write_form(run, report, form or ("json" if run.screen.is_json else "text"), output, result)
    left = len(manifest.coverage.failed)
    if left and not result.delivery_error:
        run.screen.note(f"{words.count(left, 'item')} not done; go on: clew run resume {manifest.run_id}")


def _bare_report(found: FoundRun, result: RunResult) -> Report:
    manifest = result.manifest
    covered = manifest.coverage
    found_now = [finding for item in result.items.values() for finding in findings_of(item.result)]
    head = Summary(
        run_id=manifest.run_id,
        state=manifest.terminal_state,
        operation=manifest.operation,
        mode=manifest.input.mode,
        provider=manifest.execution.provider,
        model=manifest.execution.model,
        parent_run_id=manifest.parent_run_id,
        selected=len(covered.selected),
        completed=len(covered.completed),
        reused=len(covered.reused),
        failed=len(covered.failed),
        waived=len(covered.waived),
        findings=len(found_now),
        run_failure=manifest.run_failure,
        path=str(found.path),
    )
    return Report(head, (), tuple(sorted(found_now, key=sort_key)), {}, result.skipped, None, manifest)


def _as_json(report: Report, result: RunResult | None = None) -> dict[str, Any]:
    told: dict[str, Any] = {
        "run": report.summary.run_id,
        "state": report.summary.state,
        "summary": report.summary,
        "manifest": report.manifest,
        "lineage": report.lineage,
        "items": report.items,
        "findings": report.findings,
        "results": report.results,
        "skipped": report.skipped,
    }
    if result is not None:
        told["spent"] = {"input_tokens": result.spent.input_tokens, "output_tokens": result.spent.output_tokens}
        told["delivery_error"] = result.delivery_error
    return told


def write_shown(run: Invocation, found: FoundRun, form: str | None, output: str | None) -> None:
    """Writes one run in full."""
    _write_form(run, make_report(found), form or ("json" if run.screen.is_json else "text"), output)


def _write_form(
    run: Invocation, report: Report, form: str, output: str | None, result: RunResult | None = None
) -> None:
    if form == "sarif":
        text = msgspec.json.format(msgspec.json.encode(as_sarif(report, clew.__version__))).decode()
    elif form == "json":
        text = write_json(_as_json(report, result))
    elif form == "md" or output:
        text = as_markdown(report).rstrip("\n")
    else:
        for line in report_lines(report, run.screen.look):
            run.screen.line(line)
        return
    if output is None:
        # Markdown and JSON for programs go out as they are, but for what would act on a terminal.
        for line in run.screen.look.safe(text).split("\n"):
            run.screen.line(line)
        return
    path = run.around.cwd / output
    try:
        path.write_text(text + "\n", "utf-8")
    except OSError as error:
        raise ClewError(
            f"the report cannot be written to {path}: {error.strerror}",
            hint=f"Write it elsewhere: clew run show {report.summary.run_id} --output FILE",
            path=str(path),
        ) from error
    run.screen.note(f"report written to {run.screen.look.safe(str(path), line=True)}")


# --- lines for people -------------------------------------------------------------------------------------


def report_lines(report: Report, look: Look) -> Iterable[str]:
    """Yields a run as lines: what it was, its findings by file, what was not done."""
    head = report.summary
    yield _head_line(head, look)
    if head.run_failure is not None:
        yield "  " + look.safe(f"{head.run_failure.classification}: {head.run_failure.reason}", line=True)
    if head.parent_run_id:
        yield f"  goes on from run {look.safe(head.parent_run_id, line=True)}"
    path = ""
    for finding in report.findings:
        if finding.path != path:
            path = finding.path
            yield look.paint("heading", look.safe(path, line=True))
        yield from _finding_lines(finding, look)
    for place, result in report.results.items():
        yield _translated_line(place, result, look)
    for item in report.items:
        if item.outcome in ("failed", "undecided", "waived"):
            reason = ": ".join(filter(None, (item.classification, item.reason)))
            what = f"{item.outcome}  {look.safe(item.path, line=True)}"
            yield f"{look.paint('warn', '!')} {what}" + (f"  {look.safe(reason, line=True)}" if reason else "")
    if report.skipped:
        yield look.paint("muted", f"{words.count(len(report.skipped), 'file')} left out: {_reasons(report, look)}")


def _head_line(head: Summary, look: Look) -> str:
    counts = [f"{head.completed} done"]
    counts += [
        f"{n} {what}" for n, what in ((head.reused, "reused"), (head.failed, "failed"), (head.waived, "waived")) if n
    ]
    if head.operation == "review":
        counts.append(words.count(head.findings, "finding"))
    by = " ".join(filter(None, (head.provider, head.model)))
    state = look.paint(_ROLES.get(head.state, ""), head.state)
    told = f"{head.operation} {look.safe(head.run_id, line=True)}  {state}: {', '.join(counts)}"
    return told + (f", by {look.safe(by, line=True)}" if by else "")


def _finding_lines(finding: Finding, look: Look) -> Iterable[str]:
    place = str(finding.start_line) if finding.start_line else "-"
    if finding.end_line > finding.start_line:
        place += f"-{finding.end_line}"
    severity = look.paint(_SEVERITY[finding.severity], finding.severity)
    category = f" {look.safe(finding.category, line=True)}:" if finding.category else ":"
    yield f"  {place:>7}  {severity}{category} {look.safe(finding.text, line=True)}"
    if finding.suggestion.strip():
        yield f"           {look.paint('muted', look.safe(finding.suggestion, line=True))}"


def _translated_line(place: str, result: dict[str, Any], look: Look) -> str:
    told = cast("dict[str, Any]", result.get("translated") or {})
    target = cast("dict[str, Any]", told.get("to") or {})
    name = look.session(str(target.get("agent", "")), str(target.get("session_id", "")))
    return f"{look.safe(place, line=True)}  {look.paint('ok', '→')} {name}"


def _reasons(report: Report, look: Look) -> str:
    counts: dict[str, int] = {}
    for one in report.skipped:
        reason = one.reason.partition(":")[0]
        counts[reason] = counts.get(reason, 0) + 1
    return look.safe(", ".join(f"{count} {reason}" for reason, count in sorted(counts.items())), line=True)


def write_list(run: Invocation, summaries: tuple[Summary, ...], scope: Path | None) -> None:
    """Writes a list of runs: one object a line, or one line each."""
    if run.screen.is_json:
        for summary in summaries:
            run.screen.json(summary)
        return
    look = run.screen.look
    for summary in summaries:
        safe = [look.safe(text, line=True) for text in (summary.started, summary.run_id, _asked(summary), summary.cwd)]
        started, run_id, asked, cwd = safe
        if not look.terminal:
            fields = (started, summary.operation, run_id, summary.state, str(summary.selected), cwd, asked)
            run.screen.line("\t".join(fields))
            continue
        state = look.paint(_ROLES.get(summary.state, ""), f"{summary.state:<8}")
        counts = f"{summary.completed + summary.reused}/{summary.selected}"
        moment = started[:16].replace("T", " ")
        run.screen.line(f"{moment}  {run_id[:12]}  {state} {counts:>9}  {summary.operation} {asked}".rstrip())
    if not summaries:
        where = "any folder" if scope is None else run.shorten(str(scope))
        hint = "" if scope is None else " --all: of every folder"
        run.screen.note(f"no run of {look.safe(where, line=True)}.{hint}")


def _asked(summary: Summary) -> str:
    asked = summary.requested
    names = ("from_ref", "to_ref", "commit", "from_agent", "to_agent")
    told = [str(asked[name]) for name in names if asked.get(name)]
    return " .. ".join(told) or summary.mode


def write_comparison(run: Invocation, told: Comparison) -> None:
    """Writes the four lists."""
    if run.screen.is_json:
        run.screen.json(told)
        return
    look = run.screen.look
    groups: tuple[tuple[str, Role, tuple[Finding, ...]], ...] = (
        ("new", "error", told.new),
        ("persisting", "warn", told.persisting),
        ("resolved", "ok", told.resolved),
        ("not reviewed again", "muted", told.not_reviewed),
    )
    for name, role, findings in groups:
        run.screen.line(look.paint(role, f"{name}: {len(findings)}"))
        for finding in findings:
            place = f":{finding.start_line}" if finding.start_line else ""
            text = look.safe(f"{finding.path}{place}  {finding.severity}  {finding.text}", line=True)
            run.screen.line(f"  {text}")
