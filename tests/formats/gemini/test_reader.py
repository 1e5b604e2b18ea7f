"""What Gemini CLI's records say: replaced, taken back, written again at each resume, compacted; and documents."""

from __future__ import annotations

import json

import pytest

from clew.conversation.model import Image, Message, Reasoning, Text
from gemini_samples import (
    CONTEXT,
    ID,
    call,
    change,
    header,
    lines,
    read_data,
    read_records,
    reply,
    response,
    said,
    user,
)


def kinds(session_messages: tuple[Message, ...]) -> list[tuple[str, str, str]]:
    return [(m.role, m.origin, m.kind) for m in session_messages]


def test_the_header_and_the_records_say_what_the_session_is() -> None:
    session = read_data(
        lines(
            header(),
            change(messages=[user("c", CONTEXT)]),
            user("u1", "hi"),
            reply("g1", "hello", model="m-1", tokens={"input": 1}),
            change(summary="Greeting"),
        )
    )
    assert (session.id, session.title, session.model, session.provider) == (ID, "Greeting", "m-1", "google")
    assert session.cwd == "/home/dev1/shop"
    assert said(session) == [("user", "hi"), ("assistant", "hello")]
    assert session.created_by == (2, 3)
    assert (session.created_ms, session.updated_ms) == (1789030860000, 1789030920000)
    assert not session.damage


def test_the_folder_that_the_place_names_goes_before_the_context_and_recorded_folders_before_both() -> None:
    context = user("c", CONTEXT)
    assert read_data(lines(header(), context, user("u", "x")), hint_cwd="/a").cwd == "/a"
    assert read_data(lines(header(directories=["/b"]), context, user("u", "x")), hint_cwd="/a").cwd == "/b"


def test_an_id_that_comes_again_replaces_the_message_in_its_place() -> None:
    session = read_records(user("u1", "one"), reply("g1", "part"), user("u2", "two"), reply("g1", "whole"))
    assert said(session) == [("user", "one"), ("assistant", "whole"), ("user", "two")]
    assert session.created_by == (1, 2, 3)


def test_a_result_counts_once_however_often_it_is_stored() -> None:
    session = read_records(
        user("u1", "go"),
        reply("g1", "now"),
        reply("g1", "now", toolCalls=[call("a", "ra", path="x"), call("b", "rb", error=True)]),
        user("u2", response("a", "ra"), response("b", "rb", error=True)),
        reply("g2", "done"),
    )
    assert said(session) == [
        ("user", "go"),
        ("assistant", "now"),
        ("tool", "ra"),
        ("tool", "rb"),
        ("assistant", "done"),
    ]
    assert [m.is_error for m in session.messages if m.role == "tool"] == [False, True]
    assert session.created_by == (1, 2, 3, 3, 5)
    assert not session.damage


def test_a_resume_writes_all_messages_again_and_changes_nothing() -> None:
    tools = [call("a", "ra")]
    before = (
        user("u1", "go"),
        reply("g1", "now"),
        reply("g1", "now", toolCalls=tools),
        user("u2", response("a", "ra")),
        reply("g2", "done", thoughts=[{"subject": "S", "description": "d"}]),
    )
    parts = [{"text": "now"}, {"functionCall": {"id": "a", "name": "read_file", "args": {}}}]
    again = change(
        messages=[
            user("c", CONTEXT),
            user("u1", "go"),
            reply("g1", parts, toolCalls=tools),
            user("g1_response", response("a", "ra")),
            user("u2", response("a", "ra")),
            reply("g2", [{"text": "**S** d", "thought": True}, {"text": "done"}]),
        ]
    )
    first, session = read_records(*before), read_records(*before, again, user("u3", "more"))
    assert [(m.role, m.text, m.calls) for m in session.messages[:-1]] == [
        (m.role, m.text, m.calls) for m in first.messages
    ]
    assert session.created_by[:-1] == first.created_by
    assert session.history == session.messages
    assert not session.boundaries
    assert not session.damage


