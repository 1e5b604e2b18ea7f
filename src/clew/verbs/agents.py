"""`clew agents`: which agents' sessions are here, and what works with them."""

from __future__ import annotations

import msgspec

from clew.errors import ClewError
from clew.formats.registry import format_names, get_format
from clew.verbs.context import Context


class AgentRow(msgspec.Struct, frozen=True):
    """One agent: whether its place exists, how many sessions lie there, and what clew can do with them."""

    name: str
    title: str
    found: bool
    sessions: int
    read: bool
    write: bool
    verified: str
    places: tuple[str, ...]
    problem: str = ""


def agents(ctx: Context) -> list[AgentRow]:
    """Returns a row for every registered format; one that does not load says why."""
    rows: list[AgentRow] = []
    for name in format_names():
        try:
            form = get_format(name)
        except (ClewError, ImportError) as error:
            rows.append(AgentRow(name, name, False, 0, False, False, "", (), str(error)))
            continue
        places = form.locate.places(ctx.home)
        count = sum(1 for _ in form.locate.find(ctx.home))
        rows.append(
            AgentRow(
                name,
                form.title,
                any(place.exists() for place in places),
                count,
                True,
                form.write is not None and form.traits.writes,
                form.traits.verified,
                tuple(str(place) for place in places),
            )
        )
    return rows
