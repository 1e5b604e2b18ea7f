"""What the tests of the Claude Code format share: a small writer of native sessions, odd conversations, read-back."""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from clew.conversation.model import Message
from clew.conversation.source import Session, SideFile, Source, Stream
from clew.formats.claude.reader import read
from clew.formats.protocol import WriteOptions, Written
from odd_pieces import odd_conversations

ID = "6f2b8a54-0c1e-4d7e-9a51-3f6f1c2d9b10"
OTHER = "6f2b8a54-0c1e-4d7e-9a51-3f6f1c2d9b11"
CWD = "/home/dev1/work/shop"
PATH = f"projects/-home-dev1-work-shop/{ID}.jsonl"

Json = dict[str, Any]


class Native:
    """Builds a session as the agent would: each record goes on from the one before, unless told otherwise."""

    def __init__(self, session_id: str = ID, cwd: str = CWD) -> None:
        self.session_id, self.cwd = session_id, cwd
        self.rows: list[Json] = []
        self.last: str | None = None
        self.count = 0

    def add(self, sort: str, **more: Any) -> str:
        """Adds a record with a place in the tree; returns its uuid."""
        self.count += 1
        name = more.pop("uuid", f"u{self.count}")
        row: Json = {
            "parentUuid": more.pop("parent", self.last),
            "isSidechain": False,
            "type": sort,
            "uuid": name,
            "timestamp": f"2026-11-30T19:00:{self.count % 60:02d}.000Z",
            "userType": "external",
            "entrypoint": "cli",
            "cwd": self.cwd,
            "sessionId": self.session_id,
            "version": "2.1.332",
            "gitBranch": "main",
        }
        self.rows.append({name: value for name, value in (row | more).items() if value is not ...})
        self.last = name
        return str(name)

    def user(self, content: Any, **more: Any) -> str:
        """Adds a user record."""
        return self.add("user", message={"role": "user", "content": content}, **more)

    def reply(self, reply_id: str, *blocks: Json | str, **more: Any) -> str:
        """Adds an assistant record; a text is a text block."""
        content = [{"type": "text", "text": b} if isinstance(b, str) else b for b in blocks]
        model = more.pop("model", "claude-opus-5-5")
        message = {"id": reply_id, "type": "message", "role": "assistant", "model": model, "content": content}
        return self.add("assistant", message=message, **more)

    def result(self, call_id: str, content: Any, **more: Any) -> str:
        """Adds a record with one tool result."""
        block: Json = {"tool_use_id": call_id, "type": "tool_result", "content": content}
        if "is_error" in more:
            block["is_error"] = more.pop("is_error")
        return self.user([block], **more)

    def note(self, **row: Any) -> None:
        """Adds a record without a place in the tree."""
        self.rows.append(row)

    def leaf(self, name: str) -> None:
        """Adds a last-prompt record that names a leaf."""
        self.note(type="last-prompt", lastPrompt="x", leafUuid=name, sessionId=self.session_id)

    def data(self) -> bytes:
        """Returns the file."""
        return b"".join(json.dumps(row, separators=(",", ":")).encode() + b"\n" for row in self.rows)

    def read(self, **more: Any) -> Session:
        """Reads the file."""
        return read_data(self.data(), **more)


def call(call_id: str, name: str = "Bash", **arguments: Any) -> Json:
    """Returns a tool_use block."""
    return {"type": "tool_use", "id": call_id, "name": name, "input": arguments}


def source_of(data: bytes, *, path: str = PATH, hint: str = ID, side: tuple[SideFile, ...] = (), **more: Any) -> Source:
    return Source((Stream(path, data),), side, hint_id=hint, **more)


def read_data(data: bytes, **more: Any) -> Session:
    """Reads one file as the session ID."""
    return read(source_of(data, **more))


def said(messages: Sequence[Message]) -> list[tuple[str, str]]:
    """Returns (role, text) of each message."""
    return [(m.role, m.text) for m in messages]


def sorts(session: Session) -> list[tuple[str, int]]:
    """Returns (sort, record) of each damage."""
    return [(d.sort, d.record) for d in session.damage]


def options(**more: Any) -> WriteOptions:
    given: Json = {"session_id": ID, "cwd": CWD, "now_ms": 1_796_067_394_000}
    return WriteOptions(new_id=lambda name: str(uuid.uuid5(uuid.NAMESPACE_URL, name)), **(given | more))


def joined(written: Written, number: int = 0) -> bytes:
    """Returns the bytes of one written file."""
    return b"".join(bytes(chunk) for chunk in written.files[number].chunks())


def reread(written: Written) -> Session:
    """Reads what was written as the session it was written for."""
    return read_data(joined(written), path=written.files[0].path, hint=written.session_id)


INVENTED = "[clew: no result of this call was recorded; its outcome is unknown. Do not assume that it ran or failed.]"
STANDIN = "[clew: an image stands here: image/png, number 1 of this message; this agent cannot hold it.]"

ODD_TEXTS = (
    "",
    " ",
    "\n",
    "hello",
    "\u2028 \u0000 \x7f \x85 é 日本 🚀",
    "\ud800 lone",
    "<system-reminder>\nbe kind\n</system-reminder>",
    "<system-reminder>a</system-reminder> and more",
    " <system-reminder>a</system-reminder>\n<system-reminder>b</system-reminder>",
    "<command-name>/compact</command-name>\n<command-args></command-args>",
    "<local-command-stdout>ok</local-command-stdout>",
    "<bash-input>ls</bash-input>",
    "<task-notification>done</task-notification>",
    "[Request interrupted by user]",
    "[Request interrupted by user for tool use]",
    "No response requested.",
    "Caveat: The messages below were generated by the user while running local commands. x",
    "/compact",
    INVENTED,
    "\\" + INVENTED,
    "\\\\" + INVENTED,
    STANDIN,
    "\\" + STANDIN,
    "\\\\\\" * 50 + "[clew: ",
    '{"clew_text":"x"}',
    "x" * 3000,
)
ODD_NAMES = ("", "Bash", "multi.dots.x", ".", "mcp__x__y", "odd name!", "日本", "n" * 64, "n" * 65, "\ud800")


def conversations(max_size: int = 8) -> st.SearchStrategy[tuple[Message, ...]]:
    """Gives conversations in normal form, made of whatever could be hard to write."""
    return odd_conversations(ODD_TEXTS, ODD_NAMES, max_size)
