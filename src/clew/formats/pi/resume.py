"""The command lines that resume and fork a session. pi leaves no sign of who holds one.

They are run in the session's own folder: from another one pi asks whether to fork the session, and, without a
terminal, ends without having done anything.
"""

from __future__ import annotations

from collections.abc import Mapping

from clew.formats.protocol import Found, Home, Owner


class PiResume:
    """How pi is told to go on with a session."""

    program = "pi"

    def argv(self, session_id: str, *, model: str = "", extra: tuple[str, ...] = ()) -> tuple[str, ...]:
        """Returns the command line that resumes a session; it is run in the session's folder."""
        chosen = ("--model", model) if model else ()
        return (self.program, "--session", session_id, *chosen, *extra)

    def fork_argv(self, session_id: str) -> tuple[str, ...]:
        """Returns the command line that goes on in a copy of a session."""
        return (self.program, "--fork", session_id)

    def owner(self, found: Found, home: Home) -> Owner | None:
        """Returns None: pi takes no lock and writes no registry (two processes on one session both append)."""
        return None

    def owners(self, home: Home) -> Mapping[str, Owner]:
        """Returns nothing, for the same reason."""
        return {}
