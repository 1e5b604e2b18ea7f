"""`clew release`: gives a session free that nobody holds any more."""

from __future__ import annotations

import getpass
import sys
from typing import TYPE_CHECKING

import click

from clew.cli.arguments import session_argument
from clew.cli.group import Command, Invocation, verb
from clew.errors import Refused

if TYPE_CHECKING:
    from clew.verbs.release import Plan

HELP = """Give a session free that nobody holds any more.

An owner that is proved dead needs no release: the next one to open the session gets it. This is for what is left: an
agent that runs on although the clew which drove it is dead (it is stopped), a reservation of which nobody knows whether
an agent was started, and sessions of a host that is gone.

Nobody can prove from here that a process of another host is dead, and time proves nothing. --declare-gone HOST says so
on your word: it is recorded with your name, the session moves to this host, and whatever wakes up over there can write
nothing here any more. Its agent may still run, and write its own files there.

Asks twice on a terminal; elsewhere --yes answers.

\b
Examples:
  $ clew release 86d7
  $ clew release 86d7 --declare-gone h70f1374844fcbd2b
"""


@click.command("release", cls=Command, help=HELP, short_help="Give a session free that nobody holds any more.")
@session_argument
@click.option("--declare-gone", "gone", metavar="HOST", help="That host is gone for good; on your word.")
@click.option("--yes", is_flag=True, help="Answer the questions with yes.")
@verb
def COMMAND(  # noqa: N802 - the name under which every verb's module offers its command
    run: Invocation, session: str, gone: str | None, yes: bool
) -> None:
    """Gives a session free."""
    from clew.verbs.release import plan_release, release

    screen, look = run.screen, run.screen.look
    with run.context() as ctx:
        plan = plan_release(ctx, session, gone=gone)
        if plan.question and not yes:
            _ask(run, plan)
        done = release(ctx, plan, by=_user())
    if screen.is_json:
        screen.json(done)
        return
    if done.act == "free":
        told = "nobody holds it"
    else:
        told = f"released: {done.evidence or 'without proof'}"
    screen.line(f"{look.session(done.agent, done.session_id)}  {look.safe(told, line=True)}, fence {done.fence}")
    if done.warning:
        screen.warn(done.warning)


def _ask(run: Invocation, plan: Plan) -> None:
    """Asks twice on a terminal; refuses where nobody can answer."""
    if not sys.stdin.isatty() or run.screen.is_json:
        raise Refused(
            f"{plan.question} Nobody is here to answer",
            code="not_confirmed",
            hint="Make sure, then say it with --yes. Nothing was changed.",
            session=plan.session_id,
            agent=plan.agent,
        )
    for question in (plan.question, "Really?"):
        if not click.confirm(run.screen.errors.safe(question, line=True), err=True):
            raise Refused(
                "not confirmed; nothing was changed", code="not_confirmed", session=plan.session_id, agent=plan.agent
            )


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):
        return "unknown"
