"""Writes a conversation as a trajectory that Harbor's own models accept.

Results stand in the step that made their calls, so a reply with its results is one step; nothing is invented for calls
without one. Pictures go by address only. What a step cannot say is marked in its `extra`, the one place where the
models take members of others: origin, ids that were not unique, arguments that are no object, the order of texts and
calls. Readable thoughts are carried, signed ones have no place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec

from clew.conversation.loss import Loss
from clew.conversation.model import Image, Message, Part, Reasoning, Text
from clew.conversation.text import is_empty
from clew.formats.atif.reader import NEWEST, STEPS, StepMark
from clew.formats.marks import CallIds, Mark, Names
from clew.formats.outline import (
    Answered,
    Cover,
    RecordMark,
    Replied,
    Said,
    WrittenCall,
    cover,
    outline,
    record_mark,
)
from clew.formats.protocol import WriteOptions, Written, WrittenFile
from clew.formats.spelling import MEDIA_TYPES, escape_separators, spell, spell_lazily
from clew.formats.times import write_time
from clew.ids import is_safe_name

_ANY_NAME = r"[\s\S]*"


def holds(image: Image) -> bool:
    """Tells whether a picture can be named: it has an address, and is of a kind that the models know."""
    return bool(image.url) and is_empty(image.source) and image.media_type in MEDIA_TYPES


def write(messages: Sequence[Message], options: WriteOptions) -> Written:
    """Writes a conversation in normal form as a new document."""

    def chunks() -> Iterator[bytes]:
        yield _head(messages, options)
        lead = b"\n"
        for step in Steps(messages).steps():
            yield lead + step
            lead = b",\n"
        if lead == b"\n":  # a trajectory has at least one step; one of the system is no message
            yield b'\n{"step_id":1,"source":"system","message":""}'
        yield b"\n]}\n"

    file = WrittenFile(options.path or file_name(options.session_id), chunks)
    return Written(options.session_id, (file,), count_losses(messages))


def file_name(session_id: str) -> str:
    """Returns the name of a new document; asserts that the id may be part of one."""
    assert is_safe_name(session_id), "the caller gives ids of clew's own making"
    return f"{session_id}.atif.json"


def _head(messages: Sequence[Message], options: WriteOptions) -> bytes:
    model = options.model or next((m.model for m in reversed(messages) if m.model), "")
    agent = {"name": options.origin.partition(":")[0] or "unknown", "version": "unknown"}
    if model:
        agent["model_name"] = model
    facts = {"cwd": options.cwd, "title": options.title}
    extra = {"clew": Mark(from_=options.origin), **{name: value for name, value in facts.items() if value}}
    head = b'{"schema_version":"ATIF-v1.%d","session_id":' % NEWEST + spell(options.session_id)
    head += b',"agent":' + _object(agent) + b',"extra":' + _object(extra)
    return head + b',"' + STEPS.encode() + b'":['


def _object(value: Mapping[str, object]) -> bytes:
    """Returns a small object as JSON; texts in it are strict Unicode."""
    body = b",".join(
        spell(name) + b":" + (spell(item) if isinstance(item, str) else _encode(item)) for name, item in value.items()
    )
    return b"{" + body + b"}"


def _encode(value: object) -> bytes:
    return escape_separators(msgspec.json.encode(value))


class Steps:
    """Makes the steps of a conversation; `first` is the number of the first, `taken` are ids of calls before it."""

    def __init__(self, messages: Sequence[Message], first: int = 1, taken: frozenset[str] = frozenset()) -> None:
        self.messages, self.number, self.taken = messages, first, taken

    def steps(self) -> Iterator[bytes]:
        """Yields each step as JSON; a reply waits for its results."""
        reply: Replied | None = None
        answers: list[Answered] = []
        for entry in outline(self.messages, CallIds(taken=self.taken), Names(_ANY_NAME)):
            if type(entry) is Answered:
                answers.append(entry)
                continue
            if reply is not None:
                yield self._agent(reply, answers)
            reply, answers = None, []
            if type(entry) is Said:
                yield self._user(entry)
            else:
                assert type(entry) is Replied
                reply = entry
        if reply is not None:
            yield self._agent(reply, answers)

    def _step(self, source: bytes, message: Message, covered: Cover) -> bytes:
        step = b'{"step_id":%d' % self.number
        self.number += 1
        if message.time_ms is not None:
            step += b',"timestamp":"' + write_time(message.time_ms).encode() + b'"'
        return step + b',"source":"' + source + b'","message":' + _content(covered)

    def _user(self, said: Said) -> bytes:
        covered = cover(said.parts, holds)
        mark = None
        if said.message.origin != "user":
            mark = StepMark(origin=said.message.origin, kind=said.message.kind)
        return self._step(b"user", said.message, covered) + _extra(record_mark(covered, mark)) + b"}"

    def _agent(self, reply: Replied, answers: Sequence[Answered]) -> bytes:
        covered = cover(reply.parts, holds)
        order = "".join("c" if type(part) is WrittenCall else "t" for part in covered.parts)
        mark = StepMark(order=order) if "ct" in order else None
        step = self._step(b"agent", reply.message, covered)
        if reply.message.model:
            step += b',"model_name":' + spell(reply.message.model)
        thoughts = [p.text for p in reply.message.parts if isinstance(p, Reasoning) and not is_empty(p.source)]
        if thoughts:
            step += b',"reasoning_content":' + spell("\n\n".join(thoughts))
        if reply.calls:
            step += b',"tool_calls":[' + b",".join(map(_call, reply.calls)) + b"]"
        results = [_result(answer.call, answer.result, answer.parts) for answer in answers if answer.result is not None]
        if results:
            step += b',"observation":{"results":[' + b",".join(results) + b"]}"
        return step + _extra(record_mark(covered, mark)) + b"}"


def _call(call: WrittenCall) -> bytes:
    head = b'{"tool_call_id":' + spell(call.id) + b',"function_name":' + spell(call.name)
    return head + b',"arguments":' + call.arguments + b"}"


def _result(call: WrittenCall, result: Message, parts: Sequence[Part]) -> bytes:
    covered = cover(parts, holds)
    more: list[bytes] = []
    if result.is_error is not None:
        more.append(b'"is_error":' + (b"true" if result.is_error else b"false"))
    if result.time_ms is not None:
        more.append(b'"timestamp":"' + write_time(result.time_ms).encode() + b'"')
    mark = record_mark(covered)
    body = b'{"source_call_id":' + spell(call.id) + b',"content":' + _content(covered)
    return body + _extra(mark, more) + b"}"


def _content(covered: Cover) -> bytes:
    parts = [part for part in covered.parts if type(part) is not WrittenCall]
    if not parts:
        return b'""'
    alone = parts[0]
    if len(parts) == 1 and type(alone) is Text:
        return spell_lazily(alone.source)
    return b"[" + b",".join(map(_part, parts)) + b"]"


def _part(part: Part | WrittenCall) -> bytes:
    if type(part) is Image:
        place = b'{"media_type":' + spell(part.media_type) + b',"path":' + spell(part.url) + b"}"
        return b'{"type":"image","source":' + place + b"}"
    assert type(part) is Text, "calls stand elsewhere"
    return b'{"type":"text","text":' + spell_lazily(part.source) + b"}"


def _extra(mark: RecordMark | None, more: Sequence[bytes] = ()) -> bytes:
    members = [*more, *((b'"clew":' + _encode(mark),) if mark is not None else ())]
    return b',"extra":{' + b",".join(members) + b"}" if members else b""


def count_losses(messages: Sequence[Message]) -> tuple[Loss, ...]:
    """Returns what a trajectory cannot carry of a conversation."""
    is_mute: Callable[[Part], bool] = lambda part: isinstance(part, Reasoning) and is_empty(part.source)  # noqa: E731
    parts = [part for message in messages for part in message.parts]
    found = (
        Loss("reasoning blocks", sum(map(is_mute, parts)), "without readable text"),
        Loss("images", sum(isinstance(p, Image) and not holds(p) for p in parts), "only addresses can be named"),
    )
    return tuple(loss for loss in found if loss.count)
