"""Databases of agents that are read and kept, made by hand with the columns that a reading needs."""

from __future__ import annotations

import json
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from kept_samples import CLAW, KIRO

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

__all__ = ["BASES", "Base", "everything", "make", "run_in"]


@dataclass(frozen=True)
class Base:
    """One database: where it lies, what fills it, the sessions in it, and what the first of them says.

    `removal` are the statements with which the agent deletes that one; `spoil` is one that changes a value of it.
    """

    agent: str
    path: str
    fill: Callable[[sqlite3.Connection], None]
    ids: tuple[str, ...]
    said: tuple[tuple[str, str], ...]
    removal: tuple[str, ...] = ()
    spoil: str = ""


def _goose(db: sqlite3.Connection) -> None:
    db.execute("CREATE TABLE schema_version (version INTEGER)")
    db.execute(
        "CREATE TABLE sessions (id TEXT PRIMARY KEY, name TEXT, description TEXT, session_type TEXT, working_dir TEXT,"
        " created_at TIMESTAMP, updated_at TIMESTAMP, provider_name TEXT, model_config_json TEXT)"
    )
    db.execute(
        "CREATE TABLE messages (id INTEGER PRIMARY KEY AUTOINCREMENT, session_id TEXT, role TEXT, content_json TEXT,"
        " metadata_json TEXT, created_timestamp INTEGER, timestamp TIMESTAMP)"
    )
    for name in ("g-1", "g-2"):
        row = (name, "one", "A count", "user", "/w", "2026-02-03 04:05:06", "2026-02-03 04:05:09", "lab")
        db.execute("INSERT INTO sessions VALUES (?,?,?,?,?,?,?,?,?)", (*row, '{"model_name":"m"}'))
    call = {
        "type": "toolRequest",
        "id": "t",
        "toolCall": {"status": "success", "value": {"name": "sh", "arguments": {}}},
    }
    result = {"status": "success", "value": {"content": [{"type": "text", "text": "1\n2"}], "isError": False}}
    for role, blocks in (
        ("user", [{"type": "text", "text": "Count."}]),
        ("assistant", [{"type": "text", "text": "I count."}, call]),
        ("user", [{"type": "toolResponse", "id": "t", "toolResult": result}]),
    ):
        values = ("g-1", role, json.dumps(blocks), '{"userVisible":true}', 1790000000)
        db.execute(
            "INSERT INTO messages (session_id, role, content_json, metadata_json, created_timestamp)"
            " VALUES (?,?,?,?,?)",
            values,
        )


def _crush(db: sqlite3.Connection) -> None:
    db.execute(
        "CREATE TABLE sessions (id TEXT PRIMARY KEY, parent_session_id TEXT, title TEXT NOT NULL,"
        " message_count INTEGER, updated_at INTEGER NOT NULL, created_at INTEGER NOT NULL, summary_message_id TEXT)"
    )
    db.execute(
        "CREATE TABLE messages (id TEXT PRIMARY KEY, session_id TEXT NOT NULL, role TEXT, parts TEXT DEFAULT '[]',"
        " model TEXT, provider TEXT, created_at INTEGER, updated_at INTEGER, is_summary_message INTEGER DEFAULT 0)"
    )
    db.execute("INSERT INTO sessions VALUES ('c-1', NULL, 'A count', 3, 1790000009, 1790000000, NULL)")
    for number, (role, sort, data) in enumerate(
        (
            ("user", "text", {"text": "Count."}),
            ("assistant", "tool_call", {"id": "t", "name": "sh", "input": '{"command":"seq 2"}', "finished": True}),
            ("tool", "tool_result", {"tool_call_id": "t", "content": "1\n2", "is_error": False}),
        )
    ):
        parts = json.dumps([{"type": sort, "data": data}])
        values = (f"z{9 - number}", "c-1", role, parts, "m", "lab", 1790000000, 1790000000, 0)
        db.execute("INSERT INTO messages VALUES (?,?,?,?,?,?,?,?,?)", values)

    for statement in COUNTERS:
        db.execute(statement)


COUNTERS = (
    "CREATE TRIGGER counted AFTER INSERT ON messages BEGIN"
    " UPDATE sessions SET message_count = message_count + 1 WHERE id = new.session_id; END",
    "CREATE TRIGGER uncounted AFTER DELETE ON messages BEGIN"
    " UPDATE sessions SET message_count = message_count - 1 WHERE id = old.session_id; END",
    "CREATE TRIGGER touched AFTER UPDATE ON sessions BEGIN"
    " UPDATE sessions SET updated_at = strftime('%s', 'now') WHERE id = new.id; END",
)
"""Crush counts its messages, and notes when a session changed, by triggers."""


