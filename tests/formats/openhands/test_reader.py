"""What a reading of a conversation of OpenHands gives: observations, condensations, gaps, damage."""

from __future__ import annotations

import json
from typing import Any

import pytest

from clew.conversation.builder import make_assistant, make_call, make_result, make_user
from clew.conversation.model import Image, Reasoning, Text
from clew.conversation.source import Session, SideFile, Source, Stream
from clew.errors import UnwritableContent
from clew.formats.openhands import FORMAT
from clew.laws.stored import group_keys, store_written, write_options
from clew_corpus import own_cases, shared_cases
from corpuscheck import read_case, said_in, wanted_of

OWN = "5775f04c-4ebe-46ed-ba87-8e0d2968c806"
FOLDER = OWN.replace("-", "")
CASES = [*own_cases("openhands"), *shared_cases("openhands")]
FAILED = "[An error occurred during execution.]\n"


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case}-{case.home.parts[-4]}")
def test_a_recorded_session_says_what_was_said(case: Any) -> None:
    session = read_case(FORMAT, case)
    wanted = [(*one[:3], [_bare(text) for text in one[3]]) for one in wanted_of(case.expected)]
    assert said_in(session.messages) == wanted
    assert (session.id, session.cwd) == (case.session_id, case.cwd)
    assert session.created_ms is not None
    assert not session.damage
    written = store_written(FORMAT, FORMAT.write(session.messages, write_options()))  # type: ignore[misc]
    assert group_keys(written.read().messages) == group_keys(session.messages)


def _bare(text: str) -> str:
    """Returns a result without the agent's word on a failure; the larger collection has a line end behind it."""
    return text.removeprefix(FAILED).removeprefix("\n") if text.startswith(FAILED) else text


def text(said: str) -> dict[str, Any]:
    return {"cache_prompt": False, "type": "text", "text": said}


def said(role: str, *parts: Any, source: str = "", **members: Any) -> dict[str, Any]:
    content = [text(part) if isinstance(part, str) else part for part in parts]
    message = {"role": role, "content": content, "thinking_blocks": []} | members
    source = source or ("user" if role == "user" else "agent")
    return {"source": source, "llm_message": message, "extended_content": [], "kind": "MessageEvent"}


def acted(call_id: str, name: str = "terminal", reply: str = "r", thought: str = "", **members: Any) -> dict[str, Any]:
    call = {"id": call_id, "name": name, "arguments": '{"a": 1}', "origin": "completion"}
    found = {"source": "agent", "thought": [text(thought)] if thought else [], "tool_name": name, "tool_call": call}
    return found | {"tool_call_id": call_id, "llm_response_id": reply, "kind": "ActionEvent"} | members


def observed(call_id: str, kind: str, *parts: Any, **members: Any) -> dict[str, Any]:
    content = [text(part) if isinstance(part, str) else part for part in parts]
    observation = {"content": content, "is_error": False, "kind": kind} | members
    return {"source": "environment", "tool_call_id": call_id, "observation": observation, "kind": "ObservationEvent"}


def streams(events: list[dict[str, Any]], first: int = 0) -> list[Stream]:
    made: list[Stream] = []
    for number, event in enumerate(events, first):
        name = f"{number:08x}-0000-4000-8000-000000000000"
        whole = {"id": name, "timestamp": f"2026-11-30T19:00:{number:02d}.250000"} | event
        made.append(Stream(f"{FOLDER}/events/event-{number:05d}-{name}.json", json.dumps(whole).encode()))
    return made


def read(events: list[dict[str, Any]], state: dict[str, Any] | None = None) -> Session:
    return FORMAT.read(as_source(streams(events), state))


def as_source(made: list[Stream], state: dict[str, Any] | None = None) -> Source:
    told = json.dumps(state or {}).encode()
    return Source(tuple(made), (SideFile(f"{FOLDER}/base_state.json", 0o600, len(told), lambda: told),), hint_id=OWN)


def test_what_each_event_says() -> None:
    shell = {"exit_code": 3, "working_dir": "/w", "py_interpreter_path": "", "prefix": "", "suffix": "\n[ended]"}
    session = read(
        [
            {"source": "agent", "system_prompt": text("prompt"), "tools": [], "kind": "SystemPromptEvent"},
            said("user", "one", {"type": "image", "image_urls": ["data:image/png;base64,iVBORw0KGgo="]}),
            acted("c1", thought="I look.", reasoning_content="hm"),
            acted("c2", "task"),
            observed("c1", "TerminalObservation", "out", metadata=shell),
            observed("c2", "TaskObservation", "done", task_id="t", subagent="s", status="ok"),
            {"source": "environment", "kind": "PauseEvent"},
            acted("c3", "file_editor", "r2"),
            {"source": "environment", "tool_call_id": "c3", "rejection_reason": "no", "kind": "UserRejectObservation"},
            acted("c4", "nope", "r3"),
            {"source": "agent", "tool_call_id": "c4", "error": "no such tool", "kind": "AgentErrorEvent"},
            said("user", "feedback", source="environment"),
            said("assistant", "bye", reasoning_content="hm", source="agent"),
        ],
        {
            "id": OWN,
            "agent": {"llm": {"model": "openai/m"}},
            "workspace": {"working_dir": "/w"},
            "tags": {"title": "T", "clew": "claude:x"},
        },
    )
    first, reply, shown, task, _, rejected, _, failed, notice, bye = session.messages
    assert first.parts == (Text("one"), Image("image/png", "iVBORw0KGgo="))
    assert reply.parts[:2] == (Reasoning(reply.parts[0].source), Text("I look."))  # type: ignore[union-attr]
    assert [(c.id, c.name, c.arguments) for c in reply.calls] == [
        ("c1", "terminal", '{"a": 1}'),
        ("c2", "task", '{"a": 1}'),
    ]
    assert shown.text == "out\n[ended]\n[Current working directory: /w]\n[Command finished with exit code 3]"
    assert task.text == "Task ID: t\nSubagent: s\nStatus: okdone"
    assert (rejected.text, rejected.is_error) == ("Action rejected: no", True)
    assert (failed.text, failed.is_error) == ("no such tool", True)
    assert (notice.role, notice.origin, notice.kind) == ("user", "agent", "notice")
    assert bye.text == "bye"
    assert (session.cwd, session.model, session.title) == ("/w", "openai/m", "T")
    assert session.foreign == "claude:x"
    assert not session.damage
    assert session.updated_ms == session.created_ms + 11_000  # type: ignore[operator]


