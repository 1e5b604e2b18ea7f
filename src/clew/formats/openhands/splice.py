"""Goes on behind restored events, and makes a conversation's events those of another conversation.

A splice changes no file that is there: what comes is new files behind the last number. They may be placed one after
the other: whatever was placed before an interruption is a conversation that goes less far, and a reply whose results
are missing is put there anew, in the same files. A rebase changes the id in
`base_state.json`, the only place that has it besides the folder's name.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from clew.conversation.model import Message
from clew.conversation.source import Session, SideFile, Stream
from clew.errors import UnwritableContent
from clew.formats import raws
from clew.formats.openhands import records as rec
from clew.formats.openhands.content import action_mark
from clew.formats.openhands.folder import STATE, folder_of, number_of, session_folder
from clew.formats.openhands.writer import Envelope, Steps, holds_image, no_image, state_file, write
from clew.formats.outline import WrittenCall, call_names, count_losses
from clew.formats.protocol import WriteOptions, Written, WrittenFile
from clew.formats.spelling import change_member, spell


class Tail(msgspec.Struct, frozen=True):
    """What events leave to go on from: ids of calls, the open ones of the last reply with their events, and how many
    events stand: behind them there are only those of a reply that was broken off while it was placed."""

    calls: frozenset[str]
    open: tuple[tuple[WrittenCall, str], ...]
    count: int


class Batch:
    """The calls of the last reply: where it begins, and those whose results clew wrote behind them."""

    def __init__(self) -> None:
        self.reply, self.start = "", 0
        self.calls: set[str] = set()
        self.promised: set[str] = set()

    def act(self, reply: str, place: int, call_id: str, *, promised: bool) -> None:
        """Takes the next call."""
        if not self.calls or reply != self.reply:
            self.reply, self.start = reply, place
            self.calls, self.promised = set(), set()
        self.calls.add(call_id)
        if promised:
            self.promised.add(call_id)


def splice(prefix: Session, messages: Sequence[Message], options: WriteOptions) -> Written:
    """Appends messages in normal form to restored events; raises UnwritableContent behind a gap in their numbers."""
    streams = prefix.records.streams
    if not streams:
        return write(messages, options)
    tail = read_tail(prefix)
    session_id = prefix.id or options.session_id
    folder = session_folder(streams[-1].path)
    names = call_names((*prefix.messages, *messages))
    envelope = Envelope(tail.calls, names, first=tail.count, time_ms=prefix.updated_ms)
    new = tuple(Steps(messages, options, envelope, session_id).files(folder, tail.open))
    old = [stream for stream in streams if (number_of(stream.path) or 0) < tail.count] if new else streams
    _check_torn(prefix, {stream.path for stream in streams[len(old) :]}, {file.path for file in new})
    losses, invented = count_losses(messages, holds_image, no_image)
    files = (*map(_as_it_is, old), *new, *_missing_state(prefix, messages, folder, options))
    return Written(session_id, files, losses, invented + len(tail.open))


def _check_torn(prefix: Session, torn: set[str], new: set[str]) -> None:
    if not torn <= new:
        raise UnwritableContent(
            f"session {prefix.id} ends in a reply that was broken off; nothing can be appended to it",
            code="unsound",
            hint="Resume it in OpenHands once, or use --new: a second session with the whole conversation.",
            session=prefix.id,
        )


def _missing_state(
    prefix: Session, messages: Sequence[Message], folder: str, options: WriteOptions
) -> Iterator[WrittenFile]:
    """Yields the state of a conversation whose placing was broken off before it."""
    if prefix.id and not any(file.path.endswith(f"/{STATE}") for file in prefix.side):
        told = msgspec.structs.replace(options, session_id=prefix.id, cwd=options.cwd or prefix.cwd)
        state = state_file(told, (*prefix.messages, *messages))
        yield WrittenFile(f"{folder}/{STATE}", lambda: (state,), role="side")


def _as_it_is(stream: Stream) -> WrittenFile:
    return WrittenFile(stream.path, lambda: (stream.data,), stream.mode)


def read_tail(prefix: Session) -> Tail:
    """Reads all events once for what they leave open."""
    ids: set[str] = set()
    waiting: dict[str, tuple[WrittenCall, str]] = {}
    batch = Batch()
    for place, stream in enumerate(prefix.records.streams):
        number = number_of(stream.path)
        if number is not None and number != place:
            raise UnwritableContent(
                f"{stream.path}: its number is not the one behind the last; nothing can be appended to it",
                code="unsound",
                hint="Use --new: a second session with the whole conversation.",
                session=prefix.id,
                path=stream.path,
            )
        event = _event(stream)
        kind = raws.as_word(event.kind)
        if kind == rec.ACTION:
            call = rec.TOOL_CALLS.one(event.tool_call) or rec.ToolCall()
            call_id = raws.as_word(call.id) or raws.as_word(event.tool_call_id)
            ids.add(call_id)
            waiting[call_id] = WrittenCall(call_id, raws.as_word(call.name), b"{}"), raws.as_word(event.id)
            mark = action_mark(call.clew)
            batch.act(raws.as_word(event.llm_response_id), place, call_id, promised=mark is not None and mark.answered)
        elif kind in rec.ANSWERS:
            waiting.pop(raws.as_word(event.tool_call_id), None)
            batch.promised.discard(raws.as_word(event.tool_call_id))
        elif kind in rec.SENT:
            waiting, batch = {}, Batch()
    if batch.promised:
        return Tail(frozenset(ids - batch.calls), (), batch.start)
    return Tail(frozenset(ids), tuple(waiting.values()), len(prefix.records.streams))


def _event(stream: Stream) -> rec.Event:
    try:
        return rec.ODD_EVENTS.decode(bytes(stream.data))
    except raws.DECODE_ERRORS:
        return rec.Event()


def rebase(session: Session, options: WriteOptions) -> Written:
    """Returns the events as they are in the folder of another id, and the state with that id in it."""
    streams = session.records.streams
    old = session_folder(streams[0].path) if streams else ""
    new = folder_of(options.session_id)
    state = _state_of(session, options)
    files = (
        *(_moved(stream, old, new) for stream in streams),
        *_beside(session, old, new),
        WrittenFile(f"{new}/{STATE}", lambda: (state,), role="side"),
    )
    return Written(options.session_id, files)


def _moved(stream: Stream, old: str, new: str) -> WrittenFile:
    return WrittenFile(new + stream.path[len(old) :], lambda: (stream.data,), stream.mode)


def _beside(session: Session, old: str, new: str) -> Iterator[WrittenFile]:
    for file in session.side:
        if file.path.startswith(f"{old}/") and file.path != f"{old}/{STATE}":
            load = file.load
            yield WrittenFile(new + file.path[len(old) :], lambda load=load: (load(),), file.mode, "side")


def _state_of(session: Session, options: WriteOptions) -> bytes:
    file: SideFile | None = next((f for f in session.side if f.path.endswith(f"/{STATE}")), None)
    data = bytes(file.load()) if file is not None else b""
    if not data.strip():
        return state_file(options, session.messages)
    data = b"".join(change_member(data, b'"id"', frozenset((spell(session.id),)), spell(options.session_id)))
    state = rec.STATES.one(msgspec.Raw(data.strip()))
    place = raws.as_word(state.persistence_dir) if state is not None else ""
    moved = place.replace(folder_of(session.id), folder_of(options.session_id)) if place else ""
    return b"".join(change_member(data, b'"persistence_dir"', frozenset((spell(place),)), spell(moved)))
