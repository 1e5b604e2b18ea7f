"""Captures to store in tests: made of plain records, with true digests and source ids."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta

from blake3 import blake3

from clew.conversation.digest import bytes_digest, segment_digest, source_id
from clew.ids import AgentName, CaptureId, ChainKey, NativeId
from clew.store.protocol import NewCapture, NewSegment, ResidueStore, SideEntry, StreamEntry

CLAUDE = AgentName("claude")
CODEX = AgentName("codex")
NOW = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)

Groups = Sequence[Sequence[bytes]]
"""A session: for each group its records."""


def make_key(*groups: Sequence[bytes]) -> ChainKey:
    """A key that, like a chain key, names a group and all before it."""
    return make_keys(groups)[-1] if groups else ChainKey(blake3(b"").hexdigest())


def make_keys(groups: Groups) -> list[ChainKey]:
    """The keys of all groups of a session."""
    keys: list[ChainKey] = []
    for group in groups:
        before = keys[-1] if keys else ""
        keys.append(ChainKey(blake3(f"{before}{list(group)!r}".encode()).hexdigest()))
    return keys


def make_segments(groups: Groups, *, end: bool = True, start: int = 0) -> list[NewSegment]:
    """The segments of a session from number `start` on; the last one is marked end-of-source."""
    keys = make_keys(groups)
    return [
        NewSegment(
            key=keys[number],
            digest=segment_digest(group),
            lengths=tuple(map(len, group)),
            data=b"".join(group),
            end_of_source=end and number == len(groups) - 1,
        )
        for number, group in enumerate(groups)
    ][start:]


def make_side(**files: bytes) -> list[tuple[SideEntry, bytes]]:
    return [(SideEntry(name, 0o600, len(data), bytes_digest(data)), data) for name, data in files.items()]


def make_new(
    groups: Groups,
    *,
    agent: AgentName = CLAUDE,
    session: str | None = "s1",
    at: int = 0,
    facts: bytes = b"",
    refers: Iterable[int] = (),
) -> NewCapture:
    """The description of a capture of a session in one stream, taken `at` seconds after NOW."""
    records = [record for group in groups for record in group]
    session_id = None if session is None else NativeId(session)
    return NewCapture(
        agent=agent,
        session_id=session_id,
        source_id=source_id(agent, session_id, records[0] if records else b""),
        taken_at=NOW + timedelta(seconds=at),
        streams=(StreamEntry(f"p/{session}.jsonl", 0o600, sum(map(len, records)), len(records)),),
        facts=facts,
        refers=tuple(map(CaptureId, refers)),
        message_count=len(groups),
    )


def put(
    store: ResidueStore,
    groups: Groups,
    *,
    side: Iterable[tuple[SideEntry, bytes]] = (),
    base: CaptureId | None = None,
    shared: int = 0,
    agent: AgentName = CLAUDE,
    session: str | None = "s1",
    at: int = 0,
    facts: bytes = b"",
    refers: Iterable[int] = (),
) -> CaptureId:
    """Stores a session and returns the capture's id."""
    new = make_new(groups, agent=agent, session=session, at=at, facts=facts, refers=refers)
    return store.put_capture(new, make_segments(groups, start=shared), side, base=base, shared=shared)


def bytes_of(store: ResidueStore, capture: CaptureId) -> bytes:
    """All bytes of a capture, laid end to end; fails on a missing segment."""
    pieces = []
    for segment in store.segments(capture):
        assert segment.data is not None
        assert segment_digest(segment.records()) == segment.digest
        pieces.append(segment.data)
    return b"".join(pieces)


def make_groups(count: int, *, name: str = "g", size: int = 40) -> list[list[bytes]]:
    """A session of `count` groups of one to three different records of about `size` bytes."""
    return [
        [f"{name} {number} {part} ".encode().ljust(size, b".") + b"\n" for part in range(1 + number % 3)]
        for number in range(count)
    ]
