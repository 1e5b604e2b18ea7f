"""A finding: one remark of a review about some lines of one file.

`read_findings` takes a model's answer apart and validates it; what is not a finding is returned as a rejection with its
reason, never dropped unseen. The identity of a finding has no line number, so that it survives edits above it.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Literal, cast, get_args

import msgspec
from msgspec import Struct

from clew.runs.fingerprint import clean_path

if TYPE_CHECKING:
    from collections.abc import Collection

Severity = Literal["critical", "major", "minor", "info"]
SEVERITIES: tuple[str, ...] = get_args(Severity)

MAX_TEXT = 20_000


class Finding(Struct, frozen=True):
    """Lines are counted from 1 in the new file; 0 where the model named none."""

    path: str
    start_line: int = 0
    end_line: int = 0
    category: str = ""
    severity: Severity = "minor"
    snippet: str = ""
    text: str = ""
    suggestion: str = ""


class Rejection(Struct, frozen=True):
    """A part of an answer that is no finding: its place in the answer's list, and why."""

    index: int
    reason: str


class Unanswerable(ValueError):
    """An answer holds no list of findings at all."""


def identity(finding: Finding) -> tuple[str, str, str]:
    """Returns what makes two findings of different runs the same: path, category, and snippet or else the prose."""
    content = collapse(finding.snippet) or collapse(finding.text)
    return finding.path, finding.category or "other", content


def collapse(text: str) -> str:
    """Returns `text` with every run of blanks as one."""
    return " ".join(text.split())


def sort_key(finding: Finding) -> tuple[str, int, int, str, str, str, str, str]:
    """Returns the key of the one order in which findings are listed."""
    f = finding
    return f.path, f.start_line, f.end_line, f.category, f.severity, f.snippet, f.text, f.suggestion


def findings_of(result: dict[str, object]) -> tuple[Finding, ...]:
    """Returns the findings in an item's result, as fresh copies; members that are none are passed over."""
    found: list[Finding] = []
    listed = result.get("findings")
    for value in cast("list[object]", listed) if isinstance(listed, list) else []:
        try:
            found.append(msgspec.convert(value, Finding))
        except msgspec.ValidationError:
            continue
    return tuple(found)


def read_findings(
    answer: str, path: str, lines: tuple[str, ...], others: Collection[str] = ()
) -> tuple[tuple[Finding, ...], tuple[Rejection, ...]]:
    """Returns the findings of an answer about `path`, and what of it was rejected.

    The answer is an object with a list `findings`, or the list itself, alone or in a fence. A finding may name another
    selected file (`others`); no path means `path`. `lines` are those of the new file: a snippet that stands in it sets
    the lines right. Raises Unanswerable when there is no such list.
    """
    listed = _find_list(answer)
    if listed is None:
        shown = collapse(answer)[:80]
        raise Unanswerable(f"the answer holds no list of findings: {shown!r}")
    found: list[Finding] = []
    rejected: list[Rejection] = []
    for index, value in enumerate(listed):
        try:
            finding = _read_one(value, path, others)
        except ValueError as error:
            rejected.append(Rejection(index, str(error)))
        else:
            found.append(_placed(finding, lines) if finding.path == path else finding)
    return tuple(sorted(set(found), key=sort_key)), tuple(rejected)


def _find_list(answer: str) -> list[object] | None:
    decoder = json.JSONDecoder()
    best: list[object] | None = None
    place = 0
    while (start := _next_start(answer, place)) >= 0:
        try:
            value, place = decoder.raw_decode(answer, start)
        except (ValueError, RecursionError):
            place = start + 1
            continue
        if isinstance(value, dict):
            value = cast("dict[str, object]", value).get("findings")
        if isinstance(value, list):
            listed = cast("list[object]", value)
            if all(isinstance(member, dict) for member in listed):
                best = listed  # The last one: models think aloud before they answer.
    return best


def _next_start(answer: str, place: int) -> int:
    match = re.compile(r"[{\[]").search(answer, place)
    return match.start() if match else -1


def _read_one(value: object, path: str, others: Collection[str]) -> Finding:
    if not isinstance(value, dict):
        raise ValueError("not an object")
    members = cast("dict[str, object]", value)
    named = clean_path(_text(members, "path") or path)
    if named != path and named not in others:
        raise ValueError(f"names the file {named!r}, which was not selected")
    text = _text(members, "text")
    if not text.strip():
        raise ValueError("has no text")
    severity = (_text(members, "severity") or "minor").lower()
    if severity not in SEVERITIES:
        raise ValueError(f"has the unknown severity {severity!r}")
    start, end = _line(members, "start_line"), _line(members, "end_line")
    end = end or start
    if start > end:
        raise ValueError(f"ends at line {end}, before it starts at {start}")
    return Finding(
        path=named,
        start_line=start,
        end_line=end,
        category=collapse(_text(members, "category")).lower()[:80],
        severity=cast("Severity", severity),
        snippet=_text(members, "snippet"),
        text=text.strip(),
        suggestion=_text(members, "suggestion"),
    )


def _text(members: dict[str, object], name: str) -> str:
    value = members.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise ValueError(f"has a {name} that is no text")
    if len(value) > MAX_TEXT:
        raise ValueError(f"has a {name} of {len(value)} characters; {MAX_TEXT} are allowed")
    return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _line(members: dict[str, object], name: str) -> int:
    value = members.get(name)
    if value is None:
        return 0
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= 10_000_000:
        raise ValueError(f"has a {name} that is no line number")
    return value


def _placed(finding: Finding, lines: tuple[str, ...]) -> Finding:
    """Returns the finding with its lines set right: where its snippet stands, nearest to where the model said."""
    wanted = [collapse(line) for line in finding.snippet.splitlines() if line.strip()]
    if wanted and lines:
        plain = [collapse(line) for line in lines]
        places = [
            start
            for start in range(len(plain) - len(wanted) + 1)
            if all(want in plain[start + n] for n, want in enumerate(wanted))
        ]
        if places:
            start = min(places, key=lambda place: (abs(place + 1 - finding.start_line), place)) + 1
            return msgspec.structs.replace(finding, start_line=start, end_line=start + len(wanted) - 1)
    last = len(lines)
    if not last:
        return finding
    return msgspec.structs.replace(
        finding, start_line=min(finding.start_line, last), end_line=min(finding.end_line, last)
    )
