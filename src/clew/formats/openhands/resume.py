"""The command line that resumes a conversation of OpenHands. The agent leaves no sign of who holds one.

Its lock lies on the events for the moment of an append only.
"""

from __future__ import annotations

from collections.abc import Mapping

from clew.formats.protocol import Found, Home, Owner


class OpenHandsResume:
    """How OpenHands is told to go on with a conversation."""

    program = "openhands"

    def argv(self, session_id: str, *, model: str = "", extra: tuple[str, ...] = ()) -> tuple[str, ...]:
        """Returns the command line that resumes a conversation; its model is that of the settings."""
        return (self.program, "--resume", session_id, *extra)

    def fork_argv(self, session_id: str) -> tuple[str, ...]:
        """Returns nothing: the command line forks no conversation."""
        return ()

    def owner(self, found: Found, home: Home) -> Owner | None:
        """Returns None: there is no sign to look for."""
        return None

    def owners(self, home: Home) -> Mapping[str, Owner]:
        """Returns nothing, for the same reason."""
        return {}
