"""Reads a session of Mistral Vibe, in the layout of 2.x and from the unified store: total, and lazy.

In the 2.x layout all lines are sent. In the unified store the chunks of the current generation are sent, in order, and
what its journal tells after them. `meta.json` gives title, folder and times. Everything odd is reported with record
and offset; nothing here raises on any bytes.
"""

from __future__ import annotations

import re
from array import array

import msgspec

from clew.conversation.loss import Damage, Loss
from clew.conversation.model import Message
from clew.conversation.normal import NormalBuilder
from clew.conversation.source import Ending, Records, Reference, Session, SideFile, Source, Stream
from clew.formats import raws, unmark
from clew.formats.described import damaged_descriptions
from clew.formats.jsonl import JsonLines
from clew.formats.settled import find_ending
from clew.formats.times import read_time
from clew.formats.uncollected import uncollected
from clew.formats.vibe import records as rec
from clew.formats.vibe.content import Content, Marks
from clew.formats.vibe.digests import wrong_digests
from clew.formats.vibe.folder import MESSAGES, META, store_folder, store_kind

AGENT = "vibe"
_ROLES = ("user", "assistant", "tool", "system")
_BETWEEN = re.compile(rb',(?=\{"message":)')
_ITEMS = msgspec.json.Decoder(list[msgspec.Raw]).decode


