"""What a reading of Cline's files gives: who said what, compactions, helpers, tasks of VS Code, damage."""

from __future__ import annotations

import json
from typing import Any

import pytest

from clew.conversation.source import Session, SideFile, Source, Stream
from clew.errors import UnwritableContent
from clew.formats.cline import FORMAT
from clew.laws.stored import write_options

FOLDER = ".cline/data/sessions/s-1/"
MANIFEST = {
    "version": 1,
    "session_id": "s-1",
    "provider": "lab",
    "model": "m-0",
    "cwd": "/w",
    "prompt": "one\nmore",
    "metadata": {"title": "A title of its own"},
}


def side(name: str, value: Any) -> SideFile:
    data = json.dumps(value, indent=2).encode()
    return SideFile(FOLDER + name, 0o600, len(data), lambda: data)


class Native:
    """A session as Cline writes it."""

    def __init__(self, **root: Any) -> None:
        self.root: dict[str, Any] = {"version": 1, "updated_at": "x", "agent": "lead", "sessionId": "s-1"} | root
        self.messages: list[dict[str, Any]] = []

    def say(self, role: str, *blocks: Any, **more: Any) -> str:
        content = [{"type": "text", "text": one} if isinstance(one, str) else one for one in blocks]
        name = f"m{len(self.messages)}"
        self.messages.append({"id": name, "role": role, "content": content, "ts": 1000 + len(self.messages)} | more)
        return name

    def data(self) -> bytes:
        root = self.root | {"origin": {"source": "cli", "version": "3.0.65"}, "messages": self.messages}
        return json.dumps(root | {"system_prompt": "Be good."}, indent=2).encode()

    def read(self, *files: SideFile, **more: Any) -> Session:
        stream = Stream(f"{FOLDER}s-1.messages.json", self.data())
        return FORMAT.read(Source((stream,), files, hint_id="s-1", **more))


def said(session: Session) -> list[tuple[str, str, str]]:
    return [(m.role, m.text, m.kind or m.origin) for m in session.messages]


def typed(text: str, mode: str = "act") -> str:
    return f'<user_input mode="{mode}">{text}</user_input>'


def test_what_a_person_typed_stands_without_the_agents_tags() -> None:
    n = Native()
    n.say("user", typed("one"))
    n.say("user", typed("two </user_input>", "plan"))
    n.say("user", "<mode_notice>The mode changed.</mode_notice>\n" + typed("three") + "\n\nattached")
    n.say("user", typed(typed("four")))
    n.say("user", "plain <user_input> five")
    n.say("user", {"type": "file", "path": "/w/a", "content": "x"}, typed("six"))
    assert [text for _, text, _ in said(n.read())] == [
        "one",
        "two </user_input>",
        "three\n\nattached",
        typed("four"),
        "plain <user_input> five",
        '<file_content path="/w/a">\nx\n</file_content>six',
    ]
    assert {who for _, _, who in said(n.read())} == {"user"}


def test_what_the_agent_said_in_a_persons_name_is_told_apart() -> None:
    n = Native()
    n.say("user", typed("[TASK RESUMPTION] Please continue where you left off."))
    n.say("user", "Context summary:\n\nx", metadata={"kind": "compaction_summary", "displayRole": "system"})
    n.say("user", "Careful.", metadata={"kind": "loop_detection_notice"})
    n.say("user", "shown", metadata={"displayRole": "status"})
    n.say("user", typed("[TASK RESUMPTION] is a word"))
    assert [who for _, _, who in said(n.read())] == ["notice", "summary", "notice", "notice", "user"]


def test_results_are_as_they_are_sent() -> None:
    n = Native()
    n.say("assistant", "I look.", {"type": "thinking", "thinking": "hm"}, call("c1"), modelInfo={"id": "m-1"})
    n.say("user", result("c1", [{"query": "ls", "result": "a\n", "success": True}]))
    n.say("assistant", call("c2"), call("c3"), call("c4"))
    n.say("user", result("c2", '{"query":"x"}', is_error=True))
    image = {"type": "image", "data": "iVBORw0KGgo=", "mediaType": "image/png"}
    n.say("user", result("c3", [{"type": "text", "text": "seen"}, image]), result("c4", {"a": [1, 2]}))
    n.say("user", result("c9", "nobody asked"))
    session = n.read()
    results = [(m.text, m.is_error, len(m.images)) for m in session.messages if m.role == "tool"]
    assert results == [
        ('[{"query":"ls","result":"a\\n","success":true}]', None, 0),
        ('{"query":"x"}', True, 0),
        ("seen", None, 1),
        ('{"a":[1,2]}', None, 0),
    ]
    assert session.messages[0].calls[0].arguments == '{"commands":["ls"]}'
    assert [d.sort for d in session.damage] == ["stray result"]
    assert (session.model, session.messages[0].time_ms) == ("m-1", 1000)


def call(name: str) -> dict[str, Any]:
    return {"type": "tool_use", "id": name, "name": "run_commands", "input": {"commands": ["ls"]}}


