"""How a command ends when it neither finishes nor fails: its reader has left, or the user pressed Ctrl-C."""

from __future__ import annotations

from typing import Final

INTERRUPTED: Final = 130
"""The exit status after Ctrl-C."""


class ReaderGone(Exception):
    """Whoever read the output has closed it; the command ends quietly with status 0."""
