"""What a store promises: plain frozen values and three protocols (residue, threads, list cache).

Promised by every implementation, and checked by one law suite (tests/store/test_law.py):

* all or nothing: a capture, or the writes of one `transaction()`, become visible together or not at all;
* immutable: stored bytes never change, a later capture never edits an earlier one;
* idempotent: what is there already is not stored again;
* fixed order: captures come by id, which grows with time, whatever the order of hashing or of rows;
* total on reading: a segment whose bytes cannot be had is delivered without data, never as an exception.

Not promised: that delivered bytes are what was put. The digest is the caller's to check, every time, before
use (docs/residue.md, 5.1). Nothing here reads the clock, the environment or the home folder.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Any, Literal, Protocol

import msgspec

from clew.ids import AgentName, CaptureId, ChainKey, Digest, NativeId, SourceId, ThreadId

Data = bytes | bytearray | memoryview
"""Bytes that are handed in; the store copies what it keeps and holds on to no buffer of the caller."""

RELEASED = "released"
"""The one claim under which nobody holds a strand."""

UNKEYED = ChainKey("0" * 64)
"""Stands where records belong to no group that has a key: kept and restored with their session, never found
by key."""


# --- residue: captures --------------------------------------------------------------------------------------


class StreamEntry(msgspec.Struct, frozen=True):
    """One stream of a captured session, in order; the session's records are numbered through all of them.

    `path` is as the caller gave it (relative to the root or native; undecodable bytes as surrogate escapes);
    `mode` the permission bits; `size` in bytes; `records` how many of the session's records lie in this
    stream.
    """

    path: str
    mode: int
    size: int
    records: int


class SideEntry(msgspec.Struct, frozen=True):
    """One side file of a captured session. `digest` is plain BLAKE3 of its bytes, in hex; `size` in bytes."""

    path: str
    mode: int
    size: int
    digest: Digest


class NewSegment(msgspec.Struct, frozen=True):
    """One segment to store: the records of one group, laid end to end in `data`.

    `lengths` are the records' lengths in bytes and sum up to len(data); `digest` is that of
    `clew.conversation.digest.segment_digest` over these records, computed by the caller and taken at its
    word. `key` is UNKEYED for records that belong to no group with a key (they are part of the capture all
    the same).
    """

    key: ChainKey
    digest: Digest
    lengths: tuple[int, ...]
    data: Data
    end_of_source: bool = False


class Segment(msgspec.Struct, frozen=True):
    """One stored segment. `data` is None, and `lengths` empty, when its bytes cannot be had (damage): it is
    missing.

    Whoever uses `data` checks `digest` first: it is delivered as it lies, never filtered.
    """

    key: ChainKey
    digest: Digest
    end_of_source: bool
    lengths: tuple[int, ...]
    data: bytes | None

    def records(self) -> Iterator[bytes]:
        """Yields the records one by one; nothing when the data is missing."""
        at = 0
        data = self.data
        if data is not None:
            for length in self.lengths:
                yield data[at : at + length]
                at += length


class NewCapture(msgspec.Struct, frozen=True):
    """One reading of one session, without its segments and side files, which are handed over beside it.

    `facts` is the caller's own (root, folder, times, ...), opaque here. It takes part in deciding whether two
    captures are the same, so it must hold nothing that changes by itself. `refers` are captures of the
    sessions this one refers to. `source_record` is the number of the record that went into `source_id`, None
    when that was none of the session's records as they stand (then the source id is not checked).
    """

    agent: AgentName
    session_id: NativeId | None
    source_id: SourceId
    taken_at: datetime
    streams: tuple[StreamEntry, ...]
    facts: bytes = b""
    refers: tuple[CaptureId, ...] = ()
    message_count: int = 0
    source_record: int | None = 0


class Capture(msgspec.Struct, frozen=True):
    """What is known of one stored capture. `size` is the bytes of all its records, `first_key` that of
    segment 0."""

    id: CaptureId
    agent: AgentName
    session_id: NativeId | None
    source_id: SourceId
    taken_at: datetime
    streams: tuple[StreamEntry, ...]
    facts: bytes
    refers: tuple[CaptureId, ...]
    message_count: int
    source_record: int | None
    segment_count: int
    side_count: int
    size: int
    first_key: ChainKey | None


class Found(msgspec.Struct, frozen=True):
    """A segment found by its key, with the oldest capture of its source that holds it and its number
    there."""

    capture: CaptureId
    source_id: SourceId
    session_id: NativeId | None
    number: int
    segment: Segment


class Limits(msgspec.Struct, frozen=True):
    """How much may be kept, in bytes of distinct records and side files before compression; None: no
    limit."""

    per_session: int | None = None
    total: int | None = None


class Freed(msgspec.Struct, frozen=True):
    """What a clean-up took away: captures, and bytes of segments and side files before compression."""

    captures: tuple[CaptureId, ...] = ()
    segments: int = 0
    size: int = 0


class Problem(msgspec.Struct, frozen=True):
    """One thing that `fsck` found. `sort` is a stable word.

    file_damaged, pack_unreadable, segment_missing, segment_digest, side_missing, side_digest, source_id,
    capture_unreadable, refers_missing, list_damaged; of the records: record_unreadable, thread_missing,
    journal_damaged, edge_unreadable, operation_unreadable, time_impossible.
    """

    sort: str
    detail: str
    capture: CaptureId | None = None
    number: int | None = None
    digest: Digest | None = None


class ResidueStats(msgspec.Struct, frozen=True):
    """Counts and sizes: `raw_size` distinct bytes before compression, `stored_size` of packs, `file_size` on
    disk."""

    captures: int
    sources: int
    segments: int
    side_files: int
    raw_size: int
    stored_size: int
    file_size: int


class ResidueStore(Protocol):
    """Keeps captures and gives their segments back, by capture and by chain key."""

    def put_capture(
        self,
        new: NewCapture,
        segments: Iterable[NewSegment],
        side: Iterable[tuple[SideEntry, Data]] = (),
        *,
        base: CaptureId | None = None,
        shared: int = 0,
    ) -> CaptureId:
        """Stores one capture, all or nothing, and returns its id.

        `segments` are consumed one by one and never held together. With `base`, the first `shared` segments
        are those of that capture (the caller has verified that), and `segments` are the ones that follow. If
        the newest capture of the same source is the same in everything but `taken_at`, nothing is stored and
        its id is returned. The iterables may read this store but must not write to it. Raises Conflict,
        before anything is consumed, when `base` is gone or shorter than `shared`.
        """
        ...

    def capture(self, capture: CaptureId) -> Capture:
        """Returns one capture; raises NotFoundError when there is none of that number."""
        ...

    def captures(
        self,
        *,
        agent: AgentName | None = None,
        session_id: NativeId | None = None,
        source_id: SourceId | None = None,
    ) -> tuple[Capture, ...]:
        """Returns all captures that agree with what is given, by id (oldest first)."""
        ...

    def newest(
        self,
        *,
        agent: AgentName | None = None,
        session_id: NativeId | None = None,
        source_id: SourceId | None = None,
    ) -> tuple[Capture, ...]:
        """Returns the newest capture of every source that agrees with what is given, by id."""
        ...

    def heads(self, agent: AgentName, first_key: ChainKey) -> tuple[Capture, ...]:
        """Returns the captures of `agent` whose first segment has that key, by id."""
        ...

    def keys(self, capture: CaptureId) -> tuple[ChainKey, ...]:
        """Returns the keys of a capture's segments in order, without touching their data."""
        ...

    def digests(self, capture: CaptureId) -> tuple[Digest, ...]:
        """Returns the recorded digests of a capture's segments in order, without touching their data."""
        ...

    def segments(self, capture: CaptureId, start: int = 0, stop: int | None = None) -> Iterator[Segment]:
        """Yields the segments numbered start..stop-1 in order, reading lazily; damaged ones without data."""
        ...

    def lookup(self, agent: AgentName, key: ChainKey) -> tuple[Found, ...]:
        """Returns every distinct segment stored under `key` for `agent`, of every source, in a fixed
        order."""
        ...

    def side_files(self, capture: CaptureId) -> tuple[SideEntry, ...]:
        """Returns the side files of a capture, in the order they were put."""
        ...

    def side_data(self, digest: Digest) -> bytes | None:
        """Returns the bytes of a side file, unverified, or None when they cannot be had."""
        ...

    def forget(self, captures: Iterable[CaptureId]) -> Freed:
        """Removes these captures and every byte that only they held, and overwrites the freed space on
        disk."""
        ...

    def evict(self, limits: Limits) -> Freed:
        """Removes whole captures, oldest first, until the limits hold.

        Never the newest capture of a source, and never one that a remaining capture refers to; so a limit may
        stay exceeded.
        """
        ...

    def gc(self) -> Freed:
        """Removes what no capture holds any more and gives the space back."""
        ...

    def fsck(self) -> Iterator[Problem]:
        """Recomputes all digests and source ids and yields what is wrong; changes nothing."""
        ...

    def drop_damaged(self) -> int:
        """Forgets where damaged segments and side files lie, and returns how many they were.

        They are missing then; the next capture that brings them stores them again.
        """
        ...

    def stats(self) -> ResidueStats:
        """Returns counts and sizes."""
        ...


