"""Contents as lists of blocks in the manner of Anthropic's API, taken as they come.

For transcripts that other programs keep in that manner: text, thinking, tool_use, tool_result, image.
"""

from __future__ import annotations

import msgspec

from clew.conversation.model import Call, Image, Message, Part, Reasoning, Text
from clew.conversation.text import JsonString
from clew.formats.loose import (
    NONE,
    Members,
    first_byte,
    is_text,
    items_of,
    members_of,
    scalar_in,
    spelled,
    text_in,
    word_in,
)


class Blocks(msgspec.Struct):
    """What a content holds: the parts of the message itself, the results beside them, and how many were unknown."""

    parts: list[Part]
    results: list[Message]
    unknown: int = 0


def read_blocks(content: msgspec.Raw, time_ms: int | None = None) -> Blocks:
    """Returns what a content holds: a text alone, or blocks."""
    found = Blocks([], [])
    if is_text(content):
        found.parts.append(Text(JsonString(content)))
    for item in items_of(content):
        block = members_of(item)
        sort = word_in(block.get("type", NONE))
        if sort == "tool_result":
            found.results.append(_result(block, time_ms))
        elif (part := read_block(sort, block)) is not None:
            found.parts.append(part)
        elif sort not in ("redacted_thinking",):
            found.unknown += 1
    return found


def read_block(sort: str, block: Members) -> Part | None:
    """Returns the part that a block is, or None."""
    if sort == "text":
        return Text(text_in(block.get("text", NONE)))
    if sort == "thinking":
        return Reasoning(text_in(block.get("thinking", NONE)))
    if sort == "tool_use":
        return Call(word_in(block.get("id", NONE)), word_in(block.get("name", NONE)), spelled(block.get("input", NONE)))
    if sort == "image":
        source = members_of(block.get("source", NONE))
        return Image(
            word_in(source.get("media_type", NONE)), text_in(source.get("data", NONE)), word_in(source.get("url", NONE))
        )
    return None


def _result(block: Members, time_ms: int | None) -> Message:
    content = block.get("content", NONE)
    parts: list[Part] = []
    if first_byte(content) == 0x5B:
        parts = [part for part in read_blocks(content).parts if isinstance(part, (Text, Image))]
    elif first_byte(content):
        parts = [Text(spelled(content))]
    failed = scalar_in(block.get("is_error", NONE))
    call_id = word_in(block.get("tool_use_id", NONE))
    is_error = failed if isinstance(failed, bool) else None
    return Message("tool", tuple(parts), "agent", "", time_ms, "", "", call_id, is_error)
