"""From one line of the history to the messages that it holds, with clew's own marks undone."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterator

import msgspec

from clew.conversation.model import Call, Image, Message, Part, Reasoning, Text
from clew.conversation.text import JsonString, Lazy, is_empty, text_of
from clew.formats.grok import records as rec
from clew.formats.grok.said import is_context, is_image_note, sort_reason, unwrap
from clew.formats.marks import INVENTED, is_standin, unguard_text, unwrap_arguments

OMITTED = "[Tool result omitted — too old]"
"""What the agent puts in place of a result of long ago."""

Kept = Callable[[str], "Lazy | None"]
"""Gives the text of a call's result as the stream for display has it."""

_DATA_URL = re.compile(rb'"data:([^;,"\\]*);base64,')
_STANDIN = re.compile(r"\[clew: an image stands here: (.*), number \d+ of", re.DOTALL)


class Content:
    """Makes messages of lines, in order; remembers what the marks of a reply say of the results behind it."""

    def __init__(self, kept: Kept) -> None:
        self.kept = kept
        self.model = ""
        self.foreign = ""
        self.renamed: dict[str, str] = {}
        """The ids that calls had before clew's writer made them legal and unique."""
        self._marks: dict[str, deque[rec.CallMark]] = {}

    def messages(self, item: rec.Item) -> Iterator[Message]:
        """Yields the messages of one line: none for context, two for a reply of format 0 with its thoughts."""
        match item.type if item.type is not None else _OLD.get(rec.text(item.role), ""):
            case "user":
                yield from self._user(item)
            case "assistant":
                yield self._reply(item)
            case "tool_result":
                found = self._result(item)
                if found is not None:
                    yield found
            case "reasoning":
                yield Message("assistant", _thoughts(item.summary, item.content), "model", "", None, self.model)
            case "backend_tool_call":
                yield Message("assistant", (_server_call(item.kind),), "model", "", None, self.model)
            case _:
                pass

    # --- user -------------------------------------------------------------------------------------------------

    def _user(self, item: rec.Item) -> Iterator[Message]:
        mark = rec.decode_mark(item.clew)
        context, origin, kind = sort_reason(rec.text(item.reason))
        if mark is not None:
            self.foreign = self.foreign or mark.from_
            if mark.origin == "agent" and mark.kind in ("", "summary", "interruption", "command", "notice"):
                context, origin, kind = False, "agent", mark.kind
        if context:
            return
        parts = tuple(part for piece in rec.decode_parts(item.content) if (part := _heard(piece)) is not None)
        if parts:
            yield Message("user", parts, origin, kind)

    # --- assistant --------------------------------------------------------------------------------------------

    def _reply(self, item: rec.Item) -> Message:
        mark = rec.decode_reply_mark(item.fingerprint)
        self.model = rec.text(item.model) or self.model
        parts: list[Part] = list(_thoughts(item.thought, rec.NONE)) if item.thought is not rec.NONE else []
        text = rec.as_text(item.content)
        if text is None:  # a list of parts, as other writers of the protocol have it
            pieces = rec.decode_parts(item.content)
            parts += [Text(found) for piece in pieces if (found := rec.as_text(piece.text)) is not None]
        elif not is_empty(text):
            parts.append(_said(text, mark))
        if mark is not None:
            self.foreign = self.foreign or mark.from_
        marks = mark.calls if mark is not None else ()
        for place, call in enumerate(rec.decode_list(item.calls, rec.Call)):
            parts.append(self._call(call, marks[place] if place < len(marks) else None))
        return Message("assistant", tuple(parts), "model", "", None, rec.text(item.model))

    def _call(self, call: rec.Call, mark: rec.CallMark | None) -> Call:
        written, name, source = rec.text(call.id), rec.text(call.name), call.arguments
        if call.function is not rec.NONE:
            inner = rec.decode(call.function, rec.Function)
            name, source = rec.text(inner.name), inner.arguments
        arguments = rec.as_arguments(source)
        if mark is None:
            return Call(written, name, arguments)
        self._marks.setdefault(written, deque()).append(mark)
        if mark.text:
            found = unwrap_arguments(text_of(arguments).encode("utf-8", "replace"))
            arguments = arguments if found is None else found
        if mark.id is not None:
            self.renamed[written] = mark.id
        return Call(written, mark.name if mark.name is not None else name, arguments)

    # --- results ----------------------------------------------------------------------------------------------

    def _result(self, item: rec.Item) -> Message | None:
        """Returns a call's result, or None for one that clew's writer had to make up."""
        written = rec.text(item.call_id)
        marks = self._marks.get(written)
        mark = marks.popleft() if marks else None
        source: Lazy | None = rec.as_text(item.content)
        if source is None:
            pieces = rec.decode_parts(item.content)
            source = "".join(text_of(found) for piece in pieces if (found := rec.as_text(piece.text)) is not None)
        elif _is(source, OMITTED):
            kept = self.kept(written)
            source = source if kept is None else kept
        if _is(source, INVENTED):
            return None
        if mark is not None and mark.said:
            source = unguard_text(text_of(source))
        parts: list[Part] = [] if is_empty(source) else [Text(source)]
        parts += [_image(piece.url) for piece in rec.decode_parts(item.images) if piece.type == "image"]
        return Message("tool", tuple(parts), "agent", "", None, "", "", written)


