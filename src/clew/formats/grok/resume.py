"""The command lines that resume and fork a session of Grok. The agent leaves no sign of who holds one."""

from __future__ import annotations

from collections.abc import Mapping

from clew.formats.protocol import Found, Home, Owner


class GrokResume:
    """How Grok is told to go on with a session."""

    program = "grok"

    def argv(self, session_id: str, *, model: str = "", extra: tuple[str, ...] = ()) -> tuple[str, ...]:
        """Returns the command line that resumes a session; it is run in the session's folder."""
        chosen = ("-m", model) if model else ()
        return (self.program, "-r", session_id, *chosen, *extra)

    def fork_argv(self, session_id: str) -> tuple[str, ...]:
        """Returns the command line that goes on in a copy of a session."""
        return (self.program, "-r", session_id, "--fork-session")

    def owner(self, found: Found, home: Home) -> Owner | None:
        """Returns None: the agent's locks are held while it writes only."""
        return None

    def owners(self, home: Home) -> Mapping[str, Owner]:
        """Returns nothing, for the same reason."""
        return {}
