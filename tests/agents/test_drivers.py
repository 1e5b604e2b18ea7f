"""The drivers themselves: a conversation held by a real agent comes back from its own session, whole."""

from pathlib import Path
from typing import Any

import pytest

from agents.lab.model import FakeModel
from agents.lab.needs import need_agent
from agents.lab.process import wait_for
from agents.lab.script import Call, calls, say

pytestmark = pytest.mark.agent

SHELL: dict[str, Any] = {
    "claude": lambda command: Call("Bash", {"command": command}),
    "codex": lambda command: Call("exec_command", {"cmd": command}),
}


@pytest.fixture(params=["claude", "codex"])
def agent(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def places(tmp_path: Path) -> tuple[Path, Path]:
    home, cwd = tmp_path / "home", tmp_path / "work"
    home.mkdir()
    cwd.mkdir()
    return home, cwd


def texts(messages: tuple[dict[str, Any], ...]) -> list[tuple[str, str]]:
    return [(one["role"], one["text"]) for one in messages if one["text"]]


def test_a_session_comes_back_whole(agent: str, places: tuple[Path, Path]) -> None:
    driver = need_agent(agent)
    home, cwd = places
    shell = SHELL[agent]
    script = [
        say("Hello to you."),
        calls(shell("echo blue"), shell("exit 3"), text="Two at once.", reasoning="Both are needed."),
        say("One of them failed. 🧶"),
    ]
    held = driver.start(home, cwd, ["Hello.", "Run both."], script)
    assert held.exit == 0
    again = driver.resume(home, cwd, held.session_id)
    assert again.resumed, again.refusal
    assert again.session_id == held.session_id
    assert texts(again.history) == [
        ("user", "Hello."),
        ("assistant", "Hello to you."),
        ("user", "Run both."),
        ("assistant", "Two at once."),
        ("assistant", "One of them failed. 🧶"),
    ]
    asked = again.history[3]
    assert asked["reasoning"][0]["text"] == "Both are needed."
    results = {one["call_id"]: one for one in again.history[4]["tool_results"]}
    assert [results[call["id"]]["is_error"] for call in asked["tool_calls"]] == [False, True]
    assert "blue" in results[asked["tool_calls"][0]["id"]]["text"]


def test_a_fork_goes_on_in_a_new_session(agent: str, places: tuple[Path, Path]) -> None:
    driver = need_agent(agent)
    home, cwd = places
    held = driver.start(home, cwd, ["Hello."], [say("Hello to you.")])
    forked = driver.fork(home, cwd, held.session_id, "Another way.", [say("As you like.")])
    assert forked.resumed, forked.refusal
    assert forked.session_id != held.session_id
    assert texts(forked.history) == [("user", "Hello."), ("assistant", "Hello to you.")]
    again = driver.resume(home, cwd, held.session_id)
    assert texts(again.history) == [("user", "Hello."), ("assistant", "Hello to you.")]


def test_after_a_compaction_the_summary_is_sent(agent: str, places: tuple[Path, Path]) -> None:
    driver = need_agent(agent)
    home, cwd = places
    held = driver.start(home, cwd, ["Tell me.", "More."], [say("A long tale."), say("Its end.")])
    summary = say("<summary>\nIn short: a tale.\n</summary>", when="summary|handoff")
    compacted = driver.compact(home, cwd, held.session_id, [summary])
    assert compacted.exit == 0
    sent = texts(driver.resume(home, cwd, held.session_id).history)
    assert any("In short: a tale." in text for _, text in sent)
    assert ("assistant", "A long tale.") not in sent


def test_a_turn_can_be_stopped(agent: str, places: tuple[Path, Path]) -> None:
    driver = need_agent(agent)
    home, cwd = places
    with FakeModel([say("On and on. " * 40, hang_after=3)]) as model, driver.Session(home, cwd, model) as session:
        session.send("Never end.")
        wait_for(model.hanging.is_set, "the stream to stand still")
        session.interrupt()
        session.close()
    again = driver.resume(home, cwd, session.session_id)
    assert again.resumed, again.refusal
    assert texts(again.history)[0] == ("user", "Never end.")


def test_a_killed_agent_leaves_a_session_that_resumes(agent: str, places: tuple[Path, Path]) -> None:
    driver = need_agent(agent)
    home, cwd = places
    script = [say("Ready."), calls(SHELL[agent]("touch started; tail -f started"))]
    with FakeModel(script) as model, driver.Session(home, cwd, model) as session:
        session.say("Get ready.")
        session.send("Wait for ever.")
        wait_for((cwd / "started").exists, "the call to run")
        assert session.kill().exit is None
    again = driver.resume(home, cwd, session.session_id)
    assert again.resumed, again.refusal
    assert texts(again.history)[:2] == [("user", "Get ready."), ("assistant", "Ready.")]


def test_an_unknown_session_is_refused(agent: str, places: tuple[Path, Path]) -> None:
    driver = need_agent(agent)
    home, cwd = places
    seen = driver.resume(home, cwd, "01a22df5-8462-7b11-b9c0-34f4eb7abe41")
    assert not seen.resumed
    assert seen.exit == 1
    assert "01a22df5-8462-7b11-b9c0-34f4eb7abe41" in seen.refusal
    assert seen.requests == ()


def test_codex_lists_a_session(places: tuple[Path, Path]) -> None:
    driver = need_agent("codex")
    home, cwd = places
    held = driver.start(home, cwd, ["Count the sheep."], [say("Nine.")])
    listed = driver.list_sessions(home, cwd)
    assert [(one["id"], one["title"]) for one in listed] == [(held.session_id, "Count the sheep.")]
    elsewhere = cwd.with_name("elsewhere")
    elsewhere.mkdir()
    assert driver.list_sessions(home, elsewhere) == []


def test_claude_lists_a_session_that_was_not_headless(places: tuple[Path, Path]) -> None:
    driver = need_agent("claude")
    home, cwd = places
    driver.start(home, cwd, ["Count the sheep."], [say("Nine.")])
    assert driver.list_sessions(home, cwd) == []
    for path in home.rglob("projects/*/*.jsonl"):
        path.write_bytes(path.read_bytes().replace(b'"entrypoint":"sdk-cli"', b'"entrypoint":"cli"'))
    assert [one["title"] for one in driver.list_sessions(home, cwd)] == ["Count the sheep."]
