"""The command lines that resume and fork a session. Droid leaves no sign of who holds one."""

from __future__ import annotations

from collections.abc import Mapping

from clew.formats.protocol import Found, Home, Owner


class DroidResume:
    """How Droid is told to go on with a session."""

    program = "droid"

    def argv(self, session_id: str, *, model: str = "", extra: tuple[str, ...] = ()) -> tuple[str, ...]:
        """Returns the command line that resumes a session; it is run in the session's folder.

        The terminal program takes its model from its settings; it has no option for one.
        """
        return (self.program, "--resume", session_id, *extra)

    def fork_argv(self, session_id: str) -> tuple[str, ...]:
        """Returns the command line that goes on in a copy of a session."""
        return (self.program, "--fork", session_id)

    def owner(self, found: Found, home: Home) -> Owner | None:
        """Returns None: Droid takes no lock and writes no registry (turns of two processes interleave)."""
        return None

    def owners(self, home: Home) -> Mapping[str, Owner]:
        """Returns nothing, for the same reason."""
        return {}
