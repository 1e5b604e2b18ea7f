"""Writes a conversation as one of OpenHands: a file for each event, and the state that the agent resumes it from.

No call is written as an action that could run: the agent runs actions without a result as soon as it is resumed.
Every call is answered besides. The first event has to be a system prompt, since the agent gives none to a
conversation that has a message already: it is the one of the newest conversation of this home, else a sentence.
Results say what they say under the kind of observation that any tool may have; a failure in one text is the agent's
own kind of failure, before which it puts no words. The agent shortens texts of results beyond a length, so such a
text is laid in several parts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import msgspec

from clew.conversation.model import Image, Message, Part, Text
from clew.conversation.text import size_hint
from clew.errors import UnwritableContent
from clew.formats.marks import INVENTED, CallIds, Mark, Names
from clew.formats.openhands import records as rec
from clew.formats.openhands.content import EMPTY
from clew.formats.openhands.folder import MOST_EVENTS, STATE, event_id, event_path, folder_of
from clew.formats.outline import (
    Answered,
    Cover,
    RecordMark,
    Replied,
    Said,
    WrittenCall,
    call_names,
    count_losses,
    cover,
    joined_text,
    outline,
    record_mark,
)
from clew.formats.protocol import WriteOptions, Written, WrittenFile
from clew.formats.spelling import holds_bytes, spell, spell_lazily
from clew.formats.times import write_time

LONGEST = 50_000
"""How many signs of one text of a result are sent."""

LONGEST_TAG = 256
"""How long a tag may be."""

EMPTY_RESULT = "(no output)"
"""What stands for a result without a sign in it: model APIs refuse empty texts."""

PROMPT = "You are a coding agent. Work on what the user asks for in the working folder, with the tools that you have."
"""The system prompt of a conversation that is written into a home where the agent has held none."""


def holds_image(image: Image) -> bool:
    """Tells whether a message can have an image: its bytes, or an address that a model can ask."""
    return holds_bytes(image) or image.url.startswith(("https://", "http://"))


def no_image(_: Image) -> bool:
    """A reply has no image: model APIs refuse them there."""
    return False


class Step(msgspec.Struct, frozen=True):
    """One event to write: what it says, or one of the calls of what it says.

    `results` are the results of the calls, which leave their marks with them.
    """

    entry: Said | Replied | Answered
    number: int
    time_ms: int
    call: int | None = None
    results: tuple[Answered, ...] = ()
    action: str = ""
    origin: str = ""


class Envelope(msgspec.Struct, frozen=True):
    """What one writing goes on from: ids of calls that are taken, all names of calls, how many events stand before."""

    calls: frozenset[str] = frozenset()
    names: tuple[str, ...] = ()
    first: int = 0
    time_ms: int | None = None
    origin: str = ""


def write(messages: Sequence[Message], options: WriteOptions) -> Written:
    """Writes a conversation in normal form as a new one of the folder `options.cwd`."""
    folder = folder_of(options.session_id)
    envelope = Envelope(names=call_names(messages), first=1, origin=options.origin)
    steps = Steps(messages, options, envelope)
    prompt = system_prompt(steps.id_of(0), steps.start_ms, options)
    state = state_file(options, messages)
    files = (
        WrittenFile(event_path(folder, 0, steps.id_of(0)), lambda: (prompt,)),
        *steps.files(folder),
        WrittenFile(f"{folder}/{STATE}", lambda: (state,), role="side"),
    )
    losses, invented = count_losses(messages, holds_image, no_image)
    return Written(options.session_id, files, losses, invented)


def system_prompt(own_id: str, time_ms: int, options: WriteOptions) -> bytes:
    """Returns the first event: what the agent tells a model before everything else."""
    prompt = spell(options.facts.get("system_prompt") or PROMPT)
    folder = spell(f"The working folder is {options.cwd}.") if options.cwd else b""
    context = b',"dynamic_context":' + _text(folder) if folder else b""
    return (
        head(own_id, time_ms, b"agent")
        + b',"system_prompt":'
        + _text(prompt)
        + b',"tools":[]'
        + context
        + _kind(rec.SYSTEM)
    )


def state_file(options: WriteOptions, messages: Sequence[Message]) -> bytes:
    """Returns `base_state.json`; the agent puts its own model, tools and folder in their places when it resumes."""
    models = [m.model for m in messages if m.model]
    model = options.model or options.facts.get("model") or (models[-1] if models else "") or rec.NO_MODEL
    base = options.facts.get("folder")
    tags = {"clew": options.origin if messages else "", "title": options.title[:LONGEST_TAG]}
    state: dict[str, object] = {
        "id": options.session_id,
        "agent": {"llm": {"model": model}, "tools": [], "include_default_tools": [], "kind": "Agent"},
        "workspace": {"working_dir": options.cwd, "kind": "LocalWorkspace"},
        "persistence_dir": f"{base}/{folder_of(options.session_id)}" if base else None,
        "execution_status": "finished",
        "tags": {name: value for name, value in tags.items() if 0 < len(value) <= LONGEST_TAG},
    }
    return msgspec.json.encode(state)


class Steps:
    """The events of one writing, in order; their bytes are made when they are asked for."""

    def __init__(
        self, messages: Sequence[Message], options: WriteOptions, envelope: Envelope, session_id: str = ""
    ) -> None:
        self.options, self.envelope = options, envelope
        self._session_id = session_id or options.session_id
        times = [m.time_ms for m in messages if m.time_ms is not None]
        default = options.now_ms if envelope.time_ms is None else envelope.time_ms
        self.start_ms = times[0] if times else default
        self._time = self.start_ms
        self._count = envelope.first
        self._messages = messages

    def id_of(self, number: int) -> str:
        """Returns the id of an event."""
        return event_id(self._session_id, number)

    def files(self, folder: str, open_calls: Sequence[tuple[WrittenCall, str]] = ()) -> Iterator[WrittenFile]:
        """Yields the files of the events; first made-up answers to calls that a prefix left open."""
        for step in self._all(open_calls):
            if step.number >= MOST_EVENTS:
                raise UnwritableContent(
                    f"the conversation has more than {MOST_EVENTS:,} events, and OpenHands counts no further",
                    hint="Carry it to another agent.",
                    session=self.options.session_id,
                )
            path = event_path(folder, step.number, self.id_of(step.number))
            yield WrittenFile(path, partial(_pieces, self, step))

    def _all(self, open_calls: Sequence[tuple[WrittenCall, str]]) -> Iterator[Step]:
        ids = CallIds(taken=self.envelope.calls)
        names = Names()
        names.reserve(self.envelope.names)
        for call, action in open_calls:
            yield self._step(Answered(call, None), action=action)
        origin = self.envelope.origin
        entries = [*outline(self._messages, ids, names)]
        for place, entry in enumerate(entries):
            self._look_at_time(entry)
            if type(entry) is Replied and entry.calls:
                yield from self._actions(entry, _following(entries, place), origin)
            elif type(entry) is not Answered:
                yield self._step(entry, origin=origin)
            origin = ""

    def _actions(self, reply: Replied, results: tuple[Answered, ...], origin: str) -> Iterator[Step]:
        events: dict[str, str] = {}
        for number, call in enumerate(reply.calls):
            step = self._step(reply, call=number, results=results, origin="" if number else origin)
            events[call.id] = self.id_of(step.number)
            yield step
        for answer in results:
            self._look_at_time(answer)
            yield self._step(answer, action=events[answer.call.id])

    def _look_at_time(self, entry: Said | Replied | Answered) -> None:
        message = entry.result if isinstance(entry, Answered) else entry.message
        if message is not None and message.time_ms is not None:
            self._time = message.time_ms

    def _step(
        self,
        entry: Said | Replied | Answered,
        *,
        call: int | None = None,
        results: tuple[Answered, ...] = (),
        action: str = "",
        origin: str = "",
    ) -> Step:
        step = Step(entry, self._count, self._time, call, results, action, origin)
        self._count += 1
        return step


def _following(entries: Sequence[Said | Replied | Answered], place: int) -> tuple[Answered, ...]:
    found: list[Answered] = []
    for entry in entries[place + 1 :]:
        if type(entry) is not Answered:
            break
        found.append(entry)
    return tuple(found)


def _pieces(steps: Steps, step: Step) -> tuple[bytes]:
    entry = step.entry
    own_id = steps.id_of(step.number)
    if type(entry) is Said:
        return (_user(entry, step, own_id),)
    if type(entry) is Replied:
        return (_reply(entry, step, own_id, steps.id_of(step.number - (step.call or 0))),)
    assert type(entry) is Answered
    return (_answer(entry, step, own_id),)


def head(own_id: str, time_ms: int, source: bytes) -> bytes:
    """Returns how every event begins; the agent's times have no zone, and it cannot compare them with any that has."""
    time = write_time(time_ms).removesuffix("Z") + "000"
    return b'{"id":' + spell(own_id) + b',"timestamp":"' + time.encode() + b'","source":"' + source + b'"'


