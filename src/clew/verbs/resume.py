"""`clew resume`: the plan to go on with a session in its own agent or in another; the face then becomes the agent."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

import msgspec

from clew.errors import NotFoundError, Refused, UsageError
from clew.formats.protocol import Format
from clew.formats.registry import get_format
from clew.verbs.context import Context
from clew.verbs.convert import convert_opened
from clew.verbs.converted import Converted
from clew.verbs.own import refuse_held
from clew.verbs.reading import Opened
from clew.verbs.refer import open_session
from clew.verbs.restore import restore

ACCEPTABLE = ("cwd", "provider", "model")


class Need(msgspec.Struct, frozen=True):
    """Something recorded that is no longer so: what it is, what was recorded, and what is so now."""

    what: str
    recorded: str
    now: str


class ResumePlan(msgspec.Struct, frozen=True):
    """What will be run, where, and what stands against it."""

    argv: tuple[str, ...]
    cwd: str
    needs: tuple[Need, ...] = ()
    converted: Converted | None = None
    agent: str = ""
    session_id: str = ""


def resume(
    ctx: Context,
    ref: str,
    *,
    in_agent: str | None = None,
    cwd: str | None = None,
    model: str | None = None,
    accept: tuple[str, ...] = (),
    extra: tuple[str, ...] = (),
    dry_run: bool = False,
) -> ResumePlan:
    """Returns the plan for a resume, converting first where another agent is named.

    Raises Refused (`not_as_recorded`) when something recorded is no longer so and was not accepted by its name,
    `live_owner` when the agent holds the session already. With `dry_run` the plan is made, its needs are told and
    nothing is written.
    """
    unknown = [what for what in accept if what not in ACCEPTABLE]
    if unknown:
        raise UsageError(f"--accept {unknown[0]} is not known", hint="It takes: " + ", ".join(ACCEPTABLE))
    opened = open_session(ctx, ref)
    target = get_format(in_agent) if in_agent else opened.format
    if not target.resume.argv(opened.session.id):
        raise Refused(
            f"clew knows no way to go on with a session in {target.title}",
            code="not_resumable",
            hint="`clew resume SESSION --in AGENT` goes on in another agent, with the same conversation.",
            session=opened.session.id,
            agent=target.name,
        )
    folder = cwd if cwd is not None else opened.session.cwd
    needs = tuple(need for need in _needs(ctx, opened, target, folder, model, chosen=cwd is not None))
    blocking = [need for need in needs if need.what not in accept]
    if blocking and not dry_run:
        raise _not_as_recorded(opened, blocking)
    if target is opened.format:
        return _here(ctx, opened, folder, model or "", needs, extra, dry_run=dry_run)
    converted = convert_opened(ctx, opened, to=target.name, cwd=cwd, model=model, dry_run=dry_run)
    argv = (*converted.resume.argv, *extra)
    where = folder if cwd is not None else converted.resume.cwd
    return ResumePlan(argv, where, needs, converted, target.name, converted.to.session_id)


def _here(
    ctx: Context,
    opened: Opened,
    folder: str,
    model: str,
    needs: tuple[Need, ...],
    extra: tuple[str, ...],
    *,
    dry_run: bool,
) -> ResumePlan:
    form, session = opened.format, opened.session
    if not dry_run:
        refuse_held(ctx, form, session.id)
    if opened.found is None and not dry_run:
        restore(ctx, f"{form.name}:{session.id}")
    if opened.found is not None:
        owner = form.resume.owner(opened.found, ctx.home)
        if owner is not None and not dry_run:
            raise Refused(
                f"{form.title} is running on session {session.id} already (process {owner.pid})",
                code="live_owner",
                hint="Go on there, or end it first: two processes on one session lose each other's turns.",
                session=session.id,
                pid=owner.pid,
            )
    argv = (*form.resume.argv(session.id, model=model), *extra)
    return ResumePlan(argv, folder, needs, None, form.name, session.id)


def _needs(ctx: Context, opened: Opened, target: Format, folder: str, model: str | None, *, chosen: bool) -> list[Need]:
    """Returns what was recorded and is no longer so: the folder, and for the own agent its provider and model."""
    session = opened.session
    needs: list[Need] = []
    if not folder:
        needs.append(Need("cwd", "", "unknown"))
    elif not Path(folder).is_dir():
        if chosen:
            raise NotFoundError(f"the folder {folder} does not exist", path=folder)
        needs.append(Need("cwd", folder, "missing"))
    if target is not opened.format:
        return needs
    settings = target.locate.settings(ctx.home)
    if session.provider and settings.provider and settings.provider != session.provider:
        needs.append(Need("provider", session.provider, settings.provider))
    elif session.provider and settings.providers and session.provider not in settings.providers:
        needs.append(Need("provider", session.provider, "unknown"))
    if model is None and session.model and settings.model and settings.model != session.model:
        needs.append(Need("model", session.model, settings.model))
    return needs


def _not_as_recorded(opened: Opened, needs: list[Need]) -> Refused:
    told = "; ".join(
        f"{need.what}: {'recorded ' + need.recorded if need.recorded else 'not recorded'}, now {need.now}"
        for need in needs
    )
    names = " ".join(f"--accept {need.what}" for need in needs)
    folder = " or --cwd DIR" if any(need.what == "cwd" for need in needs) else ""
    return Refused(
        f"session {opened.session.id} was recorded otherwise: {told}",
        code="not_as_recorded",
        hint=f"Go on all the same with {names}{folder}.",
        session=opened.session.id,
        needs=[msgspec.structs.asdict(need) for need in needs],
    )


def find_program(plan: ResumePlan, env: Mapping[str, str]) -> str:
    """Returns the path of the program to become; raises NotFoundError with what to install."""
    path = shutil.which(plan.argv[0], path=env.get("PATH", os.defpath))
    if path is None:
        raise NotFoundError(
            f"{plan.argv[0]} is not installed (not found on PATH)",
            hint=f"Install it, then run: {' '.join(plan.argv)}",
            agent=plan.agent,
        )
    return path
