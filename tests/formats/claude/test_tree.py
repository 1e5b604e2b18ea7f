"""Reading native sessions: the tree and its leaf, strangers in it, compactions, helpers and forks."""

from __future__ import annotations

import json

import pytest

from claude_samples import ID, OTHER, Native, call, read_data, said, sorts
from clew.conversation.source import SideFile


@pytest.mark.parametrize("stale", [True, False])
def test_the_last_prompt_chooses_the_branch(stale: bool) -> None:
    n = Native()
    n.user("one")
    fork = n.reply("m1", "yes")
    n.user("old way")
    old = n.reply("m2", "old")
    n.user("new way", parent=fork)
    new = n.reply("m3", "new")
    n.leaf(old if stale else new)
    session = n.read()
    taken, left = ("old", "new") if stale else ("new", "old")
    assert said(session.messages)[-1] == ("assistant", taken)
    assert [(b.at, said(b.messages)) for b in session.branches] == [
        (2, [("user", f"{left} way"), ("assistant", left)]),
    ]


def test_without_a_last_prompt_the_last_record_is_the_leaf() -> None:
    n = Native()
    n.user("one")
    fork = n.reply("m1", "yes")
    n.user("old way")
    n.user("new way", parent=fork)
    session = n.read()
    assert said(session.messages)[-1] == ("user", "new way")
    n.leaf("unknown")
    assert n.read().messages == session.messages


def test_a_named_leaf_with_a_descendant_at_the_end_gives_way_to_it() -> None:
    n = Native()
    n.user("one")
    middle = n.reply("m1", "yes")
    n.user("two")
    n.leaf(middle)
    assert said(n.read().messages)[-1] == ("user", "two")


def test_an_inner_leaf_that_is_named_hides_its_own_children_where_another_branch_is_last() -> None:
    n = Native()
    n.user("one")
    fork = n.reply("m1", "yes")
    inner = n.user("two")
    n.reply("m2", "child")
    n.user("other", parent=fork)
    n.leaf(inner)
    session = n.read()
    assert said(session.messages) == [("user", "one"), ("assistant", "yes"), ("user", "two")]
    assert [said(b.messages) for b in session.branches] == [[("assistant", "child")], [("user", "other")]]
    assert [b.at for b in session.branches] == [3, 2]


def test_nested_branches_hold_every_message_once() -> None:
    n = Native()
    root = n.user("root")
    a = n.user("a", parent=root)
    n.user("a1", parent=a)
    n.user("a2", parent=a)
    n.user("b", parent=root)
    session = n.read()
    assert said(session.messages) == [("user", "root"), ("user", "b")]
    assert [(b.number, b.at, said(b.messages)) for b in session.branches] == [
        (1, 1, [("user", "a"), ("user", "a2")]),
        (2, 1, [("user", "a1")]),
    ]


def test_order_of_lines_and_of_times_does_not_matter() -> None:
    n = Native()
    for i in range(6):
        n.user(f"t{i}", timestamp=f"20{30 - i}-01-01T00:00:00Z")
    straight = n.read()
    n.rows.reverse()
    n.leaf("u6")
    assert said(n.read().messages) == said(straight.messages)
    assert not n.read().damage


def test_broken_links_are_joined_in_file_order_and_reported() -> None:
    n = Native()
    n.user("one")
    n.reply("m1", "yes")
    n.user("two", parent="gone")
    session = n.read()
    assert said(session.messages) == [("user", "one"), ("assistant", "yes"), ("user", "two")]
    assert sorts(session) == [("broken link", 2)]
    assert "gone" in session.damage[0].detail
    assert session.damage[0].offset == len(b"".join(n.data().splitlines(keepends=True)[:2]))


