"""Reads a Droid session: bytes to conversation, total, and without decoding what nobody looks at.

Droid sends the messages in the order of the file; of compactions the last counts, with what follows the message that
it names. Everything odd is reported with record and offset; nothing here raises on any bytes.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from clew.conversation.loss import Damage, Loss
from clew.conversation.model import Message
from clew.conversation.normal import Normal, NormalBuilder
from clew.conversation.source import Boundary, Ending, Records, Reference, Session, Source, Stream
from clew.formats import raws, unmark
from clew.formats.droid import records as rec
from clew.formats.droid.content import Content, answered_ids
from clew.formats.jsonl import JsonLines
from clew.formats.settled import find_ending
from clew.formats.uncollected import uncollected

AGENT = "droid"
_RELEASE_EVERY = 16 << 20


class State(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a reading that goes on must know of the session."""

    hint: str = ""
    own: str = ""
    cwd: str = ""
    title: str = ""
    model: str = ""
    foreign: str = ""
    created_ms: int | None = None
    helper: bool = False


_STATE = msgspec.json.Decoder(State).decode


def read(source: Source, since: Ending | None = None) -> Session:
    """Reads a session whole, or from `since` on where the file has only grown by a plain continuation."""
    with uncollected():
        continued = _read_on(source, since) if since is not None else None
        return continued if continued is not None else _read_whole(source)


class _Reading:
    """One reading under way: the file's records that count, and where they lie."""

    def __init__(self, source: Source, start: int = 0) -> None:
        self.source = source
        self.records = Records()
        self.damage: list[Damage] = []
        self.stream = source.streams[0] if source.streams else Stream("", b"")
        self.header: rec.Record | None = None
        self.rows: list[rec.Record] = []
        self.numbers: list[int] = []
        self.lines: list[int] = []
        self.content = Content()
        self.foreign = ""
        lines = JsonLines(
            self.records,
            self.stream,
            rec.RECORDS,
            self.damage,
            growing=source.growing,
            start=start,
            slow=rec.ODD_RECORDS,
        )
        for number, record in lines:
            if record is None:
                continue
            if record.type == "session_start":
                self.header = record
                self._check_layout(record, number, lines.line)
            elif record.type in ("message", "compaction_state"):
                self.rows.append(record)
                self.numbers.append(number)
                self.lines.append(lines.line)
        if self.header is None and self.rows and not start:
            self._report(0, "no header", "Droid itself does not open a session without one", lost=False)

    def _check_layout(self, record: rec.Record, number: int, line: int) -> None:
        version = record.version
        if isinstance(version, int) and not isinstance(version, bool) and version > rec.LAYOUT:
            detail = f"version {version} is read as version {rec.LAYOUT}"
            offset = self.records.place(number)[1]
            self.damage.append(Damage(self.stream.path, number, offset, "newer layout", detail, line))

    def _report(self, at: int, sort: str, detail: str, *, lost: bool) -> None:
        record = self.numbers[at]
        offset = self.records.place(record)[1]
        self.damage.append(Damage(self.stream.path, record, offset, sort, detail, self.lines[at], lost))

    def report_strays(self, strays: dict[int, str]) -> None:
        """Adds results without a call to the damage."""
        places = {number: at for at, number in enumerate(self.numbers)}
        for record, call_id in strays.items():
            detail = f"a result for the call {call_id!r}, which is not open here"
            self._report(places[record], "stray result", detail, lost=True)
        self.damage.sort(key=lambda d: (d.record, d.offset))

    def say(self, rows: Iterable[int], kept: dict[int, list[Message]]) -> Normal:
        """Returns the normal form of what these rows say, in this order; `kept` has what was read already."""
        builder = NormalBuilder()
        release, heard = self.stream.release, 0
        for at in rows:
            row = self.rows[at]
            found = kept.get(at)
            if found is None:
                found = kept[at] = self.content.messages(row)
                if not self.foreign and row.clew is not raws.NONE:
                    mark = unmark.read_mark(row.clew)
                    self.foreign = mark.from_ if mark is not None else ""
                if release is not None and row.message is not None:
                    heard += len(memoryview(row.message.content))
                    if heard > _RELEASE_EVERY:
                        release()
                        heard = 0
            for message in found:
                builder.add(message, self.numbers[at])
        return unmark.with_originals(builder.finish(), self.content.renamed)


