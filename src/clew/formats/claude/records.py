"""Claude Code's record types, as far as a conversation needs them; everything else stays in the bytes.

A record is decoded once into `Record`: what is small becomes a value, what may be large (message, attachment) stays
a slice of the file. Members whose type other versions vary are taken as they come and checked where they are used,
so that an odd member never costs the record. Timestamps are read in every spelling that was met in the wild.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from clew.formats.marks import Mark

VERSION = "2.1.332"
"""The version whose dialect is written, and whose program read it back."""

CONVERSATION = ("user", "assistant")
SYNTHETIC = "<synthetic>"
"""Names the model of assistant messages that the program made up."""

NONE = msgspec.Raw(b"")


class ApiMessage(msgspec.Struct, gc=False):
    """The `message` of a conversation record: a message of the Messages API."""

    id: Any = None
    model: Any = None
    content: msgspec.Raw = NONE


class Attachment(msgspec.Struct, gc=False, rename="camel"):
    """An attachment; of the kind `queued_command` it holds what somebody said while the model was busy."""

    type: Any = None
    prompt: msgspec.Raw = NONE
    command_mode: Any = None
    origin: msgspec.Raw = NONE


class Record(msgspec.Struct, gc=False, rename="camel"):
    """One line. `parent_uuid` is UNSET where the record does not say, None where it says that there is none."""

    type: Any = ""
    subtype: Any = ""
    uuid: Any = None
    parent_uuid: Any = msgspec.UNSET
    logical_parent_uuid: Any = None
    session_id: Any = None
    request_session_id: Any = None
    is_sidechain: Any = None
    is_meta: Any = None
    own_note: Any = None
    is_compact_summary: Any = None
    is_visible_in_transcript_only: Any = None
    is_api_error_message: Any = None
    request_id: Any = None
    timestamp: Any = None
    cwd: Any = None
    version: Any = None
    entrypoint: Any = None
    git_branch: Any = None
    prompt_source: Any = None
    permission_mode: Any = None
    leaf_uuid: Any = None
    custom_title: msgspec.Raw = NONE
    ai_title: msgspec.Raw = NONE
    summary: msgspec.Raw = NONE
    origin: msgspec.Raw = NONE
    compact_metadata: msgspec.Raw = NONE
    message: ApiMessage | None = None
    attachment: Attachment | None = None
    clew: msgspec.Raw = NONE


class Block(msgspec.Struct, gc=False):
    """One content block of a message."""

    type: Any = None
    text: msgspec.Raw = NONE
    thinking: msgspec.Raw = NONE
    id: Any = None
    name: Any = None
    input: msgspec.Raw = NONE
    tool_use_id: Any = None
    content: msgspec.Raw = NONE
    is_error: Any = None
    source: msgspec.Raw = NONE


class ImageSource(msgspec.Struct, gc=False):
    """Where an image or a document lies: in the record itself (base64), or at an address."""

    type: Any = None
    media_type: Any = None
    data: msgspec.Raw = NONE
    url: Any = None


class OriginKind(msgspec.Struct, gc=False):
    """Who put a user record there, where the record says it."""

    kind: Any = None


class Preserved(msgspec.Struct, gc=False, rename="camel"):
    """Old records that stay verbatim behind a compaction summary, and the record they stand behind."""

    anchor_uuid: Any = None
    uuids: Any = None
    all_uuids: Any = None
    head_uuid: Any = None
    tail_uuid: Any = None


class CompactMetadata(msgspec.Struct, gc=False, rename="camel"):
    """What a compaction boundary says about itself."""

    preserved_messages: msgspec.Raw = NONE
    preserved_segment: msgspec.Raw = NONE


RECORDS = msgspec.json.Decoder(Record)


class OddRecords:
    """Decodes what the decoder of records refuses: one whose message or attachment is no object."""

    def decode(self, data: bytes, /) -> Record:
        """Returns the record; raises msgspec.DecodeError for what is no JSON object."""
        try:
            return RECORDS.decode(data)
        except msgspec.ValidationError:
            return _decode_odd(data)


ODD_RECORDS = OddRecords()


def _decode_odd(data: bytes) -> Record:
    members = _MEMBERS(data)
    for name, value in list(members.items()):
        if name in ("message", "attachment"):
            if first_byte(value) != 0x7B:
                del members[name]
            continue
        try:
            _ANYTHING(value)
        except _ERRORS:  # such as a number beyond every double
            del members[name]
    return RECORDS.decode(msgspec.json.encode(members))


_ANYTHING = msgspec.json.Decoder().decode
_MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_BLOCKS = msgspec.json.Decoder(list[Block]).decode
_BLOCK = msgspec.json.Decoder(Block).decode
_RAWS = msgspec.json.Decoder(list[msgspec.Raw]).decode
_SOURCE = msgspec.json.Decoder(ImageSource).decode
_ORIGIN = msgspec.json.Decoder(OriginKind).decode
_PRESERVED = msgspec.json.Decoder(Preserved).decode
_COMPACT = msgspec.json.Decoder(CompactMetadata).decode
_TEXT = msgspec.json.Decoder(str).decode
_MARK = msgspec.json.Decoder(Mark).decode

_ERRORS = (msgspec.DecodeError, RecursionError)


def first_byte(raw: msgspec.Raw) -> int:
    """Returns the first byte of a JSON value, or 0 when there is none."""
    return memoryview(raw)[0] if raw is not NONE else 0


def is_text(raw: msgspec.Raw) -> bool:
    """Tells whether a value is a JSON string."""
    return raw is not NONE and memoryview(raw)[0] == 0x22


def read_blocks(raw: msgspec.Raw) -> list[Block]:
    """Returns the content blocks of a list; what is no block is left out, what is no list has none."""
    if raw is NONE or memoryview(raw)[0] != 0x5B:
        return []
    try:
        return _BLOCKS(raw)
    except _ERRORS:
        pass
    blocks: list[Block] = []
    try:
        for item in _RAWS(raw):
            try:
                blocks.append(_BLOCK(item))
            except _ERRORS:
                continue
    except _ERRORS:
        pass
    return blocks


def read_source(raw: msgspec.Raw) -> ImageSource | None:
    """Returns where an image lies, or None."""
    try:
        return _SOURCE(raw)
    except _ERRORS:
        return None


def read_origin_kind(raw: msgspec.Raw) -> str:
    """Returns the kind of a record's `origin`, or nothing."""
    if first_byte(raw) != 0x7B:
        return ""
    try:
        kind = _ORIGIN(raw).kind
    except _ERRORS:
        return ""
    return kind if isinstance(kind, str) else ""


