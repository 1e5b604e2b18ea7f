"""Looking at sessions for lists: what each says of itself, read once and remembered by the caller.

Many sessions are read by as many processes as there are processors; few are read here. A session that cannot be read,
whatever the reason, becomes a summary that says so: it never hides the others.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime

import msgspec

from clew.conversation.source import Session
from clew.errors import ClewError
from clew.formats.protocol import Format, Found
from clew.formats.registry import get_format
from clew.verbs.context import Context
from clew.verbs.reading import load_source

_SCHEMA = 2
_MANY = 200
_MANY_BYTES = 40_000_000
_CHUNK = 16


class Remembered(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a session said of itself when it was read, as the list cache keeps it."""

    schema: int
    id: str
    cwd: str = ""
    title: str = ""
    created_ms: int | None = None
    updated_ms: int | None = None
    messages: int = 0
    model: str = ""
    damaged: int = 0
    problem: str = ""
    parent: str = ""
    helper: bool = False
    named: str = ""
    """The id in the records, where it is another than that of the place."""


_DECODE = msgspec.json.Decoder(Remembered).decode
encode_remembered = msgspec.json.Encoder().encode


def decode_remembered(data: bytes) -> Remembered | None:
    """Returns what was remembered, or None where another clew wrote it or it cannot be read."""
    try:
        remembered = _DECODE(data)
    except msgspec.DecodeError:
        return None
    return remembered if remembered.schema == _SCHEMA else None


def look_at(ctx: Context, form: Format, founds: Sequence[Found]) -> Iterator[Remembered]:
    """Yields a summary for each session, in order."""
    workers = min(os.cpu_count() or 1, 8)
    size = sum(found.stamp[1] for found in founds)
    if len(founds) < _MANY or size < _MANY_BYTES or workers < 2:
        for found in founds:
            yield _look(ctx, form, found)
        return
    start = (ctx.home, ctx.data, ctx.cwd, ctx.clock, ctx.store_url, ctx.blobs_url)
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), _begin, start) as pool:
        tasks = ((form.name, found) for found in founds)
        for data in pool.map(_look_elsewhere, tasks, chunksize=_CHUNK):
            yield _DECODE(data)


_context: Context | None = None


def _begin(*args: object) -> None:
    """Makes a worker's own context: a store is never shared with another process."""
    global _context
    home, data, cwd, clock, store_url, blobs_url = args
    _context = Context(home, data, cwd=cwd, clock=clock, store_url=store_url, blobs_url=blobs_url)  # type: ignore[arg-type]


def _look_elsewhere(task: tuple[str, Found]) -> bytes:
    assert _context is not None, "a worker begins with its context"
    return encode_remembered(_look(_context, get_format(task[0]), task[1]))


def _look(ctx: Context, form: Format, found: Found) -> Remembered:
    """Reads a session for the list; what cannot be read becomes a summary that says so."""
    try:
        session = form.read(load_source(ctx, form, found))
    except ClewError as error:
        return Remembered(_SCHEMA, found.id, found.cwd_hint, problem=error.message)
    except Exception as error:  # noqa: BLE001 - a reader's defect on one session must not hide the others
        return Remembered(
            _SCHEMA, found.id, found.cwd_hint, problem=f"clew fails on it: {type(error).__name__}: {error}"
        )
    return summarise(session, found)


def summarise(session: Session, found: Found | None = None) -> Remembered:
    """Returns what a list shows of a session."""
    parent = next((r.session_id for r in session.references if r.relation in ("forked", "helper_of")), "")
    return Remembered(
        _SCHEMA,
        found.id if found is not None else session.id,
        session.cwd or (found.cwd_hint if found is not None else ""),
        title_of(session),
        session.created_ms,
        session.updated_ms,
        sum(message.role != "tool" for message in session.history),
        session.model,
        sum(damage.lost for damage in session.damage),
        "",
        parent,
        session.helper or (found is not None and found.kind == "helper"),
        session.id if found is not None and session.id != found.id else "",
    )


def title_of(session: Session) -> str:
    """Returns the agent's own title, else the first line that a person typed."""
    if session.title:
        return one_line(session.title)
    for message in session.history:
        if message.role == "user" and message.origin == "user":
            text = one_line(message.text)
            if text:
                return text
    return ""


def one_line(text: str, limit: int = 300) -> str:
    """Returns the text with all white space folded into single blanks, at most `limit` characters."""
    return " ".join(text[: limit * 4].split())[:limit]


def iso(time_ms: int | None) -> str:
    """Returns a time in ms as ISO 8601 in UTC with milliseconds; empty for None and for what no calendar holds."""
    if time_ms is None:
        return ""
    try:
        return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except (OverflowError, ValueError, OSError):
        return ""
