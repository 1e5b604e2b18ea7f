"""A conversation as lines for a terminal or a pipe: prompts are rules across, the calls of a turn one block.

Prompts are the table of contents: `^──` finds them in a pager. Nothing that was said is missing from the full form,
and what is left out of the short one is counted. Text stands as it was said, wrapped at the width; only headings and
code fences are set off. Pure: a conversation and a look in, lines out, the first of them at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, tzinfo
from typing import Literal, TypeAlias

from clew.cli import dates, words
from clew.cli.calls import CallView, view_calls
from clew.cli.changes import Change
from clew.cli.style import Look, Role
from clew.cli.width import cut, width_of, wrap
from clew.verbs.show import Shown, ShownBranch, ShownGroup, ShownResult

Detail: TypeAlias = Literal["short", "full", "tools"]
"""How much is shown: calls in one line, calls opened with their results, or opened calls alone."""

MAX_WIDTH = 100
_RULE_WIDTH = 80
_INDENT = "   "
_SIGN_ROLE: dict[str, Role] = {"+": "added", "-": "removed", " ": ""}
_AGENT_MADE = {
    "summary": "summary",
    "interruption": "interrupted",
    "command": "command",
    "notice": "notice",
    "": "put here by the agent",
}


class Transcript:
    """One conversation being shown: `lines` gives it, header first."""

    def __init__(
        self, shown: Shown, look: Look, detail: Detail, now: datetime | None, zone: tzinfo | None = None
    ) -> None:
        self.shown, self.look, self.detail, self.zone = shown, look, detail, zone
        self.now = now.astimezone(zone) if now is not None else None
        self.width = min(look.width, MAX_WIDTH)  # 0 outside of a terminal: nothing is wrapped or cut
        self.agent = look.safe(shown.agent, line=True)
        self.ellipsis = "…" if look.utf8 else "~"
        self._speaker = ""  # who was named last: an answer in several pieces names its agent once
        self.rule_width = self.width or _RULE_WIDTH

    def lines(self) -> Iterator[str]:
        """Yields all lines."""
        yield from self._header()
        for number, group in enumerate(self.shown.messages):
            yield from self._marks_before(number)
            yield from self._group(number + 1, group)
        yield from self._marks_before(len(self.shown.messages), last=True)
        yield from self._damage()

    # --- header and marks -------------------------------------------------------------------------------------

    def _header(self) -> Iterator[str]:
        shown, look = self.shown, self.look
        yield look.paint("heading", look.safe(shown.title, line=True) or "(no title)")
        facts = (shown.model, shown.cwd, self._dates())
        safe = [look.paint("agent", self.agent), *(look.safe(fact, line=True) for fact in facts)]
        state = words.short(shown.state, look)
        yield " · ".join(fact for fact in (*safe, state) if fact)
        count = words.count(len(shown.messages), "message")
        thread = f", thread {shown.thread}" if shown.thread else ""
        yield look.paint("muted", look.safe(f"{shown.session_id}{thread}, {count}", line=True))

    def _dates(self) -> str:
        first, last = (dates.read_time(text, self.zone) for text in (self.shown.created, self.shown.updated))
        begin = dates.stamp(first, self.now)
        if first is None or last is None or first == last:
            return begin or dates.stamp(last, self.now)
        end = f"{last:%H:%M}" if first.date() == last.date() else dates.stamp(last, self.now)
        return f"{begin} to {end}"

    def _marks_before(self, number: int, *, last: bool = False) -> Iterator[str]:
        """Yields what stands between two messages: a compaction, a branch that was left."""
        if self.shown.full:
            for boundary in self.shown.boundaries:
                if boundary.at == number:
                    yield from self._compacted(number, boundary.note)
        elif number == 0 and self.shown.boundaries and self.detail != "tools":
            above = max(boundary.at for boundary in self.shown.boundaries)
            what = words.count(above, "earlier message")
            yield self._mark("┄", f"compacted: {what} not in the model's context (--full shows them)")
        for branch in self.shown.branches if self.shown.full else self.shown.branches if last else ():
            if branch.at == number or (last and not self.shown.full):
                yield self._rewound(branch)

    def _compacted(self, above: int, note: str) -> Iterator[str]:
        before = f"{self.look.safe(note, line=True)}; " if note else ""
        what = words.count(above, "message")
        yield ""
        yield self._mark("─", f"compacted ── {before}{what} above not in the model's context")

    def _rewound(self, branch: ShownBranch) -> str:
        what = words.count(len(branch.messages), "message")
        place = "here" if self.shown.full else f"after message {branch.at}"
        return self._mark("┄", f"rewound {place}: {what} not on the active branch (--branch {branch.number})")

    def _mark(self, stroke: str, text: str) -> str:
        fill = max(self.rule_width - width_of(text) - 4, 2) if stroke == "─" else 0
        return self.look.paint("warn", f"{stroke * 2} {text} {stroke * fill}".rstrip())

    def _damage(self) -> Iterator[str]:
        for damage in self.shown.damage:
            line = f", line {damage.line}" if damage.line else ""
            where = f"{damage.file}, record {damage.record}{line}, byte {damage.offset}"
            detail = f": {damage.detail}" if damage.detail else ""
            sign = self.look.paint("warn" if damage.lost else "muted", "!")
            yield f"{sign} {self.look.safe(f'{damage.sort}: {where}{detail}', line=True)}"
        for loss in self.shown.losses:
            sign = self.look.paint("warn", "!")
            yield f"{sign} {self.look.safe(f'{loss.count} {loss.what} {loss.detail}', line=True).rstrip()}"

    # --- messages ---------------------------------------------------------------------------------------------

    def _group(self, number: int, group: ShownGroup) -> Iterator[str]:
        if group.role != "user":
            yield from self._reply(group)
            return
        self._speaker = ""
        if group.origin == "user":
            yield from self._prompt(number, group)
        elif self.detail != "tools":
            yield from self._agent_made(number, group)

    def _prompt(self, number: int, group: ShownGroup) -> Iterator[str]:
        moment = dates.stamp(dates.read_time(group.time, self.zone), self.now)
        yield ""
        yield self._rule(f"{number} ─ you", moment)
        if self.detail != "tools" or not group.tool_results:
            yield from self._text(group.text, "")
            yield from self._images(group.images, "")
        for result in group.tool_results:
            yield from self._result(result, _INDENT)

    def _rule(self, left: str, right: str) -> str:
        tail = f" {right} ──" if right else ""
        fill = max(self.rule_width - len(left) - 4 - len(tail), 2)
        return self.look.paint("you", f"── {left} {'─' * fill}{tail}")

    def _agent_made(self, number: int, group: ShownGroup) -> Iterator[str]:
        """Yields what the agent put there: a summary whole, everything else in one line unless all is wanted."""
        kind = self.look.safe(_AGENT_MADE.get(group.kind, group.kind), line=True)
        head = f"┄┄ {number} ─ {kind}"
        lines = self.look.safe(group.text).splitlines()
        if self.detail != "full" and group.kind != "summary":
            size = f" ({words.count(len(lines), 'line')})" if len(lines) > 1 else ""
            room = max(self.width - width_of(head) - len(size) - 2, 8) if self.width else 0
            text = self.look.safe(group.text, line=True)
            yield self.look.paint("muted", f"{head}: {cut(text, room, self.ellipsis) if room else text}{size}")
        else:
            yield self.look.paint("muted", head)
            for line in lines:
                for piece in wrap(line, self.width - len(_INDENT) if self.width else 0):
                    yield self.look.paint("muted", f"{_INDENT}{piece}".rstrip())
        yield from self._images(group.images, _INDENT)

    def _reply(self, group: ShownGroup) -> Iterator[str]:
        calls, strays = view_calls(group, self.shown.cwd)
        if self.detail != "tools":
            name = self.agent if group.role == "assistant" else self.look.safe(group.role, line=True)
            indent = " " * (len(_INDENT) + len(name) + 2)
            if group.text:
                head = self.look.paint("agent", f"{_INDENT}{name}  ") if name != self._speaker else ""
                self._speaker = name
                yield from self._text(group.text, indent, head)
            if group.reasoning and self.detail == "full":
                yield indent + self.look.paint("muted", f"({words.count(group.reasoning, 'reasoning block')})")
            yield from self._images(group.images, indent)
        if self.detail == "short":
            yield from self._block(calls)
        else:
            for call in calls:
                yield from self._open(call)
        for result in strays:
            yield from self._result(result, _INDENT)

    def _images(self, number: int, indent: str) -> Iterator[str]:
        if number:
            yield indent + self.look.paint("tool", f"[{words.count(number, 'image')}]")

    def _text(self, text: str, indent: str, head: str = "") -> Iterator[str]:
        """Yields text as it was said, with headings and fences set off; `head` takes the first line's indent."""
        fenced = False
        safe = self.look.safe(text)
        for line in (safe.expandtabs(4) if self.width else safe).splitlines():
            lead, head = head or indent, ""
            if line.lstrip().startswith(("```", "~~~")):
                fenced = not fenced
                yield lead + self.look.paint("muted", line)
            elif fenced:
                yield lead + line
            else:
                role: Role = "heading" if line.startswith("#") and line.lstrip("#").startswith(" ") else ""
                for piece in wrap(line, self.width - len(indent) if self.width else 0):
                    yield (lead + self.look.paint(role, piece)).rstrip()
                    lead = indent

    # --- calls ------------------------------------------------------------------------------------------------

    def _block(self, calls: tuple[CallView, ...]) -> Iterator[str]:
        """Yields the calls of a turn, one after the other, in as few lines as they need."""
        room = self.width - len(_INDENT) if self.width else 0
        line, used = "", 0
        for call in calls:
            text, size = self._one_line(call, room)
            if line and used + len(_INDENT) + size > room:  # outside of a terminal each has a line of its own
                yield _INDENT + line
                line, used = "", 0
            line, used = (f"{line}{_INDENT}{text}", used + len(_INDENT) + size) if line else (text, size)
        if line:
            yield _INDENT + line

    def _one_line(self, call: CallView, room: int) -> tuple[str, int]:
        """Returns a call in one line, painted, with its width in cells."""
        look = self.look
        gist = " ".join(text for text in (look.safe(call.gist, line=True), call.size) if text)
        images = call.result.images if call.result is not None else 0
        end = f" [{words.count(images, 'image')}]" if images else ""
        if call.result is None:
            end = " ? no answer"
        elif call.failed:
            end = f" ✗ {look.safe(call.last_line, line=True)}".rstrip() + end
        name = look.safe(call.name, line=True)
        if room:
            end = cut(end, max(room // 2, 12), self.ellipsis)
            gist = cut(gist, max(room - width_of(name) - width_of(end) - 3, 8), self.ellipsis)
        head = f"▸ {name}"
        plain = f"{head} {gist}".rstrip() + end
        role: Role = "error" if call.failed else "warn" if call.result is None else "tool"
        return f"{look.paint('tool', head)} {gist}".rstrip() + look.paint(role, end), width_of(plain)

    def _open(self, call: CallView) -> Iterator[str]:
        """Yields a call with all of its arguments, what it changed, and all of its result."""
        text, _ = self._one_line(call, 0)
        yield _INDENT + text
        for name, value in call.rest:
            yield from self._argument(name, value)
        for change in call.changes:
            yield from self._change(change, several=len(call.changes) > 1)
        if call.result is not None:
            yield from self._result(call.result, _INDENT)

    def _argument(self, name: str, value: str) -> Iterator[str]:
        lines = self.look.safe(value).splitlines() or [""]
        label = self.look.paint("muted", f"{self.look.safe(name, line=True)}:")
        if len(lines) == 1:
            yield f"{_INDENT}  {label} {lines[0]}".rstrip()
            return
        yield f"{_INDENT}  {label}"
        for line in lines:
            yield f"{_INDENT}    {line}".rstrip()

    def _change(self, change: Change, *, several: bool) -> Iterator[str]:
        if several:
            yield f"{_INDENT}  {self.look.safe(change.path, line=True)}"
        for sign, line in change.lines:
            yield f"{_INDENT}  " + self.look.paint(_SIGN_ROLE[sign], f"{sign} {self.look.safe(line)}".rstrip())

    def _result(self, result: ShownResult, indent: str) -> Iterator[str]:
        bar = self.look.paint("error" if result.is_error else "muted", "│")
        for line in self.look.result(result.text).splitlines():
            yield f"{indent}{bar} {line}".rstrip()
        if result.images:
            yield f"{indent}{bar} [{words.count(result.images, 'image')}]"
