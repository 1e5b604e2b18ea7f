"""The real OpenCode on rows that clew placed: it lists them, resumes them, sends all of them, and they come home."""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from agents.lab import opencode
from agents.lab.judge import as_groups, judge_messages, judge_sees
from agents.lab.model import FakeModel
from agents.lab.needs import need_agent
from agents.lab.script import Call, Step, Text, say
from clew.conversation.builder import make_assistant, make_call, make_result, make_user
from clew.conversation.model import Image, Message
from clew.errors import Refused
from clew.formats.marks import INVENTED, Names, wrap_arguments
from clew.formats.opencode import FORMAT, schema
from clew.formats.opencode.names import session_id
from clew.formats.protocol import Home, WriteOptions
from clew.laws.stored import make_id
from clew.platform.clock import SystemClock
from clew.verbs.context import Context
from clew.verbs.convert import convert
from clew.verbs.refer import open_session
from clew.verbs.show import show_groups
from clew_corpus import Case, own_case, own_cases, shared_cases
from opencode_samples import keys

pytestmark = pytest.mark.agent

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAgAAAAICAIAAABLbSncAAAAEklEQVR4nGP4z8CAFWEXHbQSACj/P8Fu7N9hAAAAAElFTkSuQmCC"
CALL = Call("bash", {"command": "echo from-there", "description": "Say so"}, "call_there_1")

FOREIGN = [*own_cases("claude"), *own_cases("codex")]
NATIVE = [case for case in (*own_cases("opencode"), *shared_cases("opencode")) if case.expected]

