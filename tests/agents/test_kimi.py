"""Kimi Code goes on with what clew wrote by the very command line that clew gives, without a terminal as well."""

from pathlib import Path

import pytest

from agents.lab import kimi
from agents.lab.model import FakeModel
from agents.lab.needs import need_agent
from agents.lab.process import SECONDS, run
from agents.lab.script import say
from clew.formats.protocol import Home
from clew.platform.clock import FixedClock
from clew.verbs.context import Context
from clew.verbs.convert import convert
from clew_corpus import own_case

pytestmark = pytest.mark.agent


def test_the_command_line_that_clew_gives_goes_on_headless(tmp_path: Path) -> None:
    need_agent("kimi")
    case = own_case("claude", "simple")
    home, folder = case.copy_home(tmp_path / "home"), tmp_path / "work"
    folder.mkdir()
    with FakeModel([say("The thread goes on.")]) as model:
        kimi.configure(home, model.url)
        with Context(Home(home), home / "clew-data", cwd=folder, clock=FixedClock()) as ctx:
            made = convert(ctx, f"claude:{case.session_id}", to="kimi", cwd=str(folder))
        argv = [*kimi.program(), *made.resume.argv[1:], "-p", "Go on."]
        done = run(argv, folder, kimi.environment(home), SECONDS)
        assert done.status == 0, done.said
        assert [len(kimi.read_body(one.body)[0]) for one in model.turns] == [7]
