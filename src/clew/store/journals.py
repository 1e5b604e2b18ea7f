"""Journals as rows: gapless, guarded by the fence of their strand, replaced in one transaction.

A journal's head (its last place) is a row of its own: an append swaps it first, so of two that saw the same end one
writes. SQL that SQLite and PostgreSQL both take; on PostgreSQL a short append is one statement. Bodies are not read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from clew.platform.faults import declare, fault
from clew.store.protocol import Sql
from clew.store.record_protocol import JournalHead, JournalRow, Place, check_rows
from clew.store.rows import make_fence_conflict, make_journal_conflict

AFTER_HEAD = declare("journal.after-head")
AFTER_DELETED = declare("journal.after-deleted")

_HEAD = "SELECT name, strand, epoch, sequence, identity FROM journals"
_ROW = "SELECT epoch, sequence, kind, time_ms, fence, body FROM journal_rows"
_INSERT = "INSERT INTO journal_rows (journal, epoch, sequence, kind, time_ms, fence, body) "
_FENCE = "SELECT fence FROM strands WHERE id = ?"
_FENCE_OF_JOURNAL = "SELECT s.fence FROM journals j JOIN strands s ON s.id = j.strand WHERE j.name = ?"
_MOVE_HEAD = "UPDATE journals SET epoch = ?, sequence = ? WHERE name = ? AND epoch = ? AND sequence = ? RETURNING name"
_PUT_HEAD = (
    "UPDATE journals SET epoch = ?, sequence = ?, identity = ? "
    "WHERE name = ? AND strand = ? AND epoch = ? AND sequence = ? RETURNING name"
)
_NEW_HEAD = (
    "INSERT INTO journals (name, strand, epoch, sequence, identity) VALUES (?, ?, ?, ?, ?) "
    "ON CONFLICT DO NOTHING RETURNING name"
)
_HELD = (
    "WITH held AS (SELECT s.id FROM strands s WHERE s.fence = ? AND "
    "s.id = (SELECT j.strand FROM journals j WHERE j.name = ?) FOR UPDATE), "
    "head AS (UPDATE journals SET epoch = ?, sequence = ? "
    "WHERE name = ? AND epoch = ? AND sequence = ? AND EXISTS (SELECT 1 FROM held) RETURNING name) "
)
_LINE = "(CAST(? AS BIGINT), CAST(? AS BIGINT), ?, CAST(? AS BIGINT), CAST(? AS BIGINT), CAST(? AS BYTEA))"
_AT_ONCE = 64


class SqlJournals:
    """The JournalStore over any `Sql`."""

    _sql: Sql

    def journal(self, name: str) -> JournalHead | None:
        """Returns a journal's head, or None."""
        rows = self._sql.execute(f"{_HEAD} WHERE name = ?", (name,))
        return JournalHead(*rows[0]) if rows else None

    def journals(self, strand: str) -> tuple[JournalHead, ...]:
        """Returns the journals of a strand, by name."""
        rows = self._sql.execute(f"{_HEAD} WHERE strand = ? ORDER BY name", (strand,))
        return tuple(JournalHead(*row) for row in rows)

    def journal_rows(
        self, name: str, *, after: Place | None = None, limit: int | None = None
    ) -> tuple[JournalRow, ...] | None:
        """Returns the rows behind a place in order; None means "reload"."""
        where, values = "journal = ?", [name]
        bound: tuple[Any, ...] = () if limit is None else (limit,)
        with self._sql.snapshot():
            if after is not None:
                head = self.journal(name)
                if head is None or after.epoch != head.epoch or after.sequence > head.sequence:
                    return None
                where += " AND epoch = ? AND sequence > ?"
            rows = self._sql.execute(
                f"{_ROW} WHERE {where} ORDER BY epoch, sequence{' LIMIT ?' if bound else ''}",
                (*values, *(() if after is None else (after.epoch, after.sequence)), *bound),
            )
        return tuple(JournalRow(*row) for row in rows)

    def append_journal(self, name: str, rows: Sequence[JournalRow], *, last: Place, fence: int) -> None:
        """Adds rows behind the journal's last one; raises Conflict."""
        check_rows(rows, last, fence)
        if not rows:
            return
        if self._sql.dialect == "postgresql" and len(rows) <= _AT_ONCE:
            if not self._append_at_once(name, rows, last, fence):
                raise self._refused(name, last, fence)
            return
        with self._sql.writing():
            found = self._sql.execute(_FENCE_OF_JOURNAL + self._sql.lock, (name,))
            if not found or found[0][0] != fence or not self._move_head(name, last, rows[-1].place):
                raise self._refused(name, last, fence)
            fault(AFTER_HEAD)
            self._insert(name, rows)

    def rewrite_journal(
        self,
        name: str,
        rows: Sequence[JournalRow],
        *,
        strand: str,
        fence: int,
        expected: Place | None,
        keep: Place | None = None,
        identity: bytes | None = None,
    ) -> None:
        """Begins a journal, rolls it to a new epoch, or cuts it behind `keep`; raises Conflict."""
        assert rows or keep is not None, "a journal without rows is none"
        check_rows(rows, keep if keep is not None else Place(rows[0].epoch, 0), fence)
        last = rows[-1].place if rows else keep
        assert last is not None, "there are rows, or the last one that is kept"
        with self._sql.writing():
            found = self._sql.execute(_FENCE + self._sql.lock, (strand,))
            if not found or found[0][0] != fence:
                raise make_fence_conflict(strand, fence, found[0][0] if found else None)
            if not self._swap_head(name, strand, last, expected, identity):
                raise self._refused(name, expected, fence)
            fault(AFTER_HEAD)
            # The first row kept is found by its place; sequence 0 is none, so nothing is kept of that epoch.
            epoch, sequence = (keep.epoch, keep.sequence) if keep is not None else (0, 0)
            self._sql.execute(
                "DELETE FROM journal_rows WHERE journal = ? AND (epoch <> ? OR sequence > ?)", (name, epoch, sequence)
            )
            fault(AFTER_DELETED)
            self._insert(name, rows)

    # --- pieces -------------------------------------------------------------------------------------------

    def _append_at_once(self, name: str, rows: Sequence[JournalRow], last: Place, fence: int) -> bool:
        """Holds the fence, swaps the head and adds the rows in one statement; tells whether it did."""
        lines = ", ".join([_LINE] * len(rows))
        statement = (
            f"{_HELD}{_INSERT}"  # noqa: S608 - `lines` is only placeholders
            f"SELECT head.name, v.* FROM head CROSS JOIN (VALUES {lines}) AS v RETURNING sequence"
        )
        new = rows[-1]
        values: list[Any] = [fence, name, new.epoch, new.sequence, name, last.epoch, last.sequence]
        for row in rows:
            values += [row.epoch, row.sequence, row.kind, row.time_ms, row.fence, row.body]
        return len(self._sql.change(statement, values)) == len(rows)

    def _move_head(self, name: str, last: Place, to: Place) -> bool:
        return bool(
            self._sql.execute(_MOVE_HEAD, (to.epoch, to.sequence, name, last.epoch, last.sequence)),
        )

    def _swap_head(self, name: str, strand: str, to: Place, expected: Place | None, identity: bytes | None) -> bool:
        if expected is None:
            return bool(self._sql.execute(_NEW_HEAD, (name, strand, to.epoch, to.sequence, identity or b"")))
        if identity is None:
            # The strand of a journal never changes, and the fence was asked of this one.
            of = self.journal(name)
            return of is not None and of.strand == strand and self._move_head(name, expected, to)
        place = (expected.epoch, expected.sequence)
        return bool(self._sql.execute(_PUT_HEAD, (to.epoch, to.sequence, identity, name, strand, *place)))

    def _insert(self, name: str, rows: Sequence[JournalRow]) -> None:
        self._sql.execute_many(
            f"{_INSERT}VALUES (?, ?, ?, ?, ?, ?, ?)",
            [(name, row.epoch, row.sequence, row.kind, row.time_ms, row.fence, row.body) for row in rows],
        )

    def _refused(self, name: str, expected: Place | None, fence: int) -> Exception:
        """Returns why a write to a journal found nothing to write to."""
        head = self.journal(name)
        if head is not None:
            found = self._sql.execute(_FENCE, (head.strand,))
            if not found or found[0][0] != fence:
                return make_fence_conflict(head.strand, fence, found[0][0] if found else None)
        return make_journal_conflict(name, expected, head.place if head is not None else None)
