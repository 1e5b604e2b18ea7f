"""Makes a session's rows another session: another id for it, other numbers for its messages.

Numbers are keys of a whole table here, so that a second session cannot keep any of them; no two sessions may have the
same title, so the second one has none, and it is nobody's child. Every other column keeps its value. Counts of what
was used belong to the first session alone and stay behind.
"""

from __future__ import annotations

from collections.abc import Iterator

from clew.conversation.source import Session
from clew.errors import UnwritableContent
from clew.formats.hermes.database import GOAL, MESSAGE_MARK, SESSION_MARK
from clew.formats.protocol import WriteOptions, Written, WrittenFile
from clew.formats.rows import NoRow, Row, Value, database_of, decode_row, encode_row, is_rows, name_rows


def rebase(session: Session, options: WriteOptions) -> Written:
    """Rewrites a session's rows for another id; raises UnwritableContent where one is damaged."""
    if [is_rows(stream.path) for stream in session.records.streams] != [True]:
        raise UnwritableContent(f"session {session.id} is not kept in rows", code="no_rows", session=session.id)
    stream = session.records.streams[0]
    first = int(options.facts.get("last", "0"))

    def chunks() -> Iterator[bytes]:
        numbers: dict[str, int] = {}
        for row in _rows(session):
            values = _renamed(row, options.session_id, numbers, first)
            if values is not None:
                yield encode_row(row.table, tuple(values), tuple(values.values()), shared=row.shared)

    path = name_rows(database_of(stream.path), options.session_id)
    return Written(options.session_id, (WrittenFile(path, chunks, stream.mode),))


def _rows(session: Session) -> Iterator[Row]:
    for number in range(len(session.records)):
        data = session.records[number]
        if not bytes(data).strip():
            continue
        try:
            yield decode_row(data)
        except NoRow as error:
            raise UnwritableContent(
                f"row {number} of session {session.id} is damaged: {error}", code="damaged_rows", session=session.id
            ) from error


def _renamed(row: Row, session_id: str, numbers: dict[str, int], first: int) -> dict[str, Value] | None:
    """Returns the columns of a row for the other session; None for one that stays behind."""
    values = row.values
    if row.table == "sessions":
        return values | {name: None for name in ("title", "parent_session_id") if name in values} | {"id": session_id}
    if row.table == "messages":
        numbers[str(values.get("id"))] = number = first + len(numbers) + 1
        return values | {"id": number, "session_id": session_id}
    if row.table == "state_meta":
        key = str(values.get("key"))
        for head in (SESSION_MARK, GOAL):
            if key.startswith(head):
                return values | {"key": head + session_id}
        number = numbers.get(key.removeprefix(MESSAGE_MARK), 0)
        return values | {"key": f"{MESSAGE_MARK}{number}"} if number else None
    return None
