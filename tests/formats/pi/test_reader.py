"""What a reading of a pi session gives: branches, compactions, edits, broken replies, old layouts, damage."""

from __future__ import annotations

import json
from typing import Any

from clew.conversation.source import Session, Source, Stream
from clew.formats.pi import FORMAT

HEADER = {"type": "session", "version": 3, "id": "s-1", "timestamp": "2026-11-30T12:00:00.000Z", "cwd": "/w"}


class Native:
    """A session as pi writes it, entry by entry."""

    def __init__(self, **header: Any) -> None:
        self.rows: list[dict[str, Any]] = [HEADER | header]
        self.last: str | None = None

    def add(self, sort: str, *, parent: Any = "", **members: Any) -> str:
        """Adds an entry behind the last one, or behind `parent`."""
        name = f"e{len(self.rows)}"
        row = {"type": sort, "id": name, "parentId": self.last if parent == "" else parent, "timestamp": "x"}
        self.rows.append(row | members)
        self.last = name
        return name

    def say(self, role: str, text: Any, *, parent: Any = "", **members: Any) -> str:
        content = [{"type": "text", "text": text}] if isinstance(text, str) else text
        return self.add("message", parent=parent, message={"role": role, "content": content, "timestamp": 1} | members)

    def data(self) -> bytes:
        return b"".join(json.dumps(row).encode() + b"\n" for row in self.rows)

    def read(self) -> Session:
        return read(self.data())


def read(data: bytes, **more: Any) -> Session:
    return FORMAT.read(Source((Stream("sessions/--w--/x.jsonl", data),), hint_id="x", **more))


def texts(session: Session) -> list[str]:
    return [m.text for m in session.messages]


def test_the_last_line_is_the_leaf_and_the_rest_are_branches() -> None:
    n = Native()
    n.add("model_change", provider="p", modelId="m")
    first = n.say("user", "one")
    n.say("assistant", "dead end")
    n.say("user", "further")
    n.say("assistant", "other way", parent=first, provider="q", model="m2")
    session = n.read()
    assert texts(session) == ["one", "other way"]
    assert [(b.at, [m.text for m in b.messages]) for b in session.branches] == [(1, ["dead end", "further"])]
    assert (session.id, session.cwd, session.model, session.provider) == ("s-1", "/w", "m2", "q")


def test_a_label_on_an_older_entry_moves_the_leaf_as_pi_moves_it() -> None:
    n = Native()
    first = n.say("user", "one")
    n.say("assistant", "two")
    n.add("label", parent=first, targetId=first, label="x")
    assert texts(n.read()) == ["one"]


def test_a_second_root_begins_anew() -> None:
    n = Native()
    n.say("user", "one")
    n.say("user", "again", parent=None)
    session = n.read()
    assert texts(session) == ["again"]
    assert not session.damage
    assert [[m.text for m in b.messages] for b in session.branches] == [["one"]]


def test_a_missing_parent_is_joined_and_told() -> None:
    n = Native()
    n.say("user", "one")
    n.say("assistant", "two", parent="gone")
    session = n.read()
    assert texts(session) == ["one", "two"]
    assert [(d.sort, d.record, d.lost) for d in session.damage] == [("broken link", 2, False)]


def test_of_two_entries_with_one_id_the_last_counts() -> None:
    n = Native()
    n.say("user", "one")
    n.say("assistant", "two")
    n.rows.append(n.rows[-1] | {"message": {"role": "assistant", "content": [{"type": "text", "text": "2"}]}})
    session = n.read()
    assert texts(session) == ["one", "2"]
    assert [d.sort for d in session.damage] == ["repeated record"]


def test_parents_in_a_circle_end() -> None:
    n = Native()
    a = n.say("user", "one")
    n.say("user", "two")
    n.rows[1]["parentId"] = n.last
    assert set(texts(n.read())) == {"one", "two"}
    assert a == "e1"


def test_a_compaction_stands_for_what_was_before() -> None:
    n = Native()
    n.say("user", "one")
    n.say("assistant", "two")
    kept = n.say("user", "three")
    n.say("assistant", "four")
    n.add("compaction", summary="SUM", firstKeptEntryId=kept, tokensBefore=1)
    n.say("user", "five")
    session = n.read()
    assert [m.kind for m in session.messages] == ["summary", "", "", ""]
    assert "SUM" in session.messages[0].text
    assert texts(session)[1:] == ["three", "four", "five"]
    assert len(session.history) == 6
    assert [b.at for b in session.boundaries] == [4]
    assert session.history[4].kind == "summary"


def test_a_second_compaction_silences_the_first() -> None:
    n = Native()
    kept = n.say("user", "one")
    n.add("compaction", summary="S1", firstKeptEntryId=kept, tokensBefore=1)
    n.say("user", "two")
    n.add("compaction", summary="S2", firstKeptEntryId=kept, tokensBefore=1)
    session = n.read()
    assert [t if "S" not in t else "sum" for t in texts(session)] == ["sum", "one", "two"]
    assert "S2" in session.messages[0].text
    none = Native()
    none.say("user", "one")
    none.add("compaction", summary="S", firstKeptEntryId="e2", tokensBefore=1)  # it keeps nothing: its own id
    assert len(none.read().messages) == 1


