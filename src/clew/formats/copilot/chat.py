"""Chats of VS Code: one JSON document, a request with its response an element. From public sources only.

What tools gave back is mostly not stored, so calls have no result here. Of a call's arguments only what the chat keeps
of them is known: the command of a terminal, else nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from clew.conversation.model import Call, Message, Part, Reasoning, Text
from clew.conversation.source import Stream
from clew.conversation.text import is_empty
from clew.formats.loose import NONE, Members, is_text, items_of, members_of, scalar_in, text_in, word_in
from clew.formats.sketch import Sketch
from clew.formats.times import read_time

_SILENT = ("progressMessage", "progressTaskSerialized", "undoStop", "codeblockUri", "mcpServersStarting")


def read_chat(sketch: Sketch, stream: Stream) -> None:
    """Reads one chat into a sketch."""
    for number, request in sketch.document(stream, "requests"):
        time = read_time(scalar_in(request.get("timestamp", NONE)))
        said = members_of(request.get("message", NONE))
        sketch.say(Message("user", (Text(text_in(said.get("text", NONE))),), "user", "", time), number)
        parts = tuple(_parts(sketch, items_of(request.get("response", NONE))))
        sketch.say(Message("assistant", parts, "model", "", time, _model(request)), number)
    root = sketch.frame.members(bytes(stream.data)) if sketch.frame is not None else {}
    about = sketch.about
    about.id = word_in(root.get("sessionId", NONE))
    about.title = word_in(root.get("customTitle", NONE))
    about.created_ms = read_time(scalar_in(root.get("creationDate", NONE)))
    about.updated_ms = read_time(scalar_in(root.get("lastMessageDate", NONE)))


def _model(request: Members) -> str:
    metadata = members_of(members_of(request.get("result", NONE)).get("metadata", NONE))
    return word_in(metadata.get("resolvedModel", NONE)) or word_in(request.get("modelId", NONE))


def _parts(sketch: Sketch, items: list[msgspec.Raw]) -> Iterator[Part]:
    for raw in items:
        item = members_of(raw)
        sort = word_in(item.get("kind", NONE))
        if not sort:
            yield Text(text_in(_value(item.get("value", NONE))))
        elif sort == "thinking":
            thought = text_in(_value(item.get("value", NONE)))
            if not is_empty(thought):
                yield Reasoning(thought)
        elif sort == "toolInvocationSerialized":
            yield _call(item)
        elif sort == "inlineReference":
            sketch.skip("references inside a text")
        elif sort not in _SILENT:
            sketch.skip("response items of another kind")


def _value(raw: msgspec.Raw) -> msgspec.Raw:
    """Returns the text of a value that is one, or of one that holds it as `value`."""
    return raw if is_text(raw) else members_of(raw).get("value", NONE)


def _call(item: Members) -> Call:
    known = members_of(item.get("toolSpecificData", NONE))
    command = word_in(members_of(known.get("commandLine", NONE)).get("original", NONE))
    command = command or word_in(known.get("command", NONE))
    arguments = msgspec.json.encode({"command": command}).decode() if command else ""
    return Call(word_in(item.get("toolCallId", NONE)), word_in(item.get("toolId", NONE)), arguments)
