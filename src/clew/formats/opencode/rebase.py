"""Makes a session's rows another session: new ids for it, its messages and its parts, as a fork of the agent's does.

Ids are keys of whole tables here, so that a second session cannot keep any of them. They are changed where the agent
keeps them, as columns and as members of its JSON, byte by byte; nothing is re-serialised, and a text that mentions an
id keeps it. Rows of other tables (a share, a queue of prompts) belong to the first session alone and stay behind.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from clew.conversation.source import Session
from clew.errors import UnwritableContent
from clew.formats.opencode.names import renamed
from clew.formats.opencode.records import LINE, decode, text_in
from clew.formats.protocol import WriteOptions, Written, WrittenFile
from clew.formats.rows import database_of, is_rows, name_rows

_KEPT = ("project", "session", "todo", "message", "part")
_MEMBER = re.compile(
    rb'("(?:id|session_id|message_id|sessionID|messageID|parentID|partID|tail_start_id)"\s*:\s*")'
    rb'([A-Za-z0-9_.-]{1,200})(?=")'
)


def rebase(session: Session, options: WriteOptions) -> Written:
    """Rewrites a session's rows for another id; raises UnwritableContent where it is not kept in rows."""
    if [is_rows(stream.path) for stream in session.records.streams] != [True]:
        raise UnwritableContent(f"session {session.id} is not kept in rows", code="older_layout", session=session.id)
    stream = session.records.streams[0]
    names = _names(session, options)

    def chunks() -> Iterator[bytes]:
        for number in range(len(session.records)):
            data = bytes(session.records[number])
            line = decode(LINE, data)
            if line is None or line.table in _KEPT:
                yield _renamed(data, names)

    path = name_rows(database_of(stream.path), options.session_id)
    return Written(options.session_id, (WrittenFile(path, chunks, stream.mode),))


def _names(session: Session, options: WriteOptions) -> dict[bytes, bytes]:
    names = {session.id.encode("utf-8", "replace"): options.session_id.encode()}
    for number in range(len(session.records)):
        line = decode(LINE, session.records[number])
        if line is not None and line.table in ("message", "part"):
            old = text_in(line.row.id)
            if old:
                names[old.encode("utf-8", "replace")] = renamed(old, options.session_id).encode()
    return names


def _renamed(data: bytes, names: dict[bytes, bytes]) -> bytes:
    return _MEMBER.sub(lambda found: found.group(1) + names.get(found.group(2), found.group(2)), data)