def read_text(raw: msgspec.Raw) -> str:
    """Returns a short text, or nothing where the value is none."""
    if not is_text(raw):
        return ""
    try:
        return _TEXT(raw)
    except (*_ERRORS, UnicodeDecodeError):
        return ""


def read_mark(raw: msgspec.Raw) -> Mark | None:
    """Returns the mark that a writer of clew left on a record, or None."""
    if first_byte(raw) != 0x7B:
        return None
    try:
        return _MARK(raw)
    except _ERRORS:
        return None


def read_preserved(raw: msgspec.Raw) -> Preserved:
    """Returns which records a compaction kept verbatim; an empty value where it says nothing."""
    if first_byte(raw) != 0x7B:
        return Preserved()
    try:
        meta = _COMPACT(raw)
        if first_byte(meta.preserved_messages) == 0x7B:
            return _PRESERVED(meta.preserved_messages)
        if first_byte(meta.preserved_segment) == 0x7B:
            return _PRESERVED(meta.preserved_segment)
    except _ERRORS:
        pass
    return Preserved()


_ISO = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)(?:[T ](\d\d):(\d\d)(?::(\d\d)(?:[.,](\d{1,9}))?)?)?\s*(Z|[+-]\d\d:?\d\d|)\s*\Z", re.ASCII
)
_EPOCH_MS_FROM = 100_000_000_000
"""A number at least this large counts milliseconds: as seconds it would be the year 5138."""


def read_time(value: object) -> int | None:
    """Returns milliseconds since 1970 UTC, or None for a time that says nothing.

    Takes RFC 3339 text with any offset (without one: UTC), and numbers of seconds or milliseconds.
    """
    if isinstance(value, str):
        return _text_time(value)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return _number_time(value)
    return None


def _text_time(value: str) -> int | None:
    if len(value) == _AS_WRITTEN and value[10] == "T" and value[19] == "." and value.endswith("Z"):
        try:
            return (datetime.fromisoformat(value) - _EPOCH) // _MS
        except ValueError:
            pass
    return _any_time(value)


_AS_WRITTEN = len("2026-01-01T00:00:00.000Z")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)


def _any_time(value: str) -> int | None:
    match = _ISO.match(value)
    if match is None:
        return None
    year, month, day, hour, minute, second, fraction, zone = match.groups()
    try:
        moment = datetime(
            int(year), int(month), int(day), int(hour or 0), int(minute or 0), min(int(second or 0), 59), tzinfo=UTC
        )
    except ValueError:
        return None
    ms = int((fraction or "0").ljust(3, "0")[:3])
    return int(moment.timestamp()) * 1000 + ms - _offset_ms(zone)


def _number_time(value: float) -> int | None:
    if value != value or not 0 < abs(value) < 1e16:
        return None
    return int(value) if abs(value) >= _EPOCH_MS_FROM else int(value * 1000)


def _offset_ms(zone: str) -> int:
    if not zone or zone == "Z":
        return 0
    minutes = int(zone[1:3]) * 60 + int(zone[-2:])
    return minutes * 60_000 * (-1 if zone[0] == "-" else 1)


_FIRST_MS = -62_135_596_800_000
_LAST_MS = 253_402_300_799_999


def write_time(ms: int) -> str:
    """Returns a time as Claude Code writes it: UTC, milliseconds, Z; clamped to the years 1 to 9999."""
    ms = min(max(ms, _FIRST_MS), _LAST_MS)
    seconds, rest = divmod(ms, 1000)
    return _moment(seconds) + f".{rest:03d}Z"


def _moment(seconds: int) -> str:
    days, left = divmod(seconds, 86_400)
    date = datetime.fromordinal(719_163 + days)
    return f"{date.year:04d}-{date.month:02d}-{date.day:02d}T{left // 3600:02d}:{left // 60 % 60:02d}:{left % 60:02d}"
