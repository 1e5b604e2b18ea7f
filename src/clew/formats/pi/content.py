"""What one entry says: its message as a piece for the normal form, with clew's own marks undone.

Texts that pi makes at each sending (of a summary, of a command run by the user) are given as pi sends them, so that
what the model knew stays the same in another agent. Replies that broke off (`error`, `aborted`) are never sent again;
the reader keeps them for the history.
"""

from __future__ import annotations

import msgspec

from clew.conversation.builder import make_user
from clew.conversation.model import Call, Image, Message, Part, Reasoning
from clew.conversation.text import JsonString
from clew.formats import raws, unmark
from clew.formats.outline import RecordMark
from clew.formats.pi import records as rec
from clew.formats.times import read_time

_COMPACTED = (
    "The conversation history before this point was compacted into the following summary:\n\n<summary>\n",
    "\n</summary>",
)
_BRANCHED = (
    "The following is a summary of a branch that this conversation came back from:\n\n<summary>\n",
    "</summary>",
)
_FIRST_MS, _END_MS = 10**11, 10**16
"""Between these a number counts milliseconds; nearly every message has one."""

BROKEN_OFF = ("error", "aborted")


class Content:
    """Turns entries, taken in the order of the conversation, into messages.

    Calls and results have the ids that stand in the file; it remembers their original ones, and counts what the model
    in the middle cannot say.
    """

    def __init__(self) -> None:
        self.renamed: dict[str, str] = {}
        self.skipped: dict[str, int] = {}
        self.model = ""

    def message(self, entry: rec.Entry, content: msgspec.Raw | None = None) -> Message | None:
        """Returns what an entry says, None for bookkeeping; `content` stands for its own where an edit says so."""
        m = entry.message
        if m is not None and entry.type == "message":
            time: int | None = m.timestamp
            if type(time) is not int or not _FIRST_MS <= time < _END_MS:
                time = read_time(time) or read_time(entry.timestamp)
            return self._of_message(m, entry, m.content if content is None else content, time)
        time = read_time(entry.timestamp)
        if entry.type == "compaction":
            return _summary(_COMPACTED, raws.read_text(entry.summary), time)
        if entry.type == "branch_summary":
            text = raws.read_text(entry.summary)
            return _summary(_BRANCHED, text, time) if text else None
        if entry.type == "custom_message":
            return self._notice(entry.content if content is None else content, time)
        return None

    def _of_message(
        self, m: rec.AgentMessage, entry: rec.Entry, content: msgspec.Raw, time: int | None
    ) -> Message | None:
        mark = unmark.read_mark(entry.clew) if entry.clew is not raws.NONE else None
        match m.role:
            case "user":
                origin, kind = unmark.origin_in(mark) or ("user", "")
                return Message("user", self._parts(content, mark), origin, kind, time)
            case "assistant":
                model = raws.as_word(m.model)
                if model != self.model and model:
                    self.model = model
                else:
                    model = model and self.model  # one string for all
                return Message("assistant", self._parts(content, mark), "model", "", time, model)
            case "toolResult":
                return self._result(m, mark, content, time)
            case "bashExecution":
                return None if m.exclude_from_context is True else _command(m, time)
            case "custom" | "hookMessage":
                return self._notice(content, time)
            case "branchSummary" | "compactionSummary":
                wrap = _BRANCHED if m.role == "branchSummary" else _COMPACTED
                return _summary(wrap, raws.read_text(m.summary), time)
            case _:
                return None

    def _notice(self, content: msgspec.Raw, time: int | None) -> Message:
        return Message("user", self._parts(content, None), "agent", "notice", time)

    def _parts(self, content: msgspec.Raw, mark: RecordMark | None) -> tuple[Part, ...]:
        if raws.is_text(content):
            return (unmark.text_part(JsonString(content), mark),)
        parts: list[Part] = []
        for block in rec.BLOCKS.many(content):
            sort = block.type
            if sort == "text":
                parts.append(unmark.text_part(raws.as_text(block.text), mark))
            elif sort == "toolCall":
                parts.append(self._call(block, mark))
            elif sort == "thinking":
                parts.append(Reasoning(raws.as_text(block.thinking)))
            elif sort == "image":
                parts.append(Image(raws.as_word(block.mime_type), raws.as_text(block.data)))
            else:
                self.skipped["content blocks of an unknown kind"] = (
                    self.skipped.get("content blocks of an unknown kind", 0) + 1
                )
        return tuple(parts)

    def _call(self, block: rec.Block, mark: RecordMark | None) -> Call:
        written, name = raws.as_word(block.id), raws.as_word(block.name)
        space = raws.as_word(block.namespace)
        call = unmark.call_part(written, f"{space}.{name}" if space else name, raws.as_arguments(block.arguments), mark)
        if call.id != written:
            self.renamed[written] = call.id
        return Call(written, call.name, call.source)

    def _result(
        self, m: rec.AgentMessage, mark: RecordMark | None, content: msgspec.Raw, time: int | None
    ) -> Message | None:
        parts = self._parts(content, mark)
        failed = m.is_error is True
        if unmark.is_made_up(parts, mark, failed=failed):
            return None
        return Message("tool", parts, "agent", "", time, "", "", raws.as_word(m.tool_call_id), failed)


def call_ids(content: msgspec.Raw) -> list[tuple[str, str]]:
    """Returns ids and names of the calls in a reply, as they are written."""
    return [(raws.as_word(b.id), raws.as_word(b.name)) for b in rec.BLOCKS.many(content) if b.type == "toolCall"]


def _summary(wrap: tuple[str, str], text: str, time: int | None) -> Message:
    return make_user(wrap[0] + text + wrap[1], origin="agent", kind="summary", time_ms=time)


def _command(m: rec.AgentMessage, time: int | None) -> Message:
    """A command that the user ran by hand, as pi tells the model of it."""
    output = raws.read_text(m.output)
    text = f"Ran `{raws.read_text(m.command)}`\n" + (f"```\n{output}\n```" if output else "(no output)")
    code = m.exit_code
    if m.cancelled is True:
        text += "\n\n(command cancelled)"
    elif isinstance(code, int) and not isinstance(code, bool) and code:
        text += f"\n\nCommand exited with code {code}"
    if m.truncated is True and isinstance(m.full_output_path, str):
        text += f"\n\n[Output truncated. Full output: {m.full_output_path}]"
    return make_user(text, origin="agent", kind="command", time_ms=time)
