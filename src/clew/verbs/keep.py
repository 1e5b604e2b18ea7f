"""`clew keep`: sessions captured into clew's own store, so that they outlive their agent's clean-up."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from clew.errors import ClewError
from clew.ids import AgentName, NativeId
from clew.verbs.capture import Kept, capture_session
from clew.verbs.context import Context
from clew.verbs.reading import Opened, find_sessions, open_found
from clew.verbs.refer import open_session
from clew.verbs.summary import title_of


class NotKept(msgspec.Struct, frozen=True):
    """A session that could not be captured, and why; the others are kept all the same."""

    agent: str
    session_id: str
    path: str
    error: dict[str, object]


def keep(ctx: Context, refs: Sequence[str]) -> Iterator[Kept | NotKept]:
    """Captures the named sessions, or all of them; yields what came of each."""
    if refs:
        for ref in refs:
            yield _keep(ctx, open_session(ctx, ref))
        return
    everything = list(find_sessions(ctx))
    for number, (form, found) in enumerate(everything):
        ctx.progress("keeping sessions", number, len(everything))
        try:
            yield _keep(ctx, open_found(ctx, form, found))
        except ClewError as error:
            yield NotKept(form.name, found.id, str(found.path), error.as_dict())
    ctx.progress("keeping sessions", len(everything), len(everything))


def _keep(ctx: Context, opened: Opened) -> Kept:
    session = opened.session
    before = {
        c.id
        for c in ctx.stores.residue.captures(
            agent=AgentName(opened.format.name), session_id=NativeId(session.id) if session.id else None
        )
    }
    capture = capture_session(ctx, opened)
    size = sum(len(memoryview(stream.data)) for stream in session.records.streams)
    return Kept(
        opened.format.name,
        session.id,
        int(capture),
        capture not in before,
        len(session.records),
        size,
        len(session.side),
        session.cwd,
        title_of(session),
    )
