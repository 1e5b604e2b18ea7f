"""Reads Gemini CLI's sessions: lines that are replayed, and the older documents.

Promised: every byte falls in exactly one record; whatever is in the file, a session comes out and what was odd is
reported. Each result counts once, however often the agent stored it: it writes every one twice, and again with each
resume.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import PurePosixPath

import msgspec

from clew.conversation.loss import Damage, Loss
from clew.conversation.model import Message
from clew.conversation.normal import Normal, NormalBuilder
from clew.conversation.source import Boundary, Branch, Ending, Records, Reference, Session, Source, Stream
from clew.formats.gemini.content import MODEL, USER, Content
from clew.formats.gemini.document import Frame, frame_document, is_document
from clew.formats.gemini.records import ODD_RECORDS, RECORDS, Record, decode_record, first_text, read_facts
from clew.formats.gemini.tracks import Entry, Tracks
from clew.formats.jsonl import JsonLines
from clew.formats.parts.values import NONE, as_text, is_object, read_items, read_mark, read_text
from clew.formats.settled import find_ending
from clew.formats.times import read_time

AGENT = "gemini"
_NOTHING = Record()
PROVIDER = "google"
_MANY_IDS = 64


def read(source: Source, since: Ending | None = None) -> Session:
    """Reads a session, or goes on from `since` where what was added does not reach back."""
    if since is not None:
        state = decode_state(since)
        if state is not None and len(source.streams) == 1 and since.offset > 0 and since.holds_for(source):
            try:
                return _Reading(source).take_up(since, state)
            except _ReachesBack:
                pass
    return _Reading(source).read_all()


class _ReachesBack(Exception):
    """What was added changes what was settled."""


class State(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the records before an ending said about the session."""

    id: str = ""
    cwd: str = ""
    title: str = ""
    model: str = ""
    provider: str = ""
    foreign: str = ""
    created_ms: int | None = None
    updated_ms: int | None = None
    helper: bool = False


_STATE = msgspec.json.Decoder(State).decode


def decode_state(ending: Ending) -> State | None:
    """Returns what an ending of ours carries, or None where it is not ours."""
    try:
        return _STATE(ending.state)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


