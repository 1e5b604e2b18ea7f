"""Qwen Code's records as its program writes them, for tests; everything said here is invented."""

from __future__ import annotations

import json
from typing import Any

from clew.conversation.source import Session, Source, Stream
from clew.formats.qwen import FORMAT

ID = "7c1f0a52-1111-4222-8333-444455556666"
CWD = "/home/dev1/shop"
PATH = f"projects/-home-dev1-shop/chats/{ID}.jsonl"


class Native:
    """Makes records in a chain: each is the child of the one before, unless it says otherwise."""

    def __init__(self, session_id: str = ID) -> None:
        self.id, self.records = session_id, list[dict[str, Any]]()

    def add(self, sort: str, uuid: str = "", *, parent: str | None = "", **more: Any) -> str:
        """Adds a record and returns its uuid."""
        uuid = uuid or f"r{len(self.records)}"
        before = self.records[-1]["uuid"] if self.records else None
        record = {"uuid": uuid, "parentUuid": before if parent == "" else parent, "sessionId": self.id}
        times = {"timestamp": f"2026-11-30T19:15:{len(self.records):02d}.000Z"}
        self.records.append(record | times | {"type": sort, "cwd": CWD, "version": "0.24.4"} | more)
        return uuid

    def user(self, *texts: str, uuid: str = "", parent: str | None = "", **more: Any) -> str:
        """Adds what somebody said."""
        message = {"role": "user", "parts": [{"text": text} for text in texts]}
        more = {"provenance": "real_user"} | more
        return self.add("user", uuid, parent=parent, message=message, **more)

    def reply(self, *parts: str | dict[str, Any], uuid: str = "", parent: str | None = "", **more: Any) -> str:
        """Adds what the model said."""
        whole = [{"text": part} if isinstance(part, str) else part for part in parts]
        more = {"provenance": "assistant_output", "model": "m-1"} | more
        return self.add("assistant", uuid, parent=parent, message={"role": "model", "parts": whole}, **more)

    def result(self, call_id: str, text: str, *, error: bool = False, **more: Any) -> str:
        """Adds a result."""
        given = {"id": call_id, "name": "n", "response": {"error" if error else "output": text}} | more
        message = {"role": "user", "parts": [{"functionResponse": given}]}
        return self.add("tool_result", provenance="tool_result", message=message)

    def system(self, subtype: str, payload: Any = None, **more: Any) -> str:
        """Adds a record of the agent's own."""
        return self.add("system", provenance="system", subtype=subtype, systemPayload=payload, **more)

    def data(self) -> bytes:
        """Returns the records as lines."""
        return b"".join(json.dumps(record, ensure_ascii=False).encode() + b"\n" for record in self.records)

    def read(self) -> Session:
        """Returns what the reader makes of them."""
        return read_data(self.data())


def call(call_id: str, **args: Any) -> dict[str, Any]:
    """Returns a call as a part."""
    return {"functionCall": {"id": call_id, "name": "n", "args": args}}


def read_data(data: bytes, path: str = PATH, hint: str = ID, **more: Any) -> Session:
    """Returns what the reader makes of a file."""
    return FORMAT.read(Source((Stream(path, data),), hint_id=hint, **more))


def said(session: Session) -> list[tuple[str, str]]:
    """Returns role and text of each message."""
    return [(message.role, message.text) for message in session.messages]
