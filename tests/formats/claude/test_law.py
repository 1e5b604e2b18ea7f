"""The laws: what is written reads back by keys, a splice keeps its prefix, no bytes make the reader raise."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from claude_samples import CWD, ID, OTHER, Native, call, conversations, joined, options, read_data, reread, source_of
from clew.conversation.canonical import keys_of
from clew.conversation.groups import group_messages, head_positions
from clew.conversation.model import Image, Message
from clew.conversation.source import Session
from clew.formats.claude.reader import read
from clew.formats.claude.rebase import rebase
from clew.formats.claude.splice import splice
from clew.formats.claude.writer import write

Messages = tuple[Message, ...]


def keys(messages: Messages) -> list[str]:
    return [str(key) for key in keys_of(messages)]


def assert_total(session: Session, data: bytes) -> None:
    """Every byte lies in exactly one record, in order."""
    records = session.records
    assert b"".join(bytes(records[number]) for number in range(len(records))) == data
    assert len(session.created_by) == len(session.messages)
    assert all(0 <= record < len(records) for record in session.created_by if record is not None)


@settings(max_examples=150)
@given(conversations())
def test_what_is_written_reads_back(messages: Messages) -> None:
    written = write(messages, options(origin="codex:1"))
    session = reread(written)
    assert keys(session.messages) == keys(messages)
    assert not session.damage
    assert [(m.role, m.origin, m.kind) for m in session.messages] == [(m.role, m.origin, m.kind) for m in messages]
    assert [[c.id for c in m.calls] for m in session.messages] == [
        [c.id.encode("utf-16", "surrogatepass").decode("utf-16", "replace") for c in m.calls] for m in messages
    ]
    assert [len(m.images) for m in session.messages] == [len(m.images) for m in messages]
    assert session.foreign == ("codex:1" if messages else "")
    assert_total(session, joined(written))
    assert joined(written) == joined(written)


@settings(max_examples=80)
@given(conversations())
def test_every_line_is_what_the_agent_and_its_api_take(messages: Messages) -> None:
    data = joined(write(messages, options()))
    assert not re.search(rb"\xe2\x80[\xa8\xa9]|\xc2\x85", data)
    uuids: set[str] = set()
    parent: str | None = None
    open_calls: list[str] = []
    seen_calls: set[str] = set()
    rows = [json.loads(line) for line in data.decode("utf-8").split("\n")[:-1]]
    for row in rows:
        if row["type"] not in ("user", "assistant"):
            assert row["sessionId"] == ID
            continue
        assert row["parentUuid"] == parent
        assert row["uuid"] not in uuids
        assert (row["cwd"], row["sessionId"], row["entrypoint"]) == (CWD, ID, "cli")
        parent = row["uuid"]
        uuids.add(parent)
        content = row["message"]["content"]
        for block in [{"type": "text", "text": content}] if isinstance(content, str) else content:
            if block["type"] == "tool_use":
                assert re.fullmatch(r"[A-Za-z0-9_-]{1,64}", block["id"])
                assert re.fullmatch(r"[A-Za-z0-9_-]{1,64}", block["name"])
                assert isinstance(block["input"], dict)
                assert block["id"] not in seen_calls
                seen_calls.add(block["id"])
                open_calls.append(block["id"])
            elif block["type"] == "tool_result":
                open_calls.remove(block["tool_use_id"])
            elif block["type"] == "text":
                assert block["text"]
                if row["type"] == "user":
                    assert not open_calls
            else:
                assert block["type"] == "image"
                assert row["type"] == "user"
        assert row["type"] != "assistant" or "usage" in row["message"]
    assert not open_calls
    assert not messages or rows[-1] == {"type": "last-prompt", "leafUuid": parent, "sessionId": ID} | {
        k: v for k, v in rows[-1].items() if k == "lastPrompt"
    }


@settings(max_examples=80)
@given(conversations())
def test_losses_and_made_up_answers_are_counted(messages: Messages) -> None:
    written = write(messages, options())
    unanswered = sum(len(g.head.calls) - len(g.results) for g in group_messages(messages))
    assert written.invented == unanswered == joined(written).count(b'"invented":true')
    standins = sum(json.loads(line).get("clew", {}).get("standin", 0) for line in joined(written).splitlines())
    counted = {loss.what: loss.count for loss in written.losses}
    assert counted.get("images", 0) == standins
    assert standins <= sum(isinstance(p, Image) for m in messages for p in m.parts)


@settings(max_examples=80)
@given(conversations(), st.data(), st.booleans())
def test_a_splice_keeps_its_prefix(messages: Messages, data: st.DataObject, ends_with_newline: bool) -> None:
    cut = data.draw(st.sampled_from([*head_positions(messages), len(messages)]))
    before = joined(write(messages[:cut], options(origin="codex:1")))
    prefix = read_data(before if ends_with_newline else before[:-1])
    written = splice(prefix, messages[cut:], options())
    whole = joined(written)
    assert whole.startswith(before)
    session = read_data(whole)
    assert keys(session.messages) == keys(messages)
    assert not session.damage
    assert_total(session, whole)


@settings(max_examples=40)
@given(conversations(), st.data())
def test_two_splices_in_one_moment_do_not_meet(messages: Messages, data: st.DataObject) -> None:
    heads = [*head_positions(messages), len(messages)]
    first, second = sorted((data.draw(st.sampled_from(heads)), data.draw(st.sampled_from(heads))))
    text = joined(write(messages[:first], options()))
    text = joined(splice(read_data(text), messages[first:second], options()))
    text = joined(splice(read_data(text), messages[second:], options()))
    session = read_data(text)
    assert keys(session.messages) == keys(messages)
    assert not session.damage


@settings(max_examples=60)
@given(conversations())
def test_a_rebased_session_differs_in_its_id_alone(messages: Messages) -> None:
    session = reread(write(messages, options()))
    written = rebase(session, options(session_id=OTHER))
    data = joined(written)
    assert data == joined(write(messages, options())).replace(ID.encode(), OTHER.encode())
    again = read_data(data, hint=OTHER, path=written.files[0].path)
    assert keys(again.messages) == keys(messages)
    assert not again.damage


def rich() -> bytes:
    """Returns a session with most of what occurs: parallel calls, a rewind, a compaction, helpers, a title."""
    n = Native()
    n.user("one", promptSource="typed")
    n.add("attachment", attachment={"type": "environment"})
    n.reply("m1", "text", call("t1", command="ls"))
    second = n.reply("m1", call("t2", command="pwd"))
    n.result("t1", "a", parent="u3")
    n.result("t2", [{"type": "text", "text": "b"}, {"type": "image", "source": {"type": "base64"}}], parent=second)
    n.reply("m2", "done")
    n.user("other way", parent="u7")
    n.reply("m3", "dead end")
    n.user("two", parent="u7")
    n.reply("m4", "yes")
    n.add("user", message={"role": "user", "content": "aside"}, isSidechain=True, parent=None)
    n.add("system", subtype="compact_boundary", parent=None, logicalParentUuid="u11")
    n.user("summary", isCompactSummary=True)
    n.user("three")
    n.reply("m5", "\u2028 é 🚀")
    n.note(type="custom-title", customTitle="T", sessionId=ID)
    n.leaf("u16")
    return n.data()


@given(st.integers(0, len(rich())), st.booleans())
def test_a_session_cut_anywhere_is_read(at: int, growing: bool) -> None:
    data = rich()[:at]
    session = read_data(data, growing=growing)
    assert_total(session, data)
    list(keys_of(session.messages))


@settings(max_examples=200)
@given(st.lists(st.tuples(st.integers(0, len(rich()) - 1), st.integers(0, 255)), max_size=6))
def test_flipped_bytes_never_raise(changes: list[tuple[int, int]]) -> None:
    data = bytearray(rich())
    for at, value in changes:
        data[at] = value
    session = read_data(bytes(data))
    assert_total(session, bytes(data))
    list(keys_of(session.messages))
    for branch in session.branches:
        list(keys_of(branch.messages))
        assert 0 <= branch.at <= len(session.history)


@settings(max_examples=100)
@given(st.binary(max_size=200) | st.lists(st.sampled_from(rich().splitlines(keepends=True))).map(b"".join))
def test_any_bytes_are_read(data: bytes) -> None:
    session = read_data(data)
    assert_total(session, data)
    list(keys_of(session.messages))


def test_no_shape_of_a_tree_takes_more_than_linear_time() -> None:
    # Each of these would take hours if any step went through all records for each record.
    size = 12_000
    names = [f"u{i}" for i in range(size)]

    def rows(**members: Callable[[int], object]) -> bytes:
        plain = {"type": lambda i: "user", "uuid": lambda i: names[i], "message": lambda i: {"content": names[i]}}
        shape = plain | members
        return b"".join(json.dumps({k: f(i) for k, f in shape.items()}).encode() + b"\n" for i in range(size))

    comb = rows(parentUuid=lambda i: names[max(i - 1 - i % 2, 0)] if i else None)
    star = rows(parentUuid=lambda i: names[0] if i else None)
    broken = rows(parentUuid=lambda i: f"gone{i}")
    roots = rows(parentUuid=lambda i: names[i - 1] if i == 1 else None)
    cuts = rows(
        type=lambda i: "system", subtype=lambda i: "compact_boundary", parentUuid=lambda i: names[i - 1] if i else None
    )
    looped = rows(parentUuid=lambda i: names[(i + 1) % size])
    torn = rows(parentUuid=lambda i: f"gone{i}").replace(b'"}}\n', b'"}\n', size // 2)
    for data in (comb, star, broken, roots, cuts + roots, looped, torn):
        assert_total(read_data(data), data)


@settings(max_examples=80)
@given(conversations(), st.data())
def test_a_reading_that_goes_on_gives_what_a_whole_one_gives(messages: Messages, data: st.DataObject) -> None:
    cut = data.draw(st.sampled_from([*head_positions(messages), len(messages)]))
    first = read_data(joined(write(messages[:cut], options(origin="codex:1"))))
    text = joined(splice(first, messages[cut:], options()))
    whole = read_data(text)
    since = first.ending
    if since is None:
        return
    on = read(source_of(text), since)
    if on.continues is None:
        assert on.messages == whole.messages
        return
    assert on.messages == whole.messages[since.messages :]
    assert (on.title, on.cwd, on.model, on.foreign) == (whole.title, whole.cwd, whole.model, whole.foreign)
    assert on.created_ms == whole.created_ms
    assert on.ending == whole.ending
