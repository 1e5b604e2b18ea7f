"""The laws of Grok's format: what is written reads back, also after the agent has written its history anew."""

from __future__ import annotations

import json
import random

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from clew.conversation.groups import head_positions
from clew.conversation.model import Image, Message
from clew.conversation.source import Session, Source
from clew.formats.grok import FORMAT
from clew.formats.grok.content import OMITTED
from clew.formats.grok.reader import read
from clew.formats.grok.writer import count_losses, rebase, splice, write
from clew.formats.protocol import Written
from clew.laws.conversations import conversations, suffixes
from clew.laws.stored import make_id, store_written, write_options
from folder_samples import assert_total, bytes_of, keys, source

Messages = tuple[Message, ...]


def reread(written: Written) -> Session:
    return store_written(FORMAT, written).read()


@given(conversations())
def test_what_is_written_reads_back(messages: Messages) -> None:
    written = write(messages, write_options(origin="claude:1"))
    session = reread(written)
    assert keys(session.messages) == keys(messages)
    assert not session.damage
    assert [(m.role, m.origin, m.kind) for m in session.messages] == [(m.role, m.origin, m.kind) for m in messages]
    assert [(c.id, c.name) for m in session.messages for c in m.calls] == [
        (c.id, c.name) for m in messages for c in m.calls
    ]
    assert session.foreign == ("claude:1" if messages else "")
    assert_total(session)


@given(conversations())
def test_every_line_is_what_the_agent_takes(messages: Messages) -> None:
    written = write(messages, write_options())
    (data,) = bytes_of(written, "stream").values()
    calls: list[str] = []
    results: list[str] = []
    for text in data.decode("utf-8").split("\n")[:-1]:
        line = json.loads(text)
        if line["type"] == "user":
            assert line["content"]
            assert all(part.get("text") or part.get("url") for part in line["content"])
        elif line["type"] == "assistant":
            assert isinstance(line["content"], str)
            for call in line.get("tool_calls", []):
                calls.append(call["id"])
                assert isinstance(json.loads(call["arguments"]), dict)
                assert call["name"].replace("_", "").replace("-", "").isalnum()
        else:
            assert line["type"] == "tool_result"
            assert isinstance(line["content"], str)
            results.append(line["tool_call_id"])
    assert len(set(calls)) == len(calls)
    assert sorted(calls) == sorted(results)
    assert written.invented == count_losses(messages)[1]


MEMBERS = {
    "user": ("type", "content", "synthetic_reason", "prompt_index"),
    "assistant": ("type", "content", "tool_calls", "model_id", "model_fingerprint"),
    "tool_result": ("type", "tool_call_id", "content", "images"),
}


def written_anew(data: bytes, *, omit: bool = False) -> bytes:
    """Does what the agent does to its history: known members only, a system line, old results left out."""
    out = [{"type": "system", "content": "Be good."}]
    for text in data.split(b"\n")[:-1]:
        line = json.loads(text)
        line = {name: line[name] for name in MEMBERS[line["type"]] if name in line}
        if omit and line["type"] == "tool_result" and not line["content"].startswith("[clew: no result"):
            line["content"] = OMITTED
        out.append(line)
    return b"".join(json.dumps(line, ensure_ascii=False).encode() + b"\n" for line in out)


@given(conversations(), st.booleans())
def test_what_the_agent_has_written_anew_says_the_same(messages: Messages, omit: bool) -> None:
    written = write(messages, write_options(origin="claude:1"))
    ((path, data),) = bytes_of(written, "stream").items()
    session = read(source(path, written_anew(data, omit=omit), bytes_of(written, "side")))
    assert keys(session.messages) == keys(messages)
    assert [(m.role, m.origin) for m in session.messages] == [(m.role, m.origin) for m in messages]
    assert session.foreign == ("claude:1" if any(m.role == "assistant" for m in messages) else "")


