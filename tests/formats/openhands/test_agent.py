"""OpenHands itself takes what clew wrote: hundreds of conversations by its own classes, one there and back again."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, given, settings

import agents.lab.openhands as driver
from agents.install import find_agent
from agents.lab.judge import judge_sees
from agents.lab.needs import need_agent
from agents.lab.script import Call, Step, Text, say
from clew.conversation.builder import make_assistant, make_call, make_result, make_user
from clew.conversation.canonical import normal_arguments, sort_results
from clew.conversation.groups import group_messages
from clew.conversation.model import Group, Message
from clew.formats.marks import INVENTED, Names, wrap_arguments
from clew.formats.openhands import FORMAT
from clew.formats.protocol import Home
from clew.formats.registry import get_format
from clew.laws.conversations import conversations
from clew.laws.stored import make_id, write_options
from clew.platform.clock import FixedClock
from clew.verbs.context import Context
from clew.verbs.convert import convert
from clew.verbs.refer import open_session
from clew.verbs.show import show_groups
from clew_corpus import own_case, own_cases
from corpuscheck import read_case

pytestmark = pytest.mark.agent

STANDIN = re.compile(r"\\*\[clew: an image stands here[^\]]*\]")
GUARD = re.compile(r"\\+(?=\[clew: )")
LONG = "0123456789" * 12_000


def plain(text: str) -> str:
    """Returns a text without what clew puts into a text: guards, and sentences that stand for images."""
    return GUARD.sub("", STANDIN.sub("", text))


def place(base: Path, number: int, messages: Sequence[Message]) -> Path:
    """Writes a conversation below `base` and returns its folder."""
    assert FORMAT.write is not None
    for file in FORMAT.write(messages, write_options(make_id(f"view {number}"))).files:
        path = base / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"".join(map(bytes, file.chunks())))
    return path.parent


def look(folders: Sequence[Path], home: Path) -> list[dict[str, Any]]:
    """Returns what the agent's own classes say of conversations."""
    found = find_agent("openhands")
    assert found is not None
    script = Path(driver.__file__).with_name("openhands_view.py")
    argv = [str(found.with_name("python")), "-P", str(script), *map(str, folders)]
    done = subprocess.run(argv, env=driver.environment(home), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads(line[1:]) for line in done.stdout.splitlines() if line.startswith("={")]


def same(arguments: str) -> str:
    normal = normal_arguments(arguments)
    return normal if isinstance(normal, str) else bytes(normal).decode()


def told(group: Group, names: Names) -> tuple[Any, ...]:
    """Returns what of a group a model has to be sent."""
    head = group.head
    calls = [(names.legal(c.name), same(wrap_arguments(c.arguments)[0].decode())) for c in head.calls]
    answers = [plain(result.text) for result in sort_results(head.calls, group.results)]
    if len(head.calls) > len(answers) or len({call.id for call in head.calls}) < len(head.calls):
        answers = sorted([*answers, *[INVENTED] * (len(head.calls) - len(answers))])
    images = [0 if head.role == "assistant" else len(head.images), sum(len(r.images) for r in group.results)]
    text = plain(head.text)
    if calls and not text.strip():  # the agent leaves blanks beside calls out
        text = ""
    return (head.role, text, calls, sorted(answers), images)


