"""What one node says: its message as pieces for the normal form, with clew's own marks undone."""

from __future__ import annotations

import re

import msgspec

from clew.conversation.model import Call, Image, Kind, Message, Origin, Part, Reasoning, Text
from clew.conversation.text import JsonString, JsonValue, Lazy, is_empty, text_of
from clew.formats.claude import records as rec
from clew.formats.claude.said import META, TYPED, is_like_ours, is_reminder, sort_text, text_if_marked
from clew.formats.claude.scan import API_ERROR, OWN_NOTE, QUEUED
from clew.formats.claude.tree import ASSISTANT, USER, Node
from clew.formats.marks import Mark, is_invented, is_standin, unguard_text, unwrap_arguments

_STANDIN_TYPE = re.compile(r": ([^\s,]+), number \d+ of this message")
_FILLER = "No response requested."
_ORIGINS = ("user", "agent", "model")
_KINDS = ("", "summary", "interruption", "command", "notice")


class Content:
    """Turns nodes, taken in the order of the conversation, into messages or pieces of messages.

    It remembers what later nodes need: original ids of calls, and whether a command was just given. It counts what
    the model in the middle cannot say.
    """

    def __init__(self) -> None:
        self.renamed: dict[str, str] = {}
        self.skipped: dict[str, int] = {}
        self.model = ""
        self._after_command = False

    def pieces(self, node: Node) -> list[Message]:
        """Returns what a node says, in order; nothing for a node of bookkeeping."""
        if node.kind == ASSISTANT:
            self._after_command = False
            return self._reply(node)
        return self._user(node) if node.kind == USER and not node.flags & OWN_NOTE else []

    # --- assistant ------------------------------------------------------------------------------------------

    def _reply(self, node: Node) -> list[Message]:
        model = node.model if type(node.model) is str else ""
        if model == rec.SYNTHETIC:
            model = ""
            if node.flags & API_ERROR or _says_only(node.content, _FILLER):
                return []
        elif model != self.model and model:
            self.model = model
        else:
            model = model and self.model  # one string for all
        mark = rec.read_mark(node.mark) if node.mark is not None else None
        parts = self._reply_parts(node.content, mark)
        return [Message("assistant", tuple(parts), "model", "", rec.read_time(node.time), model, node.reply)]

    def _reply_parts(self, content: msgspec.Raw, mark: Mark | None) -> list[Part]:
        blocks = rec.read_blocks(content)
        if not blocks and rec.is_text(content):
            return [_text_part(JsonString(content), mark)]
        parts: list[Part] = []
        for block in blocks:
            sort = block.type
            if sort == "text":
                parts.append(_text_part(_string(block.text), mark))
            elif sort == "tool_use":
                parts.append(self._call(block, mark))
            elif sort == "thinking":
                parts.append(Reasoning(_string(block.thinking)))
            elif sort == "redacted_thinking":
                parts.append(Reasoning())
            elif sort == "image":
                parts.append(_image(block.source))
            else:
                self._skip("content blocks of an unknown kind")
        return parts

    def _call(self, block: rec.Block, mark: Mark | None) -> Call:
        call_id = block.id if type(block.id) is str else ""
        name = block.name if type(block.name) is str else ""
        source: Lazy = _arguments(block.input)
        if mark is not None:
            if mark.name is not None:
                name = mark.name
            if mark.id is not None:
                self.renamed[call_id] = mark.id
            if mark.text:
                text = unwrap_arguments(bytes(block.input))
                source = source if text is None else text
        return Call(call_id, name, source)

    # --- user -----------------------------------------------------------------------------------------------

    def _user(self, node: Node) -> list[Message]:
        content = node.content
        mark = rec.read_mark(node.mark) if node.mark is not None else None
        time = rec.read_time(node.time)
        if rec.is_text(content):
            return self._said(node, [_text_part(JsonString(content), mark)], mark, time)
        found: list[Message] = []
        parts: list[Part] = []
        for block in rec.read_blocks(content):
            sort = block.type
            if sort == "tool_result":
                result = self._result(block, mark, time)
                if result is not None:
                    found.append(result)
            elif sort == "text":
                parts.append(_text_part(_string(block.text), mark))
            elif sort == "image":
                parts.append(_image(block.source))
            else:
                self._skip("documents" if sort == "document" else "content blocks of an unknown kind")
        if parts:
            found += self._said(node, parts, mark, time)
        return found

    def _said(self, node: Node, parts: list[Part], mark: Mark | None, time: int | None) -> list[Message]:
        """Returns the message of what was said, without the agent's reminders, with who said it.

        What was said while the model was busy comes here too; the agent keeps it as an attachment.
        """
        texts = [p for p in parts if type(p) is Text]
        if not (mark is not None and (mark.said or mark.origin)) and not (node.flags & TYPED and len(texts) == 1):
            parts = [p for p in parts if not (type(p) is Text and is_reminder(text_if_marked(p.source)))]
            if not parts:
                return []
        origin, kind = self._sort(node, texts, mark)
        return [Message("user", tuple(parts), origin, kind, time)]

    def _sort(self, node: Node, texts: list[Text], mark: Mark | None) -> tuple[Origin, Kind]:
        flags = node.flags
        if mark is not None and mark.origin in _ORIGINS:
            return mark.origin, mark.kind if mark.kind in _KINDS else ""
        if mark is not None and mark.said:
            return "user", ""
        text = text_if_marked(texts[0].source) if len(texts) == 1 else ""
        origin, kind = sort_text(text, flags)
        if kind == "notice" and flags & META and self._after_command:
            kind = "command"  # what a command expands to stands directly behind it
        self._after_command = kind == "command"
        return origin, kind

    # --- results --------------------------------------------------------------------------------------------

    def _result(self, block: rec.Block, mark: Mark | None, time: int | None) -> Message | None:
        """Returns a call's result, or None for one that clew's writer had to make up."""
        call_id = block.tool_use_id if type(block.tool_use_id) is str else ""
        failed = block.is_error is True
        if mark is not None and mark.invented:
            return None
        if rec.is_text(block.content):
            parts: list[Part] = [_text_part(JsonString(block.content), mark)]
        else:
            parts = self._result_parts(block.content, mark)
        alone = parts[0] if len(parts) == 1 else None
        if mark is None and failed and type(alone) is Text and is_invented(text_if_marked(alone.source)):
            return None
        return Message("tool", tuple(parts), "agent", "", time, "", "", call_id, failed)

    def _result_parts(self, content: msgspec.Raw, mark: Mark | None) -> list[Part]:
        parts: list[Part] = []
        for block in rec.read_blocks(content):
            if block.type == "text":
                parts.append(_text_part(_string(block.text), mark))
            elif block.type == "image":
                parts.append(_image(block.source))
            else:
                self._skip("content blocks of an unknown kind")
        return parts

    def _skip(self, what: str) -> None:
        self.skipped[what] = self.skipped.get(what, 0) + 1


