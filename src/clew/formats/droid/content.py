"""What one record says: its message as pieces for the normal form, with clew's own marks undone.

Results of the tools that edit files are given as Droid sends them, not as the record keeps them. Notices that the
agent shows only to its user are no messages; whole reminders are context.
"""

from __future__ import annotations

import re

import msgspec

from clew.conversation.builder import make_user
from clew.conversation.model import Call, Image, Kind, Message, Origin, Part, Reasoning, Text
from clew.conversation.text import JsonString, Lazy, size_hint, text_of
from clew.formats import raws, unmark
from clew.formats.droid import records as rec
from clew.formats.marks import Mark
from clew.formats.outline import RecordMark
from clew.formats.times import read_time

_SUMMARY = (
    "A previous instance of Droid has summarized the conversation thus far as follows:\n\n<summary>\n",
    "\n</summary>\n\nIMPORTANT: This summary was created by a previous instance of Droid. Files referenced in the"
    " summary may not be available until you explicitly view them again.",
)
_SERIALIZED = (
    "The following prefix of this conversation has been serialized to maintain compatibility across model"
    " providers.\n\n",
    "\n\nWhen making tool calls, always use your native tool calling schema — do not replicate the text format shown"
    " in the transcript above.",
)
_OPEN, _CLOSE = "<system-reminder>", "</system-reminder>"
_TICKS = re.compile("`+")
LOOK = 1 << 20
"""No reminder of the agent is longer; longer texts are not looked at."""

EDITING = ("Edit", "MultiEdit", "Create")
"""Tools whose stored results are replaced by a sentence whenever they are sent."""


def is_reminder(text: str) -> bool:
    """Tells whether a text is nothing but reminders of the agent, from its first sign to its last."""
    rest = text.strip()
    if not rest.startswith(_OPEN):
        return False
    while rest.startswith(_OPEN):
        end = rest.find(_CLOSE)
        if end < 0:
            return False
        rest = rest[end + len(_CLOSE) :].lstrip()
    return not rest


def looks_like_reminder(source: Lazy, limit: int = LOOK) -> bool:
    """Tells the same of a text that may be undecoded; only one that begins with a tag or a blank is decoded."""
    if isinstance(source, JsonString):
        head = bytes(memoryview(source.raw)[1:2])
        if head not in (b"<", b" ", b"\\") or size_hint(source) > limit:
            return False
    elif not isinstance(source, str):
        return False
    return is_reminder(text_of(source))


