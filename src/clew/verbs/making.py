"""Making the session that is not there yet, or no longer: restored from what was captured, else written plainly.

Whatever is made is read back and compared with the conversation before it is delivered.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from clew.conversation.source import Source
from clew.ids import CaptureId
from clew.residue.choose import Choice, NoChoice, choose_source
from clew.residue.restore import Restored, RestoreReport, first_difference, restore_conversation
from clew.verbs.capture import candidates_for, captured_side, read_facts
from clew.verbs.conversion import Job
from clew.verbs.converted import Converted
from clew.verbs.delivery import put
from clew.verbs.reading import Opened, find_by_id, resolver
from clew.verbs.workshop import Workshop


def make_session(job: Job, own: frozenset[str]) -> Converted:
    """Makes the session in the target's format and delivers it; `own` are the ids that may be restored.

    Raises UnwritableContent when it would not read back, Refused when something else lies in its place.
    """
    choice = _choose(job, own)
    if isinstance(choice, Choice):
        done = _restore(job, choice)
        if done is not None:
            return done
        reason = "unsound"
    else:
        reason = choice.reason
    job.settle_folder()
    session_id = job.new_id()
    workshop = job.workshop(session_id)
    streams = workshop.write(job.messages)
    session = workshop.read(streams)
    differs = first_difference(job.keys, session.messages, session.records.streams)
    if differs is not None:
        raise job.unsound(differs)
    assert session.id == session_id, f"written as {session_id}, read as {session.id}"
    report = RestoreReport("plain", 0, len(job.messages), reason=reason)  # type: ignore[arg-type]
    return put(job, session, streams, report, workshop)


def restore_beside(job: Job, own: frozenset[str], there: Opened) -> Converted | None:
    """Brings home what was captured, where only an empty session of that id lies elsewhere; None where nothing does.

    Gemini CLI leaves such a file at every resume.
    """
    choice = _choose(job, own)
    if there.keys or not isinstance(choice, Choice):
        return None
    capture = job.ctx.stores.residue.capture(CaptureId(choice.candidate.capture))
    if capture.session_id != there.session.id or {s.path for s in capture.streams} & {
        s.path for s in there.source.streams
    }:
        return None
    return _restore(job, choice)


def _choose(job: Job, own: frozenset[str]) -> Choice | NoChoice:
    candidates = candidates_for(job.ctx, job.target.name, job.keys[0])
    return choose_source(job.keys, candidates, own_ids=own, carries_id=job.target.traits.carries_id)


def _restore(job: Job, choice: Choice) -> Converted | None:
    """Puts back what was captured in the target's format, with later turns behind; None where it is not sound."""
    capture = job.ctx.stores.residue.capture(CaptureId(choice.candidate.capture))
    session_id = capture.session_id or ""
    if not job.dry_run and not job.new:
        job.refuse_held(session_id)
    facts = read_facts(capture)
    if job.new and job.is_asked_elsewhere(facts.cwd):
        return None
    if not job.new:
        job.warn_elsewhere(f"{job.target.name}:{session_id}", facts.cwd)
    if not job.cwd:
        job.cwd = facts.cwd
    side = captured_side(job.ctx, capture.id)
    workshop = Workshop(
        job.target,
        job.options(session_id, path=capture.streams[-1].path),
        job.ctx.drafts,
        side=side,
        resolve=_resolver(job, session_id),
    )
    restored = restore_conversation(job.messages, job.keys, choice, capture.streams, workshop)
    if isinstance(restored, RestoreReport):
        job.warnings += restored.warnings
        return None
    if job.new:
        return _rebase(job, restored, workshop)
    job.warnings += restored.report.warnings
    return put(job, restored.session, restored.streams, restored.report, workshop, side=side)


def _resolver(job: Job, session_id: str) -> Callable[[str], Source | None]:
    """Returns a way to get what the restored session refers to: from the agent's home, else from clew's store."""

    def on_disk(other: str) -> Source | None:
        found = next((f for f in find_by_id(job.target, job.home, other) if not f.problem), None)
        return job.target.locate.load(found, job.home) if found is not None and other != session_id else None

    return resolver(job.ctx, job.target, job.home, on_disk)


def _rebase(job: Job, restored: Restored, workshop: Workshop) -> Converted | None:
    """Makes the restored text another session: its id, and only that, is changed in the records."""
    if job.target.rebase is None:
        return None
    job.settle_folder()
    options = job.options(job.new_id())
    written = job.target.rebase(restored.session, options)
    # one that carries its side files along no longer has those of the other
    side = () if any(file.role == "side" for file in written.files) else workshop.side
    fresh = Workshop(job.target, options, job.ctx.drafts, side=side, resolve=workshop.resolve)
    session = fresh.read(streams := fresh.take(written))
    if session.id != options.session_id:
        return None
    if first_difference(job.keys, session.messages, session.records.streams) is not None:
        return None
    report = msgspec.structs.replace(restored.report, mode="rebased")
    return put(job, session, streams, report, fresh)
