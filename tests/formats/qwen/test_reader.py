"""What Qwen Code's records say: a chain with branches, compactions, commands, fragments and damage."""

from __future__ import annotations

import json
from pathlib import PurePosixPath

from clew.conversation.model import Image, Reasoning
from clew.conversation.source import SideFile
from qwen_samples import CWD, ID, PATH, Native, call, read_data, said


def test_records_say_what_the_session_is() -> None:
    n = Native()
    n.user("hi")
    n.system("ui_telemetry", {"uiEvent": {"auth_type": "openai"}})
    n.reply({"text": "hm", "thought": True}, "hello")
    n.system("custom_title", {"customTitle": "Greeting", "titleSource": "manual"})
    session = n.read()
    assert (session.id, session.cwd, session.model, session.provider) == (ID, CWD, "m-1", "openai")
    assert (session.title, session.version) == ("Greeting", "0.24.4")
    assert said(session) == [("user", "hi"), ("assistant", "hello")]
    assert isinstance(session.messages[1].parts[0], Reasoning)
    assert session.created_by == (0, 2)
    assert session.history == session.messages
    assert not session.damage


def test_results_with_errors_pictures_and_other_shapes() -> None:
    n = Native()
    n.reply(call("a"), call("b"), call("c"))
    picture = {"inlineData": {"mimeType": "image/png", "data": "aGk="}}
    n.result("b", "no", error=True)
    n.result("a", "yes", parts=[picture])
    n.result("c", "", response={"x": 1})
    results = [m for m in n.read().messages if m.role == "tool"]
    assert [(m.call_id, m.text, m.is_error) for m in results] == [
        ("b", "no", True),
        ("a", "yes", False),
        ("c", '{"x": 1}', False),
    ]
    assert results[1].images == (Image("image/png", "aGk="),)


def test_the_last_record_is_the_leaf_and_the_rest_are_branches() -> None:
    n = Native()
    first = n.user("one")
    n.reply("dead end")
    n.user("dead question")
    n.reply("other way", parent=first)
    n.system("rewind", {})
    session = n.read()
    assert said(session) == [("user", "one"), ("assistant", "other way")]
    assert [(b.at, [m.text for m in b.messages]) for b in session.branches] == [(1, ["dead end", "dead question"])]


def test_records_of_the_agents_own_bookkeeping_are_no_leaf() -> None:
    n = Native()
    first = n.user("one")
    n.reply("1")
    n.system("session_artifact_event", {}, parent=first)
    assert said(n.read()) == [("user", "one"), ("assistant", "1")]


def test_a_compaction_takes_the_place_of_everything_before_it() -> None:
    n = Native()
    n.user("one")
    n.reply("1")
    kept = {"role": "user", "parts": [{"text": "kept"}]}
    summary = {"role": "user", "parts": [{"text": "the summary"}]}
    ack = {"role": "model", "parts": [{"text": "Got it."}]}
    n.system("chat_compression", {"info": {}, "compressedHistory": [summary, ack, kept]})
    n.user("two")
    session = n.read()
    assert [m.text for m in session.messages] == ["the summary", "Got it.", "kept", "two"]
    assert next((m.origin, m.kind) for m in session.messages) == ("agent", "summary")
    assert session.created_by == (2, 2, 2, 3)
    assert [m.text for m in session.history] == ["one", "1", "the summary", "two"]
    assert [b.at for b in session.boundaries] == [2]


def test_a_compaction_that_says_nothing_changes_nothing() -> None:
    n = Native()
    n.user("one")
    n.system("chat_compression", {"info": {}})
    assert said(n.read()) == [("user", "one")]


def test_a_command_that_the_agent_answered_itself_is_not_sent() -> None:
    payload = {"phase": "result", "rawCommand": "/stats", "outputHistoryItems": [{"type": "assistant"}]}
    n = Native()
    n.user("one")
    n.user("/stats")
    n.system("slash_command", payload)
    n.user("/stats")
    n.system("slash_command", payload | {"sentToModel": True})
    assert said(n.read()) == [("user", "one"), ("user", "/stats")]


