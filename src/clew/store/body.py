"""The body of a capture's row (streams, side files, references, the caller's facts), and what makes two
captures equal.

The body is MessagePack: [version, facts, streams, refers, source_record, side files]. The identity is BLAKE3
over the body, the row's other columns but id and time, and the whole list of segments; it tells a capture
that is there already, and it guards the row against damage.
"""

from __future__ import annotations

from struct import pack as pack_numbers
from typing import Any

import msgspec
from blake3 import blake3

from clew.ids import CaptureId
from clew.store.lists import Entries, make_ends
from clew.store.protocol import NewCapture, SideEntry, StreamEntry
from clew.store.rows import make_text, read_text

VERSION = 1
_DOMAIN = b"clew-capture-v1"


class Body(msgspec.Struct, frozen=True):
    """What the body of a capture says."""

    facts: bytes
    streams: tuple[StreamEntry, ...]
    refers: tuple[CaptureId, ...]
    source_record: int | None
    side: tuple[SideEntry, ...]


def make_body(new: NewCapture, side: tuple[SideEntry, ...]) -> bytes:
    """Returns the body of a new capture."""
    streams = [(make_text(one.path), one.mode, one.size, one.records) for one in new.streams]
    files = [(make_text(one.path), one.mode, one.size, bytes.fromhex(one.digest)) for one in side]
    return msgspec.msgpack.encode((VERSION, new.facts, streams, new.refers, new.source_record, files))


def read_body(data: bytes) -> Body | None:
    """Returns what a body says, or None when it is damaged or of a version that this clew does not know."""
    try:
        version, facts, streams, refers, source_record, side = msgspec.msgpack.decode(data)
        if version != VERSION:
            return None
        return msgspec.convert(
            {
                "facts": facts,
                "streams": [_named(StreamEntry, one) for one in streams],
                "refers": refers,
                "source_record": source_record,
                "side": [_named(SideEntry, [*one[:3], one[3].hex()]) for one in side],
            },
            Body,
        )
    except (msgspec.MsgspecError, ValueError, TypeError, AttributeError, IndexError):
        return None


def identity_of(
    agent: str,
    session_id: bytes | None,
    source_id: bytes,
    message_count: int,
    body: bytes,
    entries: Entries,
) -> bytes:
    """Returns the 32 bytes that are equal for captures that differ at most in id and time."""
    digest = blake3(_DOMAIN)
    for part in (
        agent.encode(),
        b"\0" if session_id is None else b"\1" + session_id,
        source_id,
        pack_numbers("<Q", message_count),
        body,
        entries.keys,
        entries.digests,
        make_ends(entries.ends),
    ):
        digest.update(pack_numbers("<Q", len(part)))
        digest.update(part)
    return digest.digest()


def _named(kind: type[StreamEntry | SideEntry], values: list[Any]) -> dict[str, Any]:
    """Returns the fields of an entry by name, its path as text."""
    return dict(zip(kind.__struct_fields__, [read_text(values[0]), *values[1:]], strict=True))