def test_a_condensation_forgets_and_puts_a_summary() -> None:
    events: list[dict[str, Any]] = [
        {"source": "agent", "system_prompt": text("prompt"), "tools": [], "kind": "SystemPromptEvent"},
        said("user", "first"),
        said("assistant", "second"),
        said("user", "third"),
        said("assistant", "fourth"),
    ]
    names = [f"{number:08x}-0000-4000-8000-000000000000" for number in (2, 3)]
    condensed = {"forgotten_event_ids": names, "summary": "what was", "summary_offset": 2, "kind": "Condensation"}
    session = read([*events, condensed, said("user", "fifth")])
    assert [(m.text, m.kind) for m in session.messages] == [
        ("first", ""),
        ("what was", "summary"),
        ("fourth", ""),
        ("fifth", ""),
    ]
    assert session.created_by == (1, 5, 4, 6)
    assert [m.text for m in session.history] == ["first", "second", "third", "fourth", "what was", "fifth"]
    assert [b.at for b in session.boundaries] == [4]


def test_behind_a_gap_is_history_and_nothing_is_appended() -> None:
    made = streams([said("user", "one"), said("assistant", "two")])
    made += streams([said("user", "three"), said("assistant", "four")], first=3)
    session = FORMAT.read(as_source(made))
    assert [m.text for m in session.messages] == ["one", "two"]
    assert [m.text for m in session.history] == ["one", "two", "three", "four"]
    assert [(d.sort, d.record) for d in session.damage] == [("broken link", 2)]
    assert len(session.records) == 4
    with pytest.raises(UnwritableContent, match="its number"):
        FORMAT.splice(session, (make_user("more"),), write_options())  # type: ignore[misc]


def test_a_second_event_of_one_number_is_told() -> None:
    made = streams([said("user", "one"), said("assistant", "two")])
    twin = Stream(made[1].path.replace("00000001-", "f0000001-", 1), made[1].data)
    session = FORMAT.read(as_source([made[0], made[1], twin]))
    assert [m.text for m in session.messages] == ["one", "two"]
    assert [d.sort for d in session.damage] == ["foreign record"]


def test_a_damaged_event_costs_itself() -> None:
    made = streams([said("user", "one"), said("assistant", "two"), said("user", "three"), said("assistant", "four")])
    made[1] = Stream(made[1].path, bytes(made[1].data)[:50])
    made[2] = Stream(made[2].path, bytes(made[2].data).replace(b"three", b"thr\xff"))
    made[3] = Stream(made[3].path, b"")
    session = FORMAT.read(as_source(made))
    assert [m.text for m in session.messages] == ["one", "thr\ufffd"]
    assert [(d.sort, d.file[-10:]) for d in session.damage] == [
        ("torn tail", "00000.json"),
        ("torn tail", "00000.json"),
        ("bad utf-8", "00000.json"),
    ]
    growing = FORMAT.read(Source(tuple(made[:2]), growing=True))
    assert [(d.sort, d.lost) for d in growing.damage] == [("still being written", False)]


@pytest.mark.parametrize("kind", [[], {}, 1, None, True, "FromTheFuture"])
def test_a_kind_that_nobody_knows_is_a_record(kind: Any) -> None:
    session = read([said("user", "one"), {"kind": kind}])
    assert len(session.records) == 2
    assert len(session.messages) == 1


def test_open_calls_of_the_agent_are_answered_before_anything_is_appended() -> None:
    made = streams([said("user", "one"), acted("c1", action={"kind": "TerminalAction"})])
    session = FORMAT.read(as_source(made))
    written = FORMAT.splice(session, (make_user("more"),), write_options())  # type: ignore[misc]
    new = [json.loads(b"".join(map(bytes, file.chunks()))) for file in written.files[2:]]
    assert [(one["kind"], one.get("tool_call_id")) for one in new] == [
        ("AgentErrorEvent", "c1"),
        ("MessageEvent", None),
    ]
    assert written.invented == 1
    again = store_written(FORMAT, written).read()
    assert [m.text for m in again.messages] == ["one", "", "more"]


def test_a_long_result_is_laid_in_parts_and_read_as_one() -> None:
    long = "thread " * 20_000
    messages = (make_user("x"), make_assistant(make_call("c", "f", "{}")), make_result("c", long))
    stored = store_written(FORMAT, FORMAT.write(messages, write_options()))  # type: ignore[misc]
    event = json.loads(bytes(stored.source.streams[-1].data))
    assert max(len(part["text"]) for part in event["observation"]["content"]) <= 50_000
    assert stored.read().messages[-1].text == long
