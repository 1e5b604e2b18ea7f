"""A real review by real agents: killed once, resumed, refused a silent change of model, changed on purpose.

The command line runs as a process of its own, so that it can be killed; the agent is the one that a user would call,
with the fake model behind it. What counts is what reached the model, and what lies in the agent's home afterwards.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agents.install import find_agent
from agents.lab import claude, codex
from agents.lab.model import FakeModel
from agents.lab.needs import need_agent
from agents.lab.process import end_tree, wait_for
from agents.lab.script import Call, Step, calls, say

pytestmark = pytest.mark.agent

MODELS = {"claude": ("claude-opus-4-5", "claude-sonnet-4-5"), "codex": ("gpt-5.5", "gpt-5.4")}
LOOK = {
    "claude": Call("Grep", {"pattern": "committed", "output_mode": "content"}),
    "codex": Call("exec_command", {"cmd": "cat b.py"}),
}
SECONDS = 120


def answer(path: str, **options: Any) -> Step:
    finding = {"text": f"look at {path}", "severity": "major", "start_line": 1}
    return say(json.dumps({"findings": [finding]}), when=f"File: {path}", **options)


class Desk:
    """A repository with three changed files, a home with the agent's settings, and the command line."""

    def __init__(self, agent: str, folder: Path, model: FakeModel) -> None:
        self.agent, self.model = agent, model
        self.home, self.root, self.data = folder / "home", folder / "shop", folder / "data"
        for made in (self.home, self.root):
            made.mkdir()
        self.environment = self._environment(folder)
        self.git("init", "-q", "-b", "main")
        self.commit({"a.py": "a = 1\n"})
        self.git("branch", "base")
        self.commit({"a.py": "a = 2\n", "b.py": "b = 'committed'\n", "c.py": "c = 1\n"})
        (self.root / "b.py").write_text("b = 'dirty'\n")

    def _environment(self, folder: Path) -> dict[str, str]:
        binary = find_agent(self.agent)
        assert binary is not None
        programs = folder / "bin"
        programs.mkdir()
        (programs / self.agent).symlink_to(binary)
        if self.agent == "claude":
            env = claude.environment(self.home, self.model)
        else:
            env = codex.environment(self.home)
            options = list(codex.overrides(self.model, self.home, codex.PROVIDER, MODELS["codex"][0]))[1::2]
            (self.home / ".codex" / "config.toml").write_text(config(options))
        git = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
        return env | git | {"PATH": f"{programs}:{env['PATH']}", "CLEW_DATA": str(self.data)}

    def git(self, *arguments: str) -> str:
        who = ("-c", "user.name=A", "-c", "user.email=a@example.org")
        done = subprocess.run(
            ("git", "-C", self.root, *who, *arguments), env=self.environment, capture_output=True, check=True
        )
        return done.stdout.decode()

    def commit(self, files: dict[str, str]) -> None:
        for name, content in files.items():
            (self.root / name).write_text(content)
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "change")

    def start(self, *words: str, **more: str) -> subprocess.Popen[bytes]:
        code = "from clew.cli.main import main; main()"
        return subprocess.Popen(
            (sys.executable, "-c", code, *words, "--json"),
            cwd=self.root,
            env=self.environment | more,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def clew(self, *words: str, **more: str) -> tuple[int, dict[str, Any]]:
        child = self.start(*words, **more)
        try:
            out, err = child.communicate(timeout=SECONDS)
        finally:
            end_tree(child)
        text = (out or err).decode().strip().splitlines()
        return child.returncode, json.loads(text[-1]) if text else {}

    def listed(self) -> list[dict[str, Any]]:
        """The sessions of every folder, as `clew ls` has them."""
        child = self.start("ls", "--all", "--hidden")
        out, _ = child.communicate(timeout=SECONDS)
        return [json.loads(line) for line in out.splitlines()]


def config(options: list[str]) -> str:
    """Codex's `-c` options as its configuration file: plain keys first, then tables."""
    plain = [option for option in options if "." not in option.partition("=")[0]]
    dotted = [option for option in options if "." in option.partition("=")[0]]
    return "\n".join([*plain, *dotted]) + "\n"


@pytest.fixture(params=["claude", "codex"])
def desk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Desk]:
    agent = str(request.param)
    need_agent(agent)
    with FakeModel() as model:
        yield Desk(agent, tmp_path, model)


