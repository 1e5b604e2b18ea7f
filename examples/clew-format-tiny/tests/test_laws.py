"""The laws of clew over the format as it is installed: through its entry point."""

from __future__ import annotations

from clew.laws import laws_of
from clew.laws.suite import *  # noqa: F403 - the laws themselves

pytest_generate_tests = laws_of("tiny")
