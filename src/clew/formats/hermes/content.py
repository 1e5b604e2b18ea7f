"""What one row of `messages` says, as a message of the conversation, with clew's own marks undone.

A content is one text, or a list of parts behind a sign of the agent's. What stands for images comes at a text's end.
"""

from __future__ import annotations

import re

import msgspec

from clew.conversation.model import Call, Image, Message, Part, Reasoning, Text
from clew.conversation.text import JsonString, JsonValue, Lazy, is_empty, text_of
from clew.formats import raws, unmark
from clew.formats.hermes import records as rec
from clew.formats.marks import STANDIN_HEAD, unguard_text
from clew.formats.outline import RecordMark
from clew.formats.spelling import is_like_ours

_STANDIN = re.compile(re.escape(STANDIN_HEAD) + r": ([^\s,\]]+), number \d+ of this message[^\]]*\]\Z")
_DATA_URL = re.compile(r"data:([^;,]*)(?:;[^,]*)?;base64,")
_LISTED_RAW = b'"\\u0000json:'
SUMMARY = ("[CONTEXT COMPACTION", "[CONTEXT SUMMARY]:", "[PRIOR CONTEXT")
"""How a summary of the agent's begins: now, before, and where it is glued to the prompt behind it."""
REVIEW = ("Review the conversation above and update the skill", "Review the conversation above and consider saving")
"""How prompts begin that the agent's own review once left in a session: it drops them with their answers."""
_SUPERSEDED = ("verification_required", "verify_hook_continue")


class Entry(msgspec.Struct, gc=False):
    """One row of `messages`, the record that holds it, and clew's mark of it."""

    id: float | None
    role: str
    row: rec.Columns
    record: int
    is_active: bool = True
    """Whether the row is in the model's context."""
    is_compacted: bool = False
    """Whether a summary took the row's place."""
    mark: RecordMark | None = None

    @property
    def is_superseded(self) -> bool:
        """Tells whether a reply of the model's that follows at once takes this one's place."""
        return self.role == "assistant" and rec.word_in(self.row.finish_reason) in _SUPERSEDED

    @property
    def is_review(self) -> bool:
        """Tells whether the row is a prompt of the agent's own review."""
        return self.role == "user" and _begins(self.row.content, REVIEW)

    @property
    def is_summary(self) -> bool:
        """Tells whether the row is a summary of what was compacted."""
        return self.mark is None and self.role in ("user", "assistant") and _begins(self.row.content, SUMMARY)


def _begins(cell: rec.RAW, heads: tuple[str, ...]) -> bool:
    if not raws.is_text(cell):
        return False
    head = bytes(memoryview(cell)[1:200]).decode("utf-8", "replace")
    return head.replace("\\n", " ").lstrip().startswith(heads)


class Content:
    """Turns rows, taken in order, into messages; calls and results have the ids that stand in the rows.

    `renamed` are the original ids of calls by those, `skipped` counts what the model in the middle cannot say.
    """

    def __init__(self) -> None:
        self.renamed: dict[str, str] = {}
        self.skipped: dict[str, int] = {}

    def message(self, entry: Entry) -> Message | None:
        """Returns what a row says; None for one that is no part of the conversation."""
        row, mark = entry.row, entry.mark
        time_ms = rec.time_in(row.timestamp)
        parts = self._parts(row.content, mark)
        if entry.role == "user":
            origin, kind = unmark.origin_in(mark) or ("user", "")
            if entry.is_summary:
                origin, kind = "agent", "summary"
            return Message("user", tuple(parts), origin, kind, time_ms)
        if entry.role == "assistant":
            thought = _thought(row)
            told = unmark.origin_in(mark)
            kind = told[1] if told is not None else "summary" if entry.is_summary else ""
            calls = [self._call(call, mark) for call in rec.CALLS.many(rec.json_in(row.tool_calls))]
            said = (*thought, *parts, *calls)
            return Message("assistant", said, "model", kind, time_ms, mark.model if mark is not None else "")
        if entry.role == "tool":
            failed = mark.error if mark is not None else None
            alone = parts[0] if len(parts) == 1 else None
            told_so = failed or (mark is None and type(alone) is Text and is_like_ours(alone.source))
            if unmark.is_made_up(tuple(parts), mark, failed=bool(told_so)):
                return None
            call_id = rec.word_in(row.tool_call_id)
            return Message("tool", tuple(parts), "agent", "", time_ms, "", "", call_id, failed)
        return None

    def _call(self, call: rec.ToolCall, mark: RecordMark | None) -> Call:
        function = rec.FUNCTIONS.one(call.function) or rec.Function(call.name, call.arguments)
        written = raws.as_word(call.id) or raws.as_word(call.call_id)
        made = unmark.call_part(written, raws.as_word(function.name), raws.as_arguments(function.arguments), mark)
        if made.id != written:
            self.renamed[written] = made.id
        return Call(written, made.name, made.source)

    def _parts(self, cell: rec.RAW, mark: RecordMark | None) -> list[Part]:
        listed = _listed(cell)
        if listed is None:
            source = rec.text_in(cell)
            return [] if source is None else whole_text(source, mark)
        out: list[Part] = []
        parts = rec.PARTS.many(listed)
        if len(parts) == 1 and parts[0].type == "text":
            return whole_text(raws.as_text(parts[0].text), mark)
        for part in parts:
            if part.type in ("text", "input_text"):
                out.append(unmark.text_part(raws.as_text(part.text), mark))
            elif part.type in ("image_url", "input_image"):
                out.append(_image(part.image_url))
            else:
                what = "content blocks of an unknown kind"
                self.skipped[what] = self.skipped.get(what, 0) + 1
        return out


def _listed(cell: rec.RAW) -> rec.RAW | None:
    """Returns the list of parts that a content is; None where it is one text."""
    if not raws.is_text(cell) or bytes(memoryview(cell)[: len(_LISTED_RAW)]) != _LISTED_RAW:
        return None
    raw = rec.json_of(text_of(JsonString(cell))[len(rec.LISTED) :])
    if raws.first_byte(raw) == 0x7B:
        inside = rec.CONTENTS.one(raw)
        raw = inside.content if inside is not None else raw
    return raw if raws.first_byte(raw) == 0x5B else None


def _image(raw: rec.RAW) -> Image:
    address = rec.ADDRESSES.one(raw)
    url = raws.as_word(address.url) if address is not None else raws.read_text(raw)
    found = _DATA_URL.match(url)
    return Image(found.group(1), url[found.end() :]) if found is not None else Image("", "", url)


def _thought(row: rec.Columns) -> tuple[Reasoning, ...]:
    for cell in (row.reasoning_content, row.reasoning):
        text = rec.text_in(cell)
        if text is not None and not is_empty(text):
            return (Reasoning(text),)
    return ()


def whole_text(source: Lazy, mark: RecordMark | None) -> list[Part]:
    """Returns the one text of a message as its parts: the text, then the images that stand-ins at its end are for."""
    if is_empty(source):
        return []
    if mark is None or isinstance(source, JsonValue) or not (mark.standin or is_like_ours(source)):
        return [Text(source)]
    text = text_of(source)
    images: list[Part] = []
    for _ in range(mark.standin):
        found = _STANDIN.search(text)
        if found is None:
            break
        images.insert(0, Image(found.group(1)))
        text = text[: found.start()].removesuffix("\n")
    return ([Text(unguard_text(text))] if text else []) + images
