"""Capturing: a reading of a session kept in clew's own store, whole, with its side files and what it refers to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from clew.conversation.digest import bytes_digest, source_id
from clew.conversation.source import Session, SideFile, Source, Stream
from clew.conversation.walk import letting_go, session_keys
from clew.errors import ClewError, Conflict
from clew.formats.protocol import Format
from clew.formats.registry import format_names, get_format
from clew.ids import AgentName, CaptureId, ChainKey, Digest, NativeId, SourceId
from clew.residue.choose import Candidate, is_sound
from clew.residue.segments import Slice, cut_session, slice_segments
from clew.store.protocol import (
    UNKEYED,
    Capture,
    NewCapture,
    NewSegment,
    SideEntry,
    StreamEntry,
)
from clew.verbs.context import Context
from clew.verbs.reading import Opened


class Facts(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a capture remembers of its session for lists: it is shown when the agent has deleted the session."""

    cwd: str = ""
    title: str = ""
    first: str = ""
    created_ms: int | None = None
    updated_ms: int | None = None
    model: str = ""
    provider: str = ""
    helper: bool = False
    path: str = ""


class Kept(msgspec.Struct, frozen=True):
    """What keeping one session came to: the capture, and whether it is new."""

    agent: str
    session_id: str
    capture: int
    new: bool
    records: int
    size: int
    side_files: int
    cwd: str = ""
    title: str = ""


def capture_session(ctx: Context, opened: Opened) -> CaptureId:
    """Captures a session that was read; idempotent, and what an earlier capture holds already is only referred to."""
    return _capture(ctx, opened.format, opened.session, opened.keys, opened.source, set())


def _capture(
    ctx: Context, form: Format, session: Session, keys: tuple[ChainKey, ...], source: Source, seen: set[str]
) -> CaptureId:
    store = ctx.stores.residue
    agent, native = AgentName(form.name), NativeId(session.id) if session.id else None
    seen.add(session.id)
    refers = _capture_references(ctx, form, session, source, seen)
    origin = source_id(form.name, native, memoryview(session.stable_first))
    cuts = cut_session(session, keys)
    slices = list(letting_go(slice_segments(session.records, cuts), session.records.streams))
    base, shared = _shared(ctx, agent, origin, slices)
    new = NewCapture(
        agent=agent,
        session_id=native,
        source_id=origin,
        taken_at=ctx.clock.now(),
        streams=_stream_entries(session),
        facts=msgspec.json.encode(_facts(session)),
        refers=refers,
        message_count=sum(message.role != "tool" for message in session.history),
        source_record=_source_record(session),
    )
    try:
        return store.put_capture(
            new, _new_segments(session, slices, shared), _side_entries(session.side), base=base, shared=shared
        )
    except Conflict:  # the base was evicted or damaged meanwhile: then everything is stored
        return store.put_capture(new, _new_segments(session, slices, 0), _side_entries(session.side))


def _new_segments(session: Session, slices: Sequence[Slice], start: int) -> Iterator[NewSegment]:
    for part in letting_go(slices[start:], session.records.streams):
        yield NewSegment(part.key or UNKEYED, part.digest, part.lengths, part.data, part.end_of_source)


def _source_record(session: Session) -> int | None:
    if not session.stable_first:
        return None
    return 0 if len(session.records) and bytes(session.records[0]) == bytes(session.stable_first) else None


def _stream_entries(session: Session) -> tuple[StreamEntry, ...]:
    counts = session.records.counts()
    return tuple(
        StreamEntry(stream.path, stream.mode, len(memoryview(stream.data)), count)
        for stream, count in zip(session.records.streams, counts, strict=True)
    )


def _side_entries(side: tuple[SideFile, ...]) -> Iterator[tuple[SideEntry, bytes | memoryview]]:
    for file in side:
        data = memoryview(file.load())
        yield SideEntry(file.path, file.mode, len(data), bytes_digest(data)), data


def _shared(ctx: Context, agent: AgentName, origin: SourceId, slices: list[Slice]) -> tuple[CaptureId | None, int]:
    """Returns the newest capture of the same source and how many of its first segments are the same as now."""
    newest = ctx.stores.residue.newest(agent=agent, source_id=origin)
    if not newest:
        return None, 0
    base = newest[-1].id
    keys, digests = ctx.stores.residue.keys(base), ctx.stores.residue.digests(base)
    shared = 0
    for part, key, digest in zip(slices, keys, digests, strict=False):
        if (part.key or UNKEYED) != key or part.digest != digest or part.end_of_source:
            break
        shared += 1
    shared = min(shared, len(keys) - 1)  # the last one may have carried the end mark
    return (base, shared) if shared > 0 else (None, 0)


def _capture_references(
    ctx: Context, form: Format, session: Session, source: Source, seen: set[str]
) -> tuple[CaptureId, ...]:
    """Captures the sessions that this one takes messages from by reference, so that it can be read without them."""
    captures: list[CaptureId] = []
    for reference in session.references:
        if reference.relation not in ("forked", "reverted") or not reference.messages:
            continue
        if reference.session_id in seen or source.resolve is None:
            continue
        parent = source.resolve(reference.session_id)
        if parent is None:
            continue
        reading = form.read(parent)
        captures.append(_capture(ctx, form, reading, session_keys(reading), parent, seen))
    return tuple(captures)


