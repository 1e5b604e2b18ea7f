"""The findings of a review as SARIF 2.1.0, for code hosts and editors.

One run with one tool; the rules are the categories that occur; paths are relative to `SRCROOT`. Items that were not
reviewed are notifications of the invocation, so that an empty list of results is never taken for a clean bill.
"""

from __future__ import annotations

import hashlib
import re
import urllib.parse
from typing import Any

from clew.runs.finding import Finding, identity
from clew.runs.report import Report

VERSION = "2.1.0"
SCHEMA_URL = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"

_LEVELS = {"critical": "error", "major": "error", "minor": "warning", "info": "note"}


def as_sarif(report: Report, tool_version: str) -> dict[str, Any]:
    """Returns the report as a SARIF log."""
    rules = sorted({rule_id(finding) for finding in report.findings})
    driver: dict[str, Any] = {"name": "clew", "rules": [_rule(name) for name in rules]}
    if tool_version:
        driver["version"] = tool_version
    run: dict[str, Any] = {
        "tool": {"driver": driver},
        "automationDetails": {"id": f"clew/review/{report.summary.run_id}"},
        "invocations": [_invocation(report)],
        "originalUriBaseIds": {"SRCROOT": {"description": {"text": "The root of the repository."}}},
        "columnKind": "utf16CodeUnits",
        "results": [_result(finding, rules) for finding in report.findings],
        "properties": _properties(report),
    }
    return {"$schema": SCHEMA_URL, "version": VERSION, "runs": [run]}


def rule_id(finding: Finding) -> str:
    """Returns the id of a finding's category: letters, digits and hyphens."""
    return re.sub(r"[^a-z0-9]+", "-", finding.category.lower()).strip("-") or "other"


def _rule(name: str) -> dict[str, Any]:
    return {"id": name, "shortDescription": {"text": name.replace("-", " ").capitalize() + "."}}


def _result(finding: Finding, rules: list[str]) -> dict[str, Any]:
    physical: dict[str, Any] = {"artifactLocation": _artifact(finding.path)}
    if finding.start_line:
        region: dict[str, Any] = {"startLine": finding.start_line, "endLine": max(finding.start_line, finding.end_line)}
        if finding.snippet.strip():
            region["snippet"] = {"text": finding.snippet}
        physical["region"] = region
    text = finding.text
    if finding.suggestion.strip():
        text += f"\n\nSuggestion: {finding.suggestion}"
    name = rule_id(finding)
    return {
        "ruleId": name,
        "ruleIndex": rules.index(name),
        "level": _LEVELS[finding.severity],
        "message": {"text": text},
        "locations": [{"physicalLocation": physical}],
        "partialFingerprints": {"clewFinding/v1": _fingerprint(finding)},
        "properties": {"severity": finding.severity},
    }


def _artifact(path: str) -> dict[str, str]:
    return {"uri": urllib.parse.quote(path.encode("utf-8", "replace"), safe="/~"), "uriBaseId": "SRCROOT"}


def _fingerprint(finding: Finding) -> str:
    return hashlib.sha256("\0".join(identity(finding)).encode("utf-8", "replace")).hexdigest()


def _invocation(report: Report) -> dict[str, Any]:
    told: dict[str, Any] = {"executionSuccessful": report.summary.state == "complete"}
    if report.summary.started:
        told["startTimeUtc"] = report.summary.started
    if report.summary.ended:
        told["endTimeUtc"] = report.summary.ended
    not_done = [item for item in report.items if item.outcome in ("failed", "undecided")]
    told["toolExecutionNotifications"] = [
        {
            "level": "error",
            "message": {
                "text": f"not reviewed: {': '.join(filter(None, (item.classification, item.reason)))}".rstrip(": ")
            },
            "locations": [{"physicalLocation": {"artifactLocation": _artifact(item.path)}}],
        }
        for item in not_done
    ]
    return told


def _properties(report: Report) -> dict[str, Any]:
    head = report.summary
    told: dict[str, Any] = {
        "state": head.state,
        "selected": head.selected,
        "completed": head.completed,
        "reused": head.reused,
        "failed": head.failed,
        "waived": head.waived,
        "provider": head.provider,
        "model": head.model,
    }
    if report.manifest is not None and report.manifest.input.exact_range:
        told["range"] = report.manifest.input.exact_range
    return told
