"""Goose: sessions as rows of one SQLite database. Read, kept and put back; from public sources.

Columns vary with the version of the schema: those that a reading needs are asked for, the others are exported as they
are. The older form (one JSONL file a session) is known too little to be read.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from clew.conversation.model import Call, Image, Message, Part, Reasoning, Text
from clew.conversation.source import Ending, Reference, Session, Source
from clew.formats.loose import NONE, Members, items_of, members_of, scalar_in, spelled, text_in, word_in
from clew.formats.protocol import Format, Home, Traits
from clew.formats.shelf import Aside, Shelf
from clew.formats.sketch import Sketch
from clew.formats.sqlite import Tables
from clew.formats.times import read_time
from clew.formats.vault import Layout, Listed, Vault, export_table, json_cell, row_lines

AGENT = "goose"
_OLD = "a session of an older Goose, whose form clew does not know well enough to read it"
_NEEDED = {
    "sessions": ("id", "working_dir", "updated_at"),
    "messages": ("id", "session_id", "role", "content_json", "created_timestamp"),
}


def read(source: Source, since: Ending | None = None) -> Session:
    """Reads a session whole."""
    sketch = Sketch(AGENT, source)
    for stream in source.streams:
        for number, table, row in row_lines(sketch, stream):
            if table == "sessions":
                _read_session(sketch, row)
            elif table == "messages":
                _read_message(sketch, row, number)
    return sketch.finish()


def _read_session(sketch: Sketch, row: Members) -> None:
    about = sketch.about
    about.id = word_in(row.get("id", NONE))
    about.cwd = word_in(row.get("working_dir", NONE))
    about.title = word_in(row.get("description", NONE)) or word_in(row.get("name", NONE))
    about.provider = word_in(row.get("provider_name", NONE))
    about.model = word_in(members_of(json_cell(row.get("model_config_json", NONE))).get("model_name", NONE))
    about.created_ms = read_time(scalar_in(row.get("created_at", NONE)))
    about.updated_ms = read_time(scalar_in(row.get("updated_at", NONE)))
    about.helper = word_in(row.get("session_type", NONE)) not in ("", "user")
    parent = word_in(row.get("parent_session_id", NONE))
    if parent:
        about.references = (Reference("forked", parent),)


def _read_message(sketch: Sketch, row: Members, number: int) -> None:
    role = word_in(row.get("role", NONE))
    time = read_time(scalar_in(row.get("created_timestamp", NONE)))
    content = json_cell(row.get("content_json", NONE))
    if role not in ("user", "assistant"):
        sketch.report(number, "foreign record", "a message of an unknown role")
        return
    parts: list[Part] = []
    for raw in items_of(content):
        block = members_of(raw)
        if word_in(block.get("type", NONE)) == "toolResponse":
            sketch.say(_result(block, time), number)
            continue
        part = _part(block)
        if part is not None:
            parts.append(part)
        else:
            sketch.skip("content blocks of another kind")
    if role == "assistant":
        sketch.say(Message("assistant", tuple(parts), "model", "", time), number)
        return
    metadata = members_of(json_cell(row.get("metadata_json", NONE)))
    if scalar_in(metadata.get("userVisible", NONE)) is False:
        sketch.say(Message("user", tuple(parts), "agent", "notice", time), number)
    else:
        sketch.say(Message("user", tuple(parts), "user", "", time), number)


def _part(block: Members) -> Part | None:
    sort = word_in(block.get("type", NONE))
    if sort == "text":
        return Text(text_in(block.get("text", NONE)))
    if sort == "thinking":
        return Reasoning(text_in(block.get("thinking", NONE)))
    if sort == "toolRequest":
        value = members_of(members_of(block.get("toolCall", NONE)).get("value", NONE))
        call_id, name = word_in(block.get("id", NONE)), word_in(value.get("name", NONE))
        return Call(call_id, name, spelled(value.get("arguments", NONE)))
    if sort == "image":
        return Image(word_in(block.get("mimeType", NONE)), text_in(block.get("data", NONE)))
    return None


def _result(block: Members, time: int | None) -> Message:
    result = members_of(block.get("toolResult", NONE))
    value = members_of(result.get("value", NONE))
    content = value.get("content", NONE) if value else result.get("value", NONE)
    parts: list[Part] = [p for raw in items_of(content) if isinstance(p := _part(members_of(raw)), (Text, Image))]
    failed = word_in(result.get("status", NONE)) == "error" or scalar_in(value.get("isError", NONE)) is True
    error: msgspec.Raw = result.get("error", NONE)
    parts.append(Text(spelled(error)))
    return Message("tool", tuple(parts), "agent", "", time, "", "", word_in(block.get("id", NONE)), failed)


def _sessions(tables: Tables) -> Iterable[Listed]:
    kinds = "session_type" if "session_type" in tables.columns("sessions") else "'user'"
    for row in tables.query(
        f"SELECT id, working_dir, {kinds}, (SELECT max(m.id) FROM messages m WHERE m.session_id = s.id),"  # noqa: S608
        " (SELECT count(*) FROM messages m WHERE m.session_id = s.id), (SELECT max(m.created_timestamp)"
        " FROM messages m WHERE m.session_id = s.id) FROM sessions s ORDER BY id"
    ):
        if isinstance(row[0], str):
            time = read_time(row[5]) or 0
            changed = time * 1_000_000 + (row[3] if isinstance(row[3], int) else 0) % 1_000_000
            yield Listed(
                row[0],
                row[1] if isinstance(row[1], str) else "",
                changed,
                row[4] if isinstance(row[4], int) else 0,
                "session" if row[2] in ("user", None, "") else "helper",
            )


def _export(tables: Tables, session_id: str) -> bytes | None:
    head = list(export_table(tables, "sessions", "id", session_id, ("id",)))
    return b"".join((*head, *export_table(tables, "messages", "session_id", session_id, ("id",)))) if head else None


def _base(home: Home) -> Path:
    data = home.env.get("XDG_DATA_HOME")
    return (Path(data) if data else home.root / ".local" / "share") / "goose" / "sessions"


VAULT = Vault(
    AGENT,
    "Goose",
    _base,
    ("sessions.db",),
    Layout(_NEEDED, _sessions, _export),
    Shelf(AGENT, _base, ("*.jsonl",), lambda path, head: False, refuse=lambda path: _OLD),
)
FORMAT = Format(
    name=AGENT,
    title="Goose",
    traits=Traits(record_kind="row", transport=AGENT, any_uuid=False, writes=False),
    read=read,
    locate=VAULT,
    resume=Aside(),
    place_rows=VAULT.place_rows,
    present_rows=VAULT.present_rows,
)
