"""The real agent judges: what is written is listed, resumed, sent whole, forked without a notice, and locked."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from agents.lab.needs import need_agent
from agents.lab.script import say
from clew.conversation.builder import make_assistant, make_call, make_result, make_user
from clew.conversation.canonical import keys_of
from clew.conversation.model import Image, Message, Reasoning
from clew.conversation.normal import normalise
from clew.conversation.source import Session
from clew.formats.codex import FORMAT
from clew.formats.codex.compressed import pack
from clew.formats.marks import INVENTED
from clew.formats.protocol import Found, Home, Written
from codex_samples import options
from odd_pieces import PNG

pytestmark = pytest.mark.agent

HARD = normalise(
    (
        make_user("<environment_context>\n<cwd>/x</cwd>\n</environment_context>", Image("image/png", PNG)),
        make_assistant("", Reasoning("hm"), make_call("id|ä", "odd name!", '{"n":12345678901234567890}')),
        make_result("id|ä", "\x00 \u2028 日本 🚀\r\n", is_error=True),
        make_assistant(make_call("a", "multi_agent_v1.spawn_agent", "{}"), make_call("a", "apply_patch", "*** Begin")),
        make_result("a", Image("image/png", PNG), "seen"),
        make_user("A summary of what was.", origin="agent", kind="summary"),
        make_user("/compact"),
        make_assistant("Done.", make_call("", "", "[1,2]")),
    )
)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    return tmp_path


def put(home: Path, written: Written) -> None:
    for file in written.files:
        path = home / ".codex" / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"".join(bytes(chunk) for chunk in file.chunks()))


def write(home: Path, messages: tuple[Message, ...]) -> str:
    id_ = str(uuid.uuid4())
    put(home, FORMAT.write(messages, options(session_id=id_, cwd=str(home / "work"), origin="claude:1")))  # type: ignore[misc]
    return id_


def find(home: Path, id_: str) -> Found:
    return next(one for one in FORMAT.locate.find(Home(home)) if one.id == id_)


def load(home: Path, id_: str) -> Session:
    return FORMAT.read(FORMAT.locate.load(find(home, id_), Home(home)))


def keys(messages: tuple[Message, ...]) -> list[str]:
    return [str(key) for key in keys_of(messages)]


def test_a_hard_conversation_is_listed_and_sent_whole(home: Path) -> None:
    agent = need_agent("codex")
    id_ = write(home, HARD)
    listed = agent.list_sessions(home, home / "work")
    assert [one["id"] for one in listed] == [id_]
    seen = agent.resume(home, home / "work", id_)
    assert seen.resumed, seen.refusal
    assert seen.session_id == id_
    sent = [item for item in seen.request["input"] if item.get("role") not in ("developer", "system")]
    kinds = [item.get("type", "message") for item in sent]
    first = next(at for at, item in enumerate(sent) if "<cwd>/x</cwd>" in str(item))
    assert kinds[first : first + 13] == [
        "message",
        "function_call",
        "function_call_output",
        "function_call",
        "custom_tool_call",
        "function_call_output",
        "custom_tool_call_output",
        "message",
        "message",
        "message",
        "custom_tool_call",
        "custom_tool_call_output",
        "message",
    ]
    outputs = [item["output"] for item in sent if item.get("type", "").endswith("_output")]
    assert outputs[0] == "\x00 \u2028 日本 🚀\r\n"
    assert [part["type"] for part in outputs[1]] == ["input_image", "input_text"]
    assert outputs[2] == outputs[3] == INVENTED
    again = load(home, id_)
    assert keys(again.messages[: len(HARD)]) == keys(HARD)
    assert [m.text for m in again.messages[len(HARD) :]] == [seen.prompt, seen.reply]


def test_a_fork_begins_without_a_notice(home: Path) -> None:
    agent = need_agent("codex")
    messages = (make_user("One."), make_assistant("First."))
    id_ = write(home, messages)
    seen = agent.fork(home, home / "work", id_, "Another way.", [say("As you like.")])
    assert seen.resumed, seen.refusal
    fork = load(home, seen.session_id)
    assert [m.text for m in fork.messages] == ["One.", "First.", "Another way.", "As you like."]
    assert [(one.relation, one.session_id) for one in fork.references] == [("forked", id_)]


@pytest.mark.parametrize("compress", [False, True])
def test_a_thread_of_the_agents_own_is_gone_on_with(home: Path, compress: bool) -> None:
    agent = need_agent("codex")
    held = agent.start(home, home / "work", ["Hello.", "More."], [say("Hi."), say("Here.")])
    found = find(home, held.session_id)
    if compress:
        packed = b"".join(pack([found.path.read_bytes()]))
        found.path.unlink()
        found.path.with_name(found.path.name + ".zst").write_bytes(packed)
    session = load(home, held.session_id)
    put(home, FORMAT.splice(session, HARD, options(cwd=str(home / "work"))))  # type: ignore[misc]
    listed = agent.list_sessions(home, home / "work")
    assert [(one["id"], one["title"]) for one in listed] == [(held.session_id, "Hello.")]
    seen = agent.resume(home, home / "work", held.session_id)
    assert seen.resumed, seen.refusal
    again = load(home, held.session_id)
    whole = (*session.messages, *HARD)
    assert keys(again.messages[: len(whole)]) == keys(whole)
    assert [m.text for m in again.messages[len(whole) :]] == [seen.prompt, seen.reply]
    texts = [text for one in seen.history for text in one["texts"]]
    assert texts[:4] == ["Hello.", "Hi.", "More.", "Here."]
    assert texts[-2:] == ["/compact", "Done."]


def test_a_rebased_thread_is_another_one(home: Path) -> None:
    agent = need_agent("codex")
    held = agent.start(home, home / "work", ["Hello."], [say("Hi.")])
    id_ = str(uuid.uuid4())
    put(home, FORMAT.rebase(load(home, held.session_id), options(session_id=id_)))  # type: ignore[misc]
    seen = agent.resume(home, home / "work", id_)
    assert seen.resumed, seen.refusal
    assert seen.session_id == id_
    assert [text for one in seen.history for text in one["texts"]] == ["Hello.", "Hi."]
    assert sorted(one["id"] for one in agent.list_sessions(home, home / "work")) == sorted([held.session_id, id_])


def test_a_live_thread_has_an_owner(home: Path) -> None:
    driver = need_agent("codex")
    with driver.FakeModel([say("Hi.")]) as model, driver.CodexSession(home, home / "work", model) as live:
        live.say("Hello.")
        found = find(home, live.session_id)
        owner = FORMAT.resume.owner(found, Home(home))
        assert owner is not None
        assert owner.pid in (0, live.server.process.child.pid)
        assert set(FORMAT.resume.owners(Home(home))) == {live.session_id}
        live.close()
    assert FORMAT.resume.owner(found, Home(home)) is None
