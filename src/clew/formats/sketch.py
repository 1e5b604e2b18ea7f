"""A reading under way, for the formats that are read in one pass without a tree.

It cuts streams into records (lines, or ranges of a document), collects damage and messages, and makes the session of
them. Every byte falls in exactly one record; nothing here raises on any bytes.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from clew.conversation.loss import Damage, Loss
from clew.conversation.model import Message
from clew.conversation.normal import NormalBuilder
from clew.conversation.source import Boundary, Records, Reference, Session, Source, Stream
from clew.formats.framing import Frame, frame_document
from clew.formats.jsonl import JsonLines
from clew.formats.loose import MEMBERS, Members, members_of, raw_of


class About(msgspec.Struct, kw_only=True):
    """What a session says about itself; a reader fills it in on the way."""

    id: str = ""
    cwd: str = ""
    title: str = ""
    model: str = ""
    provider: str = ""
    version: str = ""
    foreign: str = ""
    helper: bool = False
    created_ms: int | None = None
    updated_ms: int | None = None
    references: tuple[Reference, ...] = ()


class Sketch:
    """One reading: records, damage, messages in stored order, and what was skipped."""

    def __init__(self, agent: str, source: Source) -> None:
        self.agent, self.source = agent, source
        self.records = Records()
        self.damage: list[Damage] = []
        self.renamed: dict[str, str] = {}
        self.builder = NormalBuilder(self.renamed)
        self.about = About()
        self.skipped: dict[str, int] = {}
        self.boundaries: list[int] = []
        self.frame: Frame | None = None
        self._full: NormalBuilder | None = None

    def lines(self, stream: Stream) -> Iterator[tuple[int, Members]]:
        """Yields the records of a file of JSON lines, with their numbers; a damaged one is reported instead."""
        for number, value in JsonLines(self.records, stream, MEMBERS, self.damage, growing=self.source.growing):
            if value is not None:
                yield number, value

    def document(self, stream: Stream, name: str) -> Iterator[tuple[int, Members]]:
        """Yields the elements of the list `name` of a document, with their numbers; `frame` says where they lie."""
        data = bytes(stream.data)
        frame = self.frame = frame_document(data, name)
        if frame is None:
            self.records.add_stream(stream).extend([0] if data else [])
            if data.strip():
                self.report(len(self.records) - 1, "not an object")
            return
        self.records.add_stream(stream).extend(frame.starts(len(data)))
        base = len(self.records) - len(frame.starts(len(data)))
        for number, (begin, end) in enumerate(frame.elements, base + 1):
            value = members_of(raw_of(data[begin:end]))
            if value or data[begin:end].strip() == b"{}":
                yield number, value
            else:
                self.report(number, "foreign record", "not an object", offset=begin)
        if not frame.sound:
            growing = self.source.growing
            sort = "still being written" if growing else "torn tail"
            lost = frame.closed < len(data) and not growing
            self.report(len(self.records) - 1, sort, offset=frame.closed, lost=lost)

    def whole(self, stream: Stream) -> int:
        """Takes a stream as one record and returns its number; -1 where it is empty."""
        self.records.add_stream(stream).extend([0] if len(memoryview(stream.data)) else [])
        return len(self.records) - 1 if len(memoryview(stream.data)) else -1

    def report(self, record: int, sort: str, detail: str = "", *, offset: int = -1, lost: bool = True) -> None:
        """Notes damage at a record."""
        stream = self.source.streams[0] if self.source.streams else Stream("", b"")
        if 0 <= record < len(self.records):
            stream, start, _ = self.records.place(record)
            offset = start if offset < 0 else offset
        self.damage.append(Damage(stream.path, record, max(offset, 0), sort, detail, lost=lost))

    def skip(self, what: str) -> None:
        """Counts something that a conversation cannot say."""
        self.skipped[what] = self.skipped.get(what, 0) + 1

    def say(self, message: Message | None, record: int) -> None:
        """Takes the next message, or a piece of one."""
        if message is None:
            return
        self.builder.add(message, record)
        if self._full is not None:
            self._full.add(message, record)

    def compact(self) -> None:
        """Forgets all messages so far for the model's context; the full history keeps them."""
        if self._full is None:
            self._full = NormalBuilder(self.renamed)
            normal = self.builder.finish()
            for message, record in zip(normal.messages, normal.created_by, strict=True):
                self._full.add(message, record)
        self.boundaries.append(len(self._full.finish().messages))
        self.builder.replace()

    def finish(self) -> Session:
        """Returns the session."""
        normal = self.builder.finish()
        for stray in normal.strays:
            detail = f"a result for the call {stray.call_id!r}, which is not open here"
            self.report(-1 if stray.record is None else stray.record, "stray result", detail)
        history = self._full.finish().messages if self._full is not None else normal.messages
        times = [m.time_ms for m in history if m.time_ms is not None]
        about = self.about
        created = about.created_ms if about.created_ms is not None else (times[0] if times else None)
        models = [m.model for m in history if m.model]
        return Session(
            agent=self.agent,
            id=about.id or self.source.hint_id,
            messages=normal.messages,
            created_by=normal.created_by,
            records=self.records,
            history=history,
            boundaries=tuple(Boundary(at) for at in self.boundaries),
            side=self.source.side,
            cwd=about.cwd or self.source.hint_cwd,
            title=about.title,
            model=models[-1] if models else about.model,
            provider=about.provider,
            version=about.version,
            created_ms=created,
            updated_ms=times[-1] if times else about.updated_ms if about.updated_ms is not None else created,
            damage=tuple(sorted(self.damage, key=lambda d: (d.record, d.offset))),
            losses=tuple(Loss(what, count) for what, count in sorted(self.skipped.items())),
            references=about.references,
            helper=about.helper,
            foreign=about.foreign,
        )