class _Reading:
    """One reading: the state that the records build up."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.records = Records()
        self.damage: list[Damage] = []
        self.tracks = Tracks(self._is_silent)
        self.stream = source.streams[0] if source.streams else Stream("", b"")
        self.state = State(cwd=source.hint_cwd)
        self.since: Ending | None = None
        self.is_document = False
        self.has_header = False
        self.workspace = ""
        self.skipped: dict[str, int] = {}

    # --- the file -------------------------------------------------------------------------------------------

    def read_all(self) -> Session:
        """Reads every stream whole."""
        frame = None
        if is_document(memoryview(self.stream.data), self.stream.path):
            data = bytes(self.stream.data)
            frame = frame_document(data)
            if frame is not None:
                self._take_document(frame, data)
        if frame is None:
            growing = self.source.growing
            self._take_lines(
                JsonLines(self.records, self.stream, RECORDS, self.damage, growing=growing, slow=ODD_RECORDS)
            )
        for other in self.source.streams[1:]:
            self.records.add_stream(other).extend([0] if len(other.data) else [])
        if not self.has_header and self.tracks.now:
            self._report(0, "foreign record", "no header names the session; the agent would not read it", lost=False)
        return self._finish()

    def take_up(self, since: Ending, state: State) -> Session:
        """Reads what lies behind an ending; raises _ReachesBack."""
        self.since, self.state, self.has_header = since, state, True
        lines = JsonLines(
            self.records,
            self.stream,
            RECORDS,
            self.damage,
            growing=self.source.growing,
            start=since.offset,
            slow=ODD_RECORDS,
        )
        self._take_lines(lines)
        if len(self.tracks.now) > _MANY_IDS:
            raise _ReachesBack
        for name in self.tracks.now:
            if _occurs_before(self.stream, b'"id":' + msgspec.json.encode(name), since.offset):
                raise _ReachesBack
        return self._finish()

    def _take_lines(self, lines: JsonLines[Record]) -> None:
        for number, record in lines:
            if record is not None:
                self._take(record, number)

    def _take(self, record: Record, number: int) -> None:
        """Takes one record by the agent's own order of questions."""
        if isinstance(record.rewind_to, str):
            if self.since is not None:
                raise _ReachesBack
            self.tracks.step_back(record.rewind_to)
        elif isinstance(record.id, str):
            self.tracks.put(record.id, record, number)
        elif is_object(record.set_):
            facts = read_facts(record.set_)
            if facts is not None:
                self._take_facts(facts, number)
        elif isinstance(record.session_id, str) and isinstance(record.project_hash, str):
            self._take_facts(record, number, is_header=True)
        elif record.type in (USER, MODEL):
            self._report(number, "foreign record", "a message without an id; the agent leaves it out")

    def _take_facts(self, record: Record, number: int, *, is_header: bool = False) -> None:
        """Takes the header, or what a `$set` changes."""
        if not is_header and record == _NOTHING:
            return  # with each record the agent notes a time
        old = self.state
        self.has_header = self.has_header or is_header
        mark = read_mark(record.clew)
        named = first_text(record.directories)
        self.state = State(
            id=as_text(record.session_id) or old.id,
            cwd=named or old.cwd,
            title=read_text(record.summary) or old.title,
            model=old.model,
            provider=old.provider,
            foreign=(mark.from_ if mark is not None else "") or old.foreign,
            created_ms=old.created_ms,
            updated_ms=old.updated_ms,
            helper=record.kind == "subagent" or old.helper,
        )
        items = read_items(record.messages)
        if record.messages is NONE or memoryview(record.messages)[0] != 0x5B:
            return
        if self.since is not None:
            raise _ReachesBack
        found = [
            (r.id, r) for item in items if (r := decode_record(memoryview(item))) is not None and isinstance(r.id, str)
        ]
        if is_header:
            for name, item in found:
                self.tracks.put(name, item, number)
        else:
            self.tracks.replace(found, number)

    def _take_document(self, frame: Frame, data: bytes) -> None:
        self.is_document = True
        self.records.add_stream(self.stream).extend(frame.starts(len(data)))
        members = (b'"' + name.encode() + b'":' + data[a:b] for name, (a, b) in frame.facts.items() if name.isascii())
        facts = decode_record(b"{" + b",".join(members) + b"}")
        if facts is not None:
            self._take_facts(facts, 0, is_header=isinstance(facts.session_id, str))
        for number, (begin, end) in enumerate(frame.elements, 1):
            record = decode_record(data[begin:end])
            if record is None:
                self._report(number, "foreign record", "not an object", offset=begin)
            else:
                self.tracks.add(record, number)
        if not frame.sound:
            growing = self.source.growing
            rest = frame.closed < len(data)
            sort = "still being written" if growing else "torn tail"
            self._report(len(self.records) - 1, sort, offset=frame.closed, lost=rest and not growing)

    def _report(self, record: int, sort: str, detail: str = "", *, offset: int = -1, lost: bool = True) -> None:
        if offset < 0:
            offset = self.records.place(record)[1] if len(self.records) else 0
        self.damage.append(Damage(self.stream.path, record, offset, sort, detail, lost=lost))

    # --- messages -------------------------------------------------------------------------------------------

    def _is_silent(self, record: Record) -> bool:
        said = Content().of(Entry(record, 0))
        return not any(message.says_something for message, _ in said)

    def _say(self, entries: Iterable[Entry], *, whole: bool = False) -> Normal:
        said = Content(self.stream)
        builder = NormalBuilder(said.speech.renamed)
        for entry in entries:
            for message, stamp in said.of(entry):
                builder.add(message, stamp)
        if whole:
            self.workspace = said.workspace
            self.skipped = said.speech.skipped
        return builder.finish()

    def _finish(self) -> Session:
        tracks = self.tracks
        normal = self._say(tracks.now.values(), whole=True)
        if self.since is not None and (normal.strays or any(d.lost for d in self.damage)):
            raise _ReachesBack
        for stray in normal.strays:
            detail = f"a result for the call {stray.call_id!r}, which is not open here"
            self._report(stray.record or 0, "stray result", detail)
        full = tracks.full
        history = self._say(full).messages if tracks.boundaries else normal.messages
        self._note(full, history)
        state = self.state
        return Session(
            agent=AGENT,
            id=state.id or self.source.hint_id,
            messages=normal.messages,
            created_by=normal.created_by,
            records=self.records,
            history=history,
            boundaries=tuple(Boundary(self._place(full, at)) for at in tracks.boundaries),
            branches=self._branches(full),
            side=self.source.side,
            cwd=state.cwd or self.workspace,
            title=state.title,
            model=state.model,
            provider=state.provider,
            created_ms=state.created_ms,
            updated_ms=state.updated_ms,
            damage=tuple(self.damage),
            losses=tuple(Loss(what, count) for what, count in sorted(self.skipped.items())),
            references=self._references(),
            helper=state.helper,
            foreign=state.foreign,
            stable_first=self._stable_first(),
            ending=None if self.is_document else find_ending(normal, self.records, self._encoded(), self.since),
            continues=self.since,
        )

    def _encoded(self) -> bytes:
        return msgspec.json.encode(self.state)

    def _stable_first(self) -> memoryview | bytes:
        """A document's head is written anew with each turn; the first line of a file is not."""
        return b"" if self.is_document or self.since is not None or not len(self.records) else self.records[0]

    def _note(self, entries: list[Entry], history: tuple[Message, ...]) -> None:
        """Notes the model that spoke last, and when the conversation began and ended."""
        state = self.state
        model, provider = state.model, state.provider
        for entry in entries:
            record = entry.record
            if record.type == MODEL:
                model = as_text(record.model) or model
                provider = PROVIDER if is_object(record.tokens) else provider
        times = [message.time_ms for message in history if message.time_ms is not None]
        created = state.created_ms if state.created_ms is not None or not times else times[0]
        updated = state.updated_ms
        if times:
            spoken = (entry.record for entry in reversed(entries) if entry.record.type in (USER, MODEL))
            updated = next((at for record in spoken if (at := read_time(record.timestamp)) is not None), updated)
        self.state = msgspec.structs.replace(
            state, model=model, provider=provider, created_ms=created, updated_ms=updated
        )

    def _place(self, full: list[Entry], at: int) -> int:
        return len(self._say(full[:at]).messages)

    def _branches(self, full: list[Entry]) -> tuple[Branch, ...]:
        found: list[Branch] = []
        for at, entries in self.tracks.gone:
            messages = self._say(entries).messages
            if messages:
                found.append(Branch(len(found) + 1, self._place(full, at), messages))
        return tuple(found)

    def _references(self) -> tuple[Reference, ...]:
        path = PurePosixPath(self.stream.path)
        if self.state.helper and path.parent.parent.name == "chats":
            return (Reference("helper_of", path.parent.name),)
        names = (PurePosixPath(file.path) for file in self.source.side)
        return tuple(Reference("helper", name.stem) for name in names if name.parent.parent.name == "chats")


def last_calls(stream: Stream, hint_id: str) -> tuple[frozenset[str], tuple[tuple[str, str], ...]]:
    """Returns for a writer that goes on behind a file: all call ids in it, and id and name of the calls left open."""
    reading = _Reading(Source((stream,), hint_id=hint_id))
    reading.read_all()
    content = Content()
    for entry in reading.tracks.now.values():
        content.of(entry)
    return content.ids, content.open_calls


_PIECE = 16 << 20


def _occurs_before(stream: Stream, needle: bytes, end: int) -> bool:
    """Tells whether `needle` stands anywhere in the first `end` bytes of a stream."""
    view = memoryview(stream.data)
    over = len(needle)
    return any(needle in bytes(view[at : min(at + _PIECE + over, end)]) for at in range(0, end, _PIECE))
