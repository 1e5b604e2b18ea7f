"""`clew resume`: goes on with a session by becoming its agent, or tells how."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from clew.cli.arguments import AgentType, folder_text, session_argument
from clew.cli.group import Invocation, RestCommand, agent_environment, verb
from clew.errors import NotFoundError

if TYPE_CHECKING:
    from clew.verbs.own import Owned
    from clew.verbs.resume import ResumePlan

HELP = """Go on with a session in its agent or in another.

Becomes the agent: this process turns into it, in the session's folder, so that the terminal, the process and the
signals are the agent's own. With --in another agent the session is carried there first, as `clew convert` does.

Where something recorded is no longer so, it stops and says what (exit 5): the folder is missing (`cwd`), the agent
is set to another provider or model (`provider`, `model`). --accept goes on all the same, and only with what is named.

The session is owned by this process from then on: a second one is refused while it lives (exit 5), and its end frees
the session.

--print shows the plan instead: the command line, the folder, and what stands against it; nothing is written. What
stands after `--` is handed to the agent as it is.

\b
Examples:
  $ clew resume
  $ clew resume 86d7 --in codex
  $ clew resume claude:@ --print
  $ clew resume 86d7 --cwd ../shop-api --accept model
  $ clew resume 86d7 -- --verbose
"""

execute: Callable[[str, tuple[str, ...], Mapping[str, str]], object] = os.execve
"""Becomes another program; tests put something harmless here."""


@click.command("resume", cls=RestCommand, help=HELP, short_help="Go on with a session in its agent or in another.")
@session_argument
@click.option("--in", "in_agent", metavar="AGENT", type=AgentType(), help="The agent to go on in.")
@click.option("--cwd", metavar="DIR", help="Go on in this folder.")
@click.option("--model", metavar="M", help="Go on with this model.")
@click.option("--print", "only_print", is_flag=True, help="Show the plan, and do nothing.")
@click.option(
    "--accept", metavar="WHAT", multiple=True, help="Go on although this is not as recorded: cwd, provider, model."
)
@click.pass_context
@verb
def COMMAND(  # noqa: N802 - the name under which every verb's module offers its command
    run: Invocation,
    click_context: click.Context,
    session: str,
    in_agent: str | None,
    cwd: str | None,
    model: str | None,
    only_print: bool,
    accept: tuple[str, ...],
) -> None:
    """Goes on with a session."""
    from clew.formats.registry import get_format
    from clew.verbs.own import own_session
    from clew.verbs.resume import find_program, resume

    with run.context() as ctx:
        plan = resume(
            ctx,
            session,
            in_agent=in_agent,
            cwd=folder_text(run.around.cwd, cwd) if cwd is not None else None,
            model=model,
            accept=accept,
            extra=click_context.meta.get("clew.rest", ()),
            dry_run=only_print,
        )
        if only_print:
            _print_plan(run, plan)
            return
        program = find_program(plan, ctx.env)
        owned = own_session(ctx, get_format(plan.agent), plan.session_id, plan.cwd)
    _become(run, plan, program, owned)


def _print_plan(run: Invocation, plan: ResumePlan) -> None:
    from clew.cli.convert import command_line

    screen = run.screen
    if screen.is_json:
        screen.json(plan)
        return
    if plan.converted is not None:
        from clew.cli.convert import tell_converted

        for line in tell_converted(run, plan.converted, dry_run=True):
            screen.note(line)
    for need in plan.needs:
        recorded = f"recorded {need.recorded}" if need.recorded else "not recorded"
        screen.warn(f"{need.what}: {recorded}, now {need.now} (--accept {need.what})")
    screen.line(screen.look.safe(command_line(run, plan.argv, plan.cwd), line=True))


def _become(run: Invocation, plan: ResumePlan, program: str, owned: Owned) -> None:
    """Turns this process into the agent, in the session's folder; it owns the session already, by pid and start."""
    from clew.host.protocol import TOKEN_VARIABLE

    if plan.converted is not None:
        from clew.cli.convert import tell_converted

        for line in tell_converted(run, plan.converted):
            run.screen.note(line)
    run.screen.flush()
    if plan.cwd and os.path.isdir(plan.cwd):  # noqa: PTH112 - the text goes to chdir as it is
        os.chdir(plan.cwd)
    env = {**agent_environment(run.settings, run.around), "PWD": str(Path.cwd()), TOKEN_VARIABLE: owned.token}
    try:
        execute(program, plan.argv, env)
    except OSError as error:
        from clew.verbs.own import disown

        with run.context() as ctx:
            disown(ctx, owned, f"{program} could not be started")
        raise NotFoundError(
            f"{program} cannot be started: {error.strerror}",
            code="agent_missing",
            hint="Install the agent anew, or name a folder with a working one in PATH.",
            path=program,
            agent=plan.agent,
        ) from error
