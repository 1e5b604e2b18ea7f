"""Reads Codex rollouts: plain or compressed, paginated or legacy, forked, reverted, compacted, rolled back.

Promised: every byte falls in exactly one record; whatever is in the files, a session comes out and what was odd is
reported. Only `response_item`, `compacted` and `thread_rolled_back` make the conversation, as in the agent itself;
events mirror it for display and are never taken for messages. What a fork takes from its parent is stamped with the
record that refers to it.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from clew.conversation.loss import Damage, Loss
from clew.conversation.model import Message
from clew.conversation.source import (
    Boundary,
    Branch,
    Buffer,
    Ending,
    Records,
    Reference,
    Session,
    Source,
)
from clew.conversation.text import Lazy, is_empty
from clew.formats.codex import compressed
from clew.formats.codex.endings import State, decode_state, find_ending
from clew.formats.codex.items import NO_MARK, UNREADABLE, read_item
from clew.formats.codex.opening import Opened, least, open_stream
from clew.formats.codex.records import (
    NONE,
    Item,
    Line,
    Meta,
    as_text,
    decode_event_item,
    decode_int,
    decode_item,
    decode_list,
    decode_mark,
    decode_meta,
    decode_meta_line,
    decode_text,
    decode_texts,
    decode_time,
    is_there,
    line_bytes,
    rollout_lines,
)
from clew.formats.codex.track import Track, is_text, make_summary, normal_messages
from clew.formats.jsonl import JsonLines, line_ends
from clew.formats.marks import Mark

AGENT = "codex"


def read(source: Source, since: Ending | None = None) -> Session:
    """Reads a thread, or goes on from `since` where what was added does not reach back (see `endings`)."""
    if since is not None:
        continued = _continue(source, since)
        if continued is not None:
            return continued
    return _Reading(source).read_all()


def _continue(source: Source, since: Ending) -> Session | None:
    """Returns the session behind `since`, or None where it has to be read whole."""
    state = decode_state(since)
    if state is None or len(source.streams) != 1 or not since.holds_for(source):
        return None
    if compressed.is_compressed(source.streams[0]):
        return None
    try:
        return _Reading(source).take_up(since, state)
    except _ReachesBack:
        return None


class _ReachesBack(Exception):
    """What was added changes what was settled."""


class _Reading:
    """One reading: the state that the lines build up."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.records = Records()
        self.damage: list[Damage] = []
        self.renamed: dict[str, str] = {}
        self.now = Track(self.renamed)
        self.full: Track | None = None
        self.boundaries: list[tuple[int, str]] = []
        self.branches: list[tuple[int, tuple[Message, ...]]] = []
        self.unreadable = 0
        self.state = State(id=source.hint_id, cwd=source.hint_cwd, title=source.facts.get("title", ""))
        self.has_meta = False
        self.model = ""
        self.title = self.state.title
        self.references: dict[tuple[str, str], int] = {}
        self.first_ms: int | None = None
        self.last_ms: int | None = None
        self.stamp: int | None = None
        self.borrowed = False
        self.continuing = False
        self.limit: int | None = None
        self.beyond: list[Message] = []
        self.position = 0
        self.packed = False
        self.head: Buffer = source.streams[0].data if source.streams else b""

    # --- the streams --------------------------------------------------------------------------------------

    def read_all(self) -> Session:
        """Reads every stream whole."""
        opened = [open_stream(stream, number) for number, stream in enumerate(self.source.streams)]
        own = opened[0].meta.id if opened else ""
        self.packed = any(one.packed for one in opened)
        self.head = opened[0].lines.data if opened else b""
        for number, one in enumerate(opened):
            if one.base is not None and not (number and one.base[0] == own):
                self._borrow(*one.base, len(self.records), (one.meta.id,))
            later = [other.base[1] for other in opened[number + 1 :] if other.base and other.base[0] == own]
            self.limit = least(later)
            self._read_stream(one, number + 1 == len(opened))
        return self._finish(None)

    def take_up(self, since: Ending, state: State) -> Session:
        """Reads what lies behind an ending; raises _ReachesBack."""
        self.state, self.model, self.title = state, state.model, self.title or state.title
        self.references = {(relation, id_): count for relation, id_, count in state.references}
        self.first_ms = state.created_ms
        self.continuing = self.has_meta = True
        stream, growing = self.source.streams[0], self.source.growing
        self._take_lines(rollout_lines(self.records, stream, self.damage, growing=growing, start=since.offset))
        return self._finish(since)

    def _read_stream(self, one: Opened, last: bool) -> None:
        growing = self.source.growing and last
        if not one.packed:
            self._take_lines(rollout_lines(self.records, one.stream, self.damage, growing=growing))
        else:
            self.stamp = len(self.records)
            self.records.add_stream(one.stream).append(0)
            self.damage.extend(msgspec.structs.replace(found, record=self.stamp) for found in one.damage)
            inner: list[Damage] = []
            self._take_lines(rollout_lines(Records(), one.lines, inner))
            self.damage.extend(msgspec.structs.replace(found, record=self.stamp) for found in inner)
            self.stamp = None
        if self.beyond:
            self.branches.append((len(self.now.messages), tuple(self.beyond)))
            self.beyond = []

    def _borrow(self, id_: str, end: int | None, stamp: int, seen: tuple[str, ...]) -> None:
        """Takes the messages of the thread that is referred to, up to an ordinal, for the record that refers."""
        found = None if id_ in seen or self.source.resolve is None else self.source.resolve(id_)
        if found is None or not found.streams:
            why = "is itself" if id_ in seen else "is not there"
            detail = f"the thread {id_} that this one was forked from {why}"
            self.damage.append(Damage(self.source.streams[0].path, stamp, 0, "missing parent", detail))
            return
        opened = [open_stream(stream, 0) for stream in found.streams]
        own = opened[0].meta.id
        outer = self.stamp, self.borrowed, self.limit
        for number, one in enumerate(opened):
            if one.base is not None and not (number and one.base[0] == own):
                self._borrow(one.base[0], least((end, one.base[1])), stamp, (*seen, id_))
            later = [other.base[1] for other in opened[number + 1 :] if other.base and other.base[0] == own]
            self.stamp, self.borrowed, self.limit = stamp, True, least((end, *later))
            self._take_lines(rollout_lines(Records(), one.lines, []))
        self.stamp, self.borrowed, self.limit = outer
        if len(seen) == 1:
            self.references["forked", id_] = len(self.now.normal().messages)

    def _take_lines(self, lines: JsonLines[Line]) -> None:
        """Takes the lines of one stream in order."""
        self.position = 0
        for number, line in lines:
            if line is None or (self.borrowed and self._is_beyond(line)):
                continue
            payload = line.payload
            if payload is None:  # a line of before late 2025, which is the item itself
                self._take_bare(line, number, lines)
            elif line.type == "response_item":
                self._take_item(payload, line, number)
            else:
                self._take(payload, line, number, lines)
            self.position += 1

    def _is_beyond(self, line: Line) -> bool:
        """Tells whether a line was taken back by a later file, or is not part of what a fork took over."""
        if self.limit is None:
            return False
        ordinal = decode_int(line.ordinal)
        return (self.position if ordinal is None else ordinal) >= self.limit

    # --- one line -----------------------------------------------------------------------------------------

    def _take(self, payload: Item, line: Line, number: int, lines: JsonLines[Line]) -> None:
        match line.type:
            case "event_msg":
                self._take_event(payload, line)
            case "turn_context":
                self.model = decode_text(payload.model) or self.model
            case "compacted":
                self._compact(payload, line, number)
            case "session_meta":
                # The first one only: a fork of an old version copies its parent's as well.
                if not self.has_meta and not self.borrowed:
                    self._adopt(decode_meta_line(line_bytes(lines, number)), decode_mark(line.clew))
            case _:
                pass

    def _take_bare(self, line: Line, number: int, lines: JsonLines[Line]) -> None:
        data = line_bytes(lines, number)
        if line.type:
            self._take_item(decode_item(data), line, number)
        elif not self.has_meta and not self.borrowed:
            meta = decode_meta(data)
            if meta.id:
                self._adopt(meta, Mark())

    def _adopt(self, meta: Meta, mark: Mark) -> None:
        self.has_meta = True
        self.model = mark.model or self.model
        source = bytes(memoryview(meta.source)[:4096])
        helper = meta.thread_source == "subagent" or (source.startswith(b"{") and b'"subagent"' in source)
        self.state = State(
            id=meta.id or self.state.id,
            cwd=meta.cwd or self.state.cwd,
            title=self.state.title,
            provider=meta.model_provider or "",
            version=meta.cli_version,
            foreign=mark.from_,
            helper=helper,
        )
        if meta.parent_thread_id:
            self.references["helper_of", meta.parent_thread_id] = 0
        if meta.forked_from_id:
            self.references.setdefault(("forked", meta.forked_from_id), 0)

    def _take_event(self, event: Item, line: Line) -> None:
        if event.type == "thread_rolled_back":
            if not self._is_beyond(line):
                self._roll_back(decode_int(event.num_turns) or 0)
        elif self.borrowed:
            return  # the parent's own name and helpers
        elif event.type == "thread_name_updated":
            self.title = decode_text(event.thread_name) or self.title
        elif event.type == "item_completed" and _names_helpers(event.item):
            for id_ in decode_texts(decode_event_item(event.item).receiver_thread_ids):
                self.references.setdefault(("helper", id_), 0)

    def _take_item(self, item: Item, line: Line, number: int) -> None:
        if item.type in UNREADABLE:
            self.unreadable += 1
            return
        mark = NO_MARK if line.clew is NONE else decode_mark(line.clew)
        time_ms = decode_time(line.timestamp)
        messages = read_item(item, mark, number, time_ms, self.model)
        if mark.id is not None:
            self.renamed[item.call_id or decode_text(item.id)] = mark.id
        if not messages:
            return
        if self.limit is not None and self._is_beyond(line):
            self.beyond.extend(messages)
            return
        if time_ms is not None and not self.borrowed:
            self.first_ms = time_ms if self.first_ms is None else self.first_ms
            self.last_ms = time_ms
        record = number if self.stamp is None else self.stamp
        if item.role == "assistant" and b'"compaction_output":true' in bytes(memoryview(line.metadata)):
            self._part_ways()
            self._add(messages, record, full=False)
        else:
            self._add(messages, record)

    def _add(self, messages: Iterable[Message], record: int, *, full: bool = True) -> None:
        for message in messages:
            self.now.messages.append(message)
            self.now.records.append(record)
            if full and self.full is not None:
                self.full.add(message, record)

    def _part_ways(self) -> None:
        """From here on what the model is sent and what was said are two lists."""
        if self.continuing:
            raise _ReachesBack
        if self.full is None:
            self.full = self.now.copy()

    # --- what replaces ------------------------------------------------------------------------------------

    def _compact(self, found: Item, line: Line, number: int) -> None:
        if self.limit is not None and self._is_beyond(line):
            return
        self._part_ways()
        assert self.full is not None, "the lists have parted"
        record = number if self.stamp is None else self.stamp
        time_ms = decode_time(line.timestamp)
        summary = as_text(found.message)
        before, self.now = self.now, Track(self.renamed)
        note = ""
        if is_there(found.replacement_history):
            for raw in decode_list(found.replacement_history):
                note = self._take_replacement(decode_item(raw), record, time_ms, summary) or note
        else:
            for message in before.messages:
                if message.role == "user" and message.origin == "user":
                    self.now.add(message, record)
            if summary is not None:
                self.now.add(make_summary(summary, time_ms), record)
        self.boundaries.append((len(self.full.messages), note))
        if summary is not None and not is_empty(summary):
            self.full.add(make_summary(summary, time_ms), record)

    def _take_replacement(self, item: Item, record: int, time_ms: int | None, summary: Lazy | None) -> str:
        """Takes one item of a replacement history; returns a note where it cannot be read."""
        if item.type in UNREADABLE:
            self.unreadable += 1
            return "the summary is encrypted"
        for message in read_item(item, NO_MARK, record, time_ms, self.model):
            if summary is not None and message.role == "user" and is_text(message, summary):
                self.now.add(make_summary(summary, time_ms), record)
            else:
                self.now.add(message, record)
        return ""

    def _roll_back(self, turns: int) -> None:
        if turns <= 0:
            return
        if self.continuing:
            raise _ReachesBack
        gone = self.now.cut(self.now.turn_start(turns))
        if self.full is not None:
            gone = self.full.cut(self.full.turn_start(turns))
        if gone:
            self.branches.append((len((self.full or self.now).messages), gone))

    # --- the session --------------------------------------------------------------------------------------

    def _finish(self, since: Ending | None) -> Session:
        normal = self.now.normal()
        if since is not None and normal.strays:
            raise _ReachesBack
        for stray in normal.strays:
            stream, start, _ = self.records.place(stray.record or 0)
            self.damage.append(Damage(stream.path, stray.record or 0, start, "stray result", stray.call_id))
        state = msgspec.structs.replace(
            self.state,
            model=self.model,
            title=self.title,
            created_ms=self.first_ms,
            references=tuple((relation, id_, count) for (relation, id_), count in self.references.items()),
        )
        history = normal.messages if self.full is None else self.full.normal().messages
        track = self.full or self.now
        return Session(
            agent=AGENT,
            id=state.id,
            messages=normal.messages,
            created_by=normal.created_by,
            records=self.records,
            history=history,
            boundaries=tuple(
                Boundary(len(track.normal(at).messages), "compacted", note) for at, note in self.boundaries
            ),
            branches=tuple(
                Branch(number, len(track.normal(at).messages), normal_messages(gone, self.renamed))
                for number, (at, gone) in enumerate(self.branches, 1)
            ),
            side=self.source.side,
            cwd=state.cwd,
            title=state.title,
            model=state.model,
            provider=state.provider,
            version=state.version,
            created_ms=state.created_ms,
            updated_ms=self.last_ms if self.last_ms is not None else state.created_ms,
            damage=tuple(self.damage),
            losses=(Loss("unreadable summaries", self.unreadable),) if self.unreadable else (),
            references=tuple(Reference(*found) for found in state.references),
            helper=state.helper,
            foreign=state.foreign,
            stable_first=self._first_line(),
            ending=None if self.packed else find_ending(normal, self.records, state),
            continues=since,
        )

    def _first_line(self) -> Buffer:
        """Returns the line that names the source; the same one for a thread and its compressed file."""
        if len(self.records) and not self.packed and not self.continuing:
            return self.records[0]
        return memoryview(self.head)[: next(line_ends(self.head), 0)]


_HELPER_CALL = b'{"type":"CollabAgentToolCall"'


def _names_helpers(item: msgspec.Raw) -> bool:
    return bytes(memoryview(item)[: len(_HELPER_CALL)]) == _HELPER_CALL
