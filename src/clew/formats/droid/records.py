"""Droid's records, as far as a conversation needs them; everything else stays in the bytes.

A record is decoded once into `Record`: what is small becomes a value, what may be large stays a slice of the file.
Members whose type other versions vary are taken as they come and checked where they are used.
"""

from __future__ import annotations

from typing import Any

import msgspec

from clew.formats.raws import NONE, OddRecords, Shape

VERSION = "0.215.0"
"""The version of the program that read back what is written here."""

LAYOUT = 2
"""The version of the file layout, as the first record names it."""

PENDING = "__TOOL_RESULT_PENDING__"
"""Stands as a result while the tool still runs."""


class AgentMessage(msgspec.Struct, gc=False, rename="camel"):
    """The `message` of a record: blocks of the Messages API, whatever model is asked."""

    role: Any = None
    content: msgspec.Raw = NONE
    visibility: Any = None
    interaction_mode: Any = None
    model_id: Any = None


class Record(msgspec.Struct, gc=False, rename="camel"):
    """One line: the head of the session, a message, the state of a compaction, the outcome of a turn."""

    type: Any = None
    id: Any = None
    timestamp: Any = None
    title: Any = None
    session_title: Any = None
    version: Any = None
    cwd: Any = None
    parent: Any = None
    calling_session_id: Any = None
    forked_at_message_id: Any = None
    summary_text: msgspec.Raw = NONE
    summary_kind: Any = None
    anchor_message: msgspec.Raw = NONE
    message: AgentMessage | None = None
    clew: msgspec.Raw = NONE


class Block(msgspec.Struct, gc=False):
    """One content block of a message, or of a result."""

    type: Any = None
    text: msgspec.Raw = NONE
    thinking: msgspec.Raw = NONE
    id: Any = None
    name: Any = None
    namespace: Any = None
    input: msgspec.Raw = NONE
    tool_use_id: Any = None
    content: msgspec.Raw = NONE
    is_error: Any = None
    source: msgspec.Raw = NONE


class ImageSource(msgspec.Struct, gc=False):
    """Where an image lies: always in the record itself."""

    media_type: Any = None
    data: msgspec.Raw = NONE


class Anchor(msgspec.Struct, gc=False):
    """The last message that a summary stands for: its id, else its place."""

    id: Any = None
    index: Any = None


RECORDS = msgspec.json.Decoder(Record)
ODD_RECORDS = OddRecords(
    Record,
    frozenset({"summaryText", "anchorMessage", "clew"}),
    {"message": frozenset({"content"})},
)
BLOCKS = Shape(Block, list[Block])
SOURCES = Shape(ImageSource, list[ImageSource])
ANCHORS = Shape(Anchor, list[Anchor])
