"""Traces of Visual Studio: OpenTelemetry spans, one a line. They hold calls and results, not what was said."""

from __future__ import annotations

from collections.abc import Iterator

from clew.conversation.model import Call, Message, Text
from clew.conversation.source import Stream
from clew.formats.loose import NONE, Members, items_of, members_of, scalar_in, text_in, word_in
from clew.formats.sketch import Sketch
from clew.formats.times import read_time


def read_traces(sketch: Sketch, stream: Stream) -> None:
    """Reads the spans of the first conversation in a file into a sketch; others are counted."""
    about = sketch.about
    model = ""
    for number, line in sketch.lines(stream):
        for span in _spans(line):
            facts = _attributes(span)
            conversation = word_in(facts.get("gen_ai.conversation.id", NONE))
            about.id = about.id or conversation
            if conversation != about.id:
                sketch.skip("spans of other conversations")
                continue
            sort = word_in(facts.get("gen_ai.operation.name", NONE))
            if sort == "invoke_agent":
                model = word_in(facts.get("gen_ai.request.model", NONE)) or model
            elif sort == "execute_tool":
                for message in _tool(facts, span, model):
                    sketch.say(message, number)


def _spans(line: Members) -> Iterator[Members]:
    for resource in items_of(line.get("resourceSpans", NONE)):
        for scope in items_of(members_of(resource).get("scopeSpans", NONE)):
            for span in items_of(members_of(scope).get("spans", NONE)):
                yield members_of(span)


def _attributes(span: Members) -> Members:
    found: Members = {}
    for item in items_of(span.get("attributes", NONE)):
        pair = members_of(item)
        found[word_in(pair.get("key", NONE))] = members_of(pair.get("value", NONE)).get("stringValue", NONE)
    return found


def _tool(facts: Members, span: Members, model: str) -> Iterator[Message]:
    call_id = word_in(facts.get("gen_ai.tool.call.id", NONE))
    name = word_in(facts.get("gen_ai.tool.name", NONE))
    call = Call(call_id, name, text_in(facts.get("gen_ai.tool.call.arguments", NONE)))
    yield Message("assistant", (call,), "model", "", _time(span, "startTimeUnixNano"), model)
    if "gen_ai.tool.call.result" in facts:
        text = Text(text_in(facts["gen_ai.tool.call.result"]))
        yield Message("tool", (text,), "agent", "", _time(span, "endTimeUnixNano"), "", "", call_id)


def _time(span: Members, name: str) -> int | None:
    value = scalar_in(span.get(name, NONE))
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 24:
        return read_time(int(value) // 1_000_000)
    return None