def test_a_review_is_killed_resumed_refused_and_changed_on_purpose(desk: Desk) -> None:
    first_model, second_model = MODELS[desk.agent]
    review = ("run", "review", "--from", "base", "--agent", desk.agent, "--model", first_model, "--timeout", "100")

    # Killed while the model speaks about the second file.
    hang = answer("b.py", hang_after=1)
    desk.model.extend([answer("a.py"), hang])
    child = desk.start(*review)
    try:
        wait_for(desk.model.hanging.is_set, "the model to hang", SECONDS)
    finally:
        end_tree(child)
        child.communicate()
    _, killed = desk.clew("run", "list")
    assert (killed["state"], killed["completed"], killed["reusable"]) == ("aborted", 1, 1)

    # Resumed: the first file is not paid for again; the agent reads the commit, not the user's dirty file.
    look = calls(LOOK[desk.agent], when="File: b.py")
    then = say(json.dumps({"findings": []}), when="committed")
    desk.model.extend([look, then, say("no idea", when="File: c.py")])
    before = len(desk.model.turns)
    status, resumed = desk.clew("run", "resume", killed["run_id"])
    assert status == 1, resumed
    assert resumed["manifest"]["parent_interrupted"] is True
    covered = resumed["manifest"]["coverage"]
    assert [i["path"] for i in covered["reused"]] == ["a.py"]
    assert [i["path"] for i in covered["completed"]] == ["b.py"], covered
    assert [i["reason"][:33] for i in covered["failed"]] == ["the answer holds no list of findi"]
    told = [json.dumps(turn.body) for turn in desk.model.turns[before:]]
    assert not any("File: a.py\\n" in body for body in told)
    assert any("committed" in body and "File: b.py\\n" in body for body in told)
    assert not any("dirty" in body for body in told)
    assert "dirty" in (desk.root / "b.py").read_text()
    assert desk.git("worktree", "list").count("\n") == 1

    # Another model by configuration alone: refused, and nobody is asked.
    before = len(desk.model.turns)
    implicit = {"CLEW_REVIEW_AGENT": desk.agent, "CLEW_REVIEW_MODEL": second_model}
    delta = ("run", "review", "--from", "base", "--delta-from", resumed["run"])
    status, refused = desk.clew(*delta, **implicit)
    assert (status, refused["error"]["code"]) == (5, "model_changed")
    assert f"--model {second_model}" in refused["error"]["message"]
    assert len(desk.model.turns) == before

    # On purpose: accepted, written down, and the other model does the rest.
    desk.model.extend([answer("c.py")])
    status, done = desk.clew("run", "resume", resumed["run"], "--model", second_model)
    assert status == 0, done
    assert done["state"] == "complete"
    assert done["lineage"]["source"]["model"] == first_model
    assert done["lineage"]["target"]["model"] == second_model
    assert desk.model.turns[-1].body["model"] == second_model
    assert [f["path"] for f in done["findings"]] == ["a.py", "c.py"]

    # Every item has a session of its own, which lies in the agent's home and is known to the lineage.
    sessions = [item["session"]["session_id"] for item in done["items"]]
    assert len(set(sessions)) == 3
    listed = {one["id"]: one for one in desk.listed()}
    assert set(sessions) <= set(listed)
    assert all(listed[session]["thread"] for session in sessions)


def test_a_polite_end_leaves_a_finished_log_and_no_agent_behind(desk: Desk) -> None:
    desk.model.extend([answer("a.py"), answer("b.py", hang_after=1)])
    child = desk.start("run", "review", "--from", "base", "--agent", desk.agent)
    try:
        wait_for(desk.model.hanging.is_set, "the model to hang", SECONDS)
        child.terminate()
        child.communicate(timeout=SECONDS)
    finally:
        end_tree(child)
    assert child.returncode == 130
    _, ended = desk.clew("run", "list")
    assert ended["state"] == "failed"
    assert ended["run_failure"]["classification"] == "cancelled"
    assert (ended["completed"], ended["reusable"]) == (1, 1)
    assert not list((desk.data / "checkouts").iterdir())
