"""`clew run`: operations over many items, started, resumed, listed, shown, compared and deleted.

The commands only collect what was typed; `run_start.py` makes operations of it, `run_output.py` tells what came of
them. What is typed for a run is kept in its log, so that `clew run resume` can resolve it anew.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, cast

import click

from clew.cli.arguments import AgentType, folder_text
from clew.cli.group import Invocation, SubGroup, verb
from clew.errors import UsageError

if TYPE_CHECKING:
    from clew.cli.run_start import Start

F = TypeVar("F", bound=Callable[..., Any])
P = ParamSpec("P")
R = TypeVar("R")

HELP = """Run an operation over many items.

A run is resolved and sealed before it exists, can be interrupted at any moment, and goes on with `clew run resume`:
finished items are not done again, and results of two inputs never stand in one report. What changed since is named,
and nothing is written; provider and model may be changed by naming them, input and rules never.

\b
Examples:
  $ clew run review --from main --agent claude
  $ clew run resume 3f9a
  $ clew run translate --from claude --to codex
  $ clew run list
"""

REVIEW_HELP = """Review the files of a diff.

The input is a range (--from A --to B: from their merge base to B), one commit (--commit C), the index (--staged), or
everything uncommitted (--workspace, the default). Each file is one item: it is asked about in a fresh session of an
agent (--agent), which reads in a checkout of the commit, or at an endpoint (--provider, --model; the key comes from
the environment). Without either, CLEW_REVIEW_AGENT or CLEW_REVIEW_PROVIDER says who, else `agent` or `provider` under
`[review]` in clew.toml, else it is the first agent here.

Rules come from --rules, then `.clew/rules.toml` of the repository, then `rules.toml` of your configuration folder,
then clew's own: the first match wins. Ranges and commits can be resumed.

The exit status is 0 when every item was done, whatever was found; 1 when some failed; 130 after Ctrl-C.

\b
Examples:
  $ clew run review --from main --agent claude
  $ clew run review --commit HEAD --provider anthropic --model claude-opus-4-5 --jobs 4
  $ clew run review --from main --format sarif --output review.sarif
  $ clew run review --from main --delta-from 3f9a
"""

TRANSLATE_HELP = """Carry many sessions to another agent, as one run.

Takes every session of the agent, or with --cwd those of one folder. Interrupted, it goes on with `clew run resume`;
sessions that were carried already are continued, never doubled.

\b
Examples:
  $ clew run translate --from claude --to codex
  $ clew run translate --from codex --to claude --cwd ~/work/shop
"""

RESUME_HELP = """Go on with a run that did not finish.

What was typed for it is resolved anew and compared with what it recorded: mode, repository, input, rules, provider,
model, in this order. The first difference is told and nothing is written (exit status 5). Another provider or model
is accepted when it is named here. A run that was killed goes on as well.

\b
Examples:
  $ clew run resume 3f9a
  $ clew run resume 3f9a --provider anthropic --model claude-opus-4-5
  $ clew run resume 3f9a --waive "src/legacy.py=nobody maintains it"
"""

DELETE_HELP = """Delete a run's log.

Inside a repository only a run of that repository is deleted; --any-repo goes by the id alone.

\b
Examples:
  $ clew run delete 3f9a
  $ clew run delete 3f9a --any-repo
"""


LIST_HELP = """List runs, newest first.

Shows the runs of this folder's repository; with --all those of every one. Elsewhere than on a terminal it writes one
run a line, columns separated by tabs: start, operation, id, state, items, folder, input. With --json it writes one
object a line.

\b
Examples:
  $ clew run list
  $ clew run list --all --json
"""

SHOW_HELP = """Show a run: its items, findings and where it came from.

RUN is a run's id or the beginning of one. --format md, sarif or json writes a report.

\b
Examples:
  $ clew run show 3f9a
  $ clew run show 3f9a --format sarif --output review.sarif
"""

COMPARE_HELP = """Compare the findings of two runs.

Tells what is new in the second, what persists, what is resolved, and what was not reviewed again. A finding is the
same when file, category and the lines quoted are; where they stand in the file plays no part. With --json it writes
{"new", "persisting", "resolved", "not_reviewed"}.

\b
Examples:
  $ clew run compare 3f9a 77b0
