"""Reads Kimi Code's journal: messages, steps, compactions, undone turns.

The journal only grows; what is in the model's context is worked out by playing it, as the agent does at every start.
Promised: every byte falls in exactly one record; whatever is in the file, a session comes out and what was odd is
reported. Doubles of messages (`kind: event`) and bookkeeping say nothing. Unlike the agent, which gives up all that
stands behind a damaged line, the reader goes on behind it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from clew.conversation.loss import Damage
from clew.conversation.model import Call, Message, Part, Text
from clew.conversation.normal import Normal, NormalBuilder
from clew.conversation.source import (
    Boundary,
    Branch,
    Ending,
    Records,
    Reference,
    Session,
    SideFile,
    Source,
)
from clew.conversation.text import JsonString, text_of
from clew.formats.described import damaged_descriptions
from clew.formats.jsonl import JsonLines
from clew.formats.kimi import records as rec
from clew.formats.kimi.compaction import choose_kept
from clew.formats.kimi.content import read_call, read_part, read_parts
from clew.formats.kimi.said import Sort, is_timed, render_result, sort_origin
from clew.formats.marks import INVENTED, Mark
from clew.formats.settled import find_ending

AGENT = "kimi"
STATE = "state.json"
MAIN = "agents/main/wire.jsonl"


def read(source: Source, since: Ending | None = None) -> Session:
    """Reads a session whole, or goes on from `since` where what was added does not reach back."""
    if since is not None and since.offset > 0 and len(source.streams) == 1 and since.holds_for(source):
        state = rec.decode(since.state, Known)
        if state.model is not None:
            try:
                return _Reading(source, since, state).session()
            except _ReachesBack:
                pass
    return _Reading(source).session()


class Known(msgspec.Struct, omit_defaults=True):
    """What the lines before an ending said of the session; `model` is None where an ending is not ours."""

    model: str | None = None
    foreign: str = ""
    created_ms: int | None = None


class _ReachesBack(Exception):
    """What was added changes what was settled."""


class _Item:
    """One message of the agent's own list: its pieces with their records, and what it is to undo and compaction."""

    __slots__ = ("pieces", "sort")

    def __init__(self, sort: Sort, pieces: list[tuple[Message, int]]) -> None:
        self.sort, self.pieces = sort, pieces


_REPLY = Sort(False, "model", "", False, False)
_RESULT = Sort(False, "agent", "", False, False)


