"""`clew attach`: makes a session live in this process, or tells what would be decided."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from clew.cli.arguments import AgentType, session_argument
from clew.cli.group import Command, Invocation, verb
from clew.errors import LeaseError

if TYPE_CHECKING:
    from clew.cli.style import Look
    from clew.verbs.attaching import AttachPlan

HELP = """Become the one that drives a session.

One owner at a time: the owner before must be proved dead, by its process; time proves nothing. --dry-run tells what
would be decided now, and why, and writes nothing: which fence would be granted, or who stands against it and what
helps.

\b
Examples:
  $ clew attach --dry-run
  $ clew attach 86d7 --dry-run --json
"""


@click.command("attach", cls=Command, help=HELP, short_help="Become the one that drives a session.")
@session_argument
@click.option("--in", "in_agent", metavar="AGENT", type=AgentType(), help="The session of the thread in this agent.")
@click.option("--dry-run", is_flag=True, help="Tell what would be decided, and do nothing.")
@verb
def COMMAND(  # noqa: N802 - the name under which every verb's module offers its command
    run: Invocation, session: str, in_agent: str | None, dry_run: bool
) -> None:
    """Makes a session live, or tells what would be decided."""
    from clew.verbs.attaching import plan_attach

    screen, look = run.screen, run.screen.look
    with run.context() as ctx:
        plan = plan_attach(ctx, session, in_agent=in_agent)
    if not dry_run:
        raise LeaseError(
            plan.message or f"nothing here drives {plan.agent} yet",
            code=plan.code or "unsupported",
            hint=plan.hint or "`clew resume` opens it in your terminal.",
            reason=plan.reason or None,
            session=plan.session_id,
            agent=plan.agent,
        )
    if screen.is_json:
        screen.json(plan)
        return
    screen.lines(_plan_lines(plan, look))


def _plan_lines(plan: AttachPlan, look: Look) -> list[str]:
    lines = [f"{look.session(plan.agent, plan.session_id)}  at fence {plan.fence_now}"]
    if plan.owner_pid is not None:
        lines.append(look.safe(f"  owner   process {plan.owner_pid}: {plan.evidence}", line=False))
    lines.extend(look.safe(f"  step    {step}") for step in plan.steps)
    sign = {"granted": look.paint("ok", "="), "refused": look.paint("warn", "!")}.get(plan.decision, "!")
    told = plan.decision + (
        f": {plan.message} ({plan.code}{'/' if plan.reason else ''}{plan.reason})" if plan.code else ""
    )
    lines.append(f"{sign} {look.safe(told, line=True)}")
    if plan.hint:
        lines.append(f"  {look.paint('muted', 'do')}      {look.safe(plan.hint, line=True)}")
    return lines
