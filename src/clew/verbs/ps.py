"""`clew ps`: which sessions somebody has open, who, where, and what is known of it for certain.

Looks and writes nothing: a dead owner is told as such and evicted by whoever attaches next. Sessions that an agent
holds without clew's lease are listed too, by the agent's own sign.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec

from clew.errors import ClewError
from clew.formats.registry import all_formats
from clew.lease.lease import is_late
from clew.lease.record import Record, UnreadableRecord
from clew.lineage.edge import StrandId
from clew.verbs.context import Context
from clew.verbs.journaling import unconfirmed_of
from clew.verbs.leases import View, refusal_of

State = Literal["live", "opening", "exited", "stranded", "unproven", "elsewhere", "unreadable", "unleased"]
"""live: its owner is proved alive. opening: a living process is opening it. exited: its owner is proved dead.
stranded: it lives, but the clew process that held its transport is dead. unproven: nobody can tell from here.
elsewhere: another host's. unreadable: the record cannot be read. unleased: open in its agent, not through clew."""


class Live(msgspec.Struct, frozen=True):
    """One session that somebody has open, or may have. Times in ms; `here`: on this host.

    `reason` and `do` say why it cannot be opened and what the user can do; empty where it can.
    """

    agent: str
    session_id: str
    state: State
    pid: int | None = None
    host: str = ""
    here: bool = True
    holder_pid: int | None = None
    fence: int = 0
    cwd: str = ""
    thread: str = ""
    strand: str = ""
    renewed_at: int | None = None
    late: bool = False
    unconfirmed: int = 0
    reason: str = ""
    do: str = ""


def ps(ctx: Context) -> list[Live]:
    """Returns every session that is not free, leased ones first."""
    leased = list(_leased(ctx))
    known = {(row.agent, row.session_id) for row in leased}
    return leased + [row for row in _unleased(ctx) if (row.agent, row.session_id) not in known]


def held_here(ctx: Context) -> frozenset[tuple[str, str]]:
    """Returns the sessions, by agent and id, whose owner by clew's lease is proved alive on this machine."""
    if not ctx.stores.has_records:
        return frozenset()
    leases, held = ctx.leases, set[tuple[str, str]]()
    for row in leases.store.records(claims=("live",)):
        before = leases.view_row(StrandId(row.id), row)
        if before.record is None:
            continue
        if _state(leases.look(before), before.record, leases.here.host) in ("live", "stranded"):
            held.add((row.agent, row.native_id))
    return frozenset(held)


def _leased(ctx: Context) -> Iterator[Live]:
    if not ctx.stores.has_records:
        return
    leases = ctx.leases
    for row in leases.store.records():
        view = leases.look(leases.view_row(StrandId(row.id), row))
        before = leases.view_row(StrandId(row.id), row)
        if isinstance(view.stored, UnreadableRecord):
            told = refusal_of(view, leases.here)
            assert told is not None, "an unreadable record is refused"
            yield Live(
                str(row.agent),
                str(row.native_id),
                "unreadable",
                thread=str(row.thread),
                strand=row.id,
                reason=told.message,
                do=told.hint,
            )
        elif before.record is not None and not before.lease.is_free:
            yield _row(ctx, view, before.record)


def _row(ctx: Context, view: View, record: Record) -> Live:
    """Describes a lease as it is stored (`record`) by what looking at it came to (`view`)."""
    here = ctx.leases.here
    lease = record.lease
    refused = refusal_of(view, here)
    owner, holder, head = lease.owner, lease.holder, record.chain.head
    unconfirmed = unconfirmed_of(ctx.leases, record.session_id)
    return Live(
        record.namespace.agent,
        "" if head is None else head.handle.native_id,
        _state(view, record, here.host),
        None if owner is None else owner.pid,
        record.location.host,
        record.location.host == here.host,
        None if holder is None else holder.pid,
        lease.fence,
        record.location.workspace,
        str(view.thread or ""),
        record.session_id,
        lease.renewed_at,
        is_late(lease, ctx.now_ms()) and not lease.independent,
        len(unconfirmed),
        "" if refused is None else refused.message,
        _do(view, record, here.host) or ("" if refused is None else refused.hint),
    )


def _state(view: View, record: Record, here: str) -> State:
    if record.location.host != here:
        return "elsewhere"
    probed = view.probed
    if view.kind == "evicted":
        return "exited"
    if view.kind == "in_flight":
        return "opening"
    if probed is not None and record.lease.owner is not None and probed.subject.proves == "life":
        return "live" if view.kind == "kept" else "stranded"
    return "unproven"


def _do(view: View, record: Record, here: str) -> str:
    state = _state(view, record, here)
    if state == "stranded":
        return "`clew release` stops it; attaching does, too."
    if state == "elsewhere":
        return f"Quit it there; if that host is gone: `clew release --declare-gone {record.location.host}`."
    return ""


def _unleased(ctx: Context) -> Iterator[Live]:
    for form in all_formats():
        try:
            owners = form.resume.owners(ctx.home)
        except (ClewError, OSError):
            continue
        for session_id, owner in sorted(owners.items()):
            yield Live(form.name, session_id, "unleased", owner.pid or None)


__all__ = ["Live", "State", "held_here", "ps"]
