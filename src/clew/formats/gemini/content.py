"""What one record says: its messages, with clew's own marks undone and every result counted once."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from clew.conversation.model import Call, Kind, Message, Reasoning
from clew.conversation.source import Stream
from clew.conversation.text import JsonString, JsonValue, Lazy
from clew.formats.gemini.records import (
    Record,
    is_context,
    is_notice,
    is_snapshot,
    read_thoughts,
    read_tool_calls,
    workspace_in,
)
from clew.formats.gemini.tracks import Entry
from clew.formats.parts import values
from clew.formats.parts.reading import Result, Speech
from clew.formats.parts.values import (
    RecordMark,
    as_text,
    is_object,
    is_text,
    may_begin,
    read_call,
    read_mark,
    read_parts,
)
from clew.formats.times import read_time

USER, MODEL = "user", "gemini"
"""The types of records that make the conversation; the agent's notes to its user are none of it."""

Messages = list[tuple[Message, int]]
_RELEASE_EVERY = 16 << 20


def sort_text(source: Lazy) -> Kind | None:
    """Returns what a text of a user's message is; None for a context that the agent makes anew."""
    if not may_begin(source, b"<S"):
        return ""
    if is_context(source):
        return None
    if is_notice(source):
        return "notice"
    return "summary" if is_snapshot(source) else ""


class Content:
    """Turns records, in order, into messages; knows which calls wait for a result."""

    def __init__(self, stream: Stream | None = None) -> None:
        self.speech = Speech(sort_text)
        self.workspace = ""
        self._open: dict[str, int] = {}
        self._last: list[tuple[str, str]] = []
        self._goes_on = False
        self._release = stream.release if stream is not None else None
        self._heard = 0

    @property
    def ids(self) -> frozenset[str]:
        """Returns the ids of all calls so far, as written."""
        return frozenset(self._open)

    @property
    def open_calls(self) -> tuple[tuple[str, str], ...]:
        """Returns id and name, as written, of the calls of the last message that have no result."""
        return tuple(call for call in self._last if self._open.get(call[0], 0) > 0)

    def of(self, entry: Entry) -> Messages:
        """Returns the messages of one entry, each with the record that created it.

        Results that came with a later form of the record are of that one.
        """
        record = entry.record
        if self._release is not None:
            self._heard += len(memoryview(record.content))
            if self._heard > _RELEASE_EVERY:
                self._release()
                self._heard = 0
        if record.type == MODEL:
            return self._reply(entry)
        return self._user(record, entry.stamp) if record.type == USER else []

    def _reply(self, entry: Entry) -> Messages:
        record = entry.record
        mark = read_mark(record.clew)
        time_ms = read_time(record.timestamp)
        parts = read_parts(record.content)
        if entry.only is not None:
            parts = [part for part in parts if not is_object(part.function_call) or _id_of(part) in entry.only]
        said = self.speech.reply(parts, mark)
        if record.thoughts is not values.NONE and not any(isinstance(part, Reasoning) for part in said):
            said[:0] = [Reasoning(text) for text in read_thoughts(record.thoughts)]
        tools = read_tool_calls(record.tool_calls) if record.tool_calls is not values.NONE else []
        if entry.only is not None:
            tools = [tool for tool in tools if str(tool.id) in entry.only]
        tools += entry.late.values()
        written = _written_calls(parts)
        known = {name for name, _ in written}
        for tool in tools:
            name = as_text(tool.id)
            if name not in known:
                said.append(Call(name, as_text(tool.name), _arguments(tool.args)))
                written.append((name, as_text(tool.name)))
        for name, _ in written:
            self._open[name] = self._open.get(name, 0) + 1
        self._last = [*self._last, *written] if self._goes_on else written
        self._goes_on = True
        model = as_text(record.model)
        found: Messages = [
            (Message("assistant", tuple(said), "model", "", time_ms, model, as_text(record.id)), entry.stamp)
        ]
        for tool in tools:
            results = self._results_of(as_text(tool.id), tool.result, tool.status == "error", mark)
            found += [(result.message(time_ms), entry.changed) for result in results]
        return found

    def _results_of(self, name: str, raw: msgspec.Raw, failed: bool, mark: RecordMark | None) -> list[Result]:
        """Returns what a tool call itself holds as its result: a text, or parts of which only its own count."""
        if is_text(raw):
            return self._fresh([Result(name, JsonString(raw), [], failed, False)])
        return self._fresh(self.speech.results(read_parts(raw), mark, only=name))

    def _fresh(self, found: Iterable[Result]) -> list[Result]:
        """Returns the results that are no copies of one that was taken already."""
        fresh: list[Result] = []
        for result in found:
            count = self._open.get(result.written)
            if count is None:
                fresh.append(result)  # of no call at all: the builder reports it
            elif count > 0:
                self._goes_on = False
                self._open[result.written] = count - 1
                fresh.append(result)
        return [result for result in fresh if not result.invented]

    def _user(self, record: Record, stamp: int) -> Messages:
        mark = read_mark(record.clew)
        time_ms = read_time(record.timestamp)
        parts = read_parts(record.content)
        found: Messages = []
        if any(part.function_response is not values.NONE for part in parts):
            results = self._fresh(self.speech.results(parts, mark))
            found = [(result.message(time_ms), stamp) for result in results]
            if len(parts) == 1:
                return found
        said, origin, kind = self.speech.heard(parts, mark)
        if said:
            self._last, self._goes_on = [], False
            found.append((Message("user", tuple(said), origin, kind, time_ms), stamp))
        elif not self.workspace and parts and is_text(parts[0].text):
            self.workspace = workspace_in(JsonString(parts[0].text))
        return found


def _id_of(part: values.Part) -> str:
    call = read_call(part.function_call)
    return as_text(call.id) if call is not None else ""


def _written_calls(parts: Iterable[values.Part]) -> list[tuple[str, str]]:
    """Returns id and name of the calls that stand in a content, as written."""
    asked = [part.function_call for part in parts if part.function_call is not values.NONE]
    calls = (read_call(call) for call in asked if is_object(call))
    return [(as_text(call.id), as_text(call.name)) for call in calls if call is not None]


def _arguments(raw: msgspec.Raw) -> Lazy:
    if is_text(raw):
        return JsonString(raw)
    return JsonValue(raw) if len(memoryview(raw)) else ""
