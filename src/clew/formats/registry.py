"""The one visible table from agent name to format, filled through the entry point group `clew.formats`.

Built-in formats come in by the same door as those of other packages. A format that fails to load is reported by
name and hides none of the others.
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import EntryPoint, entry_points

from clew.errors import UnknownFormat
from clew.formats.protocol import Format

GROUP = "clew.formats"


@cache
def _points() -> dict[str, EntryPoint]:
    return {point.name: point for point in sorted(entry_points(group=GROUP), key=lambda p: p.name)}


def format_names() -> tuple[str, ...]:
    """Returns the names of all registered formats, sorted."""
    return tuple(_points())


@cache
def get_format(name: str) -> Format:
    """Returns the format of agent `name`; raises UnknownFormat with the names that exist."""
    point = _points().get(name)
    if point is None:
        raise UnknownFormat(f"no agent is called {name!r}", hint="Known: " + ", ".join(format_names()), agent=name)
    found = point.load()
    if not isinstance(found, Format):
        raise UnknownFormat(f"the entry point {point.value!r} is not a clew format", agent=name)
    return found


def all_formats() -> tuple[Format, ...]:
    """Returns every registered format that loads, sorted by name."""
    return tuple(get_format(name) for name in format_names())
