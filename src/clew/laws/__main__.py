"""`python -m clew.laws NAME...`: the laws over formats that are registered under these names.

Further arguments that begin with `-` go to pytest; `CLEW_LAW=1` in the environment asks for forty times as many
examples.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from clew.errors import ClewError
from clew.laws import laws_of


class _Parameters:
    """The plugin that gives the laws their formats."""

    def __init__(self, names: list[str]) -> None:
        self.pytest_generate_tests = laws_of(*names)


def main(arguments: list[str]) -> int:
    """Runs the laws and returns pytest's exit status; 2 for names that stand for no format."""
    names = [word for word in arguments if not word.startswith("-")]
    if not names:
        sys.stderr.write("usage: python -m clew.laws NAME... [pytest options]\n")
        return 2
    try:
        plugin = _Parameters(names)
    except ClewError as error:
        sys.stderr.write(f"clew.laws: {error.message}\n{error.hint}\n")
        return 2
    suite = str(Path(__file__).with_name("suite.py"))
    options = [word for word in arguments if word.startswith("-")]
    return int(pytest.main([suite, "-q", "-p", "no:cacheprovider", *options], plugins=[plugin]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
