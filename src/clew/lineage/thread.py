"""A thread: one logical conversation over all the agents that carried it.

A thread is a set of strands, each with one chain in one namespace, and a list of edges in the order they were added.
Promises: edges are only added, their times never fall along the list (a clock that was set back is raised), and no
strand descends from itself. A strand or an edge that cannot be read is carried as it is and takes part in nothing.
Strands continued separately are diverged: nothing here merges them. Does not read sessions: chain keys and the times
of last messages are handed in.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from clew.errors import LeaseError
from clew.ids import ThreadId
from clew.lineage.edge import Edge, StrandId, edge_fault, load_edge
from clew.lineage.refusal import invalid
from clew.lineage.stored import Malformed
from clew.lineage.strand import Strand, UnreadableStrand, load_strand


class Thread(msgspec.Struct, frozen=True):
    """One logical conversation: its strands in order of their creation, its edges in order of their adding."""

    thread_id: ThreadId
    strands: tuple[Strand, ...] = ()
    edges: tuple[Edge, ...] = ()
    unread: tuple[UnreadableStrand, ...] = ()
    unread_edges: tuple[bytes, ...] = ()

    def strand(self, strand_id: StrandId | None) -> Strand | None:
        """Returns the readable strand of that id, or None."""
        return next((strand for strand in self.strands if strand.strand_id == strand_id), None)


# --- growing ----------------------------------------------------------------------------------------------------


def add_strand(thread: Thread, strand: Strand, edge: Edge | None = None) -> Thread:
    """Returns the thread with a new strand, and with the edge that leads to it where it came from another one.

    Raises LeaseError `handle_invalid` when the strand is there already or the edge does not fit.
    """
    taken = {known.strand_id for known in thread.strands} | {lost.strand_id for lost in thread.unread}
    if strand.strand_id in taken:
        raise invalid(f"strand {strand.strand_id} is in the thread already", strand=strand.strand_id)
    if edge is not None and edge.to_strand != strand.strand_id:
        raise invalid("the edge of a new strand leads to that strand", strand=strand.strand_id)
    longer = msgspec.structs.replace(thread, strands=(*thread.strands, strand))
    return longer if edge is None else add_edge(longer, edge)


def put_strand(thread: Thread, strand: Strand) -> Thread:
    """Returns the thread with a strand in its newer state (its chain grew); raises LeaseError when it is not there."""
    if thread.strand(strand.strand_id) is None:
        raise invalid(f"strand {strand.strand_id} is not in the thread", strand=strand.strand_id)
    strands = tuple(strand if old.strand_id == strand.strand_id else old for old in thread.strands)
    return msgspec.structs.replace(thread, strands=strands)


def add_edge(thread: Thread, edge: Edge) -> Thread:
    """Returns the thread with one more edge; its time is raised to that of the last one where a clock went back.

    Raises LeaseError `handle_invalid` when the edge is malformed, names a strand or key that is not there, or would
    give a strand a second origin or make it descend from itself.
    """
    fault = edge_fault(edge) or _place_fault(thread, edge) or _descent_fault(thread, edge)
    if fault:
        raise invalid(fault, strand=edge.to_strand)
    if thread.edges and edge.at < thread.edges[-1].at:
        edge = msgspec.structs.replace(edge, at=thread.edges[-1].at)
    return msgspec.structs.replace(thread, edges=(*thread.edges, edge))


def parent_edge(thread: Thread, strand_id: StrandId) -> Edge | None:
    """Returns the edge by which the strand came to be; None for one that began by itself.

    A fork, a roll-over or a replacement decides; else the first translation into it, unless something had gone out
    of the strand before.
    """
    for edge in thread.edges:
        if edge.kind != "translated" and edge.to_strand == strand_id != edge.from_strand:
            return edge
    for edge in thread.edges:
        if edge.from_strand == strand_id:
            return None
        if edge.to_strand == strand_id:
            return edge
    return None


# --- stored rows --------------------


def assemble(thread_id: ThreadId, strands: Iterable[tuple[str, bytes]], edges: Iterable[bytes]) -> Thread:
    """Returns the thread made of stored strands (id and bytes, oldest first) and stored edges (in order of adding).

    Never raises: what cannot be read is carried in `unread` and `unread_edges`.
    """
    read: list[Strand] = []
    unread: list[UnreadableStrand] = []
    for strand_id, data in strands:
        try:
            strand = load_strand(data)
            if strand.strand_id != strand_id:
                raise invalid(f"stored under {strand_id}, but it is {strand.strand_id}")
            read.append(strand)
        except LeaseError as error:
            unread.append(UnreadableStrand(StrandId(strand_id), data, error.message))
    good, bad = _read_edges(edges)
    return Thread(thread_id, tuple(read), good, tuple(unread), bad)


def _read_edges(edges: Iterable[bytes]) -> tuple[tuple[Edge, ...], tuple[bytes, ...]]:
    good: list[Edge] = []
    bad: list[bytes] = []
    for data in edges:
        try:
            edge = load_edge(data)
        except Malformed:
            bad.append(data)
            continue
        good.append(edge)
    return tuple(good), tuple(bad)


# --- own ids ----------------------------------------------------------------------------------------------------


def own_ids(
    thread: Thread, agent: str, before_group: int | None = None, *, of: StrandId | None = None
) -> frozenset[str]:
    """Returns the native ids by which `agent` knows this conversation: whose stored records may come back.

    `of` is the strand whose conversation is asked about (its chain's head); without it, the one where the thread is
    now. All ids on strands that translations, roll-overs and replacements connect count. A fork is another
    conversation: across it, in either direction, ids count only when all groups in question lie before the fork
    point, which is what `before_group` says: the groups 0 to before_group - 1 are in question, None for all there
    will ever be. The caller writes what it found across a fork only into a *new* session (docs/residue.md, 7).
    """
    strand = thread.strand(of) if of is not None else latest_strand(thread)
    if strand is None:
        return frozenset()
    start: _Piece = (strand.strand_id, _piece_of_link(strand, len(strand.chain.links) - 1))
    reached, waiting = {start}, [start]
    ways = _ways(thread)
    while waiting:
        piece = waiting.pop()
        for one, other, limit in ways:
            if limit is not None and (before_group is None or before_group > limit):
                continue
            for near, far in ((one, other), (other, one)):
                if near == piece and far not in reached:
                    reached.add(far)
                    waiting.append(far)
    return frozenset(
        link.handle.native_id
        for known in thread.strands
        if known.namespace.agent == agent
        for number, link in enumerate(known.chain.links)
        if (known.strand_id, _piece_of_link(known, number)) in reached
    )


def latest_strand(thread: Thread) -> Strand | None:
    """Returns the strand on which something happened last: a link observed, or an edge into it; None for none."""
    best: Strand | None = None
    best_at = 0
    for strand in thread.strands:
        at = activity_at(thread, strand)
        if best is None or at >= best_at:
            best, best_at = strand, at
    return best


def activity_at(thread: Thread, strand: Strand) -> int:
    """Returns when something happened last on a strand, in ms: a link observed, or an edge into it; 0 for never."""
    seen = [link.observed_at for link in strand.chain.links]
    return max([0, *seen, *(edge.at for edge in thread.edges if edge.to_strand == strand.strand_id)])


_Piece = tuple[StrandId, int]
"""A strand's chain cut at its forks: the piece's number, from 0. Within a piece it is one conversation."""

_NEVER: Final = -1


def _piece_of_link(strand: Strand, number: int) -> int:
    return sum(link.origin == "forked" for link in strand.chain.links[: number + 1])


def _piece_of_key(strand: Strand | None, key: str) -> _Piece | None:
    """Returns the newest piece in which the key stands; an unsaved creation's key is that of the link in its place."""
    if strand is None:
        return None
    for number in range(len(strand.chain.links) - 1, -1, -1):
        link = strand.chain.links[number]
        if key in (link.handle.key, link.supersedes):
            return strand.strand_id, _piece_of_link(strand, number)
    return None


def _ways(thread: Thread) -> list[tuple[_Piece, _Piece, int | None]]:
    """Returns how pieces hang together: two pieces, and up to how many groups (None: all) they are one conversation."""
    ways: list[tuple[_Piece, _Piece, int | None]] = []
    for edge in thread.edges:
        one = _piece_of_key(thread.strand(edge.from_strand), edge.from_key)
        other = _piece_of_key(thread.strand(edge.to_strand), edge.to_key)
        if one is None or other is None or one == other:
            continue
        limit = None
        if edge.kind == "forked":
            limit = _NEVER if edge.groups is None else edge.groups
        ways.append((one, other, limit))
    return ways


# --- checks -----------------------------------------------------------------------------------------------------


def _place_fault(thread: Thread, edge: Edge) -> str:
    target = thread.strand(edge.to_strand)
    if target is None or edge.to_key not in target.chain.keys:
        return f"no link {edge.to_key[:80]} on strand {edge.to_strand}"
    if edge.from_strand is None:
        return ""
    source = thread.strand(edge.from_strand)
    if source is None or edge.from_key not in source.chain.keys:
        return f"no link {edge.from_key[:80]} on strand {edge.from_strand}"
    return ""


def _descent_fault(thread: Thread, edge: Edge) -> str:
    """A translation may lead back to where it came from; the other kinds begin a strand, and do it once."""
    if edge.kind == "translated" or edge.from_strand == edge.to_strand:
        return ""
    origin = parent_edge(thread, edge.to_strand)
    if origin is not None and origin.kind != "translated":
        return f"strand {edge.to_strand} has an origin already"
    above, seen = edge.from_strand, {edge.to_strand}
    while above is not None:
        if above in seen:
            return f"strand {edge.to_strand} would descend from itself"
        seen.add(above)
        origin = parent_edge(thread, above)
        above = None if origin is None else origin.from_strand
    return ""
