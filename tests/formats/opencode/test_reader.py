"""What OpenCode's rows say: order, compaction, reverts, failed replies, helpers, and its export."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from clew.conversation.builder import make_assistant, make_call, make_user
from clew.conversation.model import Image, Message
from clew.conversation.source import Session, Source, Stream
from clew.errors import UnwritableContent
from clew.formats.opencode import FORMAT
from clew.formats.protocol import Found, Home
from clew.formats.rows import encode_row
from opencode_samples import ID, joined, keys, options, read_bytes, written_rows

PNG = "data:image/png;base64,iVBORw0KGgo="


class Rows:
    """Rows of a session, made by hand."""

    def __init__(self, **session: Any) -> None:
        facts = {"id": ID, "directory": "/home/dev1/proj/loom", "title": "Knots", "version": "1.18.33"} | session
        facts = {name: json.dumps(v) if isinstance(v, dict) else v for name, v in facts.items()}
        self.lines = [encode_row("session", list(facts), list(facts.values()))]
        self.count = 0

    def message(self, id_: str, role: str, *parts: dict[str, Any], **data: Any) -> Rows:
        self.count += 1
        info = {"role": role, "time": {"created": self.count}} | data
        columns = ["id", "session_id", "time_created", "data"]
        self.lines.append(encode_row("message", columns, [id_, ID, self.count, json.dumps(info)]))
        for number, part in enumerate(parts):
            values = [f"prt_{self.count}_{number}", id_, ID, json.dumps(part)]
            self.lines.append(encode_row("part", ["id", "message_id", "session_id", "data"], values))
        return self

    def user(self, id_: str, *parts: dict[str, Any] | str) -> Rows:
        return self.message(id_, "user", *(text(p) if isinstance(p, str) else p for p in parts))

    def reply(self, id_: str, *parts: dict[str, Any] | str, **data: Any) -> Rows:
        more = {"modelID": "m-1", "providerID": "p-1", "finish": "stop"} | data
        return self.message(id_, "assistant", *(text(p) if isinstance(p, str) else p for p in parts), **more)

    def read(self) -> Session:
        return read_bytes(b"".join(self.lines))


def text(said: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": said} | more


def tool(call: str, status: str, **state: Any) -> dict[str, Any]:
    state = {"status": status, "input": {"command": "ls"}} | state
    return {"type": "tool", "tool": "bash", "callID": call, "state": state}


def said(messages: tuple[Message, ...]) -> list[tuple[str, str]]:
    return [(message.role, message.text) for message in messages]


def test_texts_calls_and_results_in_order() -> None:
    session = (
        Rows()
        .user("u1", "go")
        .reply(
            "a1",
            {"type": "step-start"},
            {"type": "reasoning", "text": "hm", "time": {"start": 1}},
            "I look.",
            tool("c1", "completed", output="x\n", title="", metadata={}, time={"start": 1, "end": 2}),
            tool("c2", "error", error="no such file", time={"start": 1, "end": 2}),
            {"type": "step-finish", "reason": "tool-calls"},
        )
        .reply("a2", "Done.")
        .read()
    )
    assert said(session.messages) == [
        ("user", "go"),
        ("assistant", "I look."),
        ("tool", "x\n"),
        ("tool", "no such file"),
        ("assistant", "Done."),
    ]
    assert [m.is_error for m in session.messages if m.role == "tool"] == [False, True]
    assert session.created_by == (1, 3, 7, 8, 10)
    assert session.history is session.messages
    assert (session.model, session.provider, session.title) == ("m-1", "p-1", "Knots")


@pytest.mark.parametrize("status", ["pending", "running"])
def test_a_call_that_was_cut_off_stays_open(status: str) -> None:
    rows = Rows().user("u1", "go").reply("a1", tool("c1", status, raw="{", time={"start": 1}))
    session = rows.user("u2", "and?").read()
    assert said(session.messages) == [("user", "go"), ("assistant", ""), ("user", "and?")]
    assert session.messages[1].calls[0].id == "c1"


def test_a_result_belongs_to_its_own_call_also_where_ids_repeat() -> None:
    done = tool("c1", "completed", output="mine", title="", metadata={}, time={"start": 1, "end": 2})
    session = Rows().user("u1", "go").reply("a1", tool("c1", "running")).user("u2", "x").reply("a2", done).read()
    assert said(session.messages)[-1] == ("tool", "mine")
    assert session.messages[-1].call_id == session.messages[-2].calls[0].id != "c1"


def test_an_interrupted_tool_gives_what_it_had() -> None:
    state = tool("c1", "error", error="Tool execution aborted", metadata={"interrupted": True, "output": "half"})
    session = Rows().user("u1", "go").reply("a1", state).read()
    assert said(session.messages)[-1] == ("tool", "half")


def test_a_cleared_result_is_cleared_for_the_model_and_whole_in_the_history() -> None:
    old = tool("c1", "completed", output="long ago", title="", metadata={}, time={"start": 1, "end": 2, "compacted": 9})
    session = Rows().user("u1", "go").reply("a1", old).read()
    assert session.messages[-1].text == "[Old tool result content cleared]"
    assert session.history[-1].text == "long ago"


def test_what_the_agent_put_beside_a_prompt_is_a_message_of_its_own() -> None:
    session = (
        Rows()
        .user(
            "u1",
            text("Called the Read tool with the following input: {}", synthetic=True),
            text("the file's text", synthetic=True),
            {"type": "file", "mime": "text/plain", "url": "file:///x", "filename": "x"},
            "Look at it.",
            text("<system-reminder>\nplan\n</system-reminder>", synthetic=True),
            text("for the screen only", ignored=True),
        )
        .reply("a1", "Yes.")
        .read()
    )
    assert [(m.role, m.origin, m.kind) for m in session.messages] == [
        ("user", "agent", "notice"),
        ("user", "user", ""),
        ("assistant", "model", ""),
    ]
    assert session.messages[0].text.endswith("the file's text")
    assert session.messages[1].text == "Look at it."
    assert session.created_by == (1, 5, 8)


def test_a_reminder_that_a_person_typed_is_what_he_said() -> None:
    session = Rows().user("u1", "<system-reminder>x</system-reminder>").read()
    assert said(session.messages) == [("user", "<system-reminder>x</system-reminder>")]


def test_images_and_other_files() -> None:
    rows = Rows().user(
        "u1",
        {"type": "file", "mime": "image/png", "url": PNG},
        {"type": "file", "mime": "application/pdf", "url": "data:application/pdf;base64,AA=="},
    )
    shown = tool("c1", "completed", output="", attachments=[{"type": "file", "mime": "image/png", "url": PNG}])
    session = rows.reply("a1", shown).read()
    assert session.messages[0].parts == (Image("image/png", "iVBORw0KGgo="),)
    assert session.messages[2].images == (Image("image/png", "iVBORw0KGgo="),)
    assert [(loss.what, loss.count) for loss in session.losses] == [("attached files", 1)]


def test_a_failed_reply_is_not_sent_and_an_aborted_one_with_content_is() -> None:
    failed = {"name": "APIError", "data": {"message": "overloaded"}}
    aborted = {"name": "MessageAbortedError", "data": {"message": "Aborted"}}
    session = (
        Rows()
        .user("u1", "go")
        .reply("a1", "half an", error=failed)
        .user("u2", "again")
        .reply("a2", "half a", error=aborted)
        .user("u3", "once more")
        .reply("a3", {"type": "step-start"}, error=aborted)
        .read()
    )
    assert [text for _, text in said(session.messages)] == ["go", "again", "half a", "once more"]
    assert [text for _, text in said(session.history)] == ["go", "half an", "again", "half a", "once more"]


def compacted(**more: Any) -> Rows:
    return (
        Rows()
        .user("u1", "one")
        .reply("a1", "first")
        .user("u2", "two")
        .reply("a2", "second")
        .user("u3", {"type": "compaction", "auto": False, **more})
        .reply("a3", "The summary.", summary=True, parentID="u3")
        .user("u4", "three")
        .reply("a4", "third")
    )


def test_from_a_compaction_on_only_the_summary_is_sent() -> None:
    session = compacted().read()
    assert [text for _, text in said(session.messages)] == ["What did we do so far?", "The summary.", "three", "third"]
    assert session.messages[1].kind == "summary"
    assert [text for _, text in said(session.history)][:4] == ["one", "first", "two", "second"]
    assert [boundary.at for boundary in session.boundaries] == [4]


def test_what_is_kept_of_the_past_stands_behind_the_summary() -> None:
    session = compacted(tail_start_id="u2").read()
    assert [text for _, text in said(session.messages)] == [
        "What did we do so far?",
        "The summary.",
        "two",
        "second",
        "three",
        "third",
    ]


def test_a_compaction_that_failed_changes_nothing() -> None:
    rows = compacted()
    rows.lines = [
        line.replace(b'"summary": true', b'"summary": true, "error": {"name":"APIError"}') for line in rows.lines
    ]
    assert said(rows.read().messages)[0] == ("user", "one")


@pytest.mark.parametrize(
    ("revert", "left", "gone"),
    [
        ({"messageID": "u2"}, ["one", "first"], ["two", "second", "third"]),
        ({"messageID": "a2", "partID": "prt_4_1"}, ["one", "first", "two", "second"], ["third"]),
        ({"messageID": "a2", "partID": "prt_gone"}, ["one", "first", "two", "secondthird"], []),
        ({"messageID": "msg_gone"}, ["one", "first", "two", "secondthird"], []),
    ],
)
def test_what_was_taken_back_is_a_branch(revert: dict[str, str], left: list[str], gone: list[str]) -> None:
    rows = Rows(revert=revert).user("u1", "one").reply("a1", "first").user("u2", "two").reply("a2", "second", "third")
    session = rows.read()
    assert [text for _, text in said(session.messages)] == left
    found = "".join(text for branch in session.branches for _, text in said(branch.messages))
    assert found == "".join(gone)


def test_what_comes_later_stands_before_what_was_taken_back() -> None:
    rows = Rows(revert={"messageID": "u2"}).user("u1", "one").reply("a1", "first")
    rows.count = 1000
    session = rows.user("u2", "two").reply("a2", "second").read()
    more = (make_user("instead"), make_assistant("of it"))
    data = joined(FORMAT.splice(session, more, options()))  # type: ignore[misc]
    after = read_bytes(data)
    assert [text for _, text in said(after.messages)] == ["one", "first", "instead", "of it"]
    assert [text for _, text in said(after.branches[0].messages)] == ["two", "second"]
    times = [json.loads(line)["row"]["time_created"] for line in data.splitlines() if b'"table":"message"' in line]
    assert times == sorted(set(times))
    for line in b"".join(rows.lines).splitlines():
        assert line in data


@pytest.mark.parametrize("revert", [{"messageID": "a1", "partID": "prt_2_1"}, {"messageID": "u2"}])
def test_where_nothing_can_stand_behind_it_nothing_is_put(revert: dict[str, str]) -> None:
    rows = Rows(revert=revert).user("u1", "one").reply("a1", "first", "part").user("u2", "two")
    with pytest.raises(UnwritableContent) as refused:
        joined(FORMAT.splice(rows.read(), (make_user("instead"),), options()))  # type: ignore[misc]
    assert refused.value.code == "reverted"


def test_two_processes_on_one_session_leave_one_list() -> None:
    rows = Rows().user("u1", "mine").user("u2", "theirs").reply("a1", "to me", parentID="u1")
    session = rows.reply("a2", "to them", parentID="u2").read()
    assert [text for _, text in said(session.messages)] == ["mine", "theirs", "to meto them"]


def test_helpers_and_their_parent_are_named() -> None:
    task = tool("c1", "completed", output="x", metadata={"sessionId": "ses_child"})
    task["tool"] = "task"
    session = Rows().user("u1", {"type": "subtask", "prompt": "p"}).reply("a1", task).read()
    assert [(r.relation, r.session_id) for r in session.references] == [("helper", "ses_child")]
    assert session.messages[0].text == "The following tool was executed by the user"
    assert (session.messages[0].origin, session.messages[0].kind) == ("agent", "command")
    child = Rows(parent_id="ses_parent").user("u1", "help").read()
    assert child.helper
    assert [(r.relation, r.session_id) for r in child.references] == [("helper_of", "ses_parent")]


def test_a_title_that_the_agent_made_of_the_time_is_none() -> None:
    assert Rows(title="New session - 2026-11-30T20:46:00.000Z").read().title == ""


def test_rows_that_say_nothing_readable_are_reported() -> None:
    rows = Rows().user("u1", "one")
    columns = ["id", "session_id", "time_created", "data"]
    rows.lines.append(encode_row("message", columns, ["m", ID, 9, "no json"]))
    rows.lines.append(encode_row("message", columns, ["n", ID, 9, '{"role":"user","time":"\ud7ff"']))
    rows.lines.append(b'{"not":"a row"}\n')
    session = rows.read()
    assert said(session.messages) == [("user", "one")]
    assert [damage.sort for damage in session.damage] == ["unreadable row", "unreadable row", "foreign record"]


def test_json_that_only_a_lenient_parser_takes_is_read() -> None:
    rows = Rows()
    columns = ["id", "session_id", "time_created", "data"]
    rows.lines.append(encode_row("message", columns, ["m", ID, 9, '{"role":"user",\n"time":{"created":1}}']))
    data = '{"type":"text","text":"half \\ud83e of one"}'
    rows.lines.append(encode_row("part", ["id", "message_id", "session_id", "data"], ["p", "m", ID, data]))
    assert said(rows.read().messages) == [("user", "half \ufffd of one")]


def test_what_clew_wrote_names_no_provider_and_keeps_the_model() -> None:
    messages = (make_user("hi"), make_assistant("ho", model="opus"))
    session = read_bytes(written_rows(messages))
    assert (session.model, session.provider) == ("opus", "")


def test_an_invented_answer_disappears_also_without_its_mark() -> None:
    messages = (make_user("hi"), make_assistant(make_call("c", "Bash", "{}")))
    data = written_rows(messages).replace(b'"metadata":{"clew":{"invented":true}}', b'"metadata":{}')
    session = read_bytes(data)
    assert keys(session.messages) == keys(messages)


# --- exports and files --------------------------------------------------------------------------------------------


def export_of(session: Session) -> bytes:
    """Returns what the agent's own export would be of rows: ids inside, columns gone."""
    rows = [json.loads(bytes(session.records[n])) for n in range(len(session.records))]
    found: dict[str, Any] = {
        "info": {"id": session.id, "directory": session.cwd, "title": session.title},
        "messages": [],
    }
    for row in rows:
        values = row["row"]
        if row["table"] == "message":
            found["messages"].append({"info": values["data"]["json"] | {"id": values["id"]}, "parts": []})
        elif row["table"] == "part":
            part = values["data"]["json"] | {"id": values["id"], "messageID": values["message_id"]}
            found["messages"][-1]["parts"].append(part)
    return json.dumps(found, indent=2).encode()


