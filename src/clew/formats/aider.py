"""Aider: the chat history of a project, one Markdown file for all its runs. Read, kept and restored, not written.

The file is lossy by its nature: it has no ids, calls or results, and a reply with a line that begins like a prompt is
told apart by nobody, Aider included. It is read as Aider reads it when it restores a history, except that headings of
a reply stay. A record is a run's heading, a block of prompt, of notes, or of reply.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import msgspec
from blake3 import blake3

from clew.conversation.model import Message, Text
from clew.conversation.source import Ending, Session, Source, Stream
from clew.formats.jsonl import line_ends
from clew.formats.protocol import Format, Found, Home, Traits
from clew.formats.shelf import Aside, Shelf
from clew.formats.sketch import Sketch
from clew.formats.times import read_time

AGENT = "aider"
NAME = ".aider.chat.history.md"
_RUN = b"# aider chat started at "
_PROMPT, _NOTE = b"#### ", b"> "
_BLANKS = re.compile(r" {2}$", re.MULTILINE)
_VERSION = re.compile(rb"> Aider v(\S{1,40})")
_MODEL = re.compile(rb"> (?:Main m|M)odel: (\S{1,200}) with ")


def read(source: Source, since: Ending | None = None) -> Session:
    """Reads a history whole."""
    sketch = Sketch(AGENT, source)
    for stream in source.streams:
        _read_stream(sketch, stream)
    return sketch.finish()


def _read_stream(sketch: Sketch, stream: Stream) -> None:
    starts = sketch.records.add_stream(stream)
    base = len(sketch.records)
    time: int | None = None
    for sort, begin, data in _blocks(stream):
        starts.append(begin)
        number = base + len(starts) - 1
        text = data.decode("utf-8", "replace")
        if "\ufffd" in text and not _is_utf8(data):
            sketch.report(number, "bad utf-8")
        if sort == "run":
            time = read_time(text[len(_RUN) :].strip())
        elif sort == "note":
            _read_notes(sketch, data)
        elif sort == "prompt":
            said = "".join(line.removeprefix("#### ") for line in text.splitlines(keepends=True))
            _say(sketch, "user", said, time, number)
        else:
            _say(sketch, "assistant", text, time, number)


def _say(sketch: Sketch, role: str, text: str, time: int | None, number: int) -> None:
    text = _BLANKS.sub("", text.replace("\r\n", "\n")).strip() if role == "user" else text.strip()
    if not text:
        return
    parts = (Text(text),)
    sketch.say(Message("user", parts, "user", "", time) if role == "user" else _reply(parts, sketch, time), number)


def _reply(parts: tuple[Text, ...], sketch: Sketch, time: int | None) -> Message:
    return Message("assistant", parts, "model", "", time, sketch.about.model)


def _read_notes(sketch: Sketch, data: bytes) -> None:
    version, model = _VERSION.search(data), _MODEL.search(data)
    if version is not None:
        sketch.about.version = version.group(1).decode("utf-8", "replace")
    if model is not None:
        sketch.about.model = model.group(1).decode("utf-8", "replace")


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _sort(line: bytes) -> str:
    if line.startswith(_RUN):
        return "run"
    if line.startswith(_PROMPT) or line.rstrip() == _PROMPT.rstrip():
        return "prompt"
    if line.startswith(_NOTE) or line.rstrip() == _NOTE.rstrip():
        return "note"
    return "reply"


def _blocks(stream: Stream) -> Iterator[tuple[str, int, bytes]]:
    """Yields sort, place and bytes of each block; every byte is in one.

    Before the first prompt of a run nobody replies: what stands there are notes, with the lines of the command line.
    """
    view = memoryview(stream.data)
    sort, begin, at = "", 0, 0
    is_opening = False
    for end in line_ends(view):
        now = _sort(bytes(view[at:end]))
        is_opening = now == "run" or (is_opening and now != "prompt")
        if is_opening and now == "reply":
            now = "note"
        if sort and (now != sort or now == "run"):
            yield sort, begin, bytes(view[begin:at])
            begin = at
        sort, at = now, end
    if sort:
        yield sort, begin, bytes(view[begin:at])


def _id(path: Path) -> str:
    """Returns an id of clew's own making: the history has none, and one project has one."""
    return f"{path.parent.name or 'history'}-{blake3(str(path).encode('utf-8', 'surrogateescape')).hexdigest()[:8]}"


class _Histories(Shelf):
    """A history belongs to the folder that it lies in."""

    def load(self, found: Found, home: Home) -> Source:
        """Returns the source of a session; raises NotFoundError or UnreadableSource."""
        return msgspec.structs.replace(super().load(found, home), hint_cwd=str(found.path.parent))


FORMAT = Format(
    name=AGENT,
    title="Aider",
    traits=Traits(record_kind="range", transport="aider", carries_id=False, any_uuid=False, writes=False),
    read=read,
    locate=_Histories(
        AGENT,
        lambda home: home.root,
        (NAME, f"*/{NAME}"),
        lambda path, head: path.name == NAME or head.lstrip().startswith(_RUN),
        name=_id,
    ),
    resume=Aside(),
)
