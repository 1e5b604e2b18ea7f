"""What one message says, in both layouts, as pieces for the normal form, with clew's own marks undone.

In the 2.x layout a message has one text; what stands for images comes at its end. An import into the unified store
drops all marks, so they are looked up in the file that was imported (`Marks`).
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Callable

import msgspec

from clew.conversation.model import Call, Image, Message, Part, Reasoning, Text
from clew.conversation.text import JsonString, JsonValue, Lazy, is_empty, text_of
from clew.formats import raws, unmark
from clew.formats.marks import STANDIN_HEAD, Mark, unguard_text
from clew.formats.outline import RecordMark
from clew.formats.spelling import is_like_ours
from clew.formats.vibe import records as rec

_STANDIN = re.compile(re.escape(STANDIN_HEAD) + r": ([^\s,\]]+), number \d+ of this message[^\]]*\]\Z")
FAILED = ("<tool_error>", "<user_cancellation>")
"""How results begin that tell of a failure: the layout has no other sign of it."""
_SUMMARY = "<compaction_summary>"


class Content:
    """Turns messages, taken in order, into messages of the conversation.

    Calls and results have the ids that stand in the file; it remembers their original ones, and counts what the model
    in the middle cannot say. `beside` gives the bytes of a file in the session's folder, nothing where there is none.
    """

    def __init__(self, beside: Callable[[str], bytes] = lambda _: b"") -> None:
        self.beside = beside
        self.renamed: dict[str, str] = {}
        self.skipped: dict[str, int] = {}

    # --- the 2.x layout -------------------------------------------------------------------------------------

    def line(self, line: rec.Line) -> Message | None:
        """Returns what a line says; None for one that is no part of the conversation."""
        mark = unmark.read_mark(line.clew) if line.clew is not raws.NONE else None
        if line.role == "user":
            parts = whole_text(line.content, mark) + [self._attached(one) for one in rec.IMAGES.many(line.images)]
            told = unmark.origin_in(mark)
            if told is None and line.context_boundary == "compaction":
                told = ("agent", "summary")
            if told is None and line.injected is True:
                told = ("agent", "notice")
            origin, kind = told or ("user", "")
            return Message("user", tuple(parts), origin, kind)
        if line.role == "assistant":
            parts = [Reasoning(raws.as_text(line.reasoning_content))] if raws.is_text(line.reasoning_content) else []
            parts += whole_text(line.content, mark)
            parts += [self._call(call, mark) for call in rec.CALLS.many(line.tool_calls)]
            return Message("assistant", tuple(parts), "model", "", None, mark.model if mark is not None else "")
        if line.role == "tool":
            return self.result(raws.as_word(line.tool_call_id), whole_text(line.content, mark), mark)
        return None

    def _attached(self, one: rec.Attachment) -> Image:
        """Returns an image: its bytes stand in the line, or in a file beside it."""
        source = one.source or rec.ImageBytes(path=one.path, data=one.data)
        kind = raws.as_word(one.mime_type)
        if raws.is_text(source.data):
            return Image(kind, JsonString(source.data))
        path = raws.as_word(source.path)
        data = self.beside(path) if path else b""
        return Image(kind, b64encode(data).decode(), "" if data or not path else f"file:{path}")

    def _call(self, call: rec.ToolCall, mark: RecordMark | None) -> Call:
        function = call.function or rec.Function()
        source = raws.as_arguments(function.arguments)
        return self._made(raws.as_word(call.id), raws.as_word(function.name), source, mark)

    def _made(self, written: str, name: str, source: Lazy, mark: RecordMark | None) -> Call:
        call = unmark.call_part(written, name, source, mark)
        if call.id != written:
            self.renamed[written] = call.id
        return Call(written, call.name, call.source)

    def result(
        self, written: str, parts: list[Part], mark: RecordMark | None, failed: bool | None = None
    ) -> Message | None:
        """Returns a call's result, None for one that clew's writer had to make up."""
        if failed is None:
            failed = mark.error is True if mark is not None and mark.error is not None else _says_failure(parts)
        alone = parts[0] if len(parts) == 1 else None
        told = failed or (mark is None and type(alone) is Text and is_like_ours(alone.source))
        if unmark.is_made_up(tuple(parts), mark, failed=told):
            return None
        return Message("tool", tuple(parts), "agent", "", None, "", "", written, failed)

    # --- the unified store ----------------------------------------------------------------------------------

    def item(self, item: rec.Item, marks: Marks) -> Message | None:
        """Returns what an item of the checkpoint says."""
        m = item.message
        if m is None:
            return None
        parts = rec.PARTS.many(m.content)
        if m.role == "user":
            return self._user(parts, marks, injected=item.source != "history")
        if m.role == "assistant":
            return self.reply(parts, marks)
        if m.role == "tool":
            written = raws.as_word(m.tool_call_id)
            failed = m.outcome == "failure"
            mark = marks.of_result(written) or _own_mark(parts)
            if mark is not None and mark.error is not None:
                failed = mark.error
            return self.result(written, self._covered(parts, mark), mark, failed)
        return None

    def _user(self, parts: list[rec.Part], marks: Marks, *, injected: bool) -> Message:
        mark = marks.of_text("user", parts) or _own_mark(parts)
        covered = self._covered(parts, mark)
        told = unmark.origin_in(mark)
        if told is None and injected:
            told = ("agent", "notice")
            first = covered[0] if covered else None
            if type(first) is Text and _SUMMARY in first.text:
                told = ("agent", "summary")
        origin, kind = told or ("user", "")
        return Message("user", tuple(covered), origin, kind)

    def reply(self, parts: list[rec.Part], marks: Marks) -> Message:
        """Returns a message of the model."""
        mark = marks.of_reply(parts) or _own_mark(parts)
        model = mark.model if mark is not None else ""
        return Message("assistant", tuple(self._covered(parts, mark)), "model", "", None, model)

    def _covered(self, parts: list[rec.Part], mark: RecordMark | None) -> list[Part]:
        out: list[Part] = []
        for part in parts:
            sort = part.type
            if sort == "text":
                out += whole_text(part.text, mark)
            elif sort == "tool_call":
                out.append(self._tool_call(part, mark))
            elif sort == "reasoning":
                inner = rec.PARTS.many(part.content)
                out.append(Reasoning(raws.as_text(inner[0].text) if inner else ""))
            elif sort == "image":
                out.append(Image(raws.as_word(part.mime_type), raws.as_text(part.data)))
            elif sort == "resource" and raws.as_word((part.resource or rec.Resource()).mime_type).startswith("image/"):
                assert part.resource is not None, "asked for just now"
                out.append(Image(raws.as_word(part.resource.mime_type), raws.as_text(part.resource.blob)))
            else:
                what = "content blocks of an unknown kind"
                self.skipped[what] = self.skipped.get(what, 0) + 1
        return out

    def _tool_call(self, part: rec.Part, mark: RecordMark | None) -> Call:
        arguments = rec.ARGUMENTS.one(part.arguments)
        if raws.is_text(part.arguments_json):
            source: Lazy = JsonString(part.arguments_json)
        elif arguments is not None and raws.is_text(arguments.raw):
            source = JsonString(arguments.raw)
        else:
            source = raws.as_arguments(arguments.value if arguments is not None else part.arguments)
        return self._made(raws.as_word(part.id), raws.as_word(part.name), source, mark)

    # --- the journal ----------------------------------------------------------------------------------------

    def command(self, command: rec.Command, marks: Marks) -> Message | None:
        """Returns what an input of the journal says."""
        match command.type:
            case "user_message":
                return self._user(rec.PARTS.many(command.content), marks, injected=False)
            case "context_message":
                return self._user(rec.PARTS.many(command.content), marks, injected=True)
            case "completion_succeeded":
                found = rec.OUTCOMES.one(command.result)
                return self.reply(rec.PARTS.many(found.parts), marks) if found is not None else None
            case "tool_succeeded" | "tool_failed":
                return self._outcome(command)
            case _:
                return None

    def _outcome(self, command: rec.Command) -> Message | None:
        found = rec.OUTCOMES.one(command.result) or rec.Outcome()
        parts = self._covered(rec.PARTS.many(found.content), None)
        if not parts and raws.first_byte(found.structured_content) == 0x7B:
            parts.append(Text(JsonValue(found.structured_content)))
        failed = command.type == "tool_failed" or found.type == "failure"
        return self.result(raws.as_word(command.call_id), parts, None, failed)


class Marks:
    """The marks of an imported file, found again by what their records say; none where nothing was imported."""

    def __init__(self, lines: list[rec.Line]) -> None:
        self._by_text: dict[tuple[str, str], list[RecordMark]] = {}
        self._by_result: dict[str, RecordMark] = {}
        self._by_call: dict[str, RecordMark] = {}
        self.origin = ""
        for line in lines:
            mark = unmark.read_mark(line.clew) if line.clew is not raws.NONE else None
            if mark is None:
                continue
            self.origin = self.origin or mark.from_
            self._note(line, mark)

    def _note(self, line: rec.Line, mark: RecordMark) -> None:
        if line.role == "tool":
            self._by_result[raws.as_word(line.tool_call_id)] = mark
            return
        calls = rec.CALLS.many(line.tool_calls)
        if calls:
            self._by_call[raws.as_word(calls[0].id)] = mark
        text = text_of(raws.as_text(line.content))
        self._by_text.setdefault((raws.as_word(line.role), text), []).append(mark)

    def of_result(self, written: str) -> RecordMark | None:
        """Returns the mark of the result of a call."""
        return self._by_result.get(written)

    def of_reply(self, parts: list[rec.Part]) -> RecordMark | None:
        """Returns the mark of a reply: by its first call, else by its text."""
        first = next((raws.as_word(part.id) for part in parts if part.type == "tool_call"), None)
        if first is not None:
            return self._by_call.get(first)
        return self.of_text("assistant", parts)

    def of_text(self, role: str, parts: list[rec.Part]) -> RecordMark | None:
        """Returns the mark of a message by its text; of equal ones each has its own."""
        if not self._by_text:
            return None
        text = "".join(text_of(raws.as_text(part.text)) for part in parts if part.type == "text")
        found = self._by_text.get((role, text))
        if not found:
            return None
        return found.pop(0) if len(found) > 1 else found[0]


def _own_mark(parts: list[rec.Part]) -> RecordMark | None:
    """Returns the mark that clew itself left in the unified store: in a message's first part."""
    meta = parts[0].meta if parts else None
    return unmark.read_mark(meta.clew) if meta is not None and meta.clew is not raws.NONE else None


def whole_text(raw: msgspec.Raw, mark: Mark | None) -> list[Part]:
    """Returns the one text of a message as its parts: the text, then the images that stand-ins at its end are for."""
    if not raws.is_text(raw):
        blocks = [raws.as_text(part.text) for part in rec.PARTS.many(raw) if part.type == "text"]
        return [unmark.text_part(source, mark) for source in blocks]
    source: Lazy = JsonString(raw)
    if mark is None or is_empty(source) or not (mark.standin or is_like_ours(source)):
        return [] if is_empty(source) else [Text(source)]
    text = text_of(source)
    images: list[Part] = []
    for _ in range(mark.standin):
        found = _STANDIN.search(text)
        if found is None:
            break
        images.insert(0, Image(found.group(1)))
        text = text[: found.start()].removesuffix("\n")
    return ([Text(unguard_text(text))] if text else []) + images


def _says_failure(parts: list[Part]) -> bool:
    first = parts[0] if parts else None
    if type(first) is not Text:
        return False
    if isinstance(first.source, JsonString) and bytes(memoryview(first.source.raw)[1:2]) != b"<":
        return False
    return first.text.startswith(FAILED)
