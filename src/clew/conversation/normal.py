"""The normal form that every reader delivers (docs/residue.md, 2).

A reader hands over the pieces it finds, in stored order, each with the number of the record that holds it; this
builder joins assistant pieces, moves every result behind the message of its call, drops what says nothing, and
mends surrogates. Without it no two formats would give the same keys.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping

import msgspec

from clew.conversation.model import Call, Message, Part, Text
from clew.conversation.text import has_surrogates, mend_surrogates

_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")


class Stray(msgspec.Struct, frozen=True):
    """A result that answers no call, or answers one a second time: a record, but no message."""

    record: int | None
    call_id: str


class Normal(msgspec.Struct, frozen=True):
    """A conversation in normal form with, for each message, the record that created it."""

    messages: tuple[Message, ...]
    created_by: tuple[int | None, ...]
    strays: tuple[Stray, ...] = ()


class _Entry:
    """One message in the making: its pieces' parts, and the results that answer its calls."""

    __slots__ = ("first", "parts", "record", "results")

    def __init__(self, first: Message, record: int | None) -> None:
        self.first = first
        self.record = record
        self.parts: list[Part] = list(first.parts)
        self.results: list[tuple[Message, int | None]] = []


class NormalBuilder:
    """Collects pieces in stored order and gives the normal form.

    `add` takes a message or a piece of one; assistant pieces with one `reply_id` join wherever they stand.
    `replace` forgets everything so far (a compaction record with a replacement history).

    `renamed` gives the original ids of calls that a mark names, by the ids in the source; it may grow while pieces
    are added. Results find their calls by the ids in the source: originals may repeat where those do not.
    """

    def __init__(self, renamed: Mapping[str, str] | None = None) -> None:
        self._renamed: Mapping[str, str] = {} if renamed is None else renamed
        self._entries: list[_Entry] = []
        self._replies: dict[str, _Entry] = {}
        self._open: dict[str, deque[_Entry]] = {}
        self._strays: list[Stray] = []
        self._last: _Entry | None = None  # what an assistant piece without user text or result before it joins

    def add(self, message: Message, record: int | None) -> None:
        """Takes the next piece; `record` is None for a message that no record created."""
        role = message.role
        if role == "tool":
            self._answer(message, record)
        elif role == "assistant":
            self._say(message, record)
        elif role == "user":
            entry = _Entry(message, record)
            self._entries.append(entry)
            if _says_something(entry):
                self._last = None

    def replace(self) -> None:
        """Forgets all messages so far; strays stay reported."""
        self._entries, self._replies, self._open, self._last = [], {}, {}, None

    def drop_last(self, count: int) -> None:
        """Forgets the last `count` user messages and everything after the first of them (a rollback)."""
        self._last = None
        for position in range(len(self._entries) - 1, -1, -1):
            if count <= 0:
                return
            entry = self._entries.pop()
            if entry.first.reply_id:
                self._replies.pop(entry.first.reply_id, None)
            for waiting in self._open.values():
                while entry in waiting:
                    waiting.remove(entry)
            if entry.first.role == "user" and entry.first.origin == "user":
                count -= 1
            if position == 0:
                return

    @property
    def open_calls(self) -> int:
        """Returns how many calls have no result so far."""
        return sum(len(waiting) for waiting in self._open.values())

    def _say(self, message: Message, record: int | None) -> None:
        entry = self._replies.get(message.reply_id) if message.reply_id else None
        if entry is None:
            entry = self._last
        if entry is None:
            entry = _Entry(message, record)
            self._entries.append(entry)
            self._last = entry
        else:
            entry.parts.extend(message.parts)
        if message.reply_id:
            self._replies.setdefault(message.reply_id, entry)
        for part in message.parts:
            if type(part) is Call:
                self._open.setdefault(part.id, deque()).append(entry)

    def _answer(self, message: Message, record: int | None) -> None:
        waiting = self._open.get(message.call_id)
        if waiting:
            self._last = None
            waiting.popleft().results.append((message, record))
            if not waiting:
                del self._open[message.call_id]
        else:
            self._strays.append(Stray(record, message.call_id))

    def finish(self) -> Normal:
        """Returns the normal form of all pieces so far; the builder may go on afterwards."""
        joined: list[_Entry] = []
        is_copy = False  # what is joined is copied first: the builder goes on with its own entries
        for entry in self._entries:
            replies = entry.first.role == "assistant"
            if replies and joined and _takes_more(joined[-1]):
                if not is_copy:
                    joined[-1] = _copy(joined[-1])
                    is_copy = True
                _join(joined, joined[-1], entry)
            elif replies or _says_something(entry):
                joined.append(entry)
                is_copy = False
        messages: list[Message] = []
        created_by: list[int | None] = []
        for entry in joined:
            if _says_something(entry):
                head, results = _seal(entry), entry.results
                if self._renamed:
                    head, results = self._original(head, results)
                messages.append(head)
                created_by.append(entry.record)
                for result, record in results:
                    messages.append(_mend(result))
                    created_by.append(record)
        return Normal(tuple(messages), tuple(created_by), tuple(self._strays))

    def _original(
        self, head: Message, results: list[tuple[Message, int | None]]
    ) -> tuple[Message, list[tuple[Message, int | None]]]:
        """Gives calls and results their original ids; results are put in the order of their calls first."""
        renamed = self._renamed
        calls = head.calls
        if not any(call.id in renamed for call in calls):
            return head, results
        if len(results) > 1:
            place = {call.id: number for number, call in reversed(list(enumerate(calls)))}
            results = sorted(results, key=lambda result: place.get(result[0].call_id, len(calls)))
        parts = (Call(renamed.get(p.id, p.id), p.name, p.source) if type(p) is Call else p for p in head.parts)
        found = [(_with_call_id(m, renamed[m.call_id]) if m.call_id in renamed else m, r) for m, r in results]
        return _with_parts(head, tuple(parts)), found