def _kiro(db: sqlite3.Connection) -> None:
    db.execute("CREATE TABLE conversations_v2 (key TEXT, conversation_id TEXT, value TEXT, updated_at INTEGER)")
    db.execute("INSERT INTO conversations_v2 VALUES ('/w', 'q-1', ?, 1790000000)", (json.dumps(KIRO, indent=1),))


def _claw(db: sqlite3.Connection) -> None:
    db.execute(
        "CREATE TABLE transcript_events (session_id TEXT, seq INTEGER, event_json TEXT, created_at INTEGER,"
        " event_zstd BLOB, PRIMARY KEY (session_id, seq))"
    )
    for number, event in enumerate(CLAW):
        text = json.dumps(event)
        packed = zstd.compress(text.encode()) if number == 2 else None
        values = ("w-1", number, None if packed else text, 1790000000000 + number, packed)
        db.execute("INSERT INTO transcript_events VALUES (?,?,?,?,?)", values)
    db.execute("CREATE TABLE session_windows (session_id TEXT PRIMARY KEY, session_key TEXT, weight REAL)")
    db.execute("CREATE TABLE session_nodes (session_key TEXT PRIMARY KEY, current_session_id TEXT, entry_json TEXT)")
    db.execute("CREATE TABLE session_transcript_index_state (session_id TEXT PRIMARY KEY, indexed_seq INTEGER)")
    db.execute("INSERT INTO session_windows VALUES ('w-1', 'agent:main:w-1', 2.0)")
    db.execute("INSERT INTO session_nodes VALUES ('agent:main:w-1', 'w-1', '{}')")
    db.execute("INSERT INTO session_transcript_index_state VALUES ('w-1', 2)")


COUNTED = (("user", "Count."), ("assistant", "I count."), ("tool", "1\n2"))
BASES = (
    Base(
        "goose",
        ".local/share/goose/sessions/sessions.db",
        _goose,
        ("g-1", "g-2"),
        COUNTED,
        ("DELETE FROM messages WHERE session_id = 'g-1'", "DELETE FROM sessions WHERE id = 'g-1'"),
        "UPDATE messages SET role = 'user' WHERE session_id = 'g-1'",
    ),
    Base(
        "crush",
        "proj/.crush/crush.db",
        _crush,
        ("c-1",),
        (COUNTED[0], ("assistant", ""), COUNTED[2]),
        ("DELETE FROM messages WHERE session_id = 'c-1'", "DELETE FROM sessions WHERE id = 'c-1'"),
        "UPDATE messages SET model = 'other' WHERE id = 'z9'",
    ),
    Base(
        "kiro",
        ".local/share/kiro-cli/data.sqlite3",
        _kiro,
        ("q-1",),
        (*COUNTED, ("assistant", "Done.")),
        ("DELETE FROM conversations_v2 WHERE conversation_id = 'q-1'",),
        "UPDATE conversations_v2 SET updated_at = updated_at + 1",
    ),
    Base(
        "openclaw",
        ".openclaw/agents/main/agent/openclaw-agent.sqlite",
        _claw,
        ("w-1",),
        COUNTED,
        (
            "DELETE FROM transcript_events WHERE session_id = 'w-1'",
            "DELETE FROM session_windows WHERE session_id = 'w-1'",
            "DELETE FROM session_nodes WHERE current_session_id = 'w-1'",
        ),
        "UPDATE session_windows SET weight = 2 + 1",
    ),
)


def make(base: Base, home: Path) -> Path:
    """Makes the database below a home and returns its path."""
    path = home / base.path
    path.parent.mkdir(parents=True)
    with closing(sqlite3.connect(path)) as db, db:
        base.fill(db)
    return path


def everything(path: Path) -> dict[str, list[tuple[str, ...]]]:
    """Returns every value of every table as SQLite spells it, with its type; rows in order."""
    found: dict[str, list[tuple[str, ...]]] = {}
    with closing(sqlite3.connect(path)) as db:
        for (table,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY 1").fetchall():
            columns = [row[1] for row in db.execute(f"PRAGMA table_info({table})")]
            asked = ", ".join(f"typeof({column}) || ' ' || quote({column})" for column in columns)
            found[table] = sorted(db.execute(f"SELECT {asked} FROM {table}").fetchall())
    return found


def run_in(path: Path, *statements: str) -> None:
    """Changes a database, in one transaction."""
    with closing(sqlite3.connect(path)) as db, db:
        for statement in statements:
            db.execute(statement)
