"""A real review of this repository's own last commits, by real agents: killed, refused, resumed, changed on purpose.

The checkout is cloned first, so that nothing of it is touched. The model behind the agents is the fake one; the
findings are its own. The figures are printed (`pytest -s`).
"""

import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agents.desk import MODELS, SECONDS, Desk, answer, fingerprint
from agents.lab.model import FakeModel
from agents.lab.needs import need_agent
from agents.lab.process import end_tree, wait_for
from agents.lab.script import say

pytestmark = pytest.mark.agent

CHECKOUT = Path(__file__).resolve().parents[2]
AT_LEAST, AT_MOST = 6, 12
"""How many files the review is about: so many last commits as have the first number, cut off at the second."""


def git(*arguments: str) -> str:
    done = subprocess.run(("git", "-C", CHECKOUT, *arguments), capture_output=True, check=False)
    return done.stdout.decode("utf-8", "replace").strip() if done.returncode == 0 else ""


@pytest.fixture(params=["claude", "codex"])
def desk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Desk]:
    need_agent(str(request.param))
    if git("rev-parse", "--show-toplevel") != str(CHECKOUT):
        pytest.skip("this checkout is no git repository: it has no last commits to review")
    if git("rev-parse", "--is-shallow-repository") != "false":
        pytest.skip("this checkout is shallow: its last commits have no parents to review them against")
    with FakeModel() as model:
        desk = Desk(str(request.param), tmp_path, model)
        desk.git("clone", "-q", "--no-hardlinks", str(CHECKOUT), ".")
        yield desk


def last_commits(desk: Desk) -> tuple[str, int, list[str]]:
    """Where the review begins, how many commits it is about, and its files."""
    for back in range(2, 60):
        listed = desk.git(
            "diff", "--name-only", "--diff-filter=AM", "--no-renames", f"HEAD~{back}", "HEAD", "--", "*.py"
        )
        if len(files := listed.split()) >= AT_LEAST:
            return f"HEAD~{back}", back, files[:AT_MOST]
    raise AssertionError("the last commits changed nothing")


def findings(report: dict[str, Any]) -> list[dict[str, Any]]:
    return report["findings"]


def test_the_own_last_commits_are_reviewed_through_everything(desk: Desk) -> None:
    began = time.monotonic()
    first, second = MODELS[desk.agent]
    base, commits, files = last_commits(desk)
    chosen = [word for name in files for word in ("--include", name)]
    review = ("run", "review", "--from", base, "--agent", desk.agent, "--timeout", "100", *chosen)
    half = len(files) // 2
    by_first = {"CLEW_REVIEW_MODEL": first}

    # Killed with SIGKILL while the model speaks about a file in the middle.
    desk.model.extend([*map(answer, files[:half]), answer(files[half], hang_after=1)])
    child = desk.start(*review, **by_first)
    try:
        wait_for(desk.model.hanging.is_set, "the model to hang", SECONDS)
    finally:
        end_tree(child)
        child.communicate()
    killed_asked = desk.asked()
    _, killed = desk.clew("run", "list")
    assert (killed["state"], killed["completed"], killed["selected"]) == ("aborted", half, len(files))

    # Another model by the environment alone: refused with its message; nothing is written, nobody is asked.
    before, turns = fingerprint(desk.root, desk.data / "runs", desk.home), len(desk.model.turns)
    status, refused = desk.clew("run", "resume", killed["run_id"], CLEW_REVIEW_MODEL=second)
    assert (status, refused["error"]["code"]) == (5, "model_changed")
    assert f"done by model {first}, and now it would be {second}" in refused["error"]["message"]
    assert f"--model {second}" in refused["error"]["message"]
    assert fingerprint(desk.root, desk.data / "runs", desk.home) == before
    assert len(desk.model.turns) == turns

    # Resumed: what was finished is not asked about again; the last file gets an answer that is none.
    desk.model.extend([*map(answer, files[half:-1]), say("no idea", when=f"File: {files[-1]}")])
    status, resumed = desk.clew("run", "resume", killed["run_id"], **by_first)
    resumed_asked = desk.asked(turns)
    assert (status, resumed["state"]) == (1, "partial"), resumed
    assert resumed["manifest"]["parent_interrupted"] is True
    assert sorted(resumed_asked.elements()) == sorted(files[half:])

    # Another model on purpose: accepted, written down, and asked about what is left alone.
    turns = len(desk.model.turns)
    desk.model.extend([answer(files[-1])])
    status, done = desk.clew("run", "resume", resumed["run"], "--model", second, **by_first)
    changed_asked = desk.asked(turns)
    assert (status, done["state"]) == (0, "complete"), done
    assert (done["lineage"]["source"]["model"], done["lineage"]["target"]["model"]) == (first, second)
    assert changed_asked == {files[-1]: 1}
    assert desk.model.turns[-1].body["model"] == second
    assert len(done["manifest"]["coverage"]["reused"]) == len(files) - 1

    # The report is that of a review which nothing happened to.
    turns = len(desk.model.turns)
    desk.model.extend(map(answer, files))
    status, whole = desk.clew(*review, **by_first)
    assert status == 0, whole
    assert desk.asked(turns) == dict.fromkeys(files, 1)
    assert done["findings"] == whole["findings"]
    assert done["manifest"]["coverage"]["selected"] == whole["manifest"]["coverage"]["selected"]
    assert done["manifest"]["input"] == whole["manifest"]["input"]
    _, one = desk.clew("run", "show", done["run"], "--format", "sarif")
    _, other = desk.clew("run", "show", whole["run"], "--format", "sarif")
    assert one["runs"][0]["results"] == other["runs"][0]["results"]
    _, compared = desk.clew("run", "compare", done["run"], whole["run"])
    assert {name: len(found) for name, found in compared.items()} == {
        "new": 0, "persisting": len(files), "resolved": 0, "not_reviewed": 0,
    }  # fmt: skip

    # A session of its own for each file, known to the lineage; nothing is left in the repository.
    sessions = [item["session"]["session_id"] for item in done["items"]]
    listed = {found["id"]: found for found in desk.listed()}
    assert len(set(sessions)) == len(files)
    assert all(listed[session]["thread"] for session in sessions)
    assert desk.git("status", "--porcelain") == ""
    assert desk.git("worktree", "list").count("\n") == 1
    paid = killed_asked + resumed_asked + changed_asked
    assert sum(paid.values()) == len(files) + 2, "twice only what was cut off, and what got no answer"
    figures = {
        "agent": desk.agent, "commits": commits, "files": len(files), "finished_before_the_kill": half,
        "asked_before": sum(killed_asked.values()), "asked_by_the_resume": sum(resumed_asked.values()),
        "asked_by_the_other_model": sum(changed_asked.values()), "findings": len(done["findings"]),
        "seconds": round(time.monotonic() - began, 1),
    }  # fmt: skip
    print(json.dumps(figures))
