"""The lines of a Codex rollout, as far as a reader needs them, and how one is decoded.

Promised: decoding a line once gives its type and views of its members; nothing large is decoded. Whatever a strict
decoder refuses (a member of another type, a lone surrogate) is read leniently, so that no line is lost that holds
something. Members that are not listed here stay in the records.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, cast

import msgspec

from clew.conversation.loss import Damage
from clew.conversation.source import Buffer, Records, Stream
from clew.conversation.text import JsonString, Lazy, mend_surrogates
from clew.formats.jsonl import JsonLines, line_ends
from clew.formats.marks import Mark

NONE = msgspec.Raw(b"")
"""A member that is not there."""


class Piece(msgspec.Struct, frozen=True, gc=False):
    """One part of a message's content, of a result's list, or of a reasoning summary."""

    type: str = ""
    text: msgspec.Raw = NONE
    image_url: msgspec.Raw = NONE


class Item(msgspec.Struct, frozen=True, gc=False):
    """The payload of a line, as far as it matters: an item of the conversation, an event, a compaction, a turn.

    One struct for all of them, so that a line is decoded in one pass.
    """

    type: str = ""
    role: str = ""
    content: list[Piece] | str | None = None
    id: msgspec.Raw = NONE
    call_id: str | None = None
    name: str | None = None
    namespace: str | None = None
    arguments: msgspec.Raw = NONE
    input: msgspec.Raw = NONE
    output: msgspec.Raw = NONE
    action: msgspec.Raw = NONE
    summary: msgspec.Raw = NONE
    tools: msgspec.Raw = NONE
    result: msgspec.Raw = NONE
    internal_chat_message_metadata_passthrough: msgspec.Raw = NONE
    num_turns: msgspec.Raw = NONE
    item: msgspec.Raw = NONE
    thread_name: msgspec.Raw = NONE
    turn_id: msgspec.Raw = NONE
    message: msgspec.Raw = NONE
    replacement_history: msgspec.Raw = NONE
    model: msgspec.Raw = NONE


class Line(msgspec.Struct, frozen=True, gc=False):
    """One line: `{"timestamp", "ordinal", "type", "payload", "metadata"}`, and our mark where clew wrote it."""

    type: str = ""
    payload: Item | None = None
    timestamp: msgspec.Raw = NONE
    ordinal: msgspec.Raw = NONE
    metadata: msgspec.Raw = NONE
    clew: msgspec.Raw = NONE


class _RawLine(msgspec.Struct, frozen=True, gc=False):
    type: str = ""
    payload: msgspec.Raw = NONE
    timestamp: msgspec.Raw = NONE
    ordinal: msgspec.Raw = NONE
    metadata: msgspec.Raw = NONE
    clew: msgspec.Raw = NONE


class Passthrough(msgspec.Struct, frozen=True, gc=False):
    """What the agent notes about the parts of a message; one kind a part."""

    content_item_kinds: tuple[str, ...] | None = None


class HistoryBase(msgspec.Struct, frozen=True):
    """The part of another rollout (or of an earlier file of the same thread) that a rollout goes on from."""

    thread_id: str = ""
    end_ordinal_exclusive: int | None = None


class Meta(msgspec.Struct, frozen=True):
    """The payload of `session_meta`."""

    id: str = ""
    timestamp: msgspec.Raw = NONE
    cwd: str = ""
    cli_version: str = ""
    model_provider: str | None = None
    source: msgspec.Raw = NONE
    thread_source: str | None = None
    history_mode: str | None = None
    history_base: HistoryBase | None = None
    forked_from_id: str | None = None
    parent_thread_id: str | None = None


class EventItem(msgspec.Struct, frozen=True, gc=False):
    """The item of an `item_completed` event, as far as it names helpers."""

    type: str = ""
    tool: msgspec.Raw = NONE
    receiver_thread_ids: msgspec.Raw = NONE


class _MetaLine(msgspec.Struct, frozen=True):
    payload: msgspec.Raw = NONE


_LINE = msgspec.json.Decoder(Line)
_RAW_LINE = msgspec.json.Decoder(_RawLine)
_META_LINE = msgspec.json.Decoder(_MetaLine)
_ITEM = msgspec.json.Decoder(Item)
_PIECES = msgspec.json.Decoder(list[Piece])
_RAWS = msgspec.json.Decoder(list[msgspec.Raw])
_KINDS = msgspec.json.Decoder(Passthrough)
_META = msgspec.json.Decoder(Meta)
_EVENT_ITEM = msgspec.json.Decoder(EventItem)
_MARK = msgspec.json.Decoder(Mark)
_TEXTS = msgspec.json.Decoder(tuple[str, ...])
_TEXT = msgspec.json.Decoder(str)
_INT = msgspec.json.Decoder(int)

_BOM_SIZE = 3
_REFUSED = (msgspec.DecodeError, RecursionError, UnicodeDecodeError)


def _decode(decoder: msgspec.json.Decoder[Any], kind: type[Any], raw: Buffer | msgspec.Raw) -> Any:
    """Returns what `decoder` makes of `raw`; where it refuses, the same member by member; else an empty value."""
    try:
        return decoder.decode(raw)
    except _REFUSED:
        return _lenient(kind, raw)


def _lenient(kind: type[Any], raw: Buffer | msgspec.Raw) -> Any:
    try:
        found = json.loads(bytes(raw).decode("utf-8", "replace"), strict=False)
    except (ValueError, RecursionError):
        found = None
    given = cast(dict[str, object], found) if isinstance(found, dict) else {}
    return kind(**_members(kind, given))


def _members(kind: type[Any], given: Mapping[str, object]) -> dict[str, Any]:
    """Returns those members that have the type which the struct wants."""
    members: dict[str, Any] = {}
    for field in msgspec.structs.fields(kind):
        if field.name not in given:
            continue
        if kind is Item and field.name == "content":
            members["content"] = _lenient_content(given["content"])
            continue
        try:
            text = mend_surrogates(json.dumps(given[field.name], ensure_ascii=False, separators=(",", ":")))
            members[field.name] = msgspec.json.decode(text.encode(), type=field.type)
        except (*_REFUSED, ValueError):
            continue
    return members


def _lenient_content(value: object) -> list[Piece] | str | None:
    if isinstance(value, str):
        return mend_surrogates(value)
    if not isinstance(value, list):
        return None
    parts = [cast(dict[str, object], part) for part in cast(list[object], value) if isinstance(part, dict)]
    return [Piece(**_members(Piece, part)) for part in parts]


class _SlowLines:
    """Decodes lines that the fast path refuses: members of an unknown shape are left out, the rest is taken."""

    def decode(self, data: bytes, /) -> Line:
        found = _RAW_LINE.decode(data)
        payload = decode_item(found.payload) if is_there(found.payload) else None
        return Line(found.type, payload, found.timestamp, found.ordinal, found.metadata, found.clew)


_SLOW = _SlowLines()


def rollout_lines(
    records: Records, stream: Stream, damage: list[Damage], *, growing: bool = False, start: int = 0
) -> JsonLines[Line]:
    """Returns an iteration over the lines of a rollout."""
    return JsonLines(records, stream, _LINE, damage, growing=growing, start=start, slow=_SLOW)


def line_bytes(lines: JsonLines[Line], number: int) -> memoryview:
    """Returns the bytes of the line that is being iterated over (records know their end only later)."""
    _, start, _ = lines.records.place(number)
    return memoryview(lines.stream.data)[start : next(line_ends(lines.stream.data, start), start)]


def decode_item(raw: Buffer | msgspec.Raw) -> Item:
    """Returns the item that stands in `raw`; members of an unknown shape are left out."""
    try:
        return _ITEM.decode(raw)
    except _REFUSED:
        return cast(Item, _lenient(Item, raw))


def decode_meta(raw: Buffer | msgspec.Raw) -> Meta:
    """Returns the session's own facts from the object that holds them."""
    return cast(Meta, _decode(_META, Meta, raw))


