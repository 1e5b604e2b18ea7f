"""A handle: an agent's own id of a conversation, with the root and the key that are made of it.

A handle is (namespace, native id, resume cursor); nothing here looks inside the id or the cursor. The root names what a
resume must preserve, the key one place to write. Where a format's conversations are trees, the cursor is part of the
key: that is *declared* by the namespace (`cursor_in_key`), never told from an agent's name.

Forms (they are stored elsewhere and never change):

    root   transport/agent:"N"
    key    transport/agent:"N"                 where the cursor is not part of it
           transport/agent:["N","cursor"]      where it is; null for no cursor

N and cursor are JSON strings as ECMAScript writes them (non-ASCII as it is, control characters escaped), so no id
can forge another's form. An instance is always valid: constructing one that is not raises LeaseError `handle_invalid`.
"""

from __future__ import annotations

import json
import re
from typing import Final, NewType

import msgspec

from clew.ids import NativeId
from clew.lineage.refusal import invalid
from clew.lineage.stored import (
    TEXT,
    TEXT_OR_NONE,
    Malformed,
    Members,
    is_storable,
    json_text,
    write_object,
)

RootKey = NewType("RootKey", str)
"""Names a conversation: whatever has another root is another conversation."""

HandleKey = NewType("HandleKey", str)
"""Names one place to write; equal keys have equal roots."""

ID_LIMIT: Final = 512
CURSOR_LIMIT: Final = 4096
KEY_LIMIT: Final = 8192

_PART: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}\Z")
_OTHER_SHAPES: Final = frozenset({"provider", "kind", "sessionId", "leafUuid", "threadId"})


class Namespace(msgspec.Struct, frozen=True, order=True):
    """In whose id space a native id lives, and whose program resumes it. Records and leases compare namespaces.

    `transport` and `agent` are a letter, then letters, digits, `_`, `-`, 64 characters at most. `cursor_in_key` is
    the format's declaration that its conversations are trees.
    """

    transport: str
    agent: str
    cursor_in_key: bool = False

    def __post_init__(self) -> None:
        for part in (self.transport, self.agent):
            if _PART.match(part) is None:
                raise invalid(f"{part!r} is no part of a namespace")

    def __str__(self) -> str:
        return f"{self.transport}/{self.agent}"


class Handle(msgspec.Struct, frozen=True):
    """One conversation of one agent, and where in it a resume continues. Equality compares all fields.

    `native_id` has 1-512 characters, no blank at either end. `cursor` is opaque, 1-4096 characters, or None; where it
    is part of the key, 512 at most and no blank at either end. None and empty differ: empty is invalid.
    """

    namespace: Namespace
    native_id: str
    cursor: str | None = None

    def __post_init__(self) -> None:
        fault = _fault(self.namespace, self.native_id, self.cursor)
        if fault:
            raise invalid(f"no handle of {self.namespace}: {fault}", native_id=self.native_id)

    @property
    def root(self) -> RootKey:
        """The conversation's name: transport/agent:"N"."""
        return RootKey(f"{self.namespace}:{_quoted(self.native_id)}")

    @property
    def key(self) -> HandleKey:
        """The writer target's name; the root, or the form with the cursor."""
        if not self.namespace.cursor_in_key:
            return HandleKey(self.root)
        cursor = "null" if self.cursor is None else _quoted(self.cursor)
        return HandleKey(f"{self.namespace}:[{_quoted(self.native_id)},{cursor}]")


def parse_key(text: str, namespace: Namespace) -> Handle | None:
    """Returns the handle of a well-formed key of this namespace, or None.

    Where the cursor is not part of the key, the handle has none. Only the one form that `Handle.key` writes is
    well-formed.
    """
    prefix = f"{namespace}:"
    if len(text) > KEY_LIMIT or not text.startswith(prefix):
        return None
    try:
        parts: object = json.loads(text[len(prefix) :])
        if namespace.cursor_in_key:
            native_id, cursor = msgspec.convert(parts, tuple[str, str | None])
        else:
            native_id, cursor = msgspec.convert(parts, str), None
    except (ValueError, RecursionError):
        return None
    if _fault(namespace, native_id, cursor):
        return None
    handle = Handle(namespace, native_id, cursor)
    return handle if handle.key == text else None


def root_of_key(text: str, namespace: Namespace) -> RootKey | None:
    """Returns the root of a well-formed key of this namespace, or None."""
    handle = parse_key(text, namespace)
    return None if handle is None else handle.root


def native_id(handle: Handle) -> NativeId:
    """Returns the handle's native id as the typed identifier."""
    return NativeId(handle.native_id)


def store_handle(handle: Handle) -> bytes:
    """Returns the stored form: {transport, agent, native_id, cursor}, cursor null for none. There is no other."""
    return write_object(
        (
            ("transport", json_text(handle.namespace.transport)),
            ("agent", json_text(handle.namespace.agent)),
            ("native_id", json_text(handle.native_id)),
            ("cursor", json_text(handle.cursor)),
        )
    )


def load_handle(data: bytes, namespace: Namespace) -> Handle:
    """Returns the handle of a stored form; raises Malformed when it is none, or of another namespace.

    The field set is closed: unknown members are dropped. Members of another stored shape beside ours would name two
    identities at once: malformed.
    """
    members = Members(data, "handle")
    transport, agent = members.take("transport", TEXT), members.take("agent", TEXT)
    native, cursor = members.take("native_id", TEXT), members.take("cursor", TEXT_OR_NONE)
    if (transport, agent) != (namespace.transport, namespace.agent):
        raise Malformed(f"handle: of {transport}/{agent}, the record is of {namespace}")
    if any(name in _OTHER_SHAPES for name, _ in members.rest()):
        raise Malformed("handle: in two forms at once")
    fault = _fault(namespace, native, cursor)
    if fault:
        raise Malformed(f"handle: {fault}")
    return Handle(namespace, native, cursor)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _is_trimmed(text: str) -> bool:
    return not any(end.isspace() or end == "\ufeff" for end in (text[0], text[-1]))


def _fault(namespace: Namespace, native_id: str, cursor: str | None) -> str:
    if not 0 < len(native_id) <= ID_LIMIT:
        return f"the native id has {len(native_id)} characters, 1-{ID_LIMIT} are allowed"
    if not _is_trimmed(native_id):
        return "the native id has a blank at an end"
    if not is_storable(native_id) or (cursor is not None and not is_storable(cursor)):
        return "a lone surrogate"
    if cursor is None:
        return ""
    limit = ID_LIMIT if namespace.cursor_in_key else CURSOR_LIMIT
    if not 0 < len(cursor) <= limit:
        return f"the cursor has {len(cursor)} characters, 1-{limit} are allowed"
    if namespace.cursor_in_key and not _is_trimmed(cursor):
        return "the cursor has a blank at an end"
    return ""