class Content:
    """Turns records, taken in the order of the conversation, into messages.

    Calls and results have the ids that stand in the file; it remembers their original ones, and which calls edit files.
    It counts what the model in the middle cannot say.
    """

    def __init__(self) -> None:
        self.renamed: dict[str, str] = {}
        self.skipped: dict[str, int] = {}
        self.editing: dict[str, str] = {}
        self.model = ""

    def messages(self, record: rec.Record) -> list[Message]:
        """Returns what a record says, in order; nothing for bookkeeping."""
        time = read_time(record.timestamp)
        if record.type == "compaction_state":
            return [_summary(record, time)]
        m = record.message
        if record.type != "message" or m is None or m.visibility == "user_only":
            return []
        mark = unmark.read_mark(record.clew) if record.clew is not raws.NONE else None
        if m.role == "assistant":
            return [self._reply(m, mark, time)]
        return self._user(m, mark, time) if m.role == "user" else []

    # --- assistant ------------------------------------------------------------------------------------------

    def _reply(self, m: rec.AgentMessage, mark: RecordMark | None, time: int | None) -> Message:
        model = mark.model if mark is not None and mark.model else raws.as_word(m.model_id)
        if model != self.model and model:
            self.model = model
        else:
            model = model and self.model  # one string for all
        if raws.is_text(m.content):
            parts: tuple[Part, ...] = (unmark.text_part(JsonString(m.content), mark),)
        else:
            parts = tuple(self._parts(rec.BLOCKS.many(m.content), mark))
        return Message("assistant", parts, "model", "", time, model)

    def _parts(self, blocks: list[rec.Block], mark: Mark | None) -> list[Part]:
        parts: list[Part] = []
        for block in blocks:
            sort = block.type
            if sort == "text":
                parts.append(unmark.text_part(raws.as_text(block.text), mark))
            elif sort == "tool_use":
                parts.append(self._call(block, mark if isinstance(mark, RecordMark) else None))
            elif sort == "thinking":
                parts.append(Reasoning(raws.as_text(block.thinking)))
            elif sort == "redacted_thinking":
                parts.append(Reasoning())
            elif sort == "image":
                parts.append(_image(block.source))
            elif sort != "tool_result":
                what = "documents" if sort == "document" else "content blocks of an unknown kind"
                self.skipped[what] = self.skipped.get(what, 0) + 1
        return parts

    def _call(self, block: rec.Block, mark: RecordMark | None) -> Call:
        written, name = raws.as_word(block.id), raws.as_word(block.name)
        space = raws.as_word(block.namespace)
        call = unmark.call_part(written, f"{space}.{name}" if space else name, raws.as_arguments(block.input), mark)
        if call.id != written:
            self.renamed[written] = call.id
        if name in EDITING and call.name == name:
            self.editing[written] = name
        return Call(written, call.name, call.source)

    # --- user -----------------------------------------------------------------------------------------------

    def _user(self, m: rec.AgentMessage, mark: RecordMark | None, time: int | None) -> list[Message]:
        if raws.is_text(m.content):
            return self._said(m, [unmark.text_part(JsonString(m.content), mark)], mark, time)
        blocks = rec.BLOCKS.many(m.content)
        found = [self._result(block, mark, time) for block in blocks if block.type == "tool_result"]
        parts = self._parts(blocks, mark)
        return [r for r in found if r is not None] + (self._said(m, parts, mark, time) if parts else [])

    def _said(self, m: rec.AgentMessage, parts: list[Part], mark: RecordMark | None, time: int | None) -> list[Message]:
        """Returns the message of what was said, without the agent's reminders, with who said it."""
        told = unmark.origin_in(mark)
        typed = m.interaction_mode is not None and sum(type(p) is Text for p in parts) == 1
        if told is None and not typed:
            parts = [p for p in parts if not (type(p) is Text and looks_like_reminder(p.source))]
            if not parts:
                return []
        origin, kind = told or sort_message(m.visibility)
        return [Message("user", tuple(parts), origin, kind, time)]

    def _result(self, block: rec.Block, mark: RecordMark | None, time: int | None) -> Message | None:
        """Returns a call's result; None for one that clew's writer had to make up, or that is not there yet."""
        written = raws.as_word(block.tool_use_id)
        own: Mark | None = mark.results.get(written) if mark is not None else None
        if raws.is_text(block.content):
            parts: list[Part] = [unmark.text_part(self._sent(written, JsonString(block.content)), own)]
        else:
            parts = self._parts(rec.BLOCKS.many(block.content), own)
        failed = block.is_error is True
        if unmark.is_made_up(tuple(parts), own, failed=failed):
            return None
        alone = parts[0] if len(parts) == 1 else None
        if type(alone) is Text and size_hint(alone.source) < 64 and alone.text == rec.PENDING:
            return None
        return Message("tool", tuple(parts), "agent", "", time, "", "", written, failed)

    def _sent(self, written: str, source: JsonString) -> Lazy:
        """Returns a result as the agent sends it."""
        name = self.editing.get(written)
        if name is None:
            return source
        text = text_of(source)
        if not text or text.startswith("Error:"):
            return source
        try:
            path, reminder = _OUTCOME(text)
        except raws.DECODE_ERRORS:
            if name == "Create":
                return source
            path = reminder = None
        which = f"The file {path}" if isinstance(path, str) and path else "The file"
        sentence = f"{which} has been {'created' if name == 'Create' else 'updated'} successfully."
        return f"{sentence} {reminder}" if isinstance(reminder, str) and reminder else sentence


class _Outcome(msgspec.Struct, gc=False, rename={"reminder": "systemReminder"}):
    file_path: object = None
    reminder: object = None


_DECODE_OUTCOME = msgspec.json.Decoder(_Outcome).decode


def _OUTCOME(text: str) -> tuple[object, object]:  # noqa: N802 - stands for a decoder
    found = _DECODE_OUTCOME(text.strip())
    return found.file_path, found.reminder


def sort_message(visibility: object) -> tuple[Origin, Kind]:
    """Returns origin and kind of a user message: what only the model sees was put there by the agent."""
    return ("agent", "notice") if visibility == "llm_only" else ("user", "")


def call_ids(content: msgspec.Raw) -> list[tuple[str, str]]:
    """Returns ids and names of the calls in a reply, as they are written."""
    return [(raws.as_word(b.id), raws.as_word(b.name)) for b in rec.BLOCKS.many(content) if b.type == "tool_use"]


def answered_ids(content: msgspec.Raw) -> list[str]:
    """Returns the ids of the calls that a record answers, as they are written."""
    return [raws.as_word(b.tool_use_id) for b in rec.BLOCKS.many(content) if b.type == "tool_result"]


def _image(raw: msgspec.Raw) -> Image:
    source = rec.SOURCES.one(raw)
    if source is None:
        return Image("")
    return Image(raws.as_word(source.media_type), raws.as_text(source.data))


def _summary(record: rec.Record, time: int | None) -> Message:
    text = raws.read_text(record.summary_text)
    if record.summary_kind == "provider_switch_serialization":
        fence = "`" * max(3, max((len(run) for run in _TICKS.findall(text)), default=0) + 1)
        text = f"{_SERIALIZED[0]}{fence}text\n{text}\n{fence}{_SERIALIZED[1]}"
    else:
        text = _SUMMARY[0] + text + _SUMMARY[1]
    return make_user(text, origin="agent", kind="summary", time_ms=time)
