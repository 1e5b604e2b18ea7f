"""One session's rows in Hermes's database: exported in a fixed order, and put there in one transaction.

The order is: the session's row, what is noted of it (clew's mark, a goal), its counts by model, then each message by
its number, which is the agent's own order, with clew's mark of it behind it. So a session that only grows keeps its
beginning, apart from what the agent rewrites in place. Marks are rows of the agent's own table of notes, `state_meta`:
no message carries anything that a model could be sent.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from clew.conversation.source import Buffer
from clew.errors import Refused, UnsupportedVersion
from clew.formats.hermes import schema
from clew.formats.rows import NoRow, Row, Value, decode_rows, encode_row, own_lines
from clew.formats.sqlite import Change, Tables, change_database, read_database
from clew.platform.fs import ensure_folder

NEEDED = {
    "sessions": ("id", "source", "model", "started_at", "message_count", "tool_call_count"),
    "messages": ("id", "session_id", "role", "content", "tool_call_id", "tool_calls", "tool_name", "timestamp"),
}
"""What has to be there for a database to be read."""

SESSION_MARK = "clew:session:"
MESSAGE_MARK = "clew:message:"
GOAL = "goal:"
"""Keys of `state_meta`, before the id of a session or the number of a message."""

_START = "Start Hermes once, so that it brings its database up to date; then try again."


def check_layout(tables: Tables, path: Path) -> None:
    """Raises UnsupportedVersion where the database has not the tables of a layout that is known."""
    for table, columns in NEEDED.items():
        missing = [name for name in columns if name not in tables.columns(table)]
        if missing:
            what = f"no table {table!r}" if table not in tables.names else f"no column {table}.{missing[0]}"
            raise UnsupportedVersion(
                f"{path} has {what}: it is half made, or of a version of Hermes that clew does not know",
                hint=_START,
                path=str(path),
            )


def check_writable(tables: Tables, path: Path) -> None:
    """Raises UnsupportedVersion where the layout is another than the one that is written, or half brought up to it;
    Refused where this SQLite lacks what the database needs."""
    known = tables.columns("schema_version")
    found = tables.query("SELECT version FROM schema_version") if known else []
    versions = [row[0] for row in found]
    missing = [
        f"{table}.{name}"
        for table in ("sessions", "messages", "state_meta")
        for name in schema.columns_of(table)
        if name not in tables.columns(table)
    ]
    if versions == [schema.VERSION] and not missing:
        _check_search(tables, path)
        return
    if len(versions) == 1 and isinstance(versions[0], int) and versions[0] > schema.VERSION:
        what = f"has layout {versions[0]}, which is newer than the one that clew writes ({schema.VERSION})"
        hint = "A newer clew may know it. Reading and keeping its sessions works."
    else:
        state = f"no column {missing[0]}" if missing else f"layout {', '.join(map(str, versions)) or 'unknown'}"
        what, hint = f"is not brought up to layout {schema.VERSION}: {state}", _START
    raise UnsupportedVersion(f"{path} {what}; nothing was written", hint=hint, path=str(path))


def _check_search(tables: Tables, path: Path) -> None:
    """Inserting a message fills the agent's full text search by triggers, which needs SQLite's FTS5."""
    if "messages_fts" not in tables.names:
        return
    version, has = tables.query("SELECT sqlite_version(), sqlite_compileoption_used('ENABLE_FTS5')")[0]
    if not has or tuple(int(piece) for piece in str(version).split(".")[:2]) < (3, 34):
        raise Refused(
            f"{path} has a full text search that this SQLite ({version}) cannot keep; nothing was written",
            code="schema_differs",
            hint="Install apsw from its own wheel: its SQLite has FTS5 with trigrams.",
            path=str(path),
        )


def export_session(tables: Tables, session_id: str) -> bytes | None:
    """Returns the rows of one session laid end to end, or None where there is no such session."""
    sessions = list(tables.rows("sessions", '"id" = ?', (session_id,), ("id",)))
    if not sessions:
        return None
    lines = [encode_row("sessions", tables.columns("sessions"), sessions[0])]
    if "state_meta" in tables.names:
        keys = (SESSION_MARK + session_id, GOAL + session_id)
        lines += _encoded(tables, "state_meta", '"key" IN (?, ?)', keys, ("key",))
    if "session_id" in tables.columns("session_model_usage"):
        order = tables.key("session_model_usage")
        lines += _encoded(tables, "session_model_usage", '"session_id" = ?', (session_id,), order)
    lines += _messages(tables, session_id)
    return b"".join(lines)


def _encoded(
    tables: Tables, table: str, where: str, parameters: Sequence[str], order: Sequence[str]
) -> Iterator[bytes]:
    for values in tables.rows(table, where, parameters, order):
        yield encode_row(table, tables.columns(table), values)


def _messages(tables: Tables, session_id: str) -> Iterator[bytes]:
    marks = _marks(tables, session_id)
    columns = tables.columns("messages")
    number = columns.index("id")
    for values in tables.rows("messages", '"session_id" = ?', (session_id,), ("id",)):
        yield encode_row("messages", columns, values)
        mark = marks.get(f"{MESSAGE_MARK}{values[number]}")
        if mark is not None:
            yield mark


def _marks(tables: Tables, session_id: str) -> dict[Value, bytes]:
    if "state_meta" not in tables.names:
        return {}
    columns = tables.columns("state_meta")
    where = f"\"key\" IN (SELECT '{MESSAGE_MARK}' || id FROM messages WHERE session_id = ?)"  # noqa: S608 - no input
    rows = tables.rows("state_meta", where, (session_id,), ("key",))
    return {values[columns.index("key")]: encode_row("state_meta", columns, values) for values in rows}


# --- putting rows there ----------------------------------------------------------------------------------------


def present_rows(path: Path, session_id: str) -> bytes | None:
    """Returns the rows of a session as they are now; None where the database or the session is not there."""
    if not path.exists() and not path.is_symlink():
        return None

    def read(tables: Tables) -> bytes | None:
        check_layout(tables, path)
        return export_session(tables, session_id)

    return read_database(path, read)


def put_rows(path: Path, session_id: str, data: Buffer, expect: Buffer | None, now_ms: int) -> None:
    """Brings the rows of one session to exactly `data`, in one transaction, if they are exactly `expect` now.

    `expect` None stands for no such session. A database that is not there is laid out first. Raises Refused
    (`target_diverged`, `database_busy`, `live_owner`, `schema_differs`), UnsupportedVersion or UnreadableSource; then
    nothing was written.
    """
    _check_session(_rows(data, path), path, session_id)

    def export(tables: Tables) -> bytes | None:
        check_layout(tables, path)
        check_writable(tables, path)
        _check_lock(tables, path, session_id, now_ms)
        return export_session(tables, session_id)

    def check(there: bytes | None) -> None:
        same = there is None if expect is None else there is not None and own_lines(there) == own_lines(expect)
        if not same:
            raise _diverged(path, session_id, there, expect)

    if path.exists() and not path.is_symlink():
        read_database(path, lambda tables: check_writable(tables, path))  # what is torn is not mended by writing to it
    ensure_folder(path.parent)
    change = Change(export, check, data, lambda lines: _rows(lines, path))
    change_database(path, [change], make=lambda connection: schema.lay_out(connection.execute))


def _check_lock(tables: Tables, path: Path, session_id: str, now_ms: int) -> None:
    """Raises Refused while the agent compacts the session: it says so in a table of its own."""
    if not {"session_id", "expires_at"} <= set(tables.columns("compression_locks")):
        return
    asked = "SELECT expires_at FROM compression_locks WHERE session_id = ?"
    held = [row[0] for row in tables.query(asked, (session_id,)) if isinstance(row[0], int | float)]
    if any(until * 1000 > now_ms for until in held):
        raise Refused(
            f"{path}: Hermes is compacting session {session_id}; nothing was written",
            code="live_owner",
            hint="Try again when it is done.",
            path=str(path),
            session=session_id,
        )


def _rows(data: Buffer, path: Path) -> Sequence[Row]:
    try:
        return decode_rows(data)
    except NoRow as error:
        raise Refused(
            f"the rows for {path} are damaged: {error}; nothing was written",
            code="damaged_rows",
            hint="A database takes whole rows only; an older capture may be sound: `clew restore --capture N`.",
            path=str(path),
        ) from error


def _check_session(rows: Sequence[Row], path: Path, session_id: str) -> None:
    """Raises Refused where the rows are not those of this one session."""
    ids = [row.values.get("id") for row in rows if row.table == "sessions"]
    notes = {f"{MESSAGE_MARK}{row.values.get('id')}" for row in rows if row.table == "messages"}
    notes |= {SESSION_MARK + session_id, GOAL + session_id}
    if ids != [session_id] or not all(_belongs(row, session_id, notes) for row in rows):
        raise Refused(
            f"the rows for {path} are not those of the one session {session_id}; nothing was written",
            code="damaged_rows",
            hint="Rows of other sessions are never touched.",
            path=str(path),
            session=session_id,
        )


def _belongs(row: Row, session_id: str, notes: set[str]) -> bool:
    match row.table:
        case "sessions":
            return True
        case "messages":
            return row.values.get("session_id") == session_id and isinstance(row.values.get("id"), int)
        case "session_model_usage":
            return row.values.get("session_id") == session_id
        case "state_meta":
            return row.values.get("key") in notes
        case _:
            return False


def _diverged(path: Path, session_id: str, there: bytes | None, expect: Buffer | None) -> Refused:
    what = "is gone" if there is None else "is there already" if expect is None else "was changed"
    return Refused(
        f"{path}: session {session_id} {what} meanwhile; nothing was written",
        code="target_diverged",
        hint="Look at what is there now, or write to a new session (--new).",
        path=str(path),
        session=session_id,
    )