class State(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a reading that goes on must know of the session."""

    hint: str = ""
    foreign: str = ""


_STATE = msgspec.json.Decoder(State).decode


def read(source: Source, since: Ending | None = None) -> Session:
    """Reads a session whole, or, in the 2.x layout, from `since` on where the file has only grown."""
    with uncollected():
        continued = _read_on(source, since) if since is not None else None
        return continued if continued is not None else _Reading(source).session()


class _Reading:
    """One reading under way."""

    def __init__(self, source: Source, start: int = 0) -> None:
        self.source = source
        self.records = Records()
        self.damage: list[Damage] = []
        self.content = Content(self._beside)
        self.builder = NormalBuilder()
        self.places: dict[int, int] = {}
        self.foreign = ""
        self.end_ms: int | None = None
        self.meta = _read_meta(source.side)
        self.is_store = any(store_kind(stream.path) for stream in source.streams)
        self.marks = Marks(_imported(source.side) if self.is_store else [])
        for stream in source.streams:
            kind = store_kind(stream.path)
            if kind == "chunks":
                self._read_chunk(stream)
            elif kind == "generations":
                self._read_checkpoint(stream)
            elif kind == "journal":
                self._read_journal(stream)
            else:
                self._read_lines(stream, start)
        if self.is_store:
            self._check_digests()

    def _check_digests(self) -> None:
        """Reports documents that are not what was written, where nothing else was found wrong with them."""
        side = {file.path: file for file in self.source.side}
        known = {damage.file for damage in self.damage}
        for path in wrong_digests(self.source, lambda path: _bytes_of(side[path]) if path in side else b""):
            if path not in known:
                paths = [stream.path for stream in self.source.streams]
                record = sum(self.records.counts()[: paths.index(path)]) if path in paths else 0
                self.damage.append(Damage(path, record, 0, "wrong digest", "other bytes than were written"))

    def _beside(self, path: str) -> bytes:
        """Returns the bytes of a file in the session's folder; a path that leads elsewhere has none."""
        folder = self.source.streams[-1].path.rpartition("/")[0]
        found = [file for file in self.source.side if file.path == f"{folder}/{path}"]
        return _bytes_of(found[0]) if found else b""

    def _add(self, message: Message | None, record: int) -> None:
        if message is not None:
            self.builder.add(message, record)

    def _read_lines(self, stream: Stream, start: int) -> None:
        lines = JsonLines(
            self.records,
            stream,
            rec.LINES,
            self.damage,
            growing=self.source.growing,
            start=start,
            slow=rec.ODD_LINES,
        )
        for number, line in lines:
            if line is None:
                continue
            self.places[number] = lines.line
            if not self.foreign and line.clew is not raws.NONE:
                mark = unmark.read_mark(line.clew)
                self.foreign = mark.from_ if mark is not None else ""
            self._add(self.content.line(line), number)
            if line.role not in _ROLES:
                self._tell_stranger(line, number)

    def _tell_stranger(self, line: rec.Line, number: int) -> None:
        stream, start, _ = self.records.place(number)
        said = raws.as_text(line.content) if raws.is_text(line.content) else ""
        detail = f"role {str(line.role)[:40]!r}"
        self.damage.append(
            Damage(stream.path, number, start, "foreign record", detail, self.places[number], bool(said))
        )

    def _read_chunk(self, stream: Stream) -> None:
        starts = self.records.add_stream(stream)
        first = len(self.records)
        for number, item in enumerate(self._elements(stream, starts), first):
            found = rec.ITEMS.one(item)
            if found is not None:
                self._add(self.content.item(found, self.marks), number)

    def _elements(self, stream: Stream, starts: array[int]) -> list[msgspec.Raw]:
        """Returns the elements of a chunk and notes where their records begin; of a damaged one those that are left."""
        view = memoryview(stream.data)
        if not len(view):
            return []
        starts.append(0)
        try:
            items = _ITEMS(view)
        except raws.DECODE_ERRORS:
            return self._left(stream, bytes(view), starts)
        at = bytes(view[:64]).find(b"[") + 1
        for number, item in enumerate(items):
            data = memoryview(item)
            while view[at : at + len(data)] != data:
                at += 1
            if number:
                starts.append(at)
            at += len(data)
        return items

    def _left(self, stream: Stream, data: bytes, starts: array[int]) -> list[msgspec.Raw]:
        """Returns the elements of a chunk that is no array any more, found by how the agent begins each."""
        begins = [0, *(found.end() for found in _BETWEEN.finditer(data))]
        first = len(self.records) - 1
        items: list[msgspec.Raw] = []
        for at, end in zip(begins, [*begins[1:], len(data)], strict=True):
            number = first + len(items)
            element = data[at:end].strip().removesuffix(b",") if at or end < len(data) else data
            try:
                _ITEMS(b"%b%b%b" % (b"[" if at else b"", element, b"" if end == len(data) else b"]"))
                items.append(msgspec.Raw(element.removeprefix(b"[") if end < len(data) else element.removesuffix(b"]")))
            except raws.DECODE_ERRORS:
                self.damage.append(Damage(stream.path, number, at, "not json", "a chunk that is no array"))
                items.append(msgspec.Raw(b"null"))
            if at:
                starts.append(at)
        return items

    def _read_checkpoint(self, stream: Stream) -> None:
        """Reads the document of a generation: the messages themselves stood in it before there were chunks."""
        starts = self.records.add_stream(stream)
        if not len(memoryview(stream.data)):
            return
        starts.append(0)
        number = len(self.records) - 1
        found = rec.CHECKPOINTS.one(msgspec.Raw(bytes(stream.data).strip()))
        context = rec.CONTEXTS.one(found.context) if found is not None else None
        if context is None:
            self.damage.append(Damage(stream.path, number, 0, "not json", "a checkpoint without a context"))
            return
        for item in rec.ITEMS.many(context.messages):
            self._add(self.content.item(item, self.marks), number)

    def _read_journal(self, stream: Stream) -> None:
        lines = JsonLines(self.records, stream, rec.EVENTS, self.damage, growing=self.source.growing)
        for number, event in lines:
            if event is None or event.type != "core_input":
                continue
            self.places[number] = lines.line
            core = rec.CORE_INPUTS.one(event.payload)
            given = rec.INPUTS.one(core.input) if core is not None else None
            command = rec.COMMANDS.one(given.command) if given is not None else None
            if command is None or given is None:
                continue
            moment = rec.TIMES.one(given.determinism)
            time = read_time(moment.time_unix_ms) if moment is not None else None
            self.end_ms = time if time is not None else self.end_ms
            message = self.content.command(command, self.marks)
            if message is not None:
                self._add(msgspec.structs.replace(message, time_ms=time), number)

    def session(self, since: Ending | None = None) -> Session:
        """Returns the session of what was read."""
        normal = unmark.with_originals(self.builder.finish(), self.content.renamed)
        for stray in normal.strays:
            if stray.record is not None:
                stream, offset, _ = self.records.place(stray.record)
                detail = f"a result for the call {stray.call_id!r}, which is not open here"
                line = self.places.get(stray.record, 0)
                self.damage.append(Damage(stream.path, stray.record, offset, "stray result", detail, line))
        named = [file.path for file in self.source.side if file.path.rpartition("/")[2] == META]
        self.damage += damaged_descriptions(self.source.side, named)
        self.damage.sort(key=lambda d: (d.record, d.offset))
        source, meta = self.source, self.meta
        own = "" if self.is_store else raws.as_word(meta.session_id)
        foreign = self.foreign or self.marks.origin
        created = read_time(meta.start_time)
        ended = self.end_ms if self.end_ms is not None else read_time(meta.end_time)
        ending = None
        if not self.is_store:
            state = msgspec.json.encode(State(source.hint_id, foreign))
            ending = find_ending(normal, self.records, state, since)
        return Session(
            agent=AGENT,
            id=own or source.hint_id,
            messages=normal.messages,
            created_by=normal.created_by,
            records=self.records,
            history=normal.messages,
            side=source.side,
            cwd=raws.as_word(meta.environment.working_directory) if meta.environment else source.hint_cwd,
            title=raws.as_word(meta.title),
            model=_model(meta),
            created_ms=created,
            updated_ms=ended if ended is not None else created,
            damage=tuple(self.damage),
            losses=tuple(Loss(what, count) for what, count in sorted(self.content.skipped.items())),
            references=_references(meta),
            foreign=foreign,
            stable_first=bytes(self.records[0]) if len(self.records) and since is None and not self.is_store else b"",
            ending=ending,
            continues=since,
        )


def _model(meta: rec.Meta) -> str:
    config = meta.config or rec.Config()
    return raws.as_word(config.model_name) or raws.as_word(config.active_model) or raws.as_word(meta.model)


def _references(meta: rec.Meta) -> tuple[Reference, ...]:
    parent = raws.as_word(meta.parent_session_id)
    return (Reference("forked", parent),) if parent else ()


def _load(side: tuple[SideFile, ...], name: str) -> bytes:
    """Returns the bytes of a side file, nothing where there is none or it cannot be had."""
    for file in side:
        if file.path.rpartition("/")[2] == name and "/generations/" not in file.path:
            return _bytes_of(file)
    return b""


def _bytes_of(file: SideFile) -> bytes:
    try:
        return bytes(file.load())
    except Exception:  # noqa: BLE001 - whatever a store or a disk raises, the conversation is read
        return b""


def _read_meta(side: tuple[SideFile, ...]) -> rec.Meta:
    folders = [file for file in side if file.path.rpartition("/")[2] == META]
    inside = [file for file in folders if store_folder(file.path.replace(META, "chunks/"))]
    data = _load(tuple(inside or folders), META).strip()
    return rec.METAS.one(msgspec.Raw(data)) or rec.Meta() if data else rec.Meta()


def _imported(side: tuple[SideFile, ...]) -> list[rec.Line]:
    """Returns the lines of the file that a unified session was imported from, for their marks."""
    data = _load(side, MESSAGES)
    if b'"clew"' not in data:
        return []
    found = JsonLines(Records(), Stream(MESSAGES, data), rec.LINES, [], slow=rec.ODD_LINES)
    return [line for _, line in found if line is not None]


def _read_on(source: Source, since: Ending) -> Session | None:
    """Reads what lies behind `since`; None where that is no plain continuation of what lay before."""
    try:
        state = _STATE(since.state)
    except msgspec.DecodeError:
        return None
    if len(source.streams) != 1 or store_kind(source.streams[0].path) or since.offset <= 0:
        return None
    if source.hint_id != state.hint or not since.holds_for(source):
        return None
    reading = _Reading(source, since.offset)
    reading.foreign = state.foreign or reading.foreign
    if reading.damage and not source.growing:
        return None
    session = reading.session(since)
    return session if session.messages and not reading.builder.finish().strays else None
