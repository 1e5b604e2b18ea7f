"""Sessions of agents that keep a folder a session (Grok, Kimi Code), for the tests of their formats."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from clew.conversation.canonical import keys_of
from clew.conversation.model import Message
from clew.conversation.source import Session, SideFile, Source, Stream
from clew.formats.protocol import Format, Found, Home, Written


def keys(messages: Iterable[Message]) -> list[str]:
    """Returns the chain keys of a conversation."""
    return [str(key) for key in keys_of(tuple(messages))]


def lines(*records: Any) -> bytes:
    """Returns records as lines, spelled as the agents spell them."""
    return b"".join(
        json.dumps(record, ensure_ascii=False, separators=(",", ":")).encode() + b"\n" for record in records
    )


def source(path: str, data: bytes, side: dict[str, bytes] | None = None, *, growing: bool = False) -> Source:
    """Returns a session's files as its reader gets them."""
    files = tuple(SideFile(name, 0o600, len(body), lambda b=body: b) for name, body in (side or {}).items())
    return Source((Stream(path, data),), files, growing=growing)


def bytes_of(written: Written, role: str) -> dict[str, bytes]:
    """Returns what a writer made in one role, by path."""
    return {file.path: b"".join(map(bytes, file.chunks())) for file in written.files if file.role == role}


def place(form: Format, home: Home, written: Written) -> Found:
    """Puts what a writer made into a home and returns the one session that is then there."""
    base = form.locate.base(home)
    for file in written.files:
        path = base / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"".join(map(bytes, file.chunks())))
    (found,) = form.locate.find(home)
    return found


def assert_total(session: Session) -> None:
    """Every byte lies in exactly one record, in order; every message has a record or none."""
    assert len(session.created_by) == len(session.messages)
    records = session.records
    whole = b"".join(bytes(records[number]) for number in range(len(records)))
    assert whole == b"".join(bytes(stream.data) for stream in records.streams)
    assert all(0 <= record < len(records) for record in session.created_by if record is not None)


def spoken(messages: Sequence[Message]) -> list[tuple[str, str]]:
    """Returns role and text of every message."""
    return [(message.role, message.text) for message in messages]


def snapshot(folder: Path) -> dict[str, bytes]:
    """Returns every file below a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
