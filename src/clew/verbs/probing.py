"""What this host observes of the processes that leases name: the only source of proof.

Promises: a probe is a look at this very machine, taken when it is asked for and outside of any transaction; nobody
hands one in. A pid alone proves nothing, and whatever cannot be seen is "not to be had", never "gone". The token that
an owner was started with is looked for in its environment: found, it agrees; not found, it is not to be had, for a
process may clear its environment, and `clew resume` carries its own only after it has become the agent.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from clew.host.protocol import TOKEN_VARIABLE
from clew.lease.lease import Holder, OwnerProcess
from clew.lease.probe import (
    UNPROBED,
    Probe,
    Seen,
    SeenReservation,
    Signal,
    classify_holder,
    classify_owner,
    classify_reservation,
)
from clew.lease.record import Record
from clew.lease.restart import Probed
from clew.platform.process import (
    Liveness,
    ProcessIdentity,
    boot_id,
    carries_token,
    find_token,
    identify,
    identify_self,
    probe,
)

Activity = Callable[[Record], bool | None]
"""Tells whether the agent's own files show activity since a record's reservation; None: that cannot be told."""


def activity_unknown(record: Record) -> bool | None:
    """Tells nothing."""
    return None


def make_holder(host: str) -> Holder:
    """Returns this very process as a holder, on the host of that id."""
    own = identify_self()
    return Holder(host, own.pid, own.boot_id or None, own.start_ticks)


class Observer:
    """One process' eyes on its host. `exits` are the processes that it saw exit itself."""

    def __init__(self, here: Holder, activity: Activity = activity_unknown) -> None:
        self.here = here
        self._activity = activity
        self._exits: set[tuple[str | None, int, int | None]] = set()

    def saw_exit(self, process: ProcessIdentity) -> None:
        """Remembers that a process of this host was seen to exit."""
        self._exits.add((process.boot_id, process.pid, process.start_ticks))

    def owner(self, owner: OwnerProcess) -> Probe:
        """Probes a recorded owner."""
        return classify_owner(owner, self._look(owner, owner.spawn_token))

    def holder(self, holder: Holder) -> Probe:
        """Probes the clew process that holds an owner's transport."""
        return classify_holder(holder, self._look(holder, None))

    def reservation(self, record: Record) -> Probe:
        """Probes a reservation that names no process."""
        token = record.lease.reserved_token
        if record.location.host != self.here.host or token is None:
            return classify_reservation(record.location.host, SeenReservation(self.here.host))
        scan = find_token(TOKEN_VARIABLE, token)
        carriers = None
        if scan is not None and (scan.carrying or not scan.unsure):
            carriers = tuple(process.pid for process in scan.carrying)
        seen = SeenReservation(self.here.host, carriers, self._activity(record))
        return classify_reservation(record.location.host, seen)

    def look(self, record: Record, *, holds: bool = False) -> Probed:
        """Probes everything that judging a record needs. `holds`: this process holds the owner's transport."""
        lease = record.lease
        if record.location.host != self.here.host:
            return Probed(lease.fence)
        subject, holder = UNPROBED, UNPROBED
        if lease.owner is not None:
            subject = self.owner(lease.owner)
        elif lease.reserved_token is not None:
            subject = self.reservation(record)
        if lease.holder is not None:
            holder = self.holder(lease.holder)
        return Probed(lease.fence, subject, holder, holds)

    def _look(self, process: OwnerProcess | Holder, token: str | None) -> Seen:
        host = self.here.host
        if process.host != host:
            return Seen(host)
        if (process.boot, process.pid, process.start_ticks) in self._exits:
            return Seen(host, exit_seen=True)
        signal = _signal(process.pid)
        identity = identify(process.pid)
        if identity is None and signal in ("present", "not_permitted") and _is_zombie(process):
            return Seen(host, exit_seen=True)
        carried = None if token is None or signal != "present" else carries_token(process.pid, TOKEN_VARIABLE, token)
        return Seen(
            host,
            signal=signal,
            token=token if carried else None,
            boot=boot_id() or None,
            start_ticks=None if identity is None else identity.start_ticks,
        )


def _signal(pid: int) -> Signal:
    """Asks by signal 0. Only "no such process" says that there is none."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return "absent"
    except PermissionError:
        return "not_permitted"
    except (OSError, OverflowError):
        return "failed"
    return "present"


def _is_zombie(process: OwnerProcess | Holder) -> bool:
    """Tells whether that very process has exited and only waits to be collected by its parent."""
    if process.boot is None or process.start_ticks is None:
        return False
    verdict = probe(ProcessIdentity(process.boot, process.pid, process.start_ticks))
    return verdict.liveness is Liveness.DEAD and verdict.evidence == "exited"