_OLD = {"system": "system", "user": "user", "assistant": "assistant", "tool": "tool_result"}


def _heard(piece: rec.Part) -> Part | None:
    """Returns one part of a user line; None for context and for what is neither text nor image."""
    if piece.type == "image":
        return _image(piece.url)
    text = rec.as_text(piece.text)
    if text is None or piece.type != "text":
        return None
    inner = unwrap(text)
    if inner is not None:
        return Text(inner)
    if is_image_note(text):
        return _standin(text_of(text))
    return None if is_context(text) else Text(text)


def _said(source: Lazy, mark: rec.ReplyMark | None) -> Part:
    if mark is None or not (mark.said or mark.standin):
        return Text(source)
    text = text_of(source)
    return _standin(text) if mark.standin and is_standin(text) else Text(unguard_text(text))


def _standin(text: str) -> Image:
    found = _STANDIN.match(text)
    return Image(found.group(1) if found else "")


def _is(source: Lazy, text: str) -> bool:
    """Tells whether a source is exactly this text; looks at short ones only."""
    if isinstance(source, JsonString):
        return len(memoryview(source.raw)) <= 6 * len(text) + 2 and text_of(source) == text
    return source == text


def _thoughts(*raws: msgspec.Raw) -> tuple[Part, ...]:
    """Returns the readable thoughts of the first of these that has any; the encrypted form stays in the line."""
    for raw in raws:
        found = [Reasoning(text) for piece in rec.decode_parts(raw) if (text := rec.as_text(piece.text)) is not None]
        if found:
            return tuple(found)
    return (Reasoning(),)


def _server_call(raw: msgspec.Raw) -> Call:
    """The provider called a tool by itself and gave its model what came of it: no result is stored."""
    found = rec.decode(raw, rec.ServerCall)
    arguments = next((part for part in (found.action, found.input, found.code) if part is not rec.NONE), rec.NONE)
    name = rec.text(found.name) or rec.text(found.type) or "backend_tool_call"
    return Call(rec.text(found.call_id) or rec.text(found.id), name, rec.as_arguments(arguments))


def _image(raw: msgspec.Raw) -> Image:
    url = rec.as_text(raw)
    if url is None:
        return Image("")
    view = memoryview(raw)
    head = _DATA_URL.match(bytes(view[:200]))
    if head is not None and b"\\" not in bytes(view[head.end() :]):
        return Image(
            head.group(1).decode("utf-8", "replace"), JsonString(msgspec.Raw(b'"' + bytes(view[head.end() :])))
        )
    return Image("", "", text_of(url))
