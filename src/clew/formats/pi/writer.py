"""Writes a conversation as a pi session that the agent lists, resumes, and sends whole to its model.

One entry a message, one chain of parents, so that nothing hangs beside the path. Every call is answered. What pi
cannot say is marked by the member `clew` on the entry, beside the message: pi keeps it, also in a fork, and never
sends it. Where the home names a model to use, a last entry selects it, since pi would look for the one that spoke
last, which it may not know. Texts are put out one by one, so that a large session is never held.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from clew.conversation.model import Image, Message, Part, Text
from clew.formats.marks import INVENTED, CallIds, Names
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
    joined_text,
    outline,
    record_mark,
)
from clew.formats.pi.folder import SESSIONS, file_name, folder_name
from clew.formats.protocol import WriteOptions, Written, WrittenFile
from clew.formats.spelling import holds_bytes, spell, spell_lazily
from clew.formats.times import write_time

Pieces = Iterator[bytes]

ID_LIMIT = 40
"""Longer call ids are cut by pi for some providers, and could then be the same."""

_USAGE = (
    b'"usage":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"totalTokens":0,'
    b'"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0}}'
)


def no_image(_: Image) -> bool:
    """pi's replies hold no images."""
    return False


class Envelope(msgspec.Struct, frozen=True):
    """What one writing goes on from: the last entry, the ids of entries and calls that are taken, the calls' names."""

    parent: str = ""
    entries: frozenset[str] = frozenset()
    calls: frozenset[str] = frozenset()
    names: tuple[str, ...] = ()
    origin: str = ""
    first: int = 0


def write(messages: Sequence[Message], options: WriteOptions) -> Written:
    """Writes a conversation in normal form as a new session of the folder `options.cwd` (a real path)."""
    envelope = Envelope(names=call_names(messages), origin=options.origin)

    def chunks() -> Pieces:
        yield b'{"type":"session","version":3,"id":' + spell(options.session_id)
        yield b',"timestamp":"' + write_time(options.now_ms).encode() + b'","cwd":' + spell(options.cwd) + b"}\n"
        yield from Writing(messages, options, envelope).pieces()

    losses, invented = count_losses(messages, holds_bytes, no_image)
    return Written(options.session_id, (WrittenFile(options.path or stream_path(options), chunks),), losses, invented)


def stream_path(options: WriteOptions, cwd: str = "") -> str:
    """Returns where a session's file lies: in the folder that the home names, else in that of its working folder."""
    name = file_name(options.session_id, options.now_ms)
    folder = options.facts.get("sessions") or f"{SESSIONS}/{folder_name(cwd or options.cwd)}"
    return f"{folder}/{name}"