def result(name: str, content: Any, **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": name, "name": "run_commands", "content": content} | more


def test_the_description_tells_folder_and_title() -> None:
    n = Native()
    n.say("user", typed("one"))
    session = n.read(side("s-1.json", MANIFEST))
    assert (session.id, session.cwd, session.title, session.provider) == ("s-1", "/w", "A title of its own", "lab")
    assert (session.model, session.version, session.created_ms) == ("m-0", "3.0.65", 1000)
    assert n.read(side("s-1.json", MANIFEST | {"metadata": {"title": "one"}})).title == ""
    assert n.read(hint_cwd="/there").cwd == "/there"


def test_a_compaction_beside_the_messages_stands_for_the_first_of_them() -> None:
    n = Native()
    n.say("user", typed("one"))
    last = n.say("assistant", "two")
    n.say("user", typed("three"))
    kept = {"id": last, "role": "assistant", "content": [{"type": "text", "text": "two"}]}
    new = {"role": "user", "content": "Context summary:\n\nS", "metadata": {"kind": "compaction_summary"}}
    state = {"version": 1, "source_message_count": 2, "source_last_message_key": f"id:{last}", "messages": [new, kept]}
    session = n.read(side("s-1.compaction.json", state))
    assert [text for _, text, _ in said(session)] == ["Context summary:\n\nS", "two", "three"]
    assert [m.text for m in session.history] == ["one", "two", "Context summary:\n\nS", "three"]
    assert [b.at for b in session.boundaries] == [2]
    at_end = n.read(side("s-1.compaction.json", state | {"source_message_count": 3, "source_last_message_key": "x"}))
    assert [text for _, text, _ in said(at_end)] == ["Context summary:\n\nS", "two"]
    stale = n.read(side("s-1.compaction.json", state | {"source_last_message_key": "id:m7"}))
    assert [text for _, text, _ in said(stale)] == ["one", "two", "three"]


def test_helpers_newer_layouts_and_torn_documents() -> None:
    n = Native(agent="subagent", version=2)
    n.say("user", "one")
    n.say("robot", "two")
    session = n.read()
    assert session.helper
    assert [(r.relation, r.session_id) for r in session.references] == [("helper_of", "s-1")]
    assert [d.sort for d in session.damage] == ["newer layout", "foreign record"]
    n.root["version"] = 1
    data = n.data()
    torn = FORMAT.read(Source((Stream("x", data[: data.index(b'"two"')]),)))
    assert [m.text for m in torn.messages] == ["one"]
    assert [d.sort for d in torn.damage] == ["torn tail"]


TASK = [
    {
        "role": "user",
        "content": [
            {"type": "text", "text": "<task>\nCount.\n</task>"},
            {"type": "text", "text": "<environment_details>\n# Files\n</environment_details>"},
        ],
    },
    {"role": "assistant", "content": [{"type": "text", "text": "I count."}, call("c1")]},
    {"role": "user", "content": [result("c1", "1\n2"), {"type": "text", "text": "<feedback>\nMore!\n</feedback>"}]},
    {"role": "user", "content": [{"type": "text", "text": "[execute_command for 'ls'] Result:\na"}]},
    {"role": "user", "content": "<environment_details>x</environment_details>"},
]


def read_task(data: bytes) -> Session:
    stream = Stream(".cline/data/tasks/17/api_conversation_history.json", data)
    return FORMAT.read(Source((stream,), hint_id="17", hint_cwd="/w"))


def test_a_task_of_vs_code_is_read_and_not_gone_on_with() -> None:
    data = json.dumps(TASK).encode()
    session = read_task(data)
    assert (session.id, session.cwd) == ("17", "/w")
    assert said(session) == [
        ("user", "Count.", "user"),
        ("assistant", "I count.", "model"),
        ("tool", "1\n2", "agent"),
        ("user", "<feedback>\nMore!\n</feedback>", "user"),
        ("user", "[execute_command for 'ls'] Result:\na", "notice"),
    ]
    assert not session.damage
    assert b"".join(bytes(session.records[n]) for n in range(len(session.records))) == data
    assert FORMAT.splice is not None
    assert FORMAT.rebase is not None
    with pytest.raises(UnwritableContent, match="VS Code"):
        FORMAT.splice(session, (), write_options())
    with pytest.raises(UnwritableContent, match="VS Code"):
        FORMAT.rebase(session, write_options())
    assert [d.sort for d in read_task(data[:-20]).damage] == ["torn tail"]


def test_a_prefix_cut_in_a_message_takes_nothing_behind_it() -> None:
    n = Native()
    n.say("user", typed("one"))
    data = n.data()
    cut = FORMAT.read(Source((Stream("x", data[: data.index(b"one") + 2]),)))
    with pytest.raises(UnwritableContent, match="cut off"):
        FORMAT.splice(cut, (), write_options())  # type: ignore[misc]


def test_a_splice_keeps_the_description_and_a_rebase_renames_it() -> None:
    n = Native()
    n.say("user", typed("one"))
    session = n.read(side("s-1.json", MANIFEST | {"messages_path": "/h/s-1.messages.json"}))
    spliced = FORMAT.splice(session, (), write_options())  # type: ignore[misc]
    (kept,) = [file for file in spliced.files if file.role == "index"]
    assert kept.path == f"{FOLDER}s-1.json"
    assert b"".join(map(bytes, kept.chunks())) == bytes(session.side[0].load())
    rebased = FORMAT.rebase(session, write_options("s-2"))  # type: ignore[misc]
    assert [file.path for file in rebased.files] == [
        ".cline/data/sessions/s-2/s-2.messages.json",
        ".cline/data/sessions/s-2/s-2.json",
    ]
    root, facts = (json.loads(b"".join(map(bytes, file.chunks()))) for file in rebased.files)
    assert (root["sessionId"], root["messages"], root["system_prompt"]) == ("s-2", n.messages, "Be good.")
    assert facts["session_id"] == "s-2"
    assert facts["messages_path"] == "/.cline/data/sessions/s-2/s-2.messages.json"
