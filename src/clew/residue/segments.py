"""Cutting a session into segments (docs/residue.md, 5).

Every record belongs to exactly one segment, and the segments laid end to end are the source. Records that belong to
no group with a key (the reader could not say where the rest came from) are the unkeyed rest at the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from clew.conversation.canonical import first_key, keys_of
from clew.conversation.digest import framed_digest
from clew.conversation.groups import head_positions
from clew.conversation.source import Records, Session
from clew.ids import ChainKey, Digest


class Cut(msgspec.Struct, frozen=True, gc=False):
    """One segment as a range of records: [first, last) of its session. `key` is None for the unkeyed rest."""

    key: ChainKey | None
    first: int
    last: int
    end_of_source: bool = False


class Slice(msgspec.Struct, frozen=True, gc=False):
    """A segment's bytes with what the store needs: record lengths, their digest, the records laid end to end."""

    key: ChainKey | None
    digest: Digest
    lengths: tuple[int, ...]
    data: bytes | memoryview
    end_of_source: bool


def cut_session(session: Session, keys: Sequence[ChainKey] | None = None) -> tuple[Cut, ...]:
    """Returns the segments of a session in order; none when it has no records or is not verbatim.

    `keys` are the session's group keys where the caller has them already.
    """
    total = len(session.records)
    if total == 0 or not session.verbatim or len(session.created_by) != len(session.messages):
        return ()
    if not session.messages:
        return (Cut(first_key(), 0, total, end_of_source=True),)
    keys = tuple(keys_of(session.messages)) if keys is None else keys
    positions = head_positions(session.messages)
    heads = [session.created_by[position] for position in positions]
    starts = _starts(heads, total)
    if not starts:
        return (Cut(None, 0, total),)
    uncut = session.created_by[positions[len(starts)] :] if len(starts) < len(heads) else ()
    if any(record is not None for record in uncut):
        rest = starts.pop()  # that segment would swallow records of groups that were not cut
        cuts = _lay_out(starts, keys, rest, end_of_source=False)
        return (*cuts, Cut(None, rest if starts else 0, total))
    return tuple(_lay_out(starts, keys, total, end_of_source=len(starts) == len(heads)))


def _starts(heads: Sequence[int | None], total: int) -> list[int]:
    """Returns the first record of each segment, up to the first group whose record is unknown or out of range."""
    starts: list[int] = []
    for record in heads:
        if record is None or record >= total:
            break
        starts.append(max(record, starts[-1]) if starts else 0)
    return starts


def _lay_out(starts: Sequence[int], keys: Sequence[ChainKey], end: int, *, end_of_source: bool) -> list[Cut]:
    edges = [*starts, end]
    last = len(starts) - 1
    return [Cut(keys[i], edges[i], edges[i + 1], end_of_source=end_of_source and i == last) for i in range(len(starts))]


def slice_segments(records: Records, cuts: Iterable[Cut]) -> Iterator[Slice]:
    """Yields the segments' bytes in order; a segment in one stream is a view, one across streams a copy."""
    for cut in cuts:
        spans = list(records.spans(cut.first, cut.last))
        if len(spans) == 1:
            data, lengths = spans[0]
        else:
            data = b"".join(span for span, _ in spans)
            lengths = tuple(length for _, some in spans for length in some)
        yield Slice(cut.key, framed_digest(lengths, data), lengths, data, cut.end_of_source)
