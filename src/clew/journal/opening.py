"""Opening a journal: what is found, and how a damaged one is repaired without losing what is sound.

A row of a newer schema anywhere makes the journal read-only: nothing is written or deleted, the agent's history is
rebuilt into a sibling that is never merged back. Damage (no epoch row first, a gap, a malformed row) cuts: the sound
prefix stays, what is behind it goes before the first write, the repair is disclosed in the timeline, a new epoch is
published with what the agent's history has. Where that is impossible, or the history is empty, the prefix stays live
behind a marker, and the next attach tries again. What the sound prefix has as queued may have been handed over by a row
that is lost: it becomes `unknown`, for it must not be sent twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

import msgspec

from clew.journal.rows import (
    Body,
    Cursor,
    Dispatch,
    Epoch,
    Item,
    Lifecycle,
    Malformed,
    Newer,
    Row,
    begin,
    load_row,
    next_rows,
)
from clew.journal.submissions import fold, known_items

REPAIR_STARTED: Final = "repair_started"
"""The marker: a repair cut here and could not rebuild."""

REPAIRED: Final = "repaired"
IMPORTED: Final = "imported"
DAMAGED: Final = "journal_damaged"
"""Why a submission is unknown whose later rows are lost."""

Cause = Literal["bad_anchor", "gap", "malformed_row", "repair_unfinished"]
Trigger = Literal["new", "replay", "newer_schema", "bad_anchor", "gap", "malformed_row", "repair_unfinished"]


class New(msgspec.Struct, frozen=True):
    """Nothing is there: a new journal begins with epoch 1."""


class Readable(msgspec.Struct, frozen=True):
    """Everything is sound."""

    rows: tuple[Row, ...]


class ReadOnly(msgspec.Struct, frozen=True):
    """A newer clew wrote here. `rows` is what can be read of the beginning, `schema` the newest version found."""

    rows: tuple[Row, ...]
    schema: int


class Corrupt(msgspec.Struct, frozen=True):
    """Damaged. `rows` is the sound prefix (without an older repair's marker), `dropped` how many rows are behind it,
    `epoch` the highest epoch that was seen, `marked` whether the marker is there already."""

    rows: tuple[Row, ...]
    cause: Cause
    dropped: int
    epoch: int
    marked: bool = False


Opening = New | Readable | ReadOnly | Corrupt


class Report(msgspec.Struct, frozen=True):
    """What opening came to, part of an attach's answer: `reset` means that subscribers must reload."""

    trigger: Trigger
    reset: bool
    epoch: int
    imported: int = 0
    error: str | None = None


class Repair(msgspec.Struct, frozen=True):
    """What a repair writes, in one transaction: all rows behind `keep` go, then `append` is added.

    `keep` None: every old row goes. `rows` is the journal afterwards. `known` are the items that the journal had by
    itself: reconciliation takes these out, not those that were rebuilt just now, or what a lost acceptance settled
    would never be found again.
    """

    keep: Cursor | None
    append: tuple[Row, ...]
    rows: tuple[Row, ...]
    report: Report
    known: frozenset[str] = frozenset()


def classify(found: Sequence[bytes]) -> Opening:
    """Returns what was found, given the stored rows of one journal in order.

    Of several faults at one row the cause is, in this order: bad anchor, gap, malformed row. Reading goes on behind a
    fault, to find rows of a newer schema.
    """
    read = [_read(data) for data in found]
    newer = [row.schema for row in read if isinstance(row, Newer)]
    sound, cause = _sound_prefix(read)
    if newer:
        return ReadOnly(sound, max(newer))
    if not found:
        return New()
    epoch = max((row.epoch for row in read if isinstance(row, Row)), default=0)
    if cause is not None:
        prefix, marked = _without_marker(sound)
        return Corrupt(prefix, cause, len(found) - len(sound), epoch, marked)
    prefix, marked = _without_marker(sound)
    if marked:
        return Corrupt(prefix, "repair_unfinished", 0, epoch, marked=True)
    return Readable(sound)


def with_known_end(opening: Opening, known: Sequence[Cursor]) -> Opening:
    """Returns what was found, seen by the places where the journal is known to have ended (its head in the store, the
    lease's checkpoint): rows that are missing at the end leave no gap behind them."""
    if not known or isinstance(opening, ReadOnly | Corrupt):
        return opening
    rows = opening.rows if isinstance(opening, Readable) else ()
    end, last = max(known), rows[-1].cursor if rows else Cursor(1, 0)
    if last >= end:
        return opening
    missing = end.sequence - (last.sequence if last.epoch == end.epoch else 0)
    return Corrupt(rows, "gap" if rows else "bad_anchor", missing, max(end.epoch, last.epoch))


def sibling_name(name: str, schema: int) -> str:
    """Returns the name of the journal that stands in for one which a newer clew wrote."""
    return f"{name}-recovered-v{schema}"


def plan_new(time: int, fence: int) -> Repair:
    """Returns the rows of a new journal; `time` in ms."""
    row = begin(1, "created", time, fence)
    return Repair(None, (row,), (row,), Report("new", reset=False, epoch=1))


def plan_sibling(
    opening: ReadOnly,
    history: Sequence[Item] | None,
    time: int,
    fence: int,
    error: str | None = None,
    after_epoch: int = 0,
) -> Repair:
    """Returns the rows of the sibling of a journal that must not be touched, rebuilt from the agent's history.

    `history` None: it cannot be had, `error` says why. `after_epoch`: the highest that a reader may know.
    """
    items = tuple(history or ())
    epoch = max(after_epoch, *(row.epoch for row in opening.rows), 0) + 1
    rows = (begin(epoch, "newer_schema", time, fence),)
    bodies: tuple[Body, ...] = (Lifecycle(IMPORTED, f"schema {opening.schema}"), *items) if items else ()
    rows += next_rows(rows[0].cursor, bodies, time, fence)
    told = error or (None if items else "the agent's history is empty")
    return Repair(None, rows, rows, Report("newer_schema", True, epoch, len(items), told))


def plan_repair(
    damage: Corrupt, history: Sequence[Item] | None, time: int, fence: int, error: str | None = None
) -> Repair:
    """Returns what repairing a damaged journal writes.

    `history` are the items of the agent's own history in order, None when it cannot be had (`error` says why). Items
    that the sound prefix has already, also as an accepted submission, are not imported again.
    """
    if not history:
        return _keep_prefix(damage, time, fence, error or "the agent's history is empty")
    known = known_items(damage.rows)
    new = [item for item in dict.fromkeys(history) if item.item_key not in known]
    told = Lifecycle(REPAIRED, f"{damage.cause}; {damage.dropped} rows dropped, {len(new)} items rebuilt")
    rows = _rolled(damage, f"repaired: {damage.cause}", (*_doubts(damage), told, *new), time, fence)
    return Repair(None, rows, rows, Report(damage.cause, True, rows[0].epoch, len(new)), known)


def _rolled(damage: Corrupt, reason: str, bodies: Sequence[Body], time: int, fence: int) -> tuple[Row, ...]:
    """Returns the sound rows in a new epoch, with more behind them: what a reader knows of the old one is void."""
    epoch = damage.epoch + 1
    carried = [row for row in damage.rows if not isinstance(row.body, Epoch)]
    first = begin(epoch, reason, time, fence)
    kept = tuple(msgspec.structs.replace(row, epoch=epoch, sequence=number) for number, row in enumerate(carried, 2))
    last = kept[-1].cursor if kept else first.cursor
    return (first, *kept, *next_rows(last, bodies, time, fence))


def plan_import(rows: Sequence[Row], items: Sequence[Item], time: int, fence: int) -> tuple[Row, ...]:
    """Returns the rows that take an adopted conversation in: none unless the journal holds only its epoch row.

    So a replay keeps what came later and needs no transcript.
    """
    if not is_blank(rows):
        return ()
    bodies: tuple[Body, ...] = (*items, Lifecycle(IMPORTED, f"{len(items)} items"))
    return next_rows(rows[-1].cursor, bodies, time, fence)


def is_blank(rows: Sequence[Row]) -> bool:
    """Tells whether a journal holds nothing but its epoch row. After an agent resumed a conversation, that is a
    disagreement to be refused, not an empty chat."""
    return len(rows) == 1 and isinstance(rows[0].body, Epoch)


def _keep_prefix(damage: Corrupt, time: int, fence: int, error: str) -> Repair:
    marker = Lifecycle(REPAIR_STARTED, f"{damage.cause}; {damage.dropped} rows dropped")
    if damage.dropped or not damage.rows:
        rows = _rolled(damage, f"damaged: {damage.cause}", (*_doubts(damage), marker), time, fence)
        return Repair(None, rows, rows, Report(damage.cause, True, rows[0].epoch, 0, error), known_items(damage.rows))
    last = damage.rows[-1].cursor
    added = next_rows(last, (marker,), time, fence)
    report = Report(damage.cause, reset=False, epoch=last.epoch, imported=0, error=error)
    return Repair(last, added, (*damage.rows, *added), report, known_items(damage.rows))


def _doubts(damage: Corrupt) -> tuple[Dispatch, ...]:
    if not damage.dropped:
        return ()
    return tuple(Dispatch(s.client_id, "unknown", DAMAGED) for s in fold(damage.rows) if s.state == "queued")


def _read(data: bytes) -> Row | Malformed:
    try:
        return load_row(data)
    except Malformed as error:
        return error


def _sound_prefix(read: Sequence[Row | Malformed]) -> tuple[tuple[Row, ...], Cause | None]:
    sound: list[Row] = []
    epoch = 0
    for number, row in enumerate(read, 1):
        if number == 1:
            if not (isinstance(row, Row) and isinstance(row.body, Epoch) and row.sequence == 1):
                return (), "bad_anchor"
            epoch = row.epoch
        elif not isinstance(row, Row):
            return tuple(sound), "malformed_row"
        elif row.epoch != epoch or row.sequence != number:
            return tuple(sound), "gap"
        elif isinstance(row.body, Epoch):
            return tuple(sound), "malformed_row"
        sound.append(row)
    return tuple(sound), None


def _without_marker(rows: tuple[Row, ...]) -> tuple[tuple[Row, ...], bool]:
    last = rows[-1].body if rows else None
    if isinstance(last, Lifecycle) and last.event == REPAIR_STARTED:
        return rows[:-1], True
    return rows, False
