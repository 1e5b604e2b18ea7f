"""`clew keep`: sessions captured, one line for each that was new, and a count."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from clew.cli import words
from clew.cli.arguments import SessionType
from clew.cli.group import Command, Invocation, verb

if TYPE_CHECKING:
    from clew.verbs.capture import Kept
    from clew.verbs.context import Context
    from clew.verbs.keep import NotKept

HELP = """Capture sessions, so that they outlive their agent's clean-up.

Takes the named sessions, or all of every agent, into clew's own store, whole and with their side files. What is
there already costs nothing; of a session that grew, only what is new is stored. A session that cannot be read is
reported and hides none of the others; the exit status is then 6. With --json it writes {"kept": [...],
"not_kept": [...]}.

--watch goes on and captures what changes, until Ctrl-C; with --json it writes one object a session and line.

\b
Examples:
  $ clew keep
  $ clew keep 86d7 codex:@
  $ clew keep --json
"""

PAUSE_SECONDS = 2.0


@click.command(
    "keep", cls=Command, help=HELP, short_help="Capture sessions, so that they outlive their agent's clean-up."
)
@click.argument("sessions", metavar="[SESSION]...", nargs=-1, type=SessionType())
@click.option("--watch", is_flag=True, help="Go on and capture what changes.")
@verb
def COMMAND(  # noqa: N802 - the name under which every verb's module offers its command
    run: Invocation, sessions: tuple[str, ...], watch: bool
) -> None:
    """Captures sessions."""
    with run.context() as ctx:
        if watch:
            _watch(run, ctx, sessions)
            return
        status = _keep_once(run, ctx, sessions)
    if status:
        click.get_current_context().exit(status)


def _keep_once(run: Invocation, ctx: Context, sessions: tuple[str, ...]) -> int:
    """Captures once and tells all of it; returns the exit status."""
    from clew.verbs.capture import Kept
    from clew.verbs.keep import keep

    kept: list[Kept] = []
    failed: list[NotKept] = []
    for one in keep(ctx, sessions):
        if isinstance(one, Kept):
            kept.append(one)
        else:
            failed.append(one)
        if not run.screen.is_json:
            _tell(run, one, named=bool(sessions))
    if run.screen.is_json:
        run.screen.json({"kept": kept, "not_kept": failed})
    else:
        new = sum(one.new for one in kept)
        counts = [f"{new:,} kept now", f"{len(kept) - new:,} unchanged"]
        unreadable = sum(_status(one) == 6 for one in failed)
        counts += [f"{unreadable:,} unreadable"] if unreadable else []
        counts += [f"{len(failed) - unreadable:,} not kept"] if len(failed) > unreadable else []
        run.screen.line(f"{words.count(len(kept) + len(failed), 'session')}: {', '.join(counts)}")
    statuses = [_status(one) for one in failed]
    return statuses[0] if statuses else 0


def _status(one: NotKept) -> int:
    status = one.error.get("status")
    return status if isinstance(status, int) else 6


def _tell(run: Invocation, one: Kept | NotKept, *, named: bool) -> None:
    from clew.verbs.capture import Kept

    look = run.screen.look
    name = look.session(one.agent, one.session_id)
    if not isinstance(one, Kept):
        run.screen.warn(f"{one.agent} {one.session_id}: {one.error.get('message', '')}")
        if one.error.get("hint"):
            run.screen.note("  " + look.safe(str(one.error["hint"]), line=True))
        return
    if not one.new and not named and not run.screen.verbose:
        return
    fields: dict[str, Any] = {"number": one.capture, "records": words.count(one.records, "record")}
    side = f", {words.count(one.side_files, 'side file')}" if one.side_files else ""
    title = look.safe(one.title, line=True)
    run.screen.line(f"{name}  {title}".rstrip())
    run.screen.line("  " + words.long("captured" if one.new else "unchanged", look, **fields) + side)


def _watch(run: Invocation, ctx: Context, sessions: tuple[str, ...]) -> None:
    """Captures what changes, until it is interrupted."""
    from clew.verbs.capture import Kept
    from clew.verbs.keep import keep

    run.screen.note("following sessions; Ctrl-C ends it")
    told: set[tuple[str, str, str]] = set()
    while True:
        for one in keep(ctx, sessions):
            if not isinstance(one, Kept):
                failure = (one.agent, one.session_id, str(one.error.get("message")))
                if failure in told:
                    continue
                told.add(failure)
            elif not one.new:
                continue
            if run.screen.is_json:
                run.screen.json(one)
            else:
                _tell(run, one, named=False)
        run.screen.flush()
        time.sleep(PAUSE_SECONDS)
