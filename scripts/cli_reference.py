"""Writes docs/cli.md: the reference of the command line, made from the commands themselves.

Nothing in that page is written by hand; `scripts/docs` writes it anew, and a test compares.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from clew.cli.group import Command, SubGroup
from clew.cli.main import EPILOG, HELP, TABLE, cli
from clew.cli.settings import GLOBALS

PAGE = Path(__file__).resolve().parent.parent / "docs" / "cli.md"

INTRODUCTION = """# The command line

This page is made from the commands' own help by `scripts/docs`. The verbs, their options, their exit statuses and
their JSON are a stable interface.
"""


def make_reference() -> str:
    """Returns the whole page."""
    return re.sub(r"\n{3,}", "\n\n", "\n".join(_lines())).rstrip() + "\n"


def _lines() -> Iterator[str]:
    yield INTRODUCTION
    yield from _prose(HELP)
    context = click.Context(cli, info_name="clew")
    section = ""
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        assert command is not None, "a listed verb can be loaded"
        if TABLE[name].section != section:
            section = TABLE[name].section
            yield f"\n## {section}\n"
        yield from _command(f"clew {name}", command, click.Context(command, info_name=name, parent=context))
    yield "\n## Options of every verb\n"
    yield "They may stand before or after the verb.\n"
    for option in GLOBALS:
        names = ", ".join(option.spellings) + (f" {option.metavar}" if option.metavar else "")
        choices = f" One of {', '.join(option.choices)}." if option.choices else ""
        yield f"* `{names}`: {option.help}{choices}"
    yield ""
    yield from _prose(EPILOG)


def _command(path: str, command: click.Command, context: click.Context) -> Iterator[str]:
    usage = " ".join(command.collect_usage_pieces(context))
    yield f"\n### {path}\n"
    yield f"    {path} {usage}\n"
    yield from _prose(command.help or "")
    own = command.own_params if isinstance(command, Command | SubGroup) else command.params
    options = [parameter for parameter in own if isinstance(parameter, click.Option)]
    for option in options:
        names = ", ".join(option.opts) + (f" {option.metavar}" if option.metavar and not option.is_flag else "")
        yield f"* `{names}`: {option.help}"
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None, "a listed verb can be loaded"
            yield from _command(f"{path} {name}", inner, click.Context(inner, info_name=name, parent=context))


def _prose(text: str) -> Iterator[str]:
    """Yields help as Markdown: indented lines become a block of code, the marks of click go."""
    for paragraph in text.strip().split("\n\n"):
        lines = [line for line in paragraph.split("\n") if line.strip() != "\b"]
        code = [line[2:] for line in lines if line.startswith("  ")]
        plain = [line for line in lines if not line.startswith("  ")]
        yield "\n".join(plain)
        if code:
            yield "\n" * bool(plain) + "\n".join(f"    {line}" for line in code)
        yield ""


if __name__ == "__main__":
    if "--check" in sys.argv[1:]:
        sys.exit(0 if PAGE.read_text("utf-8") == make_reference() else f"{PAGE.name} is behind: run scripts/docs")
    PAGE.write_text(make_reference(), "utf-8")
