"""`clew completion`: the script that teaches a shell to complete clew's verbs, options, agents and sessions."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from clew.cli.group import Command, Invocation, verb

HELP = """Print the completion script of a shell.

Put the line below for your shell where it starts; verbs, options, agents and the sessions of this folder are then
completed.

\b
  bash  eval "$(clew completion bash)"                            in ~/.bashrc
  zsh   eval "$(clew completion zsh)"                             in ~/.zshrc
  fish  clew completion fish > ~/.config/fish/completions/clew.fish

\b
Examples:
  $ clew completion bash
  $ clew completion fish
"""


@click.command("completion", cls=Command, help=HELP, short_help="Print the completion script of a shell.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
@verb
def COMMAND(run: Invocation, click_context: click.Context, shell: str) -> None:  # noqa: N802 - as every verb
    """Prints the completion script of a shell."""
    found = get_completion_class(shell)
    assert found is not None, "click has the three shells that are offered"
    script = found(click_context.find_root().command, {}, "clew", "_CLEW_COMPLETE")
    source = script.source_template % script.source_vars()  # `source` would start bash to ask for its version
    run.screen.lines(source.rstrip("\n").split("\n"))
