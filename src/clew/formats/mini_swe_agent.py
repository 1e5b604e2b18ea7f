"""mini-swe-agent: the trajectory of a run, one JSON document. Read, kept and restored; the agent resumes none.

Messages are those of Chat Completions with an `extra` of the agent's own. The first message of the user is the task
inside a template that the document holds as well: the task alone was said. Later messages of the user are the agent's.
"""

from __future__ import annotations

import re
from pathlib import Path

from clew.conversation.model import Call, Kind, Message, Origin, Part, Reasoning, Text
from clew.conversation.source import Ending, Session, Source
from clew.conversation.text import is_empty
from clew.formats.blocks import read_blocks
from clew.formats.loose import NONE, Members, items_of, members_of, scalar_in, spelled, text_in, word_in
from clew.formats.protocol import Format, Traits
from clew.formats.shelf import Aside, Shelf
from clew.formats.sketch import Sketch
from clew.formats.times import read_time

AGENT = "mini-swe-agent"
ENDING = ".traj.json"
_KNOWN = re.compile(rb'"trajectory_format"\s*:\s*"mini-swe-agent-')
_PLACE = re.compile(r"\{\{\s*task\s*\}\}")
_NEXT = re.compile(r"\{\{|\{%")


def read(source: Source, since: Ending | None = None) -> Session:
    """Reads a trajectory whole."""
    sketch = Sketch(AGENT, source)
    for stream in source.streams[:1]:
        steps = list(sketch.document(stream, "messages"))
        root = sketch.frame.members(bytes(stream.data)) if sketch.frame is not None else {}
        template = _read_root(sketch, root)
        is_first = True
        for number, message in steps:
            role = word_in(message.get("role", NONE))
            if role == "user":
                _user(sketch, message, template if is_first else "", number, is_task=is_first)
                is_first = False
            elif role == "assistant":
                sketch.say(_reply(message), number)
            elif role == "tool":
                sketch.say(_result(message), number)
            elif role not in ("system", "exit"):
                sketch.report(number, "foreign record", "a message of an unknown role")
    for stream in source.streams[1:]:
        sketch.whole(stream)
    return sketch.finish()


def _read_root(sketch: Sketch, root: Members) -> str:
    """Notes what the document says of the run; returns the template of the task."""
    info = members_of(root.get("info", NONE))
    config = members_of(info.get("config", NONE))
    sketch.about.version = word_in(info.get("mini_version", NONE))
    sketch.about.model = word_in(members_of(config.get("model", NONE)).get("model_name", NONE))
    sketch.about.cwd = word_in(members_of(config.get("environment", NONE)).get("cwd", NONE))
    layout = word_in(root.get("trajectory_format", NONE))
    if layout and not layout.startswith("mini-swe-agent-1"):
        sketch.report(0, "newer layout", f"{layout} is read as mini-swe-agent-1.1", lost=False)
    return word_in(members_of(config.get("agent", NONE)).get("instance_template", NONE))


def _user(sketch: Sketch, message: Members, template: str, number: int, *, is_task: bool) -> None:
    parts = read_blocks(message.get("content", NONE)).parts
    origin: Origin = "user" if is_task else "agent"
    kind: Kind = "" if is_task else "notice"
    if template and len(parts) == 1 and isinstance(parts[0], Text):
        parts = [Text(_task_in(parts[0].text, template))]
    if not is_task and "response" in members_of(message.get("extra", NONE)):
        sketch.skip("replies that the agent refused")  # it keeps them beside its answer, and never sends them again
    sketch.say(Message("user", tuple(parts), origin, kind, _time(message)), number)


def _task_in(text: str, template: str) -> str:
    """Returns the task alone where the text is the template filled in, else the text."""
    place = _PLACE.search(template)
    if place is None:
        return text
    before, after = template[: place.start()], template[place.end() :]
    following = _NEXT.search(after)
    after = after[: following.start()] if following is not None else after
    after = after.rstrip()
    at = text.find(after, len(before)) if after else len(text)
    if _NEXT.search(before) or not text.startswith(before) or at < 0:
        return text
    return text[len(before) : at]


def _reply(message: Members) -> Message:
    parts: list[Part] = []
    thought = text_in(message.get("reasoning_content", NONE))
    if not is_empty(thought):
        parts.append(Reasoning(thought))
    parts += read_blocks(message.get("content", NONE)).parts
    for item in items_of(message.get("tool_calls", NONE)):
        call = members_of(item)
        function = members_of(call.get("function", NONE))
        arguments = spelled(function.get("arguments", NONE))
        parts.append(Call(word_in(call.get("id", NONE)), word_in(function.get("name", NONE)), arguments))
    response = members_of(members_of(message.get("extra", NONE)).get("response", NONE))
    model = word_in(response.get("model", NONE))
    return Message("assistant", tuple(parts), "model", "", _time(message), model)


def _result(message: Members) -> Message:
    parts = tuple(p for p in read_blocks(message.get("content", NONE)).parts if isinstance(p, Text))
    return Message("tool", parts, "agent", "", _time(message), "", "", word_in(message.get("tool_call_id", NONE)))


def _time(message: Members) -> int | None:
    return read_time(scalar_in(members_of(message.get("extra", NONE)).get("timestamp", NONE)))


def _name(path: Path) -> str:
    return path.name.removesuffix(ENDING) if path.name.endswith(ENDING) else path.stem


def _knows(path: Path, head: bytes) -> bool:
    """The name of the layout stands behind the messages: a long document shows it by its name and its `info`."""
    if not head.lstrip().startswith(b"{"):
        return False
    return _KNOWN.search(head) is not None or (path.name.endswith(ENDING) and b'"mini_version"' in head)


FORMAT = Format(
    name=AGENT,
    title="mini-swe-agent",
    traits=Traits(record_kind="range", transport=AGENT, carries_id=False, any_uuid=False, writes=False),
    read=read,
    locate=Shelf(AGENT, lambda home: home.root / ".config" / "mini-swe-agent", (f"*{ENDING}",), _knows, name=_name),
    resume=Aside(),
)

__all__ = ["FORMAT"]
