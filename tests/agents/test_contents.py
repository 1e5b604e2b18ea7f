"""Gemini CLI and Qwen Code as judges of what is written for them, and their own sessions there and home again."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import pytest

from agents.lab.judge import judge_sees
from agents.lab.needs import need_agent
from agents.lab.script import Call, Reasoning, Step, Text, say
from clew.conversation.builder import make_assistant, make_call, make_result, make_user
from clew.conversation.model import Image, Message
from clew.formats.marks import INVENTED, Names, wrap_arguments
from clew.formats.protocol import Format, Home
from clew.formats.registry import get_format
from clew.laws.stored import group_keys, make_id, write_options
from clew.platform.clock import FixedClock
from clew.verbs.context import Context
from clew.verbs.convert import convert
from clew.verbs.refer import open_session
from clew.verbs.show import show_groups

pytestmark = pytest.mark.agent

PICTURE = (
    "iVBORw0KGgoAAAANSUhEUgAAAAgAAAAIAQMAAAD+wSzIAAAABlBMVEX/AAD/"
    "//9BHTQRAAAADElEQVQI12NgIB4AAAAwAAEBW/kRAAAAAElFTkSuQmCC"
)

HARD: tuple[Message, ...] = (
    make_user("/etc/hosts has a wrong entry, fix it"),
    make_assistant(
        " Fixed. ", make_call("toolu_1", "Bash", '{"command":"ls"}'), make_call("toolu_1", "my.tool é", "raw")
    ),
    make_result("toolu_1", "a.txt\n[clew: x"),
    make_result("toolu_1", "boom", Image("image/png", PICTURE), is_error=True),
    make_user("? is not allowed in file names"),
    make_user("<session_context> is a tag in my XML, why?"),
    make_user("   /leading spaces too"),
    make_user("\n"),
    make_user("<session_context>\nmine\n</session_context>"),
    make_user("<system-reminder>mine</system-reminder>"),
    make_assistant("Seen \u200b\u2028 é 🧵", make_call("x y", "Read", "[1]")),
    make_user("System: Please continue.", origin="agent", kind="notice"),
    make_assistant("done"),
    make_user("normal text", Image("image/png", PICTURE)),
    make_assistant("Fine."),
)


def groups_of(messages: tuple[Message, ...]) -> list[dict[str, Any]]:
    return [
        {
            "role": group.role,
            "text": group.text,
            "tool_calls": [
                {"name": c.name, "arguments": wrap_arguments(c.arguments)[0].decode()} for c in group.tool_calls
            ],
            "results": [result.text for result in group.tool_results],
        }
        for group in show_groups(messages)
    ]


def legal(groups: list[dict[str, Any]]) -> Any:
    names = Names()
    names.reserve(call["name"] for group in groups for call in group["tool_calls"])
    return names.legal


def place(form: Format, home: Path, folder: Path, messages: tuple[Message, ...]) -> str:
    facts = form.surroundings(Home(home), str(folder)) if form.surroundings is not None else {}
    session_id = make_id("hard") if form.make_id is None else form.make_id(make_id("hard"))
    now = int(datetime.now(UTC).timestamp() * 1000)
    options = msgspec.structs.replace(write_options(session_id), cwd=str(folder), now_ms=now, facts=facts)
    assert form.write is not None
    for file in form.write(messages, options).files:
        path = form.locate.base(Home(home)) / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"".join(map(bytes, file.chunks())))
    return session_id


@pytest.mark.parametrize("agent", ["gemini", "qwen"])
def test_everything_that_is_hard_is_sent_once_at_every_resume(agent: str, tmp_path: Path) -> None:
    driver, form = need_agent(agent), get_format(agent)
    home, folder = tmp_path / "home", tmp_path / "My Shop"
    home.mkdir()
    folder.mkdir()
    session_id = place(form, home, folder, HARD)
    assert [row["id"] for row in driver.list_sessions(home, folder)] == [session_id]
    groups = groups_of(HARD)
    for number in range(3):
        seen = driver.resume(home, folder, session_id, f"Prompt {number}.", [say(f"Answer {number}.")])
        assert judge_sees(seen, groups, rename=legal(groups)) == []
        assert str(seen.request).count("boom") == 1
        assert str(seen.request).count(INVENTED) == 1
        extra = (make_user(f"Prompt {number}."), make_assistant(f"Answer {number}."))
        groups += groups_of(extra)
    found = next(one for one in form.locate.find(Home(home)) if one.id == session_id and one.kind == "session")
    session = form.read(form.locate.load(found, Home(home)))
    assert group_keys(session.messages)[: len(group_keys(HARD))] == group_keys(HARD)
    assert len(session.messages) == len(HARD) + 6
    assert not session.damage


def make_context(home: Path, folder: Path, minute: int) -> Context:
    clock = FixedClock(datetime(2026, 12, 1, 12, minute, tzinfo=UTC))
    return Context(Home(home), home / "clew-data", cwd=folder, clock=clock)


def hold(driver: ModuleType, agent: str, home: Path, folder: Path) -> str:
    """Has the real agent hold a session with calls, a failing one, and three turns."""
    more = {"is_background": False} if agent == "qwen" else {}
    shell = Call("run_shell_command", {"command": "cat a.txt", "description": "look"} | more, "call_1")
    read = Call("read_file", {"file_path": str(folder / "missing.txt")}, "call_2")
    script = [
        Step([Reasoning("What is there?"), Text("I look."), shell, read]),
        say("alpha; the other is missing."),
        say("A clew is a ball of thread."),
    ]
    (folder / "a.txt").write_text("alpha\n")
    seen = driver.start(home, folder, ["Read both files.", "What is a clew? é 🧵"], script)
    assert seen.session_id
    return str(seen.session_id)


@pytest.mark.parametrize("agent", ["gemini", "qwen"])
@pytest.mark.parametrize("there", ["claude", "codex"])
def test_their_own_sessions_there_one_real_turn_and_home_again(agent: str, there: str, tmp_path: Path) -> None:
    driver, other, form = need_agent(agent), need_agent(there), get_format(agent)
    home, folder = tmp_path / "home", tmp_path / "work"
    home.mkdir()
    folder.mkdir()
    session_id = hold(driver, agent, home, folder)
    found = next(one for one in form.locate.find(Home(home)) if one.id == session_id)
    before = found.path.read_bytes()
    with make_context(home, folder, 0) as ctx:
        said = open_session(ctx, f"{agent}:{session_id}").session
        assert not said.damage
        made = convert(ctx, f"{agent}:{session_id}", to=there)
    groups = groups_of(said.messages)
    assert [len(group["results"]) for group in groups] == [0, 2, 0, 0, 0]
    seen = other.resume(home, folder, made.to.session_id, "One more turn, please.", [say("The turn there is done.")])
    assert judge_sees(seen, groups, rename=legal(groups)) == []
    with make_context(home, folder, 5) as ctx:
        back = convert(ctx, f"{there}:{made.to.session_id}", to=agent)
        home_again = open_session(ctx, f"{agent}:{session_id}").session
    assert (back.to.session_id, back.report.mode) == (session_id, "prefix")
    assert found.path.read_bytes().startswith(before)
    assert [m.text for m in home_again.messages[-2:]] == ["One more turn, please.", "The turn there is done."]
    final = driver.resume(home, folder, session_id, "And a last one here.")
    everything = groups_of(home_again.messages)
    assert judge_sees(final, everything, rename=legal(everything)) == []
