"""What the tests of the Hermes format share: options, written rows read back, and databases on a disk."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from clew.conversation.canonical import keys_of
from clew.conversation.model import Message
from clew.conversation.source import Session, Source, Stream
from clew.formats.hermes import FORMAT
from clew.formats.protocol import Found, Home, WriteOptions, Written
from clew.laws.stored import make_id

ID = make_id("one")
OTHER = make_id("two")
NOW = 1_910_000_000_000
CWD = "/home/dev1/proj/loom"


def options(id_: str = ID, *, cwd: str = CWD, origin: str = "", now_ms: int = NOW, **facts: str) -> WriteOptions:
    return WriteOptions(id_, cwd, now_ms, lambda name: make_id(id_ + name), origin, facts=facts)


def joined(written: Written) -> bytes:
    return b"".join(bytes(piece) for file in written.files for piece in file.chunks())


def read_bytes(data: bytes, path: str = f"state.db#{ID}") -> Session:
    return FORMAT.read(Source((Stream(path, data),), hint_id=ID))


def written_rows(messages: Sequence[Message], **more: str) -> bytes:
    assert FORMAT.write is not None
    return joined(FORMAT.write(messages, options(**more)))


def keys(messages: Sequence[Message]) -> list[str]:
    return [str(key) for key in keys_of(messages)]


def place(home: Home, data: bytes, expect: bytes | None = None, id_: str = ID) -> None:
    assert FORMAT.place_rows is not None
    FORMAT.place_rows(home, f"state.db#{id_}", data, expect, NOW)


def find(home: Home, id_: str = ID) -> Found:
    return next(found for found in FORMAT.locate.find(home) if found.id == id_)


def load(home: Home, id_: str = ID) -> Session:
    return FORMAT.read(FORMAT.locate.load(find(home, id_), home))


def database(home: Home) -> Path:
    return FORMAT.locate.base(home) / "state.db"
