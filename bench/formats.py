"""Times reading and writing of every registered format against only decoding the same bytes.

    python bench/formats.py [MEGABYTES] [AGENT ...]

Each session is made of the format's recorded ones (tests/fixtures; Claude Code's where it has none) and is some
megabytes long (8 by default). `read` is of records as the agent writes them: recorded lines, again and again under
other ids; `own` is of what clew's writer makes of the same conversation, `write` is that writing. All are the best of
three, in processor time, as multiples of only decoding the bytes.
"""

from __future__ import annotations

import gc
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import msgspec

from clew.conversation.builder import make_user
from clew.conversation.model import Call, Message
from clew.conversation.source import SideFile, Source, Stream
from clew.formats.protocol import Format, Home, WriteOptions
from clew.formats.registry import all_formats

FIXTURES = Path(__file__).resolve().parent.parent / "tests" / "fixtures" / "sessions"
ID = "01a22df5-7ada-8893-8deb-9be09a8006e1"
NOW = 1_790_000_000_000

_UUID = re.compile(rb"\b[0-9a-f]{8}(?=-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b)")
_CALL = re.compile(rb"\b(?:call|toolu|msg)_[0-9A-Za-z_]{6,}")
_ROOT = re.compile(rb'"(parentUuid|parentId)":null')
_NAMED = re.compile(rb'"(?:uuid|id)":"([0-9a-f-]{8,36})"')
_SKIPPED = (
    "interrupted",
    "interrupted-tool",
    "stopped",
    "forked",
    "forked-mid",
    "reverted",
    "compacted",
    "zstd",
    "image",
)
"""Recorded sessions that end in the middle, or go on elsewhere; pictures would outweigh all else."""


def recorded(agent: str, form: Format) -> Iterator[Source]:
    """Yields the recorded sessions of an agent that can stand one behind the other."""
    for folder in sorted((FIXTURES / agent).glob("*")):
        if folder.name not in _SKIPPED:
            home = Home(folder / "home")
            for found in form.locate.find(home):
                if found.kind == "session" and not found.problem:
                    yield form.locate.load(found, home)


def native(source: Source, size: int) -> Source:
    """Returns a session whose lines are those of a recorded one, over and over, under other ids."""
    stream = source.streams[-1]
    head, body = _without_header(bytes(stream.data))
    own = {found[:8] for found in re.findall(rb"[0-9a-f]{8}-[0-9a-f-]{27}", stream.path.encode())}
    pieces, last, at = [head], b"", len(head)
    for number in range(max(1, size // max(1, len(body)))):
        count = b"%04d" % (number % 10_000)

        def renamed(found: re.Match[bytes], count: bytes = count) -> bytes:
            return found[0] if found[0] in own else found[0][:4] + count

        piece = _CALL.sub(lambda found, count=count: found[0][:-4] + count, _UUID.sub(renamed, body))
        if last:
            piece = _ROOT.sub(lambda found, last=last: b'"%b":"%b"' % (found[1], last), piece)
        named = [name for name in _NAMED.findall(piece) if len(name) > 7]
        last = named[-1] if named else last
        pieces.append(piece)
        at += len(piece)
    return Source((*source.streams[:-1], Stream(stream.path, b"".join(pieces))), source.side, hint_id=source.hint_id)


def _without_header(data: bytes) -> tuple[bytes, bytes]:
    """Returns the first line, and the others."""
    head, newline, body = data.partition(b"\n")
    return head + newline, body


def conversation(sources: Iterable[tuple[Format, Source]], size: int) -> tuple[Message, ...]:
    """Returns what was said in sessions, one after the other and again, of about so many bytes of texts."""
    read = [form.read(source).messages for form, source in sources]
    talk = [message for messages in read for message in (*messages, make_user("On."))]
    each = sum(len(message.text) for message in talk) + 40 * len(talk)
    return tuple(_renamed(message, number) for number in range(max(1, size // each)) for message in talk)


def _renamed(message: Message, number: int) -> Message:
    parts = tuple(Call(f"{p.id}_{number}", p.name, p.source) if isinstance(p, Call) else p for p in message.parts)
    call_id = f"{message.call_id}_{number}" if message.call_id else ""
    return msgspec.structs.replace(message, parts=parts, call_id=call_id)


def write(form: Format, messages: tuple[Message, ...]) -> Source:
    """Writes a conversation, and returns the session."""
    assert form.write is not None
    options = WriteOptions(form.make_id(ID) if form.make_id else ID, "/w", NOW, lambda name: f"{hash(name):016x}"[-16:])
    files = [(file, b"".join(map(bytes, file.chunks()))) for file in form.write(messages, options).files]
    streams = tuple(Stream(file.path, data) for file, data in files if file.role == "stream")
    return Source(streams, tuple(_side(f.path, data) for f, data in files if f.role != "stream"))


def _side(path: str, data: bytes) -> SideFile:
    return SideFile(path, 0o600, len(data), lambda: data)


def only_decode(source: Source) -> None:
    """Decodes each line of a source, or each stream where it is a document of many lines."""
    decode = msgspec.json.Decoder().decode
    for stream in source.streams:
        data = bytes(stream.data)
        try:
            for line in data.split(b"\n"):
                if line.strip():
                    decode(line)
        except msgspec.DecodeError:
            decode(data)


def best(work: Callable[[], object], runs: int = 3) -> float:
    """Returns the shortest processor time in seconds."""
    times: list[float] = []
    for _ in range(runs):
        gc.collect()
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times)


def measure(form: Format, size: int) -> str:
    """Returns a line of the table."""
    sources = [(form, source) for source in recorded(form.name, form)]
    cells = [f"{form.name:16}"]
    lines = [source for _, source in sources if form.traits.record_kind == "line" and source.streams[-1].data]
    if lines:
        source = native(max(lines, key=lambda one: len(one.streams[-1].data)), size)
        cells.append(ratio(lambda: form.read(source), source))
    else:
        cells.append(f"{'-':>8}")
    if form.write is not None:
        claude = next(one for one in all_formats() if one.name == "claude")
        talk = conversation(sources or [(claude, source) for source in recorded("claude", claude)], size)
        own = write(form, talk)
        cells += [ratio(lambda: form.read(own), own), ratio(lambda: write(form, talk), own)]
        cells.append(f"{sum(len(bytes(s.data)) for s in own.streams) / 1e6:6.1f} MB")
    return " ".join(cells)


def ratio(work: Callable[[], object], source: Source) -> str:
    """Returns how many times longer something takes than only decoding the source."""
    return f"{best(work) / best(lambda: only_decode(source)):7.1f}x"


def main() -> None:
    """Prints the table."""
    size = int(sys.argv[1] if len(sys.argv) > 1 else "8") << 20
    print(f"{'format':16} {'read':>8} {'own':>8} {'write':>8}")
    for form in all_formats():
        if (not sys.argv[2:] or form.name in sys.argv[2:]) and (form.write is not None):
            print(measure(form, size), flush=True)


if __name__ == "__main__":
    main()
