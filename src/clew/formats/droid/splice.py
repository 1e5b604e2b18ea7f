"""Goes on behind restored records, and makes a session's records those of another session.

A splice changes no byte of the prefix: its first new record names the prefix's last message as its parent, and calls
of the last reply without a result are answered first, marked. A rebase changes the id in the first record, and only it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from clew.conversation.model import Message
from clew.conversation.source import Buffer, Records, Session, Stream
from clew.formats import raws
from clew.formats.droid import records as rec
from clew.formats.droid.content import answered_ids, call_ids
from clew.formats.droid.folder import stream_path
from clew.formats.droid.writer import Envelope, Writing, no_image
from clew.formats.jsonl import JsonLines
from clew.formats.jsonout import whole_lines
from clew.formats.outline import WrittenCall, call_names, count_losses
from clew.formats.protocol import WriteOptions, Written, WrittenFile
from clew.formats.spelling import change_member, holds_bytes, spell


class Tail(msgspec.Struct, frozen=True):
    """What a file leaves to go on from: its last message, the ids of all calls, the open calls of its last reply."""

    leaf: str
    calls: frozenset[str]
    open: tuple[WrittenCall, ...]


def splice(prefix: Session, messages: Sequence[Message], options: WriteOptions) -> Written:
    """Appends messages in normal form to a session's restored records."""
    stream = prefix.records.streams[0] if prefix.records.streams else Stream(options.path, b"")
    tail = read_tail(stream)
    names = call_names((*prefix.messages, *messages))
    envelope = Envelope(tail.leaf, tail.calls, names, first=len(prefix.records))

    def chunks() -> Iterator[Buffer]:
        yield from whole_lines(stream)
        yield from Writing(messages, options, envelope).pieces(tail.open)

    losses, invented = count_losses(messages, holds_bytes, no_image)
    file = WrittenFile(stream.path or options.path, chunks, stream.mode)
    return Written(prefix.id or options.session_id, (file,), losses, invented + len(tail.open))


def read_tail(stream: Stream) -> Tail:
    """Reads a file once for what it leaves open."""
    leaf = ""
    ids: set[str] = set()
    waiting: list[tuple[str, str]] = []
    for _, record in JsonLines(Records(), stream, rec.RECORDS, [], slow=rec.ODD_RECORDS):
        if record is None or record.type != "message" or record.message is None:
            continue
        leaf = raws.as_word(record.id) or leaf
        if record.message.role == "assistant":
            waiting = call_ids(record.message.content)
            ids.update(call_id for call_id, _ in waiting)
            continue
        for call_id in answered_ids(record.message.content):
            found = next((call for call in waiting if call[0] == call_id), None)
            if found is not None:
                waiting.remove(found)
    return Tail(leaf, frozenset(ids), tuple(WrittenCall(call_id, name, b"{}") for call_id, name in waiting))


def rebase(session: Session, options: WriteOptions) -> Written:
    """Returns the session's records with `options.session_id` in the first of them; the folder is that of its cwd."""
    old, new = frozenset((spell(session.id),)), spell(options.session_id)
    stream = session.records.streams[0] if session.records.streams else Stream(options.path, b"")

    def chunks() -> Iterator[Buffer]:
        for number in range(len(session.records)):
            record = bytes(session.records[number])
            yield from change_member(record, b'"id"', old, new) if _is_header(record) else (record,)

    path = options.path or stream_path(session.cwd or options.cwd, options.session_id)
    return Written(options.session_id, (WrittenFile(path, chunks, stream.mode),))


def _is_header(record: bytes) -> bool:
    if b'"session_start"' not in record[:4096]:
        return False
    try:
        return rec.RECORDS.decode(record).type == "session_start"
    except raws.DECODE_ERRORS:
        return False
