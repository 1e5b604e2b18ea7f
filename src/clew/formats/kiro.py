"""Kiro CLI, and Amazon Q CLI before it: lines of its newer sessions, rows of its older ones. Read, kept, put back.

From public sources. A session of lines has a small document of the same name beside it. In the database a session is
one row of `conversations_v2` whose value is a JSON document; such a document is also read where it stands alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from clew.conversation.model import Call, Message, Part, Text
from clew.conversation.source import Ending, Session, Source, Stream
from clew.formats.loose import (
    NONE,
    Members,
    first_byte,
    items_of,
    members_of,
    raw_of,
    scalar_in,
    spelled,
    text_in,
    word_in,
)
from clew.formats.protocol import Format, Home, Traits
from clew.formats.rows import Value, encode_row, is_rows
from clew.formats.shelf import Aside, Shelf
from clew.formats.sketch import Sketch
from clew.formats.sqlite import Tables
from clew.formats.times import read_time
from clew.formats.vault import Layout, Listed, Vault, json_cell, row_lines

AGENT = "kiro"
TABLE = "conversations_v2"
_LINE = re.compile(rb'\{\s*"(?:version"\s*:\s*"[^"]*"\s*,\s*")?kind"\s*:\s*"(?:Prompt|AssistantMessage|ToolResults)"')
_ID = re.compile(r'"conversation_id"\s*:\s*"([^"\\]{1,200})"')


def read(source: Source, since: Ending | None = None) -> Session:
    """Reads a session whole."""
    sketch = Sketch(AGENT, source)
    for stream in source.streams:
        if is_rows(stream.path):
            for number, _, row in row_lines(sketch, stream):
                for cell in row.values():
                    document = members_of(json_cell(cell))
                    if "history" in document:
                        _read_root(sketch, document)
                        for raw in items_of(document["history"]):
                            _read_exchange(sketch, members_of(raw), number)
        elif _is_document(stream):
            for number, exchange in sketch.document(stream, "history"):
                _read_exchange(sketch, exchange, number)
            if sketch.frame is not None:
                _read_root(sketch, sketch.frame.members(bytes(stream.data)))
        else:
            for number, line in sketch.lines(stream):
                _read_line(sketch, line, number)
    for side in source.side:
        _read_companion(sketch, members_of(raw_of(bytes(side.load()))))
    return sketch.finish()


def _is_document(stream: Stream) -> bool:
    head = bytes(memoryview(stream.data)[:4096])
    return stream.path.endswith(".json") and not _LINE.match(head.lstrip())


# --- lines ----------------------------------------------------------------------------------------------------


def _read_companion(sketch: Sketch, facts: Members) -> None:
    about = sketch.about
    about.id = word_in(facts.get("session_id", NONE)) or about.id
    about.cwd = word_in(facts.get("cwd", NONE)) or about.cwd
    about.title = word_in(facts.get("title", NONE)) or about.title
    about.created_ms = read_time(scalar_in(facts.get("created_at", NONE)))
    about.updated_ms = read_time(scalar_in(facts.get("updated_at", NONE)))


def _read_line(sketch: Sketch, line: Members, number: int) -> None:
    kind = word_in(line.get("kind", NONE))
    parts: list[Part] = []
    for raw in items_of(members_of(line.get("data", NONE)).get("content", NONE)):
        block = members_of(raw)
        sort, data = word_in(block.get("kind", NONE)), block.get("data", NONE)
        if sort == "text":
            parts.append(Text(text_in(data)))
        elif sort == "toolUse":
            use = members_of(data)
            call_id, name = word_in(use.get("toolUseId", NONE)), word_in(use.get("name", NONE))
            parts.append(Call(call_id, name, spelled(use.get("input", NONE))))
        elif sort == "toolResult":
            sketch.say(_line_result(members_of(data)), number)
        else:
            sketch.skip("content blocks of another kind")
    if kind == "Prompt":
        sketch.say(Message("user", tuple(parts)), number)
    elif kind == "AssistantMessage":
        sketch.say(Message("assistant", tuple(parts), "model"), number)
    elif kind != "ToolResults":
        sketch.report(number, "foreign record", "a line of an unknown kind", lost=bool(parts))


def _line_result(data: Members) -> Message:
    content = data.get("content", NONE)
    parts: list[Part] = []
    if first_byte(content) == 0x5B:
        parts += [Text(spelled(members_of(raw).get("data", NONE))) for raw in items_of(content)]
    else:
        parts.append(Text(spelled(content)))
    failed = word_in(data.get("status", NONE)) == "error"
    return Message("tool", tuple(parts), "agent", "", None, "", "", word_in(data.get("toolUseId", NONE)), failed)


# --- documents ------------------------------------------------------------------------------------------------


def _read_root(sketch: Sketch, root: Members) -> None:
    sketch.about.id = word_in(root.get("conversation_id", NONE)) or sketch.about.id


def _read_exchange(sketch: Sketch, exchange: Members, number: int) -> None:
    user = members_of(exchange.get("user", NONE))
    state = members_of(members_of(user.get("env_context", NONE)).get("env_state", NONE))
    sketch.about.cwd = word_in(state.get("current_working_directory", NONE)) or sketch.about.cwd
    time = read_time(scalar_in(user.get("timestamp", NONE)))
    content = members_of(user.get("content", NONE))
    for name, raw in content.items():
        value = members_of(raw)
        for result in items_of(value.get("tool_use_results", NONE)):
            sketch.say(_result(members_of(result), time), number)
        prompt = value.get("prompt", NONE)
        if first_byte(prompt) == 0x22:
            sketch.say(Message("user", (Text(text_in(prompt)),), "user", "", time), number)
        elif name == "Prompt" or "tool_use_results" not in value:
            sketch.report(number, "foreign record", f"what the user said is of an unknown kind ({name[:40]})")
    metadata = members_of(exchange.get("request_metadata", NONE))
    ended = read_time(scalar_in(metadata.get("stream_end_timestamp_ms", NONE)))
    for raw in members_of(exchange.get("assistant", NONE)).values():
        sketch.say(_reply(members_of(raw), time if ended is None else ended), number)


def _reply(value: Members, time: int | None) -> Message:
    parts: list[Part] = [Text(text_in(value.get("content", NONE)))]
    for raw in items_of(value.get("tool_uses", NONE)):
        use = members_of(raw)
        call_id, name = word_in(use.get("id", NONE)), word_in(use.get("name", NONE))
        parts.append(Call(call_id, name, spelled(use.get("args", NONE))))
    return Message("assistant", tuple(parts), "model", "", time, "", word_in(value.get("message_id", NONE)))


def _result(value: Members, time: int | None) -> Message:
    parts: list[Part] = []
    for raw in items_of(value.get("content", NONE)):
        parts += [Text(spelled(item)) for item in members_of(raw).values()]
    failed = word_in(value.get("status", NONE)).lower() == "error"
    return Message("tool", tuple(parts), "agent", "", time, "", "", word_in(value.get("tool_use_id", NONE)), failed)


# --- places ---------------------------------------------------------------------------------------------------


def _rows(tables: Tables) -> Iterator[tuple[str, list[Value]]]:
    """Yields the rows that hold a conversation, by its id."""
    for values in tables.rows(TABLE, "1", (), tables.key(TABLE)):
        for value in values:
            found = _ID.search(value[:4096]) if isinstance(value, str) and value.lstrip()[:1] == "{" else None
            if found is not None:
                yield found.group(1), values
                break


def _sessions(tables: Tables) -> Iterable[Listed]:
    for session_id, values in _rows(tables):
        size = sum(len(value) for value in values if isinstance(value, str))
        times = [value for value in values if isinstance(value, int)]
        yield Listed(session_id, "", max(times, default=0), size)


def _export(tables: Tables, session_id: str) -> bytes | None:
    found = [values for name, values in _rows(tables) if name == session_id]
    return b"".join(encode_row(TABLE, tables.columns(TABLE), values) for values in found[:1]) if found else None


def _knows(path: Path, head: bytes) -> bool:
    head = head.lstrip()
    return _LINE.match(head) is not None or (
        head.startswith(b"{") and b'"conversation_id"' in head and b'"history"' in head
    )


def _base(home: Home) -> Path:
    return home.root


VAULT = Vault(
    AGENT,
    "Kiro CLI",
    _base,
    (
        ".local/share/kiro-cli/data.sqlite3",
        ".local/share/amazon-q/data.sqlite3",
        "Library/Application Support/kiro-cli/data.sqlite3",
        "Library/Application Support/amazon-q/data.sqlite3",
    ),
    Layout({TABLE: ()}, _sessions, _export),
    Shelf(
        AGENT,
        _base,
        (".kiro/sessions/*.jsonl", ".kiro/sessions/*/*.jsonl"),
        _knows,
        beside=lambda path: (path.with_suffix(".json"),) if path.suffix == ".jsonl" else (),
    ),
)
FORMAT = Format(
    name=AGENT,
    title="Kiro CLI",
    traits=Traits(record_kind="row", transport=AGENT, any_uuid=False, writes=False, offline=False),
    read=read,
    locate=VAULT,
    resume=Aside(),
    place_rows=VAULT.place_rows,
    present_rows=VAULT.present_rows,
)
