"""Writes a conversation as a Claude Code session that the agent lists, resumes, and sends whole to its model.

One record a content block, all of one message under one message id and one chain; each result is a record of its own
behind its message, so that nothing hangs beside the path. Every call is answered. Fresh ids come from the options; a
last `last-prompt` names the leaf. What the target cannot say by itself is marked by the member `clew` on the record,
which the agent keeps, also when it forks. Texts are put out one by one, so that a large session is never held.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from clew.conversation.groups import group_messages
from clew.conversation.loss import Loss
from clew.conversation.model import Call, Group, Image, Message, Part, Text
from clew.conversation.text import is_empty, mend_surrogates, size_hint
from clew.formats import outline
from clew.formats.claude import records as rec
from clew.formats.claude.folder import stream_path
from clew.formats.claude.said import (
    COMPACT,
    LOOK_WRITING,
    META,
    TRANSCRIPT,
    is_like_ours,
    is_reminder,
    sort_text,
    text_if_marked,
)
from clew.formats.claude.spelling import can_hold, escape_separators, spell, string_pieces
from clew.formats.marks import INVENTED, CallIds, Mark, Names, guard_text, standin_text, wrap_arguments
from clew.formats.protocol import WriteOptions, Written, WrittenFile

Pieces = Iterator[bytes]


class Envelope(msgspec.Struct, frozen=True):
    """What all records of one writing have in common, and what the chain goes on from."""

    session_id: str
    cwd: str
    version: str
    entrypoint: str
    branch: str
    parent: str = ""
    taken: frozenset[str] = frozenset()
    names: tuple[str, ...] = ()
    origin: str = ""
    has_prompts: bool = True
    first: int = 0
    """How many records stand before: names of fresh ids go on from there, so that no two are ever the same."""


def write(messages: Sequence[Message], options: WriteOptions) -> Written:
    """Writes a conversation in normal form as a new session of the folder `options.cwd` (a real path)."""
    envelope = Envelope(
        options.session_id, options.cwd, rec.VERSION, "cli", "HEAD", origin=options.origin, names=call_names(messages)
    )

    def chunks() -> Pieces:
        return Writing(messages, options, envelope).pieces()

    path = options.path or stream_path(options.cwd, options.session_id)
    losses, invented = count_losses(messages)
    return Written(options.session_id, (WrittenFile(path, chunks),), losses, invented)


def call_names(messages: Sequence[Message]) -> tuple[str, ...]:
    """Returns the names of all calls, each once."""
    return tuple(dict.fromkeys(call.name for message in messages for call in message.calls))


class Writing:
    """One pass of writing: gives the bytes in order. A second pass is a second object with the same outcome."""

    def __init__(self, messages: Sequence[Message], options: WriteOptions, envelope: Envelope) -> None:
        self.messages, self.options, self.envelope = messages, options, envelope
        self.parent = envelope.parent
        self.count = envelope.first
        self.replies = envelope.first
        self.time_ms = options.now_ms
        self.last_prompt = ""
        self.origin = envelope.origin
        self.ids = CallIds("toolu_", taken=envelope.taken)
        self.names = Names()
        self.names.reserve(envelope.names)
        e = envelope
        self.tail = b"".join(
            (
                b'","userType":"external","entrypoint":' + spell(e.entrypoint) + b',"cwd":' + spell(e.cwd),
                b',"sessionId":' + spell(e.session_id) + b',"version":' + spell(e.version),
                b',"gitBranch":' + spell(e.branch) + b"}\n",
            )
        )

    def pieces(self, open_calls: Sequence[tuple[Call, str]] = ()) -> Pieces:
        """Yields the records; first the made-up answers to calls that a prefix left open."""
        first = next((m.time_ms for m in self.messages if m.time_ms is not None), None)
        if first is not None:
            self.time_ms = first
        for _, written in open_calls:
            yield from self._invented(written, "")
        for group in group_messages(self.messages):
            if group.head.role == "assistant":
                yield from self._reply(group)
            elif group.head.role == "user":
                yield from self._user(group.head)
        yield from self._ending()

    def _ending(self) -> Pieces:
        session = spell(self.envelope.session_id)
        if self.options.title and not self.envelope.parent:
            yield b'{"type":"custom-title","customTitle":' + spell(self.options.title)
            yield b',"sessionId":' + session + b"}\n"
        if self.parent and self.envelope.has_prompts:
            prompt = b',"lastPrompt":' + spell(self.last_prompt) if self.last_prompt else b""
            yield b'{"type":"last-prompt"' + prompt + b',"leafUuid":' + spell(self.parent)
            yield b',"sessionId":' + session + b"}\n"

    # --- records --------------------------------------------------------------------------------------------

    def _record(self, sort: bytes, body: Pieces, *, mark: Mark | None = None, flags: bytes = b"") -> Pieces:
        """Yields one record of the chain around its message."""
        self.count += 1
        uuid = self.options.new_id(f"record {self.count}")
        parent = spell(self.parent) if self.parent else b"null"
        yield b'{"parentUuid":' + parent + b',"isSidechain":false,"type":"' + sort + b'","message":'
        yield from body
        if self.origin:
            mark = msgspec.structs.replace(mark or Mark(), from_=self.origin)
            self.origin = ""
        if mark is not None:
            flags += b',"clew":' + msgspec.json.encode(mark)
        yield flags + b',"uuid":' + spell(uuid) + b',"timestamp":"' + rec.write_time(self.time_ms).encode() + self.tail
        self.parent = uuid

    def _user(self, message: Message) -> Pieces:
        self._tick(message)
        parts = _heard(message)
        if not parts:
            return
        texts = [p for p in parts if type(p) is Text]
        flags, member = _native_flags(message)
        mark = _said_mark(message, texts, flags)
        if message.origin == "user" and texts:
            self._note_prompt(texts[0])
        cover = Cover(parts, mark)
        if len(parts) == 1 and texts:
            body = cover.text(texts[0])
        else:
            body = cover.blocks(parts)
        yield from self._record(
            b"user", _around(b'{"role":"user","content":', body, b"}"), mark=cover.mark, flags=member
        )

    def _note_prompt(self, text: Text) -> None:
        if size_hint(text.source) <= 1 << 16:
            line = " ".join(text.text.split())
            self.last_prompt = line if len(line) <= _PROMPT_SIGNS else line[: _PROMPT_SIGNS - 1] + "…"

    def _reply(self, group: Group) -> Pieces:
        message = group.head
        self._tick(message)
        self.replies += 1
        head = self._reply_head(message)
        stop = b'],"stop_reason":' + (b'"tool_use"' if message.calls else b'"end_turn"') + _USAGE
        written: dict[str, list[tuple[str, str]]] = {}
        order: list[tuple[str, str]] = []
        for part in outline.join_blanks(message.parts):
            if type(part) is Call:
                mark, block, call_id = self._call(part)
                yield from self._record(b"assistant", _around(head, block, stop), mark=mark)
                written.setdefault(part.id, []).append((call_id, self.parent))
                order.append((call_id, self.parent))
            else:
                cover = Cover([part], None, holds_images=False)
                yield from self._record(b"assistant", _around(head, cover.block(part), stop), mark=cover.mark)
        for result in group.results:
            waiting = written.get(result.call_id)
            if waiting:
                call_id, source = waiting.pop(0)
                order.remove((call_id, source))
                yield from self._result(result, call_id, source)
        for call_id, source in order:
            yield from self._invented(call_id, source)

    def _reply_head(self, message: Message) -> bytes:
        identity = self.options.new_id(f"message {self.replies}").replace("-", "")[:24]
        model = message.model or self.options.model or "unknown"
        head = b'{"id":"msg_' + identity.encode() + b'","type":"message","role":"assistant","model":'
        return head + spell(model) + b',"content":['

    def _call(self, call: Call) -> tuple[Mark | None, Pieces, str]:
        call_id = self.ids.open_call(call.id)
        name = self.names.legal(call.name)
        data, wrapped = wrap_arguments(call.arguments)
        mark = None
        if call_id != call.id or name != call.name or wrapped:
            mark = Mark(
                id=mend_surrogates(call.id) if call_id != call.id else None,
                name=mend_surrogates(call.name) if name != call.name else None,
                text=wrapped,
            )
        head = b'{"type":"tool_use","id":' + spell(call_id) + b',"name":' + spell(name) + b',"input":'
        return mark, _once(head + escape_separators(data) + b"}"), call_id

    def _result(self, result: Message, call_id: str, source: str) -> Pieces:
        self._tick(result)
        parts = _heard(result)
        cover = Cover(parts, None)
        if not parts:
            body = _once(b'""')
        elif len(parts) == 1 and type(parts[0]) is Text:
            body = cover.text(parts[0])
        else:
            body = cover.blocks(parts)
        failed = b',"is_error":' + (b"true" if result.is_error else b"false") if result.is_error is not None else b""
        yield from self._answer(call_id, source, body, failed, cover.mark)

    def _invented(self, call_id: str, source: str) -> Pieces:
        yield from self._answer(call_id, source, _once(spell(INVENTED)), b',"is_error":true', Mark(invented=True))

    def _answer(self, call_id: str, source: str, body: Pieces, failed: bytes, mark: Mark | None) -> Pieces:
        head = b'{"role":"user","content":[{"tool_use_id":' + spell(call_id) + b',"type":"tool_result","content":'
        member = b',"sourceToolAssistantUUID":' + spell(source) if source else b""
        yield from self._record(b"user", _around(head, body, failed + b"}]}"), mark=mark, flags=member)

    def _tick(self, message: Message) -> None:
        if message.time_ms is not None:
            self.time_ms = message.time_ms


_PROMPT_SIGNS = 200
_USAGE = (
    b',"stop_sequence":null,"usage":{"input_tokens":1,"cache_creation_input_tokens":0,'
    b'"cache_read_input_tokens":0,"output_tokens":1}}'
)


class Cover:
    """The parts of one record as content, with the mark that they need: stand-ins for images, guards before texts.

    A record without a mark is taken literally when it is read; in one with a mark every text that begins like one of
    clew's sentences carries a guard.
    """

    def __init__(self, parts: Sequence[Part], mark: Mark | None, *, holds_images: bool = True) -> None:
        self._holds_images = holds_images
        standins = sum(1 for p in parts if type(p) is Image and not self._holds(p))
        lookalike = any(_is_lookalike(p) for p in parts)
        if standins:
            mark = msgspec.structs.replace(mark or Mark(), standin=standins)
        elif lookalike and mark is None:
            mark = Mark()
        self.mark = mark
        self._images = 0

    def text(self, part: Text) -> Pieces:
        """Yields the part as a JSON string."""
        if self.mark is not None and _is_lookalike(part):
            return _once(spell(guard_text(part.text)))
        return string_pieces(part.source)

    def block(self, part: Part) -> Pieces:
        """Yields the part as one content block."""
        if type(part) is Text:
            return _around(b'{"type":"text","text":', self.text(part), b"}")
        assert type(part) is Image, "other parts have records of their own"
        self._images += 1
        if not self._holds(part):
            sentence = standin_text(part.media_type or "unknown", self._images)
            return _once(b'{"type":"text","text":' + spell(sentence) + b"}")
        return _image_block(part)

    def _holds(self, image: Image) -> bool:
        return self._holds_images and can_hold(image)

    def blocks(self, parts: Sequence[Part]) -> Pieces:
        """Yields the parts as a list of content blocks."""
        for number, part in enumerate(parts):
            yield b"," if number else b"["
            yield from self.block(part)
        yield b"]"


def _is_lookalike(part: Part) -> bool:
    return type(part) is Text and is_like_ours(part.source)


def _image_block(part: Image) -> Pieces:
    if is_empty(part.source):
        yield b'{"type":"image","source":{"type":"url","url":' + spell(part.url) + b"}}"
        return
    yield b'{"type":"image","source":{"type":"base64","media_type":' + spell(part.media_type) + b',"data":'
    yield from string_pieces(part.source)
    yield b"}}"


def _native_flags(message: Message) -> tuple[int, bytes]:
    """Returns the agent's own flags for a user message, as the reader knows them and as members."""
    if message.origin != "agent":
        return 0, b""
    if message.kind == "summary":
        return COMPACT | TRANSCRIPT, b',"isVisibleInTranscriptOnly":true,"isCompactSummary":true'
    text = text_if_marked(message.parts[0].source, LOOK_WRITING) if _is_one_text(message) else ""  # type: ignore[union-attr]
    if text and sort_text(text, 0) == (message.origin, message.kind):
        return 0, b""
    return META, b',"isMeta":true'


