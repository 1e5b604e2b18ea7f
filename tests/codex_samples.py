"""What the tests of the Codex format share: odd conversations, lines of a rollout, and writing and reading back."""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from clew.conversation.model import Message
from clew.conversation.source import Session, Source, Stream
from clew.formats.codex.reader import read
from clew.formats.protocol import WriteOptions, Written
from odd_pieces import odd_conversations

ID = "01a22df5-7ada-8893-8deb-9be09a8006e1"
OTHER = "01a22df5-7ada-8893-8deb-9be09a8006e2"
PATH = f"sessions/2026/11/30/rollout-2026-11-30T19-36-34-{ID}.jsonl"

INVENTED = "[clew: no result of this call was recorded; its outcome is unknown. Do not assume that it ran or failed.]"

ODD_TEXTS = (
    "",
    " ",
    "\n",
    "hello",
    "\u2028 \u0000 \x7f é 日本 🚀",
    "\ud800 lone",
    "<environment_context>\n  <cwd>/x</cwd>\n</environment_context>",
    "# AGENTS.md instructions for /x\n\n<INSTRUCTIONS>\nbe kind\n</INSTRUCTIONS>",
    "<turn_aborted>\nno\n</turn_aborted>",
    "<subagent_notification>{}</subagent_notification>",
    "<USER_INSTRUCTIONS>a</user_instructions> ",
    "/compact",
    "!ls",
    INVENTED,
    "\\" + INVENTED,
    "\\\\" + INVENTED,
    "[clew: an image stands here: image/png, number 1 of this message; this agent cannot hold it.]",
    "\\[clew: an image stands here: image/png, number 1 of this message; this agent cannot hold it.]",
    '{"output":"x","metadata":{"exit_code":1,"duration_seconds":0.1}}',
    '{ "output":"x","metadata":{"exit_code":0}}',
    "Exit code: 3\nWall time: 0 seconds\nOutput:\nx",
    "Chunk ID: 2b36f8\nWall time: 0.0000 seconds\nProcess exited with code 0\nOutput:\n",
    '{"clew_text":"x"}',
    "</environment_context>",
    "x" * 3000,
)

ODD_NAMES = (
    "",
    "Bash",
    "exec_command",
    "multi_agent_v1.spawn_agent",
    "a.b.c",
    ".",
    "mcp__x__y",
    "odd name!",
    "日本",
    "local_shell_call",
    "web_search_call",
    "n" * 64,
    "n" * 65,
    "\ud800",
)


def conversations(max_size: int = 8) -> st.SearchStrategy[tuple[Message, ...]]:
    """Gives conversations in normal form, made of whatever could be hard to write."""
    return odd_conversations(ODD_TEXTS, ODD_NAMES, max_size)


def options(**more: Any) -> WriteOptions:
    given: dict[str, Any] = {"session_id": ID, "cwd": "/home/dev/work", "now_ms": 1_796_067_394_000}
    return WriteOptions(new_id=lambda name: str(uuid.uuid5(uuid.NAMESPACE_URL, name)), **(given | more))


def joined(written: Written, number: int = -1) -> bytes:
    """Returns the bytes of one file."""
    return b"".join(bytes(chunk) for chunk in written.files[number].chunks())


def streams_of(written: Written) -> tuple[Stream, ...]:
    return tuple(Stream(file.path, joined(written, n), file.mode) for n, file in enumerate(written.files))


def reread(written: Written) -> Session:
    return read(Source(streams_of(written)))


def read_bytes(*data: bytes, **more: Any) -> Session:
    """Reads a thread of these files."""
    names = (PATH, *(PATH.replace(".jsonl", f"_{OTHER[:-1]}{n}.jsonl") for n in range(1, len(data))))
    return read(Source(tuple(Stream(name, one) for name, one in zip(names, data, strict=True)), **more))


def parsed(data: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in data.splitlines()]


# --- lines of a rollout -----------------------------------------------------------------------------------


def line(kind: str, payload: Any, ordinal: int | None = None, **more: Any) -> bytes:
    whole: dict[str, Any] = {"timestamp": "2026-11-30T19:36:34.696Z"}
    if ordinal is not None:
        whole["ordinal"] = ordinal
    return json.dumps(whole | {"type": kind, "payload": payload} | more, separators=(",", ":")).encode() + b"\n"


def meta(id_: str = ID, ordinal: int | None = None, **more: Any) -> bytes:
    payload = {"id": id_, "timestamp": "2026-11-30T19:36:34.663Z", "cwd": "/home/dev/work", "originator": "t"}
    return line("session_meta", payload | {"cli_version": "0.171.0"} | more, ordinal)


def message(role: str, *texts: str, ordinal: int | None = None, kinds: Sequence[str] | None = None) -> bytes:
    sort = "output_text" if role == "assistant" else "input_text"
    payload: dict[str, Any] = {"type": "message", "role": role}
    payload["content"] = [{"type": sort, "text": text} for text in texts]
    if kinds is not None:
        payload["internal_chat_message_metadata_passthrough"] = {"content_item_kinds": list(kinds)}
    return line("response_item", payload, ordinal)


def item(kind: str, **members: Any) -> bytes:
    return line("response_item", {"type": kind} | members)


def event(name: str, ordinal: int | None = None, **members: Any) -> bytes:
    return line("event_msg", {"type": name} | members, ordinal)


def shape(session: Session) -> list[tuple[str, str]]:
    """Returns who said what."""
    return [(found.role, found.text) for found in session.messages]
