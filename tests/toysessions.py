"""Sessions of the format of lines, made line by line, and candidates that come from no store."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from clew.conversation.canonical import keys_of
from clew.conversation.digest import segment_digest
from clew.conversation.source import Records, Session, Source, Stream
from clew.ids import ChainKey, Digest
from clew.laws.stored import Stored
from clew.residue.choose import Candidate
from clew.residue.segments import cut_session, slice_segments
from lineformat import FORMAT


def row(t: str, **members: object) -> bytes:
    """Returns one line."""
    return json.dumps({"t": t, **members}, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def user(text: str, **members: object) -> bytes:
    """Returns a user's line."""
    return row("user", x=text, **members)


def bot(*parts: str | dict[str, object], **members: object) -> bytes:
    """Returns a reply's line; a string is a text part."""
    return row("bot", parts=[{"k": "text", "x": p} if isinstance(p, str) else p for p in parts], **members)


def call(call_id: str, name: str = "sh", args: str = "") -> dict[str, object]:
    """Returns the part of a reply that is a call."""
    return {"k": "call", "id": call_id, "name": name, "args": args}


def out(call_id: str, text: str) -> bytes:
    """Returns a result's line."""
    return row("out", id=call_id, x=text)


def session_of(*lines: bytes, session_id: str = "p1") -> Stored:
    """Returns a session of these lines behind its first one."""
    data = row("meta", id=session_id, cwd="/w") + b"".join(lines)
    return Stored(FORMAT, data, f"{session_id}.lines")


def read_lines(*lines: bytes, session_id: str = "p1") -> Session:
    """Returns the reading of these lines behind a first one."""
    return session_of(*lines, session_id=session_id).read()


def read_streams(*datas: bytes) -> Session:
    """Returns the reading of several streams."""
    return FORMAT.read(Source(tuple(Stream(f"{n}.lines", data) for n, data in enumerate(datas))))


class Piece(msgspec.Struct, frozen=True):
    """A stored segment."""

    key: ChainKey
    digest: Digest
    end_of_source: bool
    lengths: tuple[int, ...]
    data: bytes | None

    @classmethod
    def of(cls, key: ChainKey, records: Sequence[bytes], *, end: bool = False) -> Piece:
        """Returns a sound segment of these records."""
        return cls(key, segment_digest(records), end, tuple(map(len, records)), b"".join(records))

    def spoiled(self, *, digest: bool = False) -> Piece:
        """Returns it with its last letter changed; with `digest`, as somebody would who can write the store."""
        assert self.data is not None
        data = self.data.replace(b"a", b"b", 1) if b"a" in self.data else self.data[::-1]
        other = Piece(self.key, self.digest, self.end_of_source, self.lengths, data)
        return Piece.of(self.key, list(records_of(other)), end=self.end_of_source) if digest else other


def records_of(piece: Piece) -> Iterator[bytes]:
    """Yields a segment's records."""
    at = 0
    for length in piece.lengths:
        yield (piece.data or b"")[at : at + length]
        at += length


def pieces_of(session: Session) -> list[Piece]:
    """Returns a session's segments as a store would hold them, without those that have no key."""
    cuts = cut_session(session)
    return [
        Piece(part.key, part.digest, part.end_of_source, part.lengths, bytes(part.data))
        for part in slice_segments(session.records, cuts)
        if part.key is not None
    ]


def candidate_of(
    pieces: Iterable[Piece], *, capture: int = 1, source: str = "", session_id: str | None = None
) -> Candidate:
    """Returns a candidate whose segments are these."""
    kept = tuple(pieces)
    keys = tuple(piece.key for piece in kept)
    return Candidate(capture, source or f"source {session_id}", session_id, keys, lambda a, b: iter(kept[a:b]))


def keys_of_lines(*lines: bytes) -> tuple[ChainKey, ...]:
    """Returns the chain keys of these lines' conversation."""
    return tuple(keys_of(read_lines(*lines).messages))


class Shape(msgspec.Struct, frozen=True):
    """Where a stream of a capture goes."""

    path: str
    records: int
    mode: int = 0o600


def shapes_of(records: Records) -> tuple[Shape, ...]:
    """Returns the shapes of a session's streams."""
    return tuple(Shape(s.path, n, s.mode) for s, n in zip(records.streams, records.counts(), strict=True))
