"""`clew show`: one conversation for a reader, as Markdown, as a page, or as JSON."""

from __future__ import annotations

from collections.abc import Iterator

import click

from clew.cli.arguments import session_argument
from clew.cli.group import Command, Invocation, verb

HELP = """Show a conversation.

Shows what a resume would send to the model: the effective context, after compaction and on the active branch. With
--full it is the full history, with the results of all calls opened. Each prompt begins with a rule across the screen
(in a pager, `/^──` goes from one to the next); the calls of an answer stand below it in one block, and a failed one
shows its last line. Messages are numbered as in all of clew's reports.

On a terminal it goes through the pager ($PAGER, else less). --format md and html write a document: the page is one
file without scripts that loads nothing. Nothing is taken out of it: look through it before you give it away.

\b
Examples:
  $ clew show
  $ clew show 86d7 --full
  $ clew show claude:@ --tools
  $ clew show 86d7 --branch 2
  $ clew show 86d7 --full --format html > session.html
"""


@click.command("show", cls=Command, help=HELP, short_help="Show a conversation.")
@session_argument
@click.option("--full", is_flag=True, help="The full history, with all results.")
@click.option("--tools", is_flag=True, help="Only the prompts and the calls, with all results.")
@click.option("--branch", metavar="N", type=click.IntRange(min=1), help="A branch that is not active (from 1).")
@click.option(
    "--format",
    "form",
    metavar="FORM",
    type=click.Choice(["text", "md", "html"]),
    default="text",
    help="As text, md (Markdown) or html (a page in one file).",
)
@verb
def COMMAND(  # noqa: N802 - the name under which every verb's module offers its command
    run: Invocation, session: str, full: bool, tools: bool, branch: int | None, form: str
) -> None:
    """Shows a conversation."""
    from clew.verbs.show import show

    screen = run.screen
    with run.context() as ctx:
        shown = show(ctx, session, full=full, branch=branch)
        now = ctx.clock.now()
    if screen.is_json:
        screen.json(shown)
        return
    if form == "text":
        from clew.cli.transcript import Transcript

        # Without a terminal the year always stands there: a kept text must not change its meaning.
        moment = now if screen.look.terminal else None
        detail = "tools" if tools else "full" if full else "short"
        lines: Iterator[str] = Transcript(shown, screen.look, detail, moment).lines()
    elif form == "md":
        from clew.cli.document import markdown_lines

        lines = markdown_lines(shown)
    else:
        from clew.cli.page import page_lines

        lines = page_lines(shown, ascii_only=not screen.look.utf8)
    with screen.paged():
        screen.lines(lines)
