"""A small review by every other agent that has a headless form: asked, heard, held to reading, its session linked."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from agents.desk import MODELS, Desk, answer
from agents.lab.model import FakeModel
from agents.lab.needs import need_agent
from agents.lab.script import Call, Step, Text
from clew.runs.review.agents import HEADLESS

pytestmark = pytest.mark.agent

WRITE = {
    "droid": (Call("Create", {"file_path": "{bad}", "content": "x"}), Call("Execute", {"command": "touch {bad}"})),
    "gemini": (
        Call("write_file", {"file_path": "{bad}", "content": "x"}),
        Call("run_shell_command", {"command": "touch {bad}"}),
    ),
    "grok": (Call("write", {"file_path": "{bad}", "content": "x"}), Call("bash", {"command": "touch {bad}"})),
    "kimi": (Call("Write", {"path": "{bad}", "content": "x"}), Call("Bash", {"command": "touch {bad}"})),
    "opencode": (
        Call("write", {"filePath": "{bad}", "content": "x"}),
        Call("bash", {"command": "touch {bad}", "description": "it"}),
    ),
    "pi": (Call("write", {"path": "{bad}", "content": "x"}), Call("bash", {"command": "touch {bad}"})),
    "qwen": (
        Call("write_file", {"file_path": "{bad}", "content": "x"}),
        Call("run_shell_command", {"command": "touch {bad}", "is_background": False}),
    ),
    "vibe": (Call("write_file", {"path": "{bad}", "content": "x"}), Call("bash", {"command": "touch {bad}"})),
}
"""How a model would write with each agent, by its tools; each agent has to refuse both."""


@pytest.fixture(params=sorted(WRITE))
def desk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Desk]:
    need_agent(str(request.param))
    with FakeModel() as model:
        desk = Desk(str(request.param), tmp_path, model)
        desk.git("init", "-q", "-b", "main")
        desk.commit({"a.py": "a = 1\n"})
        desk.commit({"a.py": "a = 2\n", ".env": f"OPENAI_BASE_URL={'http://127.0.0.1:9'}\n"})
        yield desk


def test_every_agent_with_a_headless_form_is_judged() -> None:
    assert WRITE.keys() | {"claude", "codex"} == HEADLESS.keys()


def test_an_agent_reviews_reads_only_and_its_session_is_linked(desk: Desk, tmp_path: Path) -> None:
    bad = tmp_path / "shop" / "bad.txt"
    when = "File: a.py"
    tries = [
        Step([Call(call.name, json.loads(json.dumps(call.arguments).replace("{bad}", str(bad))))], when=again)
        for call, again in zip(WRITE[desk.agent], (when, None), strict=True)
    ]
    told = answer("a.py").parts[0]
    assert isinstance(told, Text)
    aside = Step([Text("A title")], when="Write an ultra-short dashboard line|session title", repeat=True)
    desk.model.extend([aside, *tries, Step([told])])
    model, _ = MODELS[desk.agent]
    status, done = desk.clew("run", "review", "--commit", "HEAD", "--include", "a.py", "--agent", desk.agent)
    assert status == 0, done
    assert [found["text"] for found in done["findings"]] == ["look at a.py"]
    execution = done["manifest"]["execution"]
    assert execution["provider"] == f"agent:{desk.agent}"
    assert execution["model"] == ("lab" if desk.agent == "vibe" else "" if desk.agent in ("gemini", "pi") else model)
    assert not bad.exists()
    assert not list(desk.data.glob("checkouts/*"))
    [item] = done["items"]
    assert item["session"]["agent"] == desk.agent
    listed = {found["id"]: found for found in desk.listed()}
    assert listed[item["session"]["session_id"]]["thread"]
    assert {turn.served for turn in desk.model.turns} >= {1, 2, 3}, "both were tried"


def test_a_model_that_is_named_is_the_one_that_is_asked(desk: Desk) -> None:
    desk.model.extend([answer("a.py")])
    model, _ = MODELS[desk.agent]
    words = ("run", "review", "--commit", "HEAD", "--include", "a.py", "--agent", desk.agent, "--model", model)
    status, done = desk.clew(*words)
    assert status == 0, done
    assert done["manifest"]["execution"]["model"] == model
    assert desk.model.turns
