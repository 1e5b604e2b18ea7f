"""Goes on behind restored messages, and makes a session's document that of another session.

A splice changes no byte of the messages that are there: new ones stand in front of the document's tail, and calls of
the prefix without a result are answered first, marked. The description goes with it. A task of the VS Code extension
is not gone on with: no program that reads the list as it is was shown to.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from clew.conversation.model import Message
from clew.conversation.source import Buffer, Session, SideFile, Stream
from clew.errors import UnwritableContent
from clew.formats.cline.folder import MANIFEST, MESSAGES, is_task, session_folder
from clew.formats.cline.reader import LIST
from clew.formats.cline.writer import Envelope, Writing, absolute, count_lost, describe, joined
from clew.formats.framing import Frame, frame_document
from clew.formats.loose import NONE, items_of, members_of, raw_of, word_in
from clew.formats.outline import WrittenCall, call_names
from clew.formats.protocol import WriteOptions, Written, WrittenFile
from clew.formats.spelling import change_member, spell


def splice(prefix: Session, messages: Sequence[Message], options: WriteOptions) -> Written:
    """Appends messages in normal form to a session's restored records; raises UnwritableContent for a task."""
    stream = prefix.records.streams[0] if prefix.records.streams else Stream(options.path, b"")
    _refuse_task(stream)
    data = bytes(stream.data)
    frame = frame_document(data, LIST)
    if frame is None or not frame.opened or (not frame.ends and data[frame.closed :].strip(b" \t\r\n,")):
        raise UnwritableContent(
            f"{stream.path} is cut off in the middle of a message; nothing can be put behind it",
            hint="Write a new session (--new).",
            path=stream.path,
        )
    taken, waiting = _calls(data, frame)
    names = call_names((*prefix.messages, *messages))
    envelope = Envelope(taken, names, first=len(prefix.records))

    def chunks() -> Iterator[Buffer]:
        yield data[: frame.closed]
        records = Writing(messages, options, envelope).records(waiting)
        yield from joined(records, b",\n" if frame.elements else b"\n")
        yield data[frame.closed :] if frame.ends else b"\n]}\n"

    losses, invented = count_lost(messages)
    files = [WrittenFile(stream.path or options.path, chunks, stream.mode)]
    if not prefix.helper:
        files.append(_description(prefix, messages, options, files[0].path))
    return Written(prefix.id or options.session_id, tuple(files), losses, invented + len(waiting))


def _refuse_task(stream: Stream) -> None:
    if is_task(stream):
        raise UnwritableContent(
            f"{stream.path} is a task of Cline's VS Code extension, which clew reads and does not go on with",
            hint="Write a new session of Cline's command line: --new.",
            path=stream.path,
        )


def _calls(data: bytes, frame: Frame) -> tuple[frozenset[str], tuple[WrittenCall, ...]]:
    """Returns the ids of all calls as they are written, and the calls of the last reply without a result."""
    taken: set[str] = set()
    waiting: list[tuple[str, str]] = []
    for begin, end in frame.elements:
        members = members_of(raw_of(data[begin:end]))
        blocks = [members_of(item) for item in items_of(members.get("content", NONE))]
        sorts = [(word_in(block.get("type", NONE)), block) for block in blocks]
        calls = [(word_in(b.get("id", NONE)), word_in(b.get("name", NONE))) for sort, b in sorts if sort == "tool_use"]
        if word_in(members.get("role", NONE)) == "assistant":
            waiting = calls
            taken.update(call_id for call_id, _ in calls)
        answered = [word_in(b.get("tool_use_id", NONE)) for sort, b in sorts if sort == "tool_result"]
        for call_id in answered:
            waiting = [call for call in waiting if call[0] != call_id]
    return frozenset(taken), tuple(WrittenCall(call_id, name, b"{}") for call_id, name in waiting)


def _description(prefix: Session, messages: Sequence[Message], options: WriteOptions, path: str) -> WrittenFile:
    """Returns the session's own description as it is; one of clew's making where there is none."""
    kept = _manifest(prefix, path)
    if kept is None:
        whole = (*prefix.messages, *messages)
        cwd = prefix.cwd or options.cwd
        return describe(
            whole, msgspec.structs.replace(options, session_id=prefix.id or options.session_id, cwd=cwd), path
        )
    data = bytes(kept.load())
    return WrittenFile(kept.path, lambda: (data,), kept.mode, "index")


def _manifest(session: Session, path: str) -> SideFile | None:
    wanted = path.removesuffix(MESSAGES) + MANIFEST
    return next((file for file in session.side if file.path == wanted), None)


def rebase(session: Session, options: WriteOptions) -> Written:
    """Returns the session's records with `options.session_id` for its own, and a description that names them."""
    stream = session.records.streams[0] if session.records.streams else Stream(options.path, b"")
    _refuse_task(stream)
    old, new = frozenset((spell(session.id),)), spell(options.session_id)
    last = len(session.records) - 1

    def chunks() -> Iterator[Buffer]:
        for number in range(last + 1):
            record = session.records[number]
            if number in (0, last):
                yield from _renamed(bytes(record), old, new, is_tail=number > 0)
            else:
                yield record

    folder = session_folder(options.facts.get("data", ""), options.session_id)
    path = options.path or f"{folder}{options.session_id}{MESSAGES}"
    kept = _manifest(session, stream.path)
    if kept is None:
        description = describe(session.messages, options, path)
    else:
        data = _renamed_description(bytes(kept.load()), old, new, spell(absolute(options, path)))
        description = WrittenFile(path.removesuffix(MESSAGES) + MANIFEST, lambda: (data,), kept.mode, "index")
    return Written(options.session_id, (WrittenFile(path, chunks, stream.mode), description))


def _renamed(record: bytes, old: frozenset[bytes], new: bytes, *, is_tail: bool) -> Iterator[bytes]:
    """Yields the head or the tail of the document with the new id; the tail's members lie behind its list."""
    if is_tail:
        head = b"".join(change_member(b"{[" + record, b'"sessionId"', old, new))
        yield head[2:]
        return
    place = record.find(b'"origin"')
    record = b"".join(change_member(record, b'"sessionId"', old, new))
    if place >= 0 and (begin := record.find(b"{", record.find(b'"origin"'))) >= 0:
        end = record.find(b"}", begin) + 1
        inner = b"".join(change_member(record[begin:end], b'"sessionId"', old, new))
        record = record[:begin] + inner + record[end:]
    yield record


def _renamed_description(data: bytes, old: frozenset[bytes], new: bytes, path: bytes) -> bytes:
    data = b"".join(change_member(data, b'"session_id"', old, new))
    kept = bytes(members_of(raw_of(data)).get("messages_path", NONE))
    return b"".join(change_member(data, b'"messages_path"', frozenset((kept,)), path)) if kept else data
