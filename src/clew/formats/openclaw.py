"""OpenClaw: events in a tree, now rows of an SQLite database, before that lines of a file. Read, kept, put back.

An event is what pi has in its lines (layout 4 here, ids are UUIDs): the last event is where the session goes on, and
the way from it to the root is the conversation. A long event may be compressed in its row.
"""

from __future__ import annotations

import base64
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from clew.conversation.model import Call, Image, Message, Part, Reasoning, Text
from clew.conversation.source import Ending, Session, Source, Stream
from clew.conversation.text import JsonString
from clew.formats.loose import (
    NONE,
    Members,
    is_text,
    items_of,
    members_of,
    raw_of,
    scalar_in,
    spelled,
    text_in,
    word_in,
)
from clew.formats.protocol import Format, Home, Traits
from clew.formats.rows import is_rows
from clew.formats.shelf import Aside, Shelf
from clew.formats.sketch import Sketch
from clew.formats.sqlite import Tables
from clew.formats.times import read_time
from clew.formats.vault import Layout, Listed, Vault, export_table, json_cell, row_lines

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

AGENT = "openclaw"
TABLE = "transcript_events"
BESIDE = ("session_transcript_active_events", "session_windows", "transcript_event_identities")
"""Tables with rows of a session besides its events: the way through them, its window, their ids."""

NODES = "session_nodes"
"""Under which key a session is found; after a reset the same key stands for another session."""

LAYOUT = 4
MAX_EVENT = 256 << 20
_SUMMARY = (
    "The conversation history before this point was compacted into the following summary:\n\n<summary>\n",
    "\n</summary>",
)


class _Event(msgspec.Struct):
    number: int
    sort: str
    id: str
    parent: str
    members: Members


def read(source: Source, since: Ending | None = None) -> Session:
    """Reads a session whole."""
    sketch = Sketch(AGENT, source)
    events: list[_Event] = []
    for stream in source.streams:
        for number, members in _events(sketch, stream):
            sort = word_in(members.get("type", NONE))
            if sort == "session":
                _read_header(sketch, members, number)
                continue
            name, parent = word_in(members.get("id", NONE)), word_in(members.get("parentId", NONE))
            events.append(_Event(number, sort, name, parent, members))
    path = _path(sketch, events)
    kept = _cut(path)
    for place, event in enumerate(path):
        if kept is not None and place == kept[0]:
            sketch.compact()
            sketch.say(_summary(event), event.number)
            for earlier in path[kept[1] : kept[0]]:
                _say_again(sketch, earlier)
        else:
            sketch.say(_message(sketch, event), event.number)
    return sketch.finish()


def _say_again(sketch: Sketch, event: _Event) -> None:
    """Says what a compaction left in the context: the full history has it already."""
    message = _message(sketch, event)
    if message is not None:
        sketch.builder.add(message, event.number)


def _events(sketch: Sketch, stream: Stream) -> Iterator[tuple[int, Members]]:
    if not is_rows(stream.path):
        yield from sketch.lines(stream)
        return
    for number, table, row in row_lines(sketch, stream):
        if table == TABLE:
            members = members_of(json_cell(row.get("event_json", NONE))) or members_of(_unpacked(row))
            if members:
                yield number, members
            else:
                sketch.report(number, "unreadable row", "an event that is no JSON object")


def _unpacked(row: Members) -> msgspec.Raw:
    blob = word_in(members_of(row.get("event_zstd", NONE)).get("blob", NONE))
    try:
        decompressor = zstd.ZstdDecompressor()
        data = decompressor.decompress(base64.b64decode(blob, validate=True), MAX_EVENT) if blob else b""
        return raw_of(data) if blob and decompressor.eof else NONE
    except (ValueError, EOFError, zstd.ZstdError):
        return NONE


def _read_header(sketch: Sketch, members: Members, number: int) -> None:
    about = sketch.about
    about.id = about.id or word_in(members.get("id", NONE))
    about.cwd = word_in(members.get("cwd", NONE)) or about.cwd
    version = scalar_in(members.get("version", NONE))
    if isinstance(version, int) and version > LAYOUT:
        sketch.report(number, "newer layout", f"version {version} is read as version {LAYOUT}", lost=False)


def _path(sketch: Sketch, events: list[_Event]) -> list[_Event]:
    """Returns the events from the root to the last one; a missing parent is the event before."""
    places = {event.id: place for place, event in enumerate(events) if event.id}
    path: list[_Event] = []
    at = len(events) - 1
    while at >= 0:
        event = events[at]
        path.append(event)
        if not event.parent:
            if event.id or at == 0:
                break
            at -= 1
            continue
        above = places.get(event.parent, -1)
        if above < 0 or above >= at:
            sketch.report(event.number, "missing parent", "it follows the event before it", lost=False)
            above = at - 1
        at = above
    path.reverse()
    return path