def sent(messages: Sequence[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """Returns the same of what is sent; each call has exactly one result, directly behind its message."""
    out: list[tuple[Any, ...]] = []
    waiting: set[str] = set()
    for message in messages:
        parts = message.get("content") or []
        text = plain("".join(part["text"] for part in parts if part["type"] == "text"))
        images = sum(part["type"] == "image_url" for part in parts)
        assert all(part.get("text", "x") for part in parts), "an empty text"
        if message["role"] == "tool":
            waiting.remove(message["tool_call_id"])
            out[-1][3].append(driver.bare(text))
            out[-1][3].sort()
            out[-1][4][1] += images
            continue
        assert not waiting
        calls = message.get("tool_calls") or []
        waiting = {call["id"] for call in calls}
        assert len(waiting) == len(calls)
        named = [(c["function"]["name"], same(c["function"]["arguments"])) for c in calls]
        if message["role"] != "system":
            out.append((message["role"], text if text.strip() or not calls else "", named, [], [images, 0]))
    assert not waiting
    return out


def saying(groups: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Returns the groups in which something is left."""
    return [group for group in groups if any(group[1:4]) or any(group[4])]


def generated(count: int) -> list[tuple[Message, ...]]:
    found: list[tuple[Message, ...]] = []

    @settings(max_examples=count, phases=[Phase.generate], database=None, deadline=None, derandomize=True)
    @given(conversations(1, 6))
    def collect(messages: tuple[Message, ...]) -> None:
        found.append(messages)

    collect()
    return found


def test_its_own_classes_send_everything_of_hundreds_of_conversations(tmp_path: Path) -> None:
    need_agent("openhands")
    many = generated(300)
    many.append((make_user("Show it."), make_assistant(make_call("c", "f", "{}")), make_result("c", LONG)))
    turns = (make_assistant("Next.", make_call(f"c{n}", "f", "{}")) for n in range(400))
    many.append((make_user("Go."), *(m for t in turns for m in (t, make_result(t.calls[0].id, "done")))))
    folders = [place(tmp_path, number, messages) for number, messages in enumerate(many)]
    seen = look(folders, tmp_path)
    assert len(seen) == len(many)
    assert seen[-1]["events"] == 802
    for number, (messages, one) in enumerate(zip(many, seen, strict=True)):
        names = Names()
        names.reserve(call.name for message in messages for call in message.calls)
        assert one["id"] == make_id(f"view {number}")
        assert one["pending"] == 0, "an action that would run at once"
        assert one["messages"][0]["role"] == "system"
        wanted = [told(group, names) for group in group_messages(messages)]
        assert saying(sent(one["messages"])) == saying(wanted)


@pytest.mark.parametrize("case", own_cases("openhands"), ids=str)
def test_its_own_classes_say_what_the_reader_says(case: Any, tmp_path: Path) -> None:
    need_agent("openhands")
    home = case.copy_home(tmp_path / "home")
    folder = next((home / ".openhands" / "conversations").iterdir())
    (one,) = look([folder], tmp_path)
    names = Names()
    assert sent(one["messages"]) == [told(group, names) for group in group_messages(read_case(FORMAT, case).messages)]


def make_context(home: Path, minute: int) -> Context:
    clock = FixedClock(datetime(2026, 12, 1, 12, minute, tzinfo=UTC))
    return Context(Home(home), home / "clew-data", cwd=home, clock=clock)


def test_there_home_again_and_there_once_more(tmp_path: Path) -> None:
    claude, openhands = need_agent("claude"), need_agent("openhands")
    case = own_case("claude", "tools")
    home, folder = case.copy_home(tmp_path / "home"), tmp_path / "work"
    folder.mkdir()
    ref = f"claude:{case.session_id}"
    with make_context(home, 0) as ctx:
        made = convert(ctx, ref, to="openhands", cwd=str(folder))
    first = openhands.resume(home, folder, made.to.session_id, "One more.", [say("Done.")])
    assert first.session_id == made.to.session_id, first.refusal
    with make_context(home, 5) as ctx:
        back = convert(ctx, f"openhands:{first.session_id}", to="claude")
    assert back.to.session_id == case.session_id
    call = Call("Bash", {"command": "echo again", "description": "x"}, "toolu_again1")
    second = claude.resume(home, folder, case.session_id, "Again.", [Step([Text("I print."), call]), say("Printed.")])
    assert second.resumed, second.refusal
    events = next((home / ".openhands" / "conversations").iterdir()) / "events"
    before = {path: path.read_bytes() for path in events.iterdir()}
    with make_context(home, 10) as ctx:
        again = convert(ctx, ref, to="openhands")
        groups = show_groups(open_session(ctx, ref).session.messages)
        said = [
            {
                "role": group.role,
                "text": group.text,
                "tool_calls": [{"name": c.name, "arguments": c.arguments} for c in group.tool_calls],
                "results": [r.text for r in group.tool_results],
            }
            for group in groups
        ]
    assert again.report.mode == "prefix"
    assert again.to.session_id == made.to.session_id
    assert {path: path.read_bytes() for path in before} == before
    third = openhands.resume(home, folder, again.to.session_id, "And here again.", [say("Fine.")])
    assert judge_sees(openhands.heard(third), said, rename=Names().legal) == []
    with make_context(home, 15) as ctx:
        home_again = convert(ctx, f"openhands:{third.session_id}", to="claude")
        last = open_session(ctx, ref).session.messages[-2:]
    assert home_again.to.session_id == case.session_id
    assert [m.text for m in last] == ["And here again.", "Fine."]


def test_a_long_conversation_is_condensed_by_the_agent_and_read_as_it_sends_it(tmp_path: Path) -> None:
    claude, openhands = get_format("claude"), need_agent("openhands")
    turns = (make_assistant(f"Step {n}.", make_call(f"c{n}", "Bash", '{"command":"ls"}')) for n in range(50))
    messages = (make_user("Go."), *(m for t in turns for m in (t, make_result(t.calls[0].id, "done"))))
    assert claude.write is not None
    home, folder = tmp_path / "home", tmp_path / "work"
    folder.mkdir()
    session_id = make_id("long")
    for file in claude.write(messages, write_options(session_id)).files:
        path = home / ".claude" / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"".join(map(bytes, file.chunks())))
    with make_context(home, 0) as ctx:
        made = convert(ctx, f"claude:{session_id}", to="openhands", cwd=str(folder))
    script = [say("It went on for long.", when="(?i)summar|condens"), say("Fine.")]
    seen = openhands.resume(home, folder, made.to.session_id, "And now?", script)
    assert len(seen.requests) == 2, seen.refusal
    with make_context(home, 5) as ctx:
        session = open_session(ctx, f"openhands:{made.to.session_id}").session
    (one,) = look([home / ".openhands" / "conversations" / made.to.session_id.replace("-", "")], tmp_path)
    names = Names()
    assert sent(one["messages"]) == [told(group, names) for group in group_messages(session.messages)]
    assert [m.text for m in session.messages if m.kind == "summary"] == ["It went on for long."]
    assert session.history[: len(messages)] != session.messages
    assert [m.text for m in session.history[: len(messages)]] == [m.text for m in messages]
    assert not session.damage
    with make_context(home, 10) as ctx:
        back = convert(ctx, f"openhands:{made.to.session_id}", to="claude", full=True)
        last = open_session(ctx, f"claude:{session_id}").session.messages[-3:]
    assert back.to.session_id == session_id
    assert [m.text for m in last] == ["And now?", "It went on for long.", "Fine."]
