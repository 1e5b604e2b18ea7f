"""The sample package of another party, as it is installed: listed, converted to and home, and under the laws."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from clew.conversation.builder import make_assistant, make_call, make_result, make_user
from clew.formats.registry import get_format
from clew.laws.desk import LONG
from clew.laws.stored import store_conversation

PACKAGE = Path(__file__).parents[2] / "examples" / "clew-format-tiny"
LAWS = "every_writer_says or segments_laid_end"
Run = Callable[..., str]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Gives a folder that the package is installed in, by its own build and without a network."""
    site = tmp_path_factory.mktemp("site")
    options = ["--no-deps", "--no-build-isolation", "--no-index", "--no-compile", "--target", str(site)]
    command = [sys.executable, "-m", "pip", "--isolated", "--disable-pip-version-check", "install", "-q", *options]
    done = subprocess.run([*command, str(PACKAGE)], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return site


@pytest.fixture
def run(site: Path, tmp_path: Path) -> Run:
    """Gives a way to run modules in a process of its own, which knows the package by its installation only."""
    home = tmp_path / "home"
    home.mkdir()
    kept = {name: os.environ[name] for name in ("CLEW_LAW",) if name in os.environ}
    kept["HYPOTHESIS_STORAGE_DIRECTORY"] = str(PACKAGE.parents[1] / ".hypothesis")  # its tables are slow to make anew
    env = {"HOME": str(home), "PATH": os.environ["PATH"], "PYTHONPATH": str(site), **kept}

    def act(*arguments: str) -> str:
        command = [sys.executable, "-m", *arguments]
        done = subprocess.run(command, env=env, cwd=home, capture_output=True, text=True, check=False, timeout=1800)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return act


def test_the_agent_is_one_of_all_and_sessions_go_there_and_home(run: Run, tmp_path: Path) -> None:
    home = tmp_path / "home"
    talk = (make_user("go"), make_assistant(make_call("1", "a.b", "no object")), make_result("1", "done"))
    stored = store_conversation(get_format("claude"), talk)
    path = home / ".claude" / stored.path
    path.parent.mkdir(parents=True)
    path.write_bytes(stored.data)
    agents = json.loads(run("clew", "agents", "--json"))
    assert "tiny" in json.dumps(agents)
    there = json.loads(run("clew", "convert", f"claude:{stored.read().id}", "--to", "tiny", "--json"))
    made = there["to"]["session_id"]
    assert {p.name for p in (home / ".tiny" / made).iterdir()} == {"card.json", "doc.json"}
    path.unlink()
    run("clew", "convert", f"tiny:{made}", "--to", "claude", "--json")
    assert path.read_bytes() == stored.data


def test_it_keeps_the_laws(run: Run) -> None:
    run("clew.laws", "tiny", *(() if LONG else (f"-k={LAWS}",)))


def test_its_own_tests_pass(run: Run) -> None:
    run("pytest", "-q", "-p", "no:cacheprovider", f"--rootdir={PACKAGE}", str(PACKAGE / "tests" / "test_tiny.py"))


def test_every_file_that_the_guide_names_is_there() -> None:
    guide = (PACKAGE.parents[1] / "docs" / "add-an-agent.md").read_text("utf-8")
    for name in ("__init__", "records", "reader", "writer", "locate", "resume"):
        assert f"clew_format_tiny/{name}.py" in guide
        assert (PACKAGE / "src" / "clew_format_tiny" / f"{name}.py").is_file()
