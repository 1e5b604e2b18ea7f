"""The messages of a session with their parts, whichever of three ways they are stored: rows, an export, files.

Promised: every byte of the source falls in exactly one record; what cannot be read is reported; nothing raises. In a
database a row is a record; an export is one record, since the agent makes it anew each time; of the older layout each
file is one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from clew.conversation.loss import Damage
from clew.conversation.source import Records, Source, Stream
from clew.formats.jsonl import JsonLines
from clew.formats.opencode.records import (
    DOCUMENT,
    DOCUMENT_MESSAGE,
    INFO,
    LINE,
    MESSAGE,
    PART,
    REVERT,
    Columns,
    DocumentInfo,
    Line,
    MessageData,
    PartData,
    decode,
    is_there,
    json_of,
    member,
    number_in,
    text_in,
)

_DOCUMENT = re.compile(rb'(?:\xef\xbb\xbf)?\s*\{\s*"(?:info|messages)"\s*:')
_TREE = re.compile(r"(?:^|/)(session|message|part)/(?:[^/]+/){1,2}[^/]+\.json\Z")


class Piece(msgspec.Struct, frozen=True, gc=False):
    """One part of a message, and the record that holds it."""

    id: str
    data: PartData
    record: int


class Entry(msgspec.Struct):
    """One message with its parts in order."""

    id: str
    data: MessageData
    record: int
    time_ms: int | None
    parts: list[Piece]
    stored_ms: int | None = None
    """The time by which the agent orders the message, where that is kept apart."""


class Facts(msgspec.Struct):
    """What the session says of itself."""

    id: str = ""
    parent: str = ""
    directory: str = ""
    title: str = ""
    version: str = ""
    metadata: msgspec.Raw = msgspec.Raw()
    revert: msgspec.Raw = msgspec.Raw()


class Stored:
    """One source, cut into records and taken apart."""

    def __init__(self, source: Source) -> None:
        self.records = Records()
        self.damage: list[Damage] = []
        self.entries: list[Entry] = []
        self.facts = Facts(id=source.hint_id, directory=source.hint_cwd)
        self.in_rows = True
        self._known: dict[str, Entry] = {}
        self._parts: set[str] = set()
        if all(_TREE.search(stream.path) for stream in source.streams) and source.streams:
            self._read_files(source.streams)
        else:
            for stream in source.streams:
                if _DOCUMENT.match(bytes(memoryview(stream.data)[:64])):
                    self._read_document(stream)
                else:
                    self._read_rows(stream, growing=source.growing)

    def _report(self, record: int, sort: str, detail: str = "") -> None:
        stream, start, _ = self.records.place(record)
        self.damage.append(Damage(stream.path, record, start, sort, detail))

    # --- rows -------------------------------------------------------------------------------------------------

    def _read_rows(self, stream: Stream, *, growing: bool) -> None:
        for number, line in JsonLines(self.records, stream, LINE, self.damage, growing=growing):
            if line is None:
                continue
            if line.table == "message":
                self._take_message(number, line)
            elif line.table == "part":
                self._take_part(number, line)
            elif line.table == "session":
                self._take_session(line.row)

    def _take_session(self, row: Columns) -> None:
        metadata, revert = json_of(row.metadata), json_of(row.revert)
        self.facts = Facts(
            text_in(row.id) or self.facts.id,
            text_in(row.parent_id),
            text_in(row.directory) or self.facts.directory,
            text_in(row.title),
            text_in(row.version),
            msgspec.Raw(metadata) if metadata is not None else msgspec.Raw(),
            msgspec.Raw(revert) if revert is not None else msgspec.Raw(),
        )

    def _take_message(self, number: int, line: Line) -> None:
        row, raw = line.row, json_of(line.row.data)
        data = decode(MESSAGE, raw) if raw is not None else None
        if data is None:
            self._report(number, "unreadable row", text_in(row.id))
            return
        time_ms, stored_ms = number_in(member(data.time, "created")), number_in(row.time_created)
        self._add(text_in(row.id), data, number, time_ms if time_ms is not None else stored_ms, stored_ms)

    def _add(self, id_: str, data: MessageData, record: int, time_ms: int | None, stored_ms: int | None = None) -> None:
        if id_ in self._known:
            return  # the same row a second time: the first one counts
        entry = Entry(id_, data, record, time_ms, [], stored_ms)
        self._known[id_] = entry
        self.entries.append(entry)

    def _take_part(self, number: int, line: Line) -> None:
        row, raw = line.row, json_of(line.row.data)
        data = decode(PART, raw) if raw is not None else None
        if data is None:
            self._report(number, "unreadable row", text_in(row.id))
            return
        self._add_part(text_in(row.id), text_in(row.message_id), data, number)

    def _add_part(self, id_: str, message: str, data: PartData, record: int) -> None:
        entry = self._known.get(message)
        if entry is None:
            self._report(record, "missing parent", f"part {id_} of the message {message}, which is not there")
        elif id_ not in self._parts or all(piece.id != id_ for piece in entry.parts):
            self._parts.add(id_)
            entry.parts.append(Piece(id_, data, record))

    # --- an export --------------------------------------------------------------------------------------------

    def _read_document(self, stream: Stream) -> None:
        self.in_rows = False
        record = len(self.records)
        self.records.add_stream(stream).append(0)
        data = memoryview(stream.data)
        document = decode(DOCUMENT, data[3:] if bytes(data[:3]) == b"\xef\xbb\xbf" else data)
        info = decode(INFO, document.info) if document is not None else None
        if document is None or info is None:
            self._report(record, "not json")
            return
        self._take_info(info)
        for raw in document.messages:
            found = decode(DOCUMENT_MESSAGE, raw)
            message = decode(MESSAGE, found.info) if found is not None else None
            if found is None or message is None:
                self._report(record, "foreign record", "a message that is none")
                continue
            id_ = message.id if isinstance(message.id, str) else ""
            self._add(id_, message, record, number_in(member(message.time, "created")))
            for one in found.parts:
                part = decode(PART, one)
                if part is None:
                    self._report(record, "foreign record", "a part that is none")
                else:
                    self._add_part(_text(part.id), id_, part, record)

    def _take_info(self, info: DocumentInfo) -> None:
        self.facts = Facts(
            _text(info.id) or self.facts.id,
            _text(info.parent_id),
            _text(info.directory) or self.facts.directory,
            _text(info.title),
            _text(info.version),
            info.metadata,
            info.revert,
        )

    # --- files of the older layout ----------------------------------------------------------------------------

    def _read_files(self, streams: tuple[Stream, ...]) -> None:
        self.in_rows = False
        messages: list[tuple[int, str, MessageData, int]] = []
        parts: list[tuple[str, str, PartData, int]] = []
        for stream, kind in _kinds(streams):
            record = len(self.records)
            starts = self.records.add_stream(stream)
            if not len(stream.data):
                continue
            starts.append(0)
            if kind == "session":
                info = decode(INFO, memoryview(stream.data))
                if info is not None:
                    self._take_info(info)
                    continue
            elif kind == "message":
                message = decode(MESSAGE, memoryview(stream.data))
                if message is not None:
                    time_ms = number_in(member(message.time, "created")) or 0
                    messages.append((time_ms, _text(message.id), message, record))
                    continue
            else:
                part = decode(PART, memoryview(stream.data))
                if part is not None:
                    parts.append((_text(part.id), _text(part.message_id), part, record))
                    continue
            self._report(record, "not json")
        for time_ms, id_, message, record in sorted(messages, key=lambda m: m[:2]):
            self._add(id_, message, record, time_ms or None)
        for id_, owner, part, record in sorted(parts, key=lambda p: p[:2]):
            self._add_part(id_, owner, part, record)


def _kinds(streams: tuple[Stream, ...]) -> Iterator[tuple[Stream, str]]:
    for stream in streams:
        found = _TREE.search(stream.path)
        yield stream, found.group(1) if found is not None else "part"


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def taken_back(stored: Stored) -> tuple[list[Entry], list[Entry]]:
    """Splits the messages into those that stand and those that a revert took back (the agent removes them later)."""
    found = decode(REVERT, stored.facts.revert) if is_there(stored.facts.revert) else None
    at = next((n for n, e in enumerate(stored.entries) if found is not None and e.id == found.message_id), None)
    if found is None or at is None:
        return stored.entries, []
    entry = stored.entries[at]
    cut = next((n for n, part in enumerate(entry.parts) if found.part_id and part.id == found.part_id), None)
    if cut is None:
        first = at + (1 if found.part_id else 0)
        return stored.entries[:first], stored.entries[first:]
    before = Entry(entry.id, entry.data, entry.record, entry.time_ms, entry.parts[:cut])
    behind = Entry(entry.id, entry.data, entry.record, entry.time_ms, entry.parts[cut:])
    return [*stored.entries[:at], before], [behind, *stored.entries[at + 1 :]]


def is_cut_inside(stored: Stored) -> bool:
    """Tells whether a revert goes to the middle of a message: whatever stands behind that one will be removed."""
    found = decode(REVERT, stored.facts.revert) if is_there(stored.facts.revert) else None
    return found is not None and bool(found.part_id) and any(entry.id == found.message_id for entry in stored.entries)
