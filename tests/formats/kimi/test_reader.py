"""What Kimi Code's journal says: steps, results as the model reads them, compactions, undone turns."""

from __future__ import annotations

import json

import pytest

import clew_corpus
from clew.conversation.builder import make_user
from clew.conversation.canonical import normal_arguments
from clew.conversation.groups import group_messages
from clew.conversation.model import Image, Reasoning
from clew.conversation.source import Session
from clew.formats.kimi import FORMAT
from clew.formats.kimi.compaction import choose_kept, estimate_text
from clew.formats.kimi.reader import read
from clew.formats.kimi.said import EMPTY, FAILED, FAILED_EMPTY
from clew.formats.marks import INVENTED
from clew.formats.protocol import Home
from clew_corpus import Case
from folder_samples import keys, lines, source, spoken

FOLDER = "sessions/wd_proj_000000000000/session_x/"
PATH = FOLDER + "agents/main/wire.jsonl"
TIME = 1_796_066_400_000


def told(role: str, *texts: str, kind: str = "user", **more: object) -> dict[str, object]:
    content = [{"type": "text", "text": text} for text in texts]
    message = {"role": role, "content": content, "toolCalls": [], "origin": {"kind": kind}, **more}
    return {"type": "context.append_message", "agentId": "main", "message": message, "time": TIME}


def step(**event: object) -> dict[str, object]:
    return {"type": "context.append_loop_event", "agentId": "main", "event": event, "time": TIME + 1}


def reply(name: str, *texts: str) -> list[dict[str, object]]:
    parts = [step(type="content.part", stepUuid=name, part={"type": "text", "text": text}) for text in texts]
    return [step(type="step.begin", uuid=name), *parts, step(type="step.end", uuid=name, finishReason="end_turn")]


def call(step_id: str, call_id: str, name: str = "Read", **args: object) -> dict[str, object]:
    return step(type="tool.call", uuid=call_id, stepUuid=step_id, toolCallId=call_id, name=name, args=args)


def result(call_id: str, output: object, **more: object) -> dict[str, object]:
    return step(type="tool.result", parentUuid=call_id, toolCallId=call_id, result={"output": output, **more})


def look(*records: object, **side: bytes) -> Session:
    files = {FOLDER + name.replace("_json", ".json"): data for name, data in side.items()}
    return read(source(PATH, lines(*records), files))


def test_steps_are_replies_and_their_doubles_are_not() -> None:
    session = look(
        {"type": "metadata", "protocol_version": "1.5", "created_at": TIME},
        {"type": "profile.bind", "agentId": "main", "modelAlias": "k2", "systemPrompt": "Be good."},
        {"type": "turn.prompt", "agentId": "main", "input": [{"type": "text", "text": "Look."}]},
        told("user", "Look."),
        {"type": "agent.message.appended", "kind": "event", "message": {"role": "user", "content": []}},
        told("user", "<system-reminder>\nToday.\n</system-reminder>", kind="injection"),
        step(type="step.begin", uuid="s1", turnId="0", step=1),
        step(type="content.part", stepUuid="s1", part={"type": "think", "think": "hm"}),
        step(type="content.part", stepUuid="s1", part={"type": "text", "text": "I look."}),
        call("s1", "a", path="x"),
        call("s1", "b", path="y"),
        result("b", "of b"),
        result("a", "of a", isError=True),
        step(type="step.end", uuid="s1", finishReason="tool_use"),
        *reply("s2", "Both ", "read."),
    )
    assert spoken(session.messages) == [
        ("user", "Look."),
        ("assistant", "I look."),
        ("tool", "of b"),
        ("tool", f"{FAILED}\nof a"),
        ("assistant", "Both read."),
    ]
    said = session.messages[1]
    assert [p.text for p in said.parts if isinstance(p, Reasoning)] == ["hm"]
    assert [c.arguments for c in said.calls] == ['{"path":"x"}', '{"path":"y"}']
    assert (said.model, session.model) == ("k2", "k2")
    assert [m.is_error for m in session.messages if m.role == "tool"] == [False, True]
    assert session.created_by == (3, 7, 11, 12, 15)
    assert (session.created_ms, session.updated_ms) == (TIME, TIME + 1)