def _kind(kind: str) -> bytes:
    return b',"kind":"' + kind.encode() + b'"}'


def _text(spelled: bytes) -> bytes:
    return b'{"type":"text","text":' + spelled + b"}"


def _content(parts: Sequence[Part | WrittenCall]) -> bytes:
    blocks: list[bytes] = []
    for part in parts:
        if type(part) is Text:
            blocks.append(_text(spell_lazily(part.source)))
        elif type(part) is Image:
            url = part.url if not holds_bytes(part) else f"data:{part.media_type};base64,{part.data}"
            blocks.append(b'{"type":"image","image_urls":[' + spell(url) + b"]}")
    return b"[" + b",".join(blocks) + b"]"


def _clew(mark: RecordMark | None, origin: str) -> bytes:
    if origin:
        mark = msgspec.structs.replace(mark or RecordMark(), from_=origin)
    return b',"clew":' + msgspec.json.encode(mark) if mark is not None else b""


def _user(said: Said, step: Step, own_id: str) -> bytes:
    covered = cover(joined_text(said.parts), holds_image)
    mark = None
    if said.message.origin != "user":
        mark = RecordMark(origin=said.message.origin, kind=said.message.kind)
    message = b'{"role":"user","content":' + _content(covered.parts)
    message += _clew(record_mark(covered, mark), step.origin) + b"}"
    return head(own_id, step.time_ms, b"user") + b',"llm_message":' + message + _kind(rec.MESSAGE)


