"""One run as a report: JSON for programs, Markdown for people. Made from a log, so that it can be made again later.

A report speaks of labels, paths, findings and sanitised reasons; it holds no endpoint, key, rule text or prompt. The
findings of a resumed run are those of an uninterrupted one.
"""

from __future__ import annotations

from typing import Any, cast

from msgspec import Struct

from clew.runs.checkpoints import RunState
from clew.runs.compare import all_findings
from clew.runs.finding import SEVERITIES, Finding
from clew.runs.folder import FoundRun
from clew.runs.lineage import ResumeLineage
from clew.runs.manifest import Manifest
from clew.runs.operation import Skipped
from clew.runs.summary import ShownItem, Summary, show_run


class Report(Struct, frozen=True):
    """A run with everything it found. `results` are the items' results by path, for operations without findings."""

    summary: Summary
    items: tuple[ShownItem, ...]
    findings: tuple[Finding, ...]
    results: dict[str, dict[str, Any]]
    skipped: tuple[Skipped, ...] = ()
    lineage: ResumeLineage | None = None
    manifest: Manifest | None = None


def make_report(run: FoundRun) -> Report:
    """Returns the report of a run that lies on the disk; raises NotFoundError when its log cannot be read."""
    shown = show_run(run)
    state = run.load()
    return Report(
        summary=shown.summary,
        items=shown.items,
        findings=all_findings(state),
        results=_results(state),
        skipped=_skipped(state),
        lineage=shown.lineage,
        manifest=state.manifest,
    )


def _results(state: RunState) -> dict[str, dict[str, Any]]:
    found = {item.path: dict(item.result) for item in state.checkpoints.values() if "findings" not in item.result}
    return {path: found[path] for path in sorted(found)}


def _skipped(state: RunState) -> tuple[Skipped, ...]:
    told = state.start.skipped if state.start is not None else ()
    return tuple(Skipped(one.get("path", ""), one.get("reason", "")) for one in told)


def as_markdown(report: Report) -> str:
    """Returns the report as Markdown."""
    head = report.summary
    lines = [f"# {head.operation.capitalize() or 'Run'} {head.run_id}", "", *_facts(report), ""]
    by_path: dict[str, list[Finding]] = {}
    for finding in report.findings:
        by_path.setdefault(finding.path, []).append(finding)
    if head.operation == "review":
        count = len(report.findings)
        lines += [f"## Findings: {count}", ""] if count else ["## No findings", ""]
    for path, findings in by_path.items():
        lines += [f"### {_code(path)}", ""]
        for finding in sorted(findings, key=lambda f: (SEVERITIES.index(f.severity), f.start_line)):
            lines += _finding_lines(finding)
    lines += _result_lines(report)
    lines += _list("Not done", [(i.path, _why(i)) for i in report.items if i.outcome in ("failed", "undecided")])
    lines += _list("Waived", [(i.path, i.reason) for i in report.items if i.outcome == "waived"])
    lines += _list("Left out of the selection", [(s.path, s.reason) for s in report.skipped])
    return "\n".join(lines).rstrip("\n") + "\n"


def _facts(report: Report) -> list[str]:
    head, manifest = report.summary, report.manifest
    counts = f"{head.completed} done, {head.reused} reused, {head.failed} failed, {head.waived} waived"
    facts = [f"- state: {head.state}", f"- items: {head.selected} selected: {counts}"]
    if manifest is not None and manifest.input.exact_range:
        facts.append(f"- input: {head.mode} {_code(manifest.input.exact_range)}")
    elif head.mode:
        facts.append(f"- input: {head.mode}")
    done_by = " ".join(filter(None, (head.provider, head.model)))
    if done_by:
        facts.append(f"- done by: {_plain(done_by)}")
    if head.parent_run_id:
        interrupted = ", which was interrupted" if head.parent_interrupted else ""
        facts.append(f"- goes on from: run {head.parent_run_id}{interrupted}")
    lineage = report.lineage
    if lineage is not None and lineage.is_transition:
        was, now = lineage.source, lineage.target
        facts.append(f"- changed on purpose: {_plain(f'{was.provider} {was.model} to {now.provider} {now.model}')}")
    if head.run_failure is not None:
        facts.append(f"- the run failed: {head.run_failure.classification}: {_plain(head.run_failure.reason)}")
    if head.damaged_records:
        facts.append(f"- {head.damaged_records} records of its log do not parse and were passed over")
    return facts


def _finding_lines(finding: Finding) -> list[str]:
    place = ""
    if finding.start_line:
        end = f"-{finding.end_line}" if finding.end_line > finding.start_line else ""
        place = f", line{'s' if end else ''} {finding.start_line}{end}"
    lines = [f"**{finding.severity}** {_plain(finding.category or 'other')}{place}", "", _prose(finding.text), ""]
    if finding.snippet.strip():
        lines += [*_fenced(finding.snippet), ""]
    if finding.suggestion.strip():
        lines += [f"Suggestion: {_prose(finding.suggestion)}", ""]
    return lines


def _result_lines(report: Report) -> list[str]:
    told = [(path, result.get("translated")) for path, result in report.results.items()]
    rows = [(path, _translated_row(cast("dict[str, Any]", one))) for path, one in told if isinstance(one, dict)]
    return _list("Translated", rows)


def _translated_row(told: dict[str, Any]) -> str:
    target, report = told.get("to", {}), told.get("report", {})
    name = f"{target.get('agent', '')} {target.get('session_id', '')}"
    counts = f"{report.get('restored_messages', 0)} restored, {report.get('rendered_messages', 0)} written"
    losses = report.get("losses") or ()
    kept = ", ".join(f"{loss.get('count', 1)} {loss.get('what', '')}" for loss in losses)
    return f"{name}: {counts}" + (f"; kept here: {kept}" if kept else "")


def _why(item: ShownItem) -> str:
    return ": ".join(filter(None, (item.classification, item.reason))) or item.outcome


def _list(title: str, rows: list[tuple[str, str]]) -> list[str]:
    if not rows:
        return []
    return [f"## {title}", "", *(f"- {_code(path)}: {_plain(reason)}" for path, reason in rows), ""]


def _code(text: str) -> str:
    ticks = "`"
    while ticks in text:
        ticks += "`"
    pad = " " if "`" in text else ""
    return f"{ticks}{pad}{' '.join(text.split())}{pad}{ticks}"


def _fenced(text: str) -> list[str]:
    fence = "```"
    while fence in text:
        fence += "`"
    return [fence, *text.strip("\n").splitlines(), fence]


def _plain(text: str) -> str:
    """Returns our own or a model's words on one line, without anything that Markdown or HTML would act on."""
    escaped = "".join("\\" + char if char in "\\`*_[]<>#|" else char for char in text)
    return " ".join(escaped.split())


def _prose(text: str) -> str:
    """Returns a model's prose: its own Markdown stays, its HTML does not, and images become links."""
    parts = text.strip().split("`")
    # Even places lie outside of code spans.
    safe = [
        part.replace("<", "&lt;").replace("![", "[") if place % 2 == 0 else part for place, part in enumerate(parts)
    ]
    return "`".join(safe)