# --- threads ------------------------------------------------------------------------------------------------


class ThreadRow(msgspec.Struct, frozen=True):
    """One thread as stored. `revision` grows by one with each write; `body` is the caller's, carried byte for
    byte."""

    id: ThreadId
    body: bytes
    revision: int
    created_at: datetime
    updated_at: datetime


class StrandRow(msgspec.Struct, frozen=True):
    """One strand as stored: what clew keeps of one thread in one agent. It is the session record.

    `id` is clew's own session id. `native_id` is the agent's id at the head of the chain, empty without one;
    `roots` every root of every link of the chain (docs/ownership.md, H2), by which a strand is found and
    adoption is refused. `body` is the serialized chain and whatever else the caller keeps, carried byte for
    byte, readable or not. `scope` (the location's), `fence` and `claim` are the lease's; without a claim the
    strand was never attached.
    """

    id: str
    thread: ThreadId
    agent: AgentName
    native_id: NativeId
    body: bytes
    roots: tuple[str, ...]
    revision: int
    created_at: datetime
    updated_at: datetime
    scope: str | None = None
    fence: int = 0
    claim: str | None = None

    @property
    def is_held(self) -> bool:
        """Whether the lease is anybody's: claimed, and not released."""
        return self.claim is not None and self.claim != RELEASED