def test_an_export_says_the_same_as_the_rows(tmp_path: Path) -> None:
    rows = compacted(tail_start_id="u2").read()
    path = tmp_path / "session.json"
    path.write_bytes(export_of(rows))
    assert FORMAT.locate.claims(path, path.read_bytes()[:4096])
    session = FORMAT.read(FORMAT.locate.load(Found("opencode", "session", path, (path,)), Home(tmp_path)))
    assert keys(session.messages) == keys(rows.messages)
    assert (session.id, session.cwd, session.title) == (rows.id, rows.cwd, rows.title)
    assert len(session.records) == 1
    assert bytes(session.records[0]) == path.read_bytes()
    assert set(session.created_by) == {None}


def test_other_json_is_not_claimed(tmp_path: Path) -> None:
    for head in (b'{"info":{"id":"x"}}', b'{"messages":[]}', b'[{"info":{"id":"ses_1"}}]', b""):
        assert not FORMAT.locate.claims(tmp_path / "x.json", head)


def tree(home: Home, rows: Session) -> Path:
    """Lays a session out as files, as older versions did."""
    storage = FORMAT.locate.base(home) / "storage"
    export = json.loads(export_of(rows))

    def put(path: Path, value: Any) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(value))

    put(storage / "session" / "global" / f"{rows.id}.json", export["info"])
    for message in export["messages"]:
        put(storage / "message" / rows.id / f"{message['info']['id']}.json", message["info"])
        for part in message["parts"]:
            put(storage / "part" / message["info"]["id"] / f"{part['id']}.json", part)
    return storage


