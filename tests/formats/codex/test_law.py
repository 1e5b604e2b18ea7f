"""The laws: what is written reads back by keys, a splice keeps its prefix, and no bytes make the reader raise."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from clew.conversation.canonical import keys_of
from clew.conversation.groups import head_positions
from clew.conversation.model import Message
from clew.conversation.source import Session, Source
from clew.formats.codex.lines import count_losses, count_unanswered
from clew.formats.codex.reader import read
from clew.formats.codex.rebase import rebase
from clew.formats.codex.splice import splice
from clew.formats.codex.writer import write
from codex_samples import ID, OTHER, conversations, joined, options, read_bytes, reread, streams_of

Messages = tuple[Message, ...]


def keys(messages: Messages) -> list[str]:
    return [str(key) for key in keys_of(messages)]


def assert_total(session: Session) -> None:
    """Every byte lies in exactly one record, in order."""
    assert len(session.created_by) == len(session.messages)
    records = session.records
    whole = b"".join(bytes(records[number]) for number in range(len(records)))
    assert whole == b"".join(bytes(stream.data) for stream in records.streams)
    assert all(0 <= record < len(records) for record in session.created_by if record is not None)


@given(conversations())
def test_what_is_written_reads_back(messages: Messages) -> None:
    written = write(messages, options(origin="claude:1"))
    session = reread(written)
    assert keys(session.messages) == keys(messages)
    assert not session.damage
    assert written.invented == count_unanswered(messages)
    assert [(m.role, m.origin, m.kind) for m in session.messages] == [(m.role, m.origin, m.kind) for m in messages]
    assert_total(session)


@given(conversations())
def test_every_line_is_what_the_agent_takes(messages: Messages) -> None:
    data = joined(write(messages, options()))
    assert data.endswith(b"\n")
    calls: list[str] = []
    outputs: list[str] = []
    for number, text in enumerate(data.decode("utf-8").split("\n")[:-1]):
        whole = json.loads(text)
        assert whole["timestamp"].endswith("Z")
        assert (whole["type"] == "session_meta") == (number == 0)
        payload = whole["payload"]
        if payload.get("type") in ("function_call", "custom_tool_call"):
            calls.append(payload["call_id"])
            assert isinstance(payload.get("arguments", payload.get("input")), str)
            assert payload["name"].replace("_", "").replace("-", "").isalnum()
        if str(payload.get("type")).endswith("_output"):
            outputs.append(payload["call_id"])
            assert payload["call_id"] in calls
        if payload.get("type") == "message":
            assert payload["content"]
            assert all(part.get("text") or part.get("image_url") for part in payload["content"])
    assert len(set(calls)) == len(calls)
    assert sorted(calls) == sorted(outputs)


@given(conversations(), st.data(), st.booleans())
def test_a_splice_keeps_its_prefix(messages: Messages, data: st.DataObject, paginated: bool) -> None:
    heads = [*head_positions(messages), len(messages)]
    cut = data.draw(st.sampled_from(heads))
    before = joined(write(messages[:cut], options()))
    if paginated:
        before = number_lines(before)
    if data.draw(st.booleans()):
        before = before[:-1]
    prefix = read_bytes(before)
    written = splice(prefix, messages[cut:], options())
    after = joined(written)
    assert after.startswith(before)
    session = reread(written)
    assert keys(session.messages) == keys(messages)
    assert session.id == prefix.id
    assert_total(session)
    if paginated:
        ordinals = [json.loads(line)["ordinal"] for line in after.splitlines()]
        assert ordinals == list(range(len(ordinals)))


def number_lines(data: bytes) -> bytes:
    lines = data.splitlines(keepends=True)
    return b"".join(b'{"ordinal":%d,' % number + line[1:] for number, line in enumerate(lines))


@given(conversations())
def test_a_rebased_thread_says_the_same(messages: Messages) -> None:
    written = write(messages, options())
    session = reread(written)
    again = rebase(session, options(session_id=OTHER))
    other = read(Source(streams_of(again)))
    assert other.id == OTHER
    assert OTHER in again.files[0].path
    assert keys(other.messages) == keys(messages)
    assert joined(again).replace(OTHER.encode(), ID.encode()) == joined(written)


@given(conversations(max_size=5), st.data())
def test_damaged_bytes_are_read_totally(messages: Messages, data: st.DataObject) -> None:
    whole = bytearray(joined(write(messages, options())))
    for _ in range(data.draw(st.integers(0, 3))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(whole)))
    assert_total(read_bytes(bytes(whole[:cut])))
    assert_total(read_bytes(bytes(whole[:cut]), growing=True))


@given(st.binary(max_size=200))
def test_any_bytes_are_read_totally(data: bytes) -> None:
    assert_total(read_bytes(data))
    assert_total(read_bytes(b"\x28\xb5\x2f\xfd" + data))


@given(conversations(), st.data())
def test_a_grown_thread_is_read_on(messages: Messages, data: st.DataObject) -> None:
    heads = [*head_positions(messages), len(messages)]
    cut = data.draw(st.sampled_from(heads))
    first = reread(write(messages[:cut], options()))
    grown = splice(first, messages[cut:], options())
    source = Source(streams_of(grown))
    whole = read(source)
    if first.ending is None:
        return
    on = read(source, first.ending)
    settled = on.continues.messages if on.continues is not None else 0
    assert keys((*whole.messages[:settled], *on.messages)) == keys(whole.messages)
    assert (on.id, on.cwd, on.model, on.created_ms) == (whole.id, whole.cwd, whole.model, whole.created_ms)
    if on.continues is not None:
        assert on.continues == first.ending


def test_losses_are_named() -> None:
    assert count_losses(()) == ()
