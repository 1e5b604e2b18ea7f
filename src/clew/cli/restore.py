"""`clew restore`: a captured session's files back in their place, byte for byte."""

from __future__ import annotations

import click

from clew.cli import words
from clew.cli.arguments import FolderType, session_argument
from clew.cli.group import Command, Invocation, verb

HELP = """Put a session's files back, byte for byte.

Writes the files of a captured session, its side files included, where they were; with --to below another folder that
stands for the home. A file that is there with the same bytes stays; over other bytes nothing is written (exit 5).
What the agent needs besides to list the session is made anew where it is missing, and told as `index`.
Capture 1 is the oldest; the newest is taken when --capture is left out.

\b
Examples:
  $ clew restore 86d7
  $ clew restore claude:86d7 --capture 1 --to /tmp/look
"""


@click.command("restore", cls=Command, help=HELP, short_help="Put a session's files back, byte for byte.")
@session_argument
@click.option("--to", metavar="DIR", type=FolderType(), help="Write below DIR, as if it were the home.")
@click.option("--capture", metavar="N", type=click.IntRange(min=1), help="The N-th capture (1 is the oldest).")
@verb
def COMMAND(  # noqa: N802 - the name under which every verb's module offers its command
    run: Invocation, session: str, to: str | None, capture: int | None
) -> None:
    """Puts a session's files back."""
    from clew.verbs.restore import restore

    screen, look = run.screen, run.screen.look
    with run.context() as ctx:
        done = restore(ctx, session, to=run.around.cwd / to if to is not None else None, capture=capture)
    if screen.is_json:
        screen.json(done)
        return
    screen.line(look.session(done.agent, done.session_id))
    files = len(done.paths) + len(done.unchanged)
    digest = done.digest if screen.verbose else f"{done.digest[:8]}{look.own('…')}"
    screen.line(
        words.long(
            "home", look, records=words.count(done.records, "record"), files=words.count(files, "file"), digest=digest
        )
    )
    screen.line(
        look.paint("muted", f"  capture {done.capture} of {done.captures}, taken {look.safe(done.taken, line=True)}")
    )
    for sort, paths in (("file ", done.paths), ("there", done.unchanged), ("index", done.listed)):
        for path in paths:
            screen.line(f"  {look.paint('muted', sort)} {look.safe(run.shorten(path), line=True)}")
    for warning in done.warnings:
        screen.line(f"{look.paint('warn', '!')} {look.safe(warning, line=True)}")