class _Reading:
    """One reading: the list that the lines build up, and the full history beside it."""

    def __init__(self, source: Source, since: Ending | None = None, known: Known | None = None) -> None:
        self.source, self.since = source, since
        self.records = Records()
        self.damage: list[Damage] = []
        self.items: list[_Item] = []
        self.full: list[_Item] = []
        self.boundaries: list[tuple[int, str]] = []
        self.branches: list[tuple[int, list[_Item]]] = []
        self.step: _Item | None = None
        self.step_id = ""
        self.names: dict[str, str] = {}
        self.renamed: dict[str, str] = {}
        self.model = known.model or "" if known is not None else ""
        self.foreign = known.foreign if known is not None else ""
        self.first_ms = known.created_ms if known is not None else None
        self.last_ms: int | None = None
        blobs = (file for file in source.side if "/blobs/" in file.path)
        self.blobs = {file.path.rsplit("/", 1)[-1].split(".")[0]: file for file in blobs}
        self._take_all()

    def _take_all(self) -> None:
        for place, stream in enumerate(self.source.streams):
            growing = self.source.growing and place + 1 == len(self.source.streams)
            start = self.since.offset if self.since is not None else 0
            lines = JsonLines(self.records, stream, rec.LINE, self.damage, growing=growing, start=start)
            for number, line in lines:
                if line is not None:
                    self._take(line, number)

    def _take(self, line: rec.Line, number: int) -> None:
        match line.type:
            case rec.APPEND:
                self._append(line, number)
            case rec.LOOP:
                self._loop(line, number)
            case rec.COMPACT:
                self._compact(line, number)
            case rec.UNDO:
                self._undo(line)
            case rec.CLEAR:
                self._clear()
            case rec.SWITCHED:
                self._switch(line, number)
            case "profile.bind" | "config.update" | "llm.request":
                self.model = rec.text(line.model_alias) or self.model
            case "metadata":
                mark = rec.decode_mark(line.clew)
                if mark is not None:
                    self.foreign = mark.from_ or self.foreign
                    self.model = mark.model or self.model
            case _:
                pass

    # --- messages ---------------------------------------------------------------------------------------------

    def _push(self, item: _Item, time_ms: int | None) -> None:
        self.items.append(item)
        self.full.append(item)
        if time_ms is not None and not item.sort.context:
            self.first_ms = time_ms if self.first_ms is None else self.first_ms
            self.last_ms = time_ms

    def _append(self, line: rec.Line, number: int) -> None:
        message = rec.decode(line.message, rec.Message)
        mark, time_ms = rec.decode_mark(line.clew), rec.time_of(line.time)
        match message.role:
            case "user":
                self._user(message, mark, time_ms, number)
            case "assistant":
                model = mark.model if mark is not None and mark.model else self.model
                parts = [*read_parts(message.content, mark, self.blobs), *self._calls(message, line.clew)]
                said = Message("assistant", tuple(parts), "model", "", time_ms, model)
                self._push(_Item(_REPLY, [(said, number)]), time_ms)
            case "tool":
                self._answer(
                    rec.text(message.call_id),
                    read_parts(message.content, mark, self.blobs),
                    rec.Result(NONE, message.is_error, message.duration_ms, message.note),
                    mark,
                    time_ms,
                    number,
                )
            case _:
                self._push(_Item(_RESULT, []), None)

    def _user(self, message: rec.Message, mark: Mark | None, time_ms: int | None, number: int) -> None:
        sort = sort_origin(message.origin)
        if mark is not None and mark.origin == "agent":
            kind = mark.kind if mark.kind in ("summary", "interruption", "command", "notice") else ""
            sort = msgspec.structs.replace(sort, context=False, origin="agent", kind=kind)
        if sort.context:
            self._push(_Item(sort, []), None)
            return
        parts = read_parts(message.content, mark, self.blobs)
        said = Message("user", parts, sort.origin, sort.kind, time_ms)
        self._push(_Item(sort, [(said, number)]), time_ms)

    def _calls(self, message: rec.Message, clew: msgspec.Raw) -> Iterable[Call]:
        marks = rec.decode(clew, Marks).calls if clew is not NONE else ()
        for place, call in enumerate(rec.decode_calls(message.calls)):
            mark = marks[place] if place < len(marks) else None
            found = read_call(call.id, call.name, call.arguments, mark)
            self.names[found.id] = found.name
            if mark is not None and mark.id is not None:
                self.renamed[found.id] = mark.id
            yield found

    def _answer(
        self,
        written: str,
        parts: tuple[Part, ...],
        result: rec.Result,
        mark: Mark | None,
        time_ms: int | None,
        number: int,
    ) -> None:
        """Takes a result; one that clew's writer had to make up is none."""
        if mark.invented if mark is not None else _is_invented(parts):
            self._push(_Item(_RESULT, []), None)
            return
        failed = result.is_error is True
        if mark is None:
            took: float | None = result.duration_ms if isinstance(result.duration_ms, (int, float)) else None
            took = took if is_timed(self.names.get(written, "")) else None
            parts = render_result(parts, failed=failed, duration_ms=took, note=rec.text(result.note))
        is_error = mark.error if mark is not None else failed
        said = Message("tool", parts, "agent", "", time_ms, "", "", written, is_error)
        self._push(_Item(_RESULT, [(said, number)]), time_ms)

    # --- steps ------------------------------------------------------------------------------------------------

    def _loop(self, line: rec.Line, number: int) -> None:
        event = rec.decode(line.event, rec.Event)
        time_ms = rec.time_of(line.time)
        match event.type:
            case "step.begin":
                self._begin(rec.text(event.uuid))
            case "content.part":
                part = read_part(rec.decode(event.part, rec.Part), None, self.blobs)
                if part is not None:
                    self._piece(rec.text(event.step_uuid), part, time_ms, number)
            case "tool.call":
                call = read_call(event.call_id, event.name, event.args, None)
                self.names[call.id] = call.name
                self._piece(rec.text(event.step_uuid), call, time_ms, number)
            case "tool.result":
                result = rec.decode(event.result, rec.Result)
                parts = read_parts(result.output, None, self.blobs)
                self._answer(rec.text(event.call_id), parts, result, None, time_ms, number)
            case _:
                pass

    def _begin(self, step_id: str) -> None:
        self.step, self.step_id = _Item(_REPLY, []), step_id
        self._push(self.step, None)

    def _piece(self, step_id: str, part: Part, time_ms: int | None, number: int) -> None:
        if self.step is None or step_id != self.step_id:
            self._begin(step_id)
        assert self.step is not None, "begun above"
        piece = Message("assistant", (part,), "model", "", time_ms, self.model, step_id)
        self.step.pieces.append((piece, number))
        if time_ms is not None:
            self.first_ms = time_ms if self.first_ms is None else self.first_ms
            self.last_ms = time_ms

    # --- what reaches back ------------------------------------------------------------------------------------

    def _compact(self, line: rec.Line, number: int) -> None:
        self._only_whole()
        text = rec.as_text(line.context_summary) or rec.as_text(line.summary)
        time_ms = rec.time_of(line.time)
        parts: tuple[Part, ...]
        if text is not None:
            parts = (Text(text),)
        else:
            parts = read_parts(rec.decode(line.summary, rec.Message).content, None, self.blobs)
        summary = _Item(sort_origin(_SUMMARY), [(Message("user", parts, "agent", "summary", time_ms), number)])
        legacy = line.legacy_tail is True or (line.legacy_tail is None and rec.number(line.kept) is None)
        if legacy:
            count = rec.number(line.compacted_count)
            count = count if count is not None else rec.number(line.count) or 0
            rest = [_restamp(item, number) for item in self.items[max(count, 0) :]]
            self.items = [summary, *rest]
        else:
            users = [item.pieces[0][0] for item in self.items if item.sort.kept and item.pieces]
            self.items = [*(_Item(Sort(), [(kept, number)]) for kept in choose_kept(users)), summary]
        self.boundaries.append((len(self.full), "compacted"))
        self.full.append(summary)
        self._close()

    def _undo(self, line: rec.Line) -> None:
        self._only_whole()
        left, place = rec.number(line.count) or 0, -1
        for at in range(len(self.items) - 1, -1, -1):
            sort = self.items[at].sort
            if left <= 0 or sort.kind == "summary":
                break
            if sort.anchor:
                left, place = left - 1, at
        if left <= 0 and place >= 0:
            self._cut(place)

    def _cut(self, place: int) -> None:
        """Takes off the messages from `place` on; they are a branch of the history."""
        gone = self.items[place:]
        del self.items[place:]
        known = set(map(id, gone))
        self.full = [item for item in self.full if id(item) not in known]
        self.branches.append((len(self.full), gone))
        self._close()

    def _clear(self) -> None:
        self._only_whole()
        self.boundaries.append((len(self.full), "cleared"))
        self.items = []
        self._close()

    def _switch(self, line: rec.Line, number: int) -> None:
        """Goes back to a line on another branch; where an undo stands beside it, that one does it."""
        self._only_whole()
        last = rec.number(rec.decode(line.base, rec.Base).line)
        if rec.number(line.legacy_undo) is not None or last is None:
            return
        for place, item in enumerate(self.items):
            if any(record + 1 > last for _, record in item.pieces):
                self._cut(place)
                return

    def _close(self) -> None:
        self.step, self.step_id = None, ""

    def _only_whole(self) -> None:
        if self.since is not None:
            raise _ReachesBack

    # --- the session ------------------------------------------------------------------------------------------

    def _said_before(self, place: int) -> int:
        """Returns how many messages of the full history lie before a place in the agent's own list."""
        return len(_normal(self.full[:place], self.renamed).messages)

    def session(self) -> Session:
        """Returns what was read."""
        source, normal = self.source, _normal(self.items, self.renamed)
        if self.since is not None and normal.strays:
            raise _ReachesBack
        plain = self.items == self.full
        history = normal.messages if plain else _normal(self.full, self.renamed).messages
        for stray in normal.strays:
            record = stray.record or 0
            stream, start, _ = self.records.place(record)
            self.damage.append(Damage(stream.path, record, start, "stray result", stray.call_id))
        state = read_state(source.side, source.streams[0].path if source.streams else "")
        named = [f"{session_folder(stream.path)}{STATE}" for stream in source.streams[:1]]
        self.damage += damaged_descriptions(source.side, named)
        known = msgspec.json.encode(Known(self.model, self.foreign, self.first_ms))
        created = self.first_ms if self.first_ms is not None else rec.time_of(state.created_at)
        path = source.streams[0].path if source.streams else ""
        helper = helper_name(path)
        ending = find_ending(normal, self.records, known, self.since)
        return Session(
            agent=AGENT,
            id=source.hint_id or rec.text(state.id),
            messages=normal.messages,
            created_by=normal.created_by,
            records=self.records,
            history=history,
            boundaries=tuple(Boundary(self._said_before(at), kind) for at, kind in self.boundaries),
            branches=tuple(
                Branch(count, self._said_before(at), _normal(gone, self.renamed).messages)
                for count, (at, gone) in enumerate(self.branches, 1)
            ),
            side=source.side,
            cwd=rec.text(state.cwd) or source.hint_cwd,
            title="" if helper else rec.text(state.title),
            model=self.model,
            created_ms=created,
            updated_ms=self.last_ms if self.last_ms is not None else created,
            damage=tuple(self.damage),
            references=_references(state, path, source.hint_id),
            helper=bool(helper),
            foreign=self.foreign,
            stable_first=bytes(self.records[0]) if len(self.records) and self.since is None else b"",
            ending=ending,
            continues=self.since,
        )


