"""The entry point: the table of verbs, and the one place that looks at the environment, the folder and the home.

Promises that starting clew loads no verb, no format, no store and no rich: each verb's module is imported when the
verb is named. A new verb is one line in `TABLE` and a module with a `COMMAND`.
"""

from __future__ import annotations

import os
from pathlib import Path

import click

import clew
from clew.cli.group import Lazy, Root
from clew.cli.settings import Surroundings

_READ, _CARRY, _LIVE, _UPKEEP = "Find and read", "Carry and keep", "Live sessions", "Upkeep"

TABLE = {
    "ls": Lazy("clew.cli.ls", "List sessions, newest first.", _READ),
    "show": Lazy("clew.cli.show", "Show a conversation.", _READ),
    "log": Lazy("clew.cli.log", "Draw where a conversation went.", _READ),
    "convert": Lazy("clew.cli.convert", "Carry a session to another agent.", _CARRY),
    "resume": Lazy("clew.cli.resume", "Go on with a session in its agent or in another.", _CARRY),
    "restore": Lazy("clew.cli.restore", "Put a session's files back, byte for byte.", _CARRY),
    "keep": Lazy("clew.cli.keep", "Capture sessions, so that they outlive their agent's clean-up.", _CARRY),
    "attach": Lazy("clew.cli.attach", "Become the one that drives a session.", _LIVE),
    "release": Lazy("clew.cli.release", "Give a session free that nobody holds any more.", _LIVE),
    "ps": Lazy("clew.cli.ps", "Show which sessions somebody has open.", _LIVE),
    "run": Lazy("clew.cli.run", "Run an operation over many items.", "Runs", optional=True),
    "agents": Lazy("clew.cli.agents", "Tell which agents are here, and what works with them.", _UPKEEP),
    "store": Lazy("clew.cli.store", "Look after clew's own data.", _UPKEEP),
    "doctor": Lazy("clew.cli.doctor", "Tell what is wrong around clew, and what to do.", _UPKEEP),
    "completion": Lazy("clew.cli.completion", "Print the completion script of a shell.", _UPKEEP),
}
"""Every verb that is here. Summaries stand here so that `clew --help` loads none of them; a test compares them."""

HELP = """Carry coding-agent sessions between agents, and home again byte for byte.

A SESSION is an agent's own id of it or the beginning of one, a path, a thread id, or `@`: the newest session of this
folder. `agent:` before an id or `@` narrows it (`claude:@`). Left out, it is `@`.

\b
Examples:
  $ clew ls
  $ clew show @
  $ clew convert claude:@ --to codex
  $ clew resume --in codex
"""

EPILOG = """\b
The options stand before the environment (CLEW_ROOT, CLEW_DATA, CLEW_STORE, ...), that before `clew.toml` in your
configuration folder, where they have the same names.

\b
Exit status: 0 done, 1 failed, 2 usage, 3 not found, 4 ambiguous, 5 refused,
6 unreadable input, 7 damage that can be recovered (`check`), 130 interrupted.
"""


def read_surroundings() -> Surroundings:
    """Returns what clew finds around it: this is where environment, folder and home are read, and nowhere else."""
    try:
        cwd = Path.cwd()
    except FileNotFoundError:  # the folder was removed under the shell
        cwd = Path(os.environ.get("PWD", "/"))
    return Surroundings(dict(os.environ), cwd, Path.home(), _config_folder, _data_folder, _state_folder)


def _config_folder() -> Path:
    from platformdirs import user_config_path

    return user_config_path("clew", appauthor=False)


def _data_folder() -> Path:
    from platformdirs import user_data_path

    return user_data_path("clew", appauthor=False)


def _state_folder() -> Path:
    from platformdirs import user_state_path

    state = user_state_path("clew", appauthor=False)
    # On macOS both have one place; what is remembered must not go back to a backup with the data.
    return state.with_name("clew-state") if state == _data_folder() else state


def _show_help(ctx: click.Context) -> None:
    click.echo(ctx.get_help())


@click.pass_context
def _no_verb(ctx: click.Context) -> None:
    if ctx.invoked_subcommand is None:
        _show_help(ctx)


cli = Root(
    name="clew",
    table=TABLE,
    around=read_surroundings,
    callback=_no_verb,
    help=HELP,
    epilog=EPILOG,
    invoke_without_command=True,
    subcommand_metavar="VERB ...",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
click.version_option(clew.__version__, "--version", prog_name="clew", message="%(prog)s %(version)s")(cli)


def main() -> None:
    """Runs clew on the command line of this process."""
    cli.main()
