"""The stores in memory: the same promises in the fewest lines, for tests and for acts that must leave nothing
behind.

Each passes the same law suite as the stores on disk. One object is for one thread; nothing outlives it.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any

import msgspec

from clew.conversation.digest import bytes_digest, framed_digest, source_id
from clew.errors import Conflict, NotFoundError
from clew.ids import AgentName, CaptureId, ChainKey, Digest, NativeId, SourceId, ThreadId
from clew.store.protocol import (
    UNKEYED,
    Cached,
    Capture,
    Data,
    EdgeRow,
    Found,
    Freed,
    Limits,
    NewCapture,
    NewSegment,
    Problem,
    ResidueStats,
    Segment,
    SideEntry,
    StrandRow,
    ThreadRow,
)
from clew.store.record_protocol import OperationRow
from clew.store.rows import make_conflict, make_held

_Entry = tuple[ChainKey, Digest, bool]


class _Kept(msgspec.Struct, frozen=True):
    """One capture in memory."""

    row: Capture
    entries: tuple[_Entry, ...]
    side: tuple[SideEntry, ...]
    sound: bool = True


class MemoryResidue:
    """The ResidueStore in memory. `segment_data` and `side_bytes` may be tampered with by tests."""

    def __init__(self) -> None:
        self.segment_data: dict[Digest, tuple[tuple[int, ...], bytes | None]] = {}
        self.side_bytes: dict[Digest, bytes | None] = {}
        self._kept: dict[CaptureId, _Kept] = {}
        self._last = 0

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
        entries = list(self._base(base, shared))
        data: dict[Digest, tuple[tuple[int, ...], bytes | None]] = {}
        for one in segments:
            data[one.digest] = (one.lengths, bytes(one.data))
            entries.append((one.key, one.digest, one.end_of_source))
        files = {entry: bytes(content) for entry, content in side}
        for digest, kept in data.items():
            self.segment_data.setdefault(digest, kept)
        for entry, content in files.items():
            self.side_bytes.setdefault(entry.digest, content)
        row = _row(new, tuple(entries), len(files))
        newest = [one for one in self._kept.values() if _source(one.row) == _source(row)][-1:]
        for one in newest:
            same = msgspec.structs.replace(row, id=one.row.id, taken_at=one.row.taken_at)
            if one.sound and (one.row, one.entries, one.side) == (same, tuple(entries), tuple(files)):
                return one.row.id
        self._last += 1
        row = msgspec.structs.replace(row, id=CaptureId(self._last))
        self._kept[row.id] = _Kept(row, tuple(entries), tuple(files))
        return row.id

    def _base(self, base: CaptureId | None, shared: int) -> tuple[_Entry, ...]:
        if base is None:
            return ()
        kept = self._kept.get(base)
        if kept is None or not kept.sound or len(kept.entries) < shared:
            raise Conflict(f"capture {base} cannot be a base", hint="Hand in all segments.", capture=base)
        return kept.entries[:shared]

    # --- reading ------------------------------------------------------------------------------------------

    def capture(self, capture: CaptureId) -> Capture:
        """Returns one capture; raises NotFoundError."""
        return self._get(capture).row

    def captures(
        self,
        *,
        agent: AgentName | None = None,
        session_id: NativeId | None = None,
        source_id: SourceId | None = None,
    ) -> tuple[Capture, ...]:
        """Returns all captures that agree with what is given, by id."""
        return tuple(
            one.row
            for one in self._kept.values()
            if agent in (None, one.row.agent)
            and session_id in (None, one.row.session_id)
            and source_id in (None, one.row.source_id)
        )

    def newest(
        self,
        *,
        agent: AgentName | None = None,
        session_id: NativeId | None = None,
        source_id: SourceId | None = None,
    ) -> tuple[Capture, ...]:
        """Returns the newest capture of every source that agrees with what is given, by id."""
        found = self.captures(agent=agent, session_id=session_id, source_id=source_id)
        newest = {_source(row): row for row in found}
        return tuple(row for row in found if newest[_source(row)] is row)

    def heads(self, agent: AgentName, first_key: ChainKey) -> tuple[Capture, ...]:
        """Returns the captures of `agent` whose first segment has that key, by id."""
        return tuple(row for row in self.captures(agent=agent) if row.first_key == first_key)

    def keys(self, capture: CaptureId) -> tuple[ChainKey, ...]:
        """Returns the keys of a capture's segments in order."""
        return tuple(key for key, _, _ in self._get(capture).entries)

    def digests(self, capture: CaptureId) -> tuple[Digest, ...]:
        """Returns the recorded digests of a capture's segments in order."""
        return tuple(digest for _, digest, _ in self._get(capture).entries)

    def segments(self, capture: CaptureId, start: int = 0, stop: int | None = None) -> Iterator[Segment]:
        """Yields the segments start..stop-1 in order; damaged ones without data."""
        return map(self._segment, self._get(capture).entries[start:stop])

    def lookup(self, agent: AgentName, key: ChainKey) -> tuple[Found, ...]:
        """Returns every distinct segment stored under `key` for `agent`, by capture and number."""
        found: dict[tuple[object, ...], Found] = {}
        for one in self._kept.values():
            for number, entry in enumerate(one.entries if one.row.agent == agent else ()):
                distinct = (one.row.source_id, one.row.session_id, *entry)
                if entry[0] == key != UNKEYED and distinct not in found:
                    row = one.row
                    segment = self._segment(entry)
                    found[distinct] = Found(row.id, row.source_id, row.session_id, number, segment)
        return tuple(found.values())

    def side_files(self, capture: CaptureId) -> tuple[SideEntry, ...]:
        """Returns the side files of a capture, in the order they were put."""
        return self._get(capture).side

    def side_data(self, digest: Digest) -> bytes | None:
        """Returns the bytes of a side file, unverified, or None."""
        return self.side_bytes.get(digest)

    def _get(self, capture: CaptureId) -> _Kept:
        kept = self._kept.get(capture)
        if kept is None:
            raise NotFoundError(f"there is no capture {capture}", capture=capture)
        return kept

    def _segment(self, entry: _Entry) -> Segment:
        key, digest, end = entry
        lengths, data = self.segment_data.get(digest, ((), None))
        return Segment(key, digest, end, lengths if data is not None else (), data)

    # --- upkeep -------------------------------------------------------------------------------------------

    def forget(self, captures: Iterable[CaptureId]) -> Freed:
        """Removes these captures and what only they held."""
        gone = tuple(number for number in sorted(set(captures)) if self._kept.pop(number, None) is not None)
        return msgspec.structs.replace(self.gc(), captures=gone)

    def evict(self, limits: Limits) -> Freed:
        """Removes whole captures, oldest first, until the limits hold."""
        gone: list[CaptureId] = []
        sessions = {(row.agent, row.session_id or row.source_id) for row in self.captures()}
        if limits.per_session is not None:
            for session in sorted(sessions):
                gone += self._evict(session, limits.per_session)
        if limits.total is not None:
            gone += self._evict(None, limits.total)
        return msgspec.structs.replace(self.gc(), captures=tuple(sorted(gone)))

    def _evict(self, session: tuple[str, str] | None, limit: int) -> list[CaptureId]:
        gone: list[CaptureId] = []
        while True:
            rows = [row for row in self.captures() if session in (None, (row.agent, row.session_id or row.source_id))]
            if sum(self._sizes(row.id for row in rows).values()) <= limit:
                return gone
            referred = {number for row in self.captures() for number in row.refers}
            kept = referred | {row.id for row in self.newest()}
            free = [row.id for row in rows if row.id not in kept]
            if not free:
                return gone
            gone.append(free[0])
            del self._kept[free[0]]

    def _sizes(self, captures: Iterable[CaptureId]) -> dict[tuple[Digest, int], int]:
        sizes: dict[tuple[Digest, int], int] = {}
        for number in captures:
            for _, digest, _ in self._kept[number].entries:
                sizes[digest, 0] = len(self.segment_data.get(digest, ((), None))[1] or b"")
            for entry in self._kept[number].side:
                sizes[entry.digest, 1] = len(self.side_bytes.get(entry.digest) or b"")
        return sizes

    def gc(self) -> Freed:
        """Removes what no capture holds any more."""
        live = self._sizes(self._kept)
        dead = [digest for digest in self.segment_data if (digest, 0) not in live]
        dead_side = [digest for digest in self.side_bytes if (digest, 1) not in live]
        size = sum(len(self.segment_data.pop(digest)[1] or b"") for digest in dead)
        size += sum(len(self.side_bytes.pop(digest) or b"") for digest in dead_side)
        return Freed((), len(dead), size)

    def fsck(self) -> Iterator[Problem]:
        """Recomputes all digests and source ids and yields what is wrong."""
        for one in self._kept.values():
            number = one.row.id
            for other in one.row.refers:
                if other not in self._kept:
                    yield Problem("refers_missing", f"it refers to capture {other}, which is gone", number)
            for place, (_, digest, _) in enumerate(one.entries):
                sort = self._wrong(digest)
                if sort is not None:
                    yield Problem(sort, f"segment {place}", number, place, digest)
            for entry in one.side:
                data = self.side_bytes.get(entry.digest)
                if data is None or bytes_digest(data) != entry.digest:
                    sort = "side_missing" if data is None else "side_digest"
                    yield Problem(sort, f"side file {entry.path}", number, None, entry.digest)
            if not self._names_its_source(one):
                yield Problem("source_id", "its source id is not that of its records", number)

    def _wrong(self, digest: Digest) -> str | None:
        lengths, data = self.segment_data.get(digest, ((), None))
        if data is None:
            return "segment_missing"
        return None if framed_digest(lengths, data) == digest else "segment_digest"

    def _names_its_source(self, one: _Kept) -> bool:
        segments = [self._segment(entry) for entry in one.entries]
        wanted = one.row.source_record
        if wanted is None or any(segment.data is None for segment in segments):
            return True
        records = [record for segment in segments for record in segment.records()]
        record = records[wanted] if wanted < len(records) else b""
        return source_id(one.row.agent, one.row.session_id, record) == one.row.source_id

    def drop_damaged(self) -> int:
        """Forgets damaged segments and side files, and marks the captures that miss any."""
        bad = [digest for digest in self.segment_data if self._wrong(digest) is not None]
        for digest in bad:
            del self.segment_data[digest]
        bad_side = [key for key, data in self.side_bytes.items() if bytes_digest(data or b"") != key]
        for digest in bad_side:
            del self.side_bytes[digest]
        for number, one in self._kept.items():
            missing = any(digest not in self.segment_data for _, digest, _ in one.entries)
            if missing or any(entry.digest not in self.side_bytes for entry in one.side):
                self._kept[number] = msgspec.structs.replace(one, sound=False)
        return len(bad) + len(bad_side)

    def stats(self) -> ResidueStats:
        """Returns counts and sizes; nothing is compressed and nothing on a disk."""
        raw = sum(len(data or b"") for _, data in self.segment_data.values())
        raw += sum(len(data or b"") for data in self.side_bytes.values())
        sources = len({_source(row) for row in self.captures()})
        return ResidueStats(len(self._kept), sources, len(self.segment_data), len(self.side_bytes), raw, raw, 0)


