"""Writes a conversation as rows of Hermes's database, and goes on behind rows that are there.

Promised: what the agent needs to list the session and to send all of it; numbers of rows that ascend, by which it
orders them; no reasoning (of another model it would be sent as this one's), no counts of others. One row a message
with its texts laid end to end; every call is answered, by an invented result where there is none. Images are written
where the agent keeps a list of parts, in what a person said; elsewhere a sentence at the text's end stands for each.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from clew.conversation.model import Image, Message, Part, Text
from clew.conversation.source import Buffer, Session, Source
from clew.conversation.text import mend_surrogates
from clew.errors import UnwritableContent
from clew.formats import raws
from clew.formats.hermes import records as rec
from clew.formats.hermes import schema
from clew.formats.hermes.content import REVIEW, SUMMARY
from clew.formats.hermes.database import MESSAGE_MARK, SESSION_MARK
from clew.formats.hermes.reader import Stored
from clew.formats.marks import INVENTED, CallIds, Names, guard_text, standin_text
from clew.formats.outline import (
    Answered,
    Cover,
    RecordMark,
    Replied,
    Said,
    WrittenCall,
    call_names,
    count_losses,
    cover,
    outline,
    record_mark,
)
from clew.formats.protocol import WriteOptions, Written, WrittenFile
from clew.formats.rows import PlainJson, Value, encode_row, is_rows, name_rows
from clew.formats.spelling import holds_bytes, is_like_ours

VERSION = "0.19.0"
"""The version of the agent that resumed what is written here."""

DATABASE = "state.db"
MAX_TITLE = 100

_REWRITTEN = re.compile(r"<\s*/?\s*memory-context\s*>|\[System note:", re.IGNORECASE)
_UNSEEN = re.compile("[\x00-\x1f\x7f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufffc\ufff9-\ufffb]+")
_PIECE = 1 << 20
_encode = msgspec.json.Encoder().encode

Cells = dict[str, Value | PlainJson]


def no_image(_: Image) -> bool:
    """No reply and no result is written with an image: the agent keeps none in either."""
    return False


class Tail(msgspec.Struct, frozen=True):
    """What the rows of a session leave for those that come behind."""

    number: int = 0
    last: float = 0.0
    calls: frozenset[str] = frozenset()
    open: tuple[WrittenCall, ...] = ()
    names: tuple[str, ...] = ()


def write(messages: Sequence[Message], options: WriteOptions) -> Written:
    """Writes a conversation in normal form as a new session."""

    def chunks() -> Iterator[bytes]:
        yield from _head(messages, options)
        yield from _Rows(messages, options, options.session_id, Tail()).lines()

    path = name_rows(options.facts.get("database", DATABASE), options.session_id)
    losses, invented = count_losses(messages, holds_bytes, no_image, no_image)
    return Written(options.session_id, (WrittenFile(path, chunks),), losses, invented)


def splice(prefix: Session, messages: Sequence[Message], options: WriteOptions) -> Written:
    """Appends messages in normal form to a session's rows; raises UnwritableContent where the agent would pass them
    over."""
    if [is_rows(stream.path) for stream in prefix.records.streams] != [True]:
        raise UnwritableContent(f"session {prefix.id} is not kept in rows", code="no_rows", session=prefix.id)
    stream = prefix.records.streams[0]
    tail = read_tail(prefix)

    def chunks() -> Iterator[Buffer]:
        data = memoryview(stream.data)
        for at in range(0, len(data), _PIECE):
            yield data[at : at + _PIECE]
        if len(data) and data[-1] != 0x0A:
            yield b"\n"
        yield from _Rows(messages, options, prefix.id, tail).lines()

    losses, invented = count_losses(messages, holds_bytes, no_image, no_image)
    file = WrittenFile(stream.path, chunks, stream.mode)
    return Written(prefix.id, (file,), losses, invented + len(tail.open))


def read_tail(prefix: Session) -> Tail:
    """Returns what the end of a session's rows leaves to those behind it."""
    stored = Stored(Source(tuple(prefix.records.streams), hint_id=prefix.id, hint_cwd=prefix.cwd))
    if rec.word_in(stored.facts.end_reason) == "compression":
        raise UnwritableContent(
            f"session {prefix.id} was compacted into another one, with which Hermes goes on instead",
            code="compacted",
            hint="Carry the session that it became, or write a new one with --new.",
            session=prefix.id,
        )
    ids: set[str] = set()
    waiting: dict[str, str] = {}
    for entry in stored.entries:
        if entry.role == "tool":
            waiting.pop(rec.word_in(entry.row.tool_call_id), None)
            continue
        if not entry.is_active:
            continue
        waiting = {}
        for call in rec.CALLS.many(rec.json_in(entry.row.tool_calls)):
            function = rec.FUNCTIONS.one(call.function) or rec.Function(call.name)
            call_id = raws.as_word(call.id) or raws.as_word(call.call_id)
            ids.add(call_id)
            waiting[call_id] = raws.as_word(function.name)
    numbers = [int(entry.id) for entry in stored.entries if entry.id is not None]
    times = [time for entry in stored.entries if (time := rec.number_in(entry.row.timestamp)) is not None]
    left = tuple(WrittenCall(call_id, name, b"{}") for call_id, name in waiting.items())
    return Tail(max(numbers, default=0), max(times, default=0.0), frozenset(ids), left, call_names(prefix.messages))


