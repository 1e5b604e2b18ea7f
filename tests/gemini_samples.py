"""Gemini CLI's records as its program writes them, for tests; everything said here is invented."""

from __future__ import annotations

import json
from typing import Any

from clew.conversation.source import Session, Source, Stream
from clew.formats.gemini import FORMAT

ID = "7c1f0a52-1111-4222-8333-444455556666"
PATH = "tmp/shop/chats/session-2026-09-10T09-00-7c1f0a52.jsonl"
CONTEXT = "<session_context>\nPlaceholder.\n- **Workspace Directories:**\n  - /home/dev1/shop\n</session_context>"


def user(name: str, *parts: Any, **more: Any) -> dict[str, Any]:
    """Returns a message of the user; a text is a part."""
    content = [{"text": part} if isinstance(part, str) else part for part in parts]
    return {"id": name, "timestamp": "2026-09-10T09:01:00.000Z", "type": "user", "content": content} | more


def reply(name: str, text: Any, **more: Any) -> dict[str, Any]:
    """Returns a message of the model."""
    return {"id": name, "timestamp": "2026-09-10T09:02:00.000Z", "type": "gemini", "content": text} | more


def call(name: str, text: str | None = None, *, error: bool = False, **args: Any) -> dict[str, Any]:
    """Returns a call as `toolCalls` has it, with its result where there is a text."""
    tool: dict[str, Any] = {"id": name, "name": "read_file", "args": args, "status": "error" if error else "success"}
    return tool | ({"result": [response(name, text, error=error)]} if text is not None else {})


def response(name: str, text: str, *, error: bool = False) -> dict[str, Any]:
    """Returns a response part."""
    return {"functionResponse": {"id": name, "name": "read_file", "response": {"error" if error else "output": text}}}


def header(**more: Any) -> dict[str, Any]:
    """Returns the first record."""
    times = {"startTime": "2026-09-10T09:00:00.000Z", "lastUpdated": "2026-09-10T09:00:00.000Z"}
    return {"sessionId": ID, "projectHash": "ab" * 32} | times | {"kind": "main"} | more


def change(**more: Any) -> dict[str, Any]:
    """Returns a record that changes the session's facts."""
    return {"$set": more}


def lines(*records: Any) -> bytes:
    """Returns records as lines."""
    return b"".join(json.dumps(record, ensure_ascii=False).encode() + b"\n" for record in records)


def read_data(data: bytes, path: str = PATH, **more: Any) -> Session:
    """Returns what the reader makes of a file."""
    return FORMAT.read(Source((Stream(path, data),), **more))


def read_records(*records: Any) -> Session:
    """Returns what the reader makes of a header and these records."""
    return read_data(lines(header(), *records))


def said(session: Session) -> list[tuple[str, str]]:
    """Returns role and text of each message."""
    return [(message.role, message.text) for message in session.messages]