def test_context_edits_change_what_is_sent_and_not_what_was_said() -> None:
    n = Native()
    first = n.say("user", "secret")
    second = n.say("assistant", "long")
    n.add("context_edit", targetId=first, replacement=None)
    n.add("context_edit", targetId=second, replacement={"content": "short"})
    n.add("context_edit", targetId="gone", replacement=None)
    session = n.read()
    assert texts(session) == ["short"]
    assert [m.text for m in session.history] == ["secret", "long"]


def test_replies_that_broke_off_are_history_alone() -> None:
    n = Native()
    n.say("user", "one")
    n.say("assistant", "half", stopReason="aborted")
    n.say("assistant", "whole", stopReason="stop")
    session = n.read()
    assert texts(session) == ["one", "whole"]
    assert [m.text for m in session.history] == ["one", "halfwhole"]


def test_what_was_put_there_by_the_agent_is_of_the_agent() -> None:
    n = Native()
    n.say("system", "prompt")
    n.say("custom", "note", customType="x")
    n.add("custom_message", customType="x", content="more", display=True)
    n.add("custom", customType="x", data={"a": 1})
    n.add("branch_summary", fromId="e1", summary="left")
    run = {"role": "bashExecution", "command": "ls", "output": "a\n", "exitCode": 2, "cancelled": False}
    n.add("message", message=run)
    n.add("message", message=run | {"excludeFromContext": True})
    session = n.read()
    assert [(m.origin, m.kind) for m in session.messages] == [
        ("agent", "notice"),
        ("agent", "notice"),
        ("agent", "summary"),
        ("agent", "command"),
    ]
    assert texts(session)[3] == "Ran `ls`\n```\na\n\n```\n\nCommand exited with code 2"


def test_older_layouts_are_plain_lists() -> None:
    rows: list[Any] = [
        {"type": "session", "id": "old", "cwd": "/w"},
        {"type": "message", "message": {"role": "user", "content": "one"}},
        {"type": "message", "message": {"role": "assistant", "content": [{"type": "text", "text": "two"}]}},
        {"type": "compaction", "summary": "S", "firstKeptEntryIndex": 2},
        {"type": "message", "message": {"role": "user", "content": "three"}},
    ]
    session = read(b"".join(json.dumps(row).encode() + b"\n" for row in rows))
    assert [m.text for m in session.history if m.kind != "summary"] == ["one", "two", "three"]
    assert texts(session)[1:] == ["two", "three"]
    hook = Native(version=2)
    hook.say("hookMessage", "x")
    assert hook.read().messages[0].origin == "agent"


def test_a_newer_layout_is_named() -> None:
    n = Native(version=4)
    n.say("user", "one")
    session = n.read()
    assert texts(session) == ["one"]
    assert [(d.sort, d.lost) for d in session.damage] == [("newer layout", True)]


def test_names_parents_and_times() -> None:
    n = Native(parentSession="/h/.pi/agent/sessions/--w--/2026-11-30T12-00-00-000Z_s-0.jsonl")
    n.add("session_info", name="first")
    n.say("user", "one", timestamp=1_796_000_000_000)
    n.say("assistant", "two", timestamp=1_796_000_060_000)
    n.add("session_info", name=" second ")
    session = n.read()
    assert session.title == "second"
    assert [(r.relation, r.session_id) for r in session.references] == [("forked", "s-0")]
    assert (session.created_ms, session.updated_ms) == (1_796_000_000_000, 1_796_000_060_000)


def test_results_find_their_calls_and_strays_are_told() -> None:
    n = Native()
    call = {"type": "toolCall", "id": "c1", "name": "f", "arguments": {"a": 1}, "namespace": "n"}
    n.say("assistant", [{"type": "thinking", "thinking": "hm"}, call])
    n.say("toolResult", "r", toolCallId="c1", toolName="f", isError=True)
    n.say("toolResult", "r2", toolCallId="c9", toolName="f", isError=False)
    session = n.read()
    assert [c.name for c in session.messages[0].calls] == ["n.f"]
    assert (session.messages[1].text, session.messages[1].is_error) == ("r", True)
    assert [(d.sort, d.record) for d in session.damage] == [("stray result", 3)]


def test_an_odd_member_costs_no_record() -> None:
    data = json.dumps(HEADER).encode() + b"\n"
    data += (
        b'{"type":"message","id":"a","parentId":null,"n":1e999,"message":{"role":"user","content":"hi","x":-1e999}}\n'
    )
    data += b'{"type":"message","id":"b","parentId":"a","message":7}\n'
    data += b'{"type":"message","id":"c","parentId":"b","message":{"role":"assistant","content":null}}\n'
    session = read(data)
    assert texts(session) == ["hi"]


def test_a_growing_file_may_end_in_the_middle() -> None:
    n = Native()
    n.say("user", "one")
    data = n.data() + b'{"type":"mess'
    assert [d.sort for d in read(data, growing=True).damage] == ["still being written"]
    assert [d.sort for d in read(data).damage] == ["torn tail"]