def _reply(reply: Replied, step: Step, own_id: str, reply_id: str) -> bytes:
    said = [part for part in reply.parts if type(part) is not WrittenCall]
    covered = cover(joined_text(said), no_image) if not step.call else Cover(())  # type: ignore[arg-type]
    mark = RecordMark(model=reply.message.model) if reply.message.model and not step.call else None
    start = head(own_id, step.time_ms, b"agent")
    response = b',"llm_response_id":' + spell(reply_id)
    if step.call is None:
        message = b'{"role":"assistant","content":' + _content(covered.parts)
        message += _clew(record_mark(covered, mark), step.origin) + b"}"
        return start + b',"llm_message":' + message + response + _kind(rec.MESSAGE)
    call = reply.calls[step.call]
    mark = record_mark(msgspec.structs.replace(covered, parts=(*covered.parts, call)), mark) or RecordMark()
    results = {a.call.id: m for a in step.results if a.call.id == call.id and (m := _result_mark(a)) is not None}
    mark = rec.ActionMark(
        model=mark.model, standin=mark.standin, calls=mark.calls, results=results, from_=step.origin, answered=True
    )
    named = spell(call.name), spell(call.id)
    made = b'{"id":' + named[1] + b',"name":' + named[0] + b',"arguments":' + spell(call.arguments.decode())
    made += b',"origin":"completion","clew":' + msgspec.json.encode(mark) + b"}"
    calls = b',"tool_name":' + named[0] + b',"tool_call_id":' + named[1] + b',"tool_call":' + made
    return start + b',"thought":' + _content(covered.parts) + calls + response + _kind(rec.ACTION)


def _covered_result(answer: Answered) -> Cover:
    return cover(tuple(_in_pieces(joined_text(answer.parts))), holds_image)


def _in_pieces(parts: Sequence[Part]) -> Iterator[Part]:
    """Yields parts with texts that the agent would shorten cut in several."""
    for part in parts:
        if type(part) is Text and size_hint(part.source) > LONGEST and len(part.text) > LONGEST:
            for at in range(0, len(part.text), LONGEST):
                yield Text(part.text[at : at + LONGEST])
        else:
            yield part


def _result_mark(answer: Answered) -> Mark | None:
    """Returns what the call has to keep of its result; nothing where the result says all by itself."""
    if answer.result is None:
        return Mark(invented=True)
    if not answer.parts:
        return Mark(kind=EMPTY)
    covered = _covered_result(answer)
    return Mark(standin=covered.standins) if covered.needed else None


def _answer(answer: Answered, step: Step, own_id: str) -> bytes:
    named = b',"tool_name":' + spell(answer.call.name) + b',"tool_call_id":' + spell(answer.call.id)
    if answer.result is None:
        failed, parts = True, (Text(INVENTED),)
    else:
        failed, parts = bool(answer.result.is_error), _covered_result(answer).parts or (Text(EMPTY_RESULT),)
    alone = parts[0]
    if failed and len(parts) == 1 and type(alone) is Text:
        error = b',"error":' + spell_lazily(alone.source)
        return head(own_id, step.time_ms, b"agent") + named + error + _kind(rec.FAILURE)
    told = b"true" if failed else b"false"
    observation = b'{"content":' + _content(parts) + b',"is_error":' + told
    observation += b',"tool_name":' + spell(answer.call.name) + _kind(rec.FREE)
    rest = b',"observation":' + observation + b',"action_id":' + spell(step.action)
    return head(own_id, step.time_ms, b"environment") + named + rest + _kind(rec.OBSERVATION)