class Writing:
    """One pass of writing: gives the bytes in order. A second pass is a second object with the same outcome."""

    def __init__(self, messages: Sequence[Message], options: WriteOptions, envelope: Envelope) -> None:
        self.messages, self.options, self.envelope = messages, options, envelope
        self.parent = envelope.parent
        self.count = envelope.first
        self.taken = set(envelope.entries)
        self.origin = envelope.origin
        self.time_ms = next((m.time_ms for m in messages if m.time_ms is not None), options.now_ms)

    def pieces(self, open_calls: Sequence[WrittenCall] = ()) -> Pieces:
        """Yields the entries; first the made-up answers to calls that a prefix left open."""
        ids = CallIds(limit=ID_LIMIT, taken=self.envelope.calls)
        names = Names()
        names.reserve(self.envelope.names)
        for call in open_calls:
            yield from self._answer(Answered(call, None))
        for entry in outline(self.messages, ids, names):
            if type(entry) is Said:
                yield from self._user(entry)
            elif type(entry) is Replied:
                yield from self._reply(entry)
            else:
                assert type(entry) is Answered
                yield from self._answer(entry)
        if not self.envelope.parent:
            yield from self._settings()

    def _settings(self) -> Pieces:
        """Yields the title, and the model that the home names."""
        if self.options.title:
            yield from self._entry(b"session_info", b'"name":' + spell(self.options.title))
        provider, model = self.options.facts.get("provider", ""), self.options.facts.get("model", "")
        if provider and model and self.parent:
            body = b'"provider":' + spell(provider) + b',"modelId":' + spell(model)
            yield from self._entry(b"model_change", body)

    def _entry(self, sort: bytes, body: bytes, mark: RecordMark | None = None) -> Pieces:
        if self.origin and sort == b"message":
            mark = msgspec.structs.replace(mark or RecordMark(), from_=self.origin)
            self.origin = ""
        entry_id = self._new_id()
        parent = spell(self.parent) if self.parent else b"null"
        yield b'{"type":"' + sort + b'","id":' + spell(entry_id) + b',"parentId":' + parent
        yield b',"timestamp":"' + write_time(self.time_ms).encode() + b'",'
        yield body
        yield (b',"clew":' + msgspec.json.encode(mark) if mark is not None else b"") + b"}\n"
        self.parent = entry_id

    def _new_id(self) -> str:
        self.count += 1
        whole = self.options.new_id(f"entry {self.count}")
        short = whole[-8:]
        given = whole if short in self.taken or not short.isalnum() else short
        self.taken.add(given)
        return given

    def _message(self, message: Message | None, body: bytes, mark: RecordMark | None) -> Pieces:
        """`body` is the message's members from the role on, without the timestamp, which comes last."""
        yield from self._entry(b"message", b'"message":{' + body + b',"timestamp":%d}' % self.time_ms, mark)

    def _user(self, said: Said) -> Pieces:
        self._tick(said.message)
        covered = cover(said.parts, holds_bytes)
        mark = None
        if said.message.origin != "user":
            mark = RecordMark(origin=said.message.origin, kind=said.message.kind)
        body = b'"role":"user","content":' + _content(covered)
        yield from self._message(said.message, body, record_mark(covered, mark))

    def _reply(self, reply: Replied) -> Pieces:
        self._tick(reply.message)
        covered = cover(reply.parts, no_image)
        stop = b"toolUse" if reply.calls else b"stop"
        model = spell(reply.message.model or "unknown")
        body = b'"role":"assistant","content":' + _content(covered) + b',"api":"unknown","provider":"unknown","model":'
        body += model + b"," + _USAGE + b',"stopReason":"' + stop + b'"'
        yield from self._message(reply.message, body, record_mark(covered))

    def _answer(self, answer: Answered) -> Pieces:
        result = answer.result
        head = b'"role":"toolResult","toolCallId":' + spell(answer.call.id) + b',"toolName":' + spell(answer.call.name)
        if result is None:
            body = head + b',"content":' + _content(Cover((Text(INVENTED),))) + b',"isError":true'
            yield from self._message(None, body, RecordMark(invented=True))
            return
        self._tick(result)
        covered = cover(joined_text(answer.parts), holds_bytes)
        body = head + b',"content":' + _content(covered)
        body += b',"isError":true' if result.is_error else b',"isError":false'
        yield from self._message(result, body, record_mark(covered))

    def _tick(self, message: Message) -> None:
        if message.time_ms is not None:
            self.time_ms = message.time_ms


def _content(covered: Cover) -> bytes:
    return b"[" + b",".join(map(_block, covered.parts)) + b"]"


def _block(part: Part | WrittenCall) -> bytes:
    if type(part) is WrittenCall:
        head = b'{"type":"toolCall","id":' + spell(part.id) + b',"name":' + spell(part.name)
        return head + b',"arguments":' + part.arguments + b"}"
    if type(part) is Image:
        return b'{"type":"image","data":' + spell_lazily(part.source) + b',"mimeType":' + spell(part.media_type) + b"}"
    assert type(part) is Text, "reasoning and plain calls are not written"
    return b'{"type":"text","text":' + spell_lazily(part.source) + b"}"


__all__ = ["Envelope", "Writing", "no_image", "stream_path", "write"]
