"""A format of JSON lines that can say everything, for tests of the residue: each record does one obvious thing.

    {"t":"meta","id":..,"cwd":..}              the first record
    {"t":"user","x":..,"img":[..]}             a user's message; context when the text is one <env>..</env>
    {"t":"bot","parts":[{"k":"text","x":..}, {"k":"call","id":..,"name":..,"args":..}, {"k":"think","x":..,"sig":..}]}
    {"t":"out","id":..,"x":..}                 a result
    {"t":"compact","with":[..records..]}       replaces everything before
    {"t":"invent","x":..}                      a message that the reader makes up: no record created it
    anything else                              bookkeeping

Its agent needs no answers for open calls, takes any tool name and any arguments, and holds pictures everywhere.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from clew.conversation.canonical import sort_results
from clew.conversation.groups import group_messages
from clew.conversation.loss import Damage, Loss
from clew.conversation.model import Call, Image, Message, Part, Reasoning, Text
from clew.conversation.normal import Normal, NormalBuilder
from clew.conversation.source import Boundary, Ending, Records, Session, Source, Stream
from clew.conversation.text import mend_surrogates
from clew.formats.jsonl import JsonLines
from clew.formats.marks import CallIds
from clew.formats.protocol import Format, Found, Home, Owner, Settings, Traits, WriteOptions, Written, WrittenFile
from clew.platform.fs import open_source

NAME = "lines"
_CONTEXT = re.compile(r"<env>.*</env>", re.DOTALL)


class LinePart(msgspec.Struct, frozen=True, omit_defaults=True):
    """One part of a reply or of a result: text, call, img or think."""

    k: str
    x: str = ""
    id: str = ""
    name: str = ""
    args: str = ""
    sig: str = ""
    url: str = ""
    was: str | None = None
    """The call's original id."""


class LineRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line."""

    t: str = ""
    id: str = ""
    x: str = ""
    cwd: str = ""
    parts: tuple[LinePart, ...] = ()
    err: bool | None = None
    at: int | None = None
    origin: str = ""
    kind: str = ""
    said: bool = False
    came: str = ""
    replaces: tuple[LineRecord, ...] = ()


_DECODER = msgspec.json.Decoder(LineRecord)
_ENCODE = msgspec.json.Encoder().encode


def read(source: Source, since: Ending | None = None) -> Session:
    """Reads any bytes."""
    records, damage, builder, full = Records(), list[Damage](), NormalBuilder(), NormalBuilder()
    ids: dict[str, str] = {}
    boundaries: list[Boundary] = []
    meta = LineRecord()
    for stream in source.streams:
        for number, record in JsonLines(records, stream, _DECODER, damage, growing=source.growing):
            if record is None:
                continue
            if record.t == "meta" and not meta.t:
                meta = record
            if record.t == "compact":
                boundaries.append(Boundary(len(full.finish().messages)))
                builder.replace()
            for one in record.replaces or (record,):
                message = _message(one, ids)
                if message is not None:
                    builder.add(message, number if record.t != "invent" else None)
                    full.add(message, number)
    normal = builder.finish()
    messages, created_by = _originals(normal, ids)
    damage += [Damage("", s.record or 0, 0, "stray result", lost=False) for s in normal.strays]
    return Session(
        NAME,
        meta.id or source.hint_id,
        messages,
        created_by,
        records,
        _originals(full.finish(), ids)[0] if boundaries else messages,
        tuple(boundaries),
        cwd=meta.cwd or source.hint_cwd,
        damage=tuple(damage),
        foreign=meta.came,
        stable_first=records[0] if len(records) else b"",
    )


def _message(record: LineRecord, ids: dict[str, str]) -> Message | None:
    if record.t == "user":
        if _CONTEXT.fullmatch(record.x) and not record.said:
            return None
        parts = (*([Text(record.x)] if record.x else []), *(_part(part, ids) for part in record.parts))
        return Message("user", parts, record.origin or "user", record.kind, record.at)  # type: ignore[arg-type]
    if record.t == "invent":
        return Message("user", (Text(record.x),), "agent", "notice")
    if record.t == "bot":
        return Message("assistant", tuple(_part(part, ids) for part in record.parts), "model", "", record.at)
    if record.t == "out":
        parts = (*([Text(record.x)] if record.x else []), *(_part(part, ids) for part in record.parts))
        return Message("tool", parts, "agent", "", record.at, call_id=record.id, is_error=record.err)
    return None


def _part(part: LinePart, ids: dict[str, str]) -> Part:
    if part.k == "call":
        if part.was is not None:
            ids[part.id] = part.was
        return Call(part.id, part.name, part.args)
    if part.k == "img":
        return Image(part.name, part.x, part.url)
    return Reasoning(part.x) if part.k == "think" else Text(part.x)


def _originals(normal: Normal, ids: dict[str, str]) -> tuple[tuple[Message, ...], tuple[int | None, ...]]:
    of = {id(message): record for message, record in zip(normal.messages, normal.created_by, strict=True)}
    messages: list[Message] = []
    created: list[int | None] = []
    for group in group_messages(normal.messages):
        for message in (group.head, *sort_results(group.head.calls, group.results)):
            parts = tuple(
                Call(ids.get(p.id, p.id), p.name, p.source) if isinstance(p, Call) else p for p in message.parts
            )
            messages.append(
                msgspec.structs.replace(message, parts=parts, call_id=ids.get(message.call_id, message.call_id))
            )
            created.append(of[id(message)])
    return tuple(messages), tuple(created)


def write(messages: Sequence[Message], options: WriteOptions) -> Written:
    """Writes a new session."""
    meta = LineRecord("meta", options.session_id, cwd=options.cwd, came=options.origin)
    lines = [_ENCODE(meta) + b"\n", *_lines(messages, CallIds())]
    return _written(options.session_id, options.session_id + ".lines", lines, messages)


def splice(prefix: Session, messages: Sequence[Message], options: WriteOptions) -> Written:
    """Appends lines."""
    streams = prefix.records.streams
    data = bytes(streams[-1].data)
    taken = re.findall(r'"id":"([^"]*)"', data.decode("utf-8", "replace"))
    gap = b"\n" if data and not data.endswith(b"\n") and messages else b""
    made = _written(prefix.id, streams[-1].path, [data, gap, *_lines(messages, CallIds(taken=taken))], messages)
    earlier = tuple(WrittenFile(s.path, lambda s=s: [s.data], s.mode) for s in streams[:-1])
    return msgspec.structs.replace(made, files=(*earlier, *made.files))


def rebase(session: Session, options: WriteOptions) -> Written:
    """Writes the same lines with another session id in the first."""
    data = bytes(session.records.streams[0].data)
    old, new = b'"id":' + _ENCODE(session.id), b'"id":' + _ENCODE(options.session_id)
    first, rest = data[: len(session.records[0])], data[len(session.records[0]) :]
    return _written(options.session_id, options.session_id + ".lines", [first.replace(old, new, 1), rest], ())


def _written(session_id: str, path: str, pieces: list[bytes], messages: Sequence[Message]) -> Written:
    reasoning = sum(isinstance(part, Reasoning) for message in messages for part in message.parts)
    losses = (Loss("reasoning blocks", reasoning),) if reasoning else ()
    return Written(session_id, (WrittenFile(path, lambda: pieces),), losses)


def _lines(messages: Sequence[Message], ids: CallIds) -> Iterator[bytes]:
    for group in group_messages(messages):
        waiting: dict[str, deque[str]] = {}
        head = group.head
        parts = tuple(_line_part(p, ids, waiting) for p in head.parts if not isinstance(p, Reasoning))
        if head.role == "user":
            origin = head.origin if head.origin != "user" else ""
            said = _CONTEXT.fullmatch(mend_surrogates(head.text)) is not None
            images = tuple(part for part in parts if part.k == "img")
            yield _line(
                LineRecord(
                    "user", "", mend_surrogates(head.text), "", images, None, head.time_ms, origin, head.kind, said
                )
            )
        else:
            yield _line(LineRecord("bot", parts=parts, at=head.time_ms))
        for result in group.results:
            given = waiting[result.call_id].popleft()
            images = tuple(_line_part(p, ids, waiting) for p in result.parts if isinstance(p, Image))
            yield _line(
                LineRecord("out", given, mend_surrogates(result.text), "", images, result.is_error, result.time_ms)
            )


def _line(record: LineRecord) -> bytes:
    return _ENCODE(record) + b"\n"


def _line_part(part: Part, ids: CallIds, waiting: dict[str, deque[str]]) -> LinePart:
    if isinstance(part, Call):
        given = ids.open_call(part.id)
        waiting.setdefault(part.id, deque()).append(given)
        was = part.id if given != part.id else None
        return LinePart("call", id=given, name=part.name, args=mend_surrogates(part.arguments), was=was)
    if isinstance(part, Image):
        return LinePart("img", part.data, name=part.media_type, url=part.url)
    return LinePart("text", mend_surrogates(part.text))


class LineLocate:
    """Sessions lie as `.lines/<id>.lines`."""

    def base(self, home: Home) -> Path:
        return home.root / ".lines"

    def places(self, home: Home) -> tuple[Path, ...]:
        return (self.base(home),)

    def find(self, home: Home) -> Iterator[Found]:
        for path in sorted(self.base(home).glob("*.lines")):
            facts = path.stat()
            yield Found(NAME, path.stem, path, (path,), (facts.st_mtime_ns, facts.st_size))

    def load(self, found: Found, home: Home) -> Source:
        with open_source(found.path) as opened:
            return Source((Stream(found.path.name, bytes(opened.data), opened.mode),), hint_id=found.id)

    def claims(self, path: Path, head: bytes) -> bool:
        return head.startswith(b'{"t":"meta"')

    def settings(self, home: Home) -> Settings:
        return Settings()


class LineResume:
    """Command lines of an agent that does not exist."""

    program = "lines"

    def argv(self, session_id: str, *, model: str = "", extra: tuple[str, ...] = ()) -> tuple[str, ...]:
        return ("lines", session_id, *extra)

    def fork_argv(self, session_id: str) -> tuple[str, ...]:
        return ()

    def owner(self, found: Found, home: Home) -> Owner | None:
        return None

    def owners(self, home: Home) -> Mapping[str, Owner]:
        return {}


FORMAT = Format(
    NAME,
    "Lines",
    Traits(record_kind="line", transport=NAME),
    read,
    LineLocate(),
    LineResume(),
    write,
    splice,
    rebase,
)