def _read_whole(source: Source) -> Session:
    reading = _Reading(source)
    kept: dict[int, list[Message]] = {}
    history = reading.say(range(len(reading.rows)), kept)
    cuts = [at for at, row in enumerate(reading.rows) if row.type == "compaction_state"]
    context = history if not cuts else reading.say(_context(reading, cuts), kept)
    strays = {s.record: s.call_id for s in history.strays if s.record is not None}
    reading.report_strays(strays)
    session = _session(reading, context, history)
    if cuts:
        places = [reading.numbers[cut] for cut in cuts]
        boundaries = [Boundary(sum(1 for r in history.created_by if r is not None and r < p)) for p in places]
        session = msgspec.structs.replace(session, boundaries=tuple(boundaries))
    return msgspec.structs.replace(session, ending=find_ending(context, reading.records, _state(reading, session)))


def _context(reading: _Reading, cuts: list[int]) -> list[int]:
    """Returns the rows that a resume sends: the last summary, then the messages behind the one that it names.

    A result never comes first: the agent moves on to the message behind it.
    """
    cut = cuts[-1]
    rows = [at for at, row in enumerate(reading.rows) if row.type == "message"]
    anchor = rec.ANCHORS.one(reading.rows[cut].anchor_message)
    place = -1
    if anchor is not None and isinstance(anchor.id, str) and anchor.id:
        place = next((n for n, at in enumerate(rows) if reading.rows[at].id == anchor.id), -1)
    elif anchor is not None and isinstance(anchor.index, int) and -1 <= anchor.index < len(rows):
        place = anchor.index
    elif anchor is None:
        place = sum(1 for at in rows if at < cut) - 1
    place += 1
    while place < len(rows) and _has_results(reading.rows[rows[place]]):
        place += 1
    return [cut, *rows[place:]]


def _has_results(row: rec.Record) -> bool:
    return row.message is not None and row.message.role == "user" and bool(answered_ids(row.message.content))


def _session(reading: _Reading, context: Normal, history: Normal, state: State | None = None) -> Session:
    source, header = reading.source, reading.header
    known = state or State()
    times = [m.time_ms for m in history.messages if m.time_ms is not None]
    created = known.created_ms if known.created_ms is not None else (times[0] if times else None)
    title = known.title if header is None else raws.as_word(header.title) or raws.as_word(header.session_title)
    return Session(
        agent=AGENT,
        id=(raws.as_word(header.id) if header is not None else known.own) or source.hint_id,
        messages=context.messages,
        created_by=context.created_by,
        records=reading.records,
        history=history.messages,
        side=source.side,
        cwd=(raws.as_word(header.cwd) if header is not None else known.cwd) or source.hint_cwd,
        title=title,
        model=reading.content.model or known.model,
        created_ms=created,
        updated_ms=times[-1] if times else created,
        damage=tuple(reading.damage),
        losses=tuple(Loss(what, count) for what, count in sorted(reading.content.skipped.items())),
        references=_references(header),
        helper=bool(header is not None and header.calling_session_id) or known.helper,
        foreign=reading.foreign or known.foreign,
        stable_first=b"",  # the first record is rewritten when the title changes
    )


def _references(header: rec.Record | None) -> tuple[Reference, ...]:
    if header is None:
        return ()
    caller, parent = raws.as_word(header.calling_session_id), raws.as_word(header.parent)
    if caller:
        return (Reference("helper_of", caller),)
    return (Reference("forked", parent),) if parent else ()


def _state(reading: _Reading, session: Session) -> bytes:
    state = State(
        hint=reading.source.hint_id,
        own=session.id,
        cwd=session.cwd,
        title=session.title,
        model=session.model,
        foreign=session.foreign,
        created_ms=session.created_ms,
        helper=session.helper,
    )
    return msgspec.json.encode(state)


def _read_on(source: Source, since: Ending) -> Session | None:
    """Reads what lies behind `since`; None where that is no plain continuation of what lay before."""
    try:
        state = _STATE(since.state)
    except msgspec.DecodeError:
        return None
    if not source.streams or since.offset <= 0 or source.hint_id != state.hint or not since.holds_for(source):
        return None
    reading = _Reading(source, since.offset)
    if reading.header is not None or (reading.damage and not source.growing):
        return None
    if any(row.type == "compaction_state" for row in reading.rows):
        return None
    said = reading.say(range(len(reading.rows)), {})
    if said.strays or not said.messages:
        return None
    session = msgspec.structs.replace(_session(reading, said, said, state), continues=since)
    ending = find_ending(said, reading.records, _state(reading, session), since)
    return msgspec.structs.replace(session, ending=ending)