def normalise(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """Returns the normal form of a list of messages that came from nowhere in particular."""
    builder = NormalBuilder()
    for message in messages:
        builder.add(message, None)
    return builder.finish().messages


def _says_something(entry: _Entry) -> bool:
    for part in entry.parts:
        kind = type(part)
        if kind is Text:
            if not part.is_empty:  # type: ignore[union-attr]
                return True
        elif kind.__name__ != "Reasoning":
            return True
    return False


def _takes_more(entry: _Entry) -> bool:
    """An assistant message without results stands directly before the next one: they are one message."""
    return entry.first.role == "assistant" and not entry.results


def _copy(entry: _Entry) -> _Entry:
    fresh = _Entry(entry.first, entry.record)
    fresh.parts = list(entry.parts)
    fresh.results = entry.results
    return fresh


def _join(joined: list[_Entry], previous: _Entry, entry: _Entry) -> None:
    if not previous.parts:  # nothing of it is left: the next one takes its place
        joined[-1] = _copy(entry)
        return
    previous.parts.extend(entry.parts)
    previous.results = entry.results


def _seal(entry: _Entry) -> Message:
    message = entry.first
    if len(entry.parts) != len(message.parts):
        message = _with_parts(message, tuple(entry.parts))
    return _mend(message)


def _with_parts(message: Message, parts: tuple[Part, ...]) -> Message:
    m = message
    return Message(m.role, parts, m.origin, m.kind, m.time_ms, m.model, m.reply_id, m.call_id, m.is_error)


def _with_call_id(message: Message, call_id: str) -> Message:
    m = message
    return Message(m.role, m.parts, m.origin, m.kind, m.time_ms, m.model, m.reply_id, call_id, m.is_error)


def _mend(message: Message) -> Message:
    """Joins pairs of surrogates across parts, replaces lone ones; touches only texts that are decoded already."""
    for part in message.parts:
        if type(part) is Text and type(part.source) is str and has_surrogates(part.source):
            break
    else:
        return message
    parts: list[Part] = []
    for part in message.parts:
        last = parts[-1] if parts else None
        if type(part) is not Text:
            parts.append(part)
            continue
        text = part.source if isinstance(part.source, str) else part.text
        if type(last) is Text and isinstance(last.source, str) and _PAIR.fullmatch(last.source[-1:] + text[:1]):
            pair = mend_surrogates(last.source[-1] + text[0])
            parts[-1] = Text(mend_surrogates(last.source[:-1] + pair))
            text = text[1:]
        parts.append(Text(text))
    parts = [Text(mend_surrogates(p.source)) if type(p) is Text and isinstance(p.source, str) else p for p in parts]
    return _with_parts(message, tuple(parts))