def decode_meta_line(data: Buffer) -> Meta:
    """Returns the session's own facts from a whole `session_meta` line."""
    start = bytes(memoryview(data)[:_BOM_SIZE]) == b"\xef\xbb\xbf"
    found = cast(_MetaLine, _decode(_META_LINE, _MetaLine, memoryview(data)[_BOM_SIZE if start else 0 :]))
    return decode_meta(found.payload) if is_there(found.payload) else Meta()


def decode_event_item(raw: msgspec.Raw) -> EventItem:
    """Returns the item of an event."""
    return cast(EventItem, _decode(_EVENT_ITEM, EventItem, raw))


def decode_mark(raw: msgspec.Raw) -> Mark:
    """Returns the mark on a line; an empty one where there is none."""
    return cast(Mark, _decode(_MARK, Mark, raw)) if is_there(raw) else Mark()


def decode_pieces(raw: msgspec.Raw) -> list[Piece]:
    """Returns the parts of a content list; parts of an unknown shape are empty."""
    try:
        return _PIECES.decode(raw)
    except _REFUSED:
        return [cast(Piece, _decode(msgspec.json.Decoder(Piece), Piece, part)) for part in decode_list(raw)]


def decode_list(raw: msgspec.Raw) -> list[msgspec.Raw]:
    """Returns the elements of a list, undecoded; none where it is no list."""
    try:
        return _RAWS.decode(raw)
    except _REFUSED:
        return []


