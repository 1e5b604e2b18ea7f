"""Threads between the store's rows and the lineage's values: found by a session's id, grown, and written back.

`convert`, `restore` and forks found in agents' files record what happened here; with the lease free they append at
the fence as it stands (docs/ownership.md, H8).
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from blake3 import blake3

from clew.conversation.loss import Loss
from clew.formats.protocol import Format
from clew.ids import AgentName, ChainKey, NativeId, ThreadId
from clew.lease.record import BareRecord, UnreadableRecord, read_record
from clew.lease.refusal import refusal
from clew.lease.transitions import append_free
from clew.lineage.chain import LINK_LIMIT, Chain, append
from clew.lineage.edge import Edge, StrandId, store_edge
from clew.lineage.handle import Handle, Namespace
from clew.lineage.link import Fence, Link, Origin, make_link_id
from clew.lineage.strand import Strand, store_strand
from clew.lineage.thread import Thread, add_edge, add_strand, assemble, own_ids
from clew.store.protocol import StrandRow
from clew.store.rows import make_conflict
from clew.verbs.context import Context


def namespace_of(form: Format) -> Namespace:
    """Returns the namespace of an agent's conversations."""
    return Namespace(form.traits.transport, form.name, form.traits.cursor_in_key)


def handle_of(form: Format, native_id: str) -> Handle:
    """Returns the handle of a session by its native id."""
    return Handle(namespace_of(form), native_id)


def thread_id_of(agent: str, native_id: str) -> ThreadId:
    """Returns the id of the thread that begins with a session: the same on every machine."""
    return ThreadId("t" + blake3(f"clew-thread-v1\x00{agent}\x00{native_id}".encode()).hexdigest()[:16])


def strand_id_of(agent: str, native_id: str) -> StrandId:
    """Returns clew's own id of what it keeps of a session."""
    return StrandId("s" + blake3(f"clew-strand-v1\x00{agent}\x00{native_id}".encode()).hexdigest()[:23])


class ThreadView(msgspec.Struct, frozen=True):
    """A thread as it is stored, with the revisions that a write expects; `joins`: a thread that a write adds."""

    thread: Thread
    revisions: dict[str, int]
    revision: int | None
    joins: ThreadId | None = None


def load_thread(ctx: Context, thread_id: ThreadId, joins: ThreadId | None = None) -> ThreadView | None:
    """Returns a stored thread, or None; with `joins` the two as one."""
    store = ctx.stores.records
    row = store.thread(thread_id)
    strands, edges = list(store.strands(thread=thread_id)), {edge.id: edge for edge in store.edges(thread=thread_id)}
    if joins is not None:
        strands = sorted([*strands, *store.strands(thread=joins)], key=lambda s: (s.created_at, s.id))
        edges |= {edge.id: edge for edge in store.edges(thread=joins)}
    if row is None and not strands:
        return None
    thread = assemble(thread_id, [(s.id, s.body) for s in strands], [edges[number].body for number in sorted(edges)])
    # Strands without their thread's row are damage that the next write mends.
    return ThreadView(thread, {s.id: s.revision for s in strands}, None if row is None else row.revision, joins)


def join_thread(ctx: Context, view: ThreadView | None, form: Format, native_id: str) -> ThreadView | None:
    """Returns the thread with that of a session which is of the same conversation, as a mark or a derived id said.

    Two threads come of one conversation where clew's data was lost and both its sessions were gone on with.
    """
    other = find_thread(ctx, form, native_id)
    if other is None:
        return view
    if view is None or other.thread.thread_id == view.thread.thread_id:
        return other  # as it is now: another process may have brought it there meanwhile
    # Whichever of the two is asked about, the same one stays: two processes never join them into each other.
    first, second = sorted((view, other), key=lambda one: (one.revision is None, one.thread.thread_id))
    return load_thread(ctx, first.thread.thread_id, second.thread.thread_id)


