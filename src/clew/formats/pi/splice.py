"""Goes on behind restored records, and makes a session's records those of another session.

A splice changes no byte of the prefix: its first new entry names the last line of the file as its parent, which is
what pi itself would go on from. Calls of the prefix's last message without a result are answered first, marked. A
rebase changes the id in the header, and only it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from clew.conversation.model import Message
from clew.conversation.source import Buffer, Records, Session, Stream
from clew.formats import raws
from clew.formats.jsonl import JsonLines
from clew.formats.jsonout import whole_lines
from clew.formats.outline import WrittenCall, call_names, count_losses
from clew.formats.pi import records as rec
from clew.formats.pi.content import BROKEN_OFF, call_ids
from clew.formats.pi.tree import grow_tree
from clew.formats.pi.writer import Envelope, Writing, no_image, stream_path
from clew.formats.protocol import WriteOptions, Written, WrittenFile
from clew.formats.spelling import change_member, holds_bytes, spell


class Tail(msgspec.Struct, frozen=True):
    """What a file leaves to go on from: its last entry, all ids in it, the open calls of its last reply."""

    leaf: str
    entries: frozenset[str]
    calls: frozenset[str]
    open: tuple[WrittenCall, ...]


def splice(prefix: Session, messages: Sequence[Message], options: WriteOptions) -> Written:
    """Appends messages in normal form to a session's restored records."""
    stream = prefix.records.streams[0] if prefix.records.streams else Stream(options.path, b"")
    tail = read_tail(stream)
    envelope = Envelope(
        tail.leaf, tail.entries, tail.calls, call_names((*prefix.messages, *messages)), first=len(prefix.records)
    )

    def chunks() -> Iterator[Buffer]:
        yield from whole_lines(stream)
        yield from Writing(messages, options, envelope).pieces(tail.open)

    losses, invented = count_losses(messages, holds_bytes, no_image)
    file = WrittenFile(stream.path or options.path, chunks, stream.mode)
    return Written(prefix.id or options.session_id, (file,), losses, invented + len(tail.open))


def read_tail(stream: Stream) -> Tail:
    """Reads a file once for what it leaves open; pi asks for no more than the last line."""
    entries: list[rec.Entry] = []
    layout = 1
    for _, entry in JsonLines(Records(), stream, rec.ENTRIES, [], slow=rec.ODD_ENTRIES):
        if entry is None:
            continue
        if entry.type == "session":
            layout = entry.version if isinstance(entry.version, int) else 1
        else:
            entries.append(entry)
    ids: set[str] = set()
    for entry in entries:
        if entry.message is not None and entry.message.role == "assistant":
            ids.update(call_id for call_id, _ in call_ids(entry.message.content))
    leaf = raws.as_word(entries[-1].id) if entries else ""
    names = frozenset(entry.id for entry in entries if isinstance(entry.id, str))
    path = grow_tree(entries, layout).path
    return Tail(leaf, names, frozenset(ids), tuple(_open_calls([entries[at] for at in path])))


def _open_calls(path: list[rec.Entry]) -> Iterator[WrittenCall]:
    """Yields the calls that the last reply of a path made and that nothing behind it answers."""
    waiting: list[tuple[str, str]] = []
    for entry in path:
        m = entry.message
        if m is None or entry.type != "message":
            continue
        if m.role == "assistant" and m.stop_reason not in BROKEN_OFF:
            waiting = call_ids(m.content)
        elif m.role == "user":
            waiting = []
        elif m.role == "toolResult":
            found = next((call for call in waiting if call[0] == m.tool_call_id), None)
            if found is not None:
                waiting.remove(found)
    for call_id, name in waiting:
        yield WrittenCall(call_id, name, b"{}")


def rebase(session: Session, options: WriteOptions) -> Written:
    """Returns the session's records with `options.session_id` in the header; its folder is that of its own cwd."""
    old, new = frozenset((spell(session.id),)), spell(options.session_id)
    stream = session.records.streams[0] if session.records.streams else Stream(options.path, b"")

    def chunks() -> Iterator[Buffer]:
        for number in range(len(session.records)):
            record = bytes(session.records[number])
            yield from change_member(record, b'"id"', old, new) if _is_header(record) else (record,)

    path = options.path or stream_path(options, session.cwd)
    return Written(options.session_id, (WrittenFile(path, chunks, stream.mode),))


def _is_header(record: bytes) -> bool:
    if b'"session"' not in record[:4096]:
        return False
    try:
        return rec.ENTRIES.decode(record).type == "session"
    except (msgspec.DecodeError, RecursionError):
        return False