def test_parallel_results_that_a_resume_ran_together_stay_apart() -> None:
    both = [response("a", "ra"), response("b", "rb")]
    tools = [call("a") | {"result": both}, call("b") | {"result": both}]
    session = read_records(user("u", "go"), reply("g", "", toolCalls=tools), user("r", *both))
    assert [m.text for m in session.messages if m.role == "tool"] == ["ra", "rb"]
    assert not session.damage


def test_pictures_of_a_result_belong_to_it() -> None:
    picture = {"inlineData": {"mimeType": "image/png", "data": "aGk="}}
    nested = {"functionResponse": {"id": "b", "name": "x", "response": {"output": "r"}, "parts": [picture]}}
    tools = [call("a") | {"result": [response("a", "seen"), picture]}, call("b")]
    session = read_records(user("u", "look"), reply("g", "", toolCalls=tools), user("r", nested))
    images = [m.images for m in session.messages if m.role == "tool"]
    assert images == [(Image("image/png", "aGk="),), (Image("image/png", "aGk="),)]


@pytest.mark.parametrize(
    ("result", "text"),
    [
        ("plain", "plain"),
        ([{"functionResponse": {"id": "a", "name": "n", "response": {"output": {"x": 1}}}}], '{"output": {"x": 1}}'),
        ([{"functionResponse": {"id": "a", "name": "n", "response": {"content": []}}}], '{"content": []}'),
        ([{"functionResponse": {"name": "n", "response": {"output": "no id"}}}], "no id"),
    ],
)
def test_results_of_other_shapes_are_their_own_spelling(result: object, text: str) -> None:
    session = read_records(user("u", "x"), reply("g", "", toolCalls=[call("a") | {"result": result}]))
    assert session.messages[-1].text == text


def test_a_step_back_takes_messages_off_and_keeps_them_as_a_branch() -> None:
    session = read_records(
        user("u1", "one"),
        reply("g1", "1"),
        user("u2", "wrong"),
        reply("g2", "2"),
        {"$rewindTo": "u2"},
        user("u3", "on"),
    )
    assert said(session) == [("user", "one"), ("assistant", "1"), ("user", "on")]
    assert session.created_by == (1, 2, 6)
    (branch,) = session.branches
    assert (branch.at, [m.text for m in branch.messages]) == (2, ["wrong", "2"])


def test_a_step_back_to_nowhere_takes_everything_off_as_in_the_agent() -> None:
    session = read_records(user("u1", "one"), {"$rewindTo": "unknown"}, user("u2", "two"))
    assert said(session) == [("user", "two")]
    assert [m.text for b in session.branches for m in b.messages] == ["one"]


def test_a_compaction_leaves_the_history() -> None:
    snapshot = "<state_snapshot>\n<x/>\n</state_snapshot>"
    summary, ack = user("s", snapshot), reply("k", "Got it. Thanks for the additional context!")
    session = read_records(
        user("u1", "one"),
        reply("g1", "1"),
        user("u2", "two"),
        reply("g2", "2"),
        summary,
        ack,
        change(messages=[summary, ack, user("u2", "two"), reply("g2", "2")]),
        user("u3", "three"),
    )
    assert [m.text for m in session.messages] == [snapshot, ack["content"], "two", "2", "three"]
    assert kinds(session.messages)[0] == ("user", "agent", "summary")
    assert session.created_by == (7, 7, 7, 7, 8)
    assert [m.text for m in session.history][:4] == ["one", "1", "two", "2"]
    assert [boundary.at for boundary in session.boundaries] == [2]


