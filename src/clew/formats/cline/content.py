"""What one stored message says, as pieces for the normal form, with clew's own marks undone.

Two dialects: sessions of the command line, where a person's words stand in `<user_input>` and tools answer in blocks
of their own; and tasks of the VS Code extension before it, where the agent's context and what its tools answered are
texts beside them. What the agent leaves out or rewrites only while sending stays as it is stored.
"""

from __future__ import annotations

import re

import msgspec

from clew.conversation.model import Call, Image, Kind, Message, Origin, Part, Reasoning, Text
from clew.conversation.text import JsonString, JsonValue, Lazy, size_hint, text_of
from clew.formats import unmark
from clew.formats.loose import (
    NONE,
    Members,
    first_byte,
    is_text,
    items_of,
    members_of,
    scalar_in,
    text_in,
    word_in,
)
from clew.formats.marks import Mark
from clew.formats.outline import RecordMark

OPENED, CLOSED = b'"<user_input mode=\\"act\\">', b'</user_input>"'
"""How the text of a person begins and ends, as JSON spells it."""

_CLOSE = "</user_input>"
RESUMPTION = "[TASK RESUMPTION] Please continue where you left off."
SYNTHETIC = frozenset((RESUMPTION, "The user approved switching to act mode. Continue with the approved plan now."))
"""Whole prompts that the agent sends by itself."""

SUMMARY = "compaction_summary"
_NOTICES = frozenset(
    (
        "auto_compaction",
        "compaction_budget_emergency",
        "completion_reminder",
        "loop_detection_notice",
        "manual_compaction",
        "mistake_stop_notice",
        "recovery_notice",
    )
)
_SHOWN_AS = ("system", "status", "error")
_OPENING = re.compile(r'(?:<mode_notice>[^<]*</mode_notice>\s*)?<user_input mode="(?:act|plan|yolo)">')
_HEADS = (b'"<user_input', b'"<mode_notice>', b'"\\u003c')
_LONGEST = 6 * max(map(len, SYNTHETIC)) + 2
_CONTEXT = ("<environment_details>", "</environment_details>")
_TASK = re.compile(r"\s*<(task|user_message)>\n?(.*?)\n?</\1>\s*\Z", re.DOTALL)
_ANSWERED = re.compile(r"\[[a-z_]+(?: for [^\n]*)?\] Result:")
LOOK = 4096


def typed_text(text: str) -> str:
    """Returns what a person typed in a text that the agent put into its tag; any other text as it is."""
    found = _OPENING.match(text)
    if found is None:
        return text
    inside = text[found.end() :]
    place = inside.rfind(_CLOSE)
    return inside if place < 0 else inside[:place] + inside[place + len(_CLOSE) :]


def mark_in(members: Members) -> RecordMark | None:
    """Returns clew's mark in the metadata of a message."""
    metadata = members.get("metadata", NONE)
    return unmark.read_mark(members_of(metadata).get("clew", NONE)) if metadata is not NONE else None


def compact(raw: msgspec.Raw) -> msgspec.Raw:
    """Returns a value without the blanks between its parts, as the agent sends it; as it is where it is no JSON."""
    if b"\n" not in memoryview(raw).tobytes():
        return raw
    try:
        return msgspec.Raw(msgspec.json.format(bytes(raw), indent=-1))
    except (msgspec.DecodeError, RecursionError, ValueError):
        return raw