# --- what stands before the messages ---------------------------------------------------------------------------


def _head(messages: Sequence[Message], options: WriteOptions) -> Iterator[bytes]:
    times = [m.time_ms for m in messages if m.time_ms is not None]
    row: Cells = {
        "id": options.session_id,
        "source": "cli",
        "expiry_finalized": 0,
        "model": mend_surrogates(options.model) or None,
        "started_at": (times[0] if times and times[0] > 0 else options.now_ms) / 1000,
        "message_count": len(messages),
        "tool_call_count": sum(len(message.calls) for message in messages),
        "cwd": mend_surrogates(options.cwd) or None,
        "title": _title(options),
        "api_call_count": 0,
        "compression_fallback_streak": 0,
        "rewind_count": 0,
        "archived": 0,
    }
    row |= {name: 0 for name in schema.columns_of("sessions") if name.endswith("_tokens")}
    yield _line("sessions", row, options)
    if options.origin:
        mark = RecordMark(from_=mend_surrogates(options.origin))
        yield _line(
            "state_meta", {"key": SESSION_MARK + options.session_id, "value": PlainJson(_encode(mark))}, options
        )


def _title(options: WriteOptions) -> str | None:
    """Returns the title as the agent takes one, with a number behind it where another session has it: no two may
    have the same."""
    title = _UNSEEN.sub(" ", mend_surrogates(options.title))
    title = " ".join(title.split())[:MAX_TITLE].strip()
    if not title:
        return None
    taken = set(json.loads(options.facts.get("titles", "[]")))
    number, given = 1, title
    while given in taken:
        number += 1
        end = f" #{number}"
        given = title[: MAX_TITLE - len(end)] + end
    return given


def _line(table: str, row: Cells, options: WriteOptions) -> bytes:
    """Returns a row in the order of the database's own columns, where that is known."""
    known = schema.columns_of(table)
    there = [name for name in options.facts.get(f"columns.{table}", "").split(",") if name in known]
    columns = there if len(there) == len(known) else known
    return encode_row(table, columns, [row.get(name) for name in columns])


# --- messages --------------------------------------------------------------------------------------------------


