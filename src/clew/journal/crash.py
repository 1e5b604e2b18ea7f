"""What a stop leaves in doubt: whatever was handed over and not settled becomes `unknown`, and is never sent again.

Promises: queued, accepted and rejected submissions are left alone; doing it twice writes nothing the second time; doubt
is never proof of non-delivery. The one exception is first-hand: a child that ended before it answered its handshake ran
nothing, so what was handed to it is `rejected`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

from clew.journal.rows import Dispatch
from clew.journal.submissions import HOST_RESTARTED, Standing

NEVER_STARTED: Final = "agent_never_started"


def settle_crash(standings: Iterable[Standing]) -> tuple[Dispatch, ...]:
    """Returns the rows that mark what was in flight as `unknown`, recovered; a sharper reason stays."""
    return tuple(
        Dispatch(s.client_id, "unknown", s.reason or HOST_RESTARTED, recovered=True)
        for s in standings
        if s.state == "pending" or (s.state == "unknown" and not s.recovered)
    )


def reject_never_started(standings: Iterable[Standing], handed: Collection[str]) -> tuple[Dispatch, ...]:
    """Returns the rows that reject what was handed (client ids) to a child that never answered its handshake."""
    return tuple(
        Dispatch(s.client_id, "rejected", NEVER_STARTED)
        for s in standings
        if s.client_id in handed and s.state in ("pending", "unknown")
    )
