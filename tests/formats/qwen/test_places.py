"""Where Qwen Code's sessions lie, who holds one, how they are gone on with and made another; the shared collection."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path
from typing import Any

import pytest

from clew.conversation.builder import make_assistant, make_call, make_result, make_user
from clew.conversation.model import Image
from clew.errors import UnreadableSource
from clew.formats.protocol import Found, Home
from clew.formats.qwen import FORMAT
from clew.formats.qwen.locate import LOCATE
from clew.formats.qwen.resume import RESUME
from clew.formats.qwen.writer import folder_name
from clew.laws.stored import make_id, store_written, write_options
from clew.platform.process import identify_self
from clew.verbs.show import show_groups
from clew_corpus import Case, own_cases, shared_cases
from qwen_samples import CWD, ID, PATH, Native, call, read_data, said


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def put(home: Home, path: str, data: bytes = b"") -> Path:
    found = home.root / ".qwen" / path
    found.parent.mkdir(parents=True, exist_ok=True)
    found.write_bytes(data)
    return found


def session(session_id: str = ID) -> bytes:
    n = Native(session_id)
    n.user("one")
    n.reply("1")
    return n.data()


@pytest.mark.parametrize(
    ("cwd", "name"), [("/a/b.c_d", "-a-b-c-d"), ("/home/dev1/日🚀", "-home-dev1----"), ("C:\\work", "C--work")]
)
def test_folder_names(cwd: str, name: str) -> None:
    assert folder_name(cwd) == name


def test_sessions_archived_ones_and_helpers_are_found(home: Home) -> None:
    other = ID.replace("7", "8")
    put(home, PATH, session())
    put(home, f"projects/-home-dev1-shop/chats/archive/{other}.jsonl", session(other))
    put(home, f"projects/-home-dev1-shop/subagents/{ID}/agent-x-1.jsonl", session())
    put(home, f"projects/-home-dev1-shop/subagents/{ID}/agent-x-1.meta.json", b"{}")
    put(home, "projects/-home-dev1-shop/chats/notes.jsonl", session())
    put(home, f"projects/-home-dev1-shop/chats/{ID}.runtime.json", b"{}")
    rows = {(one.id, one.kind): one for one in LOCATE.find(home)}
    assert set(rows) == {(ID, "session"), (other, "archived"), ("agent-x-1", "helper")}
    source = LOCATE.load(rows[ID, "session"], home)
    assert [Path(file.path).name for file in source.side] == ["agent-x-1.jsonl", "agent-x-1.meta.json"]
    assert FORMAT.read(source).id == ID
    assert LOCATE.load(rows["agent-x-1", "helper"], home).side == ()


def test_links_are_reported_and_hide_nothing(home: Home) -> None:
    real = put(home, PATH, session())
    linked = real.with_name(f"{ID.replace('7', '9')}.jsonl")
    linked.symlink_to(real)
    (home.root / ".qwen/projects/-linked").symlink_to(real.parents[1])
    rows = {one.path.name: one.problem for one in LOCATE.find(home)}
    assert rows == {real.name: "", linked.name: rows[linked.name], "-linked": rows["-linked"]}
    assert rows[linked.name]
    assert rows["-linked"]
    with pytest.raises(UnreadableSource):
        LOCATE.load(Found("qwen", "x", linked), home)


def test_the_agents_own_variables_and_settings(home: Home, tmp_path: Path) -> None:
    assert LOCATE.base(Home(tmp_path, {"QWEN_HOME": "/q"})) == Path("/q")
    assert LOCATE.base(Home(tmp_path, {"QWEN_HOME": "/q", "QWEN_RUNTIME_DIR": "/r"})) == Path("/r")
    put(home, "settings.json", b'{"security":{"auth":{"selectedType":"openai"}},"model":{"name":"m-1"}}')
    assert (LOCATE.settings(home).provider, LOCATE.settings(home).model) == ("openai", "m-1")
    put(home, "settings.json", b"[]")
    assert LOCATE.settings(home).provider == ""


def test_files_of_the_agent_are_claimed_and_others_are_not() -> None:
    assert LOCATE.claims(Path("x"), session())
    assert not LOCATE.claims(Path("x"), b'{"uuid":"a","parentUuid":null,"sessionId":"b","type":"user","message":{}}')
    assert not LOCATE.claims(Path("x"), b"no json\n")


def test_who_holds_a_session_is_told_by_its_runtime_file(home: Home) -> None:
    found = Found("qwen", ID, put(home, PATH, session()))
    sign: dict[str, Any] = {"schema_version": 1, "pid": os.getpid(), "session_id": ID, "hostname": socket.gethostname()}
    path = f"projects/-home-dev1-shop/chats/{ID}.runtime.json"
    assert RESUME.owner(found, home) is None
    put(home, path, json.dumps(sign).encode())
    owner = RESUME.owner(found, home)
    assert owner is not None
    assert (owner.pid, owner.start_ticks) == (os.getpid(), identify_self().start_ticks)
    assert RESUME.owners(home) == {ID: owner}
    for change in ({"hostname": "elsewhere"}, {"pid": "1"}, {"pid": 2**22 + 1}, {"session_id": 5}):
        put(home, path, json.dumps(sign | change).encode())
        assert RESUME.owner(found, home) is None
    put(home, path, b"{")
    assert RESUME.owners(home) == {}


def test_command_lines() -> None:
    assert RESUME.argv(ID, model="m", extra=("-p", "x")) == ("qwen", "--resume", ID, "-m", "m", "-p", "x")
    assert RESUME.fork_argv(ID) == ("qwen", "--resume", ID, "--fork-session")


def test_an_id_is_of_a_version_that_the_agent_knows() -> None:
    assert FORMAT.make_id is not None
    assert FORMAT.make_id("d33fb48a-b5ad-8f26-9ae1-72b29a6913ff") == "d33fb48a-b5ad-5f26-9ae1-72b29a6913ff"


# --- writing ------------------------------------------------------------------------------------------------------


def test_every_record_is_what_the_agent_needs() -> None:
    messages = (
        make_user("<system-reminder>mine</system-reminder>"),
        make_assistant("a", make_call("x", "n", "free"), make_call("y", "m"), model="m-1"),
        make_result("y", "ry", Image("image/png", "aGk="), is_error=True),
        make_user("on"),
    )
    stored = store_written(FORMAT, FORMAT.write(messages, write_options(make_id("s"))))  # type: ignore[misc]
    rows = [json.loads(line) for line in stored.data.splitlines()]
    parent = None
    for row in rows:
        assert (row["parentUuid"], row["sessionId"], row["cwd"]) == (parent, make_id("s"), "/home/dev/project")
        parent = row["uuid"]
    assert [row["type"] for row in rows] == ["user", "assistant", "tool_result", "tool_result", "user"]
    assert next(part["text"] for part in rows[0]["message"]["parts"]) == "\u200b"
    response = rows[2]["message"]["parts"][0]["functionResponse"]
    assert response["response"] == {"error": "ry"}
    assert response["parts"] == [{"inlineData": {"mimeType": "image/png", "data": "aGk="}}]
    assert rows[3]["clew"] == {"calls": {"x": {"invented": True}}}
    assert stored.path == f"projects/-home-dev-project/chats/{make_id('s')}.jsonl"


def test_behind_native_records_the_chain_goes_on_in_their_dialect() -> None:
    n = Native()
    n.user("go")
    n.reply(call("a"), call("b"))
    n.result("b", "rb")
    n.records[-1]["version"] = "0.20.0"
    data = n.data()
    prefix = read_data(data[:-1])
    written = FORMAT.splice(prefix, (make_assistant("x"), make_user("on")), write_options(path=PATH))  # type: ignore[misc]
    whole = store_written(FORMAT, written)
    assert whole.data.startswith(data)
    assert written.invented == 1
    rows = [json.loads(line) for line in whole.data[len(data) :].splitlines()]
    assert rows[0]["message"]["parts"][0]["functionResponse"]["id"] == "a"
    assert {(row["sessionId"], row["cwd"], row["version"]) for row in rows} == {(ID, CWD, "0.20.0")}
    assert rows[0]["parentUuid"] == n.records[-1]["uuid"]
    session = read_data(whole.data)
    assert said(session) == [*said(prefix), ("assistant", "x"), ("user", "on")]
    assert not session.damage


def test_another_id_changes_nothing_else() -> None:
    n = Native()
    n.user(f'"sessionId":"{ID}"')
    n.reply(call("a", sessionId=ID))
    n.system("ui_telemetry", {"sessionId": ID})
    other = make_id("other")
    again = store_written(FORMAT, FORMAT.rebase(n.read(), write_options(other)))  # type: ignore[misc]
    assert again.data.count(other.encode()) == 3
    assert again.data.replace(other.encode(), ID.encode()) == n.data()
    assert again.path == PATH.replace(ID, other)


# --- the shared collection ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", [c for c in shared_cases("qwen") if c.name != "compacted"], ids=str)
def test_recorded_sessions_say_what_was_said(case: Case) -> None:
    home = Home(case.home)
    one = next(f for f in LOCATE.find(home) if f.id == case.session_id)
    session = FORMAT.read(LOCATE.load(one, home))
    assert session.cwd == case.cwd
    assert not session.damage
    got = [
        (
            g.role,
            g.text.partition("\n--- Content from referenced files ---")[0],  # what the agent added to the prompt
            [(c.name, json.loads(c.arguments)) for c in g.tool_calls],
            [r.text for r in g.tool_results],
        )
        for g in show_groups(tuple(m for m in session.messages if m.kind != "notice"))
    ]
    expected = [
        (
            g["role"],
            g["text"],
            [(c["name"], c["arguments"]) for c in g["tool_calls"]],
            [r["text"] for r in g["tool_results"]],
        )
        for g in case.expected or ()
    ]
    assert got == expected


@pytest.mark.parametrize("case", [c for c in shared_cases("qwen") if c.name == "compacted"], ids=str)
def test_a_recorded_compaction(case: Case) -> None:
    home = Home(case.home)
    session = FORMAT.read(LOCATE.load(next(LOCATE.find(home)), home))
    assert session.messages[0].kind == "summary"
    assert [m.text for m in session.messages[-2:]] == ["After compaction: which numbers?", "0, 7, 14 and 21."]
    said_before = [m.text for m in session.history[: session.boundaries[0].at]]
    assert said_before == [m["text"] for m in (case.expected or ())][: len(said_before)]


@pytest.mark.parametrize("case", own_cases("qwen"), ids=str)
def test_our_own_recordings_say_what_was_said(case: Case) -> None:
    home = Home(case.home)
    session = FORMAT.read(LOCATE.load(next(f for f in LOCATE.find(home) if f.id == case.session_id), home))
    assert not session.damage
    assert [(g.role, g.text) for g in show_groups(session.messages)] == [
        (g["role"], g["text"]) for g in case.expected or ()
    ]
    results = [r.text for g in show_groups(session.messages) for r in g.tool_results]
    assert results == [r["text"] for g in case.expected or () for r in g["tool_results"]]
    assert sum(len(m.images) for m in session.messages) == sum(len(g["images"]) for g in case.expected or ())