def _heard(message: Message) -> list[Part]:
    return [p for p in message.parts if type(p) is Image or (type(p) is Text and not p.is_empty)]


def _is_one_text(message: Message) -> bool:
    return len(message.parts) == 1 and type(message.parts[0]) is Text


def _said_mark(message: Message, texts: Sequence[Text], flags: int) -> Mark | None:
    """Returns the mark that a user message needs to come back as said by whom it was said."""
    known = [text_if_marked(t.source, LOOK_WRITING) for t in texts]
    found = sort_text(known[0] if len(known) == 1 else "", flags)
    is_context = any(is_reminder(text) for text in known)
    if message.origin == "user":
        return Mark(said=True) if is_context or found != ("user", "") else None
    if is_context or found != (message.origin, message.kind) or flags & META:
        return Mark(origin=message.origin, kind=message.kind)
    return None


def count_losses(messages: Sequence[Message]) -> tuple[tuple[Loss, ...], int]:
    """Returns what this format cannot carry of a conversation, and how many calls go unanswered in it."""
    return outline.count_losses(messages, can_hold, lambda image: False)


def _once(data: bytes) -> Pieces:
    yield data


def _around(head: bytes, body: Pieces, foot: bytes) -> Pieces:
    yield head
    yield from body
    yield foot
