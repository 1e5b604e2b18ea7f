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


def _rank(point: EntryPoint) -> tuple[str, bool, str]:
    """Orders entry points so that of several with one name the last is ours, else always the same."""
    return (point.name, _package(point) == "clew", point.value)


@cache
def _points() -> dict[str, EntryPoint]:
    return {point.name: point for point in sorted(entry_points(group=GROUP), key=_rank)}


def format_names() -> tuple[str, ...]:
    """Returns the names of all registered formats, sorted."""
    return tuple(_points())


@cache
def get_format(name: str) -> Format:
    """Returns the format of agent `name`; raises UnknownFormat with the names that exist, or why it does not load."""
    point = _points().get(name)
    if point is None:
        raise UnknownFormat(f"no agent is called {name!r}", hint="Known: " + ", ".join(format_names()), agent=name)
    try:
        found = point.load()
    except Exception as error:  # what another package raises while it loads is not ours to foresee
        raise UnknownFormat(
            f"the format of {name!r} ({point.value}) does not load: {type(error).__name__}: {error}",
            hint=f"Install {_package(point)} again, or remove it; the other agents are not concerned.",
            agent=name,
        ) from error
    if not isinstance(found, Format):
        raise UnknownFormat(f"the entry point {point.value!r} is not a clew format", agent=name)
    return found


def _package(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else "its package"


def all_formats() -> tuple[Format, ...]:
    """Returns every registered format that loads, sorted by name."""
    return _load_all()[0]


def broken_formats() -> tuple[UnknownFormat, ...]:
    """Returns, for every registered format that does not load, the error that says why."""
    return _load_all()[1]


@cache
def _load_all() -> tuple[tuple[Format, ...], tuple[UnknownFormat, ...]]:
    found: list[Format] = []
    broken: list[UnknownFormat] = []
    for name in format_names():
        try:
            found.append(get_format(name))
        except UnknownFormat as error:
            broken.append(error)
    return tuple(found), tuple(broken)


def forget_formats() -> None:
    """Looks for entry points anew at the next question: for a process in which packages come and go."""
    for function in (_points, get_format, _load_all):
        function.cache_clear()
