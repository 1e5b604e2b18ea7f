"""What a reading of a Droid session gives: reminders, notices, compactions, results as they are sent, damage."""

from __future__ import annotations

import json
from typing import Any

from clew.conversation.source import Session, Source, Stream
from clew.formats.droid import FORMAT
from clew.laws.stored import group_keys, store_written, write_options

HEADER = {"type": "session_start", "id": "s-1", "title": "T", "owner": "o", "version": 2, "cwd": "/w"}


class Native:
    """A session as Droid writes it, record by record."""

    def __init__(self, **header: Any) -> None:
        self.rows: list[dict[str, Any]] = [HEADER | header]

    def add(self, sort: str, **members: Any) -> str:
        name = f"m{len(self.rows)}"
        self.rows.append(
            {"type": sort, "id": name, "timestamp": f"2026-11-30T12:00:{len(self.rows):02d}.000Z"} | members
        )
        return name

    def say(self, role: str, content: Any, **members: Any) -> str:
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        return self.add("message", message={"role": role, "content": blocks} | members)

    def answer(self, call_id: str, content: Any, *, failed: bool = False) -> str:
        block = {"type": "tool_result", "tool_use_id": call_id, "is_error": failed, "content": content}
        return self.say("user", [block])

    def call(self, call_id: str, name: str, **arguments: Any) -> str:
        return self.say("assistant", [{"type": "tool_use", "id": call_id, "name": name, "input": arguments}])

    def data(self) -> bytes:
        return b"".join(json.dumps(row).encode() + b"\n" for row in self.rows)

    def read(self) -> Session:
        return read(self.data())


def read(data: bytes, **more: Any) -> Session:
    return FORMAT.read(Source((Stream("sessions/-w/x.jsonl", data),), hint_id="x", **more))


def texts(session: Session) -> list[str]:
    return [m.text for m in session.messages]


def test_reminders_are_context_unless_somebody_typed_them() -> None:
    reminder = "<system-reminder>x</system-reminder>"
    n = Native()
    n.say("user", reminder, visibility="llm_only")
    n.say("user", reminder + "\n" + reminder)
    n.say("user", reminder, interactionMode="auto")
    n.say("user", [{"type": "text", "text": reminder}, {"type": "text", "text": "one"}])
    n.say("user", [{"type": "text", "text": reminder}, {"type": "text", "text": "two"}], interactionMode="auto")
    n.say("user", "before " + reminder)
    n.say("user", "a task has ended", visibility="llm_only")
    n.say("user", "shown to the user alone", visibility="user_only")
    session = n.read()
    assert texts(session) == [reminder, "one", "two", "before " + reminder, "a task has ended"]
    assert [(m.origin, m.kind) for m in session.messages] == [("user", "")] * 4 + [("agent", "notice")]


def test_the_head_and_the_times() -> None:
    n = Native(callingSessionId="s-0")
    n.say("user", "one")
    n.say("assistant", [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "two"}], modelId="m")
    session = n.read()
    assert (session.id, session.title, session.cwd, session.model, session.helper) == ("s-1", "T", "/w", "m", True)
    assert [(r.relation, r.session_id) for r in session.references] == [("helper_of", "s-0")]
    assert session.created_ms is not None
    assert session.updated_ms == session.created_ms + 1000
    forked = Native(parent="s-7").read()
    assert [(r.relation, r.session_id) for r in forked.references] == [("forked", "s-7")]


def test_a_compaction_stands_for_what_was_before_its_anchor() -> None:
    n = Native()
    n.say("user", "one")
    anchor = n.say("assistant", "two")
    n.say("user", "three")
    n.add("compaction_state", summaryText="SUM", anchorMessage={"id": anchor, "index": 1}, summaryKind="llm_summary")
    n.say("user", "four")
    session = n.read()
    assert [m.kind for m in session.messages] == ["summary", "", ""]
    assert "\n<summary>\nSUM\n</summary>\n" in session.messages[0].text
    assert texts(session)[1:] == ["three", "four"]
    assert [m.text for m in session.history if not m.kind] == ["one", "two", "three", "four"]
    assert [b.at for b in session.boundaries] == [3]


