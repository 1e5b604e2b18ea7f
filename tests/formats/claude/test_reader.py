"""Reading native sessions: what is context, who said what, results, titles and times, what is odd."""

from __future__ import annotations

import pytest

from claude_samples import CWD, ID, INVENTED, OTHER, STANDIN, Native, call, read_data, said, sorts, source_of
from clew.formats.claude.reader import read
from clew.formats.claude.records import read_time, write_time
from odd_pieces import PNG

REMINDER = "<system-reminder>\nmind the gap\n</system-reminder>"


def test_pieces_of_a_reply_and_parallel_results_are_one_group() -> None:
    n = Native()
    n.user("go")
    n.reply("m1", {"type": "thinking", "thinking": "hm", "signature": "x"})
    n.reply("m1", "text")
    first = n.reply("m1", call("a", command="1"))
    second = n.reply("m1", call("b", command="2"))
    n.result("b", "rb", parent=second)
    n.result("a", "ra", parent=first, is_error=True)
    n.reply("m2", "end")
    session = n.read()
    assert said(session.messages) == [
        ("user", "go"),
        ("assistant", "text"),
        ("tool", "rb"),
        ("tool", "ra"),
        ("assistant", "end"),
    ]
    assert [c.arguments for c in session.messages[1].calls] == ['{"command":"1"}', '{"command":"2"}']
    assert [(m.call_id, m.is_error) for m in session.messages[2:4]] == [("b", False), ("a", True)]
    assert session.created_by == (0, 1, 5, 6, 7)
    assert session.messages == session.history
    assert not session.branches
    assert not session.damage


def test_results_of_many_parallel_calls_are_joined_to_their_message() -> None:
    n = Native()
    n.user("go")
    parents = [n.reply("m1", call(f"c{i}")) for i in range(40)]
    for i, parent in reversed(list(enumerate(parents))):
        n.result(f"c{i}", f"r{i}", parent=parent)
    n.reply("m2", "end")
    session = n.read()
    assert len(session.messages) == 43
    assert not session.branches
    assert not session.damage


def test_reminders_of_the_agent_are_context_and_quoted_ones_are_not() -> None:
    n = Native()
    n.user(REMINDER, isMeta=True)
    n.user([{"type": "text", "text": REMINDER}, {"type": "text", "text": "typed"}])
    n.user(REMINDER)
    n.user(REMINDER, promptSource="typed")
    n.user(f"why {REMINDER}?")
    n.user(f"{REMINDER}\nwhy?")
    n.user(f"{REMINDER}\n{REMINDER}\n", isMeta=True)
    session = n.read()
    assert [m.text for m in session.messages] == ["typed", REMINDER, f"why {REMINDER}?", f"{REMINDER}\nwhy?"]
    assert {m.origin for m in session.messages} == {"user"}
    assert not session.damage


@pytest.mark.parametrize(
    ("content", "more", "origin", "kind"),
    [
        ("hello", {}, "user", ""),
        ("[Request interrupted by user]", {}, "agent", "interruption"),
        ("[Request interrupted by user for tool use]", {}, "agent", "interruption"),
        ("[Request interrupted by user]", {"promptSource": "typed"}, "user", ""),
        ("I saw [Request interrupted by user]", {}, "user", ""),
        ("<command-name>/init</command-name>\n<command-args></command-args>", {}, "agent", "command"),
        ("<local-command-stdout>x</local-command-stdout>", {}, "agent", "command"),
        ("<local-command-caveat>x</local-command-caveat>", {"isMeta": True}, "agent", "command"),
        ("<bash-input>ls</bash-input>", {}, "agent", "command"),
        ("<command-name>/x</command-name> is what I typed", {}, "user", ""),
        ("<task-notification>\nx\n</task-notification>", {}, "agent", "notice"),
        ("done", {"origin": {"kind": "task-notification"}}, "agent", "notice"),
        ("[Image: source: /tmp/1.png]", {"isMeta": True}, "agent", "notice"),
        ("a summary", {"isCompactSummary": True}, "agent", "summary"),
    ],
)
def test_who_said_it(content: str, more: dict[str, object], origin: str, kind: str) -> None:
    n = Native()
    n.user(content, **more)
    n.user([{"type": "text", "text": content}], **more)
    session = n.read()
    assert [(m.text, m.origin, m.kind) for m in session.messages] == [(content, origin, kind)] * 2