"""


@click.group("run", cls=SubGroup, help=HELP, short_help="Run an operation over many items.", subcommand_metavar="VERB")
def COMMAND() -> None:  # noqa: N802 - the name under which every verb's module offers its command
    """Runs operations over many items."""


run = COMMAND
"""The group under its plain name."""


def _run_verb(function: Callable[Concatenate[Invocation, P], R]) -> Callable[P, R]:
    """Gives a verb its invocation; refuses an option with an empty text, and one that holds a secret.

    An unset variable gives an empty text: `--from "$BASE"` would be another input, and `--delta-from "$RUN"` a whole
    run that is paid for. And what is typed is kept in the run's log, so that a resume can resolve it anew.
    """

    @functools.wraps(function)
    def checked(run: Invocation, /, *args: P.args, **kwargs: P.kwargs) -> R:
        ctx = click.get_current_context()
        for option in ctx.command.params:
            value: object = ctx.params.get(option.name or "")
            if isinstance(option, click.Option):
                _check_typed(option.opts[0], value)
        return function(run, *args, **kwargs)

    return verb(checked)


def _check_typed(option: str, value: object) -> None:
    from clew.runs.reason import make_plain, redact

    for text in cast("tuple[object, ...]", value if isinstance(value, tuple) else (value,)):
        if text == "":
            raise UsageError(f"{option} names nothing", hint="Leave it out if you do.")
        # The reason of a waiver is redacted, as every reason is, and not kept as it was typed.
        if isinstance(text, str) and option != "--waive" and redact(plain := make_plain(text)) != plain:
            raise UsageError(
                f"{option} holds what looks like a secret, and what is typed is kept in the run's log",
                hint="Keys go into the environment: --key-env NAME.",
            )


def _asked_options(function: F) -> F:
    """Adds the options of who is asked and how."""
    for option in reversed(
        (
            click.option("--agent", metavar="AGENT", help="Ask this agent, each item in a fresh session."),
            click.option("--provider", metavar="NAME", help="Ask this provider: openai, anthropic, or any other."),
            click.option("--model", metavar="NAME", help="The model that is asked."),
            click.option("--endpoint", metavar="URL", help="The address of the provider."),
            click.option("--key-env", metavar="NAME", help="The environment variable that holds the key."),
        )
    ):
        function = option(function)
    return function


def _work_options(function: F) -> F:
    """Adds the options of how items are worked on."""
    for option in reversed(
        (
            click.option("--jobs", metavar="N", type=click.IntRange(1, 64), help="Items at once (1)."),
            click.option("--budget", metavar="TOKENS", type=click.IntRange(min=1), help="Stop after so many tokens."),
            click.option(
                "--timeout", metavar="SECONDS", type=click.FloatRange(min=1), help="The time of one item (600)."
            ),
            click.option("--waive", metavar="PATH=REASON", multiple=True, help="Pass an item over, with a reason."),
        )
    ):
        function = option(function)
    return function


def _report_options(function: F) -> F:
    """Adds the options of the report."""
    form = click.Choice(("md", "sarif", "json"))
    function = click.option("--output", metavar="FILE", help="Write the report there instead.")(function)
    return click.option("--format", "form", metavar="FORMAT", type=form, help="The report: md, sarif or json.")(
        function
    )


@COMMAND.command("review", help=REVIEW_HELP, short_help="Review the files of a diff.")
@click.option("--from", "from_ref", metavar="REF", help="Where the range begins.")
@click.option("--to", "to_ref", metavar="REF", help="Where the range ends (HEAD).")
@click.option("--commit", metavar="REF", help="One commit.")
@click.option("--staged", is_flag=True, help="What is staged.")
@click.option("--workspace", is_flag=True, help="Everything uncommitted: staged, unstaged and untracked.")
@_asked_options
@click.option("--rules", metavar="FILE", help="A rule file above all others.")
@click.option("--include", metavar="PATTERN", multiple=True, help="Only files that match; may be repeated.")
@click.option("--exclude", metavar="PATTERN", multiple=True, help="No files that match; may be repeated.")
@click.option("--max-file-tokens", metavar="N", type=click.IntRange(min=1), help="Leave out larger patches (60000).")
@click.option("--language", metavar="NAME", help="The language of the findings.")
@_work_options
@click.option("--delta-from", metavar="RUN", help="Take over the results of files that are still the same.")
@click.option("--cwd", metavar="DIR", help="The repository, instead of the folder you are in.")
@_report_options
@_run_verb
def review(run: Invocation, **typed: Any) -> None:
    """Reviews the files of a diff."""
    from clew.cli.run_start import start_review

    parent = typed.pop("delta_from") or ""
    _carry_out(run, typed, lambda start: start_review(start, start.words), parent=parent, delta=bool(parent))


@COMMAND.command("translate", help=TRANSLATE_HELP, short_help="Carry many sessions to another agent.")
@click.option("--from", "from_agent", metavar="AGENT", type=AgentType(), required=True, help="The agent they are of.")
@click.option("--to", "to_agent", metavar="AGENT", type=AgentType(), required=True, help="The agent they go to.")
@click.option("--cwd", metavar="DIR", help="Only the sessions of this folder.")
@click.option("--model", metavar="NAME", help="The model that the new sessions name.")
@click.option("--full", is_flag=True, help="Carry the full histories instead of the effective contexts.")
@click.option("--waive", metavar="PATH=REASON", multiple=True, help="Pass a session over, with a reason.")
@click.option("--delta-from", metavar="RUN", help="Pass over sessions that are as that run carried them.")
@_report_options
@_run_verb
def translate(run: Invocation, **typed: Any) -> None:
    """Carries many sessions to another agent."""
    from clew.cli.run_start import start_translate

    parent = typed.pop("delta_from") or ""
    if typed["cwd"] is not None:
        typed["cwd"] = folder_text(run.around.cwd, typed["cwd"])
    _carry_out(run, typed, lambda start: start_translate(start, start.words), parent=parent, delta=bool(parent))


@COMMAND.command("resume", help=RESUME_HELP, short_help="Go on with a run that did not finish.")
@click.argument("run_id", metavar="RUN")
@_asked_options
@_work_options
@click.option("--cwd", metavar="DIR", help="The repository, instead of the folder you are in.")
@_report_options
@_run_verb
def resume(run: Invocation, run_id: str, **typed: Any) -> None:
    """Goes on with a run."""
    from clew.cli.run_start import resume_run

    _carry_out(run, typed, lambda start: resume_run(start, run_id), parent=run_id)


def _carry_out(
    run: Invocation,
    typed: dict[str, Any],
    begin: Callable[[Start], Any],
    *,
    parent: str,
    delta: bool = False,
) -> None:
    """Carries out a run, writes its report and ends with its status."""
    from clew.cli.run_output import check_output, exit_status, write_report
    from clew.cli.run_start import Start

    form, output = typed.pop("form"), typed.pop("output")
    check_output(run, output)
    with run.context() as ctx:
        start = Start(run, ctx, typed, parent=parent, delta=delta)
        result = start.carry_out(begin)
        write_report(run, start.settings.folder, result, form, output)
    status = exit_status(result)
    if status:
        click.get_current_context().exit(status)


@COMMAND.command("list", help=LIST_HELP, short_help="List runs, newest first.")
@click.option("--all", "every_folder", is_flag=True, help="The runs of every repository and folder.")
@click.option("--cwd", metavar="DIR", help="The runs of this folder's repository.")
@_run_verb
def list_(run: Invocation, every_folder: bool, cwd: str | None) -> None:
    """Lists runs."""
    from clew.cli.run_output import write_list
    from clew.cli.run_start import runs_folder, scope_of
    from clew.runs.summary import list_runs

    scope = None if every_folder else scope_of(run, cwd)
    write_list(run, list_runs(runs_folder(run), scope), scope)


@COMMAND.command("show", help=SHOW_HELP, short_help="Show a run: its items, findings and where it came from.")
@click.argument("run_id", metavar="RUN")
@_report_options
@_run_verb
def show(run: Invocation, run_id: str, form: str | None, output: str | None) -> None:
    """Shows a run."""
    from clew.cli.run_output import write_shown
    from clew.cli.run_start import runs_folder
    from clew.runs.folder import get_run

    write_shown(run, get_run(runs_folder(run), run_id), form, output)


@COMMAND.command("compare", help=COMPARE_HELP, short_help="Compare the findings of two runs.")
@click.argument("before", metavar="RUN")
@click.argument("after", metavar="RUN")
@_run_verb
def compare(run: Invocation, before: str, after: str) -> None:
    """Compares two runs."""
    from clew.cli.run_output import write_comparison
    from clew.cli.run_start import runs_folder
    from clew.runs.compare import compare_runs
    from clew.runs.folder import get_run

    folder = runs_folder(run)
    write_comparison(run, compare_runs(get_run(folder, before).load(), get_run(folder, after).load()))


@COMMAND.command("delete", help=DELETE_HELP, short_help="Delete a run's log.")
@click.argument("run_id", metavar="RUN")
@click.option("--any-repo", is_flag=True, help="Go by the id alone.")
@click.option("--cwd", metavar="DIR", help="The repository, instead of the folder you are in.")
@_run_verb
def delete(run: Invocation, run_id: str, any_repo: bool, cwd: str | None) -> None:
    """Deletes a run's log."""
    from clew.cli.run_start import repository_of, runs_folder
    from clew.runs.folder import delete_run

    scope: Path | None = None if any_repo else repository_of(run, cwd)
    deleted = delete_run(runs_folder(run), run_id, scope)
    if run.screen.is_json:
        run.screen.json({"deleted": deleted.run_id, "path": str(deleted.path)})
    else:
        run.screen.line(f"deleted run {deleted.run_id}")
