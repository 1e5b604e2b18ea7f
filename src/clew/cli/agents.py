"""`clew agents`: which agents are here, and what works with them."""

from __future__ import annotations

import click

from clew.cli.group import Command, Invocation, verb

HELP = """Tell which agents are here, and what works with them.

For each agent that clew knows: whether its folder is there, how many sessions lie in it, whether clew reads and
writes its format, and with which version of the real agent that was last tried. Elsewhere than on a terminal the
columns are separated by tabs.

\b
Examples:
  $ clew agents
  $ clew agents --json
"""


@click.command("agents", cls=Command, help=HELP, short_help="Tell which agents are here, and what works with them.")
@verb
def COMMAND(run: Invocation) -> None:  # noqa: N802 - the name under which every verb's module offers its command
    """Tells which agents are here."""
    from clew.cli.width import pad, width_of
    from clew.verbs.agents import agents

    screen, look = run.screen, run.screen.look
    with run.context() as ctx:
        rows = agents(ctx)
    if screen.is_json:
        screen.json({"agents": rows})
        return
    table = [("agent", "name", "here", "sessions", "does", "tried with", "places")]
    for row in rows:
        does = " ".join(word for word, able in (("read", row.read), ("write", row.write)) if able) or row.problem
        places = ", ".join(run.shorten(place) for place in row.places)
        here = "yes" if row.found else "no"
        cells = (row.name, row.title, here, f"{row.sessions:,}", does, row.verified or "-", places)
        table.append(tuple(look.safe(cell, line=True) for cell in cells))  # type: ignore[arg-type]
    if not look.terminal:
        screen.lines("\t".join(cells) for cells in table[1:])
        return
    widths = [max(width_of(cells[i]) for cells in table) for i in range(len(table[0]) - 1)]
    for number, cells in enumerate(table):
        line = "  ".join((*(pad(cell, width) for cell, width in zip(cells, widths, strict=False)), cells[-1]))
        screen.line(look.paint("muted", line) if number == 0 else line)
