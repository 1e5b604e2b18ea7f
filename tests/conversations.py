"""The conversations and stored sessions of the laws (`clew.laws`), under the name by which the tests know them."""

from clew.laws.conversations import *  # noqa: F403
from clew.laws.stored import *  # noqa: F403
