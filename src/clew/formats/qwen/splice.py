"""Goes on behind restored records: not a byte of them changes, and the first new record names their leaf as its parent.

Session id, folder and version are those of the prefix: the agent refuses a file in which ids differ. Calls that the
prefix leaves open are answered first, marked.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from clew.conversation.model import Message
from clew.conversation.source import Buffer, Session, Stream
from clew.formats.jsonout import whole_lines
from clew.formats.parts.writing import count_losses
from clew.formats.protocol import WriteOptions, Written, WrittenFile
from clew.formats.qwen.reader import read_tail
from clew.formats.qwen.records import VERSION
from clew.formats.qwen.writer import DIALECT, Envelope, Writing


def splice(prefix: Session, messages: Sequence[Message], options: WriteOptions) -> Written:
    """Appends messages in normal form to a session's restored records."""
    stream = prefix.records.streams[0] if prefix.records.streams else Stream(options.path, b"")
    tail = read_tail(stream, prefix.id)
    envelope = Envelope(
        session_id=tail.own or prefix.id or options.session_id,
        cwd=tail.cwd or prefix.cwd or options.cwd,
        version=tail.version or VERSION,
        parent=tail.leaf,
        first=len(prefix.records),
        taken=tail.ids,
        open_calls=tail.open_calls,
    )

    def chunks() -> Iterator[Buffer]:
        yield from whole_lines(stream)
        yield from Writing(messages, options, envelope).pieces()

    losses, invented = count_losses(messages, DIALECT, thinks=False)
    file = WrittenFile(stream.path or options.path, chunks, stream.mode)
    return Written(prefix.id or options.session_id, (file,), losses, invented + len(tail.open_calls))
