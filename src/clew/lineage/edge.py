"""An edge: how one strand of a thread came from another, or how its conversation went over.

Edges are only ever added; removing a session's file removes none. Kinds: `translated` (clew carried the conversation
to another agent), `forked` (another conversation from here on), `rolled_over` (a full chain went on in a new record),
`replaced` (the agent lost the conversation, a new record began). Stored form: one JSON object; members and kinds that
this clew does not know are carried.
"""

from __future__ import annotations

from typing import Final, Literal, NewType

import msgspec

from clew.conversation.loss import Loss
from clew.ids import ChainKey
from clew.lineage.stored import (
    BOUND,
    NUMBER,
    NUMBER_OR_NONE,
    TEXT,
    TEXT_OR_NONE,
    Extra,
    Malformed,
    Members,
    json_text,
    refuse_doubles,
    write_object,
)

StrandId = NewType("StrandId", str)
"""clew's own id of a strand (session id of a session record): 8-128 letters, digits, `_`, `-`."""

EdgeKind = Literal["translated", "forked", "rolled_over", "replaced"]


class Edge(msgspec.Struct, frozen=True, kw_only=True):
    """One edge of a thread.

    `from_key` and `to_key` are handle keys; `from_strand` is None where the source has no strand. `groups` is how many
    groups went over (for a fork: how many lie before the fork point), `cut` the chain key of the last of them, None
    for an empty conversation or where it is not known. `formats` are the two agents' formats, `restored` and
    `rendered` count messages, `losses` what the target could not say; `at` is in ms.
    """

    kind: EdgeKind
    from_strand: StrandId | None
    from_key: str
    to_strand: StrandId
    to_key: str
    at: int
    groups: int | None = None
    cut: ChainKey | None = None
    formats: tuple[str, str] | None = None
    restored: int | None = None
    rendered: int | None = None
    losses: tuple[Loss, ...] = ()
    extra: Extra = ()


def edge_fault(edge: Edge) -> str:
    """Returns what is wrong with the edge by itself, or an empty text."""
    counts = (edge.groups, edge.restored, edge.rendered)
    if any(count is not None and not 0 <= count <= BOUND for count in (*counts, *(one.count for one in edge.losses))):
        return "counts are numbers from 0 to 2^53"
    if any(not one.what for one in edge.losses):
        return "a loss says what could not be said"
    if abs(edge.at) > BOUND:
        return "the time is beyond 2^53"
    if edge.from_strand == edge.to_strand and edge.kind != "forked":
        return f"a {edge.kind} edge leads to another strand"
    if edge.kind == "translated" and None in (edge.groups, edge.formats, edge.restored, edge.rendered):
        return "a translation tells its formats, its groups and what was restored and rendered"
    if edge.cut is not None and edge.groups == 0:
        return "nothing went over, so there is no chain key at the cut"
    return ""


def store_edge(edge: Edge) -> bytes:
    """Returns the stored form of an edge; all members are there, null for what is not known. Losses stood in no edge at
    first, so they may be missing."""
    members = (
        ("kind", json_text(edge.kind)),
        ("from_strand", json_text(edge.from_strand)),
        ("from_key", json_text(edge.from_key)),
        ("to_strand", json_text(edge.to_strand)),
        ("to_key", json_text(edge.to_key)),
        ("at", json_text(edge.at)),
        ("groups", json_text(edge.groups)),
        ("cut", json_text(edge.cut)),
        ("formats", json_text(edge.formats)),
        ("restored", json_text(edge.restored)),
        ("rendered", json_text(edge.rendered)),
        ("losses", json_text(edge.losses)),
    )
    return write_object(members, edge.extra)


def load_edge(data: bytes) -> Edge:
    """Returns the edge of a stored form; raises Malformed when it is none, or of a kind nobody knows yet."""
    refuse_doubles(data, "edge")
    members = Members(data, "edge")
    kind = members.take("kind", _KIND)
    source, from_key = members.take("from_strand", TEXT_OR_NONE), members.take("from_key", TEXT)
    target, to_key = members.take("to_strand", TEXT), members.take("to_key", TEXT)
    at = members.take("at", NUMBER)
    groups, cut = members.take("groups", NUMBER_OR_NONE), members.take("cut", TEXT_OR_NONE)
    formats = members.take("formats", _FORMATS)
    restored, rendered = members.take("restored", NUMBER_OR_NONE), members.take("rendered", NUMBER_OR_NONE)
    losses = members.take_or("losses", _LOSSES, ())
    edge = Edge(
        kind=kind,
        from_strand=None if source is None else StrandId(source),
        from_key=from_key,
        to_strand=StrandId(target),
        to_key=to_key,
        at=at,
        groups=groups,
        cut=None if cut is None else ChainKey(cut),
        formats=formats,
        restored=restored,
        rendered=rendered,
        losses=losses,
        extra=members.rest(),
    )
    fault = edge_fault(edge)
    if fault:
        raise Malformed(f"edge: {fault}")
    return edge


_KIND: Final[msgspec.json.Decoder[EdgeKind]] = msgspec.json.Decoder(EdgeKind)
_LOSSES: Final[msgspec.json.Decoder[tuple[Loss, ...]]] = msgspec.json.Decoder(tuple[Loss, ...])
_FORMATS: Final[msgspec.json.Decoder[tuple[str, str] | None]] = msgspec.json.Decoder(tuple[str, str] | None)