def test_a_link_broken_by_a_lost_record_is_told_once_with_the_loss() -> None:
    n = Native()
    n.user("one")
    n.user("lost")
    n.user("three")
    lines = n.data().splitlines(keepends=True)
    session = read_data(lines[0] + lines[1][:80] + b"\n" + lines[2])
    assert said(session.messages) == [("user", "one"), ("user", "three")]
    assert [(d.sort, d.lost) for d in session.damage] == [("not json", True)]
    assert "record 2 is joined to record 0" in session.damage[0].detail


def test_records_that_name_no_parent_follow_each_other() -> None:
    rows = [
        {"type": "user", "message": {"role": "user", "content": "one"}},
        {"type": "assistant", "message": {"role": "assistant", "content": "two"}},
        {"type": "user", "uuid": "x", "message": {"role": "user", "content": "three"}},
    ]
    session = read_data(b"".join(json.dumps(r).encode() + b"\n" for r in rows))
    assert said(session.messages) == [("user", "one"), ("assistant", "two"), ("user", "three")]
    assert sorts(session) == [("broken link", 1)]


def test_a_root_in_the_middle_cuts_as_the_agent_does_and_the_rest_is_a_branch() -> None:
    n = Native()
    n.user("one")
    n.user("two")
    n.user("three", parent=None)
    n.user("four")
    session = n.read()
    assert said(session.messages) == [("user", "three"), ("user", "four")]
    assert [(b.at, said(b.messages)) for b in session.branches] == [(0, [("user", "one"), ("user", "two")])]


def test_loops_end() -> None:
    n = Native()
    n.user("one", parent="u2")
    n.user("two", parent="u1")
    n.user("self", parent="u3")
    session = n.read()
    assert {text for _, text in said(session.messages)} | {"self"} == {"one", "two", "self"}


def test_a_repeated_uuid_counts_at_its_first_place() -> None:
    n = Native()
    n.user("one")
    n.reply("m1", "yes")
    n.rows += n.rows[:2]
    n.last = "u2"
    n.user("two")
    session = n.read()
    assert said(session.messages) == [("user", "one"), ("assistant", "yes"), ("user", "two")]
    assert sorts(session) == [("repeated record", 2), ("repeated record", 3)]
    assert not any(d.lost for d in session.damage)


def test_records_of_a_stranger_are_left_out_wherever_they_stand() -> None:
    n = Native()
    n.user("mine")
    last = n.reply("m1", "yes")
    n.user("theirs", parent=None, sessionId=OTHER)
    n.reply("m9", "no", sessionId=OTHER)
    session = n.read()
    assert said(session.messages) == [("user", "mine"), ("assistant", "yes")]
    assert sorts(session) == [("foreign record", 2), ("foreign record", 3)]
    assert not session.branches
    n.user("mine again", parent=last)
    assert said(n.read().messages)[-1] == ("user", "mine again")


def test_a_copied_history_with_its_old_id_is_no_stranger() -> None:
    n = Native(OTHER)
    n.user("copied")
    n.reply("m1", "too")
    n.session_id = ID
    n.user("gone on")
    session = n.read()
    assert said(session.messages) == [("user", "copied"), ("assistant", "too"), ("user", "gone on")]
    assert not session.damage


@pytest.mark.parametrize("recorded", [OTHER, ...])
def test_the_name_of_the_file_rules_over_the_recorded_id(recorded: object) -> None:
    n = Native()
    n.user("one", sessionId=recorded)
    n.user("two", sessionId=recorded)
    session = n.read()
    assert session.id == ID
    assert len(session.messages) == 2
    assert not session.damage


def test_a_compaction_leaves_the_history_and_cuts_the_context() -> None:
    n = Native()
    n.user("one")
    last = n.reply("m1", "yes")
    n.add("system", subtype="compact_boundary", parent=None, logicalParentUuid=last)
    n.user("sum", isCompactSummary=True, isVisibleInTranscriptOnly=True)
    n.user("two")
    session = n.read()
    assert [(m.text, m.origin, m.kind) for m in session.messages] == [("sum", "agent", "summary"), ("two", "user", "")]
    assert said(session.history) == [("user", "one"), ("assistant", "yes"), ("user", "sum"), ("user", "two")]
    assert [b.at for b in session.boundaries] == [2]
    assert not session.damage


