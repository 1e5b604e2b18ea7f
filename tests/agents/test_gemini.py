"""Gemini CLI lists and resumes what clew put back where the agent's own list of folders is not, or no longer."""

import json
import shutil
from pathlib import Path

import pytest

from agents.lab import gemini
from agents.lab.needs import need_agent
from clew.formats.protocol import Home
from clew.platform.clock import SystemClock
from clew.verbs.context import Context
from clew.verbs.keep import keep
from clew.verbs.restore import restore

pytestmark = pytest.mark.agent


def test_a_session_restored_into_an_empty_home_is_listed_and_goes_on(tmp_path: Path) -> None:
    need_agent("gemini")
    home, empty, folder = tmp_path / "home", tmp_path / "empty", tmp_path / "My Shop"
    folder.mkdir()
    (home / ".gemini").mkdir(parents=True)
    # the agent's first choice of a name is another folder's: an empty home would not lead to the second one
    (home / ".gemini" / "projects.json").write_text(json.dumps({"projects": {"/other/my-shop": "my-shop"}}))
    made = gemini.start(home, folder, ["Say hello."])
    assert made.session_id is not None
    with Context(Home(home), tmp_path / "data", cwd=folder, clock=SystemClock()) as ctx:
        list(keep(ctx, [made.session_id]))
        done = restore(ctx, made.session_id, to=empty)
        assert [Path(path).relative_to(empty).as_posix() for path in done.listed] == [
            ".gemini/tmp/my-shop-1/.project_root"
        ]
        for root in (empty, home):
            if root is home:  # and at home, after the agent's folder was lost
                shutil.rmtree(home / ".gemini")
                restore(ctx, made.session_id)
            assert [one["id"] for one in gemini.list_sessions(root, folder)] == [made.session_id]
            seen = gemini.resume(root, folder, made.session_id)
            assert (seen.exit, len(seen.messages)) == (0, 3)