def _facts(session: Session) -> Facts:
    first = next((m.text for m in session.history if m.role == "user" and m.origin == "user" and m.text), "")
    return Facts(
        session.cwd,
        session.title,
        first[:300],
        session.created_ms,
        session.updated_ms,
        session.model,
        session.provider,
        session.helper,
        session.records.streams[0].path if session.records.streams else "",
    )


def read_facts(capture: Capture) -> Facts:
    """Returns what a capture remembers of its session; nothing where that cannot be read."""
    try:
        return msgspec.json.decode(capture.facts, type=Facts)
    except msgspec.DecodeError:
        return Facts()


def candidates_for(ctx: Context, agent: str, first_key: ChainKey) -> list[Candidate]:
    """Returns the captures of `agent` whose conversation begins with that key, as the chooser wants them."""
    heads = ctx.stores.residue.heads(AgentName(agent), first_key)
    return [make_candidate(ctx, capture) for capture in heads]


def make_candidate(ctx: Context, capture: Capture) -> Candidate:
    """Returns one capture as the chooser wants it."""
    store = ctx.stores.residue
    keys = store.keys(capture.id)
    if keys and keys[-1] == UNKEYED:
        keys = keys[:-1]
    return Candidate(
        capture.id,
        capture.source_id,
        capture.session_id,
        keys,
        lambda first, last: store.segments(capture.id, first, last),
    )


def captured_bytes(ctx: Context, capture: Capture) -> tuple[Stream, ...]:
    """Returns the streams of a capture, every segment verified; raises ClewError naming the damaged segment."""
    datas: list[bytes] = []
    lengths: list[int] = []
    for number, segment in enumerate(ctx.stores.residue.segments(capture.id)):
        if not is_sound(segment):
            raise ClewError(
                f"capture {capture.id}: segment {number} is damaged in clew's store",
                code="damaged_segment",
                hint="`clew store check` lists all damage; an older capture may be whole: `clew restore --capture N`.",
                session=capture.session_id,
            )
        datas.append(segment.data or b"")
        lengths.extend(segment.lengths)
    text = b"".join(datas)
    if len(text) != sum(entry.size for entry in capture.streams):
        raise ClewError(
            f"capture {capture.id} holds {len(text)} bytes of the session, not all of it",
            code="damaged_segment",
            hint="`clew store check` lists all damage; an older capture may be whole: `clew restore --capture N`.",
            session=capture.session_id,
        )
    streams: list[Stream] = []
    at = 0
    for entry in capture.streams:
        streams.append(Stream(entry.path, text[at : at + entry.size], entry.mode))
        at += entry.size
    return tuple(streams)


def captured_source(ctx: Context, form: Format, session_id: str, capture: int | None = None) -> Source | None:
    """Returns the source of a session as its newest capture (or the one named) has it, or None."""
    from clew.verbs.reading import resolver

    store = ctx.stores.residue
    if capture is not None:
        chosen = store.capture(CaptureId(capture))
    else:
        captures = store.captures(agent=AgentName(form.name), session_id=NativeId(session_id))
        if not captures:
            return None
        chosen = captures[-1]
    facts = read_facts(chosen)
    return Source(
        captured_bytes(ctx, chosen),
        captured_side(ctx, chosen.id),
        resolve=resolver(ctx, form, ctx.home, None),
        hint_id=chosen.session_id or session_id,
        hint_cwd=facts.cwd,
    )


def captures_at(ctx: Context, path: Path, agent: str | None = None) -> tuple[Capture, ...]:
    """Returns the captures of sessions that lay at a path, oldest first: a file is known by it when it is gone, too.

    An agent that names sessions by their files has two of one id where two folders hold files of one name.
    """
    if not ctx.stores.has_residue:
        return ()
    wanted = path.parent.resolve() / path.name
    bases: dict[str, Path] = {}
    there: list[Capture] = []
    for capture in ctx.stores.residue.captures(agent=None if agent is None else AgentName(agent)):
        if capture.session_id and capture.streams and capture.agent in format_names():
            name, form = capture.streams[0].path, get_format(capture.agent)
            base = bases.setdefault(form.name, Path(form.locate.base(ctx.home)).resolve())
            if base / name == wanted:
                there.append(capture)
    return tuple(there)


def captured_side(ctx: Context, capture: CaptureId) -> tuple[SideFile, ...]:
    """Returns the side files of a capture; their bytes are loaded when asked for."""
    store = ctx.stores.residue

    def loader(digest: Digest) -> Callable[[], bytes]:
        return lambda: store.side_data(digest) or b""

    return tuple(
        SideFile(entry.path, entry.mode, entry.size, loader(entry.digest)) for entry in store.side_files(capture)
    )