def test_the_last_of_two_compactions_counts() -> None:
    n = Native()
    n.user("one")
    n.add("system", subtype="compact_boundary", parent=None, logicalParentUuid="u1")
    n.user("sum1", isCompactSummary=True)
    n.add("system", subtype="compact_boundary", parent=None, logicalParentUuid="u3")
    n.user("sum2", isCompactSummary=True)
    session = n.read()
    assert said(session.messages) == [("user", "sum2")]
    assert said(session.history) == [("user", "one"), ("user", "sum1"), ("user", "sum2")]
    assert [b.at for b in session.boundaries] == [1, 2]


def test_a_boundary_that_names_nothing_is_joined_in_file_order() -> None:
    n = Native()
    n.user("one")
    n.add("system", subtype="compact_boundary", parent=None)
    n.user("sum", isCompactSummary=True)
    assert said(n.read().history) == [("user", "one"), ("user", "sum")]
    n.rows[1]["parentUuid"] = "u1"
    assert said(n.read().messages) == [("user", "sum")]


@pytest.mark.parametrize("form", ["messages", "segment"])
def test_what_a_compaction_preserved_stands_behind_the_summary(form: str) -> None:
    n = Native()
    n.user("one")
    n.user("two")
    n.reply("m1", "kept")
    messages = {"anchorUuid": "u5", "uuids": ["u2", "u3"], "allUuids": ["u2", "u3"]}
    segment = {"headUuid": "u2", "anchorUuid": "u5", "tailUuid": "u3"}
    meta = {"preservedMessages": messages} if form == "messages" else {"preservedSegment": segment}
    n.add("system", subtype="compact_boundary", parent=None, logicalParentUuid="u3", compactMetadata=meta)
    n.user("sum", isCompactSummary=True)
    n.user("three")
    session = n.read()
    assert [m.text for m in session.messages] == ["sum", "two", "kept", "three"]
    assert session.created_by == (4, 1, 2, 5)
    assert [m.text for m in session.history] == ["one", "two", "kept", "sum", "three"]


def test_helpers_inline_are_branches_and_never_the_context() -> None:
    n = Native()
    n.user("go")
    n.reply("m1", call("a", "Task"))
    n.add("user", message={"role": "user", "content": "task"}, isSidechain=True, parent=None)
    n.reply("h1", "helper says", isSidechain=True)
    n.result("a", "report", parent="u2")
    session = n.read()
    assert said(session.messages) == [("user", "go"), ("assistant", ""), ("tool", "report")]
    assert [(b.at, said(b.messages)) for b in session.branches] == [
        (3, [("user", "task"), ("assistant", "helper says")])
    ]
    assert not session.helper


def test_a_helpers_own_file_is_its_conversation_and_names_its_parent() -> None:
    n = Native()
    n.user("task", isSidechain=True, agentId="a1")
    n.reply("h1", "done", isSidechain=True)
    path = f"projects/-home-dev1-work-shop/{ID}/subagents/agent-a1.jsonl"
    session = n.read(path=path, hint="agent-a1")
    assert said(session.messages) == [("user", "task"), ("assistant", "done")]
    assert session.helper
    assert session.id == "agent-a1"
    assert [(r.relation, r.session_id) for r in session.references] == [("helper_of", ID)]
    side = (SideFile(path, 0o600, 1, bytes),)
    main = n.read(side=side)
    assert ("helper", "agent-a1") in [(r.relation, r.session_id) for r in main.references]


def test_a_fork_names_the_session_that_its_replies_were_asked_in() -> None:
    n = Native()
    n.user("one")
    n.reply("m1", "two", requestSessionId=OTHER)
    assert [(r.relation, r.session_id) for r in n.read().references] == [("forked", OTHER)]
