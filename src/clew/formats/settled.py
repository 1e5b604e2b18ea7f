"""Where a reading of a file that grows only at its end can be taken up again."""

from __future__ import annotations

from clew.conversation.normal import Normal
from clew.conversation.source import Ending, Records, digest_bytes


def find_ending(normal: Normal, records: Records, state: bytes, since: Ending | None = None) -> Ending | None:
    """Returns the last place before which everything is settled, or None where there is none.

    It is the start of the last group that was created by a later record than all messages before it, in a session
    of one stream. `state` is the format's own; `since` is where this reading itself began.
    """
    if None in normal.created_by or len(records.streams) != 1:
        return None
    place, groups, highest, counted = -1, 0, -1, 0
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
    digest = digest_bytes(memoryview(stream.data)[:start])
    if since is None:
        return Ending(stream.path, start, digest, record, place, groups, "", state)
    record += since.records - 1  # what lay before is one record of a continued reading
    return Ending(stream.path, start, digest, record, place + since.messages, groups + since.groups, "", state)
