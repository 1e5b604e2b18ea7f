"""What the rows of a session leave for those that come behind: the last time, the last prompt, the folder, the ids.

Where a part of the session was taken back, what comes behind stands before that part: the agent removes everything
from there on at the next prompt.
"""

from __future__ import annotations

import msgspec

from clew.conversation.source import Session, Source
from clew.errors import UnwritableContent
from clew.formats.opencode.entries import Stored, is_cut_inside, taken_back
from clew.formats.opencode.records import member


class Tail(msgspec.Struct, frozen=True):
    """The end of a session: nothing of it where there is none."""

    last_ms: int | None = None
    asked: str = ""
    directory: str = ""
    root: str = ""
    model: dict[str, str] | None = None
    calls: frozenset[str] = frozenset()
    offset: int | None = None
    """Where in the stream the part begins that was taken back, if any was."""
    before_ms: int | None = None
    """The time of its first message, before which everything new has to lie."""


def read_tail(prefix: Session) -> Tail:
    """Returns the end of a session's rows."""
    stored = Stored(Source(tuple(prefix.records.streams), hint_id=prefix.id, hint_cwd=prefix.cwd))
    asked = root = ""
    model: dict[str, str] | None = None
    calls: set[str] = set()
    kept, reverted = taken_back(stored)
    offset = before_ms = None
    if is_cut_inside(stored):
        raise _between_parts(prefix)
    if reverted:
        _, offset, _ = stored.records.place(reverted[0].record)
        before_ms = reverted[0].stored_ms
    for entry in kept:
        if entry.data.role == "user":
            asked = entry.id
            model = _model(entry.data.model) or model
        found = member(entry.data.path, "root")
        root = found if isinstance(found, str) else root
        calls.update(piece.data.call_id for piece in entry.parts if isinstance(piece.data.call_id, str))
    times = [time for entry in kept for time in (entry.time_ms, entry.stored_ms) if time is not None]
    calls.update(p.data.call_id for entry in reverted for p in entry.parts if isinstance(p.data.call_id, str))
    return Tail(
        max(times, default=None),
        asked,
        stored.facts.directory,
        root,
        model,
        frozenset(calls),
        offset,
        before_ms,
    )


def _between_parts(prefix: Session) -> UnwritableContent:
    return UnwritableContent(
        f"session {prefix.id} was taken back to the middle of a message, behind which nothing can be put",
        code="reverted",
        hint="Go on there in OpenCode, or undo that, then try again; or write a new session with --new.",
        session=prefix.id,
    )


def _model(value: object) -> dict[str, str] | None:
    provider, model = member(value, "providerID"), member(value, "modelID")
    return {"providerID": provider, "modelID": model} if isinstance(provider, str) and isinstance(model, str) else None
