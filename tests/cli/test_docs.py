"""The reference is made from the commands, is up to date, and names everything."""

import re
import runpy
from pathlib import Path

import click
import pytest

from clew.cli.main import TABLE, cli
from clew.cli.settings import GLOBALS

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def page():
    return (ROOT / "docs" / "cli.md").read_text("utf-8")


def test_the_reference_is_up_to_date(page):
    made = runpy.run_path(str(ROOT / "scripts" / "cli_reference.py"))["make_reference"]()
    assert page == made, "run scripts/docs"


def test_every_verb_and_option_is_in_the_reference(page):
    context = click.Context(cli, info_name="clew")
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        assert command is not None
        assert f"### clew {name}\n" in page
        for parameter in command.params:
            if isinstance(parameter, click.Option) and not parameter.hidden:
                assert any(f"`{option}" in page or f", {option}" in page for option in parameter.opts), parameter.name
    for option in GLOBALS:
        assert option.help in page


def test_the_reference_has_no_command_that_does_not_exist(page):
    for name in re.findall(r"^### clew (\w+)", page, re.MULTILINE):
        assert name in TABLE
