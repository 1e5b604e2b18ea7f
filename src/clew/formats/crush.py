"""Crush: sessions as rows of a project's SQLite database. Read, kept and put back; from its public source.

After a compaction the model gets the messages from `summary_message_id` on; the full history holds the others too.
"""

from __future__ import annotations

from collections.abc import Iterable

from clew.conversation.model import Call, Image, Message, Part, Reasoning, Text
from clew.conversation.source import Ending, Reference, Session, Source
from clew.formats.loose import NONE, Members, items_of, members_of, scalar_in, text_in, word_in
from clew.formats.protocol import Format, Traits
from clew.formats.shelf import Aside
from clew.formats.sketch import Sketch
from clew.formats.sqlite import Tables
from clew.formats.times import read_time
from clew.formats.vault import Layout, Listed, Vault, export_table, json_cell, row_lines

AGENT = "crush"
_NEEDED = {
    "sessions": ("id", "parent_session_id", "title", "created_at", "updated_at"),
    "messages": ("id", "session_id", "role", "parts", "model", "created_at"),
}


def read(source: Source, since: Ending | None = None) -> Session:
    """Reads a session whole."""
    sketch = Sketch(AGENT, source)
    summary = ""
    for stream in source.streams:
        for number, table, row in row_lines(sketch, stream):
            if table == "sessions":
                summary = _read_session(sketch, row)
            elif table == "messages":
                if summary and word_in(row.get("id", NONE)) == summary:
                    sketch.compact()
                _read_message(sketch, row, number)
    return sketch.finish()


def _read_session(sketch: Sketch, row: Members) -> str:
    about = sketch.about
    about.id = word_in(row.get("id", NONE))
    about.title = word_in(row.get("title", NONE))
    parent = word_in(row.get("parent_session_id", NONE))
    about.created_ms = read_time(scalar_in(row.get("created_at", NONE)))
    about.updated_ms = read_time(scalar_in(row.get("updated_at", NONE)))
    if parent:
        about.references, about.helper = (Reference("helper_of", parent),), True
    return word_in(row.get("summary_message_id", NONE))


def _read_message(sketch: Sketch, row: Members, number: int) -> None:
    role = word_in(row.get("role", NONE))
    time = read_time(scalar_in(row.get("created_at", NONE)))
    parts: list[Part] = []
    for raw in items_of(json_cell(row.get("parts", NONE))):
        item = members_of(raw)
        sort, data = word_in(item.get("type", NONE)), members_of(item.get("data", NONE))
        if sort == "tool_result":
            sketch.say(_result(data, time), number)
        elif (part := _part(sort, data)) is not None:
            parts.append(part)
        elif sort not in ("finish", "tool_result"):
            sketch.skip("parts of another kind")
    is_summary = bool(scalar_in(row.get("is_summary_message", NONE)))
    if is_summary:  # Crush sends its summary as a message of the user
        sketch.say(Message("user", tuple(parts), "agent", "summary", time), number)
    elif role == "user":
        sketch.say(Message("user", tuple(parts), "user", "", time), number)
    elif role == "assistant":
        model = word_in(row.get("model", NONE))
        sketch.about.provider = word_in(row.get("provider", NONE)) or sketch.about.provider
        sketch.say(Message("assistant", tuple(parts), "model", "", time, model), number)
    elif role not in ("system", "tool"):
        sketch.report(number, "foreign record", "a message of an unknown role")


def _part(sort: str, data: Members) -> Part | None:
    if sort == "text":
        return Text(text_in(data.get("text", NONE)))
    if sort == "reasoning":
        return Reasoning(text_in(data.get("thinking", NONE)))
    if sort == "tool_call":
        return Call(word_in(data.get("id", NONE)), word_in(data.get("name", NONE)), text_in(data.get("input", NONE)))
    if sort == "image_url":
        return Image("", "", word_in(data.get("url", NONE)))
    if sort == "binary":
        return Image(word_in(data.get("MIMEType", NONE)), text_in(data.get("Data", NONE)))
    if sort == "shell_command":
        command, output = word_in(data.get("command", NONE)), word_in(data.get("output", NONE))
        return Text(f"$ {command}\n{output}")
    return None


def _result(data: Members, time: int | None) -> Message:
    parts: list[Part] = [Text(text_in(data.get("content", NONE)))]
    kind = word_in(data.get("mime_type", NONE))
    if kind.startswith("image/"):
        parts.append(Image(kind, text_in(data.get("data", NONE))))
    failed = scalar_in(data.get("is_error", NONE))
    is_error = failed if isinstance(failed, bool) else None
    return Message("tool", tuple(parts), "agent", "", time, "", "", word_in(data.get("tool_call_id", NONE)), is_error)


def _sessions(tables: Tables) -> Iterable[Listed]:
    statement = (
        "SELECT s.id, s.parent_session_id, s.updated_at, (SELECT count(*) FROM messages m WHERE m.session_id = s.id),"
        " (SELECT coalesce(sum(length(m.parts)), 0) FROM messages m WHERE m.session_id = s.id)"
        " FROM sessions s ORDER BY s.created_at, s.id"
    )
    for row in tables.query(statement):
        if isinstance(row[0], str):
            changed = (read_time(row[2]) or 0) * 1_000_000 + int(row[3]) % 1_000_000
            yield Listed(row[0], "", changed, int(row[4]), "helper" if row[1] else "session")


def _export(tables: Tables, session_id: str) -> bytes | None:
    head = list(export_table(tables, "sessions", "id", session_id, ("id",)))
    if not head:
        return None
    more: list[bytes] = []
    for table in ("files", "read_files"):
        if "session_id" in tables.columns(table):
            more += export_table(tables, table, "session_id", session_id, tables.key(table))
    rows = export_table(tables, "messages", "session_id", session_id, ("created_at", "rowid", "id"))
    return b"".join((*head, *more, *rows))


VAULT = Vault(
    AGENT,
    "Crush",
    lambda home: home.root,
    (".crush/crush.db", "*/.crush/crush.db"),
    Layout(_NEEDED, _sessions, _export, ("sessions",)),
    folder=lambda path: str(path.parent.parent) if path.parent.name == ".crush" else "",
)
FORMAT = Format(
    name=AGENT,
    title="Crush",
    traits=Traits(record_kind="row", transport=AGENT, any_uuid=False, writes=False),
    read=read,
    locate=VAULT,
    resume=Aside(),
    place_rows=VAULT.place_rows,
    present_rows=VAULT.present_rows,
)
