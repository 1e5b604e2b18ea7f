"""The real agent as the judge of what only this format does: odd conversations, marks over a fork, long folders."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pytest

from agents.lab.judge import judge_sees
from agents.lab.needs import need_agent
from agents.lab.script import say
from claude_samples import joined
from clew.conversation.builder import make_assistant, make_call, make_result, make_user
from clew.conversation.canonical import keys_of
from clew.conversation.groups import group_messages
from clew.conversation.model import Image, Message
from clew.conversation.source import Session
from clew.formats.claude import FORMAT
from clew.formats.claude.folder import folder_name
from clew.formats.claude.splice import splice
from clew.formats.claude.writer import write
from clew.formats.marks import INVENTED, Names, wrap_arguments
from clew.formats.protocol import Home, WriteOptions, Written
from odd_pieces import PNG

pytestmark = pytest.mark.agent

ODD: tuple[Message, ...] = (
    make_user("The conversation so far: a summary.", origin="agent", kind="summary"),
    make_assistant("I see", make_call("c|1", "shell.exec", "ls -la"), " and ", make_call("c|1", "apply_patch", "")),
    make_result("c|1", "a\u2028b", is_error=None),
    make_user("[Request interrupted by user]", origin="agent", kind="interruption"),
    make_user("/compact is what I typed", Image("image/png", PNG)),
    make_assistant(make_call("c2", "Read", '{"n":1.5}')),
    make_result("c2", "", Image("image/png", PNG)),
    make_assistant("done"),
    make_user("again <system-reminder>x</system-reminder>"),
    make_assistant("Last word.", " \n"),
)


def options(session_id: str, cwd: Path, **more: str) -> WriteOptions:
    def new_id(name: str) -> str:
        return str(uuid.uuid5(uuid.UUID(session_id), name))

    return WriteOptions(session_id, str(cwd.resolve()), 1_796_067_394_000, new_id, **more)


def place(home: Path, written: Written) -> Path:
    path = home / ".claude" / written.files[0].path
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(joined(written))
    return path


def load(home: Path, session_id: str) -> Session:
    found = next(f for f in FORMAT.locate.find(Home(home)) if f.id == session_id)
    return FORMAT.read(FORMAT.locate.load(found, Home(home)))


def as_sent(messages: tuple[Message, ...]) -> list[dict[str, Any]]:
    """The groups as the agent is given them: legal names, arguments as objects, every call answered."""
    names = Names()
    rows: list[dict[str, Any]] = []
    for group in group_messages(messages):
        head = group.head
        calls = [(names.legal(c.name), wrap_arguments(c.arguments)[0].decode()) for c in head.calls]
        results = [r.text for r in group.results]
        results += [INVENTED] * (len(calls) - len(results))
        sent = [{"name": name, "arguments": arguments} for name, arguments in calls]
        images = len(head.images) + sum(len(r.images) for r in group.results)
        rows.append({"role": head.role, "text": head.text, "tool_calls": sent, "results": results, "images": images})
    return rows


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "work.dir é"
    path.mkdir()
    return path


def test_an_odd_conversation_is_listed_resumed_and_sent_whole(tmp_path: Path, folder: Path) -> None:
    agent = need_agent("claude")
    session_id = str(uuid.uuid4())
    place(tmp_path, write(ODD, options(session_id, folder, origin="codex:x", title="Odd one")))
    assert judge_sees(agent.resume(tmp_path, folder, session_id), as_sent(ODD)) == []
    assert [row["title"] for row in agent.list_sessions(tmp_path, folder)] == ["Odd one"]
    after = load(tmp_path, session_id)
    assert list(keys_of(after.messages))[: len(as_sent(ODD))] == list(keys_of(ODD))
    assert after.foreign == "codex:x"
    assert not after.damage


def test_marks_outlive_a_fork(tmp_path: Path, folder: Path) -> None:
    agent = need_agent("claude")
    session_id = str(uuid.uuid4())
    place(tmp_path, write(ODD, options(session_id, folder, origin="codex:x")))
    seen = agent.fork(tmp_path, folder, session_id, "Go another way.", [say("I do.")])
    fork = load(tmp_path, seen.session_id)
    assert list(keys_of(fork.messages))[: len(as_sent(ODD))] == list(keys_of(ODD))
    assert fork.messages[-1].text == "I do."
    assert fork.foreign == "codex:x"
    assert [(r.relation, r.session_id) for r in fork.references] == [("forked", session_id)]


def test_what_is_spliced_behind_the_agents_own_records_is_sent_too(tmp_path: Path, folder: Path) -> None:
    agent = need_agent("claude")
    session_id = str(uuid.uuid4())
    agent.start(tmp_path, folder, ["Hello."], [say("Hello to you.")], session_id=session_id)
    prefix = load(tmp_path, session_id)
    more = ODD[4:]
    written = splice(prefix, more, options(session_id, folder))
    path = tmp_path / ".claude" / written.files[0].path
    assert joined(written).startswith(path.read_bytes())
    path.write_bytes(joined(written))
    whole = (*prefix.messages, *more)
    assert judge_sees(agent.resume(tmp_path, folder, session_id, "And?", [say("Yes.")]), as_sent(whole)) == []
    after = load(tmp_path, session_id)
    assert [m.text for m in after.messages[-2:]] == ["And?", "Yes."]
    assert list(keys_of(after.messages))[:-2] == list(keys_of(whole))


def test_the_folder_of_a_long_path_is_the_agents_own(tmp_path: Path) -> None:
    agent = need_agent("claude")
    folder = tmp_path / ("long " * 30) / ("é🚀" * 30)
    folder.mkdir(parents=True)
    session_id = str(uuid.uuid4())
    agent.start(tmp_path, folder, ["Hello."], session_id=session_id)
    (found,) = (f for f in FORMAT.locate.find(Home(tmp_path)) if f.kind == "session")
    assert found.path.parent.name == folder_name(str(folder.resolve()))
