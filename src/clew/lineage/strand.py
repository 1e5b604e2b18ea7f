"""A strand: what clew keeps of one thread in one agent, as far as lineage goes.

Its stored form is one JSON object {schema, session_id, namespace, chain}; members of other rooms (the lease's record
lies in the same object) are kept as they are. What is no such object, or of a newer clew, is an `UnreadableStrand`
in a thread: present, carried byte for byte, never rewritten.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from clew.errors import LeaseError
from clew.lineage.chain import EMPTY, Chain, load_chain, store_chain
from clew.lineage.edge import StrandId
from clew.lineage.handle import Namespace
from clew.lineage.refusal import invalid
from clew.lineage.stored import (
    FLAG,
    NUMBER,
    TEXT,
    Extra,
    Malformed,
    Members,
    json_text,
    refuse_doubles,
    write_object,
)

SCHEMA: Final = 1
"""Version of the stored forms of strands and threads; what a newer one wrote is present, not readable."""

_STRAND_ID: Final = re.compile(r"[A-Za-z0-9_-]{8,128}\Z")


class Strand(msgspec.Struct, frozen=True):
    """What clew keeps of one thread in one agent, as far as lineage goes. `extra`: members of other rooms, kept."""

    strand_id: StrandId
    namespace: Namespace
    chain: Chain = EMPTY
    extra: Extra = ()


class UnreadableStrand(msgspec.Struct, frozen=True):
    """A stored strand that cannot be read: carried byte for byte, never rewritten."""

    strand_id: StrandId
    data: bytes
    fault: str


def make_strand_id(text: str) -> StrandId:
    """Returns `text` as a strand's id; raises LeaseError `handle_invalid` when it is none."""
    if _STRAND_ID.match(text) is None:
        raise invalid(f"{text!r} is no session id of clew: 8-128 letters, digits, _ and -")
    return StrandId(text)


def store_namespace(namespace: Namespace) -> bytes:
    """Returns the stored form of a namespace: {transport, agent, cursor_in_key}."""
    return write_object(
        (
            ("transport", json_text(namespace.transport)),
            ("agent", json_text(namespace.agent)),
            ("cursor_in_key", json_text(namespace.cursor_in_key)),
        )
    )


def load_namespace(data: bytes) -> Namespace:
    """Returns the namespace of a stored form; raises Malformed."""
    members = Members(data, "namespace")
    transport, agent = members.take("transport", TEXT), members.take("agent", TEXT)
    try:
        return Namespace(transport, agent, members.take("cursor_in_key", FLAG))
    except LeaseError as error:
        raise Malformed(f"namespace: {error.message}") from error


def store_strand(strand: Strand) -> bytes:
    """Returns the stored form: {schema, session_id, namespace, chain} and whatever other rooms keep beside it."""
    members = (
        ("schema", json_text(SCHEMA)),
        ("session_id", json_text(strand.strand_id)),
        ("namespace", store_namespace(strand.namespace)),
        ("chain", store_chain(strand.chain)),
    )
    return write_object(members, strand.extra)


def load_strand(data: bytes) -> Strand:
    """Returns the strand of a stored form; raises LeaseError `handle_invalid` when it is none or of a newer clew."""
    try:
        refuse_doubles(data, "strand")
        members = Members(data, "strand")
        schema = members.take("schema", NUMBER)
        if schema != SCHEMA:
            raise Malformed(f"schema {schema}, this clew reads {SCHEMA}")
        strand_id = make_strand_id(members.take("session_id", TEXT))
        namespace = load_namespace(members.take_object("namespace"))
        chain = load_chain(members.take_object("chain"), namespace)
    except Malformed as error:
        raise invalid(f"stored strand: {error}") from error
    return Strand(strand_id, namespace, chain, members.rest())