class EdgeRow(msgspec.Struct, frozen=True):
    """One edge of the lineage; edges are only ever added. `from_strand` is None where the source has no
    strand."""

    id: int
    kind: str
    from_strand: str | None
    to_strand: str
    body: bytes
    at: datetime


class ThreadStore(Protocol):
    """Keeps threads, their strands and the edges between them. Every put is a compare-and-swap."""

    def transaction(self) -> AbstractContextManager[None]:
        """Makes the writes inside visible together, or none of them when an exception leaves the block.

        Reads inside see the writes before them. A block inside a block joins the outer one. Writes outside of
        any block are a transaction each.
        """
        ...

    def thread(self, thread: ThreadId) -> ThreadRow | None:
        """Returns one thread, or None."""
        ...

    def threads(self) -> tuple[ThreadRow, ...]:
        """Returns all threads, by time of creation, then by id."""
        ...

    def put_thread(self, thread: ThreadId, body: bytes, *, expected: int | None, now: datetime) -> int:
        """Writes a thread and returns its new revision; `expected` is the present one, None for "there is
        none".

        Raises Conflict when it is another.
        """
        ...

    def strand(self, strand: str) -> StrandRow | None:
        """Returns one strand by clew's session id, or None."""
        ...

    def strands(
        self,
        *,
        thread: ThreadId | None = None,
        agent: AgentName | None = None,
        native_id: NativeId | None = None,
        root: str | None = None,
    ) -> tuple[StrandRow, ...]:
        """Returns the strands that agree with all that is given, by time of creation, then by id."""
        ...

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
        """Writes a strand and returns its new revision; raises Conflict as put_thread, NotFoundError for no
        thread.

        Scope, fence and claim stay as they are. A strand's agent never changes, and a held strand is only
        written with its lease: Conflict.
        """
        ...

    def join_thread(self, thread: ThreadId, other: ThreadId) -> None:
        """Gives all strands of another thread to this one, whoever holds them, and removes the other; their
        revisions stay. Raises NotFoundError without this thread; no other thread is nothing to do."""
        ...

    def remove_thread(self, thread: ThreadId, *, expected: int) -> None:
        """Removes a thread, its strands with their journals and the edges that touch only them (for
        `forget`); raises Conflict."""
        ...

    def add_edge(self, kind: str, *, from_strand: str | None, to_strand: str, body: bytes, now: datetime) -> int:
        """Adds an edge and returns its number, which only grows. Raises NotFoundError when a strand is
        missing."""
        ...

    def edges(self, *, thread: ThreadId | None = None, strand: str | None = None) -> tuple[EdgeRow, ...]:
        """Returns the edges touching a thread's strands, or one strand, or all; by number."""
        ...


