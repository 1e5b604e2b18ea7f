"""What the nodes of a path say: messages in order, and what a compaction or the agent's own answer took out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from clew.conversation.model import Kind, Message
from clew.conversation.normal import Normal, NormalBuilder
from clew.conversation.source import Stream
from clew.formats.parts.reading import Speech
from clew.formats.parts.values import NONE, as_text, is_object, read_call, read_mark, read_parts
from clew.formats.qwen import records as rec
from clew.formats.qwen.tree import ASSISTANT, COMMAND, COMPRESSION, OTHER, USER, Node
from clew.formats.times import read_time

_RELEASE_EVERY = 16 << 20


class Entry(msgspec.Struct, gc=False):
    """What one record says, and which it is; `is_user` tells of a record that a person typed."""

    record: int
    messages: list[Message]
    is_user: bool = False


class Spoken:
    """The messages of a path: `now` those that are sent, `full` all, `cuts` where a compaction stands in `full`."""

    def __init__(self, stream: Stream | None = None) -> None:
        self.speech = Speech(rec.sort_text)
        self.now: list[Entry] = []
        self.full: list[Entry] = []
        self.cuts: list[int] = []
        self.compacted = False
        self.model = ""
        self.ids: set[str] = set()
        self.waiting: dict[str, str] = {}
        self._goes_on = False
        self._release = stream.release if stream is not None else None
        self._heard = 0

    def take(self, nodes: Iterable[Node]) -> None:
        """Takes nodes in the order of the conversation."""
        for node in nodes:
            if node.kind == OTHER:
                continue
            if node.kind == COMPRESSION:
                self._compress(node)
            elif node.kind == COMMAND:
                self._drop_command(node)
            elif node.subtype != rec.NOT_SENT:
                self._say(node)

    def _say(self, node: Node) -> None:
        if self._release is not None:
            self._heard += len(memoryview(node.content))
            if self._heard > _RELEASE_EVERY:
                self._release()
                self._heard = 0
        found: list[Message] = []
        for raw in (node.content, *node.more):
            message = rec.read_message(raw)
            if message is not None:
                found += self._messages(node, message)
        entry = Entry(node.record, found, node.kind == USER and not node.subtype)
        self.now.append(entry)
        self.full.append(entry)

    def _messages(self, node: Node, message: rec.Message) -> list[Message]:
        mark = read_mark(node.mark)
        time_ms = read_time(node.time)
        parts = read_parts(message.parts)
        if node.kind == ASSISTANT:
            self._note_calls(parts)
            model = as_text(node.model)
            self.model = model or self.model
            return [Message("assistant", tuple(self.speech.reply(parts, mark)), "model", "", time_ms, model, node.uuid)]
        found: list[Message] = []
        if any(part.function_response is not NONE for part in parts):
            for result in self.speech.results(parts, mark):
                self._goes_on = self.waiting.pop(result.written, None) is None and self._goes_on
                if not result.invented:
                    found.append(result.message(time_ms))
            if len(parts) == 1:
                return found
        said, origin, kind = self.speech.heard(parts, mark)
        if mark is None and node.subtype in rec.NOTICES:
            origin, kind = "agent", kind or "notice"
        if said:
            self.waiting, self._goes_on = {}, False
            found.append(Message("user", tuple(said), origin, kind, time_ms))
        return found

    def _note_calls(self, parts: Iterable[object]) -> None:
        """Notes the calls of the last message, for a writer that goes on behind it."""
        if not self._goes_on:
            self.waiting = {}
        self._goes_on = True
        for part in parts:
            raw = getattr(part, "function_call", rec.NONE)
            call = read_call(raw) if is_object(raw) else None
            if call is not None:
                self.ids.add(as_text(call.id))
                self.waiting[as_text(call.id)] = as_text(call.name)

    def _drop_command(self, node: Node) -> None:
        """A command that the agent answered by itself is not sent, although it stands as a user's message."""
        command = rec.read_dead_command(node.content)
        last = self.now[-1] if self.now else None
        if command and last is not None and last.is_user and len(last.messages) == 1:
            said = last.messages[0]
            if len(said.parts) == 1 and said.text == command:
                self.now.pop()
                if self.full and self.full[-1] is last:
                    self.full.pop()

    def _compress(self, node: Node) -> None:
        contents = rec.read_compressed(node.content)
        if contents is None:
            return
        self.cuts.append(len(self.full))
        self.waiting, self._goes_on = {}, False
        time_ms = read_time(node.time)
        found: list[Message] = []
        for content in contents:
            parts = read_parts(content.parts)
            if content.role == "model":
                self._note_calls(parts)
                found.append(Message("assistant", tuple(self.speech.reply(parts, None)), "model", "", time_ms))
                continue
            for result in self.speech.results(parts, None):
                self.waiting.pop(result.written, None)
                found.append(result.message(time_ms))
            said, origin, kind = self.speech.heard(parts, None)
            if said:
                is_summary = not any(m.role == "user" for m in found)
                sort: tuple[str, Kind] = ("agent", "summary") if is_summary else (origin, kind)
                found.append(Message("user", tuple(said), sort[0], sort[1], time_ms))  # type: ignore[arg-type]
        entry = Entry(node.record, found)
        self.now = [entry]
        self.full.append(Entry(node.record, found[:1]))


def normal_of(entries: Iterable[Entry], renamed: Mapping[str, str]) -> Normal:
    """Returns the normal form of what these records say; `renamed` has the original ids of calls."""
    builder = NormalBuilder(renamed)
    for entry in entries:
        for message in entry.messages:
            builder.add(message, entry.record)
    return builder.finish()
