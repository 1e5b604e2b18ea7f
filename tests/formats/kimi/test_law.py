"""The laws of Kimi Code's format: what is written reads back, a splice keeps its prefix, no bytes make it raise."""

from __future__ import annotations

import json
import random

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from clew.conversation.groups import head_positions
from clew.conversation.model import Message
from clew.conversation.source import Session, Source
from clew.formats.kimi import FORMAT
from clew.formats.kimi.reader import read
from clew.formats.kimi.writer import count_losses, rebase, splice, write
from clew.formats.protocol import Written
from clew.laws.conversations import conversations, suffixes
from clew.laws.stored import make_id, store_written, write_options
from folder_samples import assert_total, bytes_of, keys, lines, source

Messages = tuple[Message, ...]
PATH = "sessions/wd_x_0/y/agents/main/wire.jsonl"


def reread(written: Written) -> Session:
    return store_written(FORMAT, written).read()


@given(conversations())
def test_what_is_written_reads_back(messages: Messages) -> None:
    session = reread(write(messages, write_options(origin="claude:1")))
    assert keys(session.messages) == keys(messages)
    assert not session.damage
    assert [(m.role, m.origin, m.kind, m.is_error) for m in session.messages] == [
        (m.role, m.origin, m.kind, m.is_error) for m in messages
    ]
    assert [(c.id, c.name) for m in session.messages for c in m.calls] == [
        (c.id, c.name) for m in messages for c in m.calls
    ]
    assert session.foreign == "claude:1"
    assert_total(session)


@given(conversations())
def test_every_record_is_what_the_agent_takes(messages: Messages) -> None:
    written = write(messages, write_options())
    (data,) = bytes_of(written, "stream").values()
    calls: list[str] = []
    results: list[str] = []
    for number, text in enumerate(data.decode("utf-8").split("\n")[:-1]):
        record = json.loads(text)
        assert (record["type"] == "metadata") == (number == 0)
        if number == 0:
            continue
        assert record["type"] == "context.append_message"
        assert record["agentId"] == "main"
        assert isinstance(record["time"], int)
        message = record["message"]
        assert all(part["type"] == "image_url" or part["text"] for part in message["content"])
        for call in message["toolCalls"]:
            calls.append(call["id"])
            assert isinstance(json.loads(call["arguments"]), dict)
            assert call["name"].replace("_", "").replace("-", "").isalnum()
        if message["role"] == "tool":
            results.append(message["toolCallId"])
            assert message["toolCallId"] in calls
    assert len(set(calls)) == len(calls)
    assert sorted(calls) == sorted(results)
    assert written.invented == count_losses(messages)[1]


@given(st.data())
def test_a_splice_keeps_its_prefix(data: st.DataObject) -> None:
    messages = data.draw(conversations())
    more = data.draw(suffixes(messages))
    ((path, before),) = bytes_of(write(messages, write_options()), "stream").items()
    before = before[:-1] if data.draw(st.booleans()) else before
    prefix = read(source(path, before))
    written = splice(prefix, more, write_options(path=path))
    (after,) = bytes_of(written, "stream").values()
    assert after.startswith(before)
    session = read(source(path, after))
    assert keys(session.messages) == keys((*messages, *more))
    assert_total(session)


def test_a_splice_keeps_what_the_description_says() -> None:
    ((path, data),) = bytes_of(write((), write_options()), "stream").items()
    folder = path.removesuffix("agents/main/wire.jsonl")
    state = b'{"id":"y","version":2,"cwd":"/x","agents":{"main":{"homedir":"/h"}},"updatedAt":1,"later":[1.0]}'
    prefix = read(source(path, data, {folder + "state.json": state}))
    (described,) = bytes_of(splice(prefix, (), write_options(path=path)), "index").values()
    assert described.startswith(b'{"id":"y","version":2,"cwd":"/x","agents":{"main":{"homedir":"/h"}},')
    assert b'"later":[1.0]' in described
    assert json.loads(described)["updatedAt"] == 1_760_000_000_000


@given(conversations())
def test_a_rebased_session_says_the_same(messages: Messages) -> None:
    first = write(messages, write_options())
    session = msgspec.structs.replace(store_written(FORMAT, first).read(), id=make_id("one"))
    again = rebase(session, write_options(make_id("two")))
    assert bytes_of(again, "stream") == {
        path.replace(make_id("one"), make_id("two")): data for path, data in bytes_of(first, "stream").items()
    }
    assert keys(reread(again).messages) == keys(messages)


