"""Journals between the store's rows and the journal's values: opened, repaired, appended to at the owner's fence.

Promises: what `append` returns from is durable; nothing is appended at another fence than the session's present one; a
journal of a newer clew is neither written nor deleted, its sibling is used. Sends nothing and decides nothing about
leases.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager

import msgspec

from clew.journal.crash import settle_crash
from clew.journal.opening import (
    Corrupt,
    New,
    Opening,
    Readable,
    ReadOnly,
    Repair,
    Report,
    classify,
    plan_new,
    plan_repair,
    plan_sibling,
    sibling_name,
    with_known_end,
)
from clew.journal.rows import (
    PENDING_HANDLE,
    Body,
    Checkpoint,
    Cursor,
    Item,
    JournalIdentity,
    Malformed,
    Row,
    load_row,
    next_rows,
    store_row,
)
from clew.journal.submissions import Standing, fold, known_items
from clew.lease.lease import Checkpoint as Checkpointed
from clew.lease.record import Record
from clew.lease.refusal import refusal
from clew.lineage.edge import StrandId
from clew.lineage.link import Fence
from clew.platform.faults import declare, fault
from clew.store.record_protocol import JournalHead, JournalRow, Place
from clew.verbs.leases import Leases

BEFORE_REPAIR = declare("journal.before-repair")
REPAIRED_ROWS = declare("journal.repaired")

History = Callable[[], tuple[Item, ...] | None]
"""Gives the items of the agent's own history, for a journal that must be built anew; may raise what it likes."""


class Journal:
    """One open journal. `rows` are all its rows; for one thread."""

    def __init__(self, leases: Leases, record: Record, name: str, rows: Sequence[Row]) -> None:
        self.leases, self.name = leases, name
        self.session_id = record.session_id
        self.fence: Fence = record.lease.fence
        self.rows = tuple(rows)
        self.is_open = True
        self._folded: tuple[tuple[Row, ...], tuple[Standing, ...]] | None = None

    @property
    def directory(self) -> str:
        """Where it lives, for people."""
        return f"journal {self.name}"

    @property
    def cursor(self) -> Cursor:
        """The place of its last row."""
        return self.rows[-1].cursor

    @property
    def standings(self) -> tuple[Standing, ...]:
        """Where every submission stands."""
        if self._folded is None or self._folded[0] is not self.rows:
            self._folded = (self.rows, fold(self.rows))
        return self._folded[1]

    def standing(self, client_id: str) -> Standing | None:
        """Returns where one submission stands, or None."""
        return next((s for s in self.standings if s.client_id == client_id), None)

    def checkpoint(self) -> str | None:
        """Returns the key of the last item of the agent's history that the journal has for certain."""
        return checkpoint_of(self.rows)

    @contextmanager
    def writing(self) -> Generator[None]:
        """Keeps the rows in memory as they were when the block, and with it its transaction, fails."""
        before = self.rows
        try:
            yield
        except BaseException:
            self.rows = before
            raise

    def append(self, bodies: Sequence[Body]) -> None:
        """Adds rows; raises Conflict when the session is at another fence. Within `writing` and a transaction."""
        if not bodies:
            return
        new = next_rows(self.cursor, bodies, self.leases.now_ms(), self.fence)
        last = Place(self.cursor.epoch, self.cursor.sequence)
        self.leases.store.append_journal(self.name, _stored(new, self.fence), last=last, fence=self.fence)
        standings = self.standings
        self.rows += new
        self._folded = (self.rows, fold(new, standings))

    def close(self) -> None:
        """Lets go of it; rows are durable already."""
        self.is_open = False


class OpenedJournal(msgspec.Struct, frozen=True):
    """A journal that was opened: what opening came to, and the items it had by itself."""

    journal: Journal
    report: Report
    known: frozenset[str]


def read_journal(leases: Leases, name: str) -> tuple[bytes, ...]:
    """Returns the stored rows of a journal in order; none where there is no such journal."""
    return tuple(row.body for row in leases.store.journal_rows(name) or ())


