"""A real review by real agents: killed once, resumed, refused a silent change of model, changed on purpose.

The command line runs as a process of its own, so that it can be killed; the agent is the one that a user would call,
with the fake model behind it. What counts is what reached the model, and what lies in the agent's home afterwards.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from agents.desk import MODELS, SECONDS, Desk, answer
from agents.lab.model import FakeModel
from agents.lab.needs import need_agent
from agents.lab.process import end_tree, wait_for
from agents.lab.script import Call, calls, say

pytestmark = pytest.mark.agent

LOOK = {
    "claude": Call("Grep", {"pattern": "committed", "output_mode": "content"}),
    "codex": Call("exec_command", {"cmd": "cat b.py"}),
}


@pytest.fixture
def shop(desk: Desk) -> Desk:
    """The desk with three changed files, one of which is dirty."""
    desk.git("init", "-q", "-b", "main")
    desk.commit({"a.py": "a = 1\n"})
    desk.git("branch", "base")
    desk.commit({"a.py": "a = 2\n", "b.py": "b = 'committed'\n", "c.py": "c = 1\n"})
    (desk.root / "b.py").write_text("b = 'dirty'\n")
    return desk


@pytest.fixture(params=["claude", "codex"])
def desk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Desk]:
    agent = str(request.param)
    need_agent(agent)
    with FakeModel() as model:
        yield Desk(agent, tmp_path, model)


def test_a_review_is_killed_resumed_refused_and_changed_on_purpose(shop: Desk) -> None:
    desk = shop
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


def test_a_polite_end_leaves_a_finished_log_and_no_agent_behind(shop: Desk) -> None:
    desk = shop
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
