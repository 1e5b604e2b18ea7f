"""Writing a session: the envelope, one record a block, marks, images, and what the agent is told of who said what."""

from __future__ import annotations

import json
from typing import Any

import pytest

from claude_samples import CWD, ID, INVENTED, STANDIN, joined, options, reread, said
from clew.conversation.builder import make_assistant, make_call, make_result, make_user
from clew.conversation.model import Image, Message, Reasoning, Text
from clew.conversation.text import JsonString
from clew.formats.claude.writer import write
from odd_pieces import PNG

Row = dict[str, Any]


def rows_of(*messages: Message, **more: Any) -> list[Row]:
    return [json.loads(line) for line in joined(write(messages, options(**more))).splitlines()]


def test_the_whole_envelope() -> None:
    rows = rows_of(make_user("hi", time_ms=1_796_067_394_123), make_assistant("yes"), title="My title")
    assert [row["type"] for row in rows] == ["user", "assistant", "custom-title", "last-prompt"]
    first, second, title, last = rows
    assert {k: v for k, v in first.items() if k not in ("uuid", "message")} == {
        "parentUuid": None,
        "isSidechain": False,
        "type": "user",
        "timestamp": "2026-11-30T19:36:34.123Z",
        "userType": "external",
        "entrypoint": "cli",
        "cwd": CWD,
        "sessionId": ID,
        "version": "2.1.332",
        "gitBranch": "HEAD",
    }
    assert first["message"] == {"role": "user", "content": "hi"}
    assert second["parentUuid"] == first["uuid"]
    assert second["timestamp"] == first["timestamp"]
    assert second["message"]["stop_reason"] == "end_turn"
    assert title == {"type": "custom-title", "customTitle": "My title", "sessionId": ID}
    assert last == {"type": "last-prompt", "lastPrompt": "hi", "leafUuid": second["uuid"], "sessionId": ID}


def test_it_lies_in_the_folder_of_its_cwd_and_is_private() -> None:
    written = write((make_user("hi"),), options(cwd="/home/dev1/a.b_c d/é🚀"))
    assert written.files[0].path == f"projects/-home-dev1-a-b-c-d----/{ID}.jsonl"
    assert written.files[0].mode == 0o600
    assert reread(written).cwd == "/home/dev1/a.b_c d/é🚀"


def test_blocks_of_one_reply_share_its_id_and_each_reply_has_its_own() -> None:
    rows = rows_of(
        make_user("go"),
        make_assistant("a", make_call("c1", "Bash", '{"x":1}'), "b", make_call("c2", "Read", "{}")),
        make_result("c2", "two"),
        make_result("c1", "one", is_error=True),
        make_assistant("end", model="gpt-x"),
    )
    replies = [row for row in rows if row["type"] == "assistant"]
    assert [row["message"]["content"][0]["type"] for row in replies] == ["text", "tool_use", "text", "tool_use", "text"]
    ids = [row["message"]["id"] for row in replies]
    assert len(set(ids[:4])) == 1
    assert ids[4] != ids[0]
    assert ids[0].startswith("msg_")
    assert [row["message"]["model"] for row in replies] == ["unknown"] * 4 + ["gpt-x"]
    assert {row["message"]["stop_reason"] for row in replies[:4]} == {"tool_use"}
    results = [row for row in rows if "sourceToolAssistantUUID" in row]
    assert [row["sourceToolAssistantUUID"] for row in results] == [replies[3]["uuid"], replies[1]["uuid"]]
    assert results[0]["message"]["content"] == [
        {"tool_use_id": "c2", "type": "tool_result", "content": "two"},
    ]
    assert results[1]["message"]["content"][0]["is_error"] is True
    assert results[0]["parentUuid"] == replies[3]["uuid"]


def test_usage_is_small_and_reasoning_is_a_loss() -> None:
    written = write((make_user("go"), make_assistant(Reasoning("hm"), "yes", Reasoning("hm"))), options(model="m"))
    rows = [json.loads(line) for line in joined(written).splitlines()]
    assert rows[1]["message"]["model"] == "m"
    assert sum(v for v in rows[1]["message"]["usage"].values()) < 10
    assert "thinking" not in joined(written).decode()
    assert {loss.what: loss.count for loss in written.losses} == {"reasoning blocks": 2}


