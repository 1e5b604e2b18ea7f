"""Delivering a conversion: its files are placed, what was placed is captured, and the translation enters the thread.

The order is safe to interrupt: nothing is named before it is there, and nothing is recorded that was not placed.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from clew.conversation.loss import Loss
from clew.conversation.source import Session, SideFile, Source, Stream
from clew.errors import FormatError
from clew.platform.fs import Expected
from clew.residue.restore import RestoreReport
from clew.verbs import lineage_rows as rows
from clew.verbs.capture import capture_session
from clew.verbs.conversion import Job
from clew.verbs.converted import Command, Converted, End, Report
from clew.verbs.listing import missing_index
from clew.verbs.own import holding
from clew.verbs.place import (
    Item,
    Rows,
    base_of,
    expected_of,
    make_item,
    path_below,
    place_all,
    present_bytes,
    shown_path,
)
from clew.verbs.reading import Opened
from clew.verbs.workshop import Workshop


def put(
    job: Job,
    session: Session,
    streams: Sequence[Stream],
    report: RestoreReport,
    workshop: Workshop,
    side: Sequence[SideFile] = (),
) -> Converted:
    """Places a session that is not there, with the side files kept with it, and returns the answer.

    A side file that lies there already is left alone, and told where its bytes are not the kept ones. Raises Refused
    where something else lies in a session's place.
    """
    base = base_of(job.target, job.home)
    items = [
        *missing_side(job, base, side, workshop),
        *(make_item(job.target, base, stream, None) for stream in streams),
    ]
    if workshop.written is None:  # nothing was spliced: the files by which the agent lists it are named by nobody yet
        own = {stream.path for stream in streams} | {file.path for file in side}
        items += missing_index(job.target, base, session, workshop.options, own)
    paths = tuple(shown_path(job.target, base, stream.path) for stream in streams)
    return deliver(job, base, items, session, report, workshop, paths)


def missing_side(job: Job, base: Path, side: Sequence[SideFile], workshop: Workshop) -> list[Item]:
    """Returns what puts kept side files back that are not there, but for those that the writer made anew."""
    made = {file.path for file in workshop.written.files} if workshop.written is not None else set[str]()
    kept = [file for file in side if file.path not in made]
    return [item for file in kept if (item := _missing(job, base, file)) is not None]


def deliver(
    job: Job,
    base: Path,
    items: Sequence[Item | Rows],
    session: Session,
    report: RestoreReport,
    workshop: Workshop,
    paths: tuple[Path, ...],
) -> Converted:
    """Places what was made, records it, and returns the answer.

    What will be recorded is made out first: what the thread cannot take is refused before anything is placed.
    """
    planned = _plan(job, session, report, _losses(workshop))
    _place(job, base, items, workshop)
    if not job.dry_run:
        _record(job, session, planned, written=True)
    return _answer(job, session, report, workshop, paths, planned, written=not job.dry_run)


def find_there(job: Job, session: Session, workshop: Workshop, path: Path) -> Converted:
    """Returns the answer for a session that is there already and whole: nothing is placed, and it is recorded."""
    report = RestoreReport("whole", len(job.messages), 0)
    planned = _plan(job, session, None, ())
    if not job.dry_run:
        _record(job, session, planned, written=False)
    return _answer(job, session, report, workshop, (path,), planned, written=False)


def _place(job: Job, base: Path, items: Sequence[Item | Rows], workshop: Workshop) -> None:
    """Places what is to be written, the index last; with `dry_run` nothing. Raises FormatError for losses in strict."""
    if job.strict and _losses(workshop):
        first = _losses(workshop)[0]
        raise FormatError(
            f"{first.count} {first.what} cannot be carried to {job.target.title}",
            code="losses",
            hint="Without --strict they stay in clew's store and the rest is carried.",
            session=job.opened.session.id,
        )
    if job.dry_run:
        return
    extra = workshop.written.files if workshop.written is not None else ()
    side, index = (
        [
            Item(path_below(base, file.path), file.chunks, file.mode, _expected_at(path_below(base, file.path)))
            for file in extra
            if file.role == role
        ]
        for role in ("side", "index")
    )
    new = {item.path for item in side}
    rest = [item for item in items if item.path not in new]
    with holding(job.ctx, job.held):
        # nothing is named before it is there
        place_all(job.target, job.home, [*side, *rest, *index], job.ctx.now_ms())


def _losses(workshop: Workshop) -> tuple[Loss, ...]:
    return workshop.written.losses if workshop.written is not None else ()


def _answer(
    job: Job,
    session: Session,
    report: RestoreReport,
    workshop: Workshop,
    paths: tuple[Path, ...],
    planned: rows.ThreadView,
    *,
    written: bool,
) -> Converted:
    source = job.opened
    found_path = str(source.found.path) if source.found is not None else ""
    default = job.target.locate.settings(job.home).model if job.target.traits.names_model else ""
    argv = job.target.resume.argv(session.id, model=job.model or default)
    if job.model and job.model not in (session.model, *argv):
        job.warnings.append(f"{job.target.title} takes the model of its own settings; {job.model} is not named to it")
    invented = workshop.written.invented if workshop.written is not None else 0
    return Converted(
        End(source.format.name, source.session.id, found_path, source.session.cwd),
        End(job.target.name, session.id, str(paths[0]) if paths else "", session.cwd, tuple(str(p) for p in paths)),
        Command(argv, session.cwd or job.cwd),
        _counted(job, report, _losses(workshop), invented),
        planned.thread.thread_id,
        written,
    )


def _counted(job: Job, report: RestoreReport, losses: tuple[Loss, ...] = (), invented: int = 0) -> Report:
    """Returns the report as people count: results belong to their message and are counted apart."""
    said = [message.role != "tool" for message in job.messages]
    restored = sum(said[: report.restored_messages])
    return Report(
        report.mode,
        restored,
        sum(said) - restored,
        losses,
        tuple(job.warnings),
        report.reason,
        invented,
        report.retries,
        sum(said),
        sum(len(message.calls) for message in job.messages),
        len(said) - sum(said),
    )


def _plan(job: Job, session: Session, report: RestoreReport | None, losses: tuple[Loss, ...]) -> rows.ThreadView:
    """Returns the thread as it will be; no edge without a report. Raises LineageError where it cannot be so."""
    source, now = job.opened, job.ctx.now_ms()
    origin = "created" if source.session.foreign else "adopted"
    job.view = rows.join_thread(job.ctx, job.view, job.target, session.id)
    view, one = rows.with_session(job.view, source.format, source.session.id, origin, now)
    view, other = rows.with_session(view, job.target, session.id, "created", now)
    if report is None:
        return view
    counted = _counted(job, report)
    return rows.with_edge(
        view,
        "forked" if job.new else "translated",
        one,
        other,
        now_ms=now,
        groups=len(job.keys),
        cut=job.keys[-1] if job.keys else None,
        formats=(source.format.name, job.target.name),
        restored=counted.restored_messages,
        rendered=counted.rendered_messages,
        losses=losses,
    )


def _record(job: Job, session: Session, planned: rows.ThreadView, *, written: bool) -> None:
    """Captures what was placed and writes the thread; what was written into a held session is a return of its own."""
    ctx = job.ctx
    placed = Opened(job.target, None, Source(tuple(session.records.streams), session.side), session, job.keys)
    capture_session(ctx, placed)
    if job.held is None or not written:
        rows.save_thread(ctx, job.view, planned)
        return
    with ctx.leases.transaction():
        rows.save_thread(ctx, job.view, planned)
        rows.append_return(ctx, job.held.session_id, job.target, session.id)


def _missing(job: Job, base: Path, file: SideFile) -> Item | None:
    """Returns what puts a side file back, or None when one lies there already; another one is told."""
    path = path_below(base, file.path)
    there = present_bytes(path)
    if there is None:
        return Item(path, lambda: [file.load()], file.mode, expected_of(None))
    if memoryview(there.data) != memoryview(file.load()):
        job.warnings.append(
            f"{path} is not as it was kept and stays as it is; `clew restore --to DIR` writes the kept one"
        )
    return None


def _expected_at(path: Path) -> Expected:
    """Returns the expectation that what lies at a path now lies there still at the swap."""
    there = present_bytes(path)
    return expected_of(None if there is None else Stream("", memoryview(there.data)))