def test_what_a_command_expands_to_is_of_the_command() -> None:
    n = Native()
    n.user("<command-message>init</command-message>\n<command-name>/init</command-name>")
    n.user([{"type": "text", "text": "Please look around."}], isMeta=True)
    n.reply("m1", "yes")
    n.user("Continue from where you left off.", isMeta=True)
    assert [m.kind for m in n.read().messages] == ["command", "command", "", "notice"]


def test_what_was_said_while_the_model_was_busy_is_a_message() -> None:
    n = Native()
    n.user("go")
    n.reply("m1", call("a"))
    n.result("a", "r")
    n.add("attachment", attachment={"type": "queued_command", "prompt": "also this", "commandMode": "prompt"})
    blocks = [{"type": "text", "text": "see"}, {"type": "image", "source": {"type": "url", "url": "https://x/y"}}]
    n.add("attachment", attachment={"type": "queued_command", "prompt": blocks})
    told = {"type": "queued_command", "prompt": "job done", "commandMode": "task-notification"}
    n.add("attachment", attachment=told)
    n.add("attachment", attachment={"type": "file", "content": "queued_command"})
    n.reply("m2", "fine")
    session = n.read()
    assert [(m.role, m.text, m.origin, m.kind, len(m.images)) for m in session.messages[3:]] == [
        ("user", "also this", "user", "", 0),
        ("user", "see", "user", "", 1),
        ("user", "job done", "agent", "notice", 0),
        ("assistant", "fine", "model", "", 0),
    ]


def test_notes_of_failed_requests_and_fillers_are_not_what_the_model_said() -> None:
    n = Native()
    n.user("go")
    n.reply("x0", "API Error: kept", isApiErrorMessage=True)
    n.user("on")
    n.reply("x1", "API Error: 529", model="<synthetic>", isApiErrorMessage=True)
    n.reply("x2", "No response requested.", model="<synthetic>")
    n.user("again")
    n.reply("m1", "No response requested.")
    session = n.read()
    assert said(session.messages) == [
        ("user", "go"),
        ("assistant", "API Error: kept"),
        ("user", "on"),
        ("user", "again"),
        ("assistant", "No response requested."),
    ]
    assert session.model == "claude-opus-5-5"


def test_notes_of_the_agent_to_itself_are_not_sent_again() -> None:
    n = Native()
    n.user("go")
    n.reply("m1", "half")
    n.user("Your response above was cut off.", isMeta=True, ownNote=True)
    n.reply("m2", " and half")
    n.user("seen", ownNote=True)
    n.user("also seen", isMeta=True, turnCompanion=True)
    texts = ["go", "half and half", "seen", "also seen"]
    assert [m.text for m in n.read().messages] == texts


def test_shapes_of_results() -> None:
    n = Native()
    n.user("go")
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}
    shapes: list[object] = ["text", "", [], ..., [{"type": "text", "text": "a"}, image, {"type": "text", "text": "b"}]]
    for i, shape in enumerate(shapes):
        n.reply(f"m{i}", call(f"c{i}"))
        block = {"type": "tool_result", "tool_use_id": f"c{i}", "content": shape}
        n.user([{k: v for k, v in block.items() if v is not ...}])
    results = [m for m in n.read().messages if m.role == "tool"]
    assert [(m.text, len(m.images)) for m in results] == [("text", 0), ("", 0), ("", 0), ("", 0), ("ab", 1)]
    assert results[-1].images[0].data == PNG
    assert results[-1].images[0].media_type == "image/png"


def test_results_with_a_text_in_one_record_stay_two_things() -> None:
    n = Native()
    n.user("go")
    n.reply("m1", call("a"))
    n.user(
        [
            {"type": "tool_result", "tool_use_id": "a", "content": "denied", "is_error": True},
            {"type": "text", "text": "[Request interrupted by user for tool use]"},
        ]
    )
    session = n.read()
    assert [(m.role, m.text, m.kind) for m in session.messages[2:]] == [
        ("tool", "denied", ""),
        ("user", "[Request interrupted by user for tool use]", "interruption"),
    ]


def test_a_result_without_a_call_is_reported_and_no_message() -> None:
    n = Native()
    n.user("go")
    n.result("nobody", "r")
    n.reply("m1", call("a"))
    n.result("a", "r1")
    n.result("a", "r2")
    session = n.read()
    assert said(session.messages) == [("user", "go"), ("assistant", ""), ("tool", "r1")]
    assert sorts(session) == [("stray result", 1), ("stray result", 4)]


