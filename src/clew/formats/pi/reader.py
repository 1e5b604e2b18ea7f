"""Reads a pi session: bytes to conversation, total, and without decoding what nobody looks at.

One pass over the lines gives the entries, `tree` their path, `content` what each says. Context of pi (system messages
with prompt and tools, settings, labels, usage) is left out; summaries, commands run by hand and messages of extensions
are messages of origin agent. Everything odd is reported with record and offset; nothing here raises on any bytes.
"""

from __future__ import annotations

import ntpath
from collections.abc import Iterable, Iterator

import msgspec

from clew.conversation.groups import head_positions
from clew.conversation.loss import Damage, Loss
from clew.conversation.model import Message
from clew.conversation.normal import Normal, NormalBuilder
from clew.conversation.source import (
    Boundary,
    Branch,
    Ending,
    Records,
    Reference,
    Session,
    Source,
    Stream,
    digest_bytes,
)
from clew.formats import raws, unmark
from clew.formats.jsonl import JsonLines
from clew.formats.pi import records as rec
from clew.formats.pi.content import BROKEN_OFF, Content
from clew.formats.pi.folder import id_in_name
from clew.formats.pi.tree import Tree, Twig, grow_tree
from clew.formats.uncollected import uncollected

AGENT = "pi"
_PIECE = 16 << 20


