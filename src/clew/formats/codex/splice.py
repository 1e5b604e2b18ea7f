"""Goes on behind restored records: not a byte of them changes, and what comes follows their own dialect.

A paginated rollout numbers its lines and keeps the items of a turn between `task_started` and `task_complete`; a
legacy one has neither. A compressed rollout gets a further frame. Calls that the prefix leaves open are answered
first, marked: the agent itself would call them aborted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

import msgspec

from clew.conversation.model import Message
from clew.conversation.source import Buffer, Records, Session, Stream
from clew.formats.codex import compressed
from clew.formats.codex.items import CALLS
from clew.formats.codex.lines import (
    Rows,
    answer_line,
    count_losses,
    count_unanswered,
    encode_line,
)
from clew.formats.codex.records import Item, decode_int, decode_mark, decode_text, rollout_lines
from clew.formats.codex.records import Line as Stored
from clew.formats.codex.turns import Turns
from clew.formats.protocol import WriteOptions, Written, WrittenFile

_PIECE = 1 << 20


class Open(msgspec.Struct, frozen=True):
    """A call of the prefix without an output: its id in the file, and what sort of item it is."""

    id: str
    type: str


class Tail(msgspec.Struct, frozen=True):
    """What the lines of a prefix leave open: the last ordinal (None in legacy mode), the running turn, calls."""

    ordinal: int | None = None
    turn: str = ""
    open: tuple[Open, ...] = ()
    ids: frozenset[str] = frozenset()


def splice(prefix: Session, messages: Sequence[Message], options: WriteOptions) -> Written:
    """Appends messages in normal form to a thread's restored records."""
    streams = prefix.records.streams
    lines = [_unpacked(stream) for stream in streams]
    tail = _read_tail(lines)
    files = [_file(stream, lambda stream=stream: _pieces(stream)) for stream in streams[:-1]]
    if streams:
        last, plain = streams[-1], lines[-1]

        def chunks() -> Iterable[Buffer]:
            added = _added(prefix, plain, tail, messages, options)
            yield from _pieces(last)
            yield from compressed.pack(added) if plain is not last else added

        files.append(_file(last, chunks))
    return Written(prefix.id, tuple(files), count_losses(messages), count_unanswered(messages) + len(tail.open))


def _file(stream: Stream, chunks: object) -> WrittenFile:
    return WrittenFile(stream.path, chunks, stream.mode)  # type: ignore[arg-type]


def _unpacked(stream: Stream) -> Stream:
    return compressed.unpack(stream, 0)[0] if compressed.is_compressed(stream) else stream


def _pieces(stream: Stream) -> Iterator[Buffer]:
    data = memoryview(stream.data)
    for at in range(0, len(data), _PIECE):
        yield data[at : at + _PIECE]


def _read_tail(streams: Sequence[Stream]) -> Tail:
    """Reads the lines once for what they leave open; a compaction closes all calls before it."""
    ordinal: int | None = None
    turn = ""
    waiting: dict[str, Open] = {}
    ids: set[str] = set()
    for stream in streams:
        for _, line in rollout_lines(Records(), stream, []):
            if line is None or line.payload is None:
                continue
            found = decode_int(line.ordinal)
            ordinal = found if found is not None else ordinal
            if line.type == "event_msg":
                turn = _turn_after(line.payload, turn)
            elif line.type == "compacted":
                waiting.clear()
            elif line.type == "response_item":
                _follow_calls(line.payload, line, waiting, ids)
    return Tail(ordinal, turn, tuple(waiting.values()), frozenset(ids))


def _turn_after(event: Item, turn: str) -> str:
    match event.type:
        case "task_started":
            return decode_text(event.turn_id)
        case "task_complete" | "turn_aborted":
            return ""
        case _:
            return turn


def _follow_calls(item: Item, line: Stored, waiting: dict[str, Open], ids: set[str]) -> None:
    if item.call_id is None:
        return
    if item.type in CALLS:
        waiting[item.call_id] = Open(item.call_id, item.type)
        ids.add(item.call_id)
        ids.add(decode_mark(line.clew).id or item.call_id)
    elif item.type.endswith("_output"):
        waiting.pop(item.call_id, None)


def _added(
    prefix: Session, plain: Stream, tail: Tail, messages: Sequence[Message], options: WriteOptions
) -> Iterator[bytes]:
    data = memoryview(plain.data)
    if len(data) and data[-1] != 0x0A:
        yield b"\n"
    rows = Rows(messages, model=prefix.model, taken=tail.ids)
    paginated = tail.ordinal is not None
    turns = Turns(rows, options, prefix.id, paginated=paginated, turn=tail.turn, listed=True)
    ordinal = tail.ordinal
    for line in chain((answer_line(call.id, call.type) for call in tail.open), turns.lines(messages)):
        ordinal = None if ordinal is None else ordinal + 1
        yield encode_line(line, options.now_ms, ordinal)
