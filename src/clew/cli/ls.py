"""`clew ls`: the list of sessions on a terminal, as lines of columns elsewhere, or as JSON."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING

import click

from clew.cli.arguments import AgentType, folder_text
from clew.cli.group import Command, Invocation, verb

if TYPE_CHECKING:
    from clew.verbs.context import Context
    from clew.verbs.ls import Listed

HELP = """List sessions, newest first.

Shows the sessions of this folder; with --all those of every folder. Sessions that their agent has deleted and clew
keeps are in the list too, marked `kept here`. Sessions in which nothing was said, archived ones and those of helper
agents are shown with --hidden. What cannot be read (a session, or an agent's whole database) stands with the reason.

Elsewhere than on a terminal it writes one session a line, columns separated by tabs and nothing cut: time of the
last message, agent, id, state, number of messages, folder, title (or why it cannot be read). With --json it writes
one object a line.

\b
Examples:
  $ clew ls
  $ clew ls --all --agent codex --limit 20
  $ clew ls --cwd ../shop-api --hidden
  $ clew ls --all --json
"""


@click.command("ls", cls=Command, help=HELP, short_help="List sessions, newest first.")
@click.option("--agent", metavar="AGENT", type=AgentType(), help="Only sessions of this agent.")
@click.option("--cwd", metavar="DIR", help="The sessions of this folder instead of the one you are in.")
@click.option("--all", "every_folder", is_flag=True, help="The sessions of every folder.")
@click.option("--hidden", is_flag=True, help="Also empty and archived sessions, and those of helper agents.")
@click.option("--limit", metavar="N", type=click.IntRange(min=0), help="At most this many.")
@verb
def COMMAND(  # noqa: N802 - the name under which every verb's module offers its command
    run: Invocation, agent: str | None, cwd: str | None, every_folder: bool, hidden: bool, limit: int | None
) -> None:
    """Lists sessions."""
    from clew.verbs.ls import ls

    folder = folder_text(run.around.cwd, cwd) if cwd is not None else None
    with run.context() as ctx:
        rows = ls(ctx, agent=agent, cwd=folder, every_folder=every_folder, hidden=hidden, limit=limit)
        if run.screen.look.terminal and not run.screen.is_json:
            where = "every folder" if every_folder else "this folder" if folder is None else run.shorten(folder)
            shown = _write_list(run, list(rows), ctx.clock.now(), where, limit, _hints(every_folder, hidden))
        else:
            shown = _write_lines(run, rows)
        for text in dict.fromkeys(ctx.notes):
            run.screen.warn(text)
        if not shown and limit != 0:
            where = "any folder" if every_folder else run.shorten(folder or str(run.around.cwd))
            _tell_nothing(run, ctx, agent, where, every_folder=every_folder)


def _write_lines(run: Invocation, rows: Iterable[Listed]) -> int:
    """Writes one session a line, as JSON or as columns, each as soon as it is there; returns how many."""
    from clew.cli.rows import tab_line

    screen, shown = run.screen, 0
    for shown, row in enumerate(rows, 1):  # noqa: B007 - the number of the last one is the answer
        if screen.is_json:
            screen.json(row)
        else:
            screen.line(tab_line(row, screen.look))
    return shown


def _write_list(
    run: Invocation, rows: list[Listed], now: datetime, where: str, limit: int | None, hints: list[str]
) -> int:
    from clew.cli.rows import list_lines
    from clew.cli.words import count

    screen, shown = run.screen, len(rows)
    if rows:
        cut = f" (--limit {limit})" if limit is not None and shown == limit else ""
        footer = ". ".join((f"{count(shown, 'session')}, {where}{cut}", *hints))
        with screen.paged():
            screen.lines(list_lines(rows, screen.look, now, verbose=screen.verbose))
            screen.line(screen.look.paint("muted", screen.look.safe(footer)))
    return shown


def _hints(every_folder: bool, hidden: bool) -> list[str]:
    hints = [] if every_folder else ["--all for every folder"]
    return hints if hidden else [*hints, "--hidden for empty, archived and helper sessions"]


def _tell_nothing(run: Invocation, ctx: Context, agent: str | None, where: str, *, every_folder: bool) -> None:
    """Notes what was looked at, and the next act."""
    from clew.verbs.agents import agents

    look = run.screen.errors
    run.screen.note(f"No session of {look.safe(where, line=True)}. Looked in:")
    for row in agents(ctx):
        for place in row.places if agent in (None, row.name) else ():
            run.screen.note(f"  {row.name}  {look.safe(run.shorten(place), line=True)}")
    more = "`clew agents` tells what clew can read." if every_folder else "`clew ls --all` lists those of every folder."
    run.screen.note(more)
