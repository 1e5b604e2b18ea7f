"""Going on behind a restored prefix, and making its records another session's."""

from __future__ import annotations

import json

from claude_samples import ID, INVENTED, OTHER, PATH, Native, call, joined, options, read_data, said
from clew.conversation.builder import make_assistant, make_call, make_result, make_user
from clew.conversation.model import Message
from clew.conversation.source import SideFile
from clew.formats.claude.rebase import change_id, rebase
from clew.formats.claude.splice import splice


def native() -> Native:
    n = Native()
    n.user("one", entrypoint="sdk-cli", version="2.1.100", gitBranch="topic")
    n.reply("m1", "text", entrypoint="sdk-cli", version="2.1.100", gitBranch="topic")
    return n


def spliced(data: bytes, *messages: Message, **more: str) -> tuple[bytes, list[dict[str, object]]]:
    """Returns the whole file, and the records that were added."""
    written = splice(read_data(data), messages, options(**more))
    assert written.files[0].path == PATH
    whole = joined(written)
    assert whole.startswith(data)
    return whole, [json.loads(line) for line in whole[len(data) :].splitlines() if line]


def test_new_records_go_on_from_the_leaf_in_the_prefixs_own_dialect() -> None:
    n = native()
    n.add("attachment", attachment={"type": "prompt_snapshot"}, version="2.1.100")
    n.leaf("u3")
    whole, added = spliced(n.data(), make_user("two"), make_assistant("three"), cwd="/other", title="T")
    assert [row["type"] for row in added] == ["user", "assistant", "last-prompt"]
    first = added[0]
    assert first["parentUuid"] == "u3"
    assert [first[k] for k in ("sessionId", "version", "entrypoint", "gitBranch")] == [
        ID,
        "2.1.100",
        "sdk-cli",
        "topic",
    ]
    assert first["cwd"] == n.cwd
    assert added[2]["leafUuid"] == added[1]["uuid"]
    assert said(read_data(whole).messages) == [
        ("user", "one"),
        ("assistant", "text"),
        ("user", "two"),
        ("assistant", "three"),
    ]


def test_a_session_without_last_prompts_gets_none() -> None:
    _, added = spliced(native().data(), make_user("two"))
    assert [row["type"] for row in added] == ["user"]


def test_the_leaf_is_the_chosen_one_not_the_last_line() -> None:
    n = native()
    n.user("dead end", parent="u1")
    n.leaf("u2")
    whole, added = spliced(n.data(), make_user("two"))
    assert added[0]["parentUuid"] == "u2"
    session = read_data(whole)
    assert said(session.messages)[-1] == ("user", "two")
    assert [said(b.messages) for b in session.branches] == [[("user", "dead end")]]


def test_a_missing_newline_is_put_in_and_a_torn_tail_is_ended() -> None:
    data = native().data()
    whole, _ = spliced(data[:-1], make_user("two"))
    assert whole[: len(data)] == data
    torn = data + b'{"parentUuid":"u2","uuid":"half'
    whole, _ = spliced(torn, make_user("two"))
    assert whole[len(torn) : len(torn) + 1] == b"\n"
    assert said(read_data(whole).messages) == [("user", "one"), ("assistant", "text"), ("user", "two")]


def test_open_calls_are_answered_first() -> None:
    n = native()
    n.reply("m2", call("a"))
    n.reply("m2", call("b"))
    n.result("a", "r", parent="u3")
    n.leaf("u4")
    whole, added = spliced(n.data(), make_user("two"))
    block = added[0]["message"]["content"][0]  # type: ignore[index]
    assert (block["tool_use_id"], block["content"], block["is_error"]) == ("b", INVENTED, True)
    assert added[0]["clew"] == {"invented": True}
    assert added[1]["parentUuid"] == added[0]["uuid"]
    assert said(read_data(whole).messages)[1:] == [("assistant", "text"), ("tool", "r"), ("user", "two")]


