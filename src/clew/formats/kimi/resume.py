"""The command lines that resume and fork a session of Kimi Code. The agent leaves no sign of who holds one."""

from __future__ import annotations

from collections.abc import Mapping

from clew.formats.protocol import Found, Home, Owner


class KimiResume:
    """How Kimi Code is told to go on with a session."""

    program = "kimi"

    def argv(self, session_id: str, *, model: str = "", extra: tuple[str, ...] = ()) -> tuple[str, ...]:
        """Returns the command line that resumes a session; it is run in the session's folder."""
        chosen = ("-m", model) if model else ()
        return (self.program, "-S", session_id, *chosen, *extra)

    def fork_argv(self, session_id: str) -> tuple[str, ...]:
        """Returns the command line that copies a session to a new one."""
        return (self.program, "fork", session_id)

    def owner(self, found: Found, home: Home) -> Owner | None:
        """Returns None: there is no lock and no registry to ask."""
        return None

    def owners(self, home: Home) -> Mapping[str, Owner]:
        """Returns nothing, for the same reason."""
        return {}