class Sql(Protocol):
    """A database that the store's modules share: plain SQL with `?` for parameters, and transactions over all
    of it.

    For modules of this room that keep tables beside the threads (leases, ledger, journal): what they write
    inside `transaction()` becomes visible together with what the threads' store writes there.
    """

    @property
    def dialect(self) -> Literal["sqlite", "postgresql"]:
        """Tells which SQL it speaks, where one text does not do for both."""
        ...

    @property
    def is_there(self) -> bool:
        """Tells whether there is anything yet; asking makes nothing."""
        ...

    @property
    def opened(self) -> object:
        """Returns a value that is another one whenever the database was opened anew."""
        ...

    @property
    def origin(self) -> str | None:
        """Returns what is another one when the database was put there anew; None where that cannot be told.

        That of a copy may by chance be the same; that of the same database may change (it was moved, it was promoted).
        """
        ...

    @property
    def in_transaction(self) -> bool:
        """Tells whether a `transaction()` is open."""
        ...

    @property
    def lock(self) -> str:
        """What a SELECT ends with so that its rows stay as they are until the open transaction ends.

        Empty where writers exclude each other anyway, and outside of a transaction.
        """
        ...

    def change(self, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Runs one writing statement and returns its rows: within the open transaction, or as one by
        itself."""
        ...

    def writing(self) -> AbstractContextManager[None]:
        """Is part of the open transaction, or one by itself.

        Unlike `transaction()` it undoes nothing of its own inside of another: for blocks that fail before
        their first effect.
        """
        ...

    def execute(self, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Runs one statement and returns its rows; writing ones only inside `transaction()`."""
        ...

    def execute_many(self, statement: str, rows: Iterable[Sequence[Any]]) -> list[tuple[Any, ...]]:
        """Runs one statement for each row of parameters and returns all result rows together, in order."""
        ...

    def transaction(self) -> AbstractContextManager[None]:
        """Makes the writes of the block durable and visible together, or none of them when it raises."""
        ...

    def snapshot(self) -> AbstractContextManager[None]:
        """Lets all reads of the block see one state."""
        ...


# --- list cache ---------------------------------------------------------------------------------------------


class FileFacts(msgspec.Struct, frozen=True):
    """By what a file is known to be unchanged: modification time in ns, size in bytes, inode."""

    mtime_ns: int
    size: int
    inode: int


class Cached(msgspec.Struct, frozen=True):
    """What was remembered of one file while it had these facts."""

    facts: FileFacts
    body: bytes


class ListCache(Protocol):
    """Remembers what listing found out about session files. Derived: it may be lost at any time, silently."""

    def get_all(self, agent: AgentName) -> dict[str, Cached]:
        """Returns everything remembered for `agent`, by path."""
        ...

    def put_many(self, agent: AgentName, items: Iterable[tuple[str, Cached]]) -> None:
        """Remembers, replacing what was there for the same paths."""
        ...

    def remove(self, agent: AgentName, paths: Sequence[str]) -> None:
        """Forgets these paths."""
        ...
