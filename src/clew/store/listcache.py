"""The list cache in `index.db`: what listing found out about files, by path. Derived, so nothing here ever
fails.

A damaged file, or one that is no database, is silently thrown away and begun anew; one of a newer clew, one
that is locked for long and one that may not be written are left alone, and the cache remembers nothing
meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import TypeVar

from clew.errors import StoreDamaged, StoreError
from clew.ids import AgentName
from clew.store.protocol import Cached, FileFacts
from clew.store.rows import make_text, read_text
from clew.store.sqlite import Database

_ALL = "SELECT path, mtime_ns, size, inode, body FROM files WHERE agent = ?"
_PUT = (
    "INSERT INTO files (agent, path, mtime_ns, size, inode, body) VALUES (?, ?, ?, ?, ?, ?) "
    "ON CONFLICT (agent, path) DO UPDATE SET mtime_ns = excluded.mtime_ns, size = excluded.size, "
    "inode = excluded.inode, body = excluded.body"
)
_REMOVE = "DELETE FROM files WHERE agent = ? AND path = ?"

_T = TypeVar("_T")


class SqlListCache:
    """The ListCache over one derived database file."""

    def __init__(self, database: Database) -> None:
        self._sql = database

    def get_all(self, agent: AgentName) -> dict[str, Cached]:
        """Returns everything remembered for `agent`, by path."""
        rows = self._try(lambda: self._sql.execute(_ALL, (agent,)), [])
        return {
            read_text(path): Cached(FileFacts(mtime_ns, size, _unsigned(inode)), body)
            for path, mtime_ns, size, inode, body in rows
        }

    def put_many(self, agent: AgentName, items: Iterable[tuple[str, Cached]]) -> None:
        """Remembers, replacing what was there for the same paths."""
        rows = [
            (agent, make_text(path), one.facts.mtime_ns, one.facts.size, _signed(one.facts.inode), one.body)
            for path, one in items
        ]
        if rows:
            self._try(lambda: self._write(_PUT, rows), None)

    def remove(self, agent: AgentName, paths: Sequence[str]) -> None:
        """Forgets these paths."""
        rows = [(agent, make_text(path)) for path in paths]
        if rows:
            self._try(lambda: self._write(_REMOVE, rows), None)

    def _write(self, statement: str, rows: Sequence[Sequence[object]]) -> None:
        with self._sql.transaction():
            self._sql.execute_many(statement, rows)

    def _try(self, act: Callable[[], _T], otherwise: _T) -> _T:
        try:
            try:
                return act()
            except StoreDamaged:
                self._sql.discard()
                return act()
        except (StoreError, OSError):
            with suppress(StoreError, OSError):
                self._sql.close()
            return otherwise


def _signed(inode: int) -> int:
    """Returns an inode number as SQLite's signed 64 bits."""
    return inode - (1 << 64) if inode >= 1 << 63 else inode


def _unsigned(inode: int) -> int:
    return inode + (1 << 64) if inode < 0 else inode