def test_arguments_stay_as_they_are_spelled() -> None:
    n = Native()
    n.user("go")
    data = n.data()
    block = '{"type":"tool_use","id":"a","name":"Grep","input":{"n":1.50,"big":9007199254740993,"neg":-0.0}}'
    line = (
        '{"parentUuid":"u1","uuid":"x","type":"assistant","message":{"role":"assistant","content":[' + block + "]}}\n"
    )
    (found,) = read_data(data + line.encode()).messages[1].calls
    assert found.arguments == '{"n":1.50,"big":9007199254740993,"neg":-0.0}'


def test_odd_blocks_cost_nothing_but_themselves_and_are_counted() -> None:
    n = Native()
    n.user([{"type": "text", "text": "a"}, {"type": "document", "source": {}}, 7, {"type": "text"}, {"type": ["x"]}])
    n.reply("m1", {"type": "server_tool_use"}, "b", {"type": "tool_use", "id": 5, "name": None})
    session = n.read()
    assert said(session.messages) == [("user", "a"), ("assistant", "b")]
    assert [(c.id, c.name, c.arguments) for c in session.messages[1].calls] == [("", "", "")]
    assert {loss.what: loss.count for loss in session.losses} == {
        "documents": 1,
        "content blocks of an unknown kind": 2,
    }


def test_odd_members_cost_no_record() -> None:
    n = Native()
    n.user("one", timestamp=17, version=None, cwd=4, sessionId=["x"], isMeta="yes", origin="?", clew=[1])
    n.reply("m1", "two", timestamp={"a": 1}, requestId=5, entrypoint=7, gitBranch=None)
    n.note(type="last-prompt", leafUuid=5)
    n.note(type="custom-title", customTitle=None)
    n.note(type=7)
    n.note(type="assistant", message="?")
    session = n.read()
    assert said(session.messages) == [("user", "one"), ("assistant", "two")]
    assert not [d for d in session.damage if d.sort != "broken link"]


def test_lone_surrogates_and_bad_bytes_are_replaced_and_named() -> None:
    n = Native()
    n.user("ok SIGN")
    n.reply("m1", "fine")
    session = read_data(n.data().replace(b"SIGN", b"\\ud83d"))
    assert session.messages[0].text == "ok \ufffd"
    broken = read_data(n.data().replace(b"SIGN", b"\xff"))
    assert broken.messages[0].text == "ok \ufffd"


def test_titles_models_times_and_the_folder() -> None:
    n = Native()
    n.note(type="summary", summary="of another", leafUuid="gone")
    n.user("one", timestamp="2026-09-10T09:00:00+02:00")
    n.reply("m1", "two", model="m-1", requestId="r", timestamp=1_788_998_400)
    n.reply("m2", "three", model="m-2", cwd="/home/dev1/work/shop/sub")
    n.note(type="summary", summary="old title", leafUuid="u3")
    session = n.read()
    assert (session.title, session.model, session.provider) == ("old title", "m-2", "anthropic")
    assert (session.cwd, session.version) == (CWD, "2.1.332")
    assert session.created_ms == 1_789_023_600_000
    n.note(type="ai-title", aiTitle="made", sessionId=ID)
    assert n.read().title == "made"
    n.note(type="custom-title", customTitle="chosen", sessionId=ID)
    n.note(type="custom-title", customTitle="chosen again", sessionId=ID)
    n.note(type="ai-title", aiTitle="made again", sessionId=ID)
    assert n.read().title == "chosen again"


def test_the_folder_is_the_recorded_one_that_the_place_is_named_after() -> None:
    n = Native(cwd="/home/dev1/elsewhere")
    n.user("one")
    n.cwd = CWD
    n.user("two")
    assert n.read().cwd == CWD
    assert n.read(path="x.jsonl").cwd == "/home/dev1/elsewhere"


def test_empty_sessions() -> None:
    n = Native()
    n.note(type="file-history-snapshot", messageId="x", snapshot={})
    n.note(type="summary", summary="Some title", leafUuid="gone")
    for data in (b"", b"\n", n.data()):
        session = read_data(data)
        assert session.messages == ()
        assert not session.damage
        assert session.ending is None
    assert read_data(n.data()).title == ""


