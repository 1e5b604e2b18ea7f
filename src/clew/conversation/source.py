"""Where a conversation came from: streams of bytes cut into records, side files, and where a reading ended.

A source is the streams of one session in order, its side files, and a way to get the session that it refers to.
A reading cuts every byte into exactly one record and says for each message which record created it. Nothing here
opens a file: buffers and loaders are passed in.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

import msgspec
from blake3 import blake3

from clew.conversation.loss import Damage, Loss
from clew.conversation.model import Message

Buffer: TypeAlias = bytes | bytearray | memoryview
"""Bytes that can be sliced without a copy."""


class Stream(msgspec.Struct, frozen=True):
    """One file of a session, or the exported rows of one session in a database.

    `path` is relative to the agent's base folder with forward slashes where it lies below it, else absolute.
    `data` is the whole stream; `release`, where given, lets go of the pages read so far.
    """

    path: str
    data: Buffer
    mode: int = 0o600
    release: Callable[[], None] | None = None


class SideFile(msgspec.Struct, frozen=True):
    """A file that belongs to a session but is not its conversation (a long tool output, a helper's transcript)."""

    path: str
    mode: int
    size: int
    load: Callable[[], Buffer]


class Source(msgspec.Struct, frozen=True):
    """One stored session as a reader gets it.

    `resolve` gives the source of a session that this one refers to by id (the parent of a fork by reference), or
    None. `growing` says that a live agent may be writing: an unfinished last line is then no damage. `hint_id` and
    `hint_cwd` are what the place of the files says; records win where they say otherwise and the format says so.
    """

    streams: tuple[Stream, ...]
    side: tuple[SideFile, ...] = ()
    resolve: Callable[[str], Source | None] | None = None
    growing: bool = False
    hint_id: str = ""
    hint_cwd: str = ""
    facts: dict[str, str] = {}


class Records:
    """The records of all streams of one source, numbered through in order. Append-only while a reader cuts."""

    __slots__ = ("_firsts", "_starts", "streams")

    def __init__(self) -> None:
        self.streams: list[Stream] = []
        self._starts: list[array[int]] = []
        self._firsts: list[int] = []

    def add_stream(self, stream: Stream) -> array[int]:
        """Opens the next stream and returns the list of record starts (byte offsets) for its reader to fill."""
        self._firsts.append(len(self))
        starts: array[int] = array("Q")
        self.streams.append(stream)
        self._starts.append(starts)
        return starts

    def __len__(self) -> int:
        return self._firsts[-1] + len(self._starts[-1]) if self._starts else 0

    def stream_of(self, record: int) -> int:
        """Returns the number of the stream that record `record` lies in."""
        return bisect_right(self._firsts, record) - 1 if self._firsts else 0

    def place(self, record: int) -> tuple[Stream, int, int]:
        """Returns stream, start and end (byte offsets in that stream) of a record."""
        s = self.stream_of(record)
        while record - self._firsts[s] >= len(self._starts[s]):  # skips streams without records
            s -= 1
        starts, i = self._starts[s], record - self._firsts[s]
        end = starts[i + 1] if i + 1 < len(starts) else len(self.streams[s].data)
        return self.streams[s], starts[i], end

    def __getitem__(self, record: int) -> memoryview:
        if not 0 <= record < len(self):
            raise IndexError(record)
        stream, start, end = self.place(record)
        return memoryview(stream.data)[start:end]

    def counts(self) -> tuple[int, ...]:
        """Returns the number of records of each stream."""
        return tuple(len(s) for s in self._starts)

    def spans(self, first: int, last: int) -> Iterator[tuple[memoryview, tuple[int, ...]]]:
        """Yields for records [first, last) one contiguous view a stream, with the records' lengths in bytes."""
        for number, starts in enumerate(self._starts):
            base = self._firsts[number]
            lo, hi = max(first - base, 0), min(last - base, len(starts))
            if lo >= hi:
                continue
            data = self.streams[number].data
            end = starts[hi] if hi < len(starts) else len(data)
            edges = starts[lo:hi]
            edges.append(end)
            lengths = tuple(edges[i + 1] - edges[i] for i in range(hi - lo))
            yield memoryview(data)[starts[lo] : end], lengths


class Ending(msgspec.Struct, frozen=True):
    """Where a reading can be taken up again: everything before `offset` is settled.

    `offset` is the byte in the last stream at which the last group begins; `digest` is BLAKE3 (hex) of the bytes of
    that stream before it; `records`, `messages` and `groups` count what lies before; `key` is the chain key there;
    `state` is the format's own (opaque, small).
    """

    path: str
    offset: int
    digest: str
    records: int
    messages: int
    groups: int
    key: str = ""
    state: bytes = b""

    def holds_for(self, source: Source) -> bool:
        """Tells whether `source` still begins with the bytes that this reading had settled."""
        if not source.streams or source.streams[-1].path != self.path:
            return False
        data = source.streams[-1].data
        return len(data) >= self.offset and digest_bytes(memoryview(data)[: self.offset]) == self.digest


class Boundary(msgspec.Struct, frozen=True):
    """A place in the full history: messages before position `at` are no longer in the model's context."""

    at: int
    kind: str = "compacted"
    note: str = ""


class Branch(msgspec.Struct, frozen=True):
    """Messages that were said but are not on the active branch; they hang behind history position `at`."""

    number: int
    at: int
    messages: tuple[Message, ...]


class Reference(msgspec.Struct, frozen=True):
    """Another session that this one names: its parent, root or helper.

    `relation` is forked, reverted, helper_of or helper; `messages` counts the messages taken from it by reference.
    """

    relation: str
    session_id: str
    messages: int = 0


class Session(msgspec.Struct, frozen=True):
    """One reading of one session: the conversation, where each message came from, and what was odd.

    `messages` is the effective context in normal form (what a resume sends), `created_by` the number of the record
    that created each, or None where no record did. `history` is the full history, the same tuple where nothing was
    compacted or rewound. After a reading that went on from an ending, `continues` is that ending and `messages` are
    only those behind it.
    """

    agent: str
    id: str
    messages: tuple[Message, ...]
    created_by: tuple[int | None, ...]
    records: Records
    history: tuple[Message, ...] = ()
    boundaries: tuple[Boundary, ...] = ()
    branches: tuple[Branch, ...] = ()
    side: tuple[SideFile, ...] = ()
    cwd: str = ""
    title: str = ""
    model: str = ""
    provider: str = ""
    version: str = ""
    created_ms: int | None = None
    updated_ms: int | None = None
    damage: tuple[Damage, ...] = ()
    losses: tuple[Loss, ...] = ()
    references: tuple[Reference, ...] = ()
    helper: bool = False
    verbatim: bool = True
    """Whether the records are the source as it is; a re-rendered source is never cut into segments."""
    foreign: str = ""
    """`agent:id` of the session that clew wrote this one from, when the records say so."""
    stable_first: Buffer = b""
    """The record that names the source (docs/residue.md, 5.2); empty when the format has none."""
    ending: Ending | None = None
    continues: Ending | None = None


def digest_bytes(data: Buffer | Iterable[Buffer]) -> str:
    """Returns BLAKE3 (hex) of a buffer, or of several laid end to end."""
    hasher = blake3()
    if isinstance(data, (bytes, bytearray, memoryview)):
        hasher.update(data)
    else:
        for piece in data:
            hasher.update(piece)
    return hasher.hexdigest()
