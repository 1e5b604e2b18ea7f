"""`clew log`: the thread of a session: where it started, where it went, what came home, where it is and where it parts.

Reads the sessions as they are now, on the disk or as clew keeps them, and the thread's strands and edges. Divergence is
told by chain keys, never by time. Writes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

import msgspec

from clew.conversation.loss import Loss
from clew.errors import ClewError
from clew.formats.protocol import Found
from clew.formats.registry import format_names, get_format
from clew.ids import AgentName, ChainKey, NativeId
from clew.lineage.edge import Edge, StrandId
from clew.lineage.history import compare_strands, find_present, find_start, newest_strand
from clew.lineage.strand import Strand
from clew.lineage.thread import Thread, parent_edge
from clew.store.protocol import UNKEYED
from clew.verbs import lineage_rows as rows
from clew.verbs.capture import read_facts
from clew.verbs.context import Context
from clew.verbs.ps import Live, ps
from clew.verbs.reading import Opened, find_by_id, open_found
from clew.verbs.refer import open_session
from clew.verbs.summary import iso, title_of

What = Literal[
    "created", "adopted", "grown", "translated", "forked", "rolled_over", "replaced", "resumed", "superseded", "now"
]

_SAME_ACT_MS = 5_000
"""A link noted this near to an edge into its strand is part of the same act."""

FOLD = 4
"""So many resumes in a row, with nothing between them, are one entry."""


class LogStrand(msgspec.Struct, frozen=True):
    """One strand: a session of one agent, as it is now. `state`: there, live, kept (only by clew) or missing."""

    id: str
    agent: str
    session_id: str
    short: str
    state: Literal["there", "live", "kept", "missing", "unreadable"]
    messages: int = 0
    title: str = ""
    updated: str = ""
    path: str = ""
    pid: int | None = None
    detail: str = ""


class Entry(msgspec.Struct, frozen=True):
    """One row of the log, oldest first. `source` is the strand it came from; counts are messages; `at` is ISO 8601.

    `restored` came home byte for byte, `rendered` was written; `losses`: what the target could not say.
    `count`: how many resumes this entry stands for.
    """

    strand: str
    what: What
    at: str = ""
    source: str = ""
    messages: int | None = None
    restored: int = 0
    rendered: int = 0
    losses: tuple[Loss, ...] = ()
    count: int = 1
    detail: str = ""


class Parting(msgspec.Struct, frozen=True):
    """How two strands lie to each other by their chain keys: messages in common, and how many each has behind that."""

    first: str
    second: str
    relation: Literal["equal", "first_behind", "second_behind", "diverged"]
    common: int
    first_more: int
    second_more: int


class ThreadLog(msgspec.Struct, frozen=True):
    """The answer of `clew log`. `start`, `present` and `newest` are strands; `unread` counts what cannot be read."""

    thread: str
    strands: tuple[LogStrand, ...]
    entries: tuple[Entry, ...]
    start: str = ""
    present: str = ""
    newest: str = ""
    partings: tuple[Parting, ...] = ()
    unread: int = 0


class _State(msgspec.Struct, frozen=True):
    """What a strand's session says now."""

    strand: LogStrand
    keys: tuple[ChainKey, ...] = ()
    created_ms: int | None = None
    updated_ms: int | None = None


def log(ctx: Context, ref: str) -> ThreadLog:
    """Returns the thread that a session belongs to; one that belongs to none is a thread of its own."""
    opened = open_session(ctx, ref)
    view = rows.find_thread(ctx, opened.format, opened.session.id)
    if view is None:
        origin = opened.session.created_ms or ctx.now_ms()
        view, _ = rows.with_session(None, opened.format, opened.session.id, "adopted", origin)
    thread = view.thread
    owners = {(row.agent, row.session_id): row for row in ps(ctx) if row.state in ("live", "opening", "unleased")}
    states = _states(ctx, thread, opened, owners)
    keys = {strand_id: state.keys for strand_id, state in states.items() if state.keys}
    times = {strand_id: state.updated_ms for strand_id, state in states.items() if state.updated_ms}
    start, present, newest = find_start(thread), find_present(thread), newest_strand(thread, times)
    return ThreadLog(
        thread.thread_id,
        tuple(states[strand.strand_id].strand for strand in thread.strands),
        tuple(_entries(ctx, thread, states)),
        "" if start is None else start.strand.strand_id,
        "" if present is None else present.strand.strand_id,
        "" if newest is None else newest.strand_id,
        _partings(thread, keys),
        len(thread.unread) + len(thread.unread_edges),
    )


