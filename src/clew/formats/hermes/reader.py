"""Reads a session of Hermes: its rows, in the export form.

Promised: every byte falls in exactly one record; whatever is in them, a session comes out and what was odd is
reported. The effective context is what the agent itself would send: rows that are active, without replies that a
later one replaced and without what its own review left behind. The full history has what was compacted, once; what
was taken back is a branch.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence

from blake3 import blake3

from clew.conversation.loss import Damage, Loss
from clew.conversation.normal import Normal, NormalBuilder
from clew.conversation.source import Boundary, Branch, Ending, Records, Reference, Session, Source
from clew.formats import unmark
from clew.formats.hermes import records as rec
from clew.formats.hermes.content import Content, Entry
from clew.formats.hermes.database import MESSAGE_MARK, SESSION_MARK
from clew.formats.jsonl import JsonLines
from clew.formats.outline import RecordMark

AGENT = "hermes"


class Stored:
    """The rows of one source, cut into records and taken apart."""

    def __init__(self, source: Source) -> None:
        self.records = Records()
        self.damage: list[Damage] = []
        self.entries: list[Entry] = []
        self.facts = rec.Columns()
        self.mark: RecordMark | None = None
        self._marks: dict[str, RecordMark] = {}
        self._known: set[float] = set()
        for stream in source.streams:
            for number, line in JsonLines(self.records, stream, rec.LINE, self.damage, growing=source.growing):
                if line is not None:
                    self._take(number, line)
        for entry in self.entries:
            if entry.id is not None:
                entry.mark = self._marks.get(f"{MESSAGE_MARK}{int(entry.id)}")

    def _take(self, number: int, line: rec.Line) -> None:
        row = line.row
        if line.table == "sessions":
            self.facts = row
        elif line.table == "state_meta":
            self._note(row)
        elif line.table == "messages":
            id_, role = rec.number_in(row.id), rec.word_in(row.role)
            if id_ is not None and id_ in self._known:
                return  # the same row a second time: the first one counts
            if not role:
                stream, start, _ = self.records.place(number)
                self.damage.append(Damage(stream.path, number, start, "unreadable row"))
                return
            self._known.add(id_ or 0)
            active, compacted = bytes(row.active) != b"0", bytes(row.compacted) == b"1"
            self.entries.append(Entry(id_, role, row, number, active, compacted))

    def _note(self, row: rec.Columns) -> None:
        key = rec.word_in(row.key)
        if not key.startswith((SESSION_MARK, MESSAGE_MARK)):
            return
        raw = rec.json_in(row.value)
        mark = unmark.read_mark(raw) if raw is not rec.NONE else None
        if mark is not None and key.startswith(SESSION_MARK):
            self.mark = mark
        elif mark is not None:
            self._marks[key] = mark


def read(source: Source, since: Ending | None = None) -> Session:
    """Reads a session. Rows change in place, so that a reading is never taken up again: `since` is passed over."""
    del since
    stored, content = Stored(source), Content()
    told, sent = _told(stored.entries), _in_context(stored.entries)
    effective = _normal(sent, content)
    plain = [entry.record for entry in told] == [entry.record for entry in sent]
    full = effective if plain else _normal(told, Content())
    for stray in effective.strays:
        if stray.record is not None:
            stream, start, _ = stored.records.place(stray.record)
            stored.damage.append(Damage(stream.path, stray.record, start, "stray result", stray.call_id))
    facts = stored.facts
    parent = rec.word_in(facts.parent_session_id)
    relation = relation_of(rec.word_in(facts.source), rec.word_in(facts.model_config), parent)
    return Session(
        agent=AGENT,
        id=rec.word_in(facts.id) or source.hint_id,
        messages=effective.messages,
        created_by=effective.created_by,
        records=stored.records,
        history=full.messages,
        boundaries=_boundaries(stored.entries, full),
        branches=_branches(stored.entries, full),
        side=source.side,
        cwd=rec.word_in(facts.cwd) or source.hint_cwd,
        title=rec.word_in(facts.title),
        model=rec.word_in(facts.model),
        provider=rec.word_in(facts.billing_provider),
        created_ms=_first_time(told),
        updated_ms=_first_time(reversed(told)),
        damage=tuple(stored.damage),
        losses=tuple(Loss(what, count) for what, count in content.skipped.items()),
        references=(Reference(relation, parent),) if parent else (),
        helper=relation == "helper_of",
        foreign=stored.mark.from_ if stored.mark is not None else "",
    )


def _first_time(entries: Iterable[Entry]) -> int | None:
    return next((time for entry in entries if (time := rec.time_in(entry.row.timestamp)) is not None), None)


def relation_of(source: str, model_config: str, parent: str) -> str:
    """Returns what a session with a parent is of it: a helper, or a fork (so is what goes on after a compaction)."""
    if parent and (source == "tool" or '"_delegate_from"' in model_config):
        return "helper_of"
    return "forked"


def _normal(entries: Iterable[Entry], content: Content) -> Normal:
    builder = NormalBuilder(content.renamed)
    for entry in entries:
        message = content.message(entry)
        if message is not None:
            builder.add(message, entry.record)
    return builder.finish()


def _in_context(entries: Sequence[Entry]) -> list[Entry]:
    """Returns the rows that the agent sends."""
    kept: list[Entry] = []
    reviewed = False
    for entry in entries:
        if not entry.is_active or entry.role not in ("user", "assistant", "tool"):
            continue
        if entry.is_review:
            reviewed = True
            continue
        if reviewed and entry.role == "assistant":
            reviewed = False
            continue
        reviewed = False
        if entry.role == "assistant" and kept and kept[-1].is_superseded:
            kept.pop()
        kept.append(entry)
    return kept


def _told(entries: Sequence[Entry]) -> list[Entry]:
    """Returns the rows of the full history: what a compaction copied behind its summary is there once.

    A copy has the time of its original; the prompt that was waiting while the agent compacted gets a new one.
    """
    shown = [entry for entry in entries if entry.is_active or entry.is_compacted]
    if not any(entry.is_compacted for entry in shown):
        return shown
    kept: list[Entry] = []
    seen: set[tuple[str, ...]] = set()
    waiting: tuple[str, ...] = ()
    for entry in shown:
        said = _said(entry)
        stamped = (*said, str(rec.time_in(entry.row.timestamp)))
        if stamped in seen or (entry.role == "user" and said == waiting):
            continue
        seen.add(stamped)
        kept.append(entry)
        if not entry.is_summary:
            waiting = said if entry.role == "user" else ()
    return kept


def _said(entry: Entry) -> tuple[str, ...]:
    """Returns what a row says, without the blanks around it: the agent drops them when it copies."""
    row = entry.row
    text = rec.word_in(row.content).strip()
    digest = blake3(text.encode("utf-8", "replace")).hexdigest()
    return entry.role, digest, rec.word_in(row.tool_call_id), rec.word_in(row.tool_calls)


def _place(told: Normal, record: int) -> int:
    """Returns how many messages of the full history stand before a record."""
    return bisect_left(told.created_by, record, key=lambda found: -1 if found is None else found)


def _boundaries(entries: Sequence[Entry], told: Normal) -> tuple[Boundary, ...]:
    """Returns where in the full history what was compacted ends."""
    last = max((entry.record for entry in entries if entry.is_compacted), default=None)
    place = _place(told, last + 1) if last is not None else 0
    return (Boundary(place),) if place else ()


def _branches(entries: Sequence[Entry], told: Normal) -> tuple[Branch, ...]:
    """Returns what was taken back, each run of it at its place in the full history."""
    found: list[Branch] = []
    run: list[Entry] = []
    for entry in (*entries, None):
        if entry is not None and not entry.is_active and not entry.is_compacted:
            run.append(entry)
        elif run:
            messages = _normal(run, Content()).messages
            found += [Branch(len(found) + 1, _place(told, run[0].record), messages)] if messages else []
            run = []
    return tuple(found)
