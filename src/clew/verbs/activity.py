"""Whether an agent wrote anything since a session was reserved: the last doubt about a reservation without a process.

Looks at the times of the agent's own files, of that session where its id is known and of all its sessions where it is
not. An agent that keeps nothing where clew could look leaves the question open (None).
"""

from __future__ import annotations

from collections.abc import Callable

from clew.errors import ClewError
from clew.formats.registry import format_names, get_format
from clew.lease.record import Record
from clew.verbs.context import Context

_SLACK_NS = 2_000_000_000
"""File systems round their times: what is that near counts as later."""


def make_activity(ctx: Context) -> Callable[[Record], bool | None]:
    """Returns what tells whether an agent's files show activity since a record's reservation."""
    return lambda record: activity_since(ctx, record)


def activity_since(ctx: Context, record: Record) -> bool | None:
    """Tells whether the agent wrote since the lease was reserved; None where that cannot be seen."""
    since = record.lease.renewed_at
    agent = record.namespace.agent
    if since is None or agent not in format_names():
        return None
    head = record.chain.head
    try:
        form = get_format(agent)
        if not any(place.exists() for place in form.locate.places(ctx.home)):
            return None
        founds = list(form.locate.find(ctx.home))
    except (ClewError, OSError):
        return None
    if head is not None:
        founds = [found for found in founds if found.id == head.handle.native_id]
    return any(found.stamp[0] + _SLACK_NS >= since * 1_000_000 for found in founds)