def test_unanswered_calls_are_answered_behind_the_real_results() -> None:
    messages = (make_user("go"), make_assistant(make_call("a", "B"), make_call("b", "B")), make_result("b", "r"))
    written = write((*messages, make_user("on")), options())
    rows = [json.loads(line) for line in joined(written).splitlines()]
    blocks = [row["message"]["content"][0] for row in rows[3:5]]
    assert blocks[0]["content"] == "r"
    assert blocks[1] == {"tool_use_id": "a", "type": "tool_result", "content": INVENTED, "is_error": True}
    assert rows[4]["clew"] == {"invented": True}
    assert written.invented == 1
    assert said(reread(written).messages) == said((*messages, make_user("on")))


def test_an_invented_answer_that_lost_its_mark_is_known() -> None:
    written = write((make_user("go"), make_assistant(make_call("a", "B"))), options())
    session = reread(written)
    stripped = joined(written).replace(b',"clew":{"invented":true}', b"")
    assert stripped != joined(written)
    from claude_samples import read_data

    assert read_data(stripped).messages == session.messages


def test_names_ids_and_arguments_are_legal_and_come_back() -> None:
    messages = (
        make_user("go"),
        make_assistant(
            make_call("id|ä", "mcp__figma.dev/v2__get-node@1", '{"n":1.50,"big":9007199254740993}'),
            make_call("same", "n" * 70, "*** Begin Patch"),
            make_call("same", "", '{"clew_text":"x"}'),
        ),
        make_result("same", "first"),
        make_result("id|ä", "x"),
        make_result("same", "second"),
    )
    written = write(messages, options())
    rows = [json.loads(line) for line in joined(written).splitlines()]
    blocks = [row["message"]["content"][0] for row in rows if row["type"] == "assistant"]
    assert b'"big":9007199254740993' in joined(written)
    assert [b["input"] for b in blocks[1:]] == [{"clew_text": "*** Begin Patch"}, {"clew_text": '{"clew_text":"x"}'}]
    again = reread(written).messages
    assert [(c.id, c.name) for c in again[1].calls] == [(c.id, c.name) for c in messages[1].calls]
    results = [(m.call_id, m.text) for m in again[2:]]
    assert sorted(results) == [("id|ä", "x"), ("same", "first"), ("same", "second")]


@pytest.mark.parametrize(
    ("message", "more"),
    [
        (make_user("plain"), {}),
        (
            make_user("sum", origin="agent", kind="summary"),
            {"isVisibleInTranscriptOnly": True, "isCompactSummary": True},
        ),
        (make_user("[Request interrupted by user]", origin="agent", kind="interruption"), {}),
        (make_user("<bash-input>ls</bash-input>", origin="agent", kind="command"), {}),
        (make_user("[Request interrupted by user]"), {"clew": {"said": True}}),
        (make_user("<system-reminder>x</system-reminder>"), {"clew": {"said": True}}),
        (
            make_user("stopped", origin="agent", kind="interruption"),
            {"isMeta": True, "clew": {"origin": "agent", "kind": "interruption"}},
        ),
        (
            make_user("<system-reminder>x</system-reminder>", origin="agent", kind="summary"),
            {
                "isVisibleInTranscriptOnly": True,
                "isCompactSummary": True,
                "clew": {"origin": "agent", "kind": "summary"},
            },
        ),
    ],
)
def test_who_said_it_is_told_by_the_agents_flags_or_by_a_mark(message: Message, more: Row) -> None:
    row = rows_of(message)[0]
    shared = rows_of(make_user("plain"))[0].keys()
    assert {k: v for k, v in row.items() if k not in shared} == more
    (again,) = reread(write((message,), options())).messages
    assert (again.text, again.origin, again.kind) == (message.text, message.origin, message.kind)


