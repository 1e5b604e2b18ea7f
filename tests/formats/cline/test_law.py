"""The laws of this format: what is written reads back, a splice keeps its prefix, no bytes make the reader raise."""

from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from clew.conversation.model import Message
from clew.formats.cline import FORMAT
from clew.laws.checks import (
    check_cut_anywhere,
    check_rebase,
    check_total,
    check_written,
    split_conversations,
    with_data,
    write_stored,
)
from clew.laws.conversations import conversations
from clew.laws.stored import Stored, group_keys, make_id, store_written, stored_sessions, write_options

Messages = tuple[Message, ...]


@settings(max_examples=100)
@given(conversations())
def test_what_is_written_reads_back(messages: Messages) -> None:
    check_written(FORMAT, messages)


@settings(max_examples=50)
@given(conversations())
def test_every_message_is_one_that_the_agent_keeps(messages: Messages) -> None:
    root = json.loads(write_stored(FORMAT, messages, "codex:1").data)
    assert (root["version"], root["agent"], root["sessionId"]) == (1, "lead", make_id("one"))
    calls: list[str] = []
    for message in root["messages"]:
        assert set(message) <= {"id", "role", "content", "ts", "modelInfo", "metadata"}
        assert message["content"]
        for block in message["content"]:
            assert block["type"] in ("text", "image", "tool_use", "tool_result")
            assert block.get("text", "x")
            if block["type"] == "tool_use":
                assert isinstance(block["input"], dict)
                assert block["name"].lower() not in ("read", "read_files")
                calls.append(block["id"])
            if block["type"] == "tool_result":
                assert block["tool_use_id"] in calls
                assert message["role"] == "user"
                assert len(message["content"]) == 1
    assert len(set(calls)) == len(calls)


@settings(max_examples=60)
@given(split_conversations(), st.sampled_from(["whole", "no tail", "no end"]))
def test_a_splice_keeps_its_prefix(split: tuple[Messages, int], end: str) -> None:
    messages, cut = split
    before = write_stored(FORMAT, messages[:cut], "codex:1")
    head = before.data[: before.data.rindex(b"\n]}")]
    data = {"whole": before.data, "no tail": head, "no end": before.data[:-1]}[end]
    prefix = with_data(before, data).read()
    assert FORMAT.splice is not None
    grown = store_written(FORMAT, FORMAT.splice(prefix, messages[cut:], write_options()))
    assert grown.data.startswith(head)
    session = grown.read()
    assert group_keys(session.messages) == group_keys(messages)
    assert not session.damage
    json.loads(grown.data)
    check_total(session, grown.data)


@settings(max_examples=30)
@given(conversations(1))
def test_a_rebased_session_differs_in_its_id_alone(messages: Messages) -> None:
    check_rebase(FORMAT, messages)


@settings(max_examples=10)
@given(st.lists(stored_sessions(FORMAT, 1, 6), min_size=1, max_size=4), st.integers())
def test_cut_anywhere_and_spoiled_it_is_read(samples: list[Stored], seed: int) -> None:
    check_cut_anywhere(samples, 60, seed)


@given(st.binary(max_size=200))
def test_any_bytes_are_read(data: bytes) -> None:
    check_total(Stored(FORMAT, data, "x.json").read(), data)
    check_total(Stored(FORMAT, b"[" + data, "x.json").read(), b"[" + data)