def _source(row: Capture) -> tuple[str, str]:
    return row.agent, row.source_id


def _row(new: NewCapture, entries: tuple[_Entry, ...], side_count: int) -> Capture:
    first = entries[0][0] if entries and entries[0][0] != UNKEYED else None
    return Capture(
        id=CaptureId(0),
        agent=new.agent,
        session_id=new.session_id,
        source_id=new.source_id,
        taken_at=new.taken_at,
        streams=new.streams,
        facts=new.facts,
        refers=new.refers,
        message_count=new.message_count,
        source_record=new.source_record,
        segment_count=len(entries),
        side_count=side_count,
        size=sum(stream.size for stream in new.streams),
        first_key=first,
    )


# --- threads ----------------------------------------------------------------------------------------------


class MemoryThreads:
    """The ThreadStore in memory. `tables` hold rows by name and key; a failed block puts them back as they
    were."""

    def __init__(self) -> None:
        self.tables: dict[str, dict[Any, Any]] = {"thread": {}, "strand": {}, "edge": {}}
        self._last_edge = 0

    @contextmanager
    def transaction(self) -> Generator[None]:
        """Makes the writes inside visible together, or none of them. Rows are immutable, so a shallow copy is
        one."""
        before = {name: dict(table) for name, table in self.tables.items()}
        try:
            yield
        except BaseException:
            self.tables = before
            raise

    def thread(self, thread: ThreadId) -> ThreadRow | None:
        """Returns one thread, or None."""
        return self.tables["thread"].get(thread)

    def threads(self) -> tuple[ThreadRow, ...]:
        """Returns all threads, by time of creation, then by id."""
        return tuple(sorted(self.tables["thread"].values(), key=by_creation))

    def put_thread(self, thread: ThreadId, body: bytes, *, expected: int | None, now: datetime) -> int:
        """Writes a thread; raises Conflict when its revision is not `expected`."""
        there = self.thread(thread)
        revision = swapped("thread", thread, there, expected)
        created = there.created_at if there else now
        self.tables["thread"][thread] = ThreadRow(thread, body, revision, created, now)
        return revision

    def join_thread(self, thread: ThreadId, other: ThreadId) -> None:
        """Gives all strands of another thread to this one, and removes the other."""
        if self.thread(thread) is None:
            raise NotFoundError(f"there is no thread {thread}", thread=thread)
        if other != thread:
            for row in self.strands(thread=other):
                self.tables["strand"][row.id] = msgspec.structs.replace(row, thread=thread)
            self.tables["thread"].pop(other, None)

    def remove_thread(self, thread: ThreadId, *, expected: int) -> None:
        """Removes a thread with its strands and the edges that touch only them."""
        swapped("thread", thread, self.thread(thread), expected)
        strands = {row.id for row in self.strands(thread=thread)}
        for edge in self.edges():
            if edge.to_strand in strands and (edge.from_strand is None or edge.from_strand in strands):
                del self.tables["edge"][edge.id]
        for strand in strands:
            del self.tables["strand"][strand]
        del self.tables["thread"][thread]

    def strand(self, strand: str) -> StrandRow | None:
        """Returns one strand, or None."""
        return self.tables["strand"].get(strand)

    def strands(
        self,
        *,
        thread: ThreadId | None = None,
        agent: AgentName | None = None,
        native_id: NativeId | None = None,
        root: str | None = None,
    ) -> tuple[StrandRow, ...]:
        """Returns the strands that agree with all that is given, by time of creation, then by id."""
        rows: Iterable[StrandRow] = self.tables["strand"].values()
        found = (
            row
            for row in rows
            if thread in (None, row.thread)
            and agent in (None, row.agent)
            and native_id in (None, row.native_id)
            and (root is None or root in row.roots)
        )
        return tuple(sorted(found, key=by_creation))

    def put_strand(
        self,
        strand: str,
        *,
        thread: ThreadId,
        agent: AgentName,
        native_id: NativeId,
        body: bytes,
        roots: Iterable[str],
        expected: int | None,
        now: datetime,
    ) -> int:
        """Writes a strand; raises Conflict when its revision or agent is another, NotFoundError without
        thread."""
        if self.thread(thread) is None:
            raise NotFoundError(f"there is no thread {thread}", thread=thread)
        there = self.strand(strand)
        revision = swapped("strand", strand, there, expected)
        if there is not None and there.agent != agent:
            raise make_conflict("strand", strand, expected, there.revision)
        if there is not None and there.is_held:
            raise make_held(strand)
        created = there.created_at if there else now
        row = StrandRow(strand, thread, agent, native_id, body, tuple(roots), revision, created, now)
        if there is not None:
            row = msgspec.structs.replace(row, scope=there.scope, fence=there.fence, claim=there.claim)
        self.tables["strand"][strand] = row
        return revision

    def add_edge(self, kind: str, *, from_strand: str | None, to_strand: str, body: bytes, now: datetime) -> int:
        """Adds an edge and returns its number; raises NotFoundError when a strand is missing."""
        for strand in (from_strand, to_strand):
            if strand is not None and self.strand(strand) is None:
                raise NotFoundError(f"there is no strand {strand}", strand=strand)
        self._last_edge += 1
        self.tables["edge"][self._last_edge] = EdgeRow(self._last_edge, kind, from_strand, to_strand, body, now)
        return self._last_edge

    def edges(self, *, thread: ThreadId | None = None, strand: str | None = None) -> tuple[EdgeRow, ...]:
        """Returns the edges touching a thread's strands, or one strand, or all; by number."""
        edges: Sequence[EdgeRow] = tuple(self.tables["edge"].values())
        if strand is None and thread is None:
            return tuple(edges)
        wanted = {strand} if strand is not None else {row.id for row in self.strands(thread=thread)}
        return tuple(edge for edge in edges if edge.from_strand in wanted or edge.to_strand in wanted)


def swapped(what: str, name: str, there: ThreadRow | StrandRow | OperationRow | None, expected: int | None) -> int:
    """Returns the revision that a swap gives, or raises Conflict with the one that is there."""
    found = there.revision if there is not None else None
    if found != expected:
        raise make_conflict(what, name, expected, found)
    return (expected or 0) + 1


def by_creation(row: ThreadRow | StrandRow) -> tuple[datetime, str]:
    """Returns by what rows are sorted."""
    return row.created_at, row.id


# --- list cache -------------------------------------------------------------------------------------------


class MemoryListCache:
    """The ListCache in memory."""

    def __init__(self) -> None:
        self._files: dict[AgentName, dict[str, Cached]] = {}

    def get_all(self, agent: AgentName) -> dict[str, Cached]:
        """Returns everything remembered for `agent`, by path."""
        return dict(self._files.get(agent, {}))

    def put_many(self, agent: AgentName, items: Iterable[tuple[str, Cached]]) -> None:
        """Remembers, replacing what was there for the same paths."""
        self._files.setdefault(agent, {}).update(items)

    def remove(self, agent: AgentName, paths: Sequence[str]) -> None:
        """Forgets these paths."""
        for path in paths:
            self._files.get(agent, {}).pop(path, None)