def answered_ids(node: Node) -> tuple[str, ...] | None:
    """Returns the ids of the calls that a user node answers; None where it says anything else."""
    if node.flags & QUEUED:
        return None
    blocks = rec.read_blocks(node.content)
    if not blocks or any(block.type != "tool_result" for block in blocks):
        return None
    return tuple(block.tool_use_id if type(block.tool_use_id) is str else "" for block in blocks)


def _says_only(content: msgspec.Raw, text: str) -> bool:
    if rec.is_text(content):
        return rec.read_text(content) == text
    blocks = rec.read_blocks(content)
    return len(blocks) == 1 and blocks[0].type == "text" and rec.read_text(blocks[0].text) == text


def _string(raw: msgspec.Raw) -> Lazy:
    return JsonString(raw) if raw is not rec.NONE and memoryview(raw)[0] == 0x22 else ""


def _arguments(raw: msgspec.Raw) -> Lazy:
    first = rec.first_byte(raw)
    if first == 0x22:
        return JsonString(raw)
    return JsonValue(raw) if first else ""


def _text_part(source: Lazy, mark: Mark | None) -> Part:
    """Returns a text as a part; in a record of clew's writer its guard is taken off and stand-ins are images."""
    if mark is None or is_empty(source):
        return Text(source)
    if not is_like_ours(source):
        return Text(source)
    text = text_of(source)
    if mark.standin and is_standin(text):
        found = _STANDIN_TYPE.search(text)
        return Image(found.group(1) if found else "")
    return Text(unguard_text(text))


def _image(raw: msgspec.Raw) -> Image:
    source = rec.read_source(raw)
    if source is None:
        return Image("")
    kind = source.media_type if type(source.media_type) is str else ""
    url = source.url if type(source.url) is str else ""
    return Image(kind, _string(source.data), url)
