"""Recovery: an agent that outlived the clew process which held its transport is stopped, for nobody can drive it."""

from __future__ import annotations

from typing import Literal

from clew.host.child import stop_process
from clew.lease.probe import may_be_stopped
from clew.platform.process import ProcessIdentity
from clew.verbs.leases import Leases, View


def recover(leases: Leases, view: View, kind_s: float = 2.0) -> Literal["nothing", "stopped", "kept"]:
    """Stops an agent that outlived the clew process which held its transport: nobody can drive it any more.

    Only on this host, only an agent that clew drove (never one in a user's own terminal), only with token and start
    time both agreeing. What comes of it is judged anew by the caller.
    """
    record, probed = view.record, view.probed
    if record is None or probed is None or record.location.host != leases.here.host:
        return "nothing"
    lease = record.lease
    owner = lease.owner
    if owner is None or lease.independent or lease.stage != "recovering":
        return "nothing"
    probe = leases.observer.owner(owner)
    if probe.proves == "death":
        return "nothing"
    if not may_be_stopped(probe) or owner.boot is None or owner.start_ticks is None:
        return "kept"
    identity = ProcessIdentity(owner.boot, owner.pid, owner.start_ticks)
    if not stop_process(identity, kind_s):
        return "kept"
    return "stopped"
