"""Goes on behind the steps of a trajectory, and makes its bytes those of another session.

New steps stand between the last one and what closes the list; not a byte before or behind them changes. Of a rebase
only the value of `session_id` is another.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from clew.conversation.model import Message
from clew.conversation.source import Buffer, Session, Stream
from clew.errors import UnwritableContent
from clew.formats.atif.reader import STEPS
from clew.formats.atif.writer import Steps, count_losses, file_name
from clew.formats.framing import Frame, frame_document
from clew.formats.loose import NONE, items_of, members_of, raw_of, word_in
from clew.formats.protocol import WriteOptions, Written, WrittenFile
from clew.formats.spelling import spell


def splice(prefix: Session, messages: Sequence[Message], options: WriteOptions) -> Written:
    """Appends messages in normal form; raises UnwritableContent behind a document that is cut off in a step."""
    stream = prefix.records.streams[0] if prefix.records.streams else Stream(options.path, b"")
    data = bytes(stream.data)
    frame = frame_document(data, STEPS)
    if frame is None or not frame.opened or (not frame.ends and data[frame.closed :].strip()):
        raise UnwritableContent(
            f"{stream.path} is cut off in the middle of a step; nothing can be put behind it",
            hint="`clew repair` makes a sound copy of it.",
            path=stream.path,
        )
    taken = frozenset(_call_ids(data, frame))

    def chunks() -> Iterator[Buffer]:
        yield data[: frame.closed]
        lead = b",\n" if frame.elements else b"\n"
        for step in Steps(messages, len(frame.elements) + 1, taken).steps():
            yield lead + step
            lead = b",\n"
        yield data[frame.closed :] if frame.ends else b"\n]}\n"

    file = WrittenFile(stream.path or options.path, chunks, stream.mode)
    return Written(prefix.id or options.session_id, (file,), count_losses(messages))


def _call_ids(data: bytes, frame: Frame) -> Iterator[str]:
    for begin, end in frame.elements:
        for item in items_of(members_of(raw_of(data[begin:end])).get("tool_calls", NONE)):
            yield word_in(members_of(item).get("tool_call_id", NONE))


def rebase(session: Session, options: WriteOptions) -> Written:
    """Returns the document with `options.session_id` for its own id; one without an id has it in its name alone."""
    stream = session.records.streams[0] if session.records.streams else Stream(options.path, b"")
    data = bytes(stream.data)
    frame = frame_document(data, STEPS)
    place = frame.facts.get("session_id") if frame is not None else None

    def chunks() -> Iterator[Buffer]:
        if place is None:
            yield data
            return
        yield data[: place[0]]
        yield spell(options.session_id)
        yield data[place[1] :]

    file = WrittenFile(options.path or file_name(options.session_id), chunks, stream.mode)
    return Written(options.session_id, (file,))
