"""What became of each submission, told by the journal's rows in order.

States: `queued` (not handed over), `pending` (handed over), `unknown` (nobody can tell), `accepted` and `rejected`
(settled). Promises: a settled state is not reopened by a later, weaker row, whatever order rows arrive in; a sharper
reason is not replaced by `host_restarted`; an accepted submission and the agent's own copy of it are one message.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from clew.journal.rows import Dispatch, Item, Row, Submission, SubmissionState

HOST_RESTARTED: Final = "host_restarted"
"""The bluntest reason for `unknown`: the process that handed it over is gone."""

_RANK: Final[dict[SubmissionState, int]] = {
    "queued": 0,
    "pending": 1,
    "unknown": 2,
    "accepted": 3,
    "rejected": 3,
}


class Standing(msgspec.Struct, frozen=True):
    """Where one submission stands. `sequence` is its row's number; `fence` the one it was written at."""

    submission: Submission
    sequence: int
    fence: int
    state: SubmissionState = "queued"
    reason: str | None = None
    recovered: bool = False
    item_key: str | None = None
    receipt: str | None = None

    @property
    def client_id(self) -> str:
        """The client message id."""
        return self.submission.client_id

    @property
    def is_settled(self) -> bool:
        """Whether it was accepted or rejected, for good."""
        return _RANK[self.state] == 3


def fold(rows: Iterable[Row], before: Iterable[Standing] = ()) -> tuple[Standing, ...]:
    """Returns where every submission stands, in the order they were made; `before`: where those of earlier rows stood.

    A second submission row of one client id changes nothing; a dispatch of an unknown id is passed over.
    """
    standings = {standing.client_id: standing for standing in before}
    for row in rows:
        body = row.body
        if isinstance(body, Submission):
            standings.setdefault(body.client_id, Standing(body, row.sequence, row.fence))
        elif isinstance(body, Dispatch) and body.client_id in standings:
            standings[body.client_id] = apply(standings[body.client_id], body)
    return tuple(standings.values())


def apply(standing: Standing, told: Dispatch) -> Standing:
    """Returns where a submission stands after a dispatch; the same object when that is weaker than what is known."""
    if standing.is_settled or _RANK[told.state] < _RANK[standing.state]:
        return standing
    reason = told.reason
    if standing.state == told.state == "unknown" and reason in (None, HOST_RESTARTED):
        reason = standing.reason or reason
    after = msgspec.structs.replace(
        standing,
        state=told.state,
        reason=reason,
        recovered=standing.recovered or told.recovered,
        item_key=told.item_key or standing.item_key,
        receipt=told.receipt or standing.receipt,
    )
    return standing if after == standing else after


def unconfirmed(standings: Iterable[Standing]) -> tuple[str, ...]:
    """Returns the client ids of what was handed over and is settled neither way: shown as neither sent nor failed."""
    return tuple(s.client_id for s in standings if s.state in ("pending", "unknown"))


def known_items(rows: Iterable[Row]) -> frozenset[str]:
    """Returns the keys of the items that the journal has: as items, or as what an accepted submission became."""
    found = list(rows)
    items = {row.body.item_key for row in found if isinstance(row.body, Item)}
    accepted = {s.item_key for s in fold(found) if s.state == "accepted" and s.item_key is not None}
    return frozenset(items | accepted)


class Bubble(msgspec.Struct, frozen=True):
    """One message as it is shown: a submission, an item of the agent, or both in one."""

    standing: Standing | None
    item: Item | None


def timeline(rows: Iterable[Row]) -> tuple[Bubble, ...]:
    """Returns what is shown, in order: the agent's copy of an accepted submission lands in the user's message."""
    found = list(rows)
    standings = {s.client_id: s for s in fold(found)}
    aliases = {s.item_key: s.client_id for s in standings.values() if s.state == "accepted" and s.item_key}
    bubbles: dict[tuple[str, str], Bubble] = {}
    for row in found:
        body = row.body
        if isinstance(body, Submission):
            place = ("submission", body.client_id)
            bubbles[place] = Bubble(standings[body.client_id], bubbles[place].item if place in bubbles else None)
        elif isinstance(body, Item):
            client_id = aliases.get(body.item_key)
            if client_id is None:
                bubbles[("item", body.item_key)] = Bubble(None, body)
            else:
                bubbles[("submission", client_id)] = Bubble(standings[client_id], body)
    return tuple(bubbles.values())
