"""One session's rows in OpenCode's database: exported in a fixed order, and put there in one transaction.

The order is: the project's row (shared with other sessions), the session's row, rows of other tables that belong to
the session, parts without a message, then each message with its parts, as the agent orders them: messages by time and
id, parts by id. So a session that only grows keeps its beginning, apart from what the agent rewrites in place. The
agent's own log of changes (`event`, `event_sequence`) is no part of it: the agent makes it anew.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from clew.conversation.source import Buffer
from clew.errors import Refused, UnsupportedVersion
from clew.formats.opencode import schema
from clew.formats.rows import NoRow, Row, Value, decode_rows, encode_row, own_lines
from clew.formats.sqlite import Change, Tables, change_database, read_database
from clew.platform.fs import ensure_folder

NEEDED = {
    "session": ("id", "project_id", "directory", "title", "time_created", "time_updated"),
    "message": ("id", "session_id", "time_created", "data"),
    "part": ("id", "message_id", "session_id", "data"),
}
"""What has to be there for a database to be read."""

_NOT_OURS = ("session", "message", "part", "event", "event_sequence")


def check_layout(tables: Tables, path: Path) -> None:
    """Raises UnsupportedVersion where the database has not the tables of a layout that is known."""
    for table, columns in NEEDED.items():
        missing = [name for name in columns if name not in tables.columns(table)]
        if missing:
            what = f"no table {table!r}" if table not in tables.names else f"no column {table}.{missing[0]}"
            raise UnsupportedVersion(
                f"{path} has {what}: it is half made, or of a version of OpenCode that clew does not know",
                hint="Start OpenCode once, so that it brings its database up to date.",
                path=str(path),
            )


def export_session(tables: Tables, session_id: str) -> bytes | None:
    """Returns the rows of one session laid end to end, or None where there is no such session."""
    sessions = list(tables.rows("session", '"id" = ?', (session_id,), ("id",)))
    if not sessions:
        return None
    session = dict(zip(tables.columns("session"), sessions[0], strict=True))
    lines = list(_project(tables, session.get("project_id")))
    lines.append(encode_row("session", tables.columns("session"), sessions[0]))
    for table in sorted(tables.names):
        if table not in _NOT_OURS and "session_id" in tables.columns(table):
            lines += _encoded(tables, table, tables.rows(table, '"session_id" = ?', (session_id,), tables.key(table)))
    parts = _parts(tables, session_id)
    messages: list[bytes] = []
    columns = tables.columns("message")
    place = columns.index("id")
    for values in tables.rows("message", '"session_id" = ?', (session_id,), ("time_created", "id")):
        messages.append(encode_row("message", columns, values))
        messages += parts.pop(values[place], ())
    for orphans in parts.values():
        lines += orphans
    return b"".join((*lines, *messages))


def _project(tables: Tables, project_id: Value) -> Iterator[bytes]:
    if "project" in tables.names and isinstance(project_id, str):
        for values in tables.rows("project", '"id" = ?', (project_id,), ("id",)):
            yield encode_row("project", tables.columns("project"), values, shared=True)


def _encoded(tables: Tables, table: str, rows: Iterator[list[Value]]) -> Iterator[bytes]:
    for values in rows:
        yield encode_row(table, tables.columns(table), values)


def _parts(tables: Tables, session_id: str) -> dict[Value, list[bytes]]:
    """Returns the lines of all parts by the message they belong to, in the order of their ids."""
    columns = tables.columns("part")
    owner = columns.index("message_id")
    found: dict[Value, list[bytes]] = {}
    for values in tables.rows("part", '"session_id" = ?', (session_id,), ("message_id", "id")):
        found.setdefault(values[owner], []).append(encode_row("part", columns, values))
    return found


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

    `expect` None stands for no such session. Rows shared with other sessions are put where they are missing, and
    neither compared nor changed. A database that is not there is laid out first. Raises Refused
    (`target_diverged`, `database_busy`, `schema_differs`), UnsupportedVersion or UnreadableSource; then nothing
    was written.
    """
    _check_session(_rows(data, path), path, session_id)

    def export(tables: Tables) -> bytes | None:
        check_layout(tables, path)
        return export_session(tables, session_id)

    def check(there: bytes | None) -> None:
        same = there is None if expect is None else there is not None and own_lines(there) == own_lines(expect)
        if not same:
            raise _diverged(path, session_id, there, expect)

    ensure_folder(path.parent)
    change = Change(export, check, data, lambda lines: _rows(lines, path))
    change_database(path, [change], make=lambda connection: schema.lay_out(connection.execute, now_ms))


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
    ids = [row.values.get("id") for row in rows if row.table == "session"]
    strangers = [row for row in rows if not row.shared and row.table != "session" and not _belongs(row, ids)]
    if ids != [session_id] or strangers:
        raise Refused(
            f"the rows for {path} are not those of the one session {session_id}; nothing was written",
            code="damaged_rows",
            hint="Rows of other sessions are never touched.",
            path=str(path),
            session=session_id,
        )


def _belongs(row: Row, ids: Sequence[Value]) -> bool:
    return row.values.get("session_id") in ids


def _diverged(path: Path, session_id: str, there: bytes | None, expect: Buffer | None) -> Refused:
    what = "is gone" if there is None else "is there already" if expect is None else "was changed"
    return Refused(
        f"{path}: session {session_id} {what} meanwhile; nothing was written",
        code="target_diverged",
        hint="Look at what is there now, or write to a new session (--new).",
        path=str(path),
        session=session_id,
    )
