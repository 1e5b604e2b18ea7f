"""`clew doctor`: what is wrong around clew, and what to do about each; looks only, and changes nothing.

Looks at clew's own folder and stores, at the agents whose sessions are here, and at the leases whose owner cannot be
proved. One finding that cannot be looked at is a finding itself, never the end of the list.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from typing import Literal

import msgspec

from clew.errors import ClewError
from clew.formats.registry import format_names, get_format
from clew.journal.opening import Corrupt, ReadOnly
from clew.lineage.edge import StrandId
from clew.verbs.context import Context
from clew.verbs.journaling import classify_journal
from clew.verbs.ps import Live, ps

Level = Literal["ok", "note", "problem"]

_LITTLE_BYTES = 100 << 20


class Finding(msgspec.Struct, frozen=True):
    """One thing that was looked at: how bad it is, about what, what was found, and what the user can do."""

    level: Level
    about: str
    found: str
    do: str = ""
    concerns: dict[str, object] = {}


def doctor(ctx: Context) -> list[Finding]:
    """Returns what was found, in a fixed order: clew's own data, the agents, the open sessions."""
    found: list[Finding] = []
    for look in (_data, _stores, _agents, _sessions):
        try:
            found += look(ctx)
        except (ClewError, OSError) as error:
            message = error.message if isinstance(error, ClewError) else str(error)
            hint = error.hint if isinstance(error, ClewError) else ""
            found.append(Finding("problem", "clew's data", message, hint))
    return found


def _data(ctx: Context) -> Iterator[Finding]:
    folder = ctx.data
    if not folder.exists():
        yield Finding("ok", "clew's data", f"{folder} does not exist yet; the first use makes it")
        return
    facts = folder.stat()
    if not stat.S_ISDIR(facts.st_mode) or not os.access(folder, os.W_OK | os.X_OK):
        yield Finding(
            "problem", "clew's data", f"{folder} cannot be written", "Make it yours to write, or name --data."
        )
        return
    if facts.st_mode & 0o077:
        mode = oct(stat.S_IMODE(facts.st_mode))[2:]
        yield Finding("problem", "clew's data", f"{folder} can be read by others (mode {mode})", f"chmod 700 {folder}")
    free = shutil.disk_usage(folder).free
    if free < _LITTLE_BYTES:
        yield Finding("problem", "clew's data", f"only {free >> 20} MB are free in {folder}", "Free some space.")
    yield Finding("ok", "clew's data", f"{folder}, {free >> 30} GB free")


def _stores(ctx: Context) -> Iterator[Finding]:
    if ctx.stores.has_records:
        state = ctx.stores.records.state()
        if state.fence_floor:
            yield Finding(
                "note",
                "clew's data",
                f"the records came back from a backup once, or were moved; fences go on at {state.fence_floor:,}",
            )
        yield from _witnesses(ctx, state.store_id)
        yield Finding("ok", "clew's data", "the records can be read")
    if ctx.stores.has_residue:
        count = ctx.stores.residue.stats().captures
        yield Finding("ok", "clew's data", f"{count:,} captures are kept here (`clew store check` verifies them)")


def _witnesses(ctx: Context, store_id: str) -> Iterator[Finding]:
    """Looks at what would notice a backup that is put in the records' place."""
    outside = ctx.stores.outside(store_id)
    if outside is not None and outside.exists():
        yield Finding("ok", "clew's data", f"a backup in the records' place is noticed, by {outside} too")
    elif outside is not None and ctx.stores.witness.exists():
        yield Finding(
            "note",
            "clew's data",
            f"{outside} does not remember how far the records have come (yet): when the whole data folder goes back to "
            "a backup, that may not be noticed",
            "After putting a backup back, say `clew store restored`.",
        )


def _agents(ctx: Context) -> Iterator[Finding]:
    path = ctx.env.get("PATH", os.defpath)
    for name in format_names():
        try:
            form = get_format(name)
        except (ClewError, ImportError) as error:
            yield Finding("problem", name, f"its format does not load: {error}", "Install its package anew.")
            continue
        program = form.resume.program
        if not program:
            continue
        here = any(place.exists() for place in form.locate.places(ctx.home))
        program_path = shutil.which(program, path=path)
        if program_path is not None:
            yield Finding("ok", name, f"{program} is at {program_path}")
        elif here:
            yield Finding(
                "note",
                name,
                f"its sessions are here, but {program} is not on PATH",
                f"Install {form.title} to go on in it; its sessions can be read and carried all the same.",
            )


def _sessions(ctx: Context) -> Iterator[Finding]:
    open_ones = ps(ctx)
    for row in open_ones:
        yield from _session(ctx, row)
    if not open_ones:
        yield Finding("ok", "open sessions", "no session is open")


def _session(ctx: Context, row: Live) -> Iterator[Finding]:
    name = f"{row.agent} {row.session_id or row.strand}"
    concerns: dict[str, object] = {"session": row.session_id, "agent": row.agent, "state": row.state}
    if row.pid is not None:
        concerns |= {"pid": row.pid, "host": row.host}
    if row.state in ("unproven", "elsewhere", "unreadable", "stranded"):
        yield Finding("problem", name, row.reason or row.state, row.do, concerns)
    elif row.state == "exited":
        yield Finding("ok", name, f"process {row.pid} has exited; the next one to open it gets it", "", concerns)
    elif row.state == "opening":
        yield Finding("note", name, f"process {row.holder_pid} is just opening it", "", concerns)
    else:
        late = ", silent for longer than it should be" if row.late else ""
        yield Finding("ok", name, f"open in process {row.pid}{late}", "", concerns)
    if row.unconfirmed:
        yield Finding(
            "note",
            name,
            f"{row.unconfirmed} messages are neither known to be sent nor known to have failed",
            "See what the session holds before you send them again.",
            concerns,
        )
    yield from _journal(ctx, row, name)


def _journal(ctx: Context, row: Live, name: str) -> Iterator[Finding]:
    if not row.strand or not ctx.stores.has_records:
        return
    opening = classify_journal(ctx.leases, StrandId(row.strand))
    if isinstance(opening, Corrupt):
        yield Finding(
            "problem",
            name,
            f"its journal is damaged ({opening.cause}, {opening.dropped} rows)",
            "Its sound part is kept; attach again to rebuild the rest.",
        )
    elif isinstance(opening, ReadOnly):
        yield Finding(
            "note", name, f"its journal was written by a newer clew (schema {opening.schema})", "Update clew."
        )
