"""`clew store`: upkeep of clew's own data."""

from __future__ import annotations

import click

from clew.cli import words
from clew.cli.group import Invocation, SubGroup, verb

HELP = """Look after clew's own data.

What clew keeps lies in its data folder (`--data`), its records perhaps in the database that was named (`--store`).

\b
Examples:
  $ clew store check
  $ clew store restored
"""

CHECK_HELP = """Verify all of clew's own data.

Reads everything that clew keeps and compares it with its digests; changes nothing. Exit status 1 when something is
wrong. With --json it writes {"problems": [...]}.

\b
Examples:
  $ clew store check
  $ clew store check --json
"""


RESTORED_HELP = """Say that a backup was put in the store's place.

A session's fence only grows, so that a process which once owned it can write nothing later. Records that come from a
backup do not know which fences were granted since. clew notices most of this by itself; say it where it cannot: the
whole machine or home folder went back, or the data folder was copied to another machine.

From then on fences go on above every one that may have been granted. Nothing else changes, and saying it in vain, or
twice, does no harm. With --json it writes {"store_id": ..., "fence_floor": ...}.

\b
Examples:
  $ clew store restored
  $ clew store restored --store postgresql://clew@db/clew
"""


@click.group("store", cls=SubGroup, help=HELP, short_help="Look after clew's own data.", subcommand_metavar="VERB ...")
def COMMAND() -> None:  # noqa: N802 - the name under which every verb's module offers its command
    """Looks after clew's own data."""


@COMMAND.command("check", help=CHECK_HELP, short_help="Verify all of clew's own data.")
@verb
def check(run: Invocation) -> None:
    """Verifies clew's own data."""
    from clew.verbs.check_store import check_store

    screen, look = run.screen, run.screen.look
    with run.context() as ctx:
        problems = list(check_store(ctx))
    if screen.is_json:
        screen.json({"problems": problems})
    for problem in () if screen.is_json else problems:
        capture = f" (capture {problem.capture})" if problem.capture is not None else ""
        text = f"{problem.sort.replace('_', ' ')}: {problem.detail}{capture}"
        screen.line(f"{look.paint('error', '!')} {look.safe(text, line=True)}")
    if problems:
        screen.note(f"{words.count(len(problems), 'problem')}; nothing was changed")
        click.get_current_context().exit(1)
    if not screen.is_json:
        screen.line("all of clew's own data agrees with its digests")


@COMMAND.command("restored", help=RESTORED_HELP, short_help="Say that a backup was put in the store's place.")
@verb
def restored(run: Invocation) -> None:
    """Raises the floor under all fences."""
    from clew.verbs.restored_store import restored_store

    screen = run.screen
    with run.context() as ctx:
        told = restored_store(ctx)
    if screen.is_json:
        screen.json(told)
    else:
        screen.line(f"noted: no fence below {told.fence_floor:,} is granted any more")
