"""Writes a conversation as a session in the layout of Vibe 2.x, which 3.x lists, imports and resumes whole.

One line a message, the texts of one message laid end to end: the layout has room for one. Every call is answered.
Images are not written (Vibe imports a session with one, and then refuses to resume it): a sentence at the text's end
stands for each. Vibe imports the session into its unified store when it is resumed and drops the marks; it leaves the
file as it is, so that clew finds them there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from clew.conversation.model import Image, Message, Part, Text
from clew.formats.marks import INVENTED, CallIds, Names, guard_text, standin_text
from clew.formats.outline import (
    Answered,
    RecordMark,
    Replied,
    Said,
    WrittenCall,
    call_names,
    count_losses,
    joined_text,
    outline,
)
from clew.formats.protocol import WriteOptions, Written, WrittenFile
from clew.formats.spelling import is_like_ours, spell, spell_lazily
from clew.formats.times import write_time
from clew.formats.vibe.content import FAILED
from clew.formats.vibe.folder import MESSAGES, META, folder_path

Pieces = Iterator[bytes]


def no_image(_: Image) -> bool:
    """No message is written with an image: Vibe 3.0.3 imports a session with one, and then refuses to resume it."""
    return False


class Envelope(msgspec.Struct, frozen=True):
    """What one writing goes on from: the ids of calls that are taken, the calls' names, how many lines stand before."""

    calls: frozenset[str] = frozenset()
    names: tuple[str, ...] = ()
    origin: str = ""
    first: int = 0


def write(messages: Sequence[Message], options: WriteOptions) -> Written:
    """Writes a conversation in normal form as a new session of the folder `options.cwd` (a real path)."""
    envelope = Envelope(names=call_names(messages), origin=options.origin)

    def chunks() -> Pieces:
        return Writing(messages, options, envelope).pieces()

    folder = options.path.rpartition("/")[0] if options.path else folder_path(options.session_id, options.now_ms)
    meta = meta_file(messages, options)
    files = (
        WrittenFile(f"{folder}/{META}", lambda: (meta,), role="side"),
        WrittenFile(f"{folder}/{MESSAGES}", chunks),
    )
    losses, invented = count_losses(messages, no_image, no_image)
    return Written(options.session_id, files, losses, invented)


def meta_file(messages: Sequence[Message], options: WriteOptions) -> bytes:
    """Returns `meta.json`: without it the session is not listed."""
    times = [m.time_ms for m in messages if m.time_ms is not None]
    start, end = (times[0], times[-1]) if times else (options.now_ms, options.now_ms)
    meta: dict[str, object] = {
        "session_id": options.session_id,
        "parent_session_id": None,
        "start_time": write_time(start),
        "end_time": write_time(max(start, end)),
        "git_commit": None,
        "git_branch": None,
        "environment": {"working_directory": options.cwd},
        "username": "",
        "title": options.title or None,
        "title_source": "manual" if options.title else "auto",
        "total_messages": len(messages),
    }
    return msgspec.json.format(msgspec.json.encode(meta), indent=2) + b"\n"


class Writing:
    """One pass of writing: gives the bytes in order. A second pass is a second object with the same outcome."""

    def __init__(self, messages: Sequence[Message], options: WriteOptions, envelope: Envelope) -> None:
        self.messages, self.options, self.envelope = messages, options, envelope
        self.count = envelope.first
        self.origin = envelope.origin

    def pieces(self, open_calls: Sequence[WrittenCall] = ()) -> Pieces:
        """Yields the lines; first the made-up answers to calls that a prefix left open."""
        ids = CallIds(taken=self.envelope.calls)
        names = Names()
        names.reserve(self.envelope.names)
        for call in open_calls:
            yield self._answer(Answered(call, None))
        for entry in outline(self.messages, ids, names):
            if type(entry) is Said:
                yield self._user(entry)
            elif type(entry) is Replied:
                yield self._reply(entry)
            else:
                assert type(entry) is Answered
                yield self._answer(entry)

    def _line(
        self, role: bytes, said: OneText, members: bytes, mark: RecordMark | None, *, named: bool = True
    ) -> bytes:
        if said.needed:
            mark = msgspec.structs.replace(mark or RecordMark(), standin=said.standins)
        if self.origin:
            mark = msgspec.structs.replace(mark or RecordMark(), from_=self.origin)
            self.origin = ""
        self.count += 1
        name = b',"message_id":' + spell(self.options.new_id(f"message {self.count}")) if named else b""
        tail = b',"clew":' + msgspec.json.encode(mark) if mark is not None else b""
        return b'{"role":"' + role + b'","content":' + said.content + members + name + tail + b"}\n"

    def _user(self, said: Said) -> bytes:
        text = one_text(said.parts)
        mark = None
        if said.message.origin != "user":
            mark = RecordMark(origin=said.message.origin, kind=said.message.kind)
        return self._line(b"user", text, b"", mark)

    def _reply(self, reply: Replied) -> bytes:
        text = one_text([part for part in reply.parts if type(part) is not WrittenCall])
        mark = RecordMark(model=reply.message.model) if reply.message.model else None
        marks = {call.id: call.mark for call in reply.calls if call.mark is not None}
        if marks:
            mark = msgspec.structs.replace(mark or RecordMark(), calls=marks)
        calls = b",".join(_tool_call(call, number) for number, call in enumerate(reply.calls))
        return self._line(b"assistant", text, b',"tool_calls":[' + calls + b"]" if calls else b"", mark)

    def _answer(self, answer: Answered) -> bytes:
        members = b',"name":' + spell(answer.call.name) + b',"tool_call_id":' + spell(answer.call.id)
        if answer.result is None:
            told = OneText(spell(INVENTED))
            return self._line(b"tool", told, members, RecordMark(invented=True, error=True), named=False)
        text = one_text(joined_text(answer.parts))
        failed = answer.result.is_error
        mark = RecordMark(error=failed) if failed or (failed is False and _looks_failed(answer.parts)) else None
        return self._line(b"tool", text, members, mark, named=False)


class OneText(msgspec.Struct, frozen=True):
    """The text of a line as a JSON string.

    `needed` tells that the line must have a mark: a guard is before the text, or stand-ins are at its end.
    """

    content: bytes
    standins: int = 0
    needed: bool = False


def one_text(parts: Sequence[Part | WrittenCall]) -> OneText:
    """Returns the parts of a message as one text: texts laid end to end, then a line for each image."""
    texts = [part for part in parts if type(part) is Text]
    images = [part for part in parts if type(part) is Image]
    if len(texts) == 1 and not images and not is_like_ours(texts[0].source):
        return OneText(spell_lazily(texts[0].source))
    text = "".join(part.text for part in texts)
    needed = bool(images) or is_like_ours(text)
    text = guard_text(text) if needed else text
    for number, image in enumerate(images, 1):
        text += ("\n" if text else "") + standin_text(image.media_type or "unknown", number)
    return OneText(spell(text), len(images), needed)


def _tool_call(call: WrittenCall, number: int) -> bytes:
    head = b'{"id":' + spell(call.id) + b',"index":%d,"type":"function","function":{"name":' % number
    return head + spell(call.name) + b',"arguments":' + spell(call.arguments.decode()) + b"}}"


def _looks_failed(parts: Sequence[Part]) -> bool:
    first = parts[0] if parts else None
    return type(first) is Text and first.text.startswith(FAILED)
