"""The command line that resumes a session. Gemini CLI forks none, and leaves no sign of who holds one."""

from __future__ import annotations

from collections.abc import Mapping

from clew.formats.protocol import Found, Home, Owner


class GeminiResume:
    """How Gemini CLI is told to go on with a session; it looks only at those of the folder that it runs in."""

    program = "gemini"

    def argv(self, session_id: str, *, model: str = "", extra: tuple[str, ...] = ()) -> tuple[str, ...]:
        """Returns the command line that resumes a session."""
        return (self.program, "--resume", session_id, *(("-m", model) if model else ()), *extra)

    def fork_argv(self, session_id: str) -> tuple[str, ...]:
        """Returns nothing: the agent has no way to fork."""
        return ()

    def owner(self, found: Found, home: Home) -> Owner | None:
        """Returns None: the agent leaves no lock and no sign of itself."""
        return None

    def owners(self, home: Home) -> Mapping[str, Owner]:
        """Returns nothing."""
        return {}


RESUME = GeminiResume()