ODD: tuple[Message, ...] = (
    make_assistant("I was first."),
    make_user("hi", Image("image/png", PNG)),
    make_user("twice"),
    make_assistant(
        "a",
        " b",
        make_call("c!", "weird name", '"text"'),
        make_call("d", "bash", '{"command":"ls"}'),
        make_call("e", "x"),
    ),
    make_result("c!", ""),
    make_result("d", "bad", is_error=True),
    make_user("The summary.", origin="agent", kind="summary"),
    make_assistant(make_call("z", "read", "{}")),
    make_result("z", "pic", Image("image/png", PNG)),
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
    """Arguments that are no object are sent inside clew's wrapper."""
    return [
        {
            **group,
            "tool_calls": [
                {"name": call["name"], "arguments": wrap_arguments(call["arguments"])[0].decode()}
                for call in group["tool_calls"]
            ],
        }
        for group in groups
    ]


def legal(groups: list[dict[str, Any]]) -> Any:
    names = Names()
    names.reserve(call["name"] for group in groups for call in group["tool_calls"])
    return names.legal


def rows_of(home: Path, id_: str) -> list[bytes]:
    assert FORMAT.present_rows is not None
    found = FORMAT.present_rows(Home(home), f"opencode.db#{id_}")
    return bytes(found or b"").splitlines()


def put(home: Path, folder: Path, name: str, messages: tuple[Message, ...], **facts: str) -> str:
    assert FORMAT.write is not None
    assert FORMAT.place_rows is not None
    id_, now = session_id(make_id(name)), int(time.time() * 1000)
    options = WriteOptions(id_, str(folder), now, lambda one: make_id(id_ + one), "claude:1", facts=facts)
    rows = b"".join(bytes(piece) for piece in FORMAT.write(messages, options).files[0].chunks())
    FORMAT.place_rows(Home(home), f"opencode.db#{id_}", rows, None, now)
    return id_


@pytest.mark.parametrize("case", FOREIGN, ids=str)
def test_there_one_real_turn_and_home_again(case: Case, tmp_path: Path, folder: Path) -> None:
    need_agent("opencode")
    home = case.copy_home(tmp_path / "home")
    before = {path: path.read_bytes() for path in case.copied_paths(home)}
    ref = f"{case.agent}:{case.session_id}"
    with open_context(home, folder) as ctx:
        said = groups_of(ctx, ref)
        made = convert(ctx, ref, to="opencode", cwd=str(folder))
    assert made.to.session_id in [row["id"] for row in opencode.list_sessions(home, folder)]

    script: list[Step] = [Step([Text("I look once more."), CALL]), say("The turn in OpenCode is done.")]
    seen = opencode.resume(home, folder, made.to.session_id, "One more turn, please.", script)
    assert judge_sees(seen, as_sent(said), rename=legal(said)) == []
    assert seen.reply

    with open_context(home, folder) as ctx:
        back = convert(ctx, f"opencode:{made.to.session_id}", to=case.agent)
        home_again = groups_of(ctx, ref)
    assert back.to.session_id == case.session_id
    for path, data in before.items():
        assert path.read_bytes().startswith(data), f"{path.name}: an old byte changed"
    assert home_again[: len(said)] == said
    texts = [group["text"] for group in home_again[len(said) :]]
    assert texts == ["One more turn, please.", "I look once more.", "The turn in OpenCode is done."]


@pytest.mark.parametrize("case", NATIVE, ids=lambda c: f"{c}-{'own' if 'fixtures' in str(c.home) else 'shared'}")
def test_away_and_home_again_every_row_is_as_it_was(case: Case, tmp_path: Path, folder: Path) -> None:
    claude = need_agent("claude")
    need_agent("opencode")
    home = case.copy_home(tmp_path / "home")
    id_ = str(case.session_id)
    rows = rows_of(home, id_)
    with open_context(home, folder) as ctx:
        said = groups_of(ctx, f"opencode:{id_}")
        made = convert(ctx, f"opencode:{id_}", to="claude", cwd=str(folder))
    seen = claude.resume(home, folder, made.to.session_id, "One more turn, please.", [say("Done with Claude.")])
    assert judge_sees(seen, as_sent(said), rename=legal(said)) == []

    with open_context(home, folder) as ctx:
        back = convert(ctx, f"claude:{made.to.session_id}", to="opencode")
        home_again = groups_of(ctx, f"opencode:{id_}")
    assert back.to.session_id == id_
    assert home_again[: len(said)] == said
    after = rows_of(home, id_)
    assert [row for row in after if row in rows] == rows, "an old row changed"

    final = opencode.resume(home, folder, id_, "And a last one here.")
    assert judge_sees(final, as_sent(home_again)) == []


def test_odd_conversations_are_taken_listed_shown_forked_and_exported(tmp_path: Path, folder: Path) -> None:
    need_agent("opencode")
    home = tmp_path / "home"
    id_ = put(home, folder, "odd", ODD, model=opencode.MODEL)
    # The terminal asks through this interface, which checks every message against the agent's own types.
    with FakeModel() as model, opencode.Server(home, folder, model) as server:
        assert len(server.call("GET", f"/session/{id_}/message")) == sum(m.role != "tool" for m in ODD)
        assert server.call("GET", f"/session/{id_}")["metadata"] == {"clew": {"from": "claude:1"}}

    seen = opencode.resume(home, folder, id_)
    assert seen.exit == 0, seen.refusal
    sent = [(m["role"], m["text"], [r["text"] for r in m["tool_results"]], len(m["images"])) for m in seen.history]
    assert sent == [
        ("assistant", "I was first.", [], 0),
        ("user", "hi", [], 1),
        ("user", "twice", [], 0),
        ("assistant", "a b", [], 0),
        ("tool", "", ["", "bad", INVENTED], 0),
        ("user", "The summary.", [], 0),
        ("assistant", "", [], 0),
        ("tool", "", ["pic"], 1),
    ]

    forked = opencode.fork(home, folder, id_)
    with open_context(home, folder) as ctx:
        session = open_session(ctx, f"opencode:{forked.session_id}").session
        assert keys(session.messages)[: len(keys(ODD))] == keys(ODD)
        assert session.foreign == "claude:1"
        path = tmp_path / "export.json"
        path.write_text(opencode.export(home, folder, id_))
        exported = open_session(ctx, str(path))
        assert (exported.format.name, exported.session.id) == ("opencode", id_)
        assert keys(exported.session.messages)[: len(keys(ODD))] == keys(ODD)


def test_the_agent_goes_on_where_no_model_was_known(tmp_path: Path, folder: Path) -> None:
    need_agent("opencode")
    home = tmp_path / "home"
    id_ = put(home, folder, "plain", ODD[:3])
    with FakeModel() as model:
        seen = opencode.run(home, folder, "Go on.", model, ["--session", id_])
    assert seen.exit == 0, seen.refusal
    assert [m["text"] for m in seen.history] == ["I was first.", "hi", "twice"]


def test_a_database_of_ours_is_laid_out_as_the_agents_own(tmp_path: Path, folder: Path) -> None:
    need_agent("opencode")
    opencode.list_sessions(tmp_path / "theirs", folder)
    path = tmp_path / "theirs" / ".local/share/opencode/opencode.db"
    with closing(sqlite3.connect(path)) as theirs, closing(sqlite3.connect(":memory:")) as ours:
        schema.lay_out(ours.execute, 1)
        assert _layout(theirs) == _layout(ours)


def _layout(database: sqlite3.Connection) -> dict[str, Any]:
    names = [row[0] for row in database.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]
    found: dict[str, Any] = {
        f"{what} {name}": sorted(database.execute(f"PRAGMA {what}(`{name}`)").fetchall())
        for name in names
        for what in ("table_info", "foreign_key_list")
    }
    indexes = database.execute("SELECT name FROM sqlite_master WHERE type = 'index' ORDER BY name").fetchall()
    found |= {f"index {name}": database.execute(f"PRAGMA index_info(`{name}`)").fetchall() for (name,) in indexes}
    return found | {"migration": [row[0] for row in database.execute("SELECT id FROM migration ORDER BY rowid")]}


def test_a_session_for_a_folder_in_a_repository_is_listed_there(tmp_path: Path, folder: Path) -> None:
    need_agent("opencode")
    if shutil.which("git") is None:
        pytest.skip("git is not here")
    home, deep = tmp_path / "home", folder / "deep"
    deep.mkdir()
    env = opencode.environment(home) | {"GIT_CONFIG_NOSYSTEM": "1"}
    for argv in (["init", "-q"], ["remote", "add", "origin", "git@Example.com:loom/Thread.git"]):
        subprocess.run(["git", *argv], cwd=folder, env=env, check=True, timeout=30)
    assert FORMAT.surroundings is not None
    facts = dict(FORMAT.surroundings(Home(home), str(deep)))
    id_ = put(home, deep, "repository", ODD[:3], **facts)
    assert [row["id"] for row in opencode.list_sessions(home, deep)] == [id_]
    assert (folder / ".git" / "opencode").read_text() == facts["project"]


def test_a_running_agent_holds_the_sessions_of_its_folder_and_no_others(tmp_path: Path, folder: Path) -> None:
    need_agent("opencode")
    case = own_case("claude", "simple")
    home, other = case.copy_home(tmp_path / "home"), tmp_path / "other"
    other.mkdir()
    id_ = put(home, folder, "held", ODD[:3], model=opencode.MODEL)
    with FakeModel([say("Still here.")]) as model, opencode.Server(home, folder, model) as server:
        server.call("GET", f"/session/{id_}/message")
        with open_context(home, folder) as ctx:
            made = convert(ctx, f"claude:{case.session_id}", to="opencode", cwd=str(other))
            away = convert(ctx, f"opencode:{id_}", to="codex")
            _say_more(Path(away.to.path))
            with pytest.raises(Refused) as refused:
                convert(ctx, f"codex:{away.to.session_id}", to="opencode")
        assert refused.value.code == "live_owner"
        parts = [{"type": "text", "text": "Are you there?"}]
        server.call("POST", f"/session/{id_}/message", {"parts": parts}, 120)
    with open_context(home, folder) as ctx:
        texts = [group["text"] for group in groups_of(ctx, f"opencode:{id_}")]
        assert texts[-2:] == ["Are you there?", "Still here."]
    seen = opencode.resume(home, other, made.to.session_id)
    assert judge_sees(seen, as_groups(case.expected or ())) == []


def _say_more(path: Path) -> None:
    item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "More."}]}
    line = {"timestamp": "2031-01-01T00:00:00.000Z", "type": "response_item", "payload": item}
    with path.open("ab") as file:
        file.write(json.dumps(line).encode() + b"\n")


