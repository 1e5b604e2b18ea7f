"""The formats that the laws are tested with, and the desk of the laws under the name by which the tests know it."""

from __future__ import annotations

from itertools import pairwise, permutations

from clew.formats.protocol import Format
from clew.formats.registry import all_formats
from clew.laws.desk import LONG, NOWHERE, Desk, complete, text_of
from clew_format_tiny import FORMAT as TINY
from lineformat import FORMAT as LINES

__all__ = ["LONG", "NOWHERE", "Desk", "complete", "formats_to_test", "pairs_to_test", "text_of"]


def formats_to_test() -> tuple[Format, ...]:
    """Returns the formats that are registered and write, and the two of the tests."""
    return (*(form for form in all_formats() if form.write is not None and form.splice is not None), TINY, LINES)


def pairs_to_test() -> list[tuple[Format, Format]]:
    """Returns ordered pairs of formats: all of them in the long form; else all of the first two and the tests' own,
    and for the others each with its neighbours."""
    forms = formats_to_test()
    pairs = list(permutations(forms, 2))
    if LONG:
        return pairs
    core = {"claude", "codex", TINY.name, LINES.name}
    near = {(a.name, b.name) for a, b in pairwise((*forms, forms[0]))}
    near |= {(b, a) for a, b in near}
    return [(a, b) for a, b in pairs if {a.name, b.name} <= core or (a.name, b.name) in near]
