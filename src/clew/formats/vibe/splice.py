"""Goes on behind restored records, and makes a session's records those of another session.

In the 2.x layout a splice changes no byte of the prefix and appends lines; a rebase changes the id in `meta.json`, the
only place that has it. A session that Vibe has taken into its unified store is gone on with there (`store`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from clew.conversation.model import Message
from clew.conversation.source import Buffer, Records, Session, SideFile, Stream
from clew.formats import raws
from clew.formats.jsonl import JsonLines
from clew.formats.jsonout import whole_lines
from clew.formats.outline import WrittenCall, call_names, count_losses
from clew.formats.protocol import WriteOptions, Written, WrittenFile
from clew.formats.spelling import change_member, spell
from clew.formats.vibe import records as rec
from clew.formats.vibe.folder import MESSAGES, META, folder_path, store_kind
from clew.formats.vibe.store import go_on
from clew.formats.vibe.writer import Envelope, Writing, meta_file, no_image, write

_PIECE = 1 << 20


class Tail(msgspec.Struct, frozen=True):
    """What a file leaves to go on from: the ids of its calls, and the open ones of its last reply."""

    calls: frozenset[str]
    open: tuple[WrittenCall, ...]


def splice(prefix: Session, messages: Sequence[Message], options: WriteOptions) -> Written:
    """Appends messages in normal form to a session's restored records."""
    if any(store_kind(stream.path) for stream in prefix.records.streams):
        return go_on(prefix, messages, options)
    stream = prefix.records.streams[0] if prefix.records.streams else Stream(options.path, b"")
    tail = read_tail(stream)
    envelope = Envelope(tail.calls, call_names((*prefix.messages, *messages)), first=len(prefix.records))

    def chunks() -> Iterator[Buffer]:
        yield from whole_lines(stream)
        yield from Writing(messages, options, envelope).pieces(tail.open)

    losses, invented = count_losses(messages, no_image, no_image)
    file = WrittenFile(stream.path or options.path, chunks, stream.mode)
    return Written(prefix.id or options.session_id, (file,), losses, invented + len(tail.open))


def read_tail(stream: Stream) -> Tail:
    """Reads a file once for what it leaves open."""
    ids: set[str] = set()
    waiting: list[tuple[str, str]] = []
    for _, line in JsonLines(Records(), stream, rec.LINES, [], slow=rec.ODD_LINES):
        if line is None:
            continue
        if line.role == "tool":
            found = next((call for call in waiting if call[0] == line.tool_call_id), None)
            if found is not None:
                waiting.remove(found)
            continue
        waiting = []
        if line.role == "assistant":
            calls = rec.CALLS.many(line.tool_calls)
            waiting = [(raws.as_word(c.id), raws.as_word((c.function or rec.Function()).name)) for c in calls]
            ids.update(call_id for call_id, _ in waiting)
    return Tail(frozenset(ids), tuple(WrittenCall(call_id, name, b"{}") for call_id, name in waiting))


def rebase(session: Session, options: WriteOptions) -> Written:
    """Returns the session's lines as they are, and its `meta.json` with `options.session_id` in it.

    A session of the unified store is written anew: its documents name each other by digests of their bytes.
    """
    if any(store_kind(stream.path) for stream in session.records.streams) or not session.records.streams:
        return write(session.messages, msgspec.structs.replace(options, cwd=session.cwd or options.cwd))
    stream = session.records.streams[0]
    folder = options.path.rpartition("/")[0] if options.path else folder_path(options.session_id, options.now_ms)
    meta = _meta_of(session, options)

    def chunks() -> Iterator[Buffer]:
        data = memoryview(stream.data)
        for at in range(0, len(data), _PIECE):
            yield data[at : at + _PIECE]

    files = (
        WrittenFile(f"{folder}/{META}", lambda: (meta,), role="side"),
        *_beside(session, stream.path.rpartition("/")[0], folder),
        WrittenFile(f"{folder}/{MESSAGES}", chunks, stream.mode),
    )
    return Written(options.session_id, files)


def _beside(session: Session, old: str, new: str) -> Iterator[WrittenFile]:
    """Yields the other files of a session's folder, in the folder of another."""
    for file in session.side:
        if file.path.startswith(f"{old}/") and not file.path.endswith(f"/{META}"):
            load = file.load
            yield WrittenFile(new + file.path[len(old) :], lambda load=load: (load(),), file.mode, "side")


def _meta_of(session: Session, options: WriteOptions) -> bytes:
    file: SideFile | None = next((f for f in session.side if f.path.endswith(f"/{META}")), None)
    data = bytes(file.load()) if file is not None else b""
    if not data.strip():
        return meta_file(session.messages, options)
    return b"".join(change_member(data, b'"session_id"', frozenset((spell(session.id),)), spell(options.session_id)))
