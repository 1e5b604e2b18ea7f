"""Values that the tests of the lease share: one host, one agent, one session."""

from __future__ import annotations

from typing import Any

import msgspec

from clew.lease.acquire import Grant
from clew.lease.lease import Holder, OwnerProcess
from clew.lease.ledger import make_operation_id
from clew.lease.probe import Probe
from clew.lease.record import AccountHome, Location, Record
from clew.lease.reserve import Request, Snapshot, reservation_fingerprint
from clew.lease.transitions import Reservation, Standing, commit_process, prove_owner, reserve
from clew.lineage.chain import Chain
from clew.lineage.edge import StrandId
from clew.lineage.handle import Handle, Namespace
from clew.lineage.link import Fence, Link, Origin

NOW = 1_700_000_000_000
CLAUDE = Namespace("claude-jsonl", "claude", cursor_in_key=True)
CODEX = Namespace("codex-rollout", "codex")
SESSION = StrandId("session-0001")
HERE = Holder("h1", 100, "boot", 5000)
OTHER = Holder("h1", 200, "boot", 6000)
ABROAD = Holder("h2", 100, "boot2", 5000)
PLACE = Location("h1", "/work/place", "folder")
ACCOUNT = AccountHome("CLAUDE_CONFIG_DIR", "/home/u/.claude")
TOKEN = "token-1"
OPERATION = make_operation_id(NOW, b"\x01" * 16)
OTHER_OPERATION = make_operation_id(NOW, b"\x02" * 16)
OWNER = OwnerProcess("h1", 4242, TOKEN, "boot", 7000)

DEAD = Probe("pid_absent")
ALIVE = Probe("identity_matched", ("spawn_token", "start_time"))
NOTHING = Probe("indeterminate", reason="pid_alone")
UNUSED = Probe("reservation_unused")


def standing(record: Record, *, fence: int | None = None, reconciled: bool = True, now: int = NOW) -> Standing:
    return Standing(record.lease.fence if fence is None else Fence(fence), reconciled, now)


def link(
    link_id: str = "l1",
    fence: int = 1,
    native_id: str = "S",
    cursor: str | None = None,
    origin: Origin = "created",
    namespace: Namespace = CLAUDE,
) -> Link:
    return Link(
        link_id=link_id,
        handle=Handle(namespace, native_id, cursor),
        origin=origin,
        minted_at_fence=Fence(fence),
        observed_at=NOW,
    )


def blank(**fields: Any) -> Record:
    """A record that nobody has held."""
    record = Record(session_id=SESSION, namespace=CLAUDE, location=PLACE, account_home=ACCOUNT)
    return msgspec.structs.replace(record, **fields)


def reservation(
    token: str = TOKEN, operation: str = OPERATION, holder: Holder = HERE, *, independent: bool = False
) -> Reservation:
    return Reservation(token, operation, holder, independent)


def reserved(record: Record | None = None, made: Reservation | None = None, now: int = NOW) -> Record:
    start = blank() if record is None else record
    return reserve(start, Grant(start.lease.next_fence), made or reservation(), now)


def committed(record: Record | None = None) -> Record:
    start = reserved() if record is None else record
    token = start.lease.reserved_token or ""
    return commit_process(start, standing(start), msgspec.structs.replace(OWNER, spawn_token=token))


def live(record: Record | None = None, new: Link | None = None) -> Record:
    start = committed() if record is None else record
    return prove_owner(start, standing(start), new or link(fence=start.lease.fence)).record


def with_lease(record: Record, **fields: Any) -> Record:
    return msgspec.structs.replace(record, lease=msgspec.structs.replace(record.lease, **fields))


def bound(record: Record, *links: Link) -> Record:
    return msgspec.structs.replace(record, chain=Chain(links))


def request(**fields: Any) -> Request:
    """A call to create the session, its fingerprint computed after the changes."""
    base = Request(
        caller="me",
        operation_id=OPERATION,
        fingerprint="",
        session_id=SESSION,
        expected_fence=None,
        location=PLACE,
        namespace=CLAUDE,
        account_home=ACCOUNT,
    )
    asked = msgspec.structs.replace(base, **fields)
    if "fingerprint" in fields:
        return asked
    return msgspec.structs.replace(asked, fingerprint=reservation_fingerprint(asked))


def snapshot(record: Any = None, row: Any = None, **fields: Any) -> Snapshot:
    fence = record.lease.fence if isinstance(record, Record) else None
    seen = Snapshot(record=record, row=row, here=HERE, now=NOW, probed_fence=fence)
    return msgspec.structs.replace(seen, **fields)