class Content:
    """Turns messages, taken in the order of the file, into those of the model in the middle.

    `is_task` tells that the file is of the older dialect. Calls and results have the ids that stand in the file;
    `renamed` gives the original ones. It counts what the model in the middle cannot say.
    """

    def __init__(self, renamed: dict[str, str], skipped: dict[str, int], *, is_task: bool = False) -> None:
        self.renamed, self.skipped, self.is_task = renamed, skipped, is_task

    def messages(self, members: Members) -> list[Message]:
        """Returns what a stored message says, in order; nothing for one of an unknown role."""
        role, content = word_in(members.get("role", NONE)), members.get("content", NONE)
        time = scalar_in(members.get("ts", NONE))
        time_ms = int(time) if isinstance(time, (int, float)) and 0 <= time < 1 << 53 else None
        mark = mark_in(members)
        if role == "assistant":
            model = word_in(members_of(members.get("modelInfo", NONE)).get("id", NONE))
            model = mark.model if mark is not None and mark.model else model
            return [Message("assistant", tuple(self._parts(content, mark)), "model", "", time_ms, model)]
        if role != "user":
            return []
        found = [message for block in items_of(content) for message in self._result(members_of(block), mark, time_ms)]
        parts = self._parts(content, None)
        return found + (self._said(parts, members, mark, time_ms) if parts else [])

    # --- what is in a message -------------------------------------------------------------------------------

    def _parts(self, content: msgspec.Raw, mark: Mark | None) -> list[Part]:
        if is_text(content):
            return [unmark.text_part(JsonString(content), mark)]
        parts = [self._part(members_of(item), mark) for item in items_of(content)]
        return [part for part in parts if part is not None]

    def _part(self, block: Members, mark: Mark | None) -> Part | None:
        sort = word_in(block.get("type", NONE))
        if sort == "text":
            return unmark.text_part(text_in(block.get("text", NONE)), mark)
        if sort == "thinking":
            return Reasoning(text_in(block.get("thinking", NONE)))
        if sort == "redacted_thinking":
            return Reasoning()
        if sort == "tool_use":
            return self._call(block, mark if isinstance(mark, RecordMark) else None)
        if sort == "image":
            return _image(block)
        if sort == "file":
            path, text = word_in(block.get("path", NONE)), text_of(text_in(block.get("content", NONE)))
            return Text(f'<file_content path="{path}">\n{text}\n</file_content>')
        if sort != "tool_result":
            self._skip("content blocks of another kind")
        return None

    def _skip(self, what: str) -> None:
        self.skipped[what] = self.skipped.get(what, 0) + 1

    def _call(self, block: Members, mark: RecordMark | None) -> Call:
        written, given = word_in(block.get("id", NONE)), block.get("input", NONE)
        source: Lazy = ""
        if is_text(given):
            source = JsonString(given)
        elif first_byte(given) not in (0, 0x6E):
            source = JsonValue(compact(given))
        call = unmark.call_part(written, word_in(block.get("name", NONE)), source, mark)
        if call.id != written:
            self.renamed[written] = call.id
        return Call(written, call.name, call.source)

    def _result(self, block: Members, mark: RecordMark | None, time_ms: int | None) -> list[Message]:
        """Returns a call's result; nothing for other blocks, and for one that clew's writer had to make up."""
        if word_in(block.get("type", NONE)) != "tool_result":
            return []
        written, content = word_in(block.get("tool_use_id", NONE)), block.get("content", NONE)
        own: Mark | None = mark.results.get(written) if mark is not None else None
        failed = scalar_in(block.get("is_error", NONE))
        if first_byte(content) != 0x5B:
            parts: list[Part] = [] if first_byte(content) in (0, 0x6E) else [_alone(content, own)]
        elif all(word_in(members_of(item).get("type", NONE)) for item in items_of(content)):
            parts = self._parts(content, own)
        else:
            parts = [Text(JsonValue(compact(content)))]
        if unmark.is_made_up(tuple(parts), own, failed=failed is True):
            return []
        is_error = failed if isinstance(failed, bool) else None
        return [Message("tool", tuple(parts), "agent", "", time_ms, "", "", written, is_error)]

    # --- who said it ----------------------------------------------------------------------------------------

    def _said(self, parts: list[Part], members: Members, mark: RecordMark | None, time_ms: int | None) -> list[Message]:
        """Returns the message of what was said; `parts` have the marks still on them."""
        told = unmark.origin_in(mark)
        if self.is_task:
            parts, told = _of_task(parts)
        elif told is None or told[0] == "user":
            parts = [_typed(part) for part in parts]
            told = told or _told_by(parts, members)
        if mark is not None:
            parts = [unmark.text_part(part.source, mark) if type(part) is Text else part for part in parts]
        return [Message("user", tuple(parts), *told, time_ms)] if parts else []


def _told_by(parts: list[Part], members: Members) -> tuple[Origin, Kind]:
    """Returns who said a message, by its metadata, else by being a prompt that the agent sends by itself."""
    metadata = members_of(members.get("metadata", NONE))
    kind = word_in(metadata.get("kind", NONE))
    if kind == SUMMARY:
        return "agent", "summary"
    if kind in _NOTICES or word_in(metadata.get("displayRole", NONE)) in _SHOWN_AS:
        return "agent", "notice"
    return ("agent", "notice") if len(parts) == 1 and is_synthetic(parts[0]) else ("user", "")


def is_synthetic(part: Part) -> bool:
    """Tells whether a text is a prompt that the agent sends by itself."""
    return type(part) is Text and size_hint(part.source) <= _LONGEST and part.text in SYNTHETIC


def _typed(part: Part) -> Part:
    """Returns a text without the agent's tag around it; in the usual case it stays undecoded."""
    if type(part) is not Text:
        return part
    if isinstance(part.source, JsonString):
        data = bytes(part.source.raw)
        if data.startswith(OPENED) and data.endswith(CLOSED):
            return Text(JsonString(msgspec.Raw(b'"' + data[len(OPENED) : -len(CLOSED)] + b'"')))
        if not data.startswith(_HEADS):
            return part
    return Text(typed_text(part.text))


def _of_task(parts: list[Part]) -> tuple[list[Part], tuple[Origin, Kind]]:
    """Returns what a message of a task says, without the agent's context, and who said it."""
    found: list[Part] = []
    typed = answered = False
    for part in parts:
        text = part.text if type(part) is Text else ""
        head = text[:LOOK].lstrip()
        if head.startswith(_CONTEXT[0]) and text.rstrip().endswith(_CONTEXT[1]):
            continue
        asked = _TASK.match(text) if head.startswith(("<task>", "<user_message>")) else None
        typed = typed or asked is not None or any(tag in head for tag in ("<feedback>", "<answer>", "<user_message>"))
        answered = answered or _ANSWERED.match(head) is not None
        found.append(part if asked is None else Text(asked.group(2)))
    return found, ("agent", "notice") if answered and not typed else ("user", "")


def _alone(content: msgspec.Raw, mark: Mark | None) -> Part:
    if is_text(content):
        return unmark.text_part(JsonString(content), mark)
    return Text(JsonValue(compact(content)))


def _image(block: Members) -> Image:
    source = members_of(block.get("source", NONE))
    if source:
        url = word_in(source.get("url", NONE))
        return Image(word_in(source.get("media_type", NONE)), text_in(source.get("data", NONE)), url)
    return Image(word_in(block.get("mediaType", NONE)), text_in(block.get("data", NONE)))
