"""Session records, operations and journals to store in tests, and a PostgreSQL schema to store them in."""

from __future__ import annotations

import os
import secrets
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import pytest

from clew.ids import AgentName, NativeId, ThreadId
from clew.store.record_protocol import JournalRow, Place, RecordStore

NOW = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
THREAD = ThreadId("t0000000000000001")
SESSION = "session-0001"
CLAUDE = AgentName("claude")
SCOPE = "h1\0\0/work/é"


@contextmanager
def own_schema() -> Generator[str]:
    """Makes a schema on the server that CLEW_TEST_POSTGRES names, and drops it; skips without one."""
    server = os.environ.get("CLEW_TEST_POSTGRES")
    if not server:
        pytest.skip("CLEW_TEST_POSTGRES names no server")
    import psycopg

    name = f"clew_test_{secrets.token_hex(6)}"
    try:
        yield f"{server}{'&' if '?' in server else '?'}schema={name}"
    finally:
        with psycopg.connect(server, autocommit=True) as connection:
            connection.execute(f"DROP SCHEMA IF EXISTS {name} CASCADE".encode())


def put(store: RecordStore, session: str = SESSION, expected: int | None = None, **given: Any) -> int:
    """Writes a record, and the thread it needs."""
    if store.thread(THREAD) is None:
        store.put_thread(THREAD, b"{}", expected=None, now=NOW)
    values: dict[str, Any] = {
        "thread": THREAD,
        "agent": CLAUDE,
        "native_id": NativeId(f"n-{session}"),
        "roots": (f'claude-jsonl/claude:"{session}"',),
        "scope": SCOPE,
        "fence": 0,
        "claim": "released",
        "body": b"\x00body\xff",
        "now": NOW,
        **given,
    }
    return store.put_record(session, expected=expected, **values)


def put_operation(store: RecordStore, key: str = "c\x001", expected: int | None = None, **given: Any) -> int:
    values: dict[str, Any] = {
        "caller": key.split("\0")[0],
        "fingerprint": "f" * 64,
        "state": "pending",
        "session": SESSION,
        "expires_ms": 1000,
        "body": b"op\x00\xff",
        **given,
    }
    return store.put_operation(key, expected=expected, **values)


def rows(epoch: int, first: int, count: int, *, fence: int = 1, kind: str = "item") -> tuple[JournalRow, ...]:
    """Rows of an epoch from a sequence on; the first one of an epoch is its epoch row."""
    return tuple(
        JournalRow(
            epoch, n, "epoch" if n == 1 else kind, 1_700_000_000_000 + n, fence, b"row %d:%d\x00\xff" % (epoch, n)
        )
        for n in range(first, first + count)
    )


def begin(store: RecordStore, count: int = 1, *, fence: int = 1, session: str = SESSION) -> None:
    """Writes a record at a fence and its journal of `count` rows."""
    put(store, session, fence=fence, claim="live")
    store.rewrite_journal(session, rows(1, 1, count, fence=fence), strand=session, fence=fence, expected=None)


def places(found: Iterable[JournalRow] | None) -> list[tuple[int, int]]:
    assert found is not None
    return [(row.epoch, row.sequence) for row in found]


def place(epoch: int, sequence: int) -> Place:
    return Place(epoch, sequence)
