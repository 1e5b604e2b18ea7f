"""How the agent is started on a document, and who holds it: a file `owner` beside it with a process id."""

from __future__ import annotations

from clew.formats.protocol import Found, Home, Owner


class TinyResume:
    """Command lines of an agent that does not exist."""

    program = "tiny"

    def argv(self, session_id: str, *, model: str = "", extra: tuple[str, ...] = ()) -> tuple[str, ...]:
        return ("tiny", "resume", session_id, *(("--model", model) if model else ()), *extra)

    def fork_argv(self, session_id: str) -> tuple[str, ...]:
        return ("tiny", "fork", session_id)

    def owner(self, found: Found, home: Home) -> Owner | None:
        sign = found.path.parent / "owner"
        return Owner(int(sign.read_text()), "the owner file") if sign.is_file() else None