def find_thread(ctx: Context, form: Format, native_id: str) -> ThreadView | None:
    """Returns the thread that a session belongs to, or None."""
    if not ctx.stores.has_records:
        return None
    rows = ctx.stores.records.strands(root=handle_of(form, native_id).root)
    return load_thread(ctx, rows[-1].thread) if rows else None


def refuse_unreadable(view: ThreadView | None, form: Format, native_id: str) -> None:
    """Raises LeaseError (`record_unreadable`) where what clew keeps of a session is there and cannot be read: nothing
    can be written about it, so nothing is made of it."""
    own = strand_id_of(form.name, native_id)
    for lost in view.thread.unread if view is not None else ():
        if lost.strand_id == own:
            stored = read_record(lost.data)
            newer = stored.newer if isinstance(stored, UnreadableRecord) else None
            error = refusal("owner_reconciling", "record_unreadable", schema=newer, fault=lost.fault).error()
            error.concerns |= {"session": native_id, "agent": form.name}
            raise error


def find_strand(ctx: Context, form: Format, native_id: str) -> StrandRow | None:
    """Returns the row of what clew keeps of a session, or None: the one whose chain stands there, attached ones first.

    A conversation that went on elsewhere in its chain (a fork) is found by its root.
    """
    store = ctx.stores.records
    found = store.strands(agent=AgentName(form.name), native_id=NativeId(native_id))
    found = found or store.strands(root=handle_of(form, native_id).root)
    attached = [row for row in found if row.claim is not None]
    return next(iter(attached or found), None)


def append_return(ctx: Context, session_id: StrandId, form: Format, native_id: str) -> None:
    """Notes on a session's chain that clew wrote it again, at the fence as it stands; inside a transaction.

    Only while its lease is free: an owner that came meanwhile notes by itself what it has.
    """
    leases = ctx.leases
    view = leases.view(session_id)
    chain = view.record.chain if view.record is not None else None
    if isinstance(view.stored, BareRecord):
        chain = view.stored.strand.chain
    if chain is None or not view.lease.is_free:
        return
    handle, fence = handle_of(form, native_id), view.lease.fence
    link = Link(
        link_id=make_link_id(handle, fence, chain.link_ids),
        handle=handle,
        origin="resumed",
        minted_at_fence=fence,
        observed_at=ctx.now_ms(),
    )
    if len(chain.links) >= LINK_LIMIT:
        return
    if view.record is not None:
        standing = msgspec.structs.replace(leases.standing(view, fence), reconciled=True)
        grown = append_free(view.record, standing, link)
        if grown.chain != chain:
            leases.put(view, grown)
    elif isinstance(view.stored, BareRecord) and view.row is not None:
        _put_bare(ctx, view.row, view.stored.strand, append(chain, link))


def _put_bare(ctx: Context, row: StrandRow, strand: Strand, chain: Chain) -> None:
    head = chain.head
    if chain == strand.chain or head is None:
        return
    ctx.stores.records.put_strand(
        row.id,
        thread=row.thread,
        agent=row.agent,
        native_id=NativeId(head.handle.native_id),
        body=store_strand(msgspec.structs.replace(strand, chain=chain)),
        roots=_unique(chain.roots),
        expected=row.revision,
        now=ctx.clock.now(),
    )


def thread_ids(ctx: Context) -> dict[tuple[str, str], ThreadId]:
    """Returns the thread of every known session, by agent and native id at the head of its chain."""
    if not ctx.stores.has_records:
        return {}
    return {(row.agent, row.native_id): row.thread for row in ctx.stores.records.strands()}


def strand_of(view: ThreadView | None, form: Format, native_id: str) -> Strand | None:
    """Returns the strand of a thread whose chain holds that session, or None."""
    if view is None:
        return None
    root = handle_of(form, native_id).root
    for strand in view.thread.strands:
        if root in strand.chain.roots:
            return strand
    return None


