"""The writer: what it writes reads back as the conversation, and what the agent lists a thread by is there."""

from __future__ import annotations

import json
import uuid
from typing import Any

from clew.conversation.builder import make_assistant, make_call, make_result, make_user
from clew.conversation.canonical import keys_of
from clew.conversation.model import Message
from clew.conversation.source import Session, Source, Stream
from clew.formats.codex import FORMAT
from clew.formats.codex.reader import read
from clew.formats.codex.writer import write
from clew.formats.protocol import WriteOptions, Written

ID = "01a22df5-7ada-8893-8deb-9be09a8006e1"


def options(**more: Any) -> WriteOptions:
    given: dict[str, Any] = {"session_id": ID, "cwd": "/home/dev/work", "now_ms": 1_796_067_394_000}
    return WriteOptions(new_id=lambda name: str(uuid.uuid5(uuid.NAMESPACE_URL, name)), **(given | more))


def written_bytes(written: Written) -> bytes:
    return b"".join(bytes(chunk) for chunk in written.files[0].chunks())


def reread(written: Written) -> Session:
    file = written.files[0]
    return read(Source((Stream(file.path, written_bytes(written)),)))


def lines(written: Written) -> list[dict[str, Any]]:
    return [json.loads(line) for line in written_bytes(written).splitlines()]


CONVERSATION: tuple[Message, ...] = (
    make_user("Look."),
    make_assistant("I look.", make_call("c1", "Bash", '{"command":"ls"}')),
    make_result("c1", "a.txt\n"),
    make_assistant("There is one."),
)


def test_what_is_written_reads_back() -> None:
    written = write(CONVERSATION, options(origin="claude:x1"))
    session = reread(written)
    assert list(keys_of(session.messages)) == list(keys_of(CONVERSATION))
    assert (session.id, session.cwd, session.foreign) == (ID, "/home/dev/work", "claude:x1")
    assert not session.damage


def test_the_file_lies_where_the_agent_looks() -> None:
    written = write(CONVERSATION, options())
    assert written.files[0].path == f"sessions/2026/11/30/rollout-2026-11-30T19-36-34-{ID}.jsonl"


def test_a_thread_is_listed_by_what_the_person_said() -> None:
    events = [line["payload"] for line in lines(write(CONVERSATION, options())) if line["type"] == "event_msg"]
    assert [(event["type"], event["message"]) for event in events] == [
        ("user_message", "Look."),
        ("agent_message", "I look."),
        ("agent_message", "There is one."),
    ]


def test_no_provider_is_named() -> None:
    meta = lines(write(CONVERSATION, options()))[0]["payload"]
    assert "model_provider" not in meta
    assert {"id", "timestamp", "cwd", "originator", "cli_version"} <= meta.keys()


def test_the_format_is_registered() -> None:
    assert FORMAT.name == "codex"
    assert FORMAT.write is not None