def test_call_ids_of_the_prefix_are_not_given_again() -> None:
    n = native()
    n.reply("m2", call("a"))
    n.result("a", "r")
    messages = (make_assistant(make_call("a", "Bash", "{}")), make_result("a", "again"))
    whole, added = spliced(n.data(), make_user("x"), *messages)
    block = added[1]["message"]["content"][0]  # type: ignore[index]
    assert block["id"] != "a"
    assert added[1]["clew"] == {"id": "a"}
    session = read_data(whole)
    assert [m.text for m in session.messages if m.role == "tool"] == ["r", "again"]
    assert session.messages[-1].call_id == "a"


def test_a_prefix_behind_a_compaction_goes_on() -> None:
    n = native()
    n.add("system", subtype="compact_boundary", parent=None, logicalParentUuid="u2")
    n.user("sum", isCompactSummary=True)
    whole, added = spliced(n.data(), make_user("two"))
    assert added[0]["parentUuid"] == "u4"
    assert said(read_data(whole).messages) == [("user", "sum"), ("user", "two")]


def test_a_splice_without_an_ending_looks_at_the_records_again() -> None:
    import msgspec

    n = native()
    n.leaf("u2")
    prefix = msgspec.structs.replace(read_data(n.data()), ending=None)
    known = joined(splice(read_data(n.data()), (make_user("two"),), options()))
    assert joined(splice(prefix, (make_user("two"),), options())) == known


def test_rebasing_changes_the_id_in_its_places_and_nowhere_else() -> None:
    n = native()
    n.user(f'my id is "sessionId":"{ID}" {ID}', toolUseResult={"sessionId": ID})
    n.user("of a stranger", sessionId=OTHER)
    n.leaf("u4")
    data = n.data() + b'{"sessionId" : "' + ID.encode() + b'" , "type":"mode"}\r\n\n{"sessionId":"' + ID.encode() + b'"'
    session = read_data(data)
    new = "6f2b8a54-0c1e-8d7e-9a51-3f6f1c2d9bff"
    written = rebase(session, options(session_id=new, cwd="/new place"))
    assert written.files[0].path == f"projects/-new-place/{new}.jsonl"
    result = joined(written)
    assert len(result) == len(data)
    changed = [i for i in range(len(data)) if data[i] != result[i]]
    assert result.count(new.encode()) == 6
    assert result.count(OTHER.encode()) == 1
    assert f'\\"sessionId\\":\\"{ID}\\" {ID}'.encode() in result
    assert f'"toolUseResult":{{"sessionId":"{ID}"}}'.encode() in result
    assert changed
    assert read_data(result, hint=new).messages == session.messages


def test_rebasing_takes_the_side_files_along() -> None:
    record = b'{"sessionId":"' + ID.encode() + b'","agentId":"a"}\n'
    folder = f"projects/-home-dev1-work-shop/{ID}"
    side = (
        SideFile(f"{folder}/subagents/agent-a.jsonl", 0o600, 9, lambda: record),
        SideFile(f"{folder}/tool-results/x.txt", 0o644, 9, lambda: ID.encode()),
        SideFile(f"file-history/{ID}/h@v1", 0o600, 9, lambda: b"old"),
    )
    written = rebase(read_data(native().data(), side=side), options(session_id=OTHER))
    new = f"projects/-home-dev1-work-shop/{OTHER}"
    assert [(f.path, f.role, f.mode) for f in written.files[1:]] == [
        (f"{new}/subagents/agent-a.jsonl", "side", 0o600),
        (f"{new}/tool-results/x.txt", "side", 0o644),
        (f"file-history/{OTHER}/h@v1", "side", 0o600),
    ]
    assert joined(written, 1) == record.replace(ID.encode(), OTHER.encode())
    assert joined(written, 2) == ID.encode()


def test_a_record_that_is_no_json_is_left_alone() -> None:
    old = frozenset({b'"a"'})
    for record in (b'{"sessionId":"a', b'x"sessionId":"a"', b'["sessionId","a"]', b'{"x":{"sessionId":"a"}}', b""):
        assert b"".join(change_id(record, old, b'"b"')) == record
