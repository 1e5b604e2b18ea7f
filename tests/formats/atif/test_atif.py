"""ATIF: what is written is valid, says everything, and comes home; what is read is read whatever it is."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

from clew.conversation.builder import make_assistant, make_call, make_result, make_user
from clew.conversation.model import Image, Message, Reasoning
from clew.conversation.source import Session, Source, Stream
from clew.errors import UnwritableContent
from clew.formats.atif import FORMAT
from clew.formats.protocol import Home
from clew.laws.conversations import conversations
from clew.laws.stored import group_keys, store_conversation, write_options

AGENT_ONLY = {"model_name", "reasoning_effort", "reasoning_content", "tool_calls", "metrics"}
STEP = AGENT_ONLY | {
    "step_id",
    "timestamp",
    "source",
    "message",
    "observation",
    "is_copied_context",
    "llm_call_count",
    "extra",
}
ROOT = {
    "schema_version",
    "session_id",
    "trajectory_id",
    "agent",
    "steps",
    "notes",
    "final_metrics",
    "continued_trajectory_ref",
    "extra",
    "subagent_trajectories",
}

SAID = (
    make_user("Count the files.", time_ms=1_760_000_000_000),
    make_assistant(Reasoning("A listing will do."), "I look.", make_call("c1", "ls", '{"path":"."}'), model="m-1"),
    make_result("c1", "a\nb", is_error=False),
    make_assistant("Two."),
)


def check_structure(document: dict[str, Any]) -> None:
    """Fails where a document breaks a rule of the schema that its models enforce."""
    assert set(document) <= ROOT
    assert document["schema_version"] == "ATIF-v1.8"
    assert {"name", "version"} <= set(document["agent"]) <= {"name", "version", "model_name", "extra"}
    assert document["steps"]
    for number, step in enumerate(document["steps"], 1):
        assert set(step) <= STEP
        assert step["step_id"] == number
        assert step["source"] in ("system", "user", "agent")
        assert step["source"] == "agent" or not AGENT_ONLY & set(step)
        _check_content(step["message"])
        ids = []
        for call in step.get("tool_calls", ()):
            assert set(call) == {"tool_call_id", "function_name", "arguments"}
            assert isinstance(call["arguments"], dict)
            ids.append(call["tool_call_id"])
        assert len(ids) == len(set(ids))
        for result in step.get("observation", {"results": []})["results"]:
            assert set(result) <= {"source_call_id", "content", "extra"}
            assert result["source_call_id"] in ids
            _check_content(result["content"])


def _check_content(content: Any) -> None:
    for part in [] if isinstance(content, str) else content:
        if part["type"] == "text":
            assert set(part) == {"type", "text"}
        else:
            assert part["type"] == "image"
            assert set(part["source"]) == {"media_type", "path"}
            assert part["source"]["media_type"] in ("image/jpeg", "image/png", "image/gif", "image/webp")


def read(data: bytes, path: str = "x.atif.json") -> Session:
    return FORMAT.read(Source((Stream(path, data),), hint_id="x"))


@settings(max_examples=60, deadline=None)
@given(conversations())
def test_what_is_written_is_valid_and_says_everything(messages: tuple[Message, ...]) -> None:
    stored = store_conversation(FORMAT, messages)
    check_structure(json.loads(stored.data))
    session = stored.read()
    assert not session.damage
    assert group_keys(session.messages) == group_keys(messages)
    assert [m.origin for m in session.messages] == [m.origin for m in messages]
    assert [m.is_error for m in session.messages] == [m.is_error for m in messages]


@settings(max_examples=20, deadline=None)
@given(conversations())
def test_harbor_takes_what_is_written(messages: tuple[Message, ...]) -> None:
    models = pytest.importorskip("harbor.models.trajectories")
    models.Trajectory.model_validate_json(store_conversation(FORMAT, messages).data)


def test_a_reply_is_one_step_with_its_results() -> None:
    document = json.loads(store_conversation(FORMAT, SAID).data)
    first, second, third = document["steps"]
    assert (first["source"], first["message"]) == ("user", "Count the files.")
    assert second["reasoning_content"] == "A listing will do."
    assert second["tool_calls"] == [{"tool_call_id": "c1", "function_name": "ls", "arguments": {"path": "."}}]
    assert second["observation"]["results"][0]["content"] == "a\nb"
    assert third["message"] == "Two."


def test_the_order_of_texts_and_calls_comes_back() -> None:
    messages = (make_assistant("a", make_call("1", "x"), "b", make_call("2", "y"), "c"),)
    back = store_conversation(FORMAT, messages).read().messages[0]
    assert [getattr(p, "text", "") or p.id for p in back.parts] == ["a", "1", "b", "2", "c"]  # type: ignore[union-attr]


def test_pictures_without_an_address_and_mute_thoughts_are_told() -> None:
    messages = (make_user(Image("image/png", "AAAA"), Image("image/png", "", "https://example.com/x.png")),)
    assert FORMAT.write is not None
    losses = FORMAT.write((*messages, make_assistant(Reasoning(""), "ok")), write_options()).losses
    assert {loss.what: loss.count for loss in losses} == {"images": 1, "reasoning blocks": 1}
    back = store_conversation(FORMAT, messages).read().messages
    assert [image.url for image in back[0].images] == ["", "https://example.com/x.png"]


def test_a_trajectory_of_another_program_is_read() -> None:
    document = {
        "schema_version": "ATIF-v1.4",
        "session_id": "run-7",
        "agent": {"name": "some-agent", "version": "3", "model_name": "m-2"},
        "steps": [
            {"step_id": 1, "source": "system", "message": "Be good."},
            {"step_id": 2, "source": "user", "message": "Go."},
            {
                "step_id": 3,
                "source": "agent",
                "message": "",
                "tool_calls": [{"tool_call_id": "k", "function_name": "sh", "arguments": {"c": "ls"}}],
                "observation": {"results": [{"content": "done"}]},
            },
            {"step_id": 4, "source": "agent", "message": "ok", "observation": {"results": [{"content": "new state"}]}},
        ],
        "final_metrics": {"total_steps": 4},
    }
    session = read(json.dumps(document).encode())
    assert session.id == "run-7"
    assert session.model == "m-2"
    assert not session.damage
    said = [(m.role, m.text, m.origin) for m in session.messages]
    assert said == [
        ("user", "Go.", "user"),
        ("assistant", "", "model"),
        ("tool", "done", "agent"),
        ("assistant", "ok", "model"),
        ("user", "new state", "agent"),
    ]


def test_a_newer_version_is_told() -> None:
    data = store_conversation(FORMAT, SAID).data.replace(b"ATIF-v1.8", b"ATIF-v1.93")
    assert [d.sort for d in read(data).damage] == ["newer layout"]


def test_a_splice_goes_on_with_the_numbers_and_leaves_the_rest_alone() -> None:
    stored = store_conversation(FORMAT, SAID[:3])
    assert FORMAT.splice is not None
    more = (make_assistant("Two."), make_user("Sure?"), make_assistant(make_call("c1", "ls")))
    written = FORMAT.splice(stored.read(), more, write_options())
    data = b"".join(map(bytes, written.files[0].chunks()))
    check_structure(json.loads(data))
    assert data.startswith(stored.data.removesuffix(b"\n]}\n"))
    assert group_keys(read(data).messages) == group_keys((*SAID[:3], *more))


def test_nothing_is_put_behind_half_a_step() -> None:
    data = store_conversation(FORMAT, SAID).data
    assert FORMAT.splice is not None
    with pytest.raises(UnwritableContent, match="cut off"):
        FORMAT.splice(read(data[:-20]), SAID, write_options())


def test_a_rebase_changes_the_id_alone() -> None:
    stored = store_conversation(FORMAT, (*SAID, make_user(write_options().session_id)))
    session = stored.read()
    assert FORMAT.rebase is not None
    data = b"".join(map(bytes, FORMAT.rebase(session, write_options("new-id")).files[0].chunks()))
    assert data == stored.data.replace(session.id.encode(), b"new-id", 1)
    assert read(data).id == "new-id"


def test_any_bytes_are_read_and_cut() -> None:
    rng = random.Random(7)
    data = store_conversation(FORMAT, SAID).data
    for _ in range(400):
        broken = bytearray(data[: rng.randrange(len(data) + 1)])
        for _ in range(rng.randrange(4)):
            if broken:
                broken[rng.randrange(len(broken))] = rng.randrange(256)
        session = read(bytes(broken))
        assert b"".join(bytes(session.records[n]) for n in range(len(session.records))) == bytes(broken)


def test_it_is_found_where_it_was_written_and_knows_its_own(tmp_path: Path) -> None:
    data = store_conversation(FORMAT, SAID).data
    (tmp_path / "one.atif.json").write_bytes(data)
    (tmp_path / "link.atif.json").symlink_to(tmp_path / "one.atif.json")
    found = {f.path.name: f for f in FORMAT.locate.find(Home(tmp_path))}
    assert found["link.atif.json"].problem
    assert found["one.atif.json"].id == "one"
    source = FORMAT.locate.load(found["one.atif.json"], Home(tmp_path))
    assert group_keys(FORMAT.read(source).messages) == group_keys(SAID)
    assert FORMAT.locate.claims(tmp_path / "x", data[:200])
    assert not FORMAT.locate.claims(tmp_path / "x", b'{"messages":[]}')
    assert FORMAT.resume.argv("one") == ()