def test_what_the_agent_says_in_the_users_place_is_told_apart() -> None:
    session = read_records(
        user("c", CONTEXT),
        user("h", "<hook_context>made anew</hook_context>"),
        user("a", "typed", "<hook_context>added</hook_context>"),
        user("b", "System: Please continue."),
        user("d", "System: Potential loop detected. Details: x. And so on."),
        user("e", "<session_context> is a tag of mine"),
        user("f", "/etc/hosts"),
        {"id": "i", "type": "info", "content": "not sent"},
    )
    assert [m.text for m in session.messages] == [
        "typed",
        "System: Please continue.",
        "System: Potential loop detected. Details: x. And so on.",
        "<session_context> is a tag of mine",
        "/etc/hosts",
    ]
    assert [m.origin for m in session.messages] == ["user", "agent", "agent", "user", "user"]


def test_thoughts_are_read_in_both_places() -> None:
    one = read_records(user("u", "x"), reply("g", "y", thoughts=[{"subject": "A", "description": "b"}]))
    other = read_records(user("u", "x"), reply("g", [{"text": "**A** b", "thought": True}, {"text": "y"}]))
    for session in (one, other):
        thought, text = session.messages[1].parts
        assert isinstance(thought, Reasoning)
        assert (thought.text, session.messages[1].text) == ("**A** b", "y")
        assert isinstance(text, Text)


def test_what_is_odd_is_reported() -> None:
    session = read_records(
        {"type": "user", "content": "no id"}, user("u", "x"), user("r", response("nobody", "r")), {"from": "the future"}
    )
    assert said(session) == [("user", "x")]
    assert [(d.record, d.sort) for d in session.damage] == [(1, "foreign record"), (3, "stray result")]
    headless = read_data(lines(user("u", "x")), hint_id="named")
    assert headless.id == "named"
    assert [(d.sort, d.lost) for d in headless.damage] == [("foreign record", False)]


def test_a_torn_tail_loses_only_itself() -> None:
    data = lines(header(), user("u", "x"), reply("g", "y"))
    session = read_data(data + b'{"id":"t","type":"us')
    assert said(session) == [("user", "x"), ("assistant", "y")]
    assert [d.sort for d in session.damage] == ["torn tail"]
    assert [d.sort for d in read_data(data + b'{"id":"t"', growing=True).damage] == ["still being written"]


def test_helpers_name_their_parent() -> None:
    path = "tmp/shop/chats/parent-id/helper-id.jsonl"
    session = read_data(lines(header(kind="subagent"), user("u", "x")), path)
    assert session.helper
    assert [(r.relation, r.session_id) for r in session.references] == [("helper_of", "parent-id")]


# --- documents ----------------------------------------------------------------------------------------------------


def document(*messages: object, **more: object) -> dict[str, object]:
    return header() | {"messages": list(messages)} | more


@pytest.mark.parametrize("indent", [None, 0, 2])
def test_a_document_says_the_same_as_lines(indent: int | None) -> None:
    messages = (user("u1", "one"), reply("g1", "1", toolCalls=[call("a", "ra")]), reply("g2", "2", model="m"))
    data = json.dumps(document(*messages, summary="T"), indent=indent).encode()
    session = read_data(data, "tmp/shop/chats/session-x.json")
    assert session.messages == read_records(*messages).messages
    assert (session.id, session.title, session.model) == (ID, "T", "m")
    assert b"".join(bytes(session.records[n]) for n in range(len(session.records))) == data
    assert session.created_by == (1, 2, 2, 3)
    assert not session.damage


def test_a_document_cut_off_keeps_its_whole_messages() -> None:
    data = json.dumps(document(user("u1", "one"), reply("g1", "1")), indent=2).encode()
    session = read_data(data[: data.index(b'"g1"')], "x/session-x.json")
    assert said(session) == [("user", "one")]
    assert [d.sort for d in session.damage] == ["torn tail"]
    assert session.damage[0].lost


