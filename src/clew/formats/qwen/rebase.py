"""Makes a session's verbatim records those of another session: its id, and only that, changes, byte for byte.

The id stands in the top-level member `sessionId` of every record. Texts, arguments and ids of records are left alone.
"""

from __future__ import annotations

from collections.abc import Iterator

from clew.conversation.source import Buffer, Session, SideFile, Stream
from clew.formats.parts.spelling import change_member
from clew.formats.protocol import WriteOptions, Written, WrittenFile
from clew.formats.qwen.reader import HELPERS, read_tail
from clew.formats.qwen.writer import PROJECTS, folder_name, stream_path
from clew.formats.spelling import spell

_MEMBER = b'"sessionId"'


def rebase(session: Session, options: WriteOptions) -> Written:
    """Returns the session's records with `options.session_id` for its own, in the folder of `options.cwd`."""
    stream = session.records.streams[0] if session.records.streams else Stream("", b"")
    old, new = spell(read_tail(stream, session.id).own or session.id), spell(options.session_id)
    cwd = session.cwd or options.cwd

    def chunks() -> Iterator[Buffer]:
        for number in range(len(session.records)):
            yield from change_member(bytes(session.records[number]), _MEMBER, old, new, _is_top)

    files = [WrittenFile(options.path or stream_path(cwd, options.session_id), chunks, stream.mode)]
    for side in session.side:
        parts = side.path.split("/")
        if session.id in parts[:-1] and HELPERS in parts[:-1]:
            below = "/".join(parts[parts.index(session.id) + 1 :])
            path = f"{PROJECTS}/{folder_name(cwd)}/{HELPERS}/{options.session_id}/{below}"
            files.append(WrittenFile(path, lambda s=side: _side_chunks(s, old, new), side.mode, "side"))
    return Written(options.session_id, tuple(files))


def _is_top(place: tuple[bytes, ...]) -> bool:
    return not place


def _side_chunks(side: SideFile, old: bytes, new: bytes) -> Iterator[Buffer]:
    data = side.load()
    if not side.path.endswith(".jsonl"):
        yield data
        return
    for line in bytes(data).splitlines(keepends=True):
        yield from change_member(line, _MEMBER, old, new, _is_top)