class _Rows:
    """Makes the rows of messages, one after the other; keeps numbers, times, names and call ids."""

    def __init__(self, messages: Sequence[Message], options: WriteOptions, session_id: str, tail: Tail) -> None:
        self.messages, self.options, self.session_id, self.tail = messages, options, session_id, tail
        self.number = max(tail.number, int(options.facts.get("last", "0")))
        times = [m.time_ms for m in messages if m.time_ms is not None and 0 < m.time_ms <= options.now_ms]
        self.time = tail.last or (times[0] if times else options.now_ms) / 1000
        self.ids = CallIds(taken=tail.calls)
        self.names = Names()
        self.names.reserve((*tail.names, *call_names(messages)))

    def lines(self) -> Iterator[bytes]:
        """Yields the lines of all messages, the answers to open calls of the rows before them first."""
        for call in self.tail.open:
            yield from self._answer(Answered(call, None))
        for entry in outline(self.messages, self.ids, self.names):
            if type(entry) is Said:
                yield from self._user(entry)
            elif type(entry) is Replied:
                yield from self._reply(entry)
            else:
                assert type(entry) is Answered
                yield from self._answer(entry)

    def _row(
        self, role: str, time_ms: int | None, content: str, mark: RecordMark | None, more: Cells
    ) -> Iterator[bytes]:
        """Yields the row of a message and that of its mark; no row is older than the one before it."""
        self.number += 1
        if time_ms is not None and 0 < time_ms <= self.options.now_ms:
            self.time = max(self.time, time_ms / 1000)
        row: Cells = {
            "id": self.number,
            "session_id": self.session_id,
            "role": role,
            "content": content,
            "timestamp": self.time,
            "observed": 0,
            "active": 1,
            "compacted": 0,
        }
        yield _line("messages", row | more, self.options)
        if mark is not None:
            key = f"{MESSAGE_MARK}{self.number}"
            yield _line("state_meta", {"key": key, "value": PlainJson(_encode(mark))}, self.options)

    def _user(self, said: Said) -> Iterator[bytes]:
        mark = None
        if said.message.origin != "user":
            mark = RecordMark(origin=said.message.origin, kind=said.message.kind)
        if any(type(part) is Image and holds_bytes(part) for part in said.parts):
            covered = cover(said.parts, holds_bytes)
            content, mark = _list_of(covered), record_mark(covered, mark)
        else:
            content, mark = self._one(said.parts, mark)
            if mark is None and content.lstrip().startswith(SUMMARY):
                mark = RecordMark(said=True)
        yield from self._row("user", said.message.time_ms, content, mark, _as_sent(content))

    def _one(self, parts: Sequence[Part | WrittenCall], mark: RecordMark | None) -> tuple[str, RecordMark | None]:
        text, standins, needed = one_text(parts)
        if needed:
            mark = msgspec.structs.replace(mark or RecordMark(), standin=standins)
        return text if not _is_taken_for_other(text) else _list_of(Cover((Text(text),))), mark

    def _reply(self, reply: Replied) -> Iterator[bytes]:
        message = reply.message
        mark = None
        if message.model or message.kind:
            model = mend_surrogates(message.model)
            mark = RecordMark(model=model, origin="model" if message.kind else "", kind=message.kind)
        marks = {call.id: call.mark for call in reply.calls if call.mark is not None}
        if marks:
            mark = msgspec.structs.replace(mark or RecordMark(), calls=marks)
        content, mark = self._one([part for part in reply.parts if type(part) is not WrittenCall], mark)
        if mark is None and content.lstrip().startswith(SUMMARY):
            mark = RecordMark(said=True)
        more: Cells = {"finish_reason": "tool_calls" if reply.calls else "stop"}
        if reply.calls:
            more["tool_calls"] = PlainJson(b"[" + b",".join(map(_tool_call, reply.calls)) + b"]")
        yield from self._row("assistant", message.time_ms, content, mark, more | _as_sent(content))

    def _answer(self, answer: Answered) -> Iterator[bytes]:
        more: Cells = {"tool_call_id": answer.call.id, "tool_name": answer.call.name}
        if answer.result is None:
            yield from self._row("tool", None, INVENTED, RecordMark(invented=True, error=True), more)
            return
        mark = RecordMark(error=True) if answer.result.is_error else None
        content, mark = self._one(answer.parts, mark)
        yield from self._row("tool", answer.result.time_ms, content, mark, more)


def one_text(parts: Sequence[Part | WrittenCall]) -> tuple[str, int, bool]:
    """Returns the parts of a message as one text, the images that a sentence at its end stands for, and whether the
    row must have a mark."""
    texts = [part for part in parts if type(part) is Text]
    images = [part for part in parts if type(part) is Image]
    text = mend_surrogates("".join(part.text for part in texts))
    needed = bool(images) or is_like_ours(text)
    text = guard_text(text) if needed else text
    for number, image in enumerate(images, 1):
        text += ("\n" if text else "") + standin_text(mend_surrogates(image.media_type) or "unknown", number)
    return text, len(images), needed


def _list_of(covered: Cover) -> str:
    """Returns parts as the agent keeps a list of them in one text."""
    out: list[dict[str, Any]] = []
    for part in covered.parts:
        if type(part) is Text:
            out.append({"type": "text", "text": mend_surrogates(part.text)})
        elif type(part) is Image:
            out.append({"type": "image_url", "image_url": {"url": f"data:{part.media_type};base64,{part.data}"}})
    return rec.LISTED + _encode(out).decode()


def _is_taken_for_other(text: str) -> bool:
    """Tells whether the agent would take a text for a list, or for a prompt of its own review, which it drops."""
    return text.startswith((rec.LISTED, *REVIEW)) or text.lstrip().startswith(REVIEW)


def _as_sent(content: str) -> Cells:
    """Returns what goes beside a text of which the agent would cut something: it then sends this instead."""
    return {"api_content": content} if _REWRITTEN.search(content) and not content.startswith(rec.LISTED) else {}


def _tool_call(call: WrittenCall) -> bytes:
    call_id = _encode(call.id)
    function = b'{"name":' + _encode(call.name) + b',"arguments":' + _encode(call.arguments.decode()) + b"}"
    return b'{"id":' + call_id + b',"call_id":' + call_id + b',"type":"function","function":' + function + b"}"