@given(st.data())
def test_a_splice_keeps_its_prefix(data: st.DataObject) -> None:
    messages = data.draw(conversations())
    more = data.draw(suffixes(messages))
    first = write(messages, write_options())
    ((path, before),) = bytes_of(first, "stream").items()
    before = before[:-1] if data.draw(st.booleans()) else before
    prefix = read(source(path, before, bytes_of(first, "side")))
    written = splice(prefix, more, write_options(path=path))
    (after,) = bytes_of(written, "stream").values()
    assert after.startswith(before)
    ((shown, display),) = bytes_of(written, "side").items()
    assert display.startswith(bytes_of(first, "side")[shown])
    session = read(source(path, after, {shown: display}))
    assert keys(session.messages) == keys((*messages, *more))
    assert session.id == prefix.id
    assert_total(session)
    indexes = [line["prompt_index"] for line in map(json.loads, after.splitlines()) if "prompt_index" in line]
    assert indexes == list(range(len(indexes)))


@given(conversations())
def test_a_rebased_session_says_the_same(messages: Messages) -> None:
    first = write(messages, write_options())
    stored = store_written(FORMAT, first)
    session = msgspec.structs.replace(stored.read(), id=make_id("one"))
    again = rebase(session, write_options(make_id("two")))
    assert bytes_of(again, "stream") == {
        path.replace(make_id("one"), make_id("two")): data for path, data in bytes_of(first, "stream").items()
    }
    assert keys(reread(again).messages) == keys(messages)
    (display,) = bytes_of(again, "side").values()
    assert make_id("one").encode() not in display
    (summary,) = bytes_of(again, "index").values()
    assert json.loads(summary)["info"]["id"] == make_id("two")


@given(conversations(), st.data())
def test_a_grown_session_is_read_on(messages: Messages, data: st.DataObject) -> None:
    heads = [*head_positions(messages), len(messages)]
    cut = data.draw(st.sampled_from(heads))
    first = store_written(FORMAT, write(messages[:cut], write_options()))
    session = first.read()
    if session.ending is None:
        return
    grown = store_written(FORMAT, splice(session, messages[cut:], write_options(path=first.path)))
    whole, on = grown.read(), read(grown.source, session.ending)
    settled = on.continues.messages if on.continues is not None else 0
    assert keys((*whole.messages[:settled], *on.messages)) == keys(whole.messages)
    assert (on.id, on.cwd, on.model, on.foreign) == (whole.id, whole.cwd, whole.model, whole.foreign)


def test_damaged_bytes_are_read_totally() -> None:
    chance = random.Random(20261201)
    data = SAMPLE
    for number in range(400):
        torn = bytearray(data[: chance.randrange(len(data) + 1)])
        for _ in range(number % 4 if torn else 0):
            torn[chance.randrange(len(torn))] = chance.randrange(256)
        for growing in (False, True):
            assert_total(read(source("sessions/x/y/chat_history.jsonl", bytes(torn), growing=growing)))
        assert_total(read(source("sessions/x/y/updates.jsonl", bytes(torn))))


@given(st.binary(max_size=200))
def test_any_bytes_are_read_totally(data: bytes) -> None:
    assert_total(read(source("sessions/x/y/chat_history.jsonl", data, {"sessions/x/y/updates.jsonl": data})))
    assert_total(read(source("sessions/x/y/updates.jsonl", data, {"sessions/x/y/summary.json": data})))
    assert_total(read(Source(())))


SAMPLE = b"".join(
    json.dumps(line).encode() + b"\n"
    for line in (
        {"type": "system", "content": "Be good."},
        {"type": "user", "content": [{"type": "text", "text": "<user_query>\nhi\n</user_query>"}], "prompt_index": 0},
        {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "hm"}]},
        {
            "type": "assistant",
            "content": "ok",
            "tool_calls": [{"id": "a", "name": "grep", "arguments": '{"x":1}'}],
            "model_id": "m",
        },
        {"type": "tool_result", "tool_call_id": "a", "content": OMITTED, "images": [{"type": "image", "url": "u"}]},
        {"type": "assistant", "content": "done", "model_fingerprint": 'clew{"from":"claude:1"}'},
    )
)


def test_losses_are_named() -> None:
    messages = (Message("assistant", (Image("image/png", "aGk="),), "model"),)
    assert [loss.what for loss in count_losses(messages)[0]] == ["images"]
