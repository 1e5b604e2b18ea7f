"""Makes a session's verbatim records those of another session: its id, and only that, changes, byte for byte.

The id stands in the top-level member `sessionId` of every record that has one. Texts, arguments, requests and the ids
of records are left alone, and so is the id of a stranger. Nothing is serialised anew.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from clew.conversation.source import Buffer, Session, SideFile
from clew.formats.claude.ending import read_state
from clew.formats.claude.folder import HISTORY, PROJECTS, folder_name, stream_path
from clew.formats.claude.spelling import spell
from clew.formats.protocol import WriteOptions, Written, WrittenFile

_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}]', re.DOTALL)
_COLON = re.compile(rb"[ \t\r\n]*:[ \t\r\n]*")
_LINE = re.compile(rb"[^\n]*\n|[^\n]+")
_MEMBER = b'"sessionId"'


def rebase(session: Session, options: WriteOptions) -> Written:
    """Returns the session's records with `options.session_id` for its own, in the folder of `options.cwd`."""
    known = read_state(session.ending.state) if session.ending is not None else None
    own = {session.id, known.own if known is not None else session.id}
    old = frozenset(spell(name) for name in own if name)
    new = spell(options.session_id)
    cwd = options.cwd or session.cwd

    def chunks() -> Iterator[Buffer]:
        for number in range(len(session.records)):
            yield from change_id(bytes(session.records[number]), old, new)

    files = [WrittenFile(options.path or stream_path(cwd, options.session_id), chunks, _mode(session))]
    for side in session.side:
        path = _side_path(side.path, session.id, cwd, options.session_id)
        if path:
            files.append(WrittenFile(path, _side_chunks(side, old, new), side.mode, "side"))
    return Written(options.session_id, tuple(files))


def _mode(session: Session) -> int:
    return session.records.streams[0].mode if session.records.streams else 0o600


def _side_path(path: str, old: str, cwd: str, new: str) -> str:
    """Returns where a side file lies for the new session; nothing for one that is not in a folder of the id's name."""
    parts = path.split("/")
    if old not in parts[:-1]:
        return ""
    below = "/".join(parts[parts.index(old) + 1 :])
    if parts[0] == HISTORY:
        return f"{HISTORY}/{new}/{below}"
    return f"{PROJECTS}/{folder_name(cwd)}/{new}/{below}"


def _side_chunks(side: SideFile, old: frozenset[bytes], new: bytes) -> Callable[[], Iterator[Buffer]]:
    def chunks() -> Iterator[Buffer]:
        data = side.load()
        if not side.path.endswith(".jsonl"):
            yield data
            return
        for line in _LINE.findall(bytes(data)):
            yield from change_id(line, old, new)

    return chunks


def change_id(record: bytes, old: frozenset[bytes], new: bytes) -> Iterator[bytes]:
    """Yields a record with each top-level `sessionId` that is one of `old` (JSON strings) replaced by `new`."""
    start = 0
    if _MEMBER in record:
        for begin, end in _ids(record):
            if record[begin:end] in old:
                yield record[start:begin]
                yield new
                start = end
    yield record[start:]


def _ids(record: bytes) -> Iterator[tuple[int, int]]:
    """Yields where the values of top-level members `sessionId` begin and end."""
    depth = 0
    for token in _TOKEN.finditer(record):
        sign = record[token.start()]
        if sign == 0x22:
            if depth == 1 and token.group() == _MEMBER:
                colon = _COLON.match(record, token.end())
                value = _TOKEN.match(record, colon.end()) if colon is not None else None
                if value is not None and record[value.start()] == 0x22:
                    yield value.start(), value.end()
        else:
            depth += 1 if sign in b"[{" else -1