def test_a_second_session_is_resumed_beside_the_first(tmp_path: Path, folder: Path) -> None:
    need_agent("opencode")
    case = own_case("opencode", "tools")
    home = case.copy_home(tmp_path / "home")
    rows = rows_of(home, str(case.session_id))
    with open_context(home, folder) as ctx:
        made = convert(ctx, f"opencode:{case.session_id}", to="opencode", new=True)
    assert made.report.mode == "rebased"
    assert rows_of(home, str(case.session_id)) == rows
    seen = opencode.resume(home, folder, made.to.session_id)
    assert judge_sees(seen, as_groups(case.expected or ())) == []


def test_a_session_that_was_deleted_comes_back_and_goes_on(tmp_path: Path, folder: Path) -> None:
    from clew.verbs.keep import keep
    from clew.verbs.restore import restore

    need_agent("opencode")
    case = own_case("opencode", "tools")
    home, id_ = case.copy_home(tmp_path / "home"), str(case.session_id)
    rows = rows_of(home, id_)
    with open_context(home, folder) as ctx:
        list(keep(ctx, [f"opencode:{id_}"]))
        with FakeModel() as model, opencode.Server(home, folder, model) as server:
            assert server.call("DELETE", f"/session/{id_}") is True
        assert rows_of(home, id_) == []
        restore(ctx, f"opencode:{id_}")
    assert rows_of(home, id_)[1:] == rows[1:]
    seen = opencode.resume(home, folder, id_)
    assert judge_sees(seen, as_groups(case.expected or ())) == []


def test_what_is_put_behind_a_reverted_session_stays(tmp_path: Path, folder: Path) -> None:
    need_agent("opencode")
    case = own_case("opencode", "reverted")
    home, id_ = case.copy_home(tmp_path / "home"), str(case.session_id)
    with open_context(home, folder) as ctx:
        away = convert(ctx, f"opencode:{id_}", to="codex")
        _say_more(Path(away.to.path))
        convert(ctx, f"codex:{away.to.session_id}", to="opencode")
        said = groups_of(ctx, f"opencode:{id_}")
    assert said[-1]["text"] == "More."
    seen = opencode.resume(home, folder, id_, "Go on.", [say("On it goes.")])
    assert judge_sees(seen, said) == []
    with open_context(home, folder) as ctx:
        texts = [group["text"] for group in groups_of(ctx, f"opencode:{id_}")]
    assert texts[-3:] == ["More.", "Go on.", "On it goes."]
    assert "The minotaur." not in texts


def test_what_the_agent_sends_after_a_compaction_is_what_is_read(tmp_path: Path, folder: Path) -> None:
    need_agent("opencode")
    case = own_case("opencode", "compacted")
    home = case.copy_home(tmp_path / "home")
    seen = opencode.resume(home, folder, str(case.session_id))
    with open_context(home, folder) as ctx:
        said = groups_of(ctx, f"opencode:{case.session_id}")
    assert judge_messages(seen.history, said[: len(said) - 2]) == []
