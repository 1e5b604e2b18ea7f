"""Laws of the Hermes format: what is written reads back, goes into a database and comes out of it the same."""

from __future__ import annotations

import json
import random
import re
import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from clew.conversation.groups import head_positions
from clew.conversation.model import Message
from clew.conversation.source import Session, Source, Stream
from clew.formats.hermes import FORMAT
from clew.formats.protocol import Home
from clew.laws.conversations import conversations
from hermes_samples import ID, OTHER, joined, keys, load, options, place, read_bytes, written_rows

Messages = tuple[Message, ...]


def assert_total(session: Session) -> None:
    """Every byte lies in exactly one record, in order."""
    assert len(session.created_by) == len(session.messages)
    records = session.records
    whole = b"".join(bytes(records[number]) for number in range(len(records)))
    assert whole == b"".join(bytes(stream.data) for stream in records.streams)
    assert all(0 <= record < len(records) for record in session.created_by if record is not None)


@given(conversations())
def test_what_is_written_reads_back(messages: Messages) -> None:
    assert FORMAT.write is not None
    written = FORMAT.write(messages, options(origin="claude:1"))
    session = read_bytes(joined(written))
    assert keys(session.messages) == keys(messages)
    assert not session.damage
    assert session.foreign == "claude:1"
    assert session.id == ID
    assert [(m.role, m.origin) for m in session.messages] == [(m.role, m.origin) for m in messages]
    assert [m.kind for m in session.messages if m.role == "user"] == [m.kind for m in messages if m.role == "user"]
    assert_total(session)


@given(conversations())
def test_rows_are_what_the_agent_takes(messages: Messages) -> None:
    ids: set[str] = set()
    waiting: set[str] = set()
    number, time = 0, 0.0
    for text in written_rows(messages).decode("utf-8").split("\n")[:-1]:
        line = json.loads(text)
        row = line["row"]
        if line["table"] != "messages":
            assert line["table"] in ("sessions", "state_meta")
            continue
        assert row["id"] == number + 1
        assert row["timestamp"] >= time
        number, time = row["id"], row["timestamp"]
        assert row["reasoning"] is None
        assert row["reasoning_content"] is None
        if row["role"] == "tool":
            waiting.remove(row["tool_call_id"])
            continue
        assert not waiting
        calls = row["tool_calls"]["json"] if row["tool_calls"] else []
        assert row["content"] or calls
        for call in calls:
            assert call["id"] not in ids
            ids.add(call["id"])
            waiting.add(call["id"])
            assert re.fullmatch("[A-Za-z0-9_-]{1,64}", call["function"]["name"])
            assert isinstance(json.loads(call["function"]["arguments"]), dict)
    assert not waiting


@given(conversations(), st.data())
def test_a_splice_keeps_its_prefix(messages: Messages, data: st.DataObject) -> None:
    assert FORMAT.splice is not None
    heads = [*head_positions(messages), len(messages)]
    cut = data.draw(st.sampled_from(heads))
    before = written_rows(messages[:cut])
    before = before[:-1] if data.draw(st.booleans()) else before
    prefix = read_bytes(before)
    after = joined(FORMAT.splice(prefix, messages[cut:], options(OTHER)))
    assert after.startswith(before)
    session = read_bytes(after)
    assert keys(session.messages) == keys(messages)
    assert session.id == prefix.id
    assert_total(session)


@given(conversations())
def test_a_rebased_session_says_the_same_under_other_ids(messages: Messages) -> None:
    assert FORMAT.rebase is not None
    before = written_rows(messages)
    session = read_bytes(before)
    written = FORMAT.rebase(session, options(OTHER, last="100"))
    after = joined(written)
    other = FORMAT.read(Source((Stream(written.files[0].path, after),)))
    assert other.id == OTHER
    assert written.files[0].path.endswith(OTHER)
    assert keys(other.messages) == keys(messages)
    rows = [json.loads(line) for line in after.splitlines()]
    numbers = [row["row"]["id"] for row in rows if row["table"] == "messages"]
    assert numbers == list(range(101, 101 + len(numbers)))


@given(conversations(max_groups=4), st.data())
def test_rows_come_out_of_the_database_as_they_went_in(messages: Messages, data: st.DataObject) -> None:
    heads = [*head_positions(messages), len(messages)]
    cut = data.draw(st.sampled_from(heads))
    before = written_rows(messages[:cut])
    with tempfile.TemporaryDirectory() as folder:
        home = Home(Path(folder))
        place(home, before)
        there = load(home)
        assert bytes(there.records.streams[0].data) == before
        assert FORMAT.splice is not None
        after = joined(FORMAT.splice(there, messages[cut:], options(ID)))
        place(home, after, before)
        grown = load(home)
        assert bytes(grown.records.streams[0].data) == after
        assert keys(grown.messages) == keys(messages)


@given(conversations(max_groups=4), st.data())
def test_damaged_bytes_are_read_totally(messages: Messages, data: st.DataObject) -> None:
    whole = bytearray(written_rows(messages))
    for _ in range(data.draw(st.integers(0, 3))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(whole)))
    assert_total(read_bytes(bytes(whole[:cut])))


def test_any_damage_in_a_long_session_is_read_totally() -> None:
    from clew.conversation.builder import make_assistant, make_call, make_result, make_user

    messages = (
        make_user("hi"),
        make_assistant("on it", make_call("a", "Bash", '{"command":"ls"}')),
        make_result("a", "x.txt"),
        make_assistant("done"),
    )
    whole, chance = written_rows(messages), random.Random(7)
    for _ in range(300):
        data = bytearray(whole)
        for _ in range(chance.randrange(3)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        assert_total(read_bytes(bytes(data[: chance.randrange(len(data) + 1)])))


@given(st.binary(max_size=200))
def test_any_bytes_are_read_totally(data: bytes) -> None:
    assert_total(read_bytes(data))
    assert_total(read_bytes(b'{"table":"messages","row":{"role":"user","content":' + data + b"}}\n"))
