"""Short ways to make messages, for readers and tests."""

from __future__ import annotations

from clew.conversation.model import Call, Kind, Message, Origin, Part, Text


def make_user(*parts: Part | str, origin: Origin = "user", kind: Kind = "", time_ms: int | None = None) -> Message:
    """Returns a user message of these parts; a `str` is a text part."""
    return Message("user", _parts(parts), origin, kind, time_ms)


def make_assistant(*parts: Part | str, reply_id: str = "", model: str = "", time_ms: int | None = None) -> Message:
    """Returns an assistant message of these parts; a `str` is a text part."""
    return Message("assistant", _parts(parts), "model", "", time_ms, model, reply_id)


def make_result(call_id: str, *parts: Part | str, is_error: bool | None = None, time_ms: int | None = None) -> Message:
    """Returns the result of the call `call_id`."""
    return Message("tool", _parts(parts), "agent", "", time_ms, "", "", call_id, is_error)


def make_call(id: str, name: str, arguments: str = "") -> Call:  # noqa: A002 - the field's own name
    """Returns a call with its arguments as text."""
    return Call(id, name, arguments)


def _parts(parts: tuple[Part | str, ...]) -> tuple[Part, ...]:
    return tuple(Text(p) if isinstance(p, str) else p for p in parts)