def test_what_nobody_typed_is_the_agents() -> None:
    n = Native()
    n.user("<system-reminder>\nx\n</system-reminder>", "typed")
    n.user("<task-notification>x</task-notification>", subtype="notification", provenance="system")
    n.user("every hour", subtype="cron", provenance="system")
    n.user("in between", subtype="mid_turn_user_message")
    n.user("not sent", subtype="realtime_message")
    n.user("x", "<qwen:user-prompt-submit-context>\ny\n</qwen:user-prompt-submit-context>")
    n.user("<system-reminder> is a tag of mine")
    session = n.read()
    assert [(m.text[:10], m.origin, m.kind) for m in session.messages] == [
        ("typed", "user", ""),
        ("<task-noti", "agent", "notice"),
        ("every hour", "agent", "notice"),
        ("in between", "user", ""),
        ("x", "user", ""),
        ("<system-re", "user", ""),
    ]


def test_pieces_with_one_uuid_are_one_message_and_copies_are_none() -> None:
    n = Native()
    n.user("one")
    n.reply("a ", uuid="g", parent="r0")
    n.reply("b", uuid="g", parent="r0")
    n.records.append(dict(n.records[0]))
    n.user("two", parent="g")
    session = n.read()
    assert said(session) == [("user", "one"), ("assistant", "a b"), ("user", "two")]
    assert [(d.record, d.sort, d.lost) for d in session.damage] == [(3, "repeated record", False)]


def test_a_missing_parent_is_bridged_and_reported() -> None:
    n = Native()
    n.user("one")
    n.reply("1")
    n.user("two", parent="never-written")
    n.reply("2")
    session = n.read()
    assert [m.text for m in session.messages] == ["one", "1", "two", "2"]
    assert [(d.record, d.sort, d.lost) for d in session.damage] == [(2, "broken link", False)]


def test_a_torn_line_that_the_agent_wrote_on_behind_costs_only_itself() -> None:
    n = Native()
    n.user("one")
    n.reply("1")
    n.user("two")
    lines = n.data().splitlines(keepends=True)
    session = read_data(lines[0] + lines[1] + b'{"uuid":"torn","parentUuid":"r1","ty' + lines[2])
    assert [m.text for m in session.messages] == ["one", "1", "two"]
    assert [d.sort for d in session.damage] == ["fragment"]


def test_records_of_another_session_are_strangers() -> None:
    n, other = Native(), Native("11111111-1111-4222-8333-444455556666")
    n.user("one")
    n.reply("1")
    other.user("theirs", uuid="x")
    session = read_data(n.data() + other.data())
    assert said(session) == [("user", "one"), ("assistant", "1")]
    assert [(d.record, d.sort) for d in session.damage] == [(2, "foreign record")]


def test_loops_and_messages_without_a_place_do_no_harm() -> None:
    n = Native()
    n.user("one", uuid="a", parent="b")
    n.reply("1", uuid="b", parent="a")
    n.records.append({"type": "user", "message": {"role": "user", "parts": [{"text": "no uuid"}]}})
    session = n.read()
    assert {m.text for m in session.messages} == {"one", "1"}
    assert [(d.record, d.sort) for d in session.damage] == [(2, "foreign record")]


def test_a_fork_and_a_helper_name_where_they_come_from() -> None:
    n = Native()
    n.user("one", forkedFrom={"sessionId": "parent", "messageUuid": "x"})
    assert [(r.relation, r.session_id) for r in n.read().references] == [("forked", "parent")]
    helper = Native()
    helper.user("go", isSidechain=True, agentId="agent-1")
    path = str(PurePosixPath(PATH).parents[1] / "subagents" / ID / "agent-1.jsonl")
    session = read_data(helper.data(), path, "agent-1")
    assert (session.id, session.helper) == ("agent-1", True)
    assert [(r.relation, r.session_id) for r in session.references] == [("helper_of", ID)]
    side = (SideFile(path, 0o600, 0, lambda: b""),)
    assert [(r.relation, r.session_id) for r in read_data(Native().data(), side=side).references] == [
        ("helper", "agent-1")
    ]


def test_odd_members_cost_no_record() -> None:
    n = Native()
    n.user("one", timestamp=5, cwd=7, version=None, model=[], usage=1)
    n.add("assistant", message="no object")
    n.add("assistant", message={"role": "model", "parts": {"text": "alone"}})
    n.add("unheard_of", message={"parts": [{"text": "x"}]})
    session = read_data(n.data().replace(b'"usage": 1', b'"usage": 1e999'))
    assert said(session) == [("user", "one"), ("assistant", "alone")]
    assert json.loads(bytes(session.records[3]))["type"] == "unheard_of"
