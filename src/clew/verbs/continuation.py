"""Going on with a session of the target agent that carries the conversation already: new turns are spliced behind it.

It is continued only while it is a prefix of the conversation; where somebody went on there, it is refused.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

import msgspec

from clew.conversation.source import SideFile
from clew.conversation.walk import session_keys
from clew.errors import Refused
from clew.formats.protocol import Found
from clew.formats.rows import database_of
from clew.ids import AgentName, ChainKey, NativeId
from clew.residue.restore import RestoreReport, first_difference
from clew.verbs.capture import capture_session, captured_side
from clew.verbs.conversion import Job
from clew.verbs.converted import Converted
from clew.verbs.delivery import deliver, find_there, missing_side
from clew.verbs.place import base_of, make_item, refuse_live, shown_path
from clew.verbs.reading import Opened, find_by_id, load_source
from clew.verbs.workshop import Workshop


class Existing(msgspec.Struct, frozen=True):
    """A session of the target agent that carries this conversation already, and how far it goes along with it."""

    opened: Opened
    common: int


def find_existing(job: Job, own: frozenset[str]) -> Existing | None:
    """Returns the session to continue: the longest common prefix, then the newest; None when there is none."""
    there: list[Existing] = []
    for session_id in sorted(own):
        for found in find_by_id(job.target, job.home, session_id):
            if found.problem and not found.hides and not os.path.lexists(database_of(str(found.path))):
                continue  # what is left beside a file that is gone: it is put back
            opened = _open(job, found)
            there.append(Existing(opened, _common(job.keys, opened.keys)))
    if not there:
        return None
    return max(there, key=lambda e: (e.common, e.opened.session.updated_ms or 0, e.opened.session.id))


def _open(job: Job, found: Found) -> Opened:
    source = load_source(job.ctx, job.target, found, job.home)
    session = job.target.read(source)
    return Opened(job.target, found, source, session, session_keys(session))


def continue_existing(job: Job, existing: Existing) -> Converted:
    """Splices the new turns behind what is there; raises Refused when it diverged or has a live owner."""
    there = existing.opened
    if existing.common < len(there.keys):
        raise _diverged(job, existing)
    found = there.found
    assert found is not None, "a session that is continued lies in its agent's home"
    job.warn_elsewhere(there.name, there.session.cwd)
    if len(there.keys) == len(job.keys) and _is_whole(job, there):
        if not job.dry_run:
            capture_session(job.ctx, there)
        return find_there(job, there.session, job.workshop(there.session.id), found.path)
    if not job.dry_run:
        job.refuse_held(there.session.id)
        refuse_live(job.target, found, job.home)
        capture_session(job.ctx, there)
    kept = _kept(job, there)
    return _splice(job, _beside(job, there, kept) if kept else there, kept, found.path)


def _splice(job: Job, there: Opened, kept: tuple[SideFile, ...], path: Path) -> Converted:
    """Writes the new turns behind what is there and puts back what was `kept`; raises UnwritableContent."""
    workshop = Workshop(
        job.target,
        job.options(there.session.id, path=there.session.records.streams[-1].path),
        job.ctx.drafts,
        side=there.source.side,
        resolve=there.source.resolve,
    )
    head_count, base = len(there.session.messages), base_of(job.target, job.home)
    if kept and head_count == len(job.messages):  # only they are missing
        items = missing_side(job, base, kept, workshop)
        return deliver(job, base, items, there.session, RestoreReport("whole", head_count, 0), workshop, (path,))
    streams = workshop.splice(there.session, job.messages[head_count:])
    session = workshop.read(streams)
    differs = first_difference(job.keys, session.messages, session.records.streams)
    if differs is not None:
        raise job.unsound(differs)
    report = RestoreReport("prefix", head_count, len(job.messages) - head_count, there.session.id)
    old = {stream.path: stream for stream in there.source.streams}
    changed = [s for s in streams if s.path not in old or memoryview(s.data) != memoryview(old[s.path].data)]
    spliced = [make_item(job.target, base, stream, old.get(stream.path)) for stream in changed]
    items = [*spliced, *missing_side(job, base, kept, workshop)]
    paths = tuple(shown_path(job.target, base, stream.path) for stream in streams)
    return deliver(job, base, items, session, report, workshop, paths)


def _is_whole(job: Job, there: Opened) -> bool:
    """Tells whether the files by which the agent finds a session are there: a placing may have been interrupted."""
    return _names(there, there.source.side).issuperset(job.target.traits.listed_by)


def _names(there: Opened, side: Sequence[SideFile]) -> set[str]:
    """Returns the names of the side files that lie in a folder of the session's records, or above it."""
    streams = there.session.records.streams
    folders = PurePosixPath(streams[-1].path).parents if streams else ()
    paths = [PurePosixPath(file.path) for file in side]
    return {path.name for path in paths if path.parent in folders}


def _kept(job: Job, there: Opened) -> tuple[SideFile, ...]:
    """Returns the files by which the agent finds a session that are not there any more, as they were kept last."""
    gone = set(job.target.traits.listed_by) - _names(there, there.source.side)
    session_id = NativeId(there.session.id)
    captures = job.ctx.stores.residue.captures(agent=AgentName(job.target.name), session_id=session_id) if gone else ()
    for capture in reversed(captures):
        files = captured_side(job.ctx, capture.id)
        found = tuple(file for file in files if _names(there, (file,)) & gone)
        if found:
            return found
    return ()


def _beside(job: Job, there: Opened, kept: tuple[SideFile, ...]) -> Opened:
    """Returns a session read again with files that were kept."""
    source = msgspec.structs.replace(there.source, side=(*there.source.side, *kept))
    return msgspec.structs.replace(there, source=source, session=job.target.read(source))


def _diverged(job: Job, existing: Existing) -> Refused:
    there = existing.opened
    ours, theirs = len(job.keys) - existing.common, len(there.keys) - existing.common
    if ours:
        what = f"both went on after group {existing.common}: here +{ours}, there +{theirs}"
    else:
        what = f"{job.target.title} went on after group {existing.common}: there +{theirs}"
    assert there.found is not None, "it was found in its agent's home"
    return Refused(
        f"{there.name} carries this conversation, but {what}. Nothing was written",
        code="target_diverged",
        hint="--new makes a second session beside it; `clew resume` goes on with the one that is ahead.",
        session=there.session.id,
        path=str(there.found.path),
        group=existing.common,
        ours=ours,
        theirs=theirs,
    )


def _common(one: Sequence[ChainKey], other: Sequence[ChainKey]) -> int:
    count = 0
    for a, b in zip(one, other, strict=False):
        if a != b:
            break
        count += 1
    return count