@pytest.mark.parametrize(
    ("name", "given", "read_as"),
    [
        ("Read", {"output": "x", "durationMs": 37}, "x"),
        ("Bash", {"output": "x\n", "durationMs": 37}, "Wall time: 0.037 seconds\nx\n"),
        ("mcp__a__b", {"output": "x", "durationMs": 1234.5}, "Wall time: 1.234 seconds\nx"),
        ("Bash", {"output": "x", "durationMs": 0, "isError": True}, f"Wall time: 0.000 seconds\n{FAILED}\nx"),
        ("Read", {"output": "x", "isError": True}, f"{FAILED}\nx"),
        ("Read", {"output": "", "isError": True}, FAILED_EMPTY),
        ("Read", {"output": ""}, EMPTY),
        ("Read", {"output": " \n"}, EMPTY),
        ("Read", {"output": []}, EMPTY),
        ("Read", {"output": "Tool output is empty."}, EMPTY),
        ("Read", {"output": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}, "ab"),
        ("Read", {"output": "x", "note": "cut"}, "x\ncut"),
        ("Read", {"output": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "note": "c"}, "abc"),
    ],
)
def test_a_result_is_what_the_model_reads(name: str, given: dict[str, object], read_as: str) -> None:
    output = given.pop("output")
    session = look(
        told("user", "x"), step(type="step.begin", uuid="s"), call("s", "a", name), result("a", output, **given)
    )
    assert session.messages[-1].text == read_as


def test_origins_say_who_spoke() -> None:
    records = [
        told("user", "typed"),
        told("user", "injected", kind="injection"),
        told("user", "a summary", kind="compaction_summary"),
        told("user", "$ ls", kind="shell_command"),
        told("user", "a task is done", kind="task"),
        told("user", "hooked", kind="hook_result"),
        told("user", "expanded", kind="skill_activation"),
    ]
    assert [(m.text, m.origin, m.kind) for m in look(*records).messages] == [
        ("typed", "user", ""),
        ("a summary", "agent", "summary"),
        ("$ ls", "agent", "command"),
        ("a task is done", "agent", "notice"),
        ("hooked", "agent", "notice"),
        ("expanded", "agent", "command"),
    ]


def test_whole_messages_are_taken_for_every_role() -> None:
    call_of = {"type": "function", "id": "a", "name": "Read", "arguments": '{"path":"x"}'}
    session = look(
        told("user", "Look."),
        told(
            "assistant",
            "I look.",
            toolCalls=[call_of, {"type": "function", "id": "b", "name": "Read", "arguments": None}],
        ),
        told("tool", "body", toolCallId="a"),
        told("assistant", "Read."),
    )
    assert spoken(session.messages) == [
        ("user", "Look."),
        ("assistant", "I look."),
        ("tool", "body"),
        ("assistant", "Read."),
    ]
    assert [c.arguments for c in session.messages[1].calls] == ['{"path":"x"}', ""]


def test_a_compaction_keeps_what_people_said_and_the_summary() -> None:
    session = look(
        told("user", "one"),
        *reply("s1", "1"),
        told("user", "reminder", kind="injection"),
        told("user", "two"),
        *reply("s2", "2"),
        {
            "type": "context.apply_compaction",
            "agentId": "main",
            "summary": "raw",
            "contextSummary": "SUMMARY",
            "compactedCount": 5,
            "keptUserMessageCount": 2,
            "tokensAfter": 9,
            "time": TIME,
        },
        told("user", "three"),
    )
    assert spoken(session.messages) == [("user", "one"), ("user", "two"), ("user", "SUMMARY"), ("user", "three")]
    assert session.created_by == (9, 9, 9, 10)
    assert [m.kind for m in session.messages] == ["", "", "summary", ""]
    assert [text for _, text in spoken(session.history)] == ["one", "1", "two", "2", "SUMMARY", "three"]
    assert [one.at for one in session.boundaries] == [4]


def test_an_old_compaction_keeps_the_tail() -> None:
    session = look(
        told("user", "one"),
        *reply("s1", "1"),
        told("user", "two"),
        *reply("s2", "2"),
        {"type": "context.apply_compaction", "agentId": "main", "summary": "SUMMARY", "compactedCount": 2},
    )
    assert [text for _, text in spoken(session.messages)] == ["SUMMARY", "two", "2"]


def test_long_talk_is_cut_as_the_agent_cuts_it() -> None:
    assert estimate_text("abcde") == 2
    assert estimate_text("äbcde") == 2
    assert choose_kept([make_user("x" * 40)]) == [make_user("x" * 40)]
    first, middle, last = make_user("a" * 6_000), make_user("b" * 60_000), make_user("c" * 40_000)
    kept = choose_kept([first, middle, last])
    sizes = [(message.text[0], len(message.text)) for message in kept]
    # 18,000 tokens from the end, 2,000 from the beginning, the estimate of a message's role aside.
    assert sizes == [("a", 6_000), ("b", 4 * (2_000 - 1_501)), ("b", 4 * (18_000 - 10_001)), ("c", 40_000)]


