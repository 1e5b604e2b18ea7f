"""The residue store over SQL: captures, the lists of their segments, and the packs that hold the bytes.

A capture is written in one transaction while its segments stream in; readers see it whole or not at all.
Segments are found by digest through `places`, so where they lie may change and they do not. Reading delivers
what is there: a segment whose pack is gone, damaged or not readable comes without data.

What the columns and blobs hold is told in docs/on-disk.md; cleaning up is in `eviction`, checking in
`checking`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from typing import Any

import msgspec

from clew.errors import Conflict, NotFoundError, StoreDamaged
from clew.ids import AgentName, CaptureId, ChainKey, Digest, NativeId, SourceId
from clew.store import checking, eviction
from clew.store.body import identity_of, make_body, read_body
from clew.store.lists import Entries, add_list, load_entries, load_keys
from clew.store.pack import SEGMENTS, SIDE_FILES
from clew.store.packing import Packer
from clew.store.protocol import (
    UNKEYED,
    Capture,
    Data,
    Found,
    Freed,
    Limits,
    NewCapture,
    NewSegment,
    Problem,
    ResidueStats,
    Segment,
    SideEntry,
)
from clew.store.rows import make_micros, make_text, read_micros, read_text
from clew.store.slots import SlotReader
from clew.store.sqlite import Database

_CAPTURE = (
    "SELECT id, agent, session_id, source_id, taken_at, segment_count, message_count, side_count, size, first_key, "
    "body FROM captures"
)
_ADD = (
    "INSERT INTO captures (agent, session_id, source_id, taken_at, list, segment_count, message_count, side_count, "
    "size, first_key, identity, body) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) RETURNING id"
)
_LIST_OF = "SELECT list, segment_count, identity FROM captures WHERE id = ?"
_NEWEST_OF = (
    "SELECT list, segment_count, identity, id FROM captures WHERE source_id = ? AND agent = ? ORDER BY id DESC LIMIT 1"
)
_NEWEST_IDS = "SELECT max(id) FROM captures"
_LISTS_WITH_KEY = "SELECT id FROM lists WHERE instr(keys, ?) > 0"
_STATS = (
    "SELECT (SELECT count(*) FROM captures), "
    "(SELECT count(*) FROM (SELECT DISTINCT agent, source_id FROM captures) AS sources), "
    "(SELECT count(*) FROM places WHERE kind = 0), (SELECT count(*) FROM places WHERE kind = 1), "
    "(SELECT coalesce(sum(size), 0) FROM places), (SELECT coalesce(sum(stored), 0) FROM packs)"
)
_BATCH = 1024


class _Reference(msgspec.Struct, frozen=True):
    """An earlier capture whose list a new one may continue."""

    list: int
    segment_count: int
    identity: bytes
    id: int


class SqlResidue:
    """The ResidueStore over one database file."""

    def __init__(self, database: Database) -> None:
        self._sql = database

    # --- writing ------------------------------------------------------------------------------------------

    def put_capture(
        self,
        new: NewCapture,
        segments: Iterable[NewSegment],
        side: Iterable[tuple[SideEntry, Data]] = (),
        *,
        base: CaptureId | None = None,
        shared: int = 0,
    ) -> CaptureId:
        """Stores one capture, all or nothing, and returns its id."""
        with self._sql.transaction():
            newest = self._newest_of(new)
            reference = newest if base is None else self._base(base, shared)
            known = Entries()
            if reference is not None:
                known = load_entries(self._sql, reference.list, reference.segment_count)
            with Packer(self._sql, SEGMENTS) as packer:
                entries = known.first(shared if base is not None else 0).plus(_take(packer, segments))
                common = known.common(entries)
                # Where the earlier capture ended (its last segment, mostly stored again with another end
                # mark), or where this one leaves it, is the pack to go on with.
                packer.finish(known.digest(min(common, len(known) - 1)) if len(known) else None)
            files = self._take_side(side)
            body = make_body(new, files)
            identity = _identity(new, body, entries)
            if newest is not None and newest.identity == identity:
                return CaptureId(newest.id)
            number = reference.list if reference is not None else 0
            if common < len(entries):
                number = add_list(self._sql, number, common, entries.after(common))
            return self._add(new, number, entries, len(files), identity, body)

    def _newest_of(self, new: NewCapture) -> _Reference | None:
        rows = self._sql.execute(_NEWEST_OF, (bytes.fromhex(new.source_id), new.agent))
        return _Reference(rows[0][0], rows[0][1], rows[0][2], rows[0][3]) if rows else None

    def _base(self, base: CaptureId, shared: int) -> _Reference:
        rows = self._sql.execute(_LIST_OF, (base,))
        if not rows or rows[0][1] < shared or not rows[0][2]:
            why = "is gone" if not rows else "is damaged" if not rows[0][2] else f"has not {shared} segments"
            raise Conflict(f"capture {base} {why}", hint="Hand in all segments, without a base.", capture=base)
        return _Reference(rows[0][0], rows[0][1], rows[0][2], base)

    def _take_side(self, side: Iterable[tuple[SideEntry, Data]]) -> tuple[SideEntry, ...]:
        files: list[SideEntry] = []
        with Packer(self._sql, SIDE_FILES) as packer:
            for entry, data in side:
                assert len(data) == entry.size, f"{entry.path} has {len(data)} bytes, not {entry.size}"
                packer.add(bytes.fromhex(entry.digest), (len(data),), data)
                files.append(entry)
            packer.finish()
        return tuple(files)

    def _add(
        self, new: NewCapture, number: int, entries: Entries, side_count: int, identity: bytes, body: bytes
    ) -> CaptureId:
        first = entries.key(0)
        row = (
            new.agent,
            None if new.session_id is None else make_text(new.session_id),
            bytes.fromhex(new.source_id),
            make_micros(new.taken_at),
            number,
            len(entries),
            new.message_count,
            side_count,
            sum(stream.size for stream in new.streams),
            first if first and first.hex() != UNKEYED else None,
            identity,
            body,
        )
        return CaptureId(self._sql.execute(_ADD, row)[0][0])

    # --- captures -----------------------------------------------------------------------------------------

    def capture(self, capture: CaptureId) -> Capture:
        """Returns one capture; raises NotFoundError, or StoreDamaged when its row cannot be read."""
        rows = self._sql.execute(f"{_CAPTURE} WHERE id = ?", (capture,))
        if not rows:
            raise _no_capture(capture)
        found = read_capture(rows[0])
        if found is None:
            raise StoreDamaged(
                f"capture {capture} cannot be read", hint="`clew store check` tells more.", capture=capture
            )
        return found

    def captures(
        self,
        *,
        agent: AgentName | None = None,
        session_id: NativeId | None = None,
        source_id: SourceId | None = None,
    ) -> tuple[Capture, ...]:
        """Returns all captures that agree with what is given, by id."""
        where, values = _conditions(agent, session_id, source_id)
        return self._captures(f"WHERE {where}", values)

    def newest(
        self,
        *,
        agent: AgentName | None = None,
        session_id: NativeId | None = None,
        source_id: SourceId | None = None,
    ) -> tuple[Capture, ...]:
        """Returns the newest capture of every source that agrees with what is given, by id."""
        where, values = _conditions(agent, session_id, source_id)
        newest = f"{_NEWEST_IDS} WHERE {where} GROUP BY agent, source_id"
        return self._captures(f"WHERE id IN ({newest})", values)

    def heads(self, agent: AgentName, first_key: ChainKey) -> tuple[Capture, ...]:
        """Returns the captures of `agent` whose first segment has that key, by id."""
        return self._captures("WHERE first_key = ? AND agent = ?", (bytes.fromhex(first_key), agent))

    def _captures(self, where: str, values: Sequence[Any]) -> tuple[Capture, ...]:
        """Returns captures by id. One that cannot be read is left out here, and named by `fsck`."""
        rows = self._sql.execute(f"{_CAPTURE} {where} ORDER BY id", values)
        return tuple(found for found in map(read_capture, rows) if found is not None)

    # --- segments -----------------------------------------------------------------------------------------

    def keys(self, capture: CaptureId) -> tuple[ChainKey, ...]:
        """Returns the keys of a capture's segments in order."""
        with self._sql.snapshot():
            number, count = self._list_of(capture)
            return tuple(map(ChainKey, _hexes(load_keys(self._sql, number, count))))

    def digests(self, capture: CaptureId) -> tuple[Digest, ...]:
        """Returns the recorded digests of a capture's segments in order."""
        return tuple(map(Digest, _hexes(self._entries(capture).digests)))

    def segments(self, capture: CaptureId, start: int = 0, stop: int | None = None) -> Iterator[Segment]:
        """Yields the segments start..stop-1 in order, reading lazily; damaged ones without data."""
        entries = self._entries(capture)
        return self._deliver(entries, range(len(entries))[start:stop])

    def lookup(self, agent: AgentName, key: ChainKey) -> tuple[Found, ...]:
        """Returns every distinct segment stored under `key` for `agent`, by capture and number."""
        if key == UNKEYED:
            return ()
        wanted = bytes.fromhex(key)
        found: dict[tuple[object, ...], Found] = {}
        with self._sql.snapshot():
            lists = self._lists_reaching(wanted)
            rows = self._sql.execute(
                "SELECT id, source_id, session_id, list, segment_count FROM captures WHERE agent = ? ORDER BY id",
                (agent,),
            )
            for number, source, session, of_list, count in rows:
                if of_list in lists:
                    for place, segment in self._under(wanted, of_list, count):
                        distinct = (source, session, segment.digest, segment.end_of_source)
                        if distinct not in found:
                            found[distinct] = Found(number, source.hex(), _native(session), place, segment)
        return tuple(found.values())

    def _lists_reaching(self, key: bytes) -> set[int]:
        """Returns the lists that hold `key` or continue one that does."""
        holding = {row[0] for row in self._sql.execute(_LISTS_WITH_KEY, (key,))}
        if holding:
            for number, prev in self._sql.execute("SELECT id, prev FROM lists ORDER BY id"):
                if prev in holding:
                    holding.add(number)
        return holding

    def _under(self, key: bytes, number: int, count: int) -> Iterator[tuple[int, Segment]]:
        entries = load_entries(self._sql, number, count)
        places = [place for place in range(count) if entries.key(place) == key]
        return zip(places, self._deliver(entries, places), strict=True)

    def _list_of(self, capture: CaptureId) -> tuple[int, int]:
        rows = self._sql.execute(_LIST_OF, (capture,))
        if not rows:
            raise _no_capture(capture)
        return rows[0][0], rows[0][1]

    def _entries(self, capture: CaptureId) -> Entries:
        with self._sql.snapshot():
            return load_entries(self._sql, *self._list_of(capture))

    def _deliver(self, entries: Entries, numbers: Sequence[int]) -> Iterator[Segment]:
        ends = set(entries.ends)
        with closing(SlotReader(self._sql, SEGMENTS)) as reader:
            for at in range(0, len(numbers), _BATCH):
                batch = numbers[at : at + _BATCH]
                digests = [entries.digest(number) for number in batch]
                places = reader.find(digests)
                reader.read_ahead(places)
                for number, digest in zip(batch, digests, strict=True):
                    lengths, data = reader.read(digest, places)
                    key = ChainKey(entries.key(number).hex())
                    yield Segment(key, Digest(digest.hex()), number in ends, lengths, data)

    # --- side files ---------------------------------------------------------------------------------------

    def side_files(self, capture: CaptureId) -> tuple[SideEntry, ...]:
        """Returns the side files of a capture, in the order they were put."""
        rows = self._sql.execute("SELECT body FROM captures WHERE id = ?", (capture,))
        if not rows:
            raise _no_capture(capture)
        body = read_body(rows[0][0])
        return body.side if body is not None else ()

    def side_data(self, digest: Digest) -> bytes | None:
        """Returns the bytes of a side file, unverified, or None when they cannot be had."""
        wanted = bytes.fromhex(digest)
        with closing(SlotReader(self._sql, SIDE_FILES)) as reader:
            return reader.read(wanted, reader.find([wanted]))[1]

    # --- upkeep -------------------------------------------------------------------------------------------

    def forget(self, captures: Iterable[CaptureId]) -> Freed:
        """Removes these captures and every byte that only they held."""
        return eviction.forget(self._sql, captures)

    def evict(self, limits: Limits) -> Freed:
        """Removes whole captures, oldest first, until the limits hold."""
        return eviction.evict(self._sql, limits)

    def gc(self) -> Freed:
        """Removes what no capture holds any more and gives the space back."""
        return eviction.collect(self._sql)

    def fsck(self) -> Iterator[Problem]:
        """Recomputes all digests and source ids and yields what is wrong; changes nothing."""
        return checking.check(self._sql)

    def drop_damaged(self) -> int:
        """Forgets damaged segments and side files, so that the next capture of their sessions stores them
        again."""
        return checking.drop_damaged(self._sql)

    def stats(self) -> ResidueStats:
        """Returns counts and sizes."""
        captures, sources, segments, side_files, raw, stored = self._sql.execute(_STATS)[0]
        return ResidueStats(captures, sources, segments, side_files, raw, stored, self._sql.file_size())


