"""Where a reading of a rollout can be taken up again, and what has to be known there.

A rollout only grows at its end, so a later reading may start at the last group. It may not where what was added
reaches back: a compaction, a rollback, a result for an older call. The reader sees that and reads the whole again.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from clew.conversation.normal import Normal
from clew.conversation.source import Ending, Records, Stream, digest_bytes


class State(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the lines before an ending said about the session."""

    id: str = ""
    cwd: str = ""
    model: str = ""
    title: str = ""
    provider: str = ""
    version: str = ""
    foreign: str = ""
    created_ms: int | None = None
    helper: bool = False
    references: tuple[tuple[str, str, int], ...] = ()
    streams: int = 1


_STEP = 8 << 20
_DECODE = msgspec.json.Decoder(State)


def find_ending(normal: Normal, records: Records, state: State) -> Ending | None:
    """Returns the last place before which everything is settled, or None where there is none.

    It is the start of the last group that was created by a later record than all messages before it, and lies in
    the last stream.
    """
    if None in normal.created_by:
        return None
    place, groups, highest = -1, 0, -1
    counted = 0
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
    if stream is not records.streams[-1]:
        return None
    digest = digest_bytes(_pieces(stream, start))
    return Ending(stream.path, start, digest, record, place, groups, "", msgspec.json.encode(state))


def _pieces(stream: Stream, end: int) -> Iterator[memoryview]:
    """Yields the bytes before `end`, letting go of the pages behind, so that no large file stays in memory."""
    data = memoryview(stream.data)
    for at in range(0, end, _STEP):
        yield data[at : min(at + _STEP, end)]
        if stream.release is not None:
            stream.release()


def decode_state(ending: Ending) -> State | None:
    """Returns what an ending of ours carries, or None where it is not ours."""
    try:
        return _DECODE.decode(ending.state)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
