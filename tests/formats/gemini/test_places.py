"""Where Gemini CLI's sessions lie, how they are gone on with and made another, and the shared collections."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from clew.conversation.builder import make_assistant, make_call, make_result, make_user
from clew.conversation.model import Image, Message
from clew.conversation.source import Session
from clew.errors import UnreadableSource, UnwritableContent
from clew.formats.gemini import FORMAT
from clew.formats.gemini.locate import LOCATE, surroundings
from clew.formats.gemini.records import DROPPED, project_hash
from clew.formats.protocol import Found, Home, WriteOptions
from clew.laws.stored import group_keys, make_id, store_written, write_options
from clew.verbs.show import show_groups
from clew_corpus import Case, fault_cases, own_cases, public_sessions, shared_cases, shared_dir
from gemini_samples import CONTEXT, ID, PATH, call, change, header, lines, read_data, reply, said, user

SESSION = lines(header(), user("u", "one"), reply("g", "1"))
STUB = lines(header(), change(messages=[user("c", CONTEXT)]))


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def put(home: Home, path: str, data: bytes | str = b"") -> Path:
    found = home.root / ".gemini" / path
    found.parent.mkdir(parents=True, exist_ok=True)
    found.write_bytes(data if isinstance(data, bytes) else data.encode())
    return found


def found(home: Home) -> list[tuple[str, str, str]]:
    return [(one.path.name, one.id, one.kind) for one in LOCATE.find(home)]


# --- finding ------------------------------------------------------------------------------------------------------


def test_the_id_is_the_heads_and_the_folder_the_lists(home: Home) -> None:
    put(home, "projects.json", json.dumps({"projects": {"/home/dev1/shop": "shop"}}))
    put(home, PATH, SESSION)
    put(home, "tmp/other/.project_root", "/srv/other\n")
    put(home, "tmp/other/chats/session-x.json", json.dumps(header(sessionId="old") | {"messages": []}, indent=2))
    put(home, f"tmp/{project_hash('/home/dev1/shop')}/chats/session-y.jsonl", lines(header(sessionId="older")))
    put(home, "tmp/shop/chats/notes.jsonl", SESSION)
    one = {f.id: f.cwd_hint for f in LOCATE.find(home)}
    assert one == {ID: "/home/dev1/shop", "old": "/srv/other", "older": "/home/dev1/shop"}


def test_of_several_files_of_one_id_the_newest_that_says_something_is_the_session(home: Home) -> None:
    old = put(home, "tmp/a/chats/session-1.jsonl", SESSION)
    new = put(home, "tmp/a/chats/session-2.jsonl", SESSION + lines(user("v", "two")))
    stub = put(home, "tmp/a/chats/session-3.jsonl", STUB)
    for number, path in enumerate((old, new, stub)):
        os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))
    assert found(home) == [("session-2.jsonl", ID, "session"), ("session-1.jsonl", ID, "archived")]


def test_a_stub_alone_is_a_session_and_a_document_is_the_older_state_of_its_lines(home: Home) -> None:
    put(home, "tmp/a/chats/session-1.jsonl", STUB)
    put(home, "tmp/b/chats/session-1.json", json.dumps(header() | {"messages": []}))
    put(home, "tmp/b/chats/session-1.jsonl", SESSION)
    assert found(home) == [("session-1.jsonl", ID, "session")] * 2


def test_helpers_are_found_and_are_side_files_of_their_parent(home: Home) -> None:
    put(home, PATH, SESSION)
    put(home, f"tmp/shop/chats/{ID}/helper.jsonl", lines(header(sessionId="helper", kind="subagent")))
    put(home, f"tmp/shop/tool-outputs/session-{ID}/long.txt", "long")
    kinds = {one.id: one for one in LOCATE.find(home)}
    assert [(f.id, f.kind) for f in kinds.values()] == [("helper", "helper"), (ID, "session")]
    source = LOCATE.load(kinds[ID], home)
    assert sorted(file.path for file in source.side) == [
        f"tmp/shop/chats/{ID}/helper.jsonl",
        f"tmp/shop/tool-outputs/session-{ID}/long.txt",
    ]
    session = FORMAT.read(source)
    assert [(r.relation, r.session_id) for r in session.references] == [("helper", "helper")]
    helper = FORMAT.read(LOCATE.load(kinds["helper"], home))
    assert [(r.relation, r.session_id) for r in helper.references] == [("helper_of", ID)]


def test_links_and_odd_entries_are_reported_and_hide_nothing(home: Home, tmp_path: Path) -> None:
    real = put(home, PATH, SESSION)
    (real.parent / "session-link.jsonl").symlink_to(real)
    (real.parent / "session-folder.jsonl").mkdir()
    (home.root / ".gemini/tmp/linked").symlink_to(real.parent.parent)
    rows = {one.path.name: one.problem for one in LOCATE.find(home)}
    assert rows.pop(real.name) == ""
    assert len(rows) == 3
    assert all(rows.values())
    with pytest.raises(UnreadableSource):
        LOCATE.load(Found("gemini", "x", real.parent / "session-link.jsonl"), home)


def test_hostile_ids_build_no_path(home: Home) -> None:
    for number, name in enumerate(("../../../outside", "/etc", "..", ".", "a/b", "\0", "n" * 5000)):
        put(home, f"tmp/a/chats/session-{number}.jsonl", lines(header(sessionId=name), user("u", "x")))
    rows = list(LOCATE.find(home))
    assert len(rows) == 7
    for one in rows:
        assert LOCATE.load(one, home).side == ()
        assert FORMAT.read(LOCATE.load(one, home)).messages


def test_the_agents_own_variable_and_settings(home: Home, tmp_path: Path) -> None:
    other = Home(tmp_path, {"GEMINI_CLI_HOME": str(tmp_path / "elsewhere")})
    assert LOCATE.base(other) == tmp_path / "elsewhere" / ".gemini"
    put(home, "settings.json", json.dumps({"model": {"name": "m-1"}}))
    assert (LOCATE.settings(home).model, LOCATE.settings(home).provider) == ("m-1", "google")
    put(home, "settings.json", "no json")
    assert LOCATE.settings(home).model == ""


def test_files_of_the_agent_are_claimed_and_others_are_not() -> None:
    assert LOCATE.claims(Path("x.jsonl"), SESSION)
    assert LOCATE.claims(Path("x.json"), json.dumps(header() | {"messages": []}, indent=2).encode())
    assert not LOCATE.claims(Path("x.jsonl"), b'{"type":"user","sessionId":"x"}')


# --- where a new session goes -------------------------------------------------------------------------------------


def options(cwd: str, home: Home) -> WriteOptions:
    return msgspec.structs.replace(write_options(), cwd=cwd, facts=surroundings(home, cwd))


def test_a_folder_that_the_agent_knows_keeps_its_slug(home: Home) -> None:
    put(home, "projects.json", json.dumps({"projects": {"/srv/My Shop": "shop-7"}}))
    written = FORMAT.write((make_user("x"),), options("/srv/My Shop", home))  # type: ignore[misc]
    assert [file.path.split("/")[:3] for file in written.files] == [["tmp", "shop-7", "chats"]]


def test_an_unknown_folder_gets_a_slug_that_is_nobodys_and_says_whose_it_is(home: Home) -> None:
    put(home, "projects.json", json.dumps({"projects": {"/a/my-shop": "my-shop"}}))
    put(home, "history/my-shop-1/.project_root", "/b/my-shop")
    written = FORMAT.write((make_user("x"),), options("/srv/My Shop", home))  # type: ignore[misc]
    assert [file.path for file in written.files][1:] == ["tmp/my-shop-2/.project_root"]
    assert b"".join(map(bytes, written.files[1].chunks())) == b"/srv/My Shop"
    assert written.files[1].role == "index"


def test_a_mark_that_names_the_folder_is_followed(home: Home) -> None:
    put(home, "tmp/odd-name/.project_root", "/srv/shop")
    assert surroundings(home, "/srv/shop") == {"slug": "odd-name"}


def test_the_name_is_no_stubs(home: Home) -> None:
    """A resume makes `session-<minute>-<id8>.jsonl`: ours has the second in it."""
    written = FORMAT.write((make_user("x", time_ms=1_760_000_000_000),), write_options())  # type: ignore[misc]
    assert written.files[0].path.endswith(f"session-2025-10-09T08-53-20-{make_id('one')[:8]}.jsonl")


# --- what the agent takes -----------------------------------------------------------------------------------------


def test_the_model_gets_every_text_that_the_agent_would_drop() -> None:
    texts = ["/x", "?x", " \n/x", "<session_context>x", "<hook_context>x</hook_context>", " ", "\ufeff/x", "\u200b"]
    messages = tuple(make_user(text) for text in texts)
    stored = store_written(FORMAT, FORMAT.write(messages, write_options()))  # type: ignore[misc]
    rows = [json.loads(line) for line in stored.data.splitlines()[1:]]
    for row, text in zip(rows, texts, strict=True):
        assert [part["text"] for part in row["content"]] == ["\u200b", text]
        assert not "".join(part["text"] for part in row["content"]).strip().startswith(DROPPED)
    assert [message.text for message in stored.read().messages] == texts


def test_calls_and_results_stand_once_and_in_the_agents_own_shape() -> None:
    messages = (
        make_user("go"),
        make_assistant("a", make_call("x", "n", '{"k":1}'), make_call("y", "m"), model="m-1"),
        make_result("y", "ry", is_error=True),
        make_result("x", "rx", Image("image/png", "aGk=")),
    )
    stored = store_written(FORMAT, FORMAT.write(messages, write_options()))  # type: ignore[misc]
    _, _, said_row, results = (json.loads(line) for line in stored.data.splitlines())
    assert said_row["content"] == [
        {"text": "a"},
        {"functionCall": {"id": "x", "name": "n", "args": {"k": 1}}},
        {"functionCall": {"id": "y", "name": "m", "args": {}}},
    ]
    assert "toolCalls" not in said_row
    assert results["content"] == [
        {"functionResponse": {"id": "y", "name": "m", "response": {"error": "ry"}}},
        {"functionResponse": {"id": "x", "name": "n", "response": {"output": "rx"}}},
        {"inlineData": {"mimeType": "image/png", "data": "aGk="}},
    ]


# --- going on, and another id -------------------------------------------------------------------------------------


def test_behind_native_records_open_calls_are_answered_and_the_time_is_moved() -> None:
    data = lines(header(), user("u", "go"), reply("g", "now", toolCalls=[call("a"), call("b", "rb")]))
    prefix = read_data(data[:-1])
    written = FORMAT.splice(prefix, (make_user("on"),), write_options(path=PATH))  # type: ignore[misc]
    whole = store_written(FORMAT, written)
    assert whole.data.startswith(data)
    assert written.invented == 1
    answer, _, last = (json.loads(line) for line in whole.data[len(data) :].splitlines())
    assert answer["content"][0]["functionResponse"]["id"] == "a"
    assert set(last["$set"]) == {"lastUpdated"}
    session = read_data(whole.data)
    assert said(session) == [*said(prefix), ("user", "on")]
    assert not session.damage


def test_in_a_document_new_messages_stand_before_its_tail() -> None:
    path = PATH.removesuffix("l")
    data = json.dumps(header() | {"messages": [user("u", "one")], "more": [1]}, indent=2).encode()
    added: Sequence[Message] = (make_assistant("1", make_call("x", "n")), make_result("x", "r"), make_user("two"))
    for prefix in (data, json.dumps(header() | {"messages": []}).encode()):
        before = read_data(prefix, path)
        written = FORMAT.splice(before, added, write_options(path=path))  # type: ignore[misc]
        whole = store_written(FORMAT, written)
        assert json.loads(whole.data)["sessionId"] == ID
        assert said(read_data(whole.data, path)) == [*said(before), *((m.role, m.text) for m in added)]
        assert not read_data(whole.data, path).damage
    assert whole.path == path
    torn = read_data(data[: data.index(b'"one"')], path)
    with pytest.raises(UnwritableContent, match="cut off"):
        FORMAT.splice(torn, added, write_options(path=path))  # type: ignore[misc]


def test_another_id_changes_nothing_else() -> None:
    args = {"sessionId": ID, "said": f'"sessionId":"{ID}"'}
    data = lines(
        header(), user("u", f'"sessionId":"{ID}"'), reply("g", "", toolCalls=[call("a", "r", **args)])
    ) + lines(change(sessionId=ID, messages=[reply("g", "", toolCalls=[call("a", "r", **args)])]))
    other = make_id("other")
    written = FORMAT.rebase(read_data(data), write_options(other))  # type: ignore[misc]
    again = store_written(FORMAT, written)
    assert again.data.count(other.encode()) == 2
    assert again.data.replace(other.encode(), ID.encode()) == data
    assert read_data(again.data, again.path).id == other
    document = json.dumps({"messages": [{"sessionId": ID} | user("u", "x")]} | header(), indent=1).encode()
    again = store_written(FORMAT, FORMAT.rebase(read_data(document, "x/y.json"), write_options(other)))  # type: ignore[misc]
    assert again.path.endswith(".json")
    assert again.data.count(other.encode()) == 1
    assert json.loads(again.data)["sessionId"] == other


# --- the shared collections ---------------------------------------------------------------------------------------


def read_case(case: Case) -> Session:
    home = Home(case.home)
    one = next(f for f in LOCATE.find(home) if f.id == case.session_id and f.kind == "session")
    return FORMAT.read(LOCATE.load(one, home))


def plain(groups: Any) -> list[Any]:
    return [
        (
            g["role"],
            g["text"],
            [(c["name"], c["arguments"]) for c in g["tool_calls"]],
            [r["text"] for r in g["tool_results"]],
        )
        for g in groups
    ]


def shown(session: Session) -> list[Any]:
    return [
        (
            group.role,
            group.text,
            [(call.name, json.loads(call.arguments)) for call in group.tool_calls],
            [result.text for result in group.tool_results],
        )
        for group in show_groups(session.messages)
    ]


@pytest.mark.parametrize("case", shared_cases("gemini"), ids=str)
def test_recorded_sessions_say_what_was_said(case: Case) -> None:
    session = read_case(case)
    assert session.cwd == case.cwd
    assert not session.damage
    expected = plain(case.expected or ())
    if case.name == "unicode":  # the agent trims and strips what the model says before it records it
        expected = [
            e if e[0] == "user" else (e[0], g[1], e[2], e[3]) for e, g in zip(expected, shown(session), strict=True)
        ]
    if case.name == "interrupted-tool":  # calls that run when the agent is killed are not in its file
        expected[-1] = (*expected[-1][:2], [], [])
    assert shown(session) == expected


@pytest.mark.skipif(shared_dir() is None, reason="the shared collections are not here")
def test_the_case_of_a_document_that_became_lines() -> None:
    case = next(case for case in fault_cases("gemini") if case.name.startswith("24-"))
    rows = list(LOCATE.find(Home(case.home)))
    assert [(row.path.suffix, row.kind, row.cwd_hint) for row in rows] == [
        (".jsonl", "session", "/home/dev1/work/shop")
    ]
    source = LOCATE.load(rows[0], Home(case.home))
    session = FORMAT.read(source)
    expected = case.data["expected"]["messages"]
    assert [m.text for m in session.messages if m.role != "tool"] == [
        m["text"] for m in expected if m["role"] != "tool"
    ]
    assert [m.text for b in session.branches for m in b.messages] == ["Wrong turn", "Sorry"]
    assert session.title == "Reading files"
    older = rows[0].path.with_suffix(".json").read_bytes()
    first = read_data(older, "x/session.json")
    assert group_keys(session.messages)[: len(group_keys(first.messages))] == group_keys(first.messages)


@pytest.mark.skipif(shared_dir() is None, reason="the shared collections are not here")
def test_public_documents_are_read_whole() -> None:
    count = 0
    for case in public_sessions():
        data = case.paths[0].read_bytes()
        if not LOCATE.claims(case.paths[0], data[: 1 << 16]):
            continue
        count += 1
        session = read_data(data, case.paths[0].name)
        assert not session.damage
        calls = sum(len(m.calls) for m in session.messages)
        assert calls == sum(m.role == "tool" for m in session.messages)
        assert data.count(b'"type": "user"') == sum(m.role == "user" for m in session.messages)
        assert b"".join(bytes(session.records[n]) for n in range(len(session.records))) == data
    assert count == 3


@pytest.mark.parametrize("case", own_cases("gemini"), ids=str)
def test_our_own_recordings_say_what_was_said(case: Case) -> None:
    session = read_case(case)
    assert not session.damage
    assert session.cwd == case.cwd
    groups = show_groups(session.messages)
    if case.name != "unicode":  # there the agent trims and strips what the model says before it records it
        assert [(g.role, g.text) for g in groups] == [(g["role"], g["text"]) for g in case.expected or ()]
    results = [r.text for g in groups for r in g.tool_results]
    assert results == [r["text"] for g in case.expected or () for r in g["tool_results"]]
    assert sum(len(m.images) for m in session.messages) == sum(len(g["images"]) for g in case.expected or ())
