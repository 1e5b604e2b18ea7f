"""pi's entries, as far as a conversation needs them; everything else stays in the bytes.

An entry is decoded once into `Entry`: what is small becomes a value, what may be large stays a slice of the file.
Members whose type other versions vary are taken as they come and checked where they are used.
"""

from __future__ import annotations

from typing import Any

import msgspec

from clew.formats.raws import NONE, OddRecords, Shape

VERSION = "1.6.0"
"""The version of the program that read back what is written here."""

LAYOUT = 3
"""The version of the file layout that is written; 1 was a plain list, 2 had another name for one role."""


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
BLOCKS = Shape(Block, list[Block])
_REPLACEMENT = Shape(Replacement, list[Replacement])

ODD_ENTRIES = OddRecords(
    Entry,
    frozenset({"content", "summary", "clew", "replacement"}),
    {"message": frozenset({"content", "command", "output", "summary"})},
)


def read_replacement(raw: msgspec.Raw) -> msgspec.Raw | None:
    """Returns the content that an edit puts in place; None where it leaves the message out."""
    found = _REPLACEMENT.one(raw)
    return found.content if found is not None else None