def test_an_undone_turn_is_a_branch() -> None:
    session = look(
        told("user", "one"),
        *reply("s1", "1"),
        told("user", "two"),
        *reply("s2", "2"),
        {
            "type": "agent.switched",
            "agentId": "main",
            "branch": "b",
            "base": {"branch": "main", "line": 4},
            "legacyUndoLine": 9,
        },
        {"type": "context.undo", "agentId": "main", "count": 1},
        told("user", "three"),
    )
    assert [text for _, text in spoken(session.messages)] == ["one", "1", "three"]
    assert session.history == session.messages
    (branch,) = session.branches
    assert (branch.at, [text for _, text in spoken(branch.messages)]) == (2, ["two", "2"])


def test_more_than_there_is_cannot_be_undone() -> None:
    session = look(told("user", "one"), *reply("s1", "1"), {"type": "context.undo", "agentId": "main", "count": 2})
    assert [text for _, text in spoken(session.messages)] == ["one", "1"]


def test_a_branch_without_an_undo_goes_back_to_its_line() -> None:
    session = look(
        told("user", "one"),
        told("user", "two"),
        {"type": "agent.switched", "agentId": "main", "branch": "b", "base": {"branch": "main", "line": 1}},
        told("user", "three"),
    )
    assert [text for _, text in spoken(session.messages)] == ["one", "three"]


def test_a_cleared_context_leaves_the_history() -> None:
    session = look(told("user", "one"), {"type": "context.clear", "agentId": "main"}, told("user", "two"))
    assert [text for _, text in spoken(session.messages)] == ["two"]
    assert [text for _, text in spoken(session.history)] == ["one", "two"]
    assert [(one.at, one.kind) for one in session.boundaries] == [(1, "cleared")]


def test_images_are_read_also_from_blobs() -> None:
    def image(url: str) -> dict[str, object]:
        return {"type": "image_url", "imageUrl": {"url": url}}

    digest = "ab" * 32
    message = {
        "role": "user",
        "content": [
            image("data:image/png;base64,aGk="),
            image(f"blobref:image/jpeg;{digest}"),
            image(f"blobref:image/jpeg;{'cd' * 32}"),
            image("https://example.com/x.png"),
        ],
    }
    record = {"type": "context.append_message", "agentId": "main", "message": message}
    session = read(source(PATH, lines(record), {f"{FOLDER}agents/main/blobs/{digest}": b"hi"}))
    assert session.messages[0].images == (
        Image("image/png", "aGk="),
        Image("image/jpeg", "aGk="),
        Image("image/jpeg"),
        Image("", "", "https://example.com/x.png"),
    )


def test_a_made_up_answer_is_none_also_without_a_mark() -> None:
    session = look(
        told("user", "x"), step(type="step.begin", uuid="s"), call("s", "a"), told("tool", INVENTED, toolCallId="a")
    )
    assert [m.role for m in session.messages] == ["user", "assistant"]


def test_a_garbage_line_costs_only_itself() -> None:
    data = lines(told("user", "one")) + b"garbage\n" + lines(told("user", "two"))
    session = read(source(PATH, data))
    assert [text for _, text in spoken(session.messages)] == ["one", "two"]
    assert [d.sort for d in session.damage] == ["not json"]


def test_the_description_says_the_rest() -> None:
    state = {
        "id": "session_x",
        "cwd": "/home/dev1",
        "title": "A title",
        "forkedFrom": "session_y",
        "agents": {"main": {}, "agent-0": {}},
    }
    session = look(told("user", "x"), state_json=json.dumps(state).encode())
    assert (session.id, session.cwd, session.title) == ("session_x", "/home/dev1", "A title")
    assert [(r.relation, r.session_id) for r in session.references] == [("forked", "session_y"), ("helper", ".agent-0")]


CASES = [case for case in (*clew_corpus.own_cases("kimi"), *clew_corpus.shared_cases("kimi")) if case.paths]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case}-{case.home.parts[-4]}")
def test_a_recorded_session_says_what_was_said(case: Case) -> None:
    found = next(one for one in FORMAT.locate.find(Home(case.home)) if one.id == case.session_id)
    origin = FORMAT.locate.load(found, Home(case.home))
    session = read(origin)
    groups = list(group_messages(session.messages))
    for group, one in zip(groups, case.expected or (), strict=True):
        assert (group.head.role, group.head.text) == (one["role"], one["text"])
        assert [call.name for call in group.head.calls] == [call["name"] for call in one["tool_calls"]]
        given = [json.dumps(call["arguments"]) for call in one["tool_calls"]]
        assert [normal_arguments(c.arguments) for c in group.head.calls] == [normal_arguments(a) for a in given]
        assert sorted(r.text for r in group.results) == sorted(r["text"] for r in one["tool_results"])
    assert session.cwd == case.cwd
    assert not session.damage
    assert session.ending is not None
    on = read(origin, session.ending)
    assert on.continues is not None
    assert keys((*session.messages[: on.continues.messages], *on.messages)) == keys(session.messages)
