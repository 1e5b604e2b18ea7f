"""Writes a conversation as a session that Cline's command line lists, resumes, and sends whole to its model.

Two files: the document of messages, and the description by which the agent finds it (it puts the row of its database
there by itself). One message a record, each result in one of its own, as the agent keeps them; what a person said
stands in the agent's tag. Calls never have the names of the agent's reading tools: it rewrites their older results
whenever it sends them. Marks lie in a message's `metadata`, which the agent keeps and never sends.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from clew.conversation.loss import Loss
from clew.conversation.model import Image, Message, Part, Text
from clew.conversation.text import mend_surrogates
from clew.formats.cline.content import CLOSED, OPENED, is_synthetic
from clew.formats.cline.folder import MANIFEST, MESSAGES, session_folder
from clew.formats.marks import INVENTED, CallIds, Mark, Names
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

Pieces = Iterator[bytes]

VERSION = "3.0.65"
"""The version of the program that read back what is written here."""

NAMES = r"(?!(?i:read|read_files)\Z)[A-Za-z0-9_-]{1,64}"
UNKNOWN = "unknown"
"""What the agent itself takes for no name of a provider or model."""

_NO_PROCESS = 2**31 - 1
"""No process has this number: the agent asks whether the last one that held a session still lives."""

_PROMPT_SIGNS = 1000
_TITLE_SIGNS = 120


def no_image(_: Image) -> bool:
    """No model takes images of a reply."""
    return False


def count_lost(messages: Sequence[Message]) -> tuple[tuple[Loss, ...], int]:
    """Returns what the agent cannot carry of a conversation, and how many calls go unanswered in it.

    Of the result of a failed call it sends no images.
    """
    results = (m for m in messages if m.role == "tool" and m.is_error)
    unsent = {id(part) for m in results for part in m.parts if type(part) is Image}
    return count_losses(messages, holds_bytes, no_image, lambda image: holds_bytes(image) and id(image) not in unsent)


class Envelope(msgspec.Struct, frozen=True):
    """What one writing goes on from: the ids of calls that are taken, the calls' names, records before it."""

    calls: frozenset[str] = frozenset()
    names: tuple[str, ...] = ()
    origin: str = ""
    first: int = 0


def write(messages: Sequence[Message], options: WriteOptions) -> Written:
    """Writes a conversation in normal form as a new session of the folder `options.cwd`."""
    envelope = Envelope(names=call_names(messages), origin=options.origin)
    name = spell(options.session_id)

    def chunks() -> Pieces:
        yield b'{"version":1,"updated_at":"' + write_time(options.now_ms).encode() + b'","agent":"lead","sessionId":'
        yield name + b',"origin":{"source":"cli","mode":"user","sessionId":' + name + b'},"messages":['
        yield from joined(Writing(messages, options, envelope).records(), b"\n")
        yield b"\n]}\n"

    losses, invented = count_lost(messages)
    folder = session_folder(options.facts.get("data", ""), options.session_id)
    path = options.path or f"{folder}{options.session_id}{MESSAGES}"
    return Written(options.session_id, (WrittenFile(path, chunks), describe(messages, options, path)), losses, invented)


def joined(records: Iterator[Pieces], lead: bytes) -> Pieces:
    """Yields records with a comma and a line end between them; `lead` stands before the first."""
    for record in records:
        yield lead
        yield from record
        lead = b",\n"


def describe(messages: Sequence[Message], options: WriteOptions, path: str) -> WrittenFile:
    """Returns the description of a session: what the agent needs to list it and to find its messages."""
    model = next((m.model for m in reversed(messages) if m.model), options.model)
    said = next((m.text for m in messages if m.role == "user" and m.origin == "user" and m.text.strip()), "")
    prompt = _clean(said.strip()[:_PROMPT_SIGNS])
    title = _clean(options.title or prompt.partition("\n")[0])[:_TITLE_SIGNS].strip()
    metadata: dict[str, object] = {"sessionHistoryOrigin": {"mode": "user"}}
    cwd = _clean(options.cwd) or "/"
    facts: dict[str, object] = {
        "version": 1,
        "session_id": options.session_id,
        "source": "cli",
        "pid": _NO_PROCESS,
        "started_at": write_time(options.now_ms),
        "ended_at": write_time(options.now_ms),
        "exit_code": 0,
        "status": "completed",
        "interactive": True,
        "provider": options.facts.get("provider") or UNKNOWN,
        "model": _clean(model) or UNKNOWN,
        "cwd": cwd,
        "workspace_root": cwd,
        "enable_tools": True,
        "enable_spawn": True,
        "enable_teams": True,
        **({"prompt": prompt} if prompt else {}),
        "metadata": metadata | ({"title": title} if title else {}),
        "messages_path": absolute(options, path),
    }
    data = msgspec.json.format(msgspec.json.encode(facts), indent=2) + b"\n"
    return WrittenFile(path.removesuffix(MESSAGES) + MANIFEST, lambda: (data,), role="index")