NONE = rec.NONE
_SUMMARY = msgspec.Raw(b'{"kind":"compaction_summary"}')


class Marks(msgspec.Struct):
    """The marks of the calls of one message, in their order."""

    calls: tuple[Mark | None, ...] = ()


def _is_invented(parts: tuple[Part, ...]) -> bool:
    part = parts[0] if len(parts) == 1 else None
    if not isinstance(part, Text):
        return False
    if isinstance(part.source, JsonString):
        view = memoryview(part.source.raw)
        return len(view) == len(INVENTED) + 2 and bytes(view[1:-1]) == INVENTED.encode()
    return text_of(part.source) == INVENTED


def _restamp(item: _Item, number: int) -> _Item:
    return _Item(item.sort, [(message, number) for message, _ in item.pieces])


def _normal(items: Iterable[_Item], renamed: Mapping[str, str]) -> Normal:
    builder = NormalBuilder(renamed)
    for item in items:
        for message, record in item.pieces:
            builder.add(message, record)
    return builder.finish()


def read_state(side: tuple[SideFile, ...], stream: str) -> rec.State:
    """Returns the session's own description from among its side files; an empty one where there is none."""
    folder = session_folder(stream)
    for file in side:
        if file.path == f"{folder}{STATE}":
            return rec.decode(bytes(file.load()), rec.State)
    return rec.State()


def session_folder(stream: str) -> str:
    """Returns the folder of a journal's session, with a slash behind it, or nothing."""
    folder, found, _ = stream.rpartition("agents/")
    return folder if found else ""


def helper_name(stream: str) -> str:
    """Returns the name of the helper that a journal is of, nothing for the main agent's."""
    parts = stream.split("/")
    name = parts[-2] if len(parts) > 2 and parts[-3] == "agents" else ""
    return "" if name == "main" else name


def _references(state: rec.State, path: str, session_id: str) -> tuple[Reference, ...]:
    if helper_name(path):
        owner = rec.text(state.id)
        return (Reference("helper_of", owner),) if owner else ()
    found = [Reference("helper", f"{session_id}.{name}") for name in rec.agents_of(state)]
    parent = rec.text(state.forked_from)
    return (*((Reference("forked", parent),) if parent else ()), *found)
