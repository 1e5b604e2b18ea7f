"""What Grok's files say: its own wrappers, notes, omissions, compactions, old formats."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

import clew_corpus
from clew.conversation.groups import group_messages
from clew.conversation.model import Image, Message, Reasoning
from clew.conversation.source import Session
from clew.formats.grok import FORMAT
from clew.formats.grok.content import OMITTED
from clew.formats.grok.reader import read
from clew.formats.grok.records import time_of
from clew.formats.marks import INVENTED
from clew.formats.protocol import Home
from clew_corpus import Case
from folder_samples import keys, lines, source, spoken

FOLDER = "sessions/%2Fhome%2Fdev1/01a22de0-5c62-7262-b9d6-d6a0043f98f6/"
PATH = FOLDER + "chat_history.jsonl"


def user(*texts: str, **more: object) -> dict[str, object]:
    return {"type": "user", "content": [{"type": "text", "text": text} for text in texts], **more}


def reply(text: str = "", *calls: tuple[str, str, str], **more: object) -> dict[str, object]:
    made = [{"id": call_id, "name": name, "arguments": arguments} for call_id, name, arguments in calls]
    return {"type": "assistant", "content": text, **({"tool_calls": made} if made else {}), **more}


def result(call_id: str, text: str) -> dict[str, object]:
    return {"type": "tool_result", "tool_call_id": call_id, "content": text}


def wrapped(text: str) -> str:
    return f"<user_query>\n{text}\n</user_query>"


def look(*records: object, **side: bytes) -> Session:
    files = {FOLDER + name.replace("_", ".", 1): data for name, data in side.items()}
    return read(source(PATH, lines(*records), files))


def shown(**update: object) -> dict[str, object]:
    return {"timestamp": 1, "method": "session/update", "params": {"sessionId": "x", "update": update}}


def test_a_prompt_comes_out_of_its_wrapper_and_context_is_left_out() -> None:
    session = look(
        {"type": "system", "content": "Be good."},
        user("<user_info>\nOS: x\n</user_info>\n\n<rules>\nbe brief\n</rules>"),
        user("<system-reminder>\nflows\n</system-reminder>", synthetic_reason="system_reminder"),
        user("policy of the project", synthetic_reason="project_instructions"),
        user(wrapped("What is <user_info>?")),
        reply("A tag.", model_id="grok-4"),
        user("said meanwhile", synthetic_reason="interjection"),
        user("<system-reminder>\nlate\n</system-reminder>"),
        reply("Noted."),
    )
    assert spoken(session.messages) == [
        ("user", "What is <user_info>?"),
        ("assistant", "A tag."),
        ("user", "said meanwhile"),
        ("assistant", "Noted."),
    ]
    assert {m.origin for m in session.messages} == {"user", "model"}
    assert session.created_by == (4, 5, 6, 8)
    assert session.model == "grok-4"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (wrapped("a"), "a"),
        (wrapped(""), ""),
        (wrapped("a\n</user_query>\nb"), "a\n</user_query>\nb"),
        ("<image_files>\n1. /x.png\n</image_files>\n\n" + wrapped("look"), "look"),
        ("<image_files>\nxx" + wrapped("look"), "<image_files>\nxx" + wrapped("look")),
        (wrapped("a") + "\n\n\n<system-reminder>\nan image was dropped\n</system-reminder>", "a"),
        (wrapped("a") + " and more", wrapped("a") + " and more"),
        ("<user_query>\n", "<user_query>\n"),
        ("<user_query>\n</user_query>", "<user_query>\n</user_query>"),
        ("before " + wrapped("a"), "before " + wrapped("a")),
        (wrapped(wrapped("a")), wrapped("a")),
        (wrapped("<system-reminder>x</system-reminder>"), "<system-reminder>x</system-reminder>"),
        (wrapped('quotes " and \\ and \u2028 and 🧶'), 'quotes " and \\ and \u2028 and 🧶'),
    ],
)
def test_only_a_whole_wrapper_is_taken_off(text: str, said: str) -> None:
    session = look(user(text), reply("ok"))
    assert spoken(session.messages) == ([("user", said)] if said else []) + [("assistant", "ok")]


def test_reasons_say_who_spoke() -> None:
    session = look(
        user("a summary", synthetic_reason="compaction_meta"),
        user("<user_info>x</user_info>", synthetic_reason="compaction_meta"),
        user("a helper is done", synthetic_reason="subagent_completed"),
        user("!ls", synthetic_reason="direct_bash"),
        user("go on", synthetic_reason="auto_continue"),
        user("from the future", synthetic_reason="not_heard_of"),
    )
    assert [(m.text, m.origin, m.kind) for m in session.messages] == [
        ("a summary", "agent", "summary"),
        ("a helper is done", "agent", "notice"),
        ("!ls", "agent", "command"),
        ("from the future", "agent", "notice"),
    ]


def test_thoughts_belong_to_the_reply_behind_them() -> None:
    session = look(
        user(wrapped("think")),
        {"type": "reasoning", "id": "", "summary": [{"type": "summary_text", "text": "hm"}]},
        reply("391", model_id="grok-4"),
    )
    (_, said) = session.messages
    assert [p.text for p in said.parts if isinstance(p, Reasoning)] == ["hm"]
    assert said.model == "grok-4"
    assert session.created_by == (0, 1)


def test_parallel_results_go_to_their_calls_and_strays_are_told() -> None:
    session = look(
        user(wrapped("two")),
        reply("", ("a", "grep", "{}"), ("b", "grep", "")),
        result("b", "of b"),
        result("x", "of nobody"),
        result("a", "of a"),
    )
    assert [m.call_id for m in session.messages if m.role == "tool"] == ["b", "a"]
    assert [(d.sort, d.record) for d in session.damage] == [("stray result", 3)]


def test_old_results_come_from_the_stream_for_display() -> None:
    updates = lines(
        shown(
            sessionUpdate="tool_call_update",
            toolCallId="a",
            status="completed",
            content=[{"type": "content", "content": {"type": "text", "text": "shown"}}],
            rawOutput={"type": "Bash", "output": [1, 2], "output_for_prompt": "exit: 0\nwhole"},
        ),
        shown(sessionUpdate="tool_call_update", toolCallId="b", status="in_progress"),
        shown(
            sessionUpdate="tool_call_update",
            toolCallId="b",
            status="completed",
            content=[{"type": "content", "content": {"type": "text", "text": "only shown"}}],
        ),
        shown(
            sessionUpdate="tool_call_update",
            toolCallId="c",
            status="completed",
            content=[],
            rawOutput={"type": "X", "EditsApplied": {"tool_output_for_prompt": "edited"}},
        ),
    )
    records = (
        user(wrapped("x")),
        reply("", *((name, "grep", "{}") for name in "abcd")),
        *(result(name, OMITTED) for name in "abcd"),
    )
    texts = [m.text for m in look(*records, updates_jsonl=updates).messages if m.role == "tool"]
    assert texts == ["exit: 0\nwhole", "only shown", "edited", OMITTED]
    assert [m.text for m in look(*records).messages if m.role == "tool"] == [OMITTED] * 4


def test_a_compacted_session_has_its_full_history() -> None:
    updates = lines(
        shown(sessionUpdate="user_message_chunk", content={"type": "text", "text": "one"}, _meta={"promptIndex": 0}),
        shown(sessionUpdate="agent_message_chunk", content={"type": "text", "text": "1"}),
        shown(sessionUpdate="tool_call", toolCallId="a", title="grep", rawInput={"x": 1}),
        shown(sessionUpdate="tool_call_update", toolCallId="a", status="failed", content=[]),
        shown(sessionUpdate="compaction_checkpoint", checkpoint_id="c"),
        shown(
            sessionUpdate="user_message_chunk", content={"type": "text", "text": "/compact"}, _meta={"hostTurn": True}
        ),
        shown(sessionUpdate="user_message_chunk", content={"type": "text", "text": "two"}),
    )
    session = look(
        user(wrapped("one")),
        user("A summary.", synthetic_reason="compaction_meta"),
        user(wrapped("two")),
        reply("2"),
        updates_jsonl=updates,
    )
    assert spoken(session.messages) == [("user", "one"), ("user", "A summary."), ("user", "two"), ("assistant", "2")]
    assert spoken(session.history) == [
        ("user", "one"),
        ("assistant", "1"),
        ("tool", ""),
        ("user", "A summary."),
        ("user", "two"),
        ("assistant", "2"),
    ]
    assert [one.at for one in session.boundaries] == [3]


def test_images_are_images_and_so_is_what_stands_for_one() -> None:
    session = look(
        {
            "type": "user",
            "content": [
                {"type": "image", "url": "data:image/png;base64,aGk="},
                {"type": "image", "url": "https://example.com/x.png"},
                {"type": "text", "text": "[image removed — invalid data]"},
                {"type": "text", "text": wrapped("[image removed — invalid data]")},
            ],
        }
    )
    (said,) = session.messages
    assert said.images == (Image("image/png", "aGk="), Image("", "", "https://example.com/x.png"), Image(""))
    assert said.text == "[image removed — invalid data]"


def test_the_old_format_is_read() -> None:
    session = look(
        {"role": "system", "content": "Be good."},
        {"role": "user", "content": "Look."},
        {
            "role": "assistant",
            "content": "Looking.",
            "tool_calls": [{"id": "a", "type": "function", "function": {"name": "read", "arguments": '{"x":1}'}}],
            "reasoning_content": "hm",
        },
        {"role": "tool", "content": "body", "tool_call_id": "a"},
    )
    assert spoken(session.messages) == [("user", "Look."), ("assistant", "Looking."), ("tool", "body")]
    assert session.messages[1].calls[0].name == "read"
    assert [p.text for p in session.messages[1].parts if isinstance(p, Reasoning)] == ["hm"]


def test_a_provider_s_own_call_is_a_call_without_a_result() -> None:
    session = look(
        user(wrapped("search")),
        {"type": "backend_tool_call", "kind": {"tool_type": "web_search", "action": {"query": "x"}, "id": "ws_1"}},
        reply("Found."),
    )
    (call,) = session.messages[1].calls
    assert (call.id, call.name, call.arguments) == ("ws_1", "web_search", '{"query":"x"}')


def test_a_made_up_answer_is_none_also_without_a_mark() -> None:
    session = look(user(wrapped("x")), reply("", ("a", "grep", "{}")), result("a", INVENTED))
    assert [m.role for m in session.messages] == ["user", "assistant"]
    assert not session.damage


def test_without_a_history_the_stream_for_display_is_read() -> None:
    updates = lines(
        shown(sessionUpdate="user_message_chunk", content={"type": "text", "text": "one"}),
        shown(sessionUpdate="agent_thought_chunk", content={"type": "text", "text": "hm"}),
        shown(sessionUpdate="agent_message_chunk", content={"type": "text", "text": "1"}),
    )
    session = read(source(FOLDER + "updates.jsonl", updates))
    assert spoken(session.messages) == [("user", "one"), ("assistant", "1")]
    assert session.created_by == (0, 1)


def test_the_description_says_the_rest() -> None:
    summary = {
        "info": {"id": "x", "cwd": "/home/dev1"},
        "session_summary": "the first prompt",
        "generated_title": " A title ",
        "created_at": "2026-11-30T19:13:01.054493127Z",
        "updated_at": "2026-11-30T19:13:02Z",
        "current_model_id": "grok-4",
        "chat_format_version": 2,
        "session_kind": "subagent",
        "parent_session_id": "y",
    }
    session = look(user(wrapped("x")), summary_json=json.dumps(summary).encode())
    assert (session.cwd, session.title, session.model, session.helper) == ("/home/dev1", "A title", "grok-4", True)
    assert session.created_ms == time_of("2026-11-30T19:13:01.054Z")
    assert session.updated_ms == session.created_ms + 946  # type: ignore[operator]
    assert [(r.relation, r.session_id) for r in session.references] == [("forked", "y")]
    assert [d.sort for d in session.damage] == ["unknown version"]


CASES = [case for case in (*clew_corpus.own_cases("grok"), *clew_corpus.shared_cases("grok")) if case.paths]


Told = tuple[str, str, list[tuple[str, object]], list[str]]


def said(messages: tuple[Message, ...]) -> list[Told]:
    return [
        (
            group.head.role,
            group.head.text,
            [(call.name, json.loads(call.arguments or "{}")) for call in group.head.calls],
            sorted(result.text for result in group.results),
        )
        for group in group_messages(messages)
    ]


def wanted(groups: Sequence[dict[str, Any]]) -> list[Told]:
    return [
        (
            one["role"],
            one["text"],
            [(call["name"], call["arguments"]) for call in one["tool_calls"]],
            sorted(result["text"] for result in one["tool_results"]),
        )
        for one in groups
    ]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case}-{case.home.parts[-4]}")
def test_a_recorded_session_says_what_was_said(case: Case) -> None:
    found = next(one for one in FORMAT.locate.find(Home(case.home)) if one.id == case.session_id)
    origin = FORMAT.locate.load(found, Home(case.home))
    session = read(origin)
    if case.expected_full is not None:
        assert said(session.history) == wanted(case.expected_full)
    if case.name == "compacted" and case.expected_full is None:  # the shared one tells all but the summary
        assert [one for one in said(session.history) if "SUMMARY" not in one[1]] == wanted(case.expected or ())
    elif case.expected is not None:
        assert said(session.messages) == wanted(case.expected)
    assert session.cwd == case.cwd
    assert not session.damage
    assert session.ending is not None
    on = read(origin, session.ending)
    assert on.continues is not None
    settled = session.messages[: on.continues.messages]
    assert keys((*settled, *on.messages)) == keys(session.messages)
