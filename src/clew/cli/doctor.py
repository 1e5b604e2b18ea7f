"""`clew doctor`: what is wrong around clew, and what to do about it."""

from __future__ import annotations

import click

from clew.cli.group import Command, Invocation, verb

HELP = """Tell what is wrong around clew, and what to do.

Looks at clew's own folder and stores, at the agents whose sessions are here, and at the sessions that somebody has
open; changes nothing. Exit status 1 when there is a problem. What is in order is told with -v.

\b
Examples:
  $ clew doctor
  $ clew doctor -v
  $ clew doctor --json
"""


@click.command("doctor", cls=Command, help=HELP, short_help="Tell what is wrong around clew, and what to do.")
@verb
def COMMAND(run: Invocation) -> None:  # noqa: N802 - the name under which every verb's module offers its command
    """Tells what is wrong around clew."""
    from clew.cli import words
    from clew.verbs.doctor import doctor

    screen, look = run.screen, run.screen.look
    with run.context() as ctx:
        found = doctor(ctx)
    problems = sum(one.level == "problem" for one in found)
    if screen.is_json:
        screen.json({"findings": found, "problems": problems})
    else:
        signs = {"ok": look.paint("ok", "="), "note": look.paint("muted", "·"), "problem": look.paint("warn", "!")}
        for one in found:
            if one.level == "ok" and not screen.verbose:
                continue
            text = look.safe(f"{one.about}: {one.found}", line=True)
            screen.line(f"{signs[one.level]} {text}")
            if one.do:
                screen.line(f"  {look.paint('muted', 'do')}  {look.safe(one.do, line=True)}")
        looked = words.count(len(found), "thing")
        screen.line(f"looked at {looked}: {words.count(problems, 'problem')}")
    if problems:
        click.get_current_context().exit(1)
