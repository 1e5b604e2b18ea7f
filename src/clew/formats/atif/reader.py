"""Reads trajectories: bytes to conversation, total; every version of ATIF so far.

A step of the user is a message, one of the agent a reply with its calls and their results. Steps of the system are
context and stay in the records. What clew's own writer left in `extra` is undone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from clew.conversation.model import Call, Image, Message, Part, Reasoning
from clew.conversation.source import Ending, Session, Source
from clew.conversation.text import JsonString, JsonValue, is_empty
from clew.formats import unmark
from clew.formats.loose import NONE, Members, first_byte, is_text, items_of, members_of, scalar_in, text_in, word_in
from clew.formats.outline import RecordMark
from clew.formats.sketch import Sketch
from clew.formats.times import read_time

AGENT = "atif"
STEPS = "steps"
NEWEST = 8
_VERSION = re.compile(r"ATIF-v1\.(\d{1,3})\Z")


class StepMark(RecordMark, frozen=True, omit_defaults=True):
    """The mark of a step: also how texts (t), calls (c) and thoughts (r) took turns, where it is not the usual way."""

    order: str = ""


_MARK = msgspec.json.Decoder(StepMark)


def read(source: Source, since: Ending | None = None) -> Session:
    """Reads a trajectory whole; a document has no place to go on from."""
    sketch = Sketch(AGENT, source)
    for stream in source.streams[:1]:
        reading = _Steps(sketch)
        for number, step in sketch.document(stream, STEPS):
            reading.take(step, number)
        if sketch.frame is not None:
            _read_root(sketch, sketch.frame.members(bytes(stream.data)))
    for stream in source.streams[1:]:
        sketch.whole(stream)
    return sketch.finish()


def _read_root(sketch: Sketch, root: Members) -> None:
    about = sketch.about
    about.id = word_in(root.get("session_id", NONE))
    agent = members_of(root.get("agent", NONE))
    about.model = word_in(agent.get("model_name", NONE))
    about.version = word_in(agent.get("version", NONE))
    extra = members_of(root.get("extra", NONE))
    mark = read_step_mark(extra)
    if mark is not None:
        about.foreign = mark.from_
        about.cwd, about.title = word_in(extra.get("cwd", NONE)), word_in(extra.get("title", NONE))
    version = word_in(root.get("schema_version", NONE))
    found = _VERSION.match(version)
    if version and (found is None or int(found.group(1)) > NEWEST):
        sketch.report(0, "newer layout", f"{version} is read as ATIF-v1.{NEWEST}", lost=False)


def read_step_mark(extra: Members) -> StepMark | None:
    """Returns the mark in a member `extra`, or None."""
    raw = extra.get("clew", NONE)
    if first_byte(raw) != 0x7B:
        return None
    try:
        return _MARK.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return None


class _Steps:
    """Turns steps, in order, into messages."""

    def __init__(self, sketch: Sketch) -> None:
        self.sketch = sketch

    def take(self, step: Members, number: int) -> None:
        """Takes one step."""
        source = word_in(step.get("source", NONE))
        mark = read_step_mark(members_of(step["extra"])) if "extra" in step else None
        time = read_time(scalar_in(step.get("timestamp", NONE)))
        parts = tuple(self._content(step.get("message", NONE), mark))
        if source == "user":
            origin, kind = unmark.origin_in(mark) or ("user", "")
            self.sketch.say(Message("user", parts, origin, kind, time), number)
            self._notices(items_of(members_of(step.get("observation", NONE)).get("results", NONE)), time, number)
        elif source == "agent":
            self._reply(step, mark, parts, time, number)
        elif source != "system":
            self.sketch.report(number, "foreign record", "a step of an unknown source")

    def _content(self, raw: msgspec.Raw, mark: RecordMark | None) -> Iterator[Part]:
        if is_text(raw):
            yield unmark.text_part(JsonString(raw), mark)
            return
        for item in items_of(raw):
            part = members_of(item)
            sort = word_in(part.get("type", NONE))
            if sort == "text":
                yield unmark.text_part(text_in(part.get("text", NONE)), mark)
            elif sort == "image":
                place = members_of(part.get("source", NONE))
                yield Image(word_in(place.get("media_type", NONE)), "", word_in(place.get("path", NONE)))
            else:
                self.sketch.skip("content parts of another kind")

    def _reply(self, step: Members, mark: StepMark | None, said: tuple[Part, ...], time: int | None, at: int) -> None:
        calls: list[Call] = []
        written: list[str] = []
        for item in items_of(step.get("tool_calls", NONE)):
            call = members_of(item)
            call_id = word_in(call.get("tool_call_id", NONE))
            raw = call.get("arguments", NONE)
            source = JsonString(raw) if is_text(raw) else JsonValue(raw) if first_byte(raw) else ""
            found = unmark.call_part(call_id, word_in(call.get("function_name", NONE)), source, mark)
            if found.id != call_id:
                self.sketch.renamed[call_id] = found.id
            written.append(call_id)
            calls.append(Call(call_id, found.name, found.source))
        thought = text_in(step.get("reasoning_content", NONE))
        thoughts = [] if is_empty(thought) else [Reasoning(thought)]
        parts = _in_turns(mark.order if mark is not None else "", thoughts, list(said), calls)
        model = word_in(step.get("model_name", NONE))
        self.sketch.say(Message("assistant", parts, "model", "", time, model), at)
        results = items_of(members_of(step.get("observation", NONE)).get("results", NONE))
        self._results(results, written, time, at)

    def _results(self, results: list[msgspec.Raw], written: list[str], time: int | None, number: int) -> None:
        """Says the results of a step; those that name no call are told apart by their place, or are notices."""
        named = [is_text(members_of(raw).get("source_call_id", NONE)) for raw in results]
        by_place = not any(named) and len(results) == len(written)
        for place, raw in enumerate(results):
            if not named[place] and not by_place:
                continue
            result = members_of(raw)
            call_id = written[place] if by_place else word_in(result.get("source_call_id", NONE))
            extra = members_of(result.get("extra", NONE))
            parts = tuple(self._content(result.get("content", NONE), read_step_mark(extra)))
            failed = scalar_in(extra.get("is_error", NONE))
            is_error = failed if isinstance(failed, bool) else None
            when = _own_time(extra, time)
            self.sketch.say(Message("tool", parts, "agent", "", when, "", "", call_id, is_error), number)
        if not by_place:
            self._notices([raw for raw, has_name in zip(results, named, strict=True) if not has_name], time, number)

    def _notices(self, results: list[msgspec.Raw], time: int | None, number: int) -> None:
        for raw in results:
            parts = tuple(self._content(members_of(raw).get("content", NONE), None))
            self.sketch.say(Message("user", parts, "agent", "notice", time), number)


def _own_time(extra: Members, time: int | None) -> int | None:
    own = read_time(scalar_in(extra.get("timestamp", NONE)))
    return time if own is None else own


def _in_turns(order: str, thoughts: list[Reasoning], said: list[Part], calls: list[Call]) -> tuple[Part, ...]:
    """Puts parts in the order that a mark tells, what it leaves out behind: thoughts, texts, calls."""
    rows: dict[str, list[Part]] = {"r": [*thoughts], "t": said, "c": [*calls]}
    parts = [rows[sign].pop(0) for sign in order if rows.get(sign)]
    return (*parts, *rows["r"], *rows["t"], *rows["c"])