# --- the sessions as they are -----------------------------------------------------------------------------------


def _states(
    ctx: Context, thread: Thread, opened: Opened, owners: Mapping[tuple[str, str], Live]
) -> dict[StrandId, _State]:
    ids = {_native(strand) for strand in thread.strands}
    states: dict[StrandId, _State] = {}
    for strand in thread.strands:
        agent, native = strand.namespace.agent, _native(strand)
        short = _short(native, ids)
        owner = owners.get((agent, native))
        if (agent, native) == (opened.format.name, opened.session.id) and opened.found is not None:
            states[strand.strand_id] = _of_opened(strand, opened, short, owner)
        else:
            states[strand.strand_id] = _look_at(ctx, strand, short, owner)
    return states


def _look_at(ctx: Context, strand: Strand, short: str, owner: Live | None) -> _State:
    agent, native = strand.namespace.agent, _native(strand)
    if agent not in format_names():
        return _State(
            LogStrand(strand.strand_id, agent, native, short, "missing", detail="its agent is not known here")
        )
    form = get_format(agent)
    founds: tuple[Found, ...] = find_by_id(form, ctx.home, native)
    if founds:
        try:
            return _of_opened(strand, open_found(ctx, form, founds[0]), short, owner)
        except ClewError as error:
            path = str(founds[0].path)
            return _State(
                LogStrand(strand.strand_id, agent, native, short, "unreadable", path=path, detail=error.message)
            )
    return _of_capture(ctx, strand, short)


def _of_opened(strand: Strand, opened: Opened, short: str, owner: Live | None) -> _State:
    session = opened.session
    row = LogStrand(
        strand.strand_id,
        opened.format.name,
        session.id,
        short,
        "live" if owner is not None else "there",
        len(opened.keys),
        title_of(session),
        iso(session.updated_ms),
        "" if opened.found is None else str(opened.found.path),
        None if owner is None else owner.pid,
    )
    return _State(row, opened.keys, session.created_ms, session.updated_ms)


def _of_capture(ctx: Context, strand: Strand, short: str) -> _State:
    agent, native = strand.namespace.agent, _native(strand)
    store = ctx.stores.residue
    captures = store.captures(agent=AgentName(agent), session_id=NativeId(native)) if ctx.stores.has_residue else ()
    if not captures:
        return _State(LogStrand(strand.strand_id, agent, native, short, "missing", detail="gone, and never kept"))
    newest = captures[-1]
    keys = tuple(key for key in store.keys(newest.id) if key != UNKEYED)
    facts = read_facts(newest)
    row = LogStrand(
        strand.strand_id,
        agent,
        native,
        short,
        "kept",
        len(keys),
        facts.title,
        iso(facts.updated_ms),
        facts.path,
        detail=f"{agent} no longer has it; clew holds capture {newest.id}",
    )
    return _State(row, keys, facts.created_ms, facts.updated_ms)


def _native(strand: Strand) -> str:
    head = strand.chain.head
    return "" if head is None else head.handle.native_id


def _short(native: str, ids: set[str]) -> str:
    for size in range(4, len(native)):
        if not any(other != native and other.startswith(native[:size]) for other in ids):
            return native[:size]
    return native


# --- the rows of the log ----------------------------------------------------------------------------------------


class _Happened(msgspec.Struct, frozen=True):
    """One thing that happened, before it becomes an entry; sorted by time, then by the order it was noted in."""

    at: int
    order: int
    entry: Entry
    edge: Edge | None = None