class State(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a reading that goes on must know of what lies before: the entry before the last group, and the session."""

    hint: str = ""
    own: str = ""
    before: str = ""
    cwd: str = ""
    title: str = ""
    model: str = ""
    provider: str = ""
    foreign: str = ""
    created_ms: int | None = None


_STATE = msgspec.json.Decoder(State).decode


def read(source: Source, since: Ending | None = None) -> Session:
    """Reads a session whole, or from `since` on where the file has only grown by a plain continuation."""
    with uncollected():
        continued = _read_on(source, since) if since is not None else None
        return continued if continued is not None else _read_whole(source)


class _Reading:
    """One reading under way: the file's entries, where they lie, and what the bookkeeping says."""

    def __init__(self, source: Source, start: int = 0) -> None:
        self.source = source
        self.records = Records()
        self.damage: list[Damage] = []
        self.stream = source.streams[0] if source.streams else Stream("", b"")
        self.header: rec.Entry | None = None
        self.entries: list[rec.Entry] = []
        self.numbers: list[int] = []
        self.lines: list[int] = []
        self.title: str | None = None
        self.content = Content()
        self._scan(start)
        self.layout = self._layout() if not start else rec.LAYOUT
        self.tree: Tree = grow_tree(self.entries, self.layout)

    def _scan(self, start: int) -> None:
        lines = JsonLines(
            self.records,
            self.stream,
            rec.ENTRIES,
            self.damage,
            growing=self.source.growing,
            start=start,
            slow=rec.ODD_ENTRIES,
        )
        entries, numbers, at = self.entries, self.numbers, self.lines
        for number, entry in lines:
            if entry is None:
                continue
            if entry.type == "session":
                if self.header is None:
                    self.header = entry
                continue
            if entry.type == "session_info":
                self.title = raws.as_word(entry.name).strip()
            entries.append(entry)
            numbers.append(number)
            at.append(lines.line)

    def _layout(self) -> int:
        header = self.header
        if header is None:
            if self.entries:
                self._report(0, "no header", "pi itself does not open a session without one", lost=False)
                return rec.LAYOUT
            return 1
        version = header.version
        if not isinstance(version, int) or isinstance(version, bool):
            return 1
        if version > rec.LAYOUT:
            self._report(0, "newer layout", f"version {version} is read as version {rec.LAYOUT}", lost=True)
        return version

    def _report(self, at: int, sort: str, detail: str, *, lost: bool) -> None:
        record = self.numbers[at] if at < len(self.numbers) else 0
        line = self.lines[at] if at < len(self.lines) else 1
        offset = self.records.place(record)[1] if len(self.records) else 0
        self.damage.append(Damage(self.stream.path, record, offset, sort, detail, line, lost))

    def report_tree(self, strays: Iterable[int], ids: dict[int, str]) -> None:
        """Adds what is odd in the tree, and results without a call, to the damage."""
        for at in self.tree.broken:
            self._report(
                at, "broken link", "its parent is not in this file; it follows the entry before it", lost=False
            )
        for at in self.tree.repeated:
            self._report(at, "repeated record", "its id stands again later in this file; it counts there", lost=False)
        places = {number: at for at, number in enumerate(self.numbers)}
        for record in strays:
            detail = f"a result for the call {ids[record]!r}, which is not open here"
            self._report(places[record], "stray result", detail, lost=True)
        self.damage.sort(key=lambda d: (d.record, d.offset))


def _read_whole(source: Source) -> Session:
    reading = _Reading(source)
    tree = reading.tree
    kept: dict[int, Message | None] = {}
    history = _say(reading, tree.path, kept)
    is_whole = not tree.cuts and not any(_changes_context(reading.entries[at]) for at in tree.path)
    context = history if is_whole else _context(reading, kept)
    strays = {s.record: s.call_id for s in (*history.strays, *context.strays) if s.record is not None}
    reading.report_tree(strays, strays)
    session = _session(reading, context, history, _branches(reading, history))
    return msgspec.structs.replace(session, ending=_ending(reading, session, None))


def _changes_context(entry: rec.Entry) -> bool:
    """Tells whether what is sent differs from what was said because of this entry."""
    if entry.type == "context_edit":
        return True
    return entry.message is not None and entry.message.stop_reason in BROKEN_OFF


def _say(reading: _Reading, numbers: Iterable[int], kept: dict[int, Message | None]) -> Normal:
    """Returns the normal form of what these entries say, in this order; `kept` remembers it."""
    builder = NormalBuilder()
    release, heard = reading.stream.release, 0
    for at in numbers:
        entry = reading.entries[at]
        message = kept[at] = reading.content.message(entry)
        if message is not None:
            builder.add(message, reading.numbers[at])
        if release is not None and entry.message is not None:
            heard += len(memoryview(entry.message.content))
            if heard > _PIECE:
                release()
                heard = 0
    return unmark.with_originals(builder.finish(), reading.content.renamed)


def _context(reading: _Reading, kept: dict[int, Message | None]) -> Normal:
    """Returns the normal form of what a resume sends."""
    entries = reading.entries
    edits = {
        entries[at].target_id: entries[at].replacement
        for at in reading.tree.context
        if entries[at].type == "context_edit" and isinstance(entries[at].target_id, str)
    }
    builder = NormalBuilder()
    for place, at in enumerate(reading.tree.context):
        entry, message = entries[at], kept.get(at)
        if message is None or (entry.type == "compaction" and place):
            continue
        if entry.message is not None and entry.message.role == "assistant" and entry.message.stop_reason in BROKEN_OFF:
            continue
        if edits and isinstance(entry.id, str) and entry.id in edits and _may_be_edited(entry):
            content = rec.read_replacement(edits[entry.id])
            message = reading.content.message(entry, content) if content is not None else None
            if message is None:
                continue
        builder.add(message, reading.numbers[at])
    return unmark.with_originals(builder.finish(), reading.content.renamed)


def _may_be_edited(entry: rec.Entry) -> bool:
    if entry.type == "custom_message":
        return True
    return entry.message is not None and entry.message.role in ("user", "assistant", "toolResult", "custom")


def _branches(reading: _Reading, history: Normal) -> tuple[Branch, ...]:
    """Returns what was said beside the path; each says behind which message of the history it hangs."""
    twigs = reading.tree.twigs
    if not twigs:
        return ()
    place = {reading.numbers[at]: position for position, at in enumerate(reading.tree.path)}
    order = [place.get(record, -1) if record is not None else -1 for record in history.created_by]
    branches: list[Branch] = []
    for twig in twigs:
        said = _say(reading, twig.entries, {}).messages
        if said:
            branches.append(Branch(len(branches) + 1, _position(reading.tree, twig, history, order), said))
    return tuple(branches)


def _position(tree: Tree, twig: Twig, history: Normal, order: list[int]) -> int:
    if twig.at < 0:
        return 0
    limit = tree.path.index(twig.at)
    at = sum(1 for place in order if place <= limit)
    while at < len(history.messages) and history.messages[at].role == "tool":
        at += 1
    return at


def _session(
    reading: _Reading, context: Normal, history: Normal, branches: tuple[Branch, ...], state: State | None = None
) -> Session:
    source, header = reading.source, reading.header
    known = state or State()
    own = raws.as_word(header.id) if header is not None else known.own
    times = [m.time_ms for m in history.messages if m.time_ms is not None]
    created = known.created_ms if known.created_ms is not None else (times[0] if times else None)
    model, provider = _last_model(reading)
    return Session(
        agent=AGENT,
        id=own or source.hint_id,
        messages=context.messages,
        created_by=context.created_by,
        records=reading.records,
        history=history.messages,
        boundaries=_boundaries(reading, history),
        branches=branches,
        side=source.side,
        cwd=raws.as_word(header.cwd) if header is not None else known.cwd or source.hint_cwd,
        title=reading.title if reading.title is not None else known.title,
        model=model or known.model,
        provider=provider or known.provider,
        created_ms=created,
        updated_ms=times[-1] if times else created,
        damage=tuple(reading.damage),
        losses=tuple(Loss(what, count) for what, count in sorted(reading.content.skipped.items())),
        references=_references(header),
        foreign=_foreign(reading) or known.foreign,
        stable_first=bytes(reading.records[0]) if len(reading.records) and state is None else b"",
    )


def _last_model(reading: _Reading) -> tuple[str, str]:
    """Returns the last model that answered on the path and who served it; else the one that was chosen."""
    chosen = ("", "")
    for at in reversed(reading.tree.path):
        entry = reading.entries[at]
        if entry.message is not None and entry.message.role == "assistant" and isinstance(entry.message.model, str):
            return entry.message.model, raws.as_word(entry.message.provider)
        if entry.type == "model_change" and chosen == ("", ""):
            chosen = (raws.as_word(entry.model_id), raws.as_word(entry.provider))
    return chosen


def _foreign(reading: _Reading) -> str:
    for at in reading.tree.path:
        raw = reading.entries[at].clew
        mark = unmark.read_mark(raw) if raw is not raws.NONE else None
        if mark is not None and mark.from_:
            return mark.from_
    return ""


def _references(header: rec.Entry | None) -> tuple[Reference, ...]:
    parent = raws.as_word(header.parent_session) if header is not None else ""
    return (Reference("forked", id_in_name(ntpath.basename(parent))),) if parent else ()


def _boundaries(reading: _Reading, history: Normal) -> tuple[Boundary, ...]:
    tree = reading.tree
    if not tree.cuts:
        return ()
    place = {reading.numbers[at]: position for position, at in enumerate(tree.path)}
    order = [place.get(record, -1) if record is not None else -1 for record in history.created_by]
    return tuple(Boundary(sum(1 for at in order if at < cut)) for cut in tree.cuts)


# --- going on ---------------------------------------------------------------------------------------------------------


def _read_on(source: Source, since: Ending) -> Session | None:
    """Reads what lies behind `since`; None where that is no plain continuation of what lay before."""
    try:
        state = _STATE(since.state)
    except msgspec.DecodeError:
        return None
    if not source.streams or since.offset <= 0 or source.hint_id != state.hint or not since.holds_for(source):
        return None
    reading = _Reading(source, since.offset)
    if not _is_plain(reading, state) or (reading.damage and not source.growing):
        return None
    said = _say(reading, reading.tree.path, {})
    if said.strays:
        return None
    session = msgspec.structs.replace(_session(reading, said, said, (), state), continues=since)
    return msgspec.structs.replace(session, ending=_ending(reading, session, since))


def _is_plain(reading: _Reading, state: State) -> bool:
    """Tells whether the entries behind an ending form one row that begins where the settled part ended."""
    before: str | None = state.before or None
    for entry in reading.entries:
        if entry.parent_id != before or not isinstance(entry.id, str) or entry.type == "compaction":
            return False
        if _changes_context(entry):
            return False
        before = entry.id
    return bool(reading.entries) and reading.header is None


def _ending(reading: _Reading, session: Session, since: Ending | None) -> Ending | None:
    """Returns where the last group begins, or None where what follows could not be read alone."""
    tree, heads = reading.tree, head_positions(session.messages)
    record = session.created_by[heads[-1]] if heads else None
    if record is None or reading.layout < 2 or tree.broken or tree.repeated:
        return None
    first = reading.numbers.index(record)
    place = len(tree.path) - (len(reading.entries) - first)
    if place < 0 or tree.path[place:] != list(range(first, len(reading.entries))):
        return None
    row = reading.entries[first:]
    if any(not isinstance(e.id, str) or e.type == "compaction" or _changes_context(e) for e in row):
        return None
    if any(at >= first for at in tree.path[:place]):
        return None
    before = raws.as_word(reading.entries[tree.path[place - 1]].id) if place else ""
    old = _STATE(since.state) if since is not None else None
    if not before and old is not None:
        before = old.before
    offset = session.records.place(record)[1]
    state = State(
        hint=reading.source.hint_id,
        own=session.id,
        before=before,
        cwd=session.cwd,
        title=session.title,
        model=session.model,
        provider=session.provider,
        foreign=session.foreign,
        created_ms=session.created_ms,
    )
    return Ending(
        path=reading.stream.path,
        offset=offset,
        digest=digest_bytes(_pieces(reading.stream, offset)),
        records=record + (since.records - 1 if since is not None else 0),
        messages=heads[-1] + (since.messages if since is not None else 0),
        groups=len(heads) - 1 + (since.groups if since is not None else 0),
        state=msgspec.json.encode(state),
    )


def _pieces(stream: Stream, end: int) -> Iterator[memoryview]:
    view = memoryview(stream.data)
    for start in range(0, end, _PIECE):
        yield view[start : min(start + _PIECE, end)]
        if stream.release is not None:
            stream.release()