def test_images_are_written_where_the_api_takes_them_and_stand_ins_elsewhere() -> None:
    url, odd, gone = Image("", "", "https://x/y"), Image("image/tiff", "AAAA"), Image("image/png", "", "file:///x")
    messages = (
        make_user("see", Image("image/png", PNG), url, odd),
        make_assistant("drawn", Image("image/png", PNG), make_call("a", "B")),
        make_result("a", gone, "text"),
        make_user(odd),
    )
    written = write(messages, options())
    rows = [json.loads(line) for line in joined(written).splitlines()]
    first = rows[0]["message"]["content"]
    assert [b["type"] for b in first] == ["text", "image", "image", "text"]
    assert first[1]["source"] == {"type": "base64", "media_type": "image/png", "data": PNG}
    assert first[2]["source"] == {"type": "url", "url": "https://x/y"}
    assert "image/tiff, number 3" in first[3]["text"]
    assert rows[0]["clew"] == {"standin": 1}
    assert {loss.what: loss.count for loss in written.losses} == {"images": 4}
    again = reread(written).messages
    assert [(m.role, m.text, len(m.images)) for m in again] == [
        ("user", "see", 3),
        ("assistant", "drawn", 1),
        ("tool", "text", 1),
        ("user", "", 1),
    ]
    assert again[0].images == (Image("image/png", PNG), url, Image("image/tiff"))


def test_genuine_sentences_of_clew_survive_beside_marks() -> None:
    odd = Image("image/tiff", "AAAA")
    texts = (STANDIN, "\\" + STANDIN, "\\\\" + INVENTED)
    messages = (make_user(odd, *texts), make_user(*texts), make_user(STANDIN), make_user(INVENTED))
    again = reread(write(messages, options())).messages
    assert [m.text for m in again] == [m.text for m in messages]
    assert [len(m.images) for m in again] == [1, 0, 0, 0]


def test_empty_and_blank_texts() -> None:
    messages = (
        make_user("", "x", ""),
        make_assistant("", " ", "y", "\n", make_call("a", "B"), "\n"),
        make_result("a", "", ""),
        make_user(" "),
    )
    rows = rows_of(*messages)
    assert rows[0]["message"]["content"] == "x"
    blocks = [row["message"]["content"][0].get("text") for row in rows if row["type"] == "assistant"]
    assert blocks == [" y\n", None, "\n"]
    assert [m.text for m in reread(write(messages, options())).messages] == [m.text for m in messages]


def test_line_separators_are_escaped_and_lone_surrogates_are_replaced() -> None:
    text = "a\u2028b\u2029c\u0085d\ud800e"
    call = make_call("a", "B", json.dumps({"t": "\u2028"}, ensure_ascii=False))
    data = joined(write((make_user(text), make_assistant(call)), options(title=text, cwd="/a\u2028")))
    assert b"a\\u2028b\\u2029c\\u0085d\xef\xbf\xbde" in data
    assert len(data.decode().splitlines()) == data.count(b"\n")


def test_undecoded_texts_are_taken_as_they_are_spelled_where_that_is_sound() -> None:
    import msgspec

    def lazy(raw: bytes) -> Message:
        return make_user(Text(JsonString(msgspec.Raw(raw))))

    odd = (rb'"plain \n \" \\ \/"', rb'"\u0041\ud83d"', b'"\xff"', '"é\u2028"'.encode())
    data = joined(write([lazy(raw) for raw in odd], options()))
    contents = [json.loads(line)["message"]["content"] for line in data.splitlines()[:4]]
    assert contents == ['plain \n " \\ /', "A\ufffd", "\ufffd", "é\u2028"]
    assert data.splitlines()[0].count(rb"\/") == 1


def test_the_prompt_of_the_list_is_the_last_typed_one_on_one_line() -> None:
    rows = rows_of(
        make_user("first"), make_user("a\n  b" + "x" * 300), make_user("note", origin="agent", kind="notice")
    )
    assert rows[-1]["lastPrompt"] == "a b" + "x" * 196 + "…"
    assert "lastPrompt" not in rows_of(make_assistant("alone"))[-1]


def test_an_empty_conversation_is_an_empty_file() -> None:
    written = write((), options())
    assert joined(written) == b""
    assert reread(written).messages == ()
