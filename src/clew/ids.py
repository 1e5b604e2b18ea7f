"""Typed identifiers: one distinct type for each kind of name, so that none is taken for another.

They are strings at run time; the type checker keeps them apart. Where a kind has a grammar, its one constructor
checks it here.
"""

from __future__ import annotations

import re
import uuid
from typing import NewType

from clew.errors import UsageError

AgentName = NewType("AgentName", str)
"""Short name of a coding agent, as the command line has it: claude, codex, ..."""

NativeId = NewType("NativeId", str)
"""An agent's own id of one of its sessions. It comes from files and is hostile until checked."""

ChainKey = NewType("ChainKey", str)
"""64 hex digits naming a group and everything before it (docs/residue.md, 4)."""

Digest = NewType("Digest", str)
"""64 hex digits of BLAKE3 over framed records or over bytes."""

SourceId = NewType("SourceId", str)
"""64 hex digits naming one stored session as such: format, session id, first record."""

CaptureId = NewType("CaptureId", int)
"""Number of a capture in one store, growing with time."""

ThreadId = NewType("ThreadId", str)
"""clew's id of one logical conversation: `t` and 16 hex digits."""

_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\Z")
_SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}\Z")


def is_uuid(text: str) -> bool:
    """Tells whether `text` is a UUID in its usual lower-case form with hyphens, of any version."""
    return _UUID.match(text) is not None


def is_safe_name(text: str) -> bool:
    """Tells whether `text` may become one component of a path: no separator, no leading dot, no blank."""
    return _SAFE.match(text) is not None and ".." not in text


def make_agent_name(text: str) -> AgentName:
    """Returns `text` as an agent's name; raises UsageError when it is no short lower-case word."""
    if not re.fullmatch(r"[a-z][a-z0-9-]{0,31}", text):
        raise UsageError(f"{text!r} is no agent's name", hint="`clew agents` lists them.")
    return AgentName(text)


def derive_uuid(digest: bytes) -> NativeId:
    """Returns a version 8 UUID made of the first 16 bytes of `digest` (RFC 9562, section 5.8)."""
    raw = bytearray(digest[:16])
    raw[6] = (raw[6] & 0x0F) | 0x80
    raw[8] = (raw[8] & 0x3F) | 0x80
    return NativeId(str(uuid.UUID(bytes=bytes(raw))))
