"""`clew ps`: the sessions that somebody has open."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from clew.cli import words
from clew.cli.group import Command, Invocation, verb

if TYPE_CHECKING:
    from clew.cli.style import Look, Role
    from clew.verbs.ps import Live

HELP = """Show which sessions somebody has open.

One row a session, with what is certain of it: its state, its process, its fence, its folder. `live` is proved alive;
`exited` is proved dead, and whoever opens the session next gets it; `stranded` lives on although the clew that drove it
is dead; `unproven` cannot be told from here; `elsewhere` belongs to another host; `unleased` is open in its agent, but
not through clew.
Writes nothing. Elsewhere than on a terminal the columns are separated by tabs.

\b
Examples:
  $ clew ps
  $ clew ps --json
"""

_ROLES: dict[str, Role] = {
    "live": "live",
    "unleased": "live",
    "opening": "live",
    "exited": "muted",
    "stranded": "warn",
    "unproven": "warn",
    "elsewhere": "warn",
    "unreadable": "error",
}


@click.command("ps", cls=Command, help=HELP, short_help="Show which sessions somebody has open.")
@verb
def COMMAND(run: Invocation) -> None:  # noqa: N802 - the name under which every verb's module offers its command
    """Shows the sessions that somebody has open."""
    from clew.verbs.ps import ps

    screen, look = run.screen, run.screen.look
    with run.context() as ctx:
        rows = ps(ctx)
    if screen.is_json:
        screen.json({"sessions": rows})
        return
    if not look.terminal:
        for row in rows:
            cells = (row.state, row.agent, row.session_id, str(row.pid or ""), row.host, str(row.fence), row.cwd)
            screen.line("\t".join(look.safe(cell, line=True) for cell in cells))
        return
    if not rows:
        screen.line("nobody has a session open")
        return
    widths = (max(len(row.state) for row in rows), max(len(row.agent) for row in rows))
    for row in rows:
        screen.line(_line(run, row, look, widths))
        if row.reason and row.state not in ("live", "opening"):
            screen.line("  " + look.paint("muted", look.safe(f"{row.reason}. {row.do}", line=True)))
        if row.unconfirmed:
            told = words.count(row.unconfirmed, "message")
            screen.line("  " + words.long("unknown", look, detail=f"{told} handed over"))


def _line(run: Invocation, row: Live, look: Look, widths: tuple[int, int]) -> str:
    where = "" if row.here else f" on {row.host}"
    process = f"process {row.pid}{where}" if row.pid else f"no process{where}"
    held = f", driven by {row.holder_pid}" if row.holder_pid else ""
    fence = f", fence {row.fence}" if row.fence else ""
    folder = f"  {look.safe(run.shorten(row.cwd), line=True)}" if row.cwd else ""
    state = look.paint(_ROLES.get(row.state, ""), row.state.ljust(widths[0]))
    agent = look.paint("agent", look.safe(row.agent, line=True).ljust(widths[1]))
    named = look.safe(row.session_id or row.strand, line=True)
    return f"{state}  {agent}  {named}  {look.safe(process + held + fence, line=True)}{folder}"