class Looked(msgspec.Struct, frozen=True):
    """What was found in a session's journal, and its head at that moment."""

    opening: Opening
    head: JournalHead | None


def look_at_journal(leases: Leases, record: Record) -> Looked:
    """Returns what is found in a session's journal; nothing is written."""
    name = str(record.session_id)
    head = leases.store.journal(name)
    return Looked(classify_journal(leases, name, record.lease.checkpoint), head)


def open_journal(leases: Leases, record: Record, history: History, looked: Looked | None = None) -> OpenedJournal:
    """Opens the journal of a session whose owner this process is, repairing what it finds (docs/ownership.md, A10.2).

    `looked` is what this process found at the same fence: it holds as long as the head is where it was, and spares
    reading a long journal twice. A history that cannot be read is told in the report; everything else is raised, and
    nothing was written then.
    """
    name, fence, now = str(record.session_id), record.lease.fence, leases.now_ms()
    if looked is None or looked.head != leases.store.journal(name):
        looked = look_at_journal(leases, record)
    opening = looked.opening
    if isinstance(opening, Readable):
        report = Report("replay", reset=False, epoch=opening.rows[-1].epoch)
        return OpenedJournal(Journal(leases, record, name, opening.rows), report, known_items(opening.rows))
    if isinstance(opening, ReadOnly):
        return _open_sibling(leases, record, opening, history)
    repair = plan_new(now, fence) if isinstance(opening, New) else _repair(opening, history, now, fence)
    _write(leases, record, name, repair)
    return OpenedJournal(Journal(leases, record, name, repair.rows), repair.report, repair.known)


def checkpoint_of(rows: Sequence[Row]) -> str | None:
    """Returns the key of the last item of the agent's history that rows have for certain."""
    return next((row.body.item_key for row in reversed(rows) if isinstance(row.body, Checkpoint)), None)


def settle_in_flight(leases: Leases, record: Record) -> None:
    """Marks what an owner before had handed over as unknown, where its journal can be read; at the present fence."""
    name = str(record.session_id)
    opening = classify_journal(leases, name)
    if isinstance(opening, Readable):
        journal = Journal(leases, record, name, opening.rows)
        journal.append(settle_crash(journal.standings))


def unconfirmed_of(leases: Leases, session_id: str) -> tuple[str, ...]:
    """Returns the client ids that a session's journal has as neither sent nor failed; for looking only."""
    opening = classify_journal(leases, session_id)
    rows = () if isinstance(opening, New) else opening.rows
    return tuple(s.client_id for s in fold(rows) if s.state in ("pending", "unknown"))


def classify_journal(leases: Leases, name: str, checkpoint: Checkpointed | None = None) -> Opening:
    """Returns what is found under a journal's name; for looking only. Its head, and the lease's checkpoint where it is
    given, tell of rows that are missing at its end."""
    head = leases.store.journal(name)
    ends = [] if head is None else [Cursor(head.epoch, head.sequence)]
    if checkpoint is not None:
        ends.append(Cursor(checkpoint.epoch, checkpoint.sequence))
    return with_known_end(classify(read_journal(leases, name)), ends)


class Page(msgspec.Struct, frozen=True):
    """What a reader gets: rows, and its place behind them. `reload`: what it had before is void, these are all."""

    rows: tuple[Row, ...]
    cursor: Cursor
    reload: bool = False


