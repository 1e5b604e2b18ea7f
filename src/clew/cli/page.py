"""A conversation as one page in one file: no script, nothing loaded from anywhere, sealed by its own policy.

Prompts are a list on top, calls are folded, light and dark follow the reader's system. Every text of the session is
made safe and escaped; it never becomes part of a tag. The policy allows one style sheet, by its hash. Nothing is
redacted, and what is not in the page is said at its head.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator
from html import escape

import clew
from clew.cli import words
from clew.cli.calls import CallView, view_calls
from clew.cli.safe import make_safe
from clew.verbs.show import Shown, ShownGroup, ShownResult

MAX_RESULT_LINES = 200
_SECTION = 50

STYLE = """
:root{color-scheme:light dark;--ink:#1c2128;--paper:#fff;--panel:#f6f7f9;--muted:#57606a;--you:#0a5bbd;
--agent:#6b3fb8;--tool:#8a4b00;--error:#b3261e;--warn:#8a5a00;--line:#767f8a;--added:#e3f6e8;--removed:#fdeaea}
@media (prefers-color-scheme:dark){:root{--ink:#e6e9ee;--paper:#12151a;--panel:#1a1e25;--muted:#a3acb8;
--you:#82b4ff;--agent:#c3a6ff;--tool:#f0b072;--error:#ff9b93;--warn:#f0c05a;--line:#6e7681;--added:#12321d;
--removed:#3d1c1c}}
body{margin:0 auto;padding:1rem;max-width:60rem;background:var(--paper);color:var(--ink);
font:16px/1.55 system-ui,sans-serif}
h1{font-size:1.4rem;overflow-wrap:anywhere}h2{font-size:1rem;margin:1.5rem 0 .25rem;color:var(--agent)}
.you h2{color:var(--you)}.mark,.facts,time{color:var(--muted)}.mark{border-top:1px dashed var(--line)}
.facts dt{float:left;clear:left;width:6rem}.facts dd{margin:0 0 0 6rem;overflow-wrap:anywhere}
a{color:var(--you)}nav li{overflow-wrap:anywhere}time{font-weight:normal}
article{border-left:3px solid var(--agent);padding-left:.75rem}article.you{border-color:var(--you)}
article.other{border-color:var(--line);color:var(--muted)}
.text{white-space:pre-wrap;overflow-wrap:anywhere;max-width:68ch;margin:.25rem 0}
pre{font:14px/1.45 ui-monospace,monospace;background:var(--panel);padding:.5rem;overflow-x:auto;margin:.25rem 0}
summary{color:var(--tool);overflow-wrap:anywhere;cursor:pointer}summary .bad{color:var(--error)}
ins{background:var(--added);text-decoration:none}del{background:var(--removed);text-decoration:none}
.part{content-visibility:auto;contain-intrinsic-size:auto 6000px}
:focus-visible{outline:2px solid var(--you)}
@media print{details::details-content{content-visibility:visible;height:auto}}
"""


def page_lines(shown: Shown, *, ascii_only: bool = False) -> Iterator[str]:
    """Yields the lines of the page; with `ascii_only` every other character is a reference."""
    for line in _page(shown):
        yield line.encode("ascii", "xmlcharrefreplace").decode() if ascii_only else line


def _page(shown: Shown) -> Iterator[str]:
    title = _line(shown.title) or _line(shown.session_id)
    yield "<!doctype html>"
    yield '<html lang="en"><head><meta charset="utf-8">'
    yield f'<meta http-equiv="Content-Security-Policy" content="{policy()}">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield '<meta name="referrer" content="no-referrer">'
    yield f"<title>{title}</title><style>{STYLE}</style></head><body>"
    yield f"<header><h1>{title}</h1>"
    yield from _facts(shown)
    yield "</header>"
    yield from _prompts(shown)
    yield "<main>"
    for start in range(0, len(shown.messages), _SECTION):
        yield '<div class="part">'
        for number in range(start, min(start + _SECTION, len(shown.messages))):
            yield from _marks(shown, number)
            yield from _group(number + 1, shown.messages[number], shown)
        yield "</div>"
    for branch in shown.branches:
        what = words.count(len(branch.messages), "message")
        yield f'<p class="mark">rewound after message {branch.at}: {what} not on the active branch</p>'
    yield "</main></body></html>"


def policy() -> str:
    """Returns the content security policy: nothing at all, but the one style sheet and images inside the file."""
    digest = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
    return f"default-src 'none'; img-src data:; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"


def _line(text: str) -> str:
    return escape(make_safe(text, line=True))


def _facts(shown: Shown) -> Iterator[str]:
    images = sum(group.images + sum(r.images for r in group.tool_results) for group in shown.messages)
    reasoning = sum(group.reasoning for group in shown.messages)
    absent = [
        words.count(number, noun) for number, noun in ((images, "image"), (reasoning, "reasoning block")) if number
    ]
    if not shown.full:
        absent.append(f"results beyond {MAX_RESULT_LINES} lines")
    facts = (
        ("agent", shown.agent),
        ("model", shown.model),
        ("folder", shown.cwd),
        ("session", shown.session_id),
        ("from", shown.created),
        ("to", shown.updated),
        ("messages", f"{len(shown.messages):,}"),
        ("not in here", ", ".join(absent)),
        ("taken out", "nothing: this page is not redacted"),
        ("made by", f"clew {clew.__version__}"),
    )
    rows = (f"<dt>{name}</dt><dd>{_line(value)}</dd>" for name, value in facts if value)
    yield f'<dl class="facts">{"".join(rows)}</dl>'


def _prompts(shown: Shown) -> Iterator[str]:
    yield '<nav aria-label="Prompts"><ol>'
    for number, group in enumerate(shown.messages, 1):
        if group.role == "user" and group.origin == "user":
            text = _line(group.text[:200])[:120] or "(image)"
            yield f'<li value="{number}"><a href="#m{number}">{_whole_references(text)}</a></li>'
    yield "</ol></nav>"


def _whole_references(text: str) -> str:
    """Returns escaped text that was cut without a reference cut in two."""
    head, sign, tail = text.rpartition("&")
    return text if not sign or ";" in tail else head


def _marks(shown: Shown, number: int) -> Iterator[str]:
    for boundary in shown.boundaries if shown.full else ():
        if boundary.at == number:
            what = words.count(number, "message")
            yield f'<p class="mark">compacted: {what} above not in the model\'s context</p>'


def _group(number: int, group: ShownGroup, shown: Shown) -> Iterator[str]:
    typed = group.role == "user" and group.origin == "user"
    kind = "you" if typed else "agent" if group.role == "assistant" else "other"
    who = "you" if typed else group.kind or (shown.agent if group.role == "assistant" else "agent-made")
    moment = f" <time>{_line(group.time)}</time>" if group.time else ""
    yield f'<article class="{kind}" id="m{number}"><h2>{number} · {_line(who)}{moment}</h2>'
    if group.text:
        yield f'<div class="text">{escape(make_safe(group.text))}</div>'
    if group.images:
        yield f"<p>[{words.count(group.images, 'image')}]</p>"
    calls, strays = view_calls(group, shown.cwd)
    for call in calls:
        yield from _call(call, full=shown.full)
    for result in strays:
        yield from _result(result, full=shown.full)
    yield "</article>"


def _call(call: CallView, *, full: bool) -> Iterator[str]:
    gist = " ".join(text for text in (_line(call.gist), call.size) if text)
    end = ""
    if call.result is None:
        end = ' <span class="bad">? no answer</span>'
    elif call.failed:
        end = f' <span class="bad">✗ {_line(call.last_line)}</span>'
    yield f"<details><summary>{_line(call.name)} {gist}{end}</summary>"
    for name, value in call.rest:
        yield f"<pre>{_line(name)}: {escape(make_safe(value))}</pre>"
    for change in call.changes:
        yield f"<p>{_line(change.path)}</p><pre>{''.join(_changed(sign, line) for sign, line in change.lines)}</pre>"
    if call.result is not None:
        yield from _result(call.result, full=full)
    yield "</details>"


def _changed(sign: str, line: str) -> str:
    tag = {"+": "ins", "-": "del"}.get(sign, "span")
    return f"<{tag}>{sign} {escape(make_safe(line))}</{tag}>\n"


def _result(result: ShownResult, *, full: bool) -> Iterator[str]:
    lines = make_safe(result.text, sgr="drop").split("\n")
    shown = lines if full else lines[:MAX_RESULT_LINES]
    if result.text:
        yield f"<pre>{escape(chr(10).join(shown))}</pre>"
    if len(shown) < len(lines):
        yield f'<p class="mark">{words.count(len(lines), "line")}, {len(shown)} shown</p>'
    if result.images:
        yield f"<p>[{words.count(result.images, 'image')}]</p>"