def absolute(options: WriteOptions, path: str) -> str:
    """Returns the path of a stream as the agent asks for it."""
    return path if path.startswith("/") else f"{options.facts.get('root', '')}/{path}"


def _clean(text: str) -> str:
    return mend_surrogates(text).replace("\x00", "\ufffd")


class Writing:
    """One pass of writing: gives the records in order. A second pass is a second object with the same outcome."""

    def __init__(self, messages: Sequence[Message], options: WriteOptions, envelope: Envelope) -> None:
        self.messages, self.options, self.envelope = messages, options, envelope
        self.count, self.origin = envelope.first, envelope.origin
        self.time_ms = next((m.time_ms for m in messages if m.time_ms is not None), options.now_ms)

    def records(self, open_calls: Sequence[WrittenCall] = ()) -> Iterator[Pieces]:
        """Yields the messages; first the made-up answers to calls that a prefix left open."""
        ids, names = CallIds(taken=self.envelope.calls), Names(NAMES)
        names.reserve(self.envelope.names)
        for call in open_calls:
            yield self._result(Answered(call, None))
        for entry in outline(self.messages, ids, names):
            if type(entry) is Said:
                yield self._user(entry)
            elif type(entry) is Replied:
                yield self._reply(entry)
            elif type(entry) is Answered:
                yield self._result(entry)

    def _record(self, members: bytes, mark: RecordMark | None, more: bytes = b"") -> Pieces:
        self.count += 1
        if self.origin:
            mark = msgspec.structs.replace(mark or RecordMark(), from_=self.origin)
            self.origin = ""
        yield b'{"id":' + spell(self.options.new_id(f"record {self.count}")) + b',"role":' + members
        yield b',"ts":%d' % self.time_ms + more
        yield (b',"metadata":{"clew":' + msgspec.json.encode(mark) + b"}}") if mark is not None else b"}"

    def _user(self, said: Said) -> Pieces:
        self._tick(said.message)
        covered = cover(said.parts, holds_bytes)
        typed = said.message.origin == "user"
        mark = None
        if not typed:
            mark = RecordMark(origin=said.message.origin, kind=said.message.kind)
        elif len(covered.parts) == 1 and is_synthetic(said.parts[0]):
            mark = RecordMark(said=True)
        blocks = _content(covered, tagged=typed)
        yield from self._record(b'"user","content":' + blocks, record_mark(covered, mark))

    def _reply(self, reply: Replied) -> Pieces:
        self._tick(reply.message)
        covered = cover(reply.parts, no_image)
        model = reply.message.model
        provider = self.options.facts.get("provider") or UNKNOWN
        more = b',"modelInfo":{"id":' + spell(model) + b',"provider":' + spell(provider) + b"}" if model else b""
        yield from self._record(b'"assistant","content":' + _content(covered), record_mark(covered), more)

    def _result(self, answer: Answered) -> Pieces:
        head = b'"user","content":[{"type":"tool_result","tool_use_id":' + spell(answer.call.id)
        head += b',"name":' + spell(answer.call.name) + b',"content":'
        own: Mark | None = Mark(invented=True)
        body, failed = spell(INVENTED), True
        if answer.result is not None:
            self._tick(answer.result)
            failed = bool(answer.result.is_error)
            covered = cover(joined_text(answer.parts), no_image if failed else holds_bytes)
            own = Mark(standin=covered.standins) if covered.needed else None
            body = _result_body(covered)
        tail = b',"is_error":' + (b"true" if failed else b"false") + b"}]"
        yield from self._record(head + body + tail, RecordMark(results={answer.call.id: own}) if own else None)

    def _tick(self, message: Message) -> None:
        if message.time_ms is not None:
            self.time_ms = message.time_ms


def _result_body(covered: Cover) -> bytes:
    if not covered.parts:
        return b'""'
    first = covered.parts[0]
    if len(covered.parts) == 1 and type(first) is Text:
        return spell_lazily(first.source)
    return _content(covered)


def _content(covered: Cover, *, tagged: bool = False) -> bytes:
    return b"[" + b",".join(_block(part, tagged=tagged) for part in covered.parts) + b"]"


def _block(part: Part | WrittenCall, *, tagged: bool) -> bytes:
    if type(part) is WrittenCall:
        head = b'{"type":"tool_use","id":' + spell(part.id) + b',"name":' + spell(part.name)
        return head + b',"input":' + part.arguments + b"}"
    if type(part) is Image:
        return b'{"type":"image","data":' + spell_lazily(part.source) + b',"mediaType":' + spell(part.media_type) + b"}"
    assert type(part) is Text, "reasoning and plain calls are not written"
    text = spell_lazily(part.source)
    return b'{"type":"text","text":' + (OPENED + text[1:-1] + CLOSED if tagged else text) + b"}"
