"""Writes a conversation as a session that Qwen Code lists, resumes, and sends whole to its model.

One record a message and one a result, one chain. The thoughts of another model are left out: they would be sent. What
the target cannot say by itself is marked by the member `clew` on the record, which the agent keeps, also in a fork.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from clew.conversation.model import Message, Part, Text
from clew.formats.marks import Mark
from clew.formats.parts.spelling import Pieces, around, encode_value
from clew.formats.parts.values import RecordMark, head_of
from clew.formats.parts.writing import Content, Dialect, Writer, count_losses, invented_content
from clew.formats.protocol import WriteOptions, Written, WrittenFile
from clew.formats.qwen.records import REMINDER, VERSION, sort_text
from clew.formats.spelling import spell
from clew.formats.times import write_time
from clew.ids import is_safe_name

PROJECTS = "projects"
CHATS = "chats"
_OTHER = re.compile("[^A-Za-z0-9]")


def drops(parts: Sequence[Part]) -> bool:
    """Tells whether the agent might take a message for a reminder of its own."""
    return isinstance(parts[0], Text) and head_of(parts[0].source).lstrip().startswith(REMINDER)


DIALECT = Dialect(
    kinds=frozenset({"image/png", "image/jpeg", "image/webp", "image/gif"}), sort=sort_text, drops=drops, nested=True
)


def folder_name(cwd: str) -> str:
    """Returns the name of a folder's place: each UTF-16 unit that is no ASCII letter or digit is a hyphen."""
    units = cwd.encode("utf-16-le", "surrogatepass")
    return _OTHER.sub("-", "".join(chr(units[i] | units[i + 1] << 8) for i in range(0, len(units), 2)))


def stream_path(cwd: str, session_id: str) -> str:
    """Returns where a session's file lies, below the base folder; asserts that the id may be part of a name."""
    assert is_safe_name(session_id), "the caller gives ids of clew's own making"
    return f"{PROJECTS}/{folder_name(cwd)}/{CHATS}/{session_id}.jsonl"


def spell_id(derived: str) -> str:
    """Returns a derived id as the agent takes it: it knows no versions of UUIDs above 5."""
    return f"{derived[:14]}5{derived[15:]}"


class Envelope(msgspec.Struct, frozen=True):
    """What all records of one writing have in common, and what the chain goes on from."""

    session_id: str
    cwd: str
    version: str = VERSION
    parent: str = ""
    origin: str = ""
    title: str = ""
    first: int = 0
    taken: frozenset[str] = frozenset()
    open_calls: tuple[tuple[str, str], ...] = ()


def write(messages: Sequence[Message], options: WriteOptions) -> Written:
    """Writes a conversation in normal form as a new session of the folder `options.cwd` (a real path)."""
    envelope = Envelope(options.session_id, options.cwd, origin=options.origin, title=options.title)
    losses, invented = count_losses(messages, DIALECT, thinks=False)
    path = options.path or stream_path(options.cwd, options.session_id)
    file = WrittenFile(path, lambda: Writing(messages, options, envelope).pieces())
    return Written(options.session_id, (file,), losses, invented)


class Writing:
    """One pass of writing: gives the bytes in order. A second pass is a second object with the same outcome."""

    def __init__(self, messages: Sequence[Message], options: WriteOptions, envelope: Envelope) -> None:
        self.options, self.envelope = options, envelope
        self.writer = Writer(messages, DIALECT, taken=envelope.taken)
        self.parent, self.origin, self.count = envelope.parent, envelope.origin, envelope.first
        self.time_ms = next((m.time_ms for m in messages if m.time_ms is not None), options.now_ms)
        self.tail = b',"cwd":' + spell(envelope.cwd) + b',"version":' + spell(envelope.version)

    def pieces(self) -> Pieces:
        """Yields the records; first the made-up answers to calls that a prefix left open."""
        for call_id, name in self.envelope.open_calls:
            yield from self._result(invented_content(call_id, name))
        for content in self.writer.contents():
            if content.message is not None and content.message.time_ms is not None:
                self.time_ms = content.message.time_ms
            if content.sort == "result":
                yield from self._result(content)
            elif content.sort == "user":
                yield from self._user(content)
            else:
                yield from self._reply(content)
        if self.envelope.title and self.parent:
            payload = {"customTitle": self.envelope.title.encode("utf-8", "replace").decode(), "titleSource": "manual"}
            rest = b',"subtype":"custom_title","systemPayload":' + encode_value(payload)
            yield from self._record(b"system", b"system", rest, None)

    def _user(self, content: Content) -> Pieces:
        by = b"real_user" if content.message is not None and content.message.origin == "user" else b"system"
        body = around(b',"message":{"role":"user","parts":', content.parts(), b"}")
        yield from self._record(b"user", by, b"", content.mark, body)

    def _reply(self, content: Content) -> Pieces:
        model = content.message.model if content.message is not None else ""
        rest = b',"model":' + spell(model or self.options.model or "unknown")
        body = around(b',"message":{"role":"model","parts":', content.parts(), b"}")
        yield from self._record(b"assistant", b"assistant_output", rest, content.mark, body)

    def _result(self, content: Content) -> Pieces:
        status = b'"error"' if content.failed else b'"success"'
        rest = b',"toolCallResult":{"callId":' + spell(content.call_id) + b',"status":' + status + b"}"
        body = around(b',"message":{"role":"user","parts":', content.parts(), b"}")
        yield from self._record(b"tool_result", b"tool_result", rest, content.mark, body)

    def _record(
        self, sort: bytes, provenance: bytes, rest: bytes, mark: RecordMark | None, body: Pieces | None = None
    ) -> Pieces:
        self.count += 1
        uuid = self.options.new_id(f"record {self.count}")
        parent = spell(self.parent) if self.parent else b"null"
        yield (
            b'{"uuid":' + spell(uuid) + b',"parentUuid":' + parent + b',"sessionId":' + spell(self.envelope.session_id)
        )
        yield b',"timestamp":"' + write_time(self.time_ms).encode() + b'","type":"' + sort
        yield b'","provenance":"' + provenance + b'"' + self.tail + rest
        yield from body or ()
        found: Mark | None = mark
        if self.origin:
            found = msgspec.structs.replace(mark or RecordMark(), from_=self.origin)
            self.origin = ""
        yield (b',"clew":' + encode_value(found) if found is not None else b"") + b"}\n"
        self.parent = uuid
