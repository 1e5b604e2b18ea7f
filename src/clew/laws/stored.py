"""Sessions of any format as they lie on a disk, made of conversations by its own writer, undisturbed and disturbed.

`stored_sessions` gives bytes of one format: what its own writer makes of a conversation, then disturbed as real files
are. What the reader makes of those bytes is the conversation that counts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

import msgspec
from blake3 import blake3
from hypothesis import strategies as st

from clew.conversation.canonical import keys_of
from clew.conversation.model import Message
from clew.conversation.source import Session, SideFile, Source, Stream
from clew.formats.protocol import Format, WriteOptions, Written
from clew.ids import derive_uuid, is_uuid
from clew.laws.conversations import conversations


class Stored(msgspec.Struct, frozen=True):
    """One session as it lies on a disk.

    `data` are all its streams laid end to end: `before` names those before the last one (`path`) with their sizes.
    """

    form: Format
    data: bytes
    path: str
    side: tuple[SideFile, ...] = ()
    before: tuple[tuple[str, int], ...] = ()

    @property
    def source(self) -> Source:
        """Returns it as a reader gets it."""
        streams: list[Stream] = []
        at = 0
        for path, size in self.before:
            streams.append(Stream(path, self.data[at : at + size]))
            at += size
        return Source((*streams, Stream(self.path, self.data[at:])), self.side)

    def read(self) -> Session:
        """Returns what its reader makes of it."""
        return self.form.read(self.source)


def write_options(session_id: str = "", *, origin: str = "", path: str = "") -> WriteOptions:
    """Returns options that depend on nothing but their arguments."""
    session_id = session_id or make_id("one")
    return WriteOptions(
        session_id, "/home/dev/project", 1_760_000_000_000, lambda name: make_id(session_id + name), origin, path=path
    )


def make_id(name: str) -> str:
    """Returns an id that any agent takes, always the same for a name."""
    return derive_uuid(blake3(name.encode("utf-8", "surrogatepass")).digest())


def store_written(form: Format, written: Written) -> Stored:
    """Returns what a writer made, as it would lie on a disk."""
    streams = [file for file in written.files if file.role == "stream"]
    side = tuple(
        SideFile(file.path, file.mode, 0, lambda f=file: b"".join(map(bytes, f.chunks())))
        for file in written.files
        if file.role == "side"
    )
    if form.traits.record_kind != "file":  # what stands before the last stream is read with it from elsewhere
        streams = streams[-1:]
    return store_streams(form, [Stream(f.path, b"".join(map(bytes, f.chunks()))) for f in streams], side)


def store_streams(form: Format, streams: Sequence[Stream], side: tuple[SideFile, ...] = ()) -> Stored:
    """Returns a session of these streams."""
    data = b"".join(bytes(stream.data) for stream in streams)
    before = tuple((stream.path, len(stream.data)) for stream in streams[:-1])
    return Stored(form, data, streams[-1].path, side, before)


def store_conversation(form: Format, messages: Sequence[Message], session_id: str = "") -> Stored:
    """Returns a session of `form` that holds the conversation."""
    assert form.write is not None, "only formats that write are tested"
    session_id = session_id or make_id("one")
    if form.make_id is not None and is_uuid(session_id):
        session_id = form.make_id(session_id)
    return store_written(form, form.write(messages, write_options(session_id)))


@st.composite
def stored_sessions(draw: st.DrawFn, form: Format, min_groups: int = 0, max_groups: int = 4) -> Stored:
    """Gives sessions of one format, undisturbed and disturbed."""
    messages = draw(conversations(min_groups, max_groups))
    stored = store_conversation(form, messages)
    if form.traits.record_kind == "range":
        return msgspec.structs.replace(stored, data=_disturb_document(draw, stored.data))
    if form.traits.record_kind == "line":
        return msgspec.structs.replace(stored, data=_disturb_lines(draw, stored.data))
    return stored  # rows are bytes of clew's own making; of other documents only their own tests know the shape


_JUNK = (
    b"\n",
    b"\r\n",
    b" \t\n",
    b'{"type":"from-the-future","uuid":"00000000-0000-4000-8000-000000000000","n":[1.5e300]}\n',
    b'{"t":"usage","tokens":12}\n',
    b'{"timestamp":"2031-01-01T00:00:00.000Z","type":"event_msg","payload":{"type":"unheard_of"}}\n',
    b"[]\n",
    b"no json at all\n",
    b'{"type":"cut off\n',
    b'{"type":"bad \xff\xfe"}\n',
    b"\x00\x00\x00\x00\n",
)
_RESULT_LINE = re.compile(rb'"tool_result"|_call_output"|"t":"out"')


def _disturb_lines(draw: st.DrawFn, data: bytes) -> bytes:
    lines = [line + b"\n" for line in data.split(b"\n") if line]
    if not lines:
        return draw(st.sampled_from(_JUNK))
    for what in draw(st.lists(st.sampled_from(["junk", "junk", "crlf", "bad", "swap", "again", "fuse"]), max_size=3)):
        at = draw(st.integers(0, len(lines) - 1))
        if what == "junk":
            lines.insert(max(at, 1), draw(st.sampled_from(_JUNK)))
        elif what == "crlf":
            lines[at] = lines[at].rstrip(b"\r\n") + b"\r\n"
        elif what == "bad":
            lines[at] = _spoil(draw, lines[at])
        elif what == "swap" and at + 1 < len(lines):
            if _RESULT_LINE.search(lines[at]) and _RESULT_LINE.search(lines[at + 1]):
                lines[at], lines[at + 1] = lines[at + 1], lines[at]
        elif what == "again" and at:
            lines.insert(at, lines[at])
        elif what == "fuse" and at + 1 < len(lines):
            lines[at] = lines[at].rstrip(b"\r\n")
    data = b"".join(lines)
    end = draw(st.integers(0, 5))
    if end == 0:
        data = data.rstrip(b"\r\n")
    elif end == 1 and len(lines) > 1:
        data = data[: len(data) - draw(st.integers(1, len(lines[-1])))]
    return b"\xef\xbb\xbf" + data if draw(st.integers(0, 9)) == 0 else data


def _spoil(draw: st.DrawFn, line: bytes) -> bytes:
    """Puts a byte that is no UTF-8 somewhere where a letter was."""
    places = [match.start() for match in re.finditer(rb"[A-Za-z ]", line)]
    if not places:
        return line
    at = draw(st.sampled_from(places))
    return line[:at] + b"\xff" + line[at + 1 :]


def _disturb_document(draw: st.DrawFn, data: bytes) -> bytes:
    document: dict[str, Any] = json.loads(data)
    for what in draw(st.lists(st.sampled_from(["element", "member", "head", "tail"]), max_size=3)):
        elements: list[Any] = next(filter(_is_list, document.values()))
        at = draw(st.integers(0, len(elements)))
        if what == "element":
            elements.insert(
                at, draw(st.sampled_from([{"who": "alien", "x": 1}, {"who": "sys", "say": "x"}, 5, [], None]))
            )
        elif what == "member" and elements and isinstance(elements[at - 1], dict):
            elements[at - 1]["unheard_of"] = {"messages": ["x", {}]}
        elif what == "head":
            document = {"format": "}]", **document}
        elif what == "tail":
            document["more"] = [[]]
    spacing = draw(st.sampled_from([None, None, 0, 1]))
    escaped = draw(st.booleans())
    data = json.dumps(document, indent=spacing, ensure_ascii=escaped).encode("utf-8", "surrogatepass")
    if spacing is not None and draw(st.booleans()):
        data = data.replace(b"\n", b"\r\n")
    if draw(st.integers(0, 4)) == 0:
        data = _spoil_text(draw, data)
    data += draw(st.sampled_from([b"", b"\n", b" \r\n\t"]))
    return b"\xef\xbb\xbf" + data if draw(st.integers(0, 9)) == 0 else data


def _is_list(value: object) -> bool:
    return isinstance(value, list)


def _spoil_text(draw: st.DrawFn, data: bytes) -> bytes:
    places = [m.end() - 1 for m in re.finditer(rb'"(?:say|message)": ?"[A-Za-z]', data)]
    if not places:
        return data
    at = draw(st.sampled_from(places))
    return data[:at] + b"\xff" + data[at + 1 :]


def group_keys(messages: Sequence[Message]) -> tuple[str, ...]:
    """Returns the chain keys of a conversation."""
    return tuple(keys_of(messages))
