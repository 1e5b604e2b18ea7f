"""The real Hermes as the judge of what clew writes into its database, and of what clew brings back there."""

from __future__ import annotations

import contextlib
import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from agents.lab import hermes
from agents.lab.judge import as_groups, judge_sees
from agents.lab.model import FakeModel
from agents.lab.needs import need_agent
from agents.lab.process import wait_for
from agents.lab.script import Call, Step, Text, say
from clew.conversation.builder import make_assistant, make_call, make_result, make_user
from clew.conversation.model import Image, Message
from clew.errors import Refused
from clew.formats.hermes import FORMAT, schema
from clew.formats.marks import INVENTED, Names, wrap_arguments
from clew.formats.protocol import Home, WriteOptions
from clew.laws.stored import make_id
from clew.platform.clock import SystemClock
from clew.verbs.context import Context
from clew.verbs.convert import convert
from clew.verbs.keep import keep
from clew.verbs.refer import open_session
from clew.verbs.restore import restore
from clew.verbs.show import show_groups
from clew_corpus import Case, own_case, own_cases, shared_cases

pytestmark = pytest.mark.agent

ALONE = ("image", "codemode", "bigoutput", "checkpointed", "zstd")
"""Cases whose results are images or blocks, and those that say nothing new here: the agent takes long for a turn."""

FOREIGN = [case for agent in ("claude", "codex") for case in own_cases(agent) if case.name not in ALONE]
NATIVE = [case for case in (*own_cases("hermes"), *shared_cases("hermes")) if case.expected]
CALL = Call("terminal", {"command": "echo from-there"}, "call_there_1")
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
DOT = Image("image/png", PNG)

