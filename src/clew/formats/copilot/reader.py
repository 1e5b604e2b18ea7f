"""Reads what Copilot keeps, told apart by content: events, a chat of VS Code, or traces of Visual Studio."""

from __future__ import annotations

import re

import msgspec

from clew.conversation.builder import make_user
from clew.conversation.model import Call, Message, Part, Reasoning, Text
from clew.conversation.source import Ending, Session, Source, Stream
from clew.conversation.text import is_empty
from clew.formats.copilot.chat import read_chat
from clew.formats.copilot.traces import read_traces
from clew.formats.loose import NONE, Members, items_of, members_of, scalar_in, spelled, text_in, word_in
from clew.formats.sketch import Sketch
from clew.formats.times import read_time

AGENT = "copilot"
LAYOUT = 1
TRACE = re.compile(rb'\{"resourceSpans"\s*:')
_LINE = re.compile(rb'\{"type"\s*:\s*"')
_SUMMARY = "session.compaction_complete"


def read(source: Source, since: Ending | None = None) -> Session:
    """Reads a session whole."""
    sketch = Sketch(AGENT, source)
    for stream in source.streams:
        head = bytes(memoryview(stream.data)[:4096]).removeprefix(b"\xef\xbb\xbf").lstrip()
        if TRACE.match(head):
            read_traces(sketch, stream)
        elif stream.path.endswith(".json") and not _LINE.match(head):
            read_chat(sketch, stream)
        else:
            _read_events(sketch, stream)
    return sketch.finish()


def _read_events(sketch: Sketch, stream: Stream) -> None:
    for number, event in sketch.lines(stream):
        data = members_of(event.get("data", NONE))
        time = read_time(scalar_in(event.get("timestamp", NONE)))
        sort = word_in(event.get("type", NONE))
        if "parentToolCallId" in data:
            continue  # what a helper said is not said in this conversation
        if sort == "user.message":
            sketch.say(Message("user", (Text(text_in(data.get("content", NONE))),), "user", "", time), number)
            if items_of(data.get("attachments", NONE)):
                sketch.skip("attachments")
        elif sort == "assistant.message":
            sketch.say(_reply(data, time), number)
        elif sort == "tool.execution_complete":
            sketch.say(_result(data, time), number)
        elif sort == "system.notification":
            text = Text(text_in(data.get("content", NONE)))
            sketch.say(make_user(text, origin="agent", kind="notice", time_ms=time), number)
        else:
            _take_fact(sketch, sort, data, number)


def _take_fact(sketch: Sketch, sort: str, data: Members, number: int) -> None:
    about = sketch.about
    if sort == "session.start":
        about.id = about.id or word_in(data.get("sessionId", NONE))
        about.cwd = word_in(members_of(data.get("context", NONE)).get("cwd", NONE)) or about.cwd
        about.version = word_in(data.get("copilotVersion", NONE))
        about.model = word_in(data.get("selectedModel", NONE)) or about.model
        layout = scalar_in(data.get("version", NONE))
        if isinstance(layout, int) and layout > LAYOUT:
            sketch.report(number, "newer layout", f"version {layout} is read as version {LAYOUT}", lost=False)
    elif sort == "session.model_change":
        about.model = word_in(data.get("newModel", NONE)) or about.model
    elif sort == _SUMMARY:
        sketch.report(number, "foreign record", "a compaction; what came before it is read as if there were none")


def _reply(data: Members, time: int | None) -> Message:
    parts: list[Part] = []
    thought = text_in(data.get("reasoningText", NONE))
    if not is_empty(thought):
        parts.append(Reasoning(thought))
    parts.append(Text(text_in(data.get("content", NONE))))
    for item in items_of(data.get("toolRequests", NONE)):
        call = members_of(item)
        call_id, name = word_in(call.get("toolCallId", NONE)), word_in(call.get("name", NONE))
        parts.append(Call(call_id, name, spelled(call.get("arguments", NONE))))
    model, reply_id = word_in(data.get("model", NONE)), word_in(data.get("messageId", NONE))
    return Message("assistant", tuple(parts), "model", "", time, model, reply_id)


def _result(data: Members, time: int | None) -> Message:
    succeeded = scalar_in(data.get("success", NONE))
    result = members_of(data.get("result", NONE)).get("content", NONE)
    error: msgspec.Raw = members_of(data.get("error", NONE)).get("message", NONE)
    parts = (Text(spelled(result)), Text(spelled(error)))
    is_error = None if not isinstance(succeeded, bool) else not succeeded
    return Message("tool", parts, "agent", "", time, "", "", word_in(data.get("toolCallId", NONE)), is_error)
