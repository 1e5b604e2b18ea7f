"""Headless agents: their command lines, what they write, how they are launched and ended."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from clew.errors import HostError, UsageError
from clew.runs.log import SessionRef
from clew.runs.operation import ItemContext, ItemFailed, Usage
from clew.runs.review.agents import HEADLESS, MAX_ARGUMENT_BYTES, get_headless
from clew.runs.review.headless import AgentAsker, Finished, agent_environment, launch_process

CLAUDE = {
    "type": "result",
    "subtype": "success",
    "is_error": False,
    "result": "the answer",
    "session_id": "5e55",
    "usage": {"input_tokens": 2, "cache_creation_input_tokens": 3, "cache_read_input_tokens": 5, "output_tokens": 7},
    "modelUsage": {"small": {"outputTokens": 1}, "big": {"outputTokens": 6}},
}
CODEX = [
    {"type": "thread.started", "thread_id": "7ead"},
    {"type": "turn.started"},
    {"type": "item.completed", "item": {"type": "reasoning", "text": "hm"}},
    {"type": "item.completed", "item": {"type": "agent_message", "text": "first"}},
    {"type": "item.completed", "item": {"type": "agent_message", "text": "the answer"}},
    {"type": "turn.completed", "usage": {"input_tokens": 10, "cached_input_tokens": 5, "output_tokens": 7}},
]


def lines(events: Sequence[dict[str, Any]]) -> bytes:
    return b"\n".join(json.dumps(event).encode() for event in events)


def context(remaining: float = 30) -> ItemContext:
    return ItemContext(
        "run", remaining_s=lambda: remaining, cancelled=threading.Event(), record=lambda kind, fields: None
    )


class Recorded:
    """A launcher that starts nothing."""

    def __init__(self, done: Finished) -> None:
        self.done = done
        self.argv: tuple[str, ...] = ()
        self.given: dict[str, Any] = {}

    def __call__(
        self, argv: Sequence[str], *, stdin: bytes, cwd: Path, environment: Mapping[str, str], context: ItemContext
    ) -> Finished:
        self.argv = tuple(argv)
        self.given = {"stdin": stdin, "cwd": cwd, "environment": environment}
        return self.done


def asker(agent: str, done: Finished, model: str = "") -> tuple[AgentAsker, Recorded]:
    launch = Recorded(done)
    environment = {"HOME": "/h", "CLAUDECODE": "1", "GIT_DIR": "/x", "CLEW_ROOT": "/y"}
    return (
        AgentAsker(
            HEADLESS[agent],
            program=f"/bin/{agent}",
            model=model,
            environment=environment,
            new_uuid=lambda: "11111111-2222-4333-8444-555555555555",
            launch=launch,
        ),
        launch,
    )


def test_claude_is_asked_in_a_fresh_session_with_reading_tools_alone() -> None:
    agent, launch = asker("claude", Finished("exit", 0, json.dumps(CLAUDE).encode(), b""), "opus")
    told = agent.ask("why?", Path("/tree"), context())
    assert (told.text, told.usage, told.model) == ("the answer", Usage(10, 7), "big")
    assert told.session == SessionRef("claude", "5e55")
    argv = " ".join(launch.argv)
    assert argv.startswith("/bin/claude -p --output-format json --session-id 11111111-")
    assert "--tools Read,Grep,Glob" in argv
    assert "--setting-sources user --strict-mcp-config" in argv
    assert argv.endswith("--model opus")
    assert launch.given["stdin"] == b"why?"
    assert launch.given["cwd"] == Path("/tree")
    assert launch.given["environment"] == {"HOME": "/h", "NO_COLOR": "1", "TERM": "dumb"}
    assert agent.target.provider == "agent:claude"


def test_codex_is_asked_in_its_read_only_sandbox() -> None:
    agent, launch = asker("codex", Finished("exit", 0, lines(CODEX) + b"\nnoise\n", b""))
    told = agent.ask("why?", Path("/tree"), context())
    assert (told.text, told.usage, told.session) == ("the answer", Usage(10, 7), SessionRef("codex", "7ead"))
    assert launch.argv[1:] == (
        "exec", "--json", "--sandbox", "read-only", "--skip-git-repo-check", "--color", "never", "--cd", "/tree", "-",
    )  # fmt: skip


SAID = {
    "gemini": (
        json.dumps(
            {"session_id": "9e31", "response": "the answer",
             "stats": {"models": {"m": {"tokens": {"prompt": 10, "candidates": 4, "thoughts": 3, "total": 17}}}}},
            indent=2,
        ).encode(),
        json.dumps({"session_id": "9e31", "error": {"message": "quota", "code": 1}}, indent=2).encode(),
    ),
    "qwen": (
        json.dumps([{"type": "system", "session_id": "9e31"}, CLAUDE | {"session_id": "9e31"}]).encode(),
        lines([{"type": "result", "session_id": "9e31", "is_error": True, "error": {"message": "quota"}}]),
    ),
    "opencode": (
        lines([
            {"type": "text", "sessionID": "9e31", "part": {"messageID": "m1", "text": "let me look"}},
            {"type": "step_finish", "sessionID": "9e31", "part": {"tokens": {"input": 2, "output": 3, "reasoning": 1}}},
            {"type": "text", "sessionID": "9e31", "part": {"messageID": "m2", "text": "the "}},
            {"type": "text", "sessionID": "9e31", "part": {"messageID": "m2", "text": "answer"}},
            {"type": "step_finish", "part": {"tokens": {"input": 3, "output": 3, "cache": {"read": 4, "write": 1}}}},
        ]),
        lines([{"type": "error", "sessionID": "9e31", "error": {"name": "E", "data": {"message": "quota"}}}]),
    ),
    "grok": (
        json.dumps({"text": "the answer", "sessionId": "9e31", "usage": {"input_tokens": 10, "output_tokens": 7}},
                   indent=2).encode(),
        json.dumps({"type": "error", "sessionId": "9e31", "message": "quota"}).encode(),
    ),
    "kimi": (
        lines([
            {"role": "meta", "type": "system.version"},
            {"role": "assistant", "content": "let me look"},
            {"role": "assistant", "content": "the answer"},
            {"role": "meta", "type": "session.resume_hint", "session_id": "9e31"},
        ]),
        b"",
    ),
    "pi": (
        lines([
            {"type": "session", "id": "9e31"},
            {"type": "message_end", "message": {"role": "assistant", "content": [{"type": "text", "text": "hm"}],
                                                "usage": {"input": 1, "output": 3, "cacheRead": 2}}},
            {"type": "message_end", "message": {"role": "assistant", "usage": {"input": 7, "output": 4},
                                                "content": [{"type": "text", "text": "the answer"}]}},
        ]),
        lines([
            {"type": "session", "id": "9e31"},
            {"type": "message_end",
             "message": {"role": "assistant", "content": [], "stopReason": "error", "errorMessage": "quota"}},
        ]),
    ),
    "droid": (
        json.dumps(CLAUDE | {"session_id": "9e31"}).encode(),
        json.dumps({"type": "result", "is_error": True, "session_id": "9e31", "result": "quota"}).encode(),
    ),
    "vibe": (
        json.dumps(
            [
                {"sessionId": "9e31", "role": "user", "content": [{"type": "text", "text": "why?"}]},
                {"sessionId": "9e31", "role": "assistant", "content": [{"type": "text", "text": "let me look"}]},
                {"sessionId": "9e31", "role": "assistant", "content": [{"type": "text", "text": "the answer"}]},
            ],
            indent=2,
        ).encode(),
        b"[]",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(SAID))
def test_every_agent_is_heard(name: str) -> None:
    good, bad = SAID[name]
    asking, launch = asker(name, Finished("exit", 0, good, b""), "some/model")
    told = asking.ask("why?", Path("/tree"), context())
    assert (told.text, told.session) == ("the answer", SessionRef(name, "9e31"))
    assert told.usage == (Usage() if name in ("kimi", "vibe") else Usage(10, 7))
    told_model = " ".join(launch.argv) + str(launch.given["environment"].get("VIBE_ACTIVE_MODEL"))
    assert "some/model" in told_model
    assert (launch.given["stdin"] == b"why?") is (name != "kimi")
    with pytest.raises(ItemFailed) as caught:
        asker(name, Finished("exit", 0, bad, b""))[0].ask("why?", Path("/tree"), context())
    if name not in ("kimi", "vibe"):
        assert "quota" in caught.value.reason
        assert caught.value.session == SessionRef(name, "9e31")


@pytest.mark.parametrize("name", sorted(HEADLESS))
@pytest.mark.parametrize(
    "said", [b"", b"garbage", b"[]", b"{}", b"[1, null]", b"\xff\n[1]\n", b'{"type": 1}\n{"a', b"[" * 9999]
)
def test_no_agent_answers_with_garbage(name: str, said: bytes) -> None:
    with pytest.raises(ItemFailed, match=f"{name} gave no answer"):
        asker(name, Finished("exit", 0, said, b""))[0].ask("why?", Path("/tree"), context())


def test_a_question_that_no_argument_holds_fails_its_item_alone() -> None:
    good, _ = SAID["kimi"]
    assert asker("kimi", Finished("exit", 0, good, b""))[0].ask("x" * MAX_ARGUMENT_BYTES, Path("/t"), context()).text
    with pytest.raises(ItemFailed) as caught:
        asker("kimi", Finished("exit", 0, good, b""))[0].ask("x" * (MAX_ARGUMENT_BYTES + 1), Path("/t"), context())
    assert (caught.value.classification, caught.value.ends_run) == ("input", False)


def test_kimis_reader_has_reading_tools_alone() -> None:
    _, launch = (made := asker("kimi", Finished("exit", 0, SAID["kimi"][0], b"")))
    made[0].ask("why?", Path("/tree"), context())
    reader = Path(launch.argv[launch.argv.index("--agent-file") + 1]).read_text()
    assert "tools: [Read, Grep, Glob]\nsubagents: []" in reader


def test_gemini_trusts_a_folder_only_when_trust_puts_nothing_into_effect(tmp_path: Path) -> None:
    asking, launch = asker("gemini", Finished("exit", 0, SAID["gemini"][0], b""))
    asking.ask("why?", tmp_path, context())
    assert "--skip-trust" in launch.argv
    (tmp_path / ".env").write_text("GOOGLE_GEMINI_BASE_URL=http://elsewhere")
    asking.ask("why?", tmp_path, context())
    assert "--skip-trust" not in launch.argv


@pytest.mark.parametrize(
    ("agent", "done", "classification", "reason"),
    [
        ("claude", Finished("timeout", -9, b"", b""), "timeout", "the item's time was over"),
        ("codex", Finished("cancelled", -9, b"", b""), "cancelled", "interrupted"),
        ("claude", Finished("exit", 1, b"", b"Invalid API key\n"), "provider", "status 1: Invalid API key"),
        ("claude", Finished("exit", 0, b"", b""), "provider", "gave no answer"),
        ("claude", Finished("exit", 0, b"garbage", b""), "provider", "gave no answer"),
        ("claude", Finished("exit", 0, b"[]", b""), "provider", "gave no answer"),
        ("codex", Finished("exit", 0, b"\xff\n[1]\n", b""), "provider", "gave no answer"),
        ("codex", Finished("exit", 1, lines(CODEX), b""), "provider", "after it had answered"),
        (
            "claude",
            Finished("exit", 1, json.dumps(CLAUDE | {"is_error": True, "result": "Credit is low"}).encode(), b""),
            "provider",
            "Credit is low",
        ),
        (
            "codex",
            Finished("exit", 1, lines([*CODEX[:5], {"type": "turn.failed", "error": {"message": "limit"}}]), b""),
            "provider",
            "codex gave no answer: limit",
        ),
        ("codex", Finished("exit", 1, lines([{"type": "error", "message": "no auth"}]), b""), "provider", "no auth"),
    ],
)
def test_what_is_no_answer_fails_its_item(agent: str, done: Finished, classification: str, reason: str) -> None:
    with pytest.raises(ItemFailed) as caught:
        asker(agent, done)[0].ask("why?", Path("/tree"), context())
    assert caught.value.classification == classification
    assert reason in caught.value.reason


def test_a_failure_keeps_the_session_and_the_cost() -> None:
    done = Finished("exit", 1, json.dumps(CLAUDE | {"is_error": True}).encode(), b"")
    with pytest.raises(ItemFailed) as caught:
        asker("claude", done)[0].ask("why?", Path("/tree"), context())
    assert caught.value.session == SessionRef("claude", "5e55")
    assert caught.value.usage == Usage(10, 7)


def test_an_unknown_agent_is_refused() -> None:
    for name in ("vim", "amp"):
        with pytest.raises(UsageError, match=f"{name}.* cannot be asked"):
            get_headless(name)


# --- launching --------------------------------------------------------------------------------------------


def python(code: str) -> tuple[str, ...]:
    return (sys.executable, "-c", code)


def launch(code: str, given: ItemContext, stdin: bytes = b"") -> Finished:
    return launch_process(python(code), stdin=stdin, cwd=Path("/"), environment={"A": "1"}, context=given)


def test_a_program_is_fed_and_heard() -> None:
    big = b"x" * 500_000
    done = launch("import sys,os; d=sys.stdin.read(); print(len(d), os.environ['A']); sys.exit(3)", context(), big)
    assert done == Finished("exit", 3, b"500000 1\n", b"")


@pytest.mark.parametrize("ended", ["timeout", "cancelled"])
def test_a_program_is_ended_with_its_children(tmp_path: Path, ended: str) -> None:
    ready = tmp_path / "ready"
    code = (
        "import subprocess, sys, pathlib, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        f"pathlib.Path({str(ready)!r}).write_text(f'{{child.pid}}.')\n"
        "time.sleep(60)\n"
    )

    def is_ready() -> bool:
        return ready.exists() and ready.read_text().endswith(".")

    class Watched(threading.Event):
        """Is set as soon as the program has its child."""

        def is_set(self) -> bool:
            return ended == "cancelled" and is_ready()

    given = ItemContext(
        "run",
        remaining_s=lambda: -1.0 if ended == "timeout" and is_ready() else 30.0,
        cancelled=Watched(),
        record=lambda kind, fields: None,
    )
    assert launch(code, given).ended == ended
    with pytest.raises(ProcessLookupError):
        wait_gone(int(ready.read_text().rstrip(".")))


def wait_gone(pid: int) -> None:
    """Raises ProcessLookupError as soon as the process is gone (a zombie of init counts as gone)."""
    pause = threading.Event()
    for _ in range(200):
        os.kill(pid, 0)
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                raise ProcessLookupError
        except FileNotFoundError:
            raise ProcessLookupError from None
        pause.wait(0.02)


def test_a_program_that_is_missing() -> None:
    with pytest.raises(HostError, match="cannot be started"):
        launch_process(("/nowhere/agent",), stdin=b"", cwd=Path("/"), environment={}, context=context())
    agent, _ = asker("claude", Finished("exit", 0, b"", b""))
    gone = AgentAsker(HEADLESS["claude"], program="/nowhere/claude", model="", environment={}, new_uuid=lambda: "u")
    with pytest.raises(ItemFailed) as caught:
        gone.ask("why?", Path("/"), context())
    assert caught.value.ends_run
    assert agent.works_in_folder


def test_the_environment_hides_that_clew_may_run_inside_an_agent() -> None:
    kept = agent_environment({"PATH": "/b", "CLAUDE_CODE_ENTRYPOINT": "cli", "CODEX_SANDBOX": "x", "PWD": "/p"})
    assert kept == {"PATH": "/b", "NO_COLOR": "1", "TERM": "dumb"}
