"""The parts of the harness that can be tested without a real agent: the fake model, the screen, the installer."""

import http.client
import json
import stat
from pathlib import Path
from typing import Any

import pytest

from agents import install
from agents.lab.model import DEFAULT_REPLY, FakeModel
from agents.lab.script import Call, Step, Text, calls, say
from agents.lab.terminal import Screen

TOOLS = [{"name": "Bash"}]


def ask(model: FakeModel, path: str, body: Any) -> tuple[int, list[Any]]:
    connection = http.client.HTTPConnection("127.0.0.1", model.port, timeout=10)
    try:
        connection.request("POST", path, json.dumps(body), {"content-type": "application/json"})
        answer = connection.getresponse()
        raw = answer.read()
    finally:
        connection.close()
    if answer.getheader("content-type", "").startswith("application/json"):
        return answer.status, [json.loads(raw)]
    lines = [line[6:] for line in raw.split(b"\n") if line.startswith(b"data: ")]
    return answer.status, [json.loads(line) for line in lines]


def message(text: str, **more: Any) -> dict[str, Any]:
    return {"model": "m", "stream": True, "messages": [{"role": "user", "content": text}]} | more


def spoken(events: list[Any]) -> str:
    deltas = [event["delta"] for event in events if event["type"] == "content_block_delta"]
    return "".join(delta.get("text", "") for delta in deltas)


def test_steps_are_said_in_order_and_then_the_default() -> None:
    with FakeModel([say("One. 🧶"), say("Aside.", when="title")]) as model:
        assert spoken(ask(model, "/v1/messages", message("Hi.", tools=TOOLS))[1]) == "One. 🧶"
        assert spoken(ask(model, "/v1/messages", message("A title, please."))[1]) == "Aside."
        assert spoken(ask(model, "/v1/messages", message("And?", tools=TOOLS))[1]) == DEFAULT_REPLY
        assert model.unused == []
        assert [request.served for request in model.turns] == [0, 1, None]


def test_calls_are_streamed_with_their_arguments() -> None:
    step = calls(Call("Bash", {"command": "echo 'ä \ud83e'"}, "toolu_1"), text="Now.")
    with FakeModel([step]) as model:
        _, events = ask(model, "/v1/messages?beta=true", message("Go.", tools=TOOLS))
    partial = "".join(event["delta"].get("partial_json", "") for event in events if "delta" in event)
    assert json.loads(partial) == {"command": "echo 'ä \ud83e'"}
    assert events[-2]["delta"]["stop_reason"] == "tool_use"


def test_the_responses_api_ends_with_the_whole_answer() -> None:
    step = Step([Text("Done."), Call("apply_patch", "*** Begin Patch", "call_1")])
    with FakeModel([step]) as model:
        _, events = ask(model, "/v1/responses", {"model": "m", "input": [{"role": "user", "content": "Go."}]})
    assert events[-1]["type"] == "response.completed"
    kinds = [item["type"] for item in events[-1]["response"]["output"]]
    assert kinds == ["message", "custom_tool_call"]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))


def test_an_answer_can_fail_break_off_and_stand_still() -> None:
    script = [Step(status=529), say("Cut off here. " * 9, cut_after=1), say("Stands still. " * 9, hang_after=2)]
    with FakeModel(script) as model:
        assert ask(model, "/v1/messages", message("1", tools=TOOLS))[0] == 529
        _, events = ask(model, "/v1/messages", message("2", tools=TOOLS))
        assert events[-1]["type"] == "content_block_delta"
        assert not model.hanging.is_set()
        connection = http.client.HTTPConnection("127.0.0.1", model.port, timeout=10)
        connection.request("POST", "/v1/messages", json.dumps(message("3", tools=TOOLS)))
        assert model.hanging.wait(10)
        connection.close()


def test_a_screen_follows_movement_and_erasing() -> None:
    screen = Screen(4, 20)
    screen.feed("\x1b[31mfirst\x1b[0m line\r\nsecond\x1b[2Cline\x1b[1A\x1b[1GF\x1b]0;title\x07\x1b[?25l")
    assert screen.lines[:2] == ["First line", "second  line"]
    screen.feed("\x1b[2;7H\x1b[K\x1b[3;1Hthird\r\nfourth\r\nfifth")
    assert screen.lines == ["second", "third", "fourth", "fifth"]
    screen.feed("\x1b[2J")
    assert screen.lines == ["", "", "", ""]


FAKE_NPM = """#!/bin/sh
echo run >> "$FAKE_LOG"
[ -z "$FAKE_FAILS" ] || { echo "no such version" >&2; exit 1; }
mkdir -p node_modules/@openai/codex-linux-x64/vendor/x/bin
printf '#!/bin/sh\\necho codex-cli %s\\n' "$FAKE_VERSION" > node_modules/@openai/codex-linux-x64/vendor/x/bin/codex
chmod +x node_modules/@openai/codex-linux-x64/vendor/x/bin/codex
"""


@pytest.fixture
def npm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / "npm"
    program.write_text(FAKE_NPM)
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.setenv("FAKE_LOG", str(tmp_path / "log"))
    monkeypatch.setenv("FAKE_VERSION", install.AGENTS["codex"].version)
    return tmp_path / "log"


def test_an_agent_is_installed_once(npm: Path, tmp_path: Path) -> None:
    base = tmp_path / "agents"
    assert install.find_agent("codex", base) is None
    first = install.install_agent("codex", base)
    assert first == install.find_agent("codex", base) == install.install_agent("codex", base)
    assert npm.read_text() == "run\n"
    assert [path.name for path in base.iterdir() if not path.name.startswith(".lock")] == ["codex-0.171.0"]


def test_a_failed_installation_leaves_nothing(npm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base = tmp_path / "agents"
    monkeypatch.setenv("FAKE_FAILS", "1")
    with pytest.raises(install.InstallError, match="no such version"):
        install.install_agent("codex", base)
    monkeypatch.delenv("FAKE_FAILS")
    monkeypatch.setenv("FAKE_VERSION", "0.0.1")
    with pytest.raises(install.InstallError, match="does not run here"):
        install.install_agent("codex", base)
    assert [path.name for path in base.iterdir()] == [".lock"]


def test_an_unknown_agent_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert install.main(["nobody"]) == 2
    assert "nobody" in capsys.readouterr().err
