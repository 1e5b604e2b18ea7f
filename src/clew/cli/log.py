"""`clew log`: the thread of a session, drawn."""

from __future__ import annotations

import click

from clew.cli.arguments import session_argument
from clew.cli.group import Command, Invocation, verb

HELP = """Draw where a conversation went.

Shows its sessions, agents, links, forks and translations: one row for each thing that happened, the newest below, solid
rails where the conversation was carried on, dotted ones where it was forked. Below stands where it began, where it is
now, and where its sessions part: told by what was said, not by times. A translation tells what came home byte for byte,
what was written, and what the other agent could not say and clew kept.

--dot writes a graph for graphviz.

\b
Examples:
  $ clew log
  $ clew log 86d7
  $ clew log 86d7 --dot > thread.dot
"""


@click.command("log", cls=Command, help=HELP, short_help="Draw where a conversation went.")
@session_argument
@click.option("--dot", "as_dot", is_flag=True, help="Write a graph for graphviz.")
@verb
def COMMAND(run: Invocation, session: str, as_dot: bool) -> None:  # noqa: N802 - every verb's module offers this name
    """Draws the thread of a session."""
    from clew.cli.graph import dot_lines, graph_lines
    from clew.verbs.log import log

    screen = run.screen
    with run.context() as ctx:
        told = log(ctx, session)
        now = ctx.clock.now()
    if screen.is_json:
        screen.json(told)
    elif as_dot:
        for line in dot_lines(told):
            screen.line(screen.look.safe(line, line=False))
    else:
        screen.lines(graph_lines(told, screen.look, now))