ODD: tuple[Message, ...] = (
    make_user("One."),
    make_user("[CONTEXT SUMMARY]: typed by a person"),
    make_assistant("", make_call("a", "odd name!", "no json"), make_call("a", "", '{"a":1}'), make_call("b", "t", "")),
    make_result("a", "first"),
    make_result("a", "", is_error=True),
    make_user("<memory-context>typed</memory-context> [System note: typed too]"),
    make_assistant("As typed."),
    make_user("Review the conversation above and update the skill library, I say."),
    make_assistant("\x00json:[] is what I say."),
    make_user("What colour?", DOT, "And this?"),
    make_assistant("1e400 🧵", make_call("z", "look", '{"x":1e400}')),
    make_result("z", "grey"),
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "work"
    path.mkdir()
    return path


def open_context(home: Path, folder: Path) -> Context:
    return Context(Home(home), home / "clew-data", cwd=folder, clock=SystemClock())


def groups_of(ctx: Context, ref: str) -> list[dict[str, Any]]:
    return [
        {
            "role": group.role,
            "text": group.text,
            "tool_calls": [{"name": c.name, "arguments": c.arguments} for c in group.tool_calls],
            "results": [r.text for r in group.tool_results],
        }
        for group in show_groups(open_session(ctx, ref).session.messages)
    ]


def as_sent(groups: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns what the agent makes of them: texts without blanks around them, those of neighbours with an empty line
    in between; arguments that are no object inside clew's wrapper."""
    sent: list[dict[str, Any]] = []
    for group in groups:
        calls = [
            {"name": call["name"], "arguments": wrap_arguments(call["arguments"])[0].decode()}
            for call in group["tool_calls"]
        ]
        text = str(group["text"]).strip()
        if sent and group["role"] == "user" == sent[-1]["role"] and text and sent[-1]["text"]:
            sent[-1]["text"] += "\n\n" + text
            continue
        results = [result.strip() for result in group["results"]]
        sent.append({**group, "text": text, "tool_calls": calls, "results": results})
    return sent


def legal(groups: list[dict[str, Any]]) -> Any:
    names = Names()
    names.reserve(call["name"] for group in groups for call in group["tool_calls"])
    return names.legal


def rows_of(home: Path, id_: str) -> list[bytes]:
    assert FORMAT.present_rows is not None
    found = FORMAT.present_rows(Home(home), f"state.db#{id_}")
    return bytes(found or b"").splitlines()


def put(home: Path, folder: Path, name: str, messages: tuple[Message, ...]) -> str:
    assert FORMAT.write is not None
    assert FORMAT.place_rows is not None
    assert FORMAT.surroundings is not None
    id_, now = make_id(name), int(time.time() * 1000)
    facts = FORMAT.surroundings(Home(home), str(folder))
    options = WriteOptions(id_, str(folder), now, lambda one: make_id(id_ + one), "claude:1", facts=facts)
    rows = b"".join(bytes(piece) for piece in FORMAT.write(messages, options).files[0].chunks())
    FORMAT.place_rows(Home(home), f"state.db#{id_}", rows, None, now)
    return id_


def sql(home: Path, statement: str) -> list[Any]:
    with contextlib.closing(sqlite3.connect(home / hermes.DATABASE)) as database, database:
        return database.execute(statement).fetchall()


@pytest.mark.parametrize("case", FOREIGN, ids=str)
def test_there_one_real_turn_and_home_again(case: Case, tmp_path: Path, folder: Path) -> None:
    need_agent("hermes")
    home = case.copy_home(tmp_path / "home")
    before = {path: path.read_bytes() for path in case.copied_paths(home)}
    ref = f"{case.agent}:{case.session_id}"
    with open_context(home, folder) as ctx:
        said = groups_of(ctx, ref)
        made = convert(ctx, ref, to="hermes", cwd=str(folder))
    assert made.to.session_id in [row["id"] for row in hermes.list_sessions(home, folder)]

    script: list[Step] = [Step([Text("I look once more."), CALL]), say("The turn in Hermes is done.")]
    seen = hermes.resume(home, folder, made.to.session_id, "One more turn, please.", script)
    assert judge_sees(seen, as_sent(said), rename=legal(said)) == []
    assert seen.reply

    with open_context(home, folder) as ctx:
        back = convert(ctx, f"hermes:{made.to.session_id}", to=case.agent)
        home_again = groups_of(ctx, ref)
    assert back.to.session_id == case.session_id
    for path, data in before.items():
        assert path.read_bytes().startswith(data), f"{path.name}: an old byte changed"
    assert home_again[: len(said)] == said
    texts = [group["text"] for group in home_again[len(said) :]]
    assert texts == ["One more turn, please.", "I look once more.", "The turn in Hermes is done."]


@pytest.mark.parametrize("case", NATIVE, ids=lambda c: f"{c}-{'own' if 'fixtures' in str(c.home) else 'shared'}")
def test_away_and_home_again_every_row_is_as_it_was(case: Case, tmp_path: Path, folder: Path) -> None:
    claude = need_agent("claude")
    need_agent("hermes")
    home = case.copy_home(tmp_path / "home")
    id_ = str(case.session_id)
    rows = rows_of(home, id_)
    with open_context(home, folder) as ctx:
        said = groups_of(ctx, f"hermes:{id_}")
        made = convert(ctx, f"hermes:{id_}", to="claude", cwd=str(folder))
    seen = claude.resume(home, folder, made.to.session_id, "One more turn, please.", [say("Done with Claude.")])
    assert judge_sees(seen, said, rename=legal(said)) == []

    with open_context(home, folder) as ctx:
        back = convert(ctx, f"claude:{made.to.session_id}", to="hermes")
        home_again = groups_of(ctx, f"hermes:{id_}")
    assert back.to.session_id == id_
    assert home_again[: len(said)] == said
    assert rows_of(home, id_)[: len(rows)] == rows, "an old row changed"

    final = hermes.resume(home, folder, id_, "And a last one here.")
    assert judge_sees(final, as_sent(home_again)) == []
    assert final.session_id == id_


def test_odd_conversations_are_taken_and_found(tmp_path: Path, folder: Path) -> None:
    need_agent("hermes")
    home = tmp_path / "home"
    id_ = put(home, folder, "odd", ODD)
    with open_context(home, folder) as ctx:
        said = groups_of(ctx, f"hermes:{id_}")
    seen = hermes.resume(home, folder, id_)
    assert judge_sees(seen, as_sent(said), rename=legal(said)) == []
    assert sum(len(message["images"]) for message in seen.messages) == 1
    assert str(seen.requests).count("clew:") == str(seen.requests).count(INVENTED) == 1
    found = sql(home, "SELECT count(*) FROM messages_fts WHERE messages_fts MATCH 'colour'")
    assert found == [(1,)]  # the agent took what was there into its search
    assert sql(home, "SELECT count(*) FROM messages_fts_trigram") == sql(home, "SELECT count(*) FROM messages")
    with open_context(home, folder) as ctx:
        assert groups_of(ctx, f"hermes:{id_}")[: len(said)] == said


def test_a_database_laid_out_here_has_the_agents_own_columns(tmp_path: Path, folder: Path) -> None:
    need_agent("hermes")
    hermes.start(tmp_path / "theirs", folder, ["Hello."], [say("Hi.")])
    put(tmp_path / "ours", folder, "mine", ODD[:1])
    for table in ("sessions", "messages", "state_meta", "session_model_usage", "schema_version"):
        mine, theirs = (sql(tmp_path / one, f"PRAGMA table_info({table})") for one in ("ours", "theirs"))
        assert mine == theirs
        keys = (sql(tmp_path / one, f"PRAGMA foreign_key_list({table})") for one in ("ours", "theirs"))
        assert next(keys) == next(keys)
    assert sql(tmp_path / "theirs", "SELECT version FROM schema_version") == [(schema.VERSION,)]


def test_a_running_agent_holds_its_session_and_no_other(tmp_path: Path, folder: Path) -> None:
    codex = need_agent("codex")
    need_agent("hermes")
    case, other = own_case("claude", "simple"), tmp_path / "other"
    other.mkdir()
    home = case.copy_home(tmp_path / "home")
    held = str(hermes.start(home, folder, ["Hello."], [say("Hi.")]).session_id)
    with open_context(home, folder) as ctx:
        away = convert(ctx, f"hermes:{held}", to="codex")
    codex.resume(home, folder, away.to.session_id, "More.", [say("There is more.")])
    begun = folder / "begun"
    script = [Step([Call("terminal", {"command": "touch begun; sleep 6"}, "call_long_1")]), say("Still here.")]
    with ThreadPoolExecutor(1) as pool:
        turn = pool.submit(hermes.resume, home, folder, held, "Wait a while.", script)
        wait_for(begun.exists, "the agent's call", 90)
        with open_context(home, folder) as ctx:
            made = convert(ctx, f"claude:{case.session_id}", to="hermes", cwd=str(other))
            assert held in FORMAT.resume.owners(Home(home))
            with pytest.raises(Refused) as refused:
                convert(ctx, f"codex:{away.to.session_id}", to="hermes")
        assert refused.value.code in ("live_owner", "target_diverged")
        assert turn.result().reply.endswith("Still here.")
    assert FORMAT.resume.owners(Home(home)) == {}
    with open_context(home, folder) as ctx:
        texts = [group["text"] for group in groups_of(ctx, f"hermes:{held}")]
    assert texts == ["Hello.", "Hi.", "Wait a while.", "", "Still here."]
    seen = hermes.resume(home, other, made.to.session_id)
    assert judge_sees(seen, as_groups(case.expected or ())) == []


def test_a_second_session_of_the_agents_own_is_taken(tmp_path: Path, folder: Path) -> None:
    need_agent("hermes")
    case = own_case("hermes", "tools")
    home = case.copy_home(tmp_path / "home")
    before = rows_of(home, str(case.session_id))
    with open_context(home, folder) as ctx:
        made = convert(ctx, f"hermes:{case.session_id}", to="hermes", new=True)
    assert made.report.mode == "rebased"
    assert rows_of(home, str(case.session_id)) == before
    seen = hermes.resume(home, folder, made.to.session_id)
    assert judge_sees(seen, as_groups(case.expected or ())) == []


def test_a_session_that_the_agent_deleted_comes_back(tmp_path: Path, folder: Path) -> None:
    need_agent("hermes")
    case = own_case("hermes", "tools")
    home = case.copy_home(tmp_path / "home")
    id_ = str(case.session_id)
    before = rows_of(home, id_)
    with open_context(home, folder) as ctx:
        list(keep(ctx, [f"hermes:{id_}"]))
        done = hermes.command(home, folder, ["sessions", "delete", "--yes", id_])
        assert done.status == 0, done.said
        assert rows_of(home, id_) == []
        restore(ctx, f"hermes:{id_}")
    assert rows_of(home, id_) == before
    seen = hermes.resume(home, folder, id_)
    assert judge_sees(seen, as_groups(case.expected or ())) == []


SMALL = """compression:
  in_place: true
  protect_last_n: 2
  protect_first_n: 1
  target_ratio: 0.02
"""


def test_a_session_that_was_compacted_in_place_is_read_as_it_is_sent(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need_agent("hermes")
    home = tmp_path / "home"
    settings = hermes.CONFIG.replace("context_length: 200000", "context_length: 65536") + SMALL
    monkeypatch.setattr(hermes, "CONFIG", settings)
    said = [f"Prompt {number}: " + "thread and thread again " * 4000 for number in range(5)]
    summary = say("Threads were spun.", when="summar|compact|handoff")
    script = [summary, *(say(f"Answer {number}.") for number in range(5))]
    with FakeModel(script) as model, hermes.Session(home, folder, model) as session:
        for prompt in said:
            session.say(prompt.strip())
    id_ = str(session.session_id)
    with open_context(home, folder) as ctx:
        groups, read = groups_of(ctx, f"hermes:{id_}"), open_session(ctx, f"hermes:{id_}").session
    assert read.boundaries
    assert any(message.kind == "summary" for message in read.messages)
    texts = [message.text.strip() for message in read.history if message.origin == "user"]
    assert texts == [prompt.strip() for prompt in said], "everything that was said is in the history once"
    monkeypatch.setattr(hermes, "CONFIG", settings.replace("65536", "400000"))
    seen = hermes.resume(home, folder, id_)
    assert judge_sees(seen, as_sent(groups)) == []
