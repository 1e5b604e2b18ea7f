"""pi's entries, as far as a conversation needs them; everything else stays in the bytes.

An entry is decoded once into `Entry`: what is small becomes a value, what may be large stays a slice of the file.
Members whose type other versions vary are taken as they come and checked where they are used.
"""

from __future__ import annotations

from typing import Any

import msgspec

from clew.conversation.text import JsonString, Lazy

VERSION = "1.6.0"
"""The version of the program that read back what is written here."""

LAYOUT = 3
"""The version of the file layout that is written; 1 was a plain list, 2 had another name for one role."""

NONE = msgspec.Raw(b"")


class AgentMessage(msgspec.Struct, gc=False, rename="camel"):
    """The `message` of an entry."""

    role: Any = None
    content: msgspec.Raw = NONE
    timestamp: Any = None
    provider: Any = None
    model: Any = None
    stop_reason: Any = None
    tool_call_id: Any = None
    is_error: Any = None
    command: msgspec.Raw = NONE
    output: msgspec.Raw = NONE
    exit_code: Any = None
    cancelled: Any = None
    truncated: Any = None
    full_output_path: Any = None
    exclude_from_context: Any = None
    summary: msgspec.Raw = NONE


class Entry(msgspec.Struct, gc=False, rename="camel"):
    """One line. `parent_id` is UNSET where the entry does not say, None where it says that there is none."""

    type: Any = None
    id: Any = None
    parent_id: Any = msgspec.UNSET
    timestamp: Any = None
    version: Any = None
    cwd: Any = None
    parent_session: Any = None
    provider: Any = None
    model_id: Any = None
    name: Any = None
    summary: msgspec.Raw = NONE
    first_kept_entry_id: Any = None
    first_kept_entry_index: Any = None
    target_id: Any = None
    replacement: msgspec.Raw = NONE
    content: msgspec.Raw = NONE
    message: AgentMessage | None = None
    clew: msgspec.Raw = NONE


class Block(msgspec.Struct, gc=False, rename="camel"):
    """One content block of a message."""

    type: Any = None
    text: msgspec.Raw = NONE
    thinking: msgspec.Raw = NONE
    data: msgspec.Raw = NONE
    mime_type: Any = None
    id: Any = None
    name: Any = None
    namespace: Any = None
    arguments: msgspec.Raw = NONE


class Replacement(msgspec.Struct, gc=False):
    """What a context edit puts in the place of a message's content."""

    content: msgspec.Raw = NONE


ENTRIES = msgspec.json.Decoder(Entry)
_ERRORS = (msgspec.DecodeError, RecursionError)
_ANYTHING = msgspec.json.Decoder().decode
_MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_BLOCKS = msgspec.json.Decoder(list[Block]).decode
_BLOCK = msgspec.json.Decoder(Block).decode
_RAWS = msgspec.json.Decoder(list[msgspec.Raw]).decode
_REPLACEMENT = msgspec.json.Decoder(Replacement).decode
_TEXT = msgspec.json.Decoder(str).decode


class OddEntries:
    """Decodes what the decoder of entries refuses: one whose message is no object, or with a number no double holds."""

    def decode(self, data: bytes, /) -> Entry:
        """Returns the entry; raises msgspec.DecodeError for what is no JSON object."""
        try:
            return ENTRIES.decode(data)
        except msgspec.DecodeError:
            members = _MEMBERS(data)
        for name, value in list(members.items()):
            try:
                if name == "message":
                    members[name] = _sound_members(value)
                elif name not in ("content", "summary", "clew", "replacement"):
                    _ANYTHING(value)
            except _ERRORS:
                del members[name]
        return ENTRIES.decode(msgspec.json.encode(members))


def _sound_members(value: msgspec.Raw) -> msgspec.Raw:
    members = _MEMBERS(value)
    for name, inner in list(members.items()):
        if name not in ("content", "command", "output", "summary"):
            try:
                _ANYTHING(inner)
            except _ERRORS:
                del members[name]
    return msgspec.Raw(msgspec.json.encode(members))


ODD_ENTRIES = OddEntries()


def first_byte(raw: msgspec.Raw) -> int:
    """Returns the first byte of a JSON value, or 0 when there is none."""
    return memoryview(raw)[0] if raw is not NONE else 0


def is_text(raw: msgspec.Raw) -> bool:
    """Tells whether a value is a JSON string."""
    return raw is not NONE and memoryview(raw)[0] == 0x22


def as_text(raw: msgspec.Raw) -> Lazy:
    """Returns a JSON string as a text, undecoded; nothing for any other value."""
    return JsonString(raw) if is_text(raw) else ""


def as_word(value: object) -> str:
    """Returns a short text as it is; nothing for any other value."""
    return value if isinstance(value, str) else ""


def read_text(raw: msgspec.Raw) -> str:
    """Returns a short text, or nothing where the value is none."""
    if not is_text(raw):
        return ""
    try:
        return _TEXT(raw)
    except (*_ERRORS, UnicodeDecodeError):
        return ""


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


def read_replacement(raw: msgspec.Raw) -> msgspec.Raw | None:
    """Returns the content that an edit puts in place; None where it leaves the message out."""
    if first_byte(raw) != 0x7B:
        return None
    try:
        return _REPLACEMENT(raw).content
    except _ERRORS:
        return None
