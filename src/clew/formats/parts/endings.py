"""Where a reading can be taken up again: the last place before which everything is settled."""

from __future__ import annotations

from collections.abc import Iterator

from clew.conversation.normal import Normal
from clew.conversation.source import Ending, Records, Stream, digest_bytes

_PIECE = 16 << 20


def find_ending(normal: Normal, records: Records, state: bytes, since: Ending | None = None) -> Ending | None:
    """Returns the start of the last group that was created by a later record than all messages before it.

    `normal` and `records` are those behind `since`, where there is one. None where there is no such place.
    """
    if None in normal.created_by or len(records.streams) != 1:
        return None
    place, groups, counted, highest = -1, 0, 0, -1
    for position, (message, record) in enumerate(zip(normal.messages, normal.created_by, strict=True)):
        assert record is not None, "looked for above"
        if message.role != "tool":
            if record > highest:
                place, groups = position, counted
            counted += 1
        highest = max(highest, record)
    if place < 0:
        return None
    record = normal.created_by[place]
    assert record is not None, "looked for above"
    stream, start, _ = records.place(record)
    return Ending(
        path=stream.path,
        offset=start,
        digest=digest_bytes(_pieces(stream, start)),
        records=record + (since.records - 1 if since is not None else 0),
        messages=place + (since.messages if since is not None else 0),
        groups=groups + (since.groups if since is not None else 0),
        state=state,
    )


def _pieces(stream: Stream, end: int) -> Iterator[memoryview]:
    view = memoryview(stream.data)
    for start in range(0, end, _PIECE):
        yield view[start : min(start + _PIECE, end)]
        if stream.release is not None:
            stream.release()


def occurs_before(stream: Stream, needle: bytes, end: int) -> bool:
    """Tells whether `needle` stands anywhere in the first `end` bytes of a stream."""
    view = memoryview(stream.data)
    over = len(needle)
    return any(needle in bytes(view[at : min(at + _PIECE + over, end)]) for at in range(0, end, _PIECE))
