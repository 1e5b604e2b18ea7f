"""How a failure is told: four lines for people (what, where, why, what helps), one object for programs.

Every failure comes out as an exit status and one text; what quotes a session is made safe here. Does not decide
anything: statuses and codes are those of `clew.errors`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

import msgspec

from clew.cli.safe import write_json
from clew.cli.style import Look
from clew.errors import ClewError

WHY: Final[Mapping[str, str]] = {
    "ambiguous": "more than one thing answers to that name",
    "unreadable": "nothing of it is a record that clew can read",
    "unsupported_version": "its layout is one that this clew does not know",
    "live_owner": "a running agent holds it, and two writers would mix their turns",
    "target_diverged": "what lies there went on by itself, and writing would cover it",
    "not_as_recorded": "what the session was recorded with is no longer so",
    "nothing_to_convert": "nothing was said in it yet",
    "store_locked": "another clew is writing there",
    "schema_too_new": "a newer clew wrote it",
    "unexpected": "this is a defect in clew",
}
"""One sentence on what a code means, where the message alone does not say it."""

_PLACES = ("agent", "session", "path", "record", "offset")


class Failure(msgspec.Struct, frozen=True):
    """One failure, ready to be told. `concerns` is what it is about: session, path, record, offset, and others."""

    status: int
    code: str
    message: str
    hint: str = ""
    concerns: dict[str, object] = {}


def failure_of(error: ClewError) -> Failure:
    """Returns the failure that an error of clew's tree stands for."""
    return Failure(error.exit_code, error.code, error.message, error.hint, error.concerns)


def failure_of_system(error: OSError) -> Failure:
    """Returns the failure that the operating system reported: a full disk, a missing permission."""
    what = error.strerror or os.strerror(error.errno or 0)
    path = _text(error.filename) if error.filename is not None else ""
    message = f"{path}: {what}" if path else what
    return Failure(1, "failed", message, "", {"path": path} if path else {})


def failure_of_defect(error: Exception, *, verbose: bool) -> Failure:
    """Returns the failure for what nobody foresaw."""
    hint = "" if verbose else "Run it again with -v to see where, and report it."
    return Failure(1, "unexpected", f"{type(error).__name__}: {error}", hint)


def as_json(failure: Failure) -> str:
    """Returns the one JSON object that stands for a failure."""
    body = {
        "status": failure.status,
        "code": failure.code,
        "message": failure.message,
        "hint": failure.hint,
        **failure.concerns,
    }
    return write_json({"error": body})


def as_lines(failure: Failure, look: Look) -> list[str]:
    """Returns what, where, why, and the act that helps: each on its line, and only where there is something to say."""
    lines = [look.paint("error", "clew:") + " " + look.safe(failure.message).strip()]
    parts = (
        ("where", _where(failure)),
        ("why", _why(failure)),
        ("do", failure.hint),
    )
    for name, text in parts:
        if text:
            body = look.safe(text).strip().replace("\n", "\n" + " " * 8)
            lines.append(f"  {look.paint('muted', name.ljust(5))} {body}")
    return lines


def _where(failure: Failure) -> str:
    """Returns the places that the message does not name itself."""
    words: list[str] = []
    for name in _PLACES:
        value = failure.concerns.get(name)
        if value in (None, "") or (isinstance(value, str) and value in failure.message):
            continue
        words.append(_text(value) if name in ("agent", "path") else f"{'byte' if name == 'offset' else name} {value}")
    return ", ".join(words)


def _why(failure: Failure) -> str:
    """Returns the reason: what the error says itself, and its code as scripts see it."""
    reason = failure.concerns.get("reason") or WHY.get(failure.code, "")
    if not reason:
        return failure.code.replace("_", " ") if failure.status == 5 else ""
    return f"{_text(reason)} ({failure.code})"


def _text(value: object) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