def ids_of(view: ThreadView | None, strand: Strand | None, agent: str) -> frozenset[str]:
    """Returns the native ids by which `agent` knows the conversation of a strand."""
    if view is None or strand is None:
        return frozenset()
    return own_ids(view.thread, agent, of=strand.strand_id)


def make_strand(form: Format, native_id: str, origin: Origin, now_ms: int, cursor: str | None = None) -> Strand:
    """Returns a strand whose chain is one link."""
    handle = Handle(namespace_of(form), native_id, cursor)
    link = Link(
        link_id=make_link_id(handle, Fence(0)),
        handle=handle,
        origin=origin,
        minted_at_fence=Fence(0),
        observed_at=now_ms,
    )
    return Strand(strand_id_of(form.name, native_id), handle.namespace, append(Chain(), link))


def with_session(
    view: ThreadView | None, form: Format, native_id: str, origin: Origin, now_ms: int
) -> tuple[ThreadView, Strand]:
    """Returns the thread with a strand for that session, adding what is not there yet."""
    strand = strand_of(view, form, native_id)
    if view is not None and strand is not None:
        return view, strand
    refuse_unreadable(view, form, native_id)
    strand = make_strand(form, native_id, origin, now_ms)
    if view is None:
        view = ThreadView(Thread(thread_id_of(form.name, native_id)), {}, None)
    return msgspec.structs.replace(view, thread=add_strand(view.thread, strand)), strand


def with_edge(
    view: ThreadView,
    kind: str,
    source: Strand,
    target: Strand,
    *,
    now_ms: int,
    groups: int,
    cut: ChainKey | None,
    formats: tuple[str, str],
    restored: int = 0,
    rendered: int = 0,
    losses: tuple[Loss, ...] = (),
) -> ThreadView:
    """Returns the thread with one more edge between two of its strands."""
    one, other = source.chain.head, target.chain.head
    assert one is not None, "a strand begins with a link"
    assert other is not None, "a strand begins with a link"
    edge = Edge(
        kind=kind,  # type: ignore[arg-type]
        from_strand=source.strand_id,
        from_key=one.handle.key,
        to_strand=target.strand_id,
        to_key=other.handle.key,
        at=now_ms,
        groups=groups,
        cut=cut if groups else None,
        formats=formats,
        restored=restored,
        rendered=rendered,
        losses=losses,
    )
    return msgspec.structs.replace(view, thread=add_edge(view.thread, edge))


def save_thread(ctx: Context, before: ThreadView | None, after: ThreadView) -> None:
    """Writes what was added to a thread, in one transaction; raises Conflict when somebody else wrote meanwhile."""
    store = ctx.stores.records
    now = ctx.clock.now()
    old_strands = {s.strand_id: s for s in before.thread.strands} if before else {}
    old_edges = len(before.thread.edges) if before else 0
    thread = after.thread
    with store.transaction():
        if before is None or before.revision is None:
            store.put_thread(thread.thread_id, b"{}", expected=None, now=now)
        elif store.thread(thread.thread_id) is None:
            raise make_conflict("thread", thread.thread_id, before.revision, None)
        if after.joins is not None:
            store.join_thread(thread.thread_id, after.joins)
        for strand in thread.strands:
            if old_strands.get(strand.strand_id) == strand:
                continue
            head = strand.chain.head
            assert head is not None, "a strand begins with a link"
            store.put_strand(
                strand.strand_id,
                thread=thread.thread_id,
                agent=AgentName(strand.namespace.agent),
                native_id=NativeId(head.handle.native_id),
                body=store_strand(strand),
                roots=_unique(strand.chain.roots),
                expected=after.revisions.get(strand.strand_id),
                now=now,
            )
        for edge in thread.edges[old_edges:]:
            store.add_edge(
                edge.kind, from_strand=edge.from_strand, to_strand=edge.to_strand, body=store_edge(edge), now=now
            )


def _unique(roots: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(roots))
