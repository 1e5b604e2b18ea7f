"""Makes verbatim records another thread: the thread's own id is changed where the agent keeps it, and nothing else.

The id stands in `session_meta` (`id`, `session_id`), in events and usage records (`thread_id`, `session_id`), and in
the file's name. A text that mentions the id keeps it: inside of a JSON string the quotes around it are escaped.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath

from clew.conversation.source import Buffer, Records, Session, Stream
from clew.formats.codex import compressed
from clew.formats.codex.records import rollout_lines
from clew.formats.codex.writer import file_name
from clew.formats.protocol import WriteOptions, Written, WrittenFile
from clew.ids import is_safe_name

_KEEPS_ID = ("session_meta", "event_msg", "token_usage_record", "turn_context")


def rebase(session: Session, options: WriteOptions) -> Written:
    """Rewrites a thread's records for another id; a compressed rollout becomes a plain one."""
    assert is_safe_name(options.session_id), "the caller gives ids of clew's own making"
    files = tuple(_file(stream, session.id, options) for stream in session.records.streams)
    return Written(options.session_id, files)


def _file(stream: Stream, old: str, options: WriteOptions) -> WrittenFile:
    plain = compressed.unpack(stream, 0)[0] if compressed.is_compressed(stream) else stream

    def chunks() -> Iterable[Buffer]:
        return _chunks(plain, old, options.session_id)

    return WrittenFile(_path(plain.path, old, options), chunks, stream.mode)


def _path(path: str, old: str, options: WriteOptions) -> str:
    name = PurePosixPath(path).name
    if not old or old not in name or path.startswith("/"):
        return file_name(options.session_id, options.now_ms)
    folder = path[: len(path) - len(name)].replace("archived_sessions/", "sessions/", 1)
    return folder + name.replace(old, options.session_id, 1)


def _chunks(stream: Stream, old: str, new: str) -> Iterator[Buffer]:
    member = re.compile(rb'("(?:id|session_id|thread_id)"\s*:\s*")' + re.escape(old.encode()) + rb'(?=")')
    records = Records()
    lines = rollout_lines(records, stream, [])
    kept = {number for number, line in lines if line is not None and line.type in _KEEPS_ID} if old else set[int]()
    for number in range(len(records)):
        data = records[number]
        if number in kept:
            yield member.sub(lambda found: found.group(1) + new.encode(), bytes(data))
        else:
            yield data
