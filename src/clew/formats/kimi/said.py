"""Who put a message into Kimi Code's context, and what the agent makes of a result before its model sees it.

Every message names its origin; injections (dates, modes, reminders) are context, the rest is said. A result is stored
as the tool gave it; what the model reads has head lines for a failure, for an empty output and for the time it took.
Those lines are what was sent, so they belong to the text.
"""

from __future__ import annotations

import msgspec

from clew.conversation.model import Image, Kind, Origin, Part, Text
from clew.conversation.text import JsonString, Lazy, is_empty, size_hint, text_of
from clew.formats.kimi import records as rec

FAILED = "<system>ERROR: Tool execution failed.</system>"
EMPTY = "<system>Tool output is empty.</system>"
FAILED_EMPTY = "<system>ERROR: Tool execution failed. Tool output is empty.</system>"
_EMPTY_TEXT = "Tool output is empty."
_TIMED = frozenset({"Agent", "AgentSwarm", "Bash", "FetchURL", "Glob", "Grep", "WebSearch"})
_BLANK_BYTES = 4096
"""No output that says nothing is longer than this; longer ones are not decoded to find out."""

_BY_HAND = ("skill_activation", "plugin_command")


class Sort(msgspec.Struct, frozen=True):
    """What a message is: context or not, who said it, and what an undo and a compaction take it for."""

    context: bool = False
    origin: Origin = "user"
    kind: Kind = ""
    anchor: bool = True
    kept: bool = True


def sort_origin(raw: msgspec.Raw) -> Sort:
    """Returns what a user message is by its origin; one that names none is a person's."""
    if rec.first_byte(raw) != 0x7B:
        return Sort()
    origin = rec.decode(raw, rec.OriginOf)
    kind = rec.text(origin.kind)
    anchor = origin.in_turn is not True
    if kind in ("", "user"):
        return Sort(anchor=anchor)
    if kind in _BY_HAND:
        typed = origin.trigger == "user-slash"
        return Sort(False, "agent", "command", typed and anchor, typed)
    if kind == "injection":
        return Sort(True, "agent", "", False, False)
    if kind == "compaction_summary":
        return Sort(False, "agent", "summary", False, False)
    if kind == "shell_command":
        return Sort(False, "agent", "command", False, False)
    return Sort(False, "agent", "notice", False, False)


def origin_of(origin: Origin, kind: Kind) -> dict[str, object]:
    """Returns the agent's own name for who put a message there."""
    if origin == "user":
        return {"kind": "user"}
    names: dict[Kind, str] = {"summary": "compaction_summary", "command": "shell_command"}
    if kind in names:
        return {"kind": names[kind]}
    return {"kind": "system_trigger", "name": kind or "note"}


def render_result(parts: tuple[Part, ...], *, failed: bool, duration_ms: float | None, note: str) -> tuple[Part, ...]:
    """Returns a result's parts as the model reads them."""
    shown = _status(parts, failed)
    if duration_ms is not None:
        header = f"Wall time: {duration_ms / 1000:.3f} seconds"
        first = shown[0] if shown else None
        if isinstance(first, Text):
            shown = (Text(f"{header}\n{first.text}"), *shown[1:])
        else:
            shown = (Text(header), *shown)
    if not note:
        return shown
    if len(shown) == 1 and isinstance(shown[0], Text):
        return (Text(f"{shown[0].text}\n{note}"),)
    return (*shown, Text(note))


def _status(parts: tuple[Part, ...], failed: bool) -> tuple[Part, ...]:
    first = parts[0] if len(parts) == 1 else None
    if isinstance(first, Text):
        if failed:
            return (Text(FAILED_EMPTY if first.is_empty else f"{FAILED}\n{first.text}"),)
        return (Text(EMPTY),) if _says_nothing(first.source) else parts
    if not any(isinstance(part, Image) for part in parts) and all(
        isinstance(part, Text) and size_hint(part.source) <= _BLANK_BYTES and not part.text.strip() for part in parts
    ):
        return (Text(FAILED_EMPTY if failed else EMPTY),)
    return (Text(FAILED), *parts) if failed else parts


def _says_nothing(source: Lazy) -> bool:
    if is_empty(source):
        return True
    if size_hint(source) > _BLANK_BYTES:
        return False
    if isinstance(source, JsonString):
        head = bytes(memoryview(source.raw)[1:2])
        if head not in (b" ", b"\\", b"T"):
            return False
    return text_of(source).strip() in ("", _EMPTY_TEXT)


def is_timed(name: str) -> bool:
    """Tells whether the agent shows its model how long a tool took."""
    return name in _TIMED or name.startswith("mcp__")