def test_an_anchor_by_its_place_moves_behind_results() -> None:
    n = Native()
    n.say("user", "one")
    n.call("c1", "Execute", command="ls")
    n.answer("c1", "a")
    n.say("assistant", "two")
    n.add(
        "compaction_state",
        summaryText="a ```` b",
        anchorMessage={"index": 1},
        summaryKind="provider_switch_serialization",
    )
    session = n.read()
    assert texts(session)[1:] == ["two"]
    assert "`````text\na ```` b\n`````" in session.messages[0].text
    last = Native()
    last.say("user", "one")
    last.add("compaction_state", summaryText="S")
    last.say("user", "two")
    assert texts(last.read())[1:] == ["two"]


def test_results_of_editing_tools_are_as_they_are_sent() -> None:
    n = Native()
    n.call("c1", "Create", file_path="/w/a")
    n.answer("c1", '{"success":true,"file_path":"/w/a"}')
    n.call("c2", "Edit", file_path="/w/a")
    n.answer("c2", '{"success":true,"file_path":"/w/a","systemReminder":"Look."}')
    n.call("c3", "Edit")
    n.answer("c3", "no JSON")
    n.call("c4", "Create")
    n.answer("c4", "no JSON")
    n.call("c5", "Edit")
    n.answer("c5", "Error: no such file", failed=True)
    results = [m.text for m in n.read().messages if m.role == "tool"]
    assert results == [
        "The file /w/a has been created successfully.",
        "The file /w/a has been updated successfully. Look.",
        "The file has been updated successfully.",
        "no JSON",
        "Error: no such file",
    ]


def test_a_result_that_is_not_there_yet_is_none() -> None:
    n = Native()
    n.call("c1", "Execute", command="sleep")
    n.answer("c1", "__TOOL_RESULT_PENDING__")
    session = n.read()
    assert [m.role for m in session.messages] == ["assistant"]
    n.answer("c1", [{"type": "text", "text": "done"}, image()])
    session = n.read()
    assert (session.messages[1].text, len(session.messages[1].images)) == ("done", 1)


def image() -> dict[str, Any]:
    return {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}


def test_strays_newer_layouts_and_odd_members() -> None:
    n = Native(version=3)
    n.answer("c9", "x")
    session = n.read()
    assert [(d.sort, d.lost) for d in session.damage] == [("newer layout", True), ("stray result", True)]
    data = json.dumps(HEADER).encode() + b"\n"
    data += b'{"type":"message","id":"a","n":1e999,"message":{"role":"user","content":"hi","x":1e999}}\n'
    data += b'{"type":"message","id":"b","message":[]}\n{"type":"from the future"}\n'
    assert texts(read(data)) == ["hi"]
    assert not read(data).damage


def test_a_growing_file_may_end_in_the_middle() -> None:
    n = Native()
    n.say("user", "one")
    data = n.data() + b'{"type":"mess'
    assert [d.sort for d in read(data, growing=True).damage] == ["still being written"]


def test_calls_with_the_names_of_editing_tools_are_renamed_and_come_back() -> None:
    from clew.conversation.builder import make_assistant, make_call, make_result

    said = (
        make_assistant(make_call("c1", "Edit", '{"a":1}'), make_call("c2", "Create", "{}")),
        make_result("c1", "The first line changed."),
        make_result("c2", '{"success":true,"file_path":"/w/a"}'),
    )
    assert FORMAT.write is not None
    stored = store_written(FORMAT, FORMAT.write(said, write_options()))
    assert b'"name":"Edit"' not in stored.data.replace(b'"clew"', b"").split(b'"calls"')[0]
    session = stored.read()
    assert group_keys(session.messages) == group_keys(said)
    assert session.messages[0].calls[0].name == "Edit"
