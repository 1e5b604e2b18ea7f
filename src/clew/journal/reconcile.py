"""Reconciliation: what is unknown is compared with the agent's own history, sampled while no child ran.

Three passes, each over all submissions before the next begins, an item claimed once: the item key a submission already
adopted; the client id that the agent echoed; the fingerprint of the payload, only where exactly one submission and one
item have it. Never by equal text. Promises: only `unknown` is narrowed, nothing is dispatched; the order of submissions
and of items changes nothing; absence proves nothing (`unmatched`), for a wrong "rejected" invites a second delivery and
a wrong "unknown" costs a question.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from clew.journal.rows import Dispatch
from clew.journal.submissions import Standing

AMBIGUOUS: Final = "ambiguous_match"
BOUNDARY: Final = "history_boundary_inconsistent"
IN_FLIGHT: Final = "turn_in_flight"
UNMATCHED: Final = "unmatched"


class HistoryItem(msgspec.Struct, frozen=True):
    """One user item of the agent's own history: its id there, the client id it echoes, the fingerprint of its payload,
    and the key derived from its identity; None for what it does not have."""

    own_id: str
    client_id: str | None = None
    fingerprint: str | None = None
    item_key: str | None = None


class Window(msgspec.Struct, frozen=True):
    """The agent's history at or after the journal's last committed item.

    `boundary_consistent`: that item was found where it was; a fork, a compacted or truncated log makes it False.
    `turn_in_flight`: an owner was writing already when it was sampled.
    """

    items: tuple[HistoryItem, ...]
    boundary_consistent: bool = True
    turn_in_flight: bool = False


def reconcile(standings: Sequence[Standing], known: frozenset[str], window: Window | None) -> tuple[Dispatch, ...]:
    """Returns the rows that narrow what is unknown; none for no window, or where nothing new is learned.

    `known` are the item keys that the journal has already (`submissions.known_items`): they are taken out first, or a
    message that never arrived would match an older one of the same text.
    """
    if window is None:
        return ()
    # What is still pending takes part in the matching, so that its item is not given to another; it is not settled.
    open_ = sorted(
        (s for s in standings if s.state in ("pending", "unknown") and s.submission.plain_text),
        key=lambda s: s.client_id,
    )
    adopted = {s.item_key for s in open_ if s.item_key is not None}
    items = sorted(
        (item for item in window.items if _identity(item) not in known - adopted),
        key=_order,
    )
    matched, ambiguous = _match(open_, items, by_fingerprint=window.boundary_consistent)
    answers: list[Dispatch] = []
    for standing in (s for s in open_ if s.state == "unknown"):
        item = matched.get(standing.client_id)
        told = _answer(standing, item, ambiguous=standing.client_id in ambiguous, window=window)
        # Candidates that could not be told apart do not stop being candidates because the journal has them now.
        kept = told.state == "unknown" and (standing.reason == told.reason or _is_wider(standing, told))
        if not kept:
            answers.append(told)
    return tuple(answers)


def _is_wider(standing: Standing, told: Dispatch) -> bool:
    return standing.reason == AMBIGUOUS and told.reason in (UNMATCHED, IN_FLIGHT)


def _answer(standing: Standing, item: HistoryItem | None, *, ambiguous: bool, window: Window) -> Dispatch:
    if item is not None:
        key = _identity(item)
        return Dispatch(standing.client_id, "accepted", None, standing.recovered, key, item.own_id)
    if ambiguous:
        reason = AMBIGUOUS
    elif not window.boundary_consistent:
        reason = BOUNDARY
    else:
        reason = IN_FLIGHT if window.turn_in_flight else UNMATCHED
    return Dispatch(standing.client_id, "unknown", reason, standing.recovered)


def _match(
    open_: Sequence[Standing], items: Sequence[HistoryItem], *, by_fingerprint: bool
) -> tuple[dict[str, HistoryItem], frozenset[str]]:
    """Returns which submission has which item, and which have candidates that cannot be told apart."""
    matched: dict[str, HistoryItem] = {}
    claimed: set[str] = set()
    for standing in open_:
        _claim(standing, [i for i in items if i.item_key and i.item_key == standing.item_key], matched, claimed)
    for standing in open_:
        if standing.client_id not in matched:
            _claim(standing, [i for i in items if i.client_id == standing.client_id], matched, claimed)
    # An item that echoes another client id is somebody else's, whatever it says.
    left = [i for i in items if i.own_id not in claimed and i.client_id is None and i.fingerprint is not None]
    rest = [s for s in open_ if s.client_id not in matched]
    if not by_fingerprint:
        return matched, frozenset()
    return matched, _match_fingerprints(rest, left, matched)


def _match_fingerprints(
    rest: Iterable[Standing], left: Sequence[HistoryItem], matched: dict[str, HistoryItem]
) -> frozenset[str]:
    waiting = list(rest)
    wanted = Counter(s.submission.fingerprint for s in waiting)
    offered = Counter(item.fingerprint for item in left)
    by_print = {item.fingerprint: item for item in left}
    ambiguous: set[str] = set()
    for standing in waiting:
        print_ = standing.submission.fingerprint
        if offered[print_] == 1 and wanted[print_] == 1:
            matched[standing.client_id] = by_print[print_]
        elif offered[print_]:
            ambiguous.add(standing.client_id)
    return frozenset(ambiguous)


def _claim(
    standing: Standing,
    candidates: Sequence[HistoryItem],
    matched: dict[str, HistoryItem],
    claimed: set[str],
) -> None:
    """Gives a submission the first candidate; all of them prove it, so none is left for another one."""
    free = [item for item in candidates if item.own_id not in claimed]
    if free:
        matched[standing.client_id] = free[0]
        claimed.update(item.own_id for item in free)


def _identity(item: HistoryItem) -> str:
    return item.item_key or item.own_id


def _order(item: HistoryItem) -> tuple[str, str, str, str]:
    return item.own_id, item.client_id or "", item.fingerprint or "", item.item_key or ""
