"""A conversation as Markdown: for reading elsewhere, quoting and keeping beside code.

Texts of the conversation stand as they were written, which is Markdown mostly; calls and results are fenced with
fences longer than any inside. Pure. Nothing is taken out, and what Markdown cannot show (images) is counted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from clew.cli import words
from clew.cli.calls import CallView, view_calls
from clew.cli.safe import make_safe
from clew.verbs.show import Shown, ShownGroup, ShownResult

_TICKS = re.compile("`+")


def markdown_lines(shown: Shown) -> Iterator[str]:
    """Yields the lines of a Markdown document; every text of the session is made safe."""
    yield f"# {make_safe(shown.title, line=True) or shown.session_id}"
    yield ""
    facts = (
        ("agent", shown.agent),
        ("session", shown.session_id),
        ("model", shown.model),
        ("folder", shown.cwd),
        ("from", shown.created),
        ("to", shown.updated),
        ("thread", shown.thread),
    )
    yield from (f"- {name}: {make_safe(value, line=True)}" for name, value in facts if value)
    for number, group in enumerate(shown.messages):
        for boundary in shown.boundaries if shown.full else ():
            if boundary.at == number:
                yield ""
                yield f"*Compacted: {words.count(number, 'message')} above not in the model's context.*"
        yield from _group(number + 1, group, shown)
    for branch in shown.branches:
        yield ""
        what = words.count(len(branch.messages), "message")
        yield f"*Rewound after message {branch.at}: {what} not on the active branch.*"


def _group(number: int, group: ShownGroup, shown: Shown) -> Iterator[str]:
    who = "you" if group.role == "user" and group.origin == "user" else group.kind or shown.agent
    moment = f" · {make_safe(group.time, line=True)}" if group.time else ""
    yield ""
    yield f"## {number} · {make_safe(who, line=True)}{moment}"
    if group.text:
        yield ""
        yield from make_safe(group.text).rstrip("\n").split("\n")
    if group.images:
        yield ""
        yield f"*{words.count(group.images, 'image')}*"
    calls, strays = view_calls(group, shown.cwd)
    for call in calls:
        yield from _call(call)
    for result in strays:
        yield from _result(result)


def _call(call: CallView) -> Iterator[str]:
    yield ""
    name = make_safe(call.name, line=True)
    gist = make_safe(call.gist, line=True)
    shown = f" {_inline(gist)}" if gist else ""
    size = f" {call.size}" if call.size else ""
    end = " failed" if call.failed else " no answer" if call.result is None else ""
    yield f"**{name}**{shown}{size}{end}"
    for key, value in call.rest:
        yield from _fenced(f"{key}: {value}" if "\n" not in value else f"{key}:\n{value}")
    for change in call.changes:
        yield from _fenced("\n".join(f"{sign}{line}" for sign, line in change.lines), "diff")
    if call.result is not None:
        yield from _result(call.result)


def _result(result: ShownResult) -> Iterator[str]:
    if result.text:
        yield from _fenced(make_safe(result.text, sgr="drop"))
    if result.images:
        yield ""
        yield f"*{words.count(result.images, 'image')}*"


def _fenced(text: str, language: str = "") -> Iterator[str]:
    text = make_safe(text)
    fence = "`" * max(3, max((len(run) for run in _TICKS.findall(text)), default=0) + 1)
    yield ""
    yield fence + language
    yield from text.rstrip("\n").split("\n")
    yield fence


def _inline(text: str) -> str:
    ticks = "`" * (max((len(run) for run in _TICKS.findall(text)), default=0) + 1)
    blank = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{ticks}{blank}{text}{blank}{ticks}"
