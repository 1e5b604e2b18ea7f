"""`clew convert`: a session in another agent's format, as a continuation of the one made before, or a new one.

The whole way of docs/tour.md: read, capture, choose whose bytes come back, restore and splice or write plainly,
read back, place, capture what was placed, record it in the thread. Nothing is placed that does not read back as the
conversation.
"""

from __future__ import annotations

from pathlib import Path

from clew.formats.registry import get_format
from clew.verbs.capture import capture_session
from clew.verbs.context import Context
from clew.verbs.continuation import continue_existing, find_existing
from clew.verbs.conversion import Job
from clew.verbs.converted import Converted
from clew.verbs.making import make_session, restore_beside
from clew.verbs.reading import Opened
from clew.verbs.refer import open_session

__all__ = ["convert", "convert_opened"]


def convert(
    ctx: Context,
    ref: str,
    *,
    to: str,
    cwd: str | None = None,
    model: str | None = None,
    out: Path | None = None,
    new: bool = False,
    full: bool = False,
    dry_run: bool = False,
    strict: bool = False,
) -> Converted:
    """Translates a session and places it; raises Refused, UnwritableContent, FormatError or NotFoundError.

    See docs/cli.md for the options. With `dry_run` the answer is the same and nothing is written.
    """
    opened = open_session(ctx, ref)
    return convert_opened(
        ctx, opened, to=to, cwd=cwd, model=model, out=out, new=new, full=full, dry_run=dry_run, strict=strict
    )


def convert_opened(
    ctx: Context,
    opened: Opened,
    *,
    to: str,
    cwd: str | None = None,
    model: str | None = None,
    out: Path | None = None,
    new: bool = False,
    full: bool = False,
    dry_run: bool = False,
    strict: bool = False,
) -> Converted:
    """Translates a session that was read already; the rest as `convert`."""
    job = Job(ctx, opened, get_format(to), cwd, model or "", out, new=new, full=full, dry_run=dry_run, strict=strict)
    job.check()
    if not dry_run:
        capture_session(ctx, opened)
    own = job.own_ids()
    existing = None if new else find_existing(job, own)
    if existing is None:
        return make_session(job, own)
    return restore_beside(job, own, existing.opened) or continue_existing(job, existing)