def read_capture(row: tuple[Any, ...]) -> Capture | None:
    """Returns the capture of a row, or None when its body cannot be read."""
    number, agent, session, source, taken, segments, messages, side_count, size, first_key, data = row
    body = read_body(data)
    if body is None:
        return None
    return Capture(
        id=number,
        agent=agent,
        session_id=_native(session),
        source_id=SourceId(source.hex()),
        taken_at=read_micros(taken),
        streams=body.streams,
        facts=body.facts,
        refers=body.refers,
        message_count=messages,
        source_record=body.source_record,
        segment_count=segments,
        side_count=side_count,
        size=size,
        first_key=None if first_key is None else ChainKey(first_key.hex()),
    )


def _take(packer: Packer, segments: Iterable[NewSegment]) -> Entries:
    """Hands segments to the packer and returns their entries."""
    keys: list[str] = []
    digests: list[bytes] = []
    ends: list[int] = []
    for segment in segments:
        digest = bytes.fromhex(segment.digest)
        assert sum(segment.lengths) == len(segment.data), "the records are the segment"
        packer.add(digest, segment.lengths, segment.data)
        if segment.end_of_source:
            ends.append(len(keys))
        keys.append(segment.key)
        digests.append(digest)
    entries = Entries(bytes.fromhex("".join(keys)), b"".join(digests), tuple(ends))
    assert len(entries.keys) == len(entries.digests) == 32 * len(digests), "keys and digests are 64 hex digits"
    return entries


def _identity(new: NewCapture, body: bytes, entries: Entries) -> bytes:
    session = None if new.session_id is None else make_text(new.session_id)
    return identity_of(new.agent, session, bytes.fromhex(new.source_id), new.message_count, body, entries)


def _conditions(
    agent: AgentName | None, session_id: NativeId | None, source_id: SourceId | None
) -> tuple[str, tuple[Any, ...]]:
    given = [
        (condition, value)
        for condition, value in (
            ("agent = ?", agent),
            ("session_id = ?", None if session_id is None else make_text(session_id)),
            ("source_id = ?", None if source_id is None else bytes.fromhex(source_id)),
        )
        if value is not None
    ]
    return " AND ".join(["1 = 1", *(one[0] for one in given)]), tuple(one[1] for one in given)


def _hexes(data: bytes) -> Iterator[str]:
    text = data.hex()
    return (text[at : at + 64] for at in range(0, len(text), 64))


def _native(session: bytes | None) -> NativeId | None:
    return None if session is None else NativeId(read_text(session))


def _no_capture(capture: CaptureId) -> NotFoundError:
    return NotFoundError(f"there is no capture {capture}", hint="`clew log` lists them.", capture=capture)