def _entries(ctx: Context, thread: Thread, states: Mapping[StrandId, _State]) -> Iterator[Entry]:
    happened = sorted(_happened(thread, states), key=lambda one: (one.at, one.order))
    known: dict[str, int] = {}
    waiting: list[_Happened] = []
    for one in happened:
        if one.entry.what == "resumed" and (not waiting or waiting[-1].entry.strand == one.entry.strand):
            waiting.append(one)
            continue
        yield from _folded(waiting)
        waiting = [one] if one.entry.what == "resumed" else []
        if waiting:
            continue
        edge = one.edge
        if edge is not None and edge.from_strand is not None and edge.groups is not None:
            yield from _growth(ctx, states, edge.from_strand, known, edge.groups, one.at)
        if one.entry.messages is not None:
            known[one.entry.strand] = one.entry.messages
        yield one.entry
    yield from _folded(waiting)
    for strand in thread.strands:
        state = states[strand.strand_id]
        more = state.strand.messages - known.get(strand.strand_id, state.strand.messages)
        if more > 0:
            yield Entry(strand.strand_id, "grown", state.strand.updated, messages=more)
    for strand in thread.strands:
        row = states[strand.strand_id].strand
        if row.state == "live":
            yield Entry(strand.strand_id, "now", iso(ctx.now_ms()), detail=f"process {row.pid}" if row.pid else "")


def _happened(thread: Thread, states: Mapping[StrandId, _State]) -> Iterator[_Happened]:
    for number, strand in enumerate(thread.strands):
        yield from _of_links(thread, strand, number, states[strand.strand_id])
    for number, edge in enumerate(thread.edges, len(thread.strands) * 1000):
        if edge.to_strand not in states:
            continue
        entry = Entry(
            edge.to_strand,
            edge.kind,
            iso(edge.at),
            edge.from_strand or "",
            edge.groups,
            edge.restored or 0,
            edge.rendered or 0,
            edge.losses,
        )
        yield _Happened(edge.at, number, entry, edge)


def _of_links(thread: Thread, strand: Strand, number: int, state: _State) -> Iterator[_Happened]:
    into = [edge.at for edge in thread.edges if edge.to_strand == strand.strand_id]
    for place, link in enumerate(strand.chain.links):
        order, at = number * 1000 + place, link.observed_at
        if link.supersedes is not None:
            yield _Happened(at, order, Entry(strand.strand_id, "superseded", iso(at)))
        if place == 0:
            if parent_edge(thread, strand.strand_id) is not None:
                continue
            if link.origin == "adopted" and state.created_ms is not None:
                at = min(at, state.created_ms)
            first = next((e.groups for e in thread.edges if e.from_strand == strand.strand_id), None)
            messages = state.strand.messages if first is None else first
            what: What = "created" if link.origin == "created" else "adopted"
            yield _Happened(at, order, Entry(strand.strand_id, what, iso(at), messages=messages))
        elif link.origin == "resumed":
            if not any(abs(at - other) <= _SAME_ACT_MS for other in into):
                yield _Happened(at, order, Entry(strand.strand_id, "resumed", iso(at)))
        elif link.origin == "forked":
            yield _Happened(at, order, Entry(strand.strand_id, "forked", iso(at)))
        elif link.replaces is not None:
            detail = link.replaces.reason
            yield _Happened(at, order, Entry(strand.strand_id, "replaced", iso(at), detail=detail))


def _folded(waiting: Sequence[_Happened]) -> Iterator[Entry]:
    if len(waiting) < FOLD:
        yield from (one.entry for one in waiting)
        return
    yield msgspec.structs.replace(waiting[-1].entry, count=len(waiting))


def _growth(
    ctx: Context,
    states: Mapping[StrandId, _State],
    strand: StrandId,
    known: dict[str, int],
    groups: int,
    at: int,
) -> Iterator[Entry]:
    """Yields what was said on a strand since the last thing known of it, before it went out from there."""
    before = known.get(strand)
    known[strand] = groups
    if before is None or groups <= before or strand not in states:
        return
    row = states[strand].strand
    said_at = at
    if ctx.stores.has_residue:
        for capture in ctx.stores.residue.captures(agent=AgentName(row.agent), session_id=NativeId(row.session_id)):
            if capture.taken_at.timestamp() * 1000 <= at + _SAME_ACT_MS:
                said_at = read_facts(capture).updated_ms or said_at
    yield Entry(strand, "grown", iso(min(said_at, at)), messages=groups - before)


def _partings(thread: Thread, keys: Mapping[StrandId, tuple[ChainKey, ...]]) -> tuple[Parting, ...]:
    return tuple(
        Parting(
            pair.first,
            pair.second,
            pair.divergence.relation,
            pair.divergence.common,
            len(keys[pair.first]) - pair.divergence.common,
            len(keys[pair.second]) - pair.divergence.common,
        )
        for pair in compare_strands(thread, keys)
    )
