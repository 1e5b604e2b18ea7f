"""Ids as OpenCode makes them: a prefix, 12 hex digits that count with the time, 14 letters and digits.

Messages are ordered by their time and then by id, parts of a message by id, so that ids have to ascend. The agent
takes other ids of the same prefix as well.
"""

from __future__ import annotations

import re

from blake3 import blake3

_LETTERS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_OWN = re.compile(r"(ses|msg|prt)_[0-9a-f]{12}[0-9A-Za-z]{14}")

PER_MS = 4096
"""How many ids one millisecond has room for."""


def letters(seed: str, count: int = 14) -> str:
    """Returns letters and digits made of a seed, always the same for the same one."""
    number = int.from_bytes(blake3(seed.encode("utf-8", "surrogatepass")).digest(), "big")
    made = ""
    for _ in range(count):
        number, digit = divmod(number, len(_LETTERS))
        made += _LETTERS[digit]
    return made


def session_id(derived: str) -> str:
    """Returns the session id that stands for a UUID which clew derived."""
    return f"ses_{blake3(derived.encode()).hexdigest()[:12]}{letters(derived)}"


def timed_id(prefix: str, time_ms: int, count: int, seed: str) -> str:
    """Returns an id of the prefix msg or prt for a time and a count within it."""
    return f"{prefix}_{(time_ms * PER_MS + count) & 0xFFFFFFFFFFFF:012x}{letters(seed)}"


def renamed(old: str, seed: str) -> str:
    """Returns another id that sorts where the old one does: its time and count stay."""
    if _OWN.fullmatch(old):
        return old[:16] + letters(seed + "\x00" + old)
    return f"{old}{letters(seed + chr(0) + old, 8)}"