def test_files_of_the_older_layout_are_read(tmp_path: Path) -> None:
    home, rows = Home(tmp_path), Rows().user("u1", "one").reply("a1", "first", "half").user("u2", "two").read()
    tree(home, rows)
    (found,) = FORMAT.locate.find(home)
    assert (found.id, found.cwd_hint, found.problem) == (ID, "/home/dev1/proj/loom", "")
    session = FORMAT.read(FORMAT.locate.load(found, home))
    assert keys(session.messages) == keys(rows.messages)
    assert len(session.records) == 8
    with pytest.raises(UnwritableContent, match="older OpenCode"):
        joined(FORMAT.splice(session, (make_user("x"),), options()))  # type: ignore[misc]


def test_the_first_layout_is_listed_and_refused_by_name(tmp_path: Path) -> None:
    home = Home(tmp_path)
    path = FORMAT.locate.base(home) / "project" / "loom" / "storage" / "session" / "info" / "ses_1.json"
    path.parent.mkdir(parents=True)
    path.write_text("{}")
    (found,) = FORMAT.locate.find(home)
    assert "first layout" in found.problem


def test_a_stream_of_nothing_is_no_session() -> None:
    session = FORMAT.read(Source((Stream("opencode.db#x", b""),)))
    assert session.messages == ()
    assert FORMAT.read(Source(())).messages == ()