def test_odd_elements_of_a_document_are_reported() -> None:
    data = json.dumps(document(5, user("u", "x"), None, "text", user("u", "again")), indent=1).encode()
    session = read_data(data, "x/session-x.json")
    assert said(session) == [("user", "x"), ("user", "again")]
    assert [(d.record, d.sort) for d in session.damage] == [(n, "foreign record") for n in (1, 3, 4)]


def test_lone_surrogates_and_bad_bytes_do_not_cost_a_message() -> None:
    data = json.dumps(document(user("u", "half \ud83d"), user("v", "X")), indent=1).encode().replace(b"X", b"\xff")
    session = read_data(data, "x/session-x.json")
    assert [m.text for m in session.messages] == ["half \ufffd", "\ufffd"]


# --- two recorders at one file ------------------------------------------------------------------------------------


def test_calls_that_one_message_collects_go_to_the_replies_that_made_them() -> None:
    """In ACP mode all calls of a turn are recorded in one message, again and again."""
    first, second, third = call("a", "ra"), call("b", "rb"), call("c", "rc")
    session = read_records(
        user("u1", "go"),
        reply("g1", "I look."),
        reply("t", "", toolCalls=[first]),
        user("u2", response("a", "ra")),
        reply("g2", "", thoughts=[]),
        reply("t", "", toolCalls=[first, call("b")]),
        reply("t", "", toolCalls=[first, second, call("c")]),
        reply("t", "", toolCalls=[first, second, third]),
        user("u3", response("b", "rb"), response("c", "rc")),
        reply("g3", "Done."),
    )
    calls = [[c.id for c in m.calls] for m in session.messages if m.role == "assistant"]
    assert calls == [["a"], ["b", "c"], []]
    assert [m.text for m in session.messages] == ["go", "I look.", "ra", "", "rb", "rc", "Done."]
    assert session.created_by == (1, 2, 3, 5, 8, 8, 10)
    assert not session.damage


def test_a_resume_of_such_a_session_leaves_empty_replies_out_and_no_call() -> None:
    tools = [call("a", "ra"), call("b", "rb")]
    before = (
        user("u1", "go"),
        reply("t", "", toolCalls=tools[:1]),
        user("u2", response("a", "ra")),
        reply("g2", ""),
        reply("t", "", toolCalls=tools),
        user("u3", response("b", "rb")),
        reply("g3", "Done."),
    )
    parts = [{"functionCall": {"id": name, "name": "read_file", "args": {}}} for name in "ab"]
    again = [
        user("u1", "go"),
        reply("t", parts, toolCalls=tools),
        user("t_response", response("a", "ra"), response("b", "rb")),
        user("u2", response("a", "ra")),
        user("u3", response("b", "rb")),
        reply("g3", [{"text": "Done."}]),
    ]
    first = read_records(*before)
    assert [[c.id for c in m.calls] for m in first.messages if m.role == "assistant"] == [["a"], ["b"], []]
    session = read_records(*before, change(messages=[*again[:4], reply("g2", " "), *again[4:]]))
    assert [m.calls for m in session.messages] == [m.calls for m in first.messages]
    left_out = read_records(*before, change(messages=again))
    assert [[c.id for c in m.calls] for m in left_out.messages if m.role == "assistant"] == [["a", "b"], []]
    assert [m.text for m in left_out.messages if m.role == "tool"] == ["ra", "rb"]
    assert not left_out.damage


def test_a_process_that_starts_in_the_same_minute_takes_nothing_away() -> None:
    context = change(messages=[user("c", CONTEXT)])
    before = (user("u1", "one"), reply("g1", "1"))
    session = read_records(context, *before, header(), context)
    assert said(session) == [("user", "one"), ("assistant", "1")]
    again = change(messages=[user("c", CONTEXT), user("u1", "one"), reply("g1", [{"text": "1"}])])
    session = read_records(context, *before, header(), context, again, user("u2", "two"))
    assert said(session) == [("user", "one"), ("assistant", "1"), ("user", "two")]
    assert session.history == session.messages
    assert session.created_by == (2, 3, 7)
