"""What OpenCode keeps of a session: rows of `session`, `message` and `part`, as typed records.

The interesting part of a message or a part is one JSON text (`data`). The same objects, with their ids inside, are
what `opencode export` prints and what older versions kept as files, so that all three are read through these types.
Small members are taken as whatever they are; large ones stay undecoded.
"""

from __future__ import annotations

import json
from typing import Any, TypeVar

import msgspec

from clew.conversation.text import JsonString, Lazy, mend_surrogates
from clew.formats.marks import Mark
from clew.formats.rows import Cell, Special

T = TypeVar("T")

RAW = msgspec.Raw
NONE = msgspec.Raw()


class Columns(msgspec.Struct, frozen=True, gc=False):
    """The columns that are looked at, of any table."""

    id: Cell = None
    session_id: Cell = None
    message_id: Cell = None
    time_created: Cell = None
    data: Cell = None
    parent_id: Cell = None
    directory: Cell = None
    title: Cell = None
    version: Cell = None
    metadata: Cell = None
    revert: Cell = None


class Line(msgspec.Struct, frozen=True, gc=False):
    """One exported row, as far as it is looked at."""

    table: str
    row: Columns


class MessageData(msgspec.Struct, frozen=True):
    """The JSON of a message; `id` only where it is not a column."""

    id: Any = None
    role: Any = None
    time: Any = None
    agent: Any = None
    model: Any = None
    path: Any = None
    model_id: Any = msgspec.field(default=None, name="modelID")
    provider_id: Any = msgspec.field(default=None, name="providerID")
    parent_id: Any = msgspec.field(default=None, name="parentID")
    finish: Any = None
    summary: RAW = NONE
    error: RAW = NONE
    clew: RAW = NONE


class PartData(msgspec.Struct, frozen=True):
    """The JSON of a part; the ids only where they are not columns."""

    id: Any = None
    message_id: Any = msgspec.field(default=None, name="messageID")
    type: Any = None
    text: RAW = NONE
    synthetic: Any = None
    ignored: Any = None
    mime: Any = None
    filename: Any = None
    url: RAW = NONE
    tool: Any = None
    call_id: Any = msgspec.field(default=None, name="callID")
    state: RAW = NONE
    metadata: RAW = NONE
    tail_start_id: Any = None


class ToolState(msgspec.Struct, frozen=True):
    """The state of a tool part: the call's arguments and what came of it."""

    status: Any = None
    input: RAW = NONE
    raw: RAW = NONE
    output: RAW = NONE
    error: RAW = NONE
    metadata: RAW = NONE
    time: Any = None
    attachments: RAW = NONE


class StateMetadata(msgspec.Struct, frozen=True):
    """What a tool notes beside its result."""

    interrupted: Any = None
    output: RAW = NONE
    session_id: Any = msgspec.field(default=None, name="sessionId")


class Attachment(msgspec.Struct, frozen=True):
    """A file that came with a result."""

    mime: Any = None
    url: RAW = NONE


class Marked(msgspec.Struct, frozen=True):
    """A `metadata` object with a mark of ours in it, or without."""

    clew: RAW = NONE


class Revert(msgspec.Struct, frozen=True):
    """From where on a session was taken back."""

    message_id: Any = msgspec.field(default=None, name="messageID")
    part_id: Any = msgspec.field(default=None, name="partID")


class ErrorData(msgspec.Struct, frozen=True):
    """Why a reply ended."""

    name: Any = None


class DocumentInfo(msgspec.Struct, frozen=True):
    """The session in an export, and in the files of older versions."""

    id: Any = None
    parent_id: Any = msgspec.field(default=None, name="parentID")
    project_id: Any = msgspec.field(default=None, name="projectID")
    directory: Any = None
    title: Any = None
    version: Any = None
    metadata: RAW = NONE
    revert: RAW = NONE
    time: Any = None


class DocumentMessage(msgspec.Struct, frozen=True):
    """One message of an export with its parts."""

    info: RAW
    parts: list[RAW] = []


class Document(msgspec.Struct, frozen=True):
    """What `opencode export` prints."""

    info: RAW
    messages: list[RAW] = []


LINE = msgspec.json.Decoder(Line)
MESSAGE = msgspec.json.Decoder(MessageData)
PART = msgspec.json.Decoder(PartData)
STATE = msgspec.json.Decoder(ToolState)
STATE_METADATA = msgspec.json.Decoder(StateMetadata)
ATTACHMENTS = msgspec.json.Decoder(list[Attachment])
MARKED = msgspec.json.Decoder(Marked)
MARK = msgspec.json.Decoder(Mark)
REVERT = msgspec.json.Decoder(Revert)
ERROR = msgspec.json.Decoder(ErrorData)
INFO = msgspec.json.Decoder(DocumentInfo)
DOCUMENT = msgspec.json.Decoder(Document)
DOCUMENT_MESSAGE = msgspec.json.Decoder(DocumentMessage)


def decode(decoder: msgspec.json.Decoder[T], data: bytes | memoryview | msgspec.Raw) -> T | None:
    """Returns the decoded value; what only a lenient parser takes is mended first; None where nothing helps."""
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    try:
        value = json.loads(bytes(data).decode("utf-8", "replace"), strict=False)
        text = mend_surrogates(json.dumps(value, ensure_ascii=False, separators=(",", ":")))
        return decoder.decode(text.encode())
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None


def json_of(cell: Cell) -> memoryview | None:
    """Returns the JSON text that a column holds, undecoded; None where it holds none."""
    if isinstance(cell, Special):
        raw = memoryview(cell.json)
        return raw if len(raw) else None
    return memoryview(cell.encode()) if isinstance(cell, str) and cell else None


def text_in(cell: Cell) -> str:
    """Returns the text in a column; empty where it holds something else."""
    if isinstance(cell, str):
        return cell
    return bytes(cell.json).decode("utf-8", "replace") if isinstance(cell, Special) else ""


def number_in(value: Any) -> int | None:
    """Returns a time in ms, whatever sort of number it is; None for anything else."""
    if isinstance(value, float) and value == value and abs(value) < 1e18:
        return int(value)
    return value if type(value) is int else None


def member(value: Any, name: str) -> Any:
    """Returns a member of a small object; None where it is none or has none."""
    return value.get(name) if isinstance(value, dict) else None  # type: ignore[union-attr]


def as_text(raw: msgspec.Raw) -> Lazy | None:
    """Returns a member as an undecoded text; None where it is no JSON string."""
    view = memoryview(raw)
    return JsonString(raw) if len(view) >= 2 and view[0] == 0x22 else None


def is_there(raw: msgspec.Raw) -> bool:
    """Tells whether a member is there and not null."""
    view = memoryview(raw)
    size = len(view)
    return size > 4 or (size > 0 and bytes(view) != b"null")


def mark_in(metadata: msgspec.Raw) -> Mark | None:
    """Returns the mark of ours in a `metadata` object, or None."""
    if len(memoryview(metadata)) < 8 or b'"clew"' not in bytes(metadata):
        return None
    found = decode(MARKED, metadata)
    return None if found is None or not is_there(found.clew) else decode(MARK, found.clew)