def read_page(leases: Leases, session_id: StrandId, after: Cursor | None = None, limit: int | None = None) -> Page:
    """Returns what stands in a session's journal behind a place (None: all of it), at most `limit` rows; for anybody,
    whoever owns the session.

    Raises LeaseError (`journal_unreadable`): there is none yet, it is damaged, or a newer clew wrote it and nothing
    stands in for it. Then nothing is repaired here: attaching does.
    """
    more = None if after is None else _rows_behind(leases, session_id, after, limit)
    if after is not None and more is not None:
        return Page(more, more[-1].cursor if more else after)
    opening = classify_journal(leases, session_id)
    if isinstance(opening, ReadOnly):
        sibling = classify_journal(leases, sibling_name(session_id, opening.schema))
        if not isinstance(sibling, Readable):
            raise refusal("journal_unreadable", "written_by_newer", schema=opening.schema).error()
        opening = sibling
    if isinstance(opening, New):
        raise refusal("journal_unreadable", "unavailable", fault="nobody has attached this session yet").error()
    if isinstance(opening, Corrupt):
        raise refusal("journal_unreadable", "corrupt", row=len(opening.rows) + 1).error()
    rows = opening.rows
    last = rows[-1].cursor
    reload = after is not None and (after.epoch != last.epoch or after > last)
    start = 0 if after is None or reload else after.sequence
    found = rows[start:] if limit is None else rows[start : start + limit]
    return Page(found, found[-1].cursor if found else last, reload)


def _rows_behind(leases: Leases, name: str, after: Cursor, limit: int | None) -> tuple[Row, ...] | None:
    """Returns the rows behind a place of the journal without reading what is before; None where that does not do."""
    found = leases.store.journal_rows(name, after=Place(after.epoch, after.sequence), limit=limit)
    if found is None or leases.store.journal(name) is None:
        return None
    try:
        rows = tuple(load_row(row.body) for row in found)
    except Malformed:
        return None
    wanted = [(after.epoch, after.sequence + number) for number in range(1, len(rows) + 1)]
    return rows if [(row.epoch, row.sequence) for row in rows] == wanted else None


def _open_sibling(leases: Leases, record: Record, opening: ReadOnly, history: History) -> OpenedJournal:
    name = sibling_name(str(record.session_id), opening.schema)
    there = classify_journal(leases, name)
    if isinstance(there, Readable):
        report = Report("newer_schema", reset=False, epoch=there.rows[-1].epoch)
        return OpenedJournal(Journal(leases, record, name, there.rows), report, known_items(there.rows))
    items, error = _ask(history)
    at = record.lease.checkpoint
    epoch = 0 if at is None else at.epoch
    repair = plan_sibling(opening, items, leases.now_ms(), record.lease.fence, error, epoch)
    _write(leases, record, name, repair)
    return OpenedJournal(Journal(leases, record, name, repair.rows), repair.report, frozenset())


def _repair(opening: Opening, history: History, now: int, fence: int) -> Repair:
    assert isinstance(opening, Corrupt), "the other kinds are opened as they are"
    items, error = _ask(history)
    return plan_repair(opening, items, now, fence, error)


def _ask(history: History) -> tuple[tuple[Item, ...] | None, str | None]:
    try:
        return history(), None
    except Exception as error:  # noqa: BLE001 - an adapter's reading is best effort; the report says what it said
        return None, str(error) or type(error).__name__


def _write(leases: Leases, record: Record, name: str, repair: Repair) -> None:
    head = leases.store.journal(name)
    keep = None if repair.keep is None else Place(repair.keep.epoch, repair.keep.sequence)
    fault(BEFORE_REPAIR)
    with leases.transaction():
        leases.store.rewrite_journal(
            name,
            _stored(repair.append, record.lease.fence),
            strand=record.session_id,
            fence=record.lease.fence,
            expected=None if head is None else head.place,
            keep=keep,
            identity=msgspec.json.encode(_identity(record)),
        )
    fault(REPAIRED_ROWS)


def _identity(record: Record) -> JournalIdentity:
    head = record.chain.head
    return JournalIdentity(
        record.session_id,
        record.location.workspace[:1024],
        record.location.host[:1024],
        record.namespace.agent,
        PENDING_HANDLE if head is None else head.handle.key[:1024],
    )


def _stored(rows: Sequence[Row], fence: int) -> tuple[JournalRow, ...]:
    """Returns rows as they are stored: beside each the fence it is written at now; one that a repair carries over
    keeps the fence of its first writing in its body."""
    return tuple(JournalRow(r.epoch, r.sequence, r.kind, r.time, fence, store_row(r)) for r in rows)
