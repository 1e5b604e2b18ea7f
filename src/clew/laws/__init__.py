"""The laws of formats: what clew demands of every one of them, for its own tests and for those of other packages.

`python -m clew.laws NAME` tests the format that is registered under a name; `laws_of` does it inside a package's own
tests. `conversations` draws conversations, `stored` makes sessions of them, `suite` holds the laws of reading, writing
and coming home, `checks` those of formats of one file a session, `desk` is where sessions are kept meanwhile. Nothing
of clew imports this room: it needs pytest and Hypothesis, which `pip install "clew[laws]"` brings along.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import permutations

import pytest

from clew.errors import UnwritableContent
from clew.formats.protocol import Format
from clew.formats.registry import get_format

pytest.register_assert_rewrite("clew.laws.suite", "clew.laws.checks", "clew.laws.desk", "clew.laws.stored")

COMPANIONS = ("claude", "codex")
"""Agents through which the sessions of a format under test are carried."""


def laws_of(*names: str, through: Sequence[str] = COMPANIONS) -> Callable[[pytest.Metafunc], None]:
    """Returns the `pytest_generate_tests` that puts the registered formats of these names under the laws.

    Raises UnknownFormat for a name that no package registers, and for a format that does not load; UnwritableContent
    for a format that only reads, since the laws are about what it writes and reads back.
    """
    tested = tuple(get_format(name) for name in dict.fromkeys(names))
    for form in tested:
        if form.write is None or form.splice is None:
            raise UnwritableContent(
                f"{form.title} has no {'writer' if form.write is None else 'splice'} yet, and the laws need one",
                hint="Until then a reader is tested by hand; `write` and `splice` are steps 4 and 5 of the guide.",
                agent=form.name,
            )
    others = tuple(get_format(name) for name in through if name not in names)
    pairs = [pair for pair in permutations((*tested, *others), 2) if {*pair} & {*tested}]
    return parameters(tested, pairs, (*tested, *others))


def parameters(
    forms: Sequence[Format], pairs: Sequence[tuple[Format, Format]], ways: Sequence[Format] = ()
) -> Callable[[pytest.Metafunc], None]:
    """Returns the `pytest_generate_tests` that gives the laws these formats, pairs, and ways (no ways: the formats)."""

    def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
        if "form" in metafunc.fixturenames:
            metafunc.parametrize("form", forms, ids=[form.name for form in forms])
        if "pair" in metafunc.fixturenames:
            metafunc.parametrize("pair", pairs, ids=[f"{home.name}-{abroad.name}" for home, abroad in pairs])
        if "forms" in metafunc.fixturenames:
            metafunc.parametrize("forms", [tuple(ways or forms)], ids=["all"])

    return pytest_generate_tests
