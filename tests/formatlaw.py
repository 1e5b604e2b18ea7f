"""The checks of the laws (`clew.laws.checks`), under the name by which the tests know them."""

from clew.laws.checks import *  # noqa: F403
