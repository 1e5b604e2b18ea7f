"""`clew convert`: a session carried to another agent, and what became of each part of it, in real counts."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from clew.cli import words
from clew.cli.arguments import AgentType, FolderType, folder_text, session_argument
from clew.cli.group import Command, Invocation, verb

if TYPE_CHECKING:
    from pathlib import Path

    from clew.cli.style import Look
    from clew.verbs.converted import Converted

HELP = """Carry a session to another agent.

Translates the session and puts it where the other agent looks for its sessions, so that it lists and resumes it. The
session itself is not touched, and it is captured first: what the other agent cannot say is kept here, and comes back
when the conversation comes home.

Where the conversation already has a session in that agent, that one is continued: new turns are written behind what
is there. When somebody went on there, nothing is written (exit 5, `target_diverged`); --new makes a second session.

--dry-run gives the same answer and writes nothing. --strict makes damage and what cannot be carried a failure (exit
6), with nothing written.

\b
Examples:
  $ clew convert --to codex
  $ clew convert 86d7 --to codex --dry-run
  $ clew convert claude:@ --to codex --cwd ../shop-api --model gpt-5
  $ clew convert 86d7 --to codex --out /tmp/elsewhere --json
"""


@click.command("convert", cls=Command, help=HELP, short_help="Carry a session to another agent.")
@session_argument
@click.option("--to", metavar="AGENT", required=True, type=AgentType(), help="The agent to carry it to.")
@click.option("--cwd", metavar="DIR", help="The folder it is for, instead of its own.")
@click.option("--model", metavar="M", help="The model that goes on, instead of the agent's own choice.")
@click.option("--out", metavar="DIR", type=FolderType(), help="Write below DIR, as if it were the home.")
@click.option("--new", is_flag=True, help="A new session, even where there is one to continue.")
@click.option("--full", is_flag=True, help="Carry the full history instead of the effective context.")
@click.option("--dry-run", is_flag=True, help="The same answer, and nothing is written.")
@click.option("--strict", is_flag=True, help="Refuse where something is damaged or cannot be carried.")
@verb
def COMMAND(  # noqa: N802 - the name under which every verb's module offers its command
    run: Invocation,
    session: str,
    to: str,
    cwd: str | None,
    model: str | None,
    out: str | None,
    new: bool,
    full: bool,
    dry_run: bool,
    strict: bool,
) -> None:
    """Carries a session to another agent."""
    from clew.verbs.convert import convert

    home = run.around.cwd / out if out is not None else None
    with run.context() as ctx:
        done = convert(
            ctx,
            session,
            to=to,
            cwd=folder_text(run.around.cwd, cwd) if cwd is not None else None,
            model=model,
            out=home,
            new=new,
            full=full,
            dry_run=dry_run,
            strict=strict,
        )
    if run.screen.is_json:
        run.screen.json(done)
        return
    run.screen.lines(tell_converted(run, done, dry_run=dry_run, home=home))


def tell_converted(
    run: Invocation, done: Converted, *, dry_run: bool = False, home: Path | None = None
) -> Iterator[str]:
    """Yields what became of a conversion: what came home, what was written, what is kept here, and how to go on."""
    look = run.screen.look
    source, target = done.from_, done.to
    names = [look.session(end.agent, end.session_id) for end in (source, target)]
    dry = look.paint("muted", "  (dry run: nothing is written)") if dry_run else ""
    yield f"{names[0]} → {names[1]}{dry}"
    yield from _fidelity(done, look)
    for warning in done.report.warnings:
        yield f"{look.paint('warn', '!')} {look.safe(warning, line=True)}"
    if not done.written and not dry_run:
        yield look.paint("muted", "it was there already: nothing had to be written")
    for path in target.paths:
        yield f"  {look.paint('muted', 'file ')} {look.safe(run.shorten(path), line=True)}"
    if done.thread and run.screen.verbose:
        yield f"  {look.paint('muted', 'thread')} {look.safe(done.thread, line=True)}"
    if done.resume.argv:
        line = command_line(run, done.resume.argv, done.resume.cwd, home)
        yield f"  {look.paint('muted', 'go on')} {look.safe(line, line=True)}"


def _fidelity(done: Converted, look: Look) -> Iterator[str]:
    report = done.report
    agent, source = done.to.agent, f"{done.from_.agent} {done.from_.session_id[:8]}"
    counts = [words.count(report.messages, "message")]
    if report.calls or report.results:
        counts += [words.count(report.calls, "call"), words.count(report.results, "result")]
    fields = {
        "agent": agent,
        "source": look.safe(source, line=True),
        "messages": ", ".join(counts),
        "restored": words.count(report.restored_messages, "message"),
        "rendered": f"{report.rendered_messages:,}",
        "answers": words.count(report.invented, "answer"),
    }
    state = {"prefix": "returned", "whole": "whole", "rebased": "rebased"}.get(report.mode, "translated")
    yield words.long(state, look, **fields)
    if report.invented:
        yield words.long("invented", look, **fields)
    kept = [words.amount(loss.count, loss.what) for loss in report.losses if loss.kept]
    if kept:
        yield words.long("kept", look, agent=agent, what=look.safe(", ".join(kept), line=True))
    gone = [words.amount(loss.count, loss.what) for loss in report.losses if not loss.kept]
    if gone:
        yield words.long("not_kept", look, what=look.safe(", ".join(gone), line=True))


def command_line(run: Invocation, argv: tuple[str, ...], cwd: str, home: Path | None = None) -> str:
    """Returns the line that goes on with a session, ready for a shell; `home` is where it lies, if not below the
    root."""
    place = home if home is not None else run.settings.root
    root = f"HOME={shlex.quote(str(place))} " if place is not None else ""
    folder = f"cd {shlex.quote(cwd)} && " if cwd else ""
    return f"{folder}{root}{shlex.join(argv)}"
