"""Writes a conversation as a Droid session that the agent lists, resumes, and sends whole to its model.

One record a message; all results of a reply stand in one record directly behind it, since Droid looks for them
nowhere else. Every call is answered. Calls never have the names of Droid's own editing tools: their results would be
replaced by a sentence whenever they are sent. What cannot be said is marked by the member `clew` on the record, which
Droid keeps and never sends. No settings are written: Droid resumes with those it is set to.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from clew.conversation.model import Image, Message, Part, Text
from clew.formats.droid.content import looks_like_reminder
from clew.formats.droid.folder import stream_path
from clew.formats.marks import INVENTED, CallIds, Mark, Names
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
from clew.formats.protocol import WriteOptions, Written, WrittenFile
from clew.formats.spelling import holds_bytes, spell, spell_lazily
from clew.formats.times import write_time

Pieces = Iterator[bytes]

NAMES = r"(?!(?:Edit|MultiEdit|Create|ApplyPatch|edit-cli|create-cli|apply-patch-cli)\Z)[A-Za-z0-9_-]{1,64}"
_LOOK_WRITING = 8 << 20
_TITLE_SIGNS = 80


def no_image(_: Image) -> bool:
    """Droid sends no images of a reply."""
    return False


class Envelope(msgspec.Struct, frozen=True):
    """What one writing goes on from: the last message, the ids of calls that are taken, the calls' names."""

    parent: str = ""
    calls: frozenset[str] = frozenset()
    names: tuple[str, ...] = ()
    origin: str = ""
    first: int = 0


def write(messages: Sequence[Message], options: WriteOptions) -> Written:
    """Writes a conversation in normal form as a new session of the folder `options.cwd` (a real path)."""
    envelope = Envelope(names=call_names(messages), origin=options.origin)

    def chunks() -> Pieces:
        yield (
            b'{"type":"session_start","id":'
            + spell(options.session_id)
            + b',"title":'
            + spell(_title(messages, options))
        )
        yield b',"owner":"unknown","version":2,"cwd":' + spell(options.cwd)
        yield b',"isSessionTitleManuallySet":' + (b"true" if options.title else b"false") + b"}\n"
        yield from Writing(messages, options, envelope).pieces()

    losses, invented = count_losses(messages, holds_bytes, no_image)
    path = options.path or stream_path(options.cwd, options.session_id)
    return Written(options.session_id, (WrittenFile(path, chunks),), losses, invented)


def _title(messages: Sequence[Message], options: WriteOptions) -> str:
    """Returns the title, which Droid's list shows: that of the source, else the beginning of the first prompt."""
    if options.title:
        return options.title
    said = (m.text for m in messages if m.role == "user" and m.origin == "user")
    line = next((" ".join(text[:400].split()) for text in said if text.strip()), "New Session")
    return line if len(line) <= _TITLE_SIGNS else line[: _TITLE_SIGNS - 1] + "…"


class Writing:
    """One pass of writing: gives the bytes in order. A second pass is a second object with the same outcome."""

    def __init__(self, messages: Sequence[Message], options: WriteOptions, envelope: Envelope) -> None:
        self.messages, self.options, self.envelope = messages, options, envelope
        self.parent = envelope.parent
        self.count = envelope.first
        self.origin = envelope.origin
        self.time_ms = next((m.time_ms for m in messages if m.time_ms is not None), options.now_ms)

    def pieces(self, open_calls: Sequence[WrittenCall] = ()) -> Pieces:
        """Yields the records; first the made-up answers to calls that a prefix left open."""
        ids = CallIds(taken=self.envelope.calls)
        names = Names(NAMES)
        names.reserve(self.envelope.names)
        answers = [Answered(call, None) for call in open_calls]
        for entry in outline(self.messages, ids, names):
            if type(entry) is Answered:
                answers.append(entry)
                continue
            yield from self._results(answers)
            answers = []
            if type(entry) is Said:
                yield from self._user(entry)
            elif type(entry) is Replied:
                yield from self._reply(entry)
        yield from self._results(answers)

    def _record(self, members: bytes, mark: RecordMark | None) -> Pieces:
        """Yields one record; `members` are those of its message."""
        self.count += 1
        record_id = self.options.new_id(f"record {self.count}")
        if self.origin:
            mark = msgspec.structs.replace(mark or RecordMark(), from_=self.origin)
            self.origin = ""
        parent = b',"parentId":' + spell(self.parent) if self.parent else b""
        yield b'{"type":"message","id":' + spell(record_id) + parent
        yield b',"timestamp":"' + write_time(self.time_ms).encode() + b'","message":{'
        yield members
        yield b"}" + (b',"clew":' + msgspec.json.encode(mark) if mark is not None else b"") + b"}\n"
        self.parent = record_id

    def _user(self, said: Said) -> Pieces:
        self._tick(said.message)
        covered = cover(said.parts, holds_bytes)
        mark = None
        if said.message.origin != "user":
            mark = RecordMark(origin=said.message.origin, kind=said.message.kind)
        elif any(type(p) is Text and looks_like_reminder(p.source, _LOOK_WRITING) for p in said.parts):
            mark = RecordMark(said=True)
        yield from self._record(b'"role":"user","content":' + _content(covered), record_mark(covered, mark))

    def _reply(self, reply: Replied) -> Pieces:
        self._tick(reply.message)
        covered = cover(reply.parts, no_image)
        model = b',"modelId":' + spell(reply.message.model) if reply.message.model else b""
        yield from self._record(b'"role":"assistant","content":' + _content(covered) + model, record_mark(covered))

    def _results(self, answers: Sequence[Answered]) -> Pieces:
        if not answers:
            return
        blocks: list[bytes] = []
        marks: dict[str, Mark] = {}
        for answer in answers:
            block, mark = self._result(answer)
            blocks.append(block)
            if mark is not None:
                marks[answer.call.id] = mark
        members = b'"role":"user","content":[' + b",".join(blocks) + b"]"
        yield from self._record(members, RecordMark(results=marks) if marks else None)

    def _result(self, answer: Answered) -> tuple[bytes, Mark | None]:
        head = b'{"type":"tool_result","tool_use_id":' + spell(answer.call.id) + b',"is_error":'
        if answer.result is None:
            return head + b'true,"content":' + spell(INVENTED) + b"}", Mark(invented=True)
        self._tick(answer.result)
        covered = cover(joined_text(answer.parts), holds_bytes)
        mark = Mark(standin=covered.standins) if covered.needed else None
        parts = covered.parts
        if not parts:
            body = b'""'
        elif len(parts) == 1 and type(parts[0]) is Text:
            body = spell_lazily(parts[0].source)
        else:
            body = _content(covered)
        return head + (b"true" if answer.result.is_error else b"false") + b',"content":' + body + b"}", mark

    def _tick(self, message: Message) -> None:
        if message.time_ms is not None:
            self.time_ms = message.time_ms


def _content(covered: Cover) -> bytes:
    return b"[" + b",".join(map(_block, covered.parts)) + b"]"


def _block(part: Part | WrittenCall) -> bytes:
    if type(part) is WrittenCall:
        head = b'{"type":"tool_use","id":' + spell(part.id) + b',"name":' + spell(part.name)
        return head + b',"input":' + part.arguments + b"}"
    if type(part) is Image:
        head = b'{"type":"image","source":{"type":"base64","media_type":' + spell(part.media_type)
        return head + b',"data":' + spell_lazily(part.source) + b"}}"
    assert type(part) is Text, "reasoning and plain calls are not written"
    return b'{"type":"text","text":' + spell_lazily(part.source) + b"}"
