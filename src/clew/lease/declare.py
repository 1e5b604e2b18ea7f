"""Declaring another host gone: a person's act, never a probe.

Nobody can prove from afar that a process of another host is dead, and time proves nothing. A person may say so. It is
recorded as evidence of the kind `declared` with who and when, the fence moves, the record is re-homed here; whatever
wakes up over there meets a higher fence at its next transaction. Its agent may still run: the caller says so.
"""

from __future__ import annotations

import msgspec

from clew.lease.lease import Evidence
from clew.lease.record import Record
from clew.lease.refusal import refusal
from clew.lease.transitions import Standing, release_at_next_fence

WARNING = "An agent on {host} may still be running; it can write its own files there, but nothing here."
"""What the person is told."""


def declare_gone(record: Record, standing: Standing, *, gone: str, here: str, by: str) -> Record:
    """Returns the record released, at the next fence, and re-homed to host `here`, on the word of `by`.

    Needs the current fence, but no judgement: the lease is another host's. Raises LeaseError when the fence is
    another, when the record does not belong to host `gone`, or when that is this host, whose processes can be proved.
    """
    lease = record.lease
    if standing.fence != lease.fence:
        raise refusal("checkpoint_stale", "lease_moved", fence=lease.fence).error()
    if record.location.host != gone or gone == here:
        raise refusal("conflict", "identity_mismatch", what="host", recorded=record.location.host, given=gone).error()
    evidence = Evidence("declared", f"host {gone}", standing.now, lease.fence, lease.renewed_at, by)
    return msgspec.structs.replace(
        record,
        lease=release_at_next_fence(record, evidence),
        location=msgspec.structs.replace(record.location, host=here),
        updated_at=max(standing.now, record.updated_at),
    )