def test_a_session_in_another_folder_is_bound_there() -> None:
    bound = {"type": "runtime.set_binding", "workspaceId": "wd_old_0", "agentId": "main"}
    said = {"type": "x", "text": '"workspaceId":"wd_old_0"'}
    state = b'{"id":"y","cwd":"/old","agents":{"main":{"homedir":"/h/sessions/wd_old_0/y/agents/main"}}}'
    folder = "sessions/wd_old_0/y/"
    files = {folder + "state.json": state, folder + "tasks/1.log": b"x"}
    origin = source(folder + "agents/main/wire.jsonl", lines(bound, said), files)
    session = read(msgspec.structs.replace(origin, hint_id="y"))
    written = rebase(session, write_options("z"))
    ((path, data),) = bytes_of(written, "stream").items()
    place = path.split("/")[1]
    assert place.startswith("wd_project_")
    assert data == lines(bound | {"workspaceId": place}, said)
    assert bytes_of(written, "side") == {f"sessions/{place}/z/tasks/1.log": b"x"}
    ((_, described),) = bytes_of(written, "index").items()
    found = json.loads(described)
    assert (found["id"], found["cwd"]) == ("z", "/home/dev/project")
    assert found["agents"]["main"]["homedir"] == f"/h/sessions/{place}/z/agents/main"


@given(conversations(), st.data())
def test_a_grown_session_is_read_on(messages: Messages, data: st.DataObject) -> None:
    cut = data.draw(st.sampled_from([*head_positions(messages), len(messages)]))
    first = store_written(FORMAT, write(messages[:cut], write_options(origin="claude:1")))
    session = first.read()
    if session.ending is None:
        return
    grown = store_written(FORMAT, splice(session, messages[cut:], write_options(path=first.path)))
    whole, on = grown.read(), read(grown.source, session.ending)
    settled = on.continues.messages if on.continues is not None else 0
    assert keys((*whole.messages[:settled], *on.messages)) == keys(whole.messages)
    assert (on.id, on.model, on.foreign, on.created_ms) == (whole.id, whole.model, whole.foreign, whole.created_ms)


def test_damaged_bytes_are_read_totally() -> None:
    chance = random.Random(20261201)
    for number in range(400):
        torn = bytearray(SAMPLE[: chance.randrange(len(SAMPLE) + 1)])
        for _ in range(number % 4 if torn else 0):
            torn[chance.randrange(len(torn))] = chance.randrange(256)
        for growing in (False, True):
            assert_total(read(source(PATH, bytes(torn), growing=growing)))


@given(st.binary(max_size=200))
def test_any_bytes_are_read_totally(data: bytes) -> None:
    assert_total(read(source(PATH, data, {"sessions/wd_x_0/y/state.json": data})))
    assert_total(read(Source(())))


def _step(**event: object) -> dict[str, object]:
    return {"type": "context.append_loop_event", "agentId": "main", "event": event, "time": 1_796_066_400_573}


SAMPLE = lines(
    {"type": "metadata", "protocol_version": "1.5", "created_at": 1_796_066_400_441},
    {"type": "profile.bind", "agentId": "main", "modelAlias": "m", "systemPrompt": "Be good."},
    {
        "type": "context.append_message",
        "agentId": "main",
        "message": {"role": "user", "content": [{"type": "text", "text": "hi"}], "origin": {"kind": "user"}},
        "time": 1_796_066_400_553,
    },
    _step(type="step.begin", uuid="s"),
    _step(type="content.part", stepUuid="s", part={"type": "think", "think": "hm"}),
    _step(type="tool.call", uuid="c", stepUuid="s", toolCallId="a", name="Bash", args={"command": "ls"}),
    _step(type="tool.result", parentUuid="c", toolCallId="a", result={"output": "x", "durationMs": 37}),
    _step(type="step.end", uuid="s", finishReason="tool_use"),
    {"type": "context.apply_compaction", "agentId": "main", "summary": "S", "compactedCount": 3, "tokensAfter": 1},
    {"type": "context.undo", "agentId": "main", "count": 1},
    {"type": "context.clear", "agentId": "main"},
)
