"""Threads, strands and edges as rows of `records.db`, in SQL that SQLite and PostgreSQL both take.

Every put is a compare-and-swap on the row's revision. Bodies are carried byte for byte; nothing here looks
inside.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Any

from clew.errors import NotFoundError
from clew.ids import AgentName, NativeId, ThreadId
from clew.store.protocol import RELEASED, EdgeRow, Sql, StrandRow, ThreadRow
from clew.store.rows import make_conflict, make_held, make_micros, make_text, read_micros, read_text

_THREAD = "SELECT id, body, revision, created_at, updated_at FROM threads"
_STRAND = (
    "SELECT id, thread, agent, native_id, body, revision, created_at, updated_at, scope, fence, claim FROM strands"
)
_EDGE = "SELECT id, kind, from_strand, to_strand, body, at FROM edges"
_TOUCHING_THREAD = (
    "WHERE from_strand IN (SELECT id FROM strands WHERE thread = ?) "
    "OR to_strand IN (SELECT id FROM strands WHERE thread = ?)"
)
_REMOVE_EDGES = (
    "DELETE FROM edges WHERE to_strand IN (SELECT id FROM strands WHERE thread = ?) "
    "AND (from_strand IS NULL OR from_strand IN (SELECT id FROM strands WHERE thread = ?))"
)
_OF_THREAD = (
    "DELETE FROM strand_roots WHERE strand IN (SELECT id FROM strands WHERE thread = ?)",
    "DELETE FROM journal_rows WHERE journal IN "
    "(SELECT name FROM journals WHERE strand IN (SELECT id FROM strands WHERE thread = ?))",
    "DELETE FROM journals WHERE strand IN (SELECT id FROM strands WHERE thread = ?)",
    "DELETE FROM strands WHERE thread = ?",
)
_HOLD_ROOT = "INSERT INTO held_roots (root) VALUES (?) ON CONFLICT (root) DO UPDATE SET root = excluded.root"
_REQUIRE_THREAD = "SELECT 1 FROM threads WHERE id = ?"
_ROOTS_OF = (
    "SELECT strand, root FROM strand_roots WHERE strand IN (SELECT id FROM strands WHERE {where}) "
    "ORDER BY strand, number"
)
_ROOTS = "SELECT root FROM strand_roots WHERE strand = ? ORDER BY number"
_REVISION_OF = {
    "thread": "SELECT revision FROM threads WHERE id = ?",
    "strand": "SELECT revision FROM strands WHERE id = ?",
}


class SqlThreads:
    """The ThreadStore over any `Sql`."""

    def __init__(self, sql: Sql) -> None:
        self._sql = sql

    def transaction(self) -> AbstractContextManager[None]:
        """Makes the writes inside visible together, or none of them."""
        return self._sql.transaction()

    # --- threads ------------------------------------------------------------------------------------------

    def thread(self, thread: ThreadId) -> ThreadRow | None:
        """Returns one thread, or None."""
        rows = self._sql.execute(f"{_THREAD} WHERE id = ?{self._sql.lock}", (thread,))
        return _thread(rows[0]) if rows else None

    def threads(self) -> tuple[ThreadRow, ...]:
        """Returns all threads, by time of creation, then by id."""
        return tuple(map(_thread, self._sql.execute(f"{_THREAD} ORDER BY created_at, id")))

    def put_thread(self, thread: ThreadId, body: bytes, *, expected: int | None, now: datetime) -> int:
        """Writes a thread; raises Conflict when its revision is not `expected`."""
        at = make_micros(now)
        if expected is None:
            rows = self._sql.change(
                "INSERT INTO threads (id, revision, created_at, updated_at, body) VALUES (?, 1, ?, ?, ?) "
                "ON CONFLICT DO NOTHING RETURNING revision",
                (thread, at, at, body),
            )
        else:
            rows = self._sql.change(
                "UPDATE threads SET revision = revision + 1, updated_at = ?, body = ? "
                "WHERE id = ? AND revision = ? RETURNING revision",
                (at, body, thread, expected),
            )
        return self._won(rows, "thread", thread, expected)

    def join_thread(self, thread: ThreadId, other: ThreadId) -> None:
        """Gives all strands of another thread to this one, and removes the other."""
        with self._sql.writing():
            self._require_thread(thread)
            if other != thread:
                self._sql.execute("UPDATE strands SET thread = ? WHERE thread = ?", (thread, other))
                self._sql.execute("DELETE FROM threads WHERE id = ?", (other,))

    def remove_thread(self, thread: ThreadId, *, expected: int) -> None:
        """Removes a thread with its strands, their journals and the edges that touch only them."""
        with self.transaction():
            self._sql.execute(_REMOVE_EDGES, (thread, thread))
            for statement in _OF_THREAD:
                self._sql.execute(statement, (thread,))
            rows = self._sql.execute(
                "DELETE FROM threads WHERE id = ? AND revision = ? RETURNING revision", (thread, expected)
            )
            self._won(rows, "thread", thread, expected)

    # --- strands ------------------------------------------------------------------------------------------

    def strand(self, strand: str) -> StrandRow | None:
        """Returns one strand, or None."""
        found = self._strands("id = ?", (strand,), lock=self._sql.lock)
        return found[0] if found else None

    def strands(
        self,
        *,
        thread: ThreadId | None = None,
        agent: AgentName | None = None,
        native_id: NativeId | None = None,
        root: str | None = None,
    ) -> tuple[StrandRow, ...]:
        """Returns the strands that agree with all that is given, by time of creation, then by id."""
        conditions = ["1 = 1"]
        values: list[Any] = []
        if root is not None and self._sql.lock:
            self._hold_roots((make_text(root),))
        for condition, value in (
            ("thread = ?", thread),
            ("agent = ?", agent),
            ("native_id = ?", None if native_id is None else make_text(native_id)),
            ("id IN (SELECT strand FROM strand_roots WHERE root = ?)", None if root is None else make_text(root)),
        ):
            if value is not None:
                conditions.append(condition)
                values.append(value)
        return self._strands(" AND ".join(conditions), values)

    def put_strand(
        self,
        strand: str,
        *,
        thread: ThreadId,
        agent: AgentName,
        native_id: NativeId,
        body: bytes,
        roots: Iterable[str],
        expected: int | None,
        now: datetime,
    ) -> int:
        """Writes a strand; raises Conflict when its revision or agent is another, NotFoundError without
        thread."""
        at, native = make_micros(now), make_text(native_id)
        with self._sql.writing():
            self._require_thread(thread)
            if expected is None:
                rows = self._sql.execute(
                    "INSERT INTO strands (id, thread, agent, native_id, revision, created_at, updated_at, body) "
                    "VALUES (?, ?, ?, ?, 1, ?, ?, ?) ON CONFLICT DO NOTHING RETURNING revision",
                    (strand, thread, agent, native, at, at, body),
                )
            else:
                rows = self._sql.execute(
                    "UPDATE strands SET thread = ?, native_id = ?, revision = revision + 1, updated_at = ?, "
                    "body = ? WHERE id = ? AND agent = ? AND revision = ? AND (claim IS NULL OR claim = ?) "
                    "RETURNING revision",
                    (thread, native, at, body, strand, agent, expected, RELEASED),
                )
            if not rows:
                self._refuse_held(strand, expected)
            revision = self._won(rows, "strand", strand, expected)
            self._put_roots(strand, roots)
            return revision

    def _require_thread(self, thread: ThreadId) -> None:
        """Raises NotFoundError without the thread; with it, keeps it there until the transaction ends."""
        if not self._sql.execute(_REQUIRE_THREAD + self._sql.lock, (thread,)):
            raise NotFoundError(f"there is no thread {thread}", thread=thread)

    def _refuse_held(self, strand: str, expected: int | None) -> None:
        there = self._sql.execute("SELECT revision, claim FROM strands WHERE id = ?", (strand,))
        if there and there[0][0] == expected and there[0][1] not in (None, RELEASED):
            raise make_held(strand)

    def _put_roots(self, strand: str, roots: Iterable[str]) -> None:
        """Writes the roots of a strand anew where they changed; nobody else finds or adds the new ones meanwhile."""
        new = [make_text(root) for root in roots]
        old = [row[0] for row in self._sql.execute(_ROOTS, (strand,))]
        if new == old:
            return
        if self._sql.lock:
            self._hold_roots(set(new).difference(old))
        self._sql.execute("DELETE FROM strand_roots WHERE strand = ?", (strand,))
        self._sql.execute_many(
            "INSERT INTO strand_roots (strand, number, root) VALUES (?, ?, ?)",
            [(strand, number, root) for number, root in enumerate(new)],
        )

    def _hold_roots(self, roots: Iterable[bytes]) -> None:
        """Keeps other transactions from looking at these roots, or adding them, until this one ends.

        Two adoptions of one conversation write different rows; only this makes them meet.
        """
        for root in sorted(roots):
            self._sql.execute(_HOLD_ROOT, (root,))

    def _strands(self, where: str, values: Iterable[Any], *, lock: str = "") -> tuple[StrandRow, ...]:
        given = tuple(values)
        with self._sql.snapshot():
            rows = self._sql.execute(f"{_STRAND} WHERE {where} ORDER BY created_at, id{lock}", given)
            roots: dict[str, list[str]] = {row[0]: [] for row in rows}
            if rows:
                for strand, root in self._sql.execute(_ROOTS_OF.format(where=where), given):
                    roots.setdefault(strand, []).append(read_text(root))
        return tuple(_strand(row, tuple(roots[row[0]])) for row in rows)

    # --- edges --------------------------------------------------------------------------------------------

    def add_edge(self, kind: str, *, from_strand: str | None, to_strand: str, body: bytes, now: datetime) -> int:
        """Adds an edge and returns its number; raises NotFoundError when a strand is missing."""
        with self.transaction():
            for strand in (from_strand, to_strand):
                if strand is not None and not self._sql.execute("SELECT 1 FROM strands WHERE id = ?", (strand,)):
                    raise NotFoundError(f"there is no strand {strand}", strand=strand)
            rows = self._sql.execute(
                "INSERT INTO edges (kind, from_strand, to_strand, at, body) VALUES (?, ?, ?, ?, ?) RETURNING id",
                (kind, from_strand, to_strand, make_micros(now), body),
            )
            return int(rows[0][0])

    def edges(self, *, thread: ThreadId | None = None, strand: str | None = None) -> tuple[EdgeRow, ...]:
        """Returns the edges touching a thread's strands, or one strand, or all; by number."""
        where, values = "", ()
        if strand is not None:
            where, values = "WHERE from_strand = ? OR to_strand = ?", (strand, strand)
        elif thread is not None:
            where, values = _TOUCHING_THREAD, (thread, thread)
        return tuple(map(_edge, self._sql.execute(f"{_EDGE} {where} ORDER BY id", values)))

    def _won(self, rows: list[tuple[Any, ...]], what: str, name: str, expected: int | None) -> int:
        """Returns the revision that a swap gave, or raises Conflict with the revision that is there."""
        if rows:
            return int(rows[0][0])
        there = self._sql.execute(_REVISION_OF[what], (name,))
        found = int(there[0][0]) if there else None
        raise make_conflict(what, name, expected, found)


def _thread(row: tuple[Any, ...]) -> ThreadRow:
    name, body, revision, created, updated = row
    return ThreadRow(name, body, revision, read_micros(created), read_micros(updated))


def _strand(row: tuple[Any, ...], roots: tuple[str, ...]) -> StrandRow:
    name, thread, agent, native, body, revision, created, updated, scope, fence, claim = row
    return StrandRow(
        name,
        thread,
        agent,
        NativeId(read_text(native)),
        body,
        roots,
        revision,
        read_micros(created),
        read_micros(updated),
        None if scope is None else read_text(scope),
        fence,
        claim,
    )


def _edge(row: tuple[Any, ...]) -> EdgeRow:
    number, kind, from_strand, to_strand, body, at = row
    return EdgeRow(number, kind, from_strand, to_strand, body, read_micros(at))