def test_an_unfinished_line_is_no_damage_while_it_grows() -> None:
    n = Native()
    n.user("one")
    n.user("two")
    assert sorts(read_data(n.data()[:-30])) == [("torn tail", 1)]
    growing = read_data(n.data()[:-30], growing=True)
    assert sorts(growing) == [("still being written", 1)]
    assert said(growing.messages) == [("user", "one")]


def test_sentences_of_clew_in_a_native_session_are_what_they_say() -> None:
    n = Native()
    n.user(STANDIN)
    n.user("\\" + STANDIN)
    n.reply("m1", INVENTED, call("a", clew_text="x"))
    n.result("a", INVENTED)
    session = n.read()
    assert [m.text for m in session.messages] == [STANDIN, "\\" + STANDIN, INVENTED, INVENTED]
    assert session.messages[2].calls[0].arguments == '{"clew_text": "x"}'.replace(" ", "")


def test_a_made_up_answer_is_known_without_its_mark() -> None:
    n = Native()
    n.user("go")
    n.reply("m1", call("a"))
    n.result("a", INVENTED, is_error=True)
    assert said(n.read().messages) == [("user", "go"), ("assistant", "")]


@pytest.mark.parametrize(
    ("value", "ms"),
    [
        ("2026-09-10T09:00:00.123Z", 1_789_030_800_123),
        ("2026-09-10T11:00:00+02:00", 1_789_030_800_000),
        ("2026-09-10 09:00:00", 1_789_030_800_000),
        ("2026-09-10T09:00Z", 1_789_030_800_000),
        ("2026-09-10T09:00:00.123456789-0030", 1_789_032_600_123),
        (1_789_030_800, 1_789_030_800_000),
        (1_789_030_800.5, 1_789_030_800_500),
        (1_789_030_800_123, 1_789_030_800_123),
        ("2016-12-31T23:59:60Z", 1_483_228_799_000),
        ("yesterday", None),
        ("2026-13-10T09:00:00Z", None),
        ("-0001-01-01T00:00:00Z", None),
        ("٢٠٢٦-09-10T09:00:00Z", None),
        (None, None),
        (True, None),
        (0, None),
        (float("nan"), None),
        (1e300, None),
        ([], None),
    ],
)
def test_times(value: object, ms: int | None) -> None:
    assert read_time(value) == ms


@pytest.mark.parametrize("ms", [0, 1, -1, 1_789_030_800_123, -62_135_596_800_000, 253_402_300_799_999])
def test_times_come_back(ms: int) -> None:
    assert read_time(write_time(ms)) == ms


def test_times_out_of_the_calendar_are_clamped() -> None:
    assert write_time(10**20) == "9999-12-31T23:59:59.999Z"
    assert write_time(-(10**20)) == "0001-01-01T00:00:00.000Z"


def test_a_title_that_was_chosen_outlives_a_made_one_in_what_was_added() -> None:
    n = Native()
    n.user("one")
    n.note(type="custom-title", customTitle="chosen", sessionId=ID)
    n.user("two")
    first = n.read()
    n.note(type="ai-title", aiTitle="made", sessionId=ID)
    on = read(source_of(n.data()), first.ending)
    assert on.continues == first.ending
    assert (on.title, said(on.messages)) == ("chosen", [("user", "two")])
    assert on.ending == n.read().ending


@pytest.mark.parametrize("change", ["rewind", "replay", "boundary", "stale", "stray", "stranger", "edited", "renamed"])
def test_what_reaches_back_is_read_whole(change: str) -> None:
    n = Native()
    n.user("one")
    n.reply("m1", call("a"))
    n.user("two")
    first = n.read()
    assert first.ending is not None
    hint = ID
    if change == "rewind":
        n.user("other", parent="u1")
    elif change == "replay":
        n.rows.append(n.rows[0])
    elif change == "boundary":
        n.add("system", subtype="compact_boundary", parent=None, logicalParentUuid="u3")
        n.user("sum", isCompactSummary=True)
    elif change == "stale":
        n.user("three")
        n.leaf("u1")
        n.user("other", parent="u2")
    elif change == "stray":
        n.result("a", "late")
    elif change == "stranger":
        n.user("theirs", parent=None, sessionId=OTHER)
    elif change == "edited":
        n.rows[0]["message"]["content"] = "uno"
    else:
        hint = OTHER
    on = read(source_of(n.data(), hint=hint), first.ending)
    assert on.continues is None
    assert on.messages == read(source_of(n.data(), hint=hint)).messages
