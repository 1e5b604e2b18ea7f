"""Goes on behind restored records: not a byte of them changes, and what comes follows their own form.

Behind lines come lines, and the time of the last change; in a document the new messages stand in front of its tail.
Calls that the prefix leaves open are answered first, marked.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from clew.conversation.model import Message
from clew.conversation.source import Buffer, Session, Stream
from clew.errors import UnwritableContent
from clew.formats.gemini.document import Frame, frame_document, is_document
from clew.formats.gemini.reader import last_calls
from clew.formats.gemini.writer import DIALECT, Records, unmarked_owner
from clew.formats.jsonout import whole_lines
from clew.formats.parts.spelling import Pieces, encode_value
from clew.formats.parts.writing import count_losses, invented_content
from clew.formats.protocol import WriteOptions, Written, WrittenFile
from clew.formats.times import write_time


def splice(prefix: Session, messages: Sequence[Message], options: WriteOptions) -> Written:
    """Appends messages in normal form to a session's restored records."""
    stream = prefix.records.streams[0] if prefix.records.streams else Stream(options.path, b"")
    taken, open_calls = last_calls(stream, prefix.id)

    def records() -> Iterator[Pieces]:
        made = Records(messages, options, first=len(prefix.records), taken=taken)
        if open_calls:
            yield made.answers([invented_content(call_id, name) for call_id, name in open_calls])
        yield from made.records()

    frame = frame_document(bytes(stream.data)) if is_document(memoryview(stream.data), stream.path) else None
    if frame is not None and not frame.ends and memoryview(stream.data)[frame.closed :].tobytes().strip():
        raise UnwritableContent(
            f"{stream.path} is cut off in the middle of a message; nothing can be put behind it",
            hint="`clew repair` makes a sound copy of it.",
            path=stream.path,
        )

    def chunks() -> Iterator[Buffer]:
        return _behind_lines(stream, records(), options) if frame is None else _in_document(stream, frame, records())

    losses, invented = count_losses(messages, DIALECT, thinks=True)
    file = WrittenFile(stream.path or options.path, chunks, stream.mode)
    files = (file, *unmarked_owner(file.path, prefix.cwd or options.cwd, options))
    return Written(prefix.id or options.session_id, files, losses, invented + len(open_calls))


def _behind_lines(stream: Stream, records: Iterator[Pieces], options: WriteOptions) -> Iterator[Buffer]:
    yield from whole_lines(stream)
    for record in records:
        yield from record
        yield b"\n"
    yield encode_value({"$set": {"lastUpdated": write_time(options.now_ms)}}) + b"\n"


def _in_document(stream: Stream, frame: Frame, records: Iterator[Pieces]) -> Iterator[Buffer]:
    data = memoryview(stream.data)
    yield data[: frame.closed]
    lead = b"," if frame.elements else b""
    for record in records:
        yield lead
        yield from record
        lead = b","
    yield data[frame.closed :] if frame.ends else b"]}"
