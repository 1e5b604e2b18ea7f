"""Undoes what `outline` left in a record, for the readers of the agents that are written with it.

A record without a mark is taken literally; in one with a mark, guards are taken off, stand-ins are images again, and
calls have their own names, ids and arguments back.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from clew.conversation.model import Call, Image, Kind, Message, Origin, Text
from clew.conversation.normal import Normal
from clew.conversation.text import Lazy, is_empty, text_of
from clew.formats.marks import Mark, is_invented, is_standin, unguard_text, unwrap_arguments
from clew.formats.outline import RecordMark
from clew.formats.spelling import is_like_ours

_STANDIN_TYPE = re.compile(r": ([^\s,]+), number \d+ of this message")
_DECODE = msgspec.json.Decoder(RecordMark).decode
_ORIGINS = ("user", "agent", "model")
_KINDS = ("", "summary", "interruption", "command", "notice")


def read_mark(raw: msgspec.Raw) -> RecordMark | None:
    """Returns the mark in a record's member `clew`, or None where there is none."""
    if not len(memoryview(raw)) or memoryview(raw)[0] != 0x7B:
        return None
    try:
        return _DECODE(raw)
    except (msgspec.DecodeError, RecursionError):
        return None


def text_part(source: Lazy, mark: Mark | None) -> Text | Image:
    """Returns a text as what it was."""
    if mark is None or is_empty(source) or not is_like_ours(source):
        return Text(source)
    text = text_of(source)
    if mark.standin and is_standin(text):
        found = _STANDIN_TYPE.search(text)
        return Image(found.group(1) if found else "")
    return Text(unguard_text(text))


def call_part(written_id: str, name: str, source: Lazy, mark: RecordMark | None) -> Call:
    """Returns a call as what it was; `source` is its arguments as they are stored."""
    known = mark.calls.get(written_id) if mark is not None else None
    if known is None:
        return Call(written_id, name, source)
    if known.text:
        text = unwrap_arguments(text_of(source).encode("utf-8", "replace"))
        source = source if text is None else text
    return Call(
        known.id if known.id is not None else written_id, known.name if known.name is not None else name, source
    )


def with_originals(normal: Normal, renamed: Mapping[str, str]) -> Normal:
    """Returns a conversation whose calls and results have their original ids again, by the ids that stand in the file.

    Results find their calls by the latter: of two calls that had one id, each has one of its own there.
    """
    if not renamed:
        return normal
    return msgspec.structs.replace(normal, messages=tuple(_renamed(message, renamed) for message in normal.messages))


def _renamed(message: Message, renamed: Mapping[str, str]) -> Message:
    if message.role == "tool":
        original = renamed.get(message.call_id)
        return message if original is None else msgspec.structs.replace(message, call_id=original)
    if not any(type(part) is Call and part.id in renamed for part in message.parts):
        return message
    parts = tuple(
        Call(renamed.get(part.id, part.id), part.name, part.source) if type(part) is Call else part
        for part in message.parts
    )
    return msgspec.structs.replace(message, parts=parts)


def is_made_up(parts: tuple[object, ...], mark: Mark | None, *, failed: bool) -> bool:
    """Tells whether a result is one that clew's writer had to make up; also where the agent dropped its mark."""
    if mark is not None:
        return mark.invented
    alone = parts[0] if len(parts) == 1 else None
    if not failed or type(alone) is not Text or not is_like_ours(alone.source):
        return False
    return is_invented(text_of(alone.source))


def origin_in(mark: RecordMark | None) -> tuple[Origin, Kind] | None:
    """Returns origin and kind as the mark tells them, or None where it does not."""
    if mark is None:
        return None
    if mark.origin in _ORIGINS:
        return mark.origin, mark.kind if mark.kind in _KINDS else ""
    return ("user", "") if mark.said else None
