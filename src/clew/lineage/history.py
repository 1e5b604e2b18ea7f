"""What the history of a thread answers: where it started, where it is now, what is newest, where its strands diverge.

Divergence is told by chain keys, never by time: a key names its group and everything before it, so the first key
that differs is the place. The keys of each strand's present conversation are handed in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Literal

import msgspec

from clew.ids import ChainKey
from clew.lineage.edge import StrandId
from clew.lineage.link import Link
from clew.lineage.strand import Strand
from clew.lineage.thread import Thread, activity_at, latest_strand, parent_edge

Relation = Literal["equal", "first_behind", "second_behind", "diverged"]
"""How two conversations lie to each other: the shorter one is behind when it is a prefix of the longer."""


class Place(msgspec.Struct, frozen=True):
    """A place in a thread: a strand, and the link there (None for a chain without links)."""

    strand: Strand
    link: Link | None


class Divergence(msgspec.Struct, frozen=True):
    """How far two conversations agree: `common` groups, `last_common` the key of the last one, None for none."""

    common: int
    last_common: ChainKey | None
    relation: Relation


class Pair(msgspec.Struct, frozen=True):
    """Two strands of a thread, in the thread's order, and how they lie to each other."""

    first: StrandId
    second: StrandId
    divergence: Divergence


def find_start(thread: Thread) -> Place | None:
    """Returns where the conversation started: the first strand that came from no other, at its first link."""
    for strand in thread.strands:
        origin = parent_edge(thread, strand.strand_id)
        if origin is None or origin.from_strand is None:
            return Place(strand, strand.chain.links[0] if strand.chain.links else None)
    return None


def find_present(thread: Thread) -> Place | None:
    """Returns where the conversation is now: the head of the strand on which something happened last."""
    strand = latest_strand(thread)
    return None if strand is None else Place(strand, strand.chain.head)


def newest_strand(thread: Thread, last_message_at: Mapping[StrandId, int]) -> Strand | None:
    """Returns the strand whose own last message is newest; `last_message_at` in ms.

    A strand without such a time counts with the last thing that happened on it; of equals, the later strand.
    """
    best: Strand | None = None
    best_at = 0
    for strand in thread.strands:
        at = last_message_at.get(strand.strand_id, activity_at(thread, strand))
        if best is None or at >= best_at:
            best, best_at = strand, at
    return best


def compare_keys(first: Sequence[ChainKey], second: Sequence[ChainKey]) -> Divergence:
    """Returns how far two conversations, given by their chain keys in order, agree."""
    common = 0
    for one, other in zip(first, second, strict=False):
        if one != other:
            break
        common += 1
    relation: Relation
    if common == len(first):
        relation = "equal" if common == len(second) else "first_behind"
    else:
        relation = "second_behind" if common == len(second) else "diverged"
    return Divergence(common, first[common - 1] if common else None, relation)


def compare_strands(thread: Thread, keys: Mapping[StrandId, Sequence[ChainKey]]) -> tuple[Pair, ...]:
    """Returns every pair of strands whose keys are given, with how they lie to each other."""
    known = [strand.strand_id for strand in thread.strands if strand.strand_id in keys]
    return tuple(Pair(one, other, compare_keys(keys[one], keys[other])) for one, other in combinations(known, 2))


def find_diverged(thread: Thread, keys: Mapping[StrandId, Sequence[ChainKey]]) -> tuple[Pair, ...]:
    """Returns the pairs of strands that were continued separately; the user picks one, or forks."""
    return tuple(pair for pair in compare_strands(thread, keys) if pair.divergence.relation == "diverged")
