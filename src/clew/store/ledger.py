"""The ledger as rows: one for each operation, found by its key, swapped by its revision.

SQL that SQLite and PostgreSQL both take. Nothing here reads a body or knows what a state means.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from clew.store.protocol import Sql
from clew.store.record_protocol import OperationCounts, OperationRow
from clew.store.rows import make_conflict, make_text, read_text

_OPERATION = "SELECT key, caller, fingerprint, state, session, expires_ms, body, revision FROM operations"


class SqlLedger:
    """The LedgerStore over any `Sql`."""

    _sql: Sql

    def operation(self, key: str) -> OperationRow | None:
        """Returns one operation, or None."""
        rows = self._sql.execute(f"{_OPERATION} WHERE key = ?{self._sql.lock}", (make_text(key),))
        return _operation(rows[0]) if rows else None

    def operations(
        self, *, caller: str | None = None, session: str | None = None, states: Collection[str] = ()
    ) -> tuple[OperationRow, ...]:
        """Returns the operations that agree with all that is given, by key."""
        conditions = ["1 = 1"]
        values: list[Any] = []
        if caller is not None:
            conditions.append("caller = ?")
            values.append(make_text(caller))
        if session is not None:
            conditions.append("session = ?")
            values.append(session)
        if states:
            conditions.append(f"state IN ({_marks(states)})")
            values.extend(states)
        rows = self._sql.execute(f"{_OPERATION} WHERE {' AND '.join(conditions)} ORDER BY key", values)
        return tuple(map(_operation, rows))

    def count_operations(self, caller: str) -> OperationCounts:
        """Returns how many operations are remembered."""
        rows = self._sql.execute(
            "SELECT (SELECT count(*) FROM operations WHERE caller = ?), (SELECT count(*) FROM operations)",
            (make_text(caller),),
        )
        return OperationCounts(*rows[0])

    def put_operation(
        self,
        key: str,
        *,
        caller: str,
        fingerprint: str,
        state: str,
        session: str | None,
        expires_ms: int,
        body: bytes,
        expected: int | None,
    ) -> int:
        """Writes an operation; raises Conflict when its revision, caller or fingerprint is another."""
        name, of = make_text(key), make_text(caller)
        if expected is None:
            rows = self._sql.change(
                "INSERT INTO operations (key, caller, fingerprint, state, session, expires_ms, revision, body) "
                "VALUES (?, ?, ?, ?, ?, ?, 1, ?) ON CONFLICT DO NOTHING RETURNING revision",
                (name, of, fingerprint, state, session, expires_ms, body),
            )
        else:
            rows = self._sql.change(
                "UPDATE operations SET state = ?, session = ?, expires_ms = ?, revision = revision + 1, body = ? "
                "WHERE key = ? AND caller = ? AND fingerprint = ? AND revision = ? RETURNING revision",
                (state, session, expires_ms, body, name, of, fingerprint, expected),
            )
        if rows:
            return int(rows[0][0])
        there = self._sql.execute("SELECT revision FROM operations WHERE key = ?", (name,))
        shown = key.replace("\0", " ")
        raise make_conflict("operation", shown, expected, int(there[0][0]) if there else None)

    def drop_operations(self, now_ms: int, states: Collection[str]) -> int:
        """Removes the operations in one of these states whose time is over."""
        if not states:
            return 0
        rows = self._sql.change(
            f"DELETE FROM operations WHERE expires_ms < ? AND state IN ({_marks(states)}) RETURNING 1",  # noqa: S608
            (now_ms, *states),
        )
        return len(rows)


def _marks(values: Collection[str]) -> str:
    return ", ".join("?" * len(values))


def _operation(row: tuple[Any, ...]) -> OperationRow:
    key, caller, fingerprint, state, session, expires_ms, body, revision = row
    return OperationRow(read_text(key), read_text(caller), fingerprint, state, session, expires_ms, body, revision)