def decode_kinds(raw: msgspec.Raw) -> tuple[str, ...] | None:
    """Returns the kinds of a message's parts, or None where the agent did not note any."""
    if not is_there(raw):
        return None
    return cast(Passthrough, _decode(_KINDS, Passthrough, raw)).content_item_kinds


def decode_texts(raw: msgspec.Raw) -> tuple[str, ...]:
    """Returns a list of strings, or nothing."""
    try:
        return _TEXTS.decode(raw)
    except _REFUSED:
        return ()


def decode_text(raw: msgspec.Raw) -> str:
    """Returns a short string, or nothing."""
    try:
        return _TEXT.decode(raw)
    except _REFUSED:
        return ""


def decode_int(raw: msgspec.Raw) -> int | None:
    """Returns a whole number, or None."""
    try:
        return _INT.decode(raw)
    except _REFUSED:
        return None


def is_there(raw: msgspec.Raw) -> bool:
    """Tells whether a member was there and is not null."""
    if raw is NONE:
        return False
    view = memoryview(raw)
    return len(view) > 0 and (len(view) != 4 or bytes(view) != b"null")


def as_text(raw: msgspec.Raw) -> Lazy | None:
    """Returns a string member undecoded, or None where it is no string."""
    if raw is NONE:
        return None
    view = memoryview(raw)
    return JsonString(raw) if len(view) >= 2 and view[0] == 0x22 else None


_MS_FROM = 100_000_000_000
_DATETIME = msgspec.json.Decoder(datetime)


@lru_cache(4)
def _minute_ms(head: bytes) -> int | None:
    """Returns the time of a minute, `2026-11-30T19:36:`; None where it is none."""
    try:
        return round(datetime.fromisoformat(head.decode("ascii") + "00+00:00").timestamp() * 1000)
    except (ValueError, OverflowError):
        return None


def decode_time(raw: msgspec.Raw) -> int | None:
    """Returns milliseconds since 1970 UTC, or None where the member tells no time.

    A text without a zone is taken as UTC. A number is seconds below 1e11, else milliseconds; older tools wrote both.
    """
    view = memoryview(raw)
    if len(view) == 26 and view[0] == 0x22:
        data = bytes(view)
        minute = _minute_ms(data[1:18])
        millis = data[18:20] + data[21:24]
        if minute is not None and millis.isdigit() and data[24:] == b'Z"':
            return minute + int(millis)
    if not len(view):
        return None
    try:
        if view[0] != 0x22:
            number = json.loads(bytes(view))
            if isinstance(number, bool) or not isinstance(number, int | float) or not 0 < number < 1e15:
                return None
            return int(number if number >= _MS_FROM else number * 1000)
        found = _DATETIME.decode(raw)
        if found.tzinfo is None:
            found = found.replace(tzinfo=UTC)
        return round(found.timestamp() * 1000)
    except (*_REFUSED, ValueError, OverflowError):
        return None
