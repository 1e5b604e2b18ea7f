"""Choosing whose bytes a conversation takes (docs/residue.md, 7).

The rule that matters: never another session. A candidate with a known id that is not this session's own is out, and
where two sources with different bytes fit equally well, none is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import msgspec

from clew.conversation.digest import framed_digest
from clew.ids import ChainKey, Digest


class StoredSegment(Protocol):
    """A segment as a store delivers it: `data` is None when its bytes cannot be had."""

    @property
    def key(self) -> ChainKey: ...
    @property
    def digest(self) -> Digest: ...
    @property
    def end_of_source(self) -> bool: ...
    @property
    def lengths(self) -> tuple[int, ...]: ...
    @property
    def data(self) -> bytes | None: ...


class Candidate(msgspec.Struct, frozen=True):
    """One capture that may give its bytes: whose it is, its segments' keys, and a way to read them in order."""

    capture: int
    source_id: str
    session_id: str | None
    keys: tuple[ChainKey, ...]
    read: Callable[[int, int], Iterator[StoredSegment]]


class Choice(msgspec.Struct, frozen=True):
    """The capture that was chosen, how many groups of the conversation it gives, and whether it ends there."""

    candidate: Candidate
    matched: int
    ends: bool


class NoChoice(msgspec.Struct, frozen=True):
    """Why no capture was chosen: no_candidate, other_session_only or ambiguous_source."""

    reason: str


def is_sound(segment: StoredSegment) -> bool:
    """Tells whether a stored segment is there and its digest is right; checked every time before use."""
    data, lengths = segment.data, segment.lengths
    if data is None or not segment.digest or min(lengths, default=0) < 0 or sum(lengths) != len(data):
        return False
    return framed_digest(lengths, data) == segment.digest


def choose_source(
    keys: Sequence[ChainKey],
    candidates: Sequence[Candidate],
    *,
    own_ids: frozenset[str],
    carries_id: bool = True,
) -> Choice | NoChoice:
    """Returns the capture to restore from, or why there is none.

    `keys` are this conversation's group keys (key(0) alone for an empty one); `candidates` the captures in the
    target format whose first segment has the first key; `own_ids` every id that is this session's own;
    `carries_id` whether the format's records carry an id at all.
    """
    if not candidates:
        return NoChoice("no_candidate")
    if own_ids and carries_id:
        candidates = [c for c in candidates if c.session_id is None or c.session_id in own_ids]
        if not candidates:
            return NoChoice("other_session_only")
    best = _longest([_best_of_source(keys, some) for some in _by_source(candidates).values()])
    if not best:
        return NoChoice("no_candidate")
    own = [choice for choice in best if choice.candidate.session_id in own_ids]
    if len(best) > 1 and own:
        best = own
    if len(best) > 1 and not _same_records(best):
        return NoChoice("ambiguous_source")
    return max(best, key=lambda choice: (choice.ends, choice.candidate.capture))


def _by_source(candidates: Sequence[Candidate]) -> dict[str, list[Candidate]]:
    sources: dict[str, list[Candidate]] = {}
    for candidate in candidates:
        sources.setdefault(candidate.source_id, []).append(candidate)
    return sources


def _best_of_source(keys: Sequence[ChainKey], captures: Sequence[Candidate]) -> Choice | None:
    """Returns the capture of one source with the longest verified match; then one that ends there; then the newest.

    Keys are compared first, since that is cheap; bytes are verified only for captures that may still win.
    """
    ranked = sorted((_by_keys(keys, c) for c in captures), key=_rank, reverse=True)
    best: Choice | None = None
    for choice in ranked:
        if best is not None and _rank(choice) <= _rank(best):
            break
        verified = _verify(choice)
        if verified.matched and (best is None or _rank(verified) > _rank(best)):
            best = verified
    return best


def _rank(choice: Choice) -> tuple[int, bool, int]:
    return (choice.matched, choice.ends, choice.candidate.capture)


def _by_keys(keys: Sequence[ChainKey], candidate: Candidate) -> Choice:
    matched = 0
    for wanted, there in zip(keys, candidate.keys, strict=False):
        if wanted != there:
            break
        matched += 1
    return Choice(candidate, matched, ends=matched == len(keys) == len(candidate.keys))


def _verify(choice: Choice) -> Choice:
    """Shortens a choice to its sound segments; nothing counts behind one that is marked as the end."""
    sound = 0
    ended = False
    for key, segment in zip(choice.candidate.keys, choice.candidate.read(0, choice.matched), strict=False):
        if segment.key != key or not is_sound(segment):
            break
        sound += 1
        ended = segment.end_of_source
        if ended:
            break
    return Choice(choice.candidate, sound, ends=ended and choice.ends and sound == choice.matched)


def _longest(choices: Sequence[Choice | None]) -> list[Choice]:
    there = [choice for choice in choices if choice is not None]
    most = max((choice.matched for choice in there), default=0)
    return [choice for choice in there if choice.matched == most]


def _same_records(choices: Sequence[Choice]) -> bool:
    """Tells whether all choices would give the same bytes."""
    digests = {tuple(segment.digest for segment in choice.candidate.read(0, choice.matched)) for choice in choices}
    return len(digests) == 1