def _cut(path: list[_Event]) -> tuple[int, int] | None:
    """Returns where the last compaction stands in a path, and the first event before it that it keeps."""
    for place in range(len(path) - 1, -1, -1):
        if path[place].sort == "compaction":
            first = word_in(path[place].members.get("firstKeptEntryId", NONE))
            kept = next((at for at in range(place) if path[at].id and path[at].id == first), place)
            return place, kept
    return None


def _summary(event: _Event) -> Message:
    text = _SUMMARY[0] + word_in(event.members.get("summary", NONE)) + _SUMMARY[1]
    return Message(
        "user", (Text(text),), "agent", "summary", read_time(scalar_in(event.members.get("timestamp", NONE)))
    )


def _message(sketch: Sketch, event: _Event) -> Message | None:
    if event.sort == "compaction":
        return _summary(event)
    if event.sort != "message":
        return None
    inner = members_of(event.members.get("message", NONE))
    time = read_time(scalar_in(inner.get("timestamp", NONE)))
    parts = tuple(_parts(sketch, inner.get("content", NONE)))
    role = word_in(inner.get("role", NONE))
    if role == "user":
        return Message("user", parts, "user", "", time)
    if role == "assistant":
        sketch.about.provider = word_in(inner.get("provider", NONE)) or sketch.about.provider
        return Message("assistant", parts, "model", "", time, word_in(inner.get("model", NONE)))
    if role == "toolResult":
        failed = scalar_in(inner.get("isError", NONE))
        is_error = failed if isinstance(failed, bool) else None
        return Message("tool", parts, "agent", "", time, "", "", word_in(inner.get("toolCallId", NONE)), is_error)
    if role != "system":
        sketch.skip("messages of another role")
    return None


def _parts(sketch: Sketch, content: msgspec.Raw) -> Iterator[Part]:
    if is_text(content):
        yield Text(JsonString(content))
    for raw in items_of(content):
        block = members_of(raw)
        sort = word_in(block.get("type", NONE))
        if sort == "text":
            yield Text(text_in(block.get("text", NONE)))
        elif sort == "thinking":
            yield Reasoning(text_in(block.get("thinking", NONE)))
        elif sort == "toolCall":
            call_id, name = word_in(block.get("id", NONE)), word_in(block.get("name", NONE))
            yield Call(call_id, name, spelled(block.get("arguments", NONE)))
        elif sort == "image":
            yield Image(word_in(block.get("mimeType", NONE)), text_in(block.get("data", NONE)))
        else:
            sketch.skip("content blocks of another kind")


def _sessions(tables: Tables) -> Iterable[Listed]:
    statement = f"SELECT session_id, max(created_at), count(*), max(seq) FROM {TABLE} GROUP BY session_id ORDER BY 1"  # noqa: S608
    for row in tables.query(statement):
        if isinstance(row[0], str):
            changed = (int(row[1]) if isinstance(row[1], (int, float)) else 0) * 1_000_000
            yield Listed(row[0], "", changed, int(row[2]))


def _export(tables: Tables, session_id: str) -> bytes | None:
    """Returns the events, and behind them what the agent keeps of the session beside them.

    The state of its search index is not among it: where that is missing, the agent makes it anew.
    """
    events = b"".join(export_table(tables, TABLE, "session_id", session_id, ("seq",)))
    if not events:
        return None
    more = [
        line for table in BESIDE for line in export_table(tables, table, "session_id", session_id, tables.key(table))
    ]
    nodes = export_table(tables, NODES, "current_session_id", session_id, tables.key(NODES), shared=True)
    return b"".join((events, *more, *nodes))


def _knows(path: Path, head: bytes) -> bool:
    line = head.removeprefix(b"\xef\xbb\xbf").lstrip().partition(b"\n")[0]
    members = members_of(raw_of(line))
    if word_in(members.get("type", NONE)) != "session":
        return False
    return scalar_in(members.get("version", NONE)) == LAYOUT or ".openclaw" in path.parts


def _base(home: Home) -> Path:
    return home.root / ".openclaw"


VAULT = Vault(
    AGENT,
    "OpenClaw",
    _base,
    ("agents/*/agent/openclaw-agent.sqlite",),
    Layout({TABLE: ("session_id", "seq", "event_json", "created_at")}, _sessions, _export),
    Shelf(AGENT, _base, ("agents/*/sessions/*.jsonl",), _knows),
)
FORMAT = Format(
    name=AGENT,
    title="OpenClaw",
    traits=Traits(record_kind="row", transport=AGENT, any_uuid=False, writes=False),
    read=read,
    locate=VAULT,
    resume=Aside(),
    place_rows=VAULT.place_rows,
    present_rows=VAULT.present_rows,
)
