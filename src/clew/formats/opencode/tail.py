"""What the rows of a session leave for those that come behind: the last time, the last prompt, the folder, the ids."""

from __future__ import annotations

import msgspec

from clew.conversation.source import Session, Source
from clew.formats.opencode.entries import Stored
from clew.formats.opencode.records import member


class Tail(msgspec.Struct, frozen=True):
    """The end of a session: nothing of it where there is none."""

    last_ms: int | None = None
    asked: str = ""
    directory: str = ""
    root: str = ""
    model: dict[str, str] | None = None
    calls: frozenset[str] = frozenset()


def read_tail(prefix: Session) -> Tail:
    """Returns the end of a session's rows."""
    stored = Stored(Source(tuple(prefix.records.streams), hint_id=prefix.id, hint_cwd=prefix.cwd))
    asked = root = ""
    model: dict[str, str] | None = None
    calls: set[str] = set()
    for entry in stored.entries:
        if entry.data.role == "user":
            asked = entry.id
            model = _model(entry.data.model) or model
        found = member(entry.data.path, "root")
        root = found if isinstance(found, str) else root
        calls.update(piece.data.call_id for piece in entry.parts if isinstance(piece.data.call_id, str))
    times = [time for entry in stored.entries for time in (entry.time_ms, entry.stored_ms) if time is not None]
    return Tail(max(times, default=None), asked, stored.facts.directory, root, model, frozenset(calls))


def _model(value: object) -> dict[str, str] | None:
    provider, model = member(value, "providerID"), member(value, "modelID")
    return {"providerID": provider, "modelID": model} if isinstance(provider, str) and isinstance(model, str) else None
