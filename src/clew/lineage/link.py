"""A link: one place of a handle in a conversation's history, and why it is there.

A link that breaks a rule of its own can be built (it comes from outside) but `link_fault` names the rule, and no chain
takes it. Stored form: one JSON object; members that this clew does not know are kept and written back, on the link
and on its `replaces`, but never on the handle.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Container
from typing import Final, Literal, NewType

import msgspec

from clew.lineage.handle import Handle, Namespace, load_handle, parse_key, store_handle
from clew.lineage.stored import (
    BOUND,
    NUMBER,
    TEXT,
    TEXT_OR_NONE,
    Extra,
    Malformed,
    Members,
    is_storable,
    json_text,
    write_object,
)

Fence = NewType("Fence", int)
"""The number that grows with each owner of a session; 0: nobody ever."""

Origin = Literal["created", "adopted", "resumed", "forked"]
"""created: this thread started it; adopted: it existed and was taken over; resumed: same root, proven again;
forked: a new root, seeded from the head."""

RESTORE_FAILED: Final = "restore-failed"
"""The one reason for a replacement that clew gives itself; others stay readable."""

ORIGINS: Final = ("created", "adopted", "resumed", "forked")
REASON_LIMIT: Final = 64
LINK_ID_LIMIT: Final = 128

_LINK_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,128}\Z")
_FOREIGN: Final = re.compile(r"[^A-Za-z0-9_-]")


class Replacement(msgspec.Struct, frozen=True):
    """Names the saved conversation that was lost: its key, why (an open word, 1-64 characters), when (ms, from 0)."""

    key: str
    reason: str
    replaced_at: int
    extra: Extra = ()


class Link(msgspec.Struct, frozen=True, kw_only=True):
    """One link of a chain.

    `minted_at_fence` is the fence in force; `observed_at` in ms. `forked_from` (a key) is there for `forked` and only
    then; `supersedes` (key of the unsaved creation that this one takes the place of) and `replaces` only on `created`.
    `extra` holds the stored members that this clew does not know.
    """

    link_id: str
    handle: Handle
    origin: Origin
    minted_at_fence: Fence
    observed_at: int
    forked_from: str | None = None
    supersedes: str | None = None
    replaces: Replacement | None = None
    extra: Extra = ()


def link_fault(link: Link) -> str:
    """Returns what is wrong with the link by itself, or an empty text."""
    if _LINK_ID.match(link.link_id) is None:
        return f"the link id {link.link_id!r} is not 1-{LINK_ID_LIMIT} letters, digits, _ or -"
    if link.origin not in ORIGINS:
        return f"no origin {link.origin!r}"
    if not _is_number(link.minted_at_fence) or link.minted_at_fence < 0:
        return f"fence {link.minted_at_fence!r} is no number from 0 to 2^53"
    if not _is_number(link.observed_at):
        return "the time of observation is beyond 2^53"
    if (link.forked_from is not None) != (link.origin == "forked"):
        return f"a {link.origin} link {'needs' if link.origin == 'forked' else 'has no'} forked-from key"
    if link.origin != "created" and (link.supersedes is not None or link.replaces is not None):
        return f"a {link.origin} link neither supersedes nor replaces"
    return _key_fault(link)


def make_link_id(handle: Handle, fence: Fence, taken: Container[str] = ()) -> str:
    """Returns a link id made of agent, fence, native id and cursor (`empty` if none), at most 128 characters.

    Where characters had to be changed or cut, 16 hex digits of the exact parts keep ids apart. `taken` are the ids
    already in the chain: coming back to an earlier place at one fence gets a number behind.
    """
    cursor = "empty" if handle.cursor is None else handle.cursor
    exact = f"{handle.namespace.agent}-{fence}-{handle.native_id}-{cursor}"
    plain = _FOREIGN.sub("_", exact)
    if plain != exact or len(plain) > 100 or handle.cursor == "empty":
        told = repr((handle.namespace.agent, fence, handle.native_id, handle.cursor))
        plain = f"{plain[:100]}-{hashlib.sha256(told.encode()).hexdigest()[:16]}"
    made, number = plain, 2
    while made in taken:
        made, number = f"{plain}-{number}", number + 1
    return made


def store_link(link: Link) -> bytes:
    """Returns the stored form of a link; absent keys are left out."""
    members = [
        ("link_id", json_text(link.link_id)),
        ("handle", store_handle(link.handle)),
        ("origin", json_text(link.origin)),
        ("minted_at_fence", json_text(link.minted_at_fence)),
        ("observed_at", json_text(link.observed_at)),
    ]
    if link.forked_from is not None:
        members.append(("forked_from", json_text(link.forked_from)))
    if link.supersedes is not None:
        members.append(("supersedes", json_text(link.supersedes)))
    if link.replaces is not None:
        members.append(("replaces", _store_replacement(link.replaces)))
    return write_object(members, link.extra)


def load_link(data: bytes, namespace: Namespace) -> Link:
    """Returns the link of a stored form; raises Malformed when it is none, or breaks a rule of its own."""
    members = Members(data, "link")
    link_id = members.take("link_id", TEXT)
    handle = load_handle(members.take_object("handle"), namespace)
    origin = members.take("origin", _ORIGIN)
    fence, observed = Fence(members.take("minted_at_fence", NUMBER)), members.take("observed_at", NUMBER)
    forked_from = members.take_or("forked_from", TEXT_OR_NONE, None)
    supersedes = members.take_or("supersedes", TEXT_OR_NONE, None)
    lost = members.take_object_or_none("replaces")
    link = Link(
        link_id=link_id,
        handle=handle,
        origin=origin,
        minted_at_fence=fence,
        observed_at=observed,
        forked_from=forked_from,
        supersedes=supersedes,
        replaces=None if lost is None else _load_replacement(lost),
        extra=members.rest(),
    )
    fault = link_fault(link)
    if fault:
        raise Malformed(f"link {link_id}: {fault}")
    return link


_ORIGIN: Final[msgspec.json.Decoder[Origin]] = msgspec.json.Decoder(Origin)


def _store_replacement(lost: Replacement) -> bytes:
    members = (
        ("key", json_text(lost.key)),
        ("reason", json_text(lost.reason)),
        ("replaced_at", json_text(lost.replaced_at)),
    )
    return write_object(members, lost.extra)


def _load_replacement(data: bytes) -> Replacement:
    members = Members(data, "replaces")
    return Replacement(
        members.take("key", TEXT),
        members.take("reason", TEXT),
        members.take("replaced_at", NUMBER),
        members.rest(),
    )


def _is_number(value: object) -> bool:
    return type(value) is int and abs(value) <= BOUND


def _key_fault(link: Link) -> str:
    namespace, lost = link.handle.namespace, link.replaces
    keys = (link.forked_from, link.supersedes, None if lost is None else lost.key)
    for key in keys:
        if key is not None and parse_key(key, namespace) is None:
            return f"{key[:80]!r} is no key of {namespace}"
    if lost is None:
        return ""
    if not 1 <= len(lost.reason) <= REASON_LIMIT or not is_storable(lost.reason):
        return f"the reason of a replacement has 1-{REASON_LIMIT} characters"
    if not _is_number(lost.replaced_at) or lost.replaced_at < 0:
        return "the time of a replacement is a number from 0 to 2^53"
    return ""
