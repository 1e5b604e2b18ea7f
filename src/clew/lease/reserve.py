"""Reserving a session, to create or to open it: one decision over a snapshot, inside one transaction.

The checks run in a fixed order (docs/ownership.md, A7): the launch, the ledger, who else holds the conversation, the
record, its identity, the acquisition. The result holds the record and the row to be written together or not at all; a
refusal leaves both as they are. Promises: a replay never acts twice; a spawn token that is given as a supplier is only
called for when this call wins a new reservation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import msgspec

from clew.lease.acquire import Acquisition, Grant, Retry, decide_acquisition, handoff_in_flight
from clew.lease.lease import Holder, Lease, with_floor
from clew.lease.ledger import Admit, Row, admit, fingerprint
from clew.lease.probe import UNPROBED, Probe
from clew.lease.record import (
    AccountHome,
    BareRecord,
    Location,
    Record,
    StoredRecord,
    UnreadableRecord,
    launch_fault,
    open_record,
)
from clew.lease.refusal import Refusal, refusal
from clew.lease.transitions import Reservation, reserve
from clew.lineage.chain import EMPTY, Chain, append
from clew.lineage.edge import StrandId
from clew.lineage.handle import Handle, Namespace
from clew.lineage.link import Fence, Link, make_link_id

Transcript = Literal["ready", "not_found", "unreadable", "missing"]
"""Of a conversation to be taken over: read and decoded now; its file not there; not readable, or nothing in it; none
named at all."""

TokenSupply = str | Callable[[], str]


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One call to reserve. `expected_fence` None: there is no session yet (create); a number: last seen (ensure).

    `handle` is the conversation the caller has; `adopt` one to be taken over from what is on disk, by the host's own
    resolution. The environment is checked and never stored. `fingerprint` is what the caller declares.
    """

    caller: str
    operation_id: str
    fingerprint: str
    session_id: StrandId
    expected_fence: Fence | None
    location: Location
    namespace: Namespace
    account_home: AccountHome
    runtime_kind: str = "host"
    handle: Handle | None = None
    adopt: Handle | None = None
    options: tuple[tuple[str, str], ...] = ()
    launch_arguments: tuple[str, ...] = ()
    launch_environment: tuple[tuple[str, str], ...] = ()
    independent: bool = False
    claim_key_id: str | None = None


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """What the store and this process know inside the transaction.

    `row` is the ledger's row under the request's key. `held_elsewhere`: another record whose chain has a link with the
    root to be adopted. `probe` is of the record's owner or reservation, taken before, when the record was at
    `probed_fence`; at any other fence it says nothing. `fence_floor` is the store's: below it nothing is granted. `now`
    in ms.
    """

    record: StoredRecord | None
    row: Row | None
    here: Holder
    now: int
    reconciled: bool = True
    probe: Probe = UNPROBED
    probed_fence: Fence | None = None
    held_elsewhere: StrandId | None = None
    transcript: Transcript = "missing"
    caller_rows: int = 0
    all_rows: int = 0
    fence_floor: int = 0


class Reserved(msgspec.Struct, frozen=True):
    """The call owns a reservation: write the record and the row together, then act with the token."""

    disposition: Literal["created", "reserved", "retry_reservation"]
    record: Record
    row: Row
    token: str


class Replayed(msgspec.Struct, frozen=True):
    """The call is known. A settled row is the answer; for a pending one the reservation of `token` still stands."""

    row: Row
    record: Record | None
    token: str | None = None

    disposition: Literal["replayed"] = "replayed"


def reservation_fingerprint(asked: Request) -> str:
    """Returns the fingerprint of a call to reserve: of all that decides *which* session, and of nothing else."""
    fields = {
        "location": msgspec.to_builtins(asked.location),
        "provider": str(asked.namespace),
        "agent": asked.namespace.agent,
        "account_home": msgspec.to_builtins(asked.account_home),
        "runtime_kind": asked.runtime_kind,
        "handle": None if asked.handle is None else msgspec.to_builtins(asked.handle),
        "adopt": None if asked.adopt is None else msgspec.to_builtins(asked.adopt),
        "expected_fence": asked.expected_fence,
    }
    return fingerprint("attach", asked.session_id, fields)


def decide_reservation(asked: Request, seen: Snapshot, token: TokenSupply) -> Reserved | Replayed | Refusal:
    """Returns what a call to reserve comes to; the first check that answers decides."""
    early = _check_request(asked, seen)
    if early is not None:
        return early
    known = admit(
        seen.row,
        caller=asked.caller,
        operation_id=asked.operation_id,
        print_=asked.fingerprint,
        now=seen.now,
        caller_rows=seen.caller_rows,
        all_rows=seen.all_rows,
        session_id=asked.session_id,
    )
    if isinstance(known, Refusal):
        return known
    if not isinstance(known, Admit):
        return _replay(asked, seen, known.row, token)
    if asked.adopt is not None and seen.held_elsewhere not in (None, asked.session_id):
        return refusal("conflict", "conversation_held_elsewhere", other=seen.held_elsewhere)
    record = seen.record
    if isinstance(record, UnreadableRecord):
        return _unreadable(record)
    if record is None:
        return _create(asked, seen, known.row, token)
    if isinstance(record, BareRecord):
        record = open_record(record, asked.location, asked.account_home, seen.now)
    return _open(asked, seen, _floored(record, seen), known.row, token)


def _check_request(asked: Request, seen: Snapshot) -> Refusal | None:
    for handle in (asked.handle, asked.adopt):
        if handle is not None and handle.namespace != asked.namespace:
            return _malformed(f"a handle of {handle.namespace} for a session of {asked.namespace}")
    names = [name for name, _ in asked.launch_environment]
    fault = launch_fault(dict(asked.launch_environment), asked.launch_arguments, asked.options)
    if fault or len(set(names)) != len(names):
        return _malformed(fault or "a variable is given twice")
    if seen.record is None and asked.location.host != seen.here.host:
        return _malformed("a session begins on the host that creates it")
    if asked.fingerprint != reservation_fingerprint(asked):
        return refusal("operation_conflict", "fingerprint_mismatch")
    return None


def _create(asked: Request, seen: Snapshot, row: Row, token: TokenSupply) -> Reserved | Refusal:
    if asked.expected_fence is not None:
        return refusal("checkpoint_stale", "record_missing", session=asked.session_id)
    missing = _transcript_refusal(asked, seen)
    if missing is not None:
        return missing
    record = Record(
        session_id=asked.session_id,
        namespace=asked.namespace,
        location=asked.location,
        account_home=asked.account_home,
        options=asked.options,
        launch_arguments=asked.launch_arguments,
        lease=with_floor(Lease(), seen.fence_floor),
        created_at=seen.now,
        updated_at=seen.now,
    )
    return _reserve(asked, seen, record, Grant(record.lease.next_fence), row, token, created=True)


def _open(asked: Request, seen: Snapshot, record: Record, row: Row, token: TokenSupply) -> Reserved | Refusal:
    lease = record.lease
    refused = identity_refusal(asked, seen.here.host, record) or _existing_refusal(asked, record)
    if refused is not None:
        return refused
    if asked.adopt is not None and not record.chain.links:
        missing = _transcript_refusal(asked, seen)
        if missing is not None:
            return missing
    expected = lease.fence if asked.expected_fence is None else asked.expected_fence
    decided = _decide(asked, seen, record, expected)
    if isinstance(decided, Refusal):
        return decided
    if isinstance(decided, Retry):
        kept = msgspec.structs.replace(row, fence=decided.fence)
        return Reserved("retry_reservation", record, kept, decided.token)
    created = asked.expected_fence is None
    if created or lease.fence == 0:
        record = msgspec.structs.replace(record, options=asked.options, launch_arguments=asked.launch_arguments)
    return _reserve(asked, seen, record, decided, row, token, created=created)


def _reserve(
    asked: Request,
    seen: Snapshot,
    record: Record,
    grant: Grant,
    row: Row,
    token: TokenSupply,
    *,
    created: bool,
) -> Reserved:
    if asked.adopt is not None and not record.chain.links:
        adopted = _adopted(asked.adopt, grant.fence, seen.now)
        record = msgspec.structs.replace(record, chain=adopted)
    minted = token if isinstance(token, str) else token()
    made = Reservation(minted, asked.operation_id, seen.here, asked.independent, asked.claim_key_id)
    reserved = reserve(record, grant, made, seen.now)
    kept = msgspec.structs.replace(row, fence=grant.fence)
    return Reserved("created" if created else "reserved", reserved, kept, minted)


def _floored(record: Record, seen: Snapshot) -> Record:
    return msgspec.structs.replace(record, lease=with_floor(record.lease, seen.fence_floor))


def _adopted(handle: Handle, fence: Fence, now: int) -> Chain:
    link = Link(
        link_id=make_link_id(handle, fence),
        handle=handle,
        origin="adopted",
        minted_at_fence=fence,
        observed_at=now,
    )
    return append(EMPTY, link)


def _decide(asked: Request, seen: Snapshot, record: Record, expected: Fence) -> Grant | Retry | Refusal:
    return decide_acquisition(
        Acquisition(
            lease=record.lease,
            reconciled=seen.reconciled,
            expected_fence=expected,
            operation_id=asked.operation_id,
            probe=seen.probe if seen.probed_fence == record.lease.fence else UNPROBED,
            record_host=record.location.host,
            here=seen.here,
        )
    )


# --- replays ----------------------------------------------------------------------------------------------------


def _replay(asked: Request, seen: Snapshot, row: Row, token: TokenSupply) -> Reserved | Replayed | Refusal:
    record = seen.record
    if isinstance(record, UnreadableRecord):
        return _unreadable(record)
    attached = record if isinstance(record, Record) else None
    if row.state == "succeeded" and attached is None:
        return refusal("ownership_unknown", "record_missing", operation=row.operation_id)
    if row.is_settled:
        return Replayed(row, attached)
    if attached is None:
        return _superseded(asked)
    lease = attached.lease
    if attached.location.host == seen.here.host and not seen.reconciled:
        return refusal("owner_reconciling", "host_reconciling")
    if lease.is_free:
        attached = _floored(attached, seen)
        decided = _decide(asked, seen, attached, lease.fence)
        if isinstance(decided, Grant):
            return _reserve(asked, seen, attached, decided, row, token, created=False)
        return _superseded(asked) if isinstance(decided, Retry) else decided
    if seen.now > row.expires_at:
        return refusal("operation_expired", operation=row.operation_id)
    return _standing_reservation(asked, seen, attached, row)


def _standing_reservation(asked: Request, seen: Snapshot, record: Record, row: Row) -> Replayed | Refusal:
    lease = record.lease
    if not _is_reservation_of(lease, asked.operation_id):
        return _superseded(asked)
    if lease.holder is not None and lease.holder != seen.here:
        return handoff_in_flight(lease)
    return Replayed(row, record, lease.reserved_token)


def _is_reservation_of(lease: Lease, operation_id: str) -> bool:
    return lease.claim == "reserved" and lease.operation_id == operation_id


# --- refusals ---------------------------------------------------------------------------------------------------


def identity_refusal(asked: Request, here: str, record: Record) -> Refusal | None:
    """Returns why a call may not open a record that is of another place, agent, account or conversation: changing one
    is a fork. `here` is the asking host."""
    mine, its = asked.location, record.location
    pairs = (
        ("host", its.host, mine.host),
        ("container", its.container or "none", mine.container or "none"),
        ("workspace", its.workspace, mine.workspace),
        ("kind of workspace", its.workspace_kind, mine.workspace_kind),
        ("agent", str(record.namespace), str(asked.namespace)),
        ("account", _account(record.account_home), _account(asked.account_home)),
    )
    for what, recorded, given in pairs:
        if recorded != given:
            return refusal("conflict", "identity_mismatch", what=what, recorded=recorded, given=given)
    if record.namespace != asked.namespace:
        return refusal("conflict", "identity_mismatch")
    if its.host != here and record.lease.is_free:
        return refusal("conflict", "identity_mismatch", what="host", recorded=its.host, given=here)
    if asked.adopt is not None and record.chain.links and asked.adopt.root not in record.chain.roots:
        given, recorded = asked.adopt.root, record.chain.roots[-1]
        return refusal("conflict", "identity_mismatch", what="conversation", recorded=recorded, given=given)
    return None


def _existing_refusal(asked: Request, record: Record) -> Refusal | None:
    """Creating what is there already is only allowed where nothing ever came of it, provably."""
    lease = record.lease
    if asked.expected_fence is not None:
        return None
    if record.chain.links or asked.adopt is not None or not lease.is_free:
        return refusal("conflict", "session_exists", session=asked.session_id)
    if lease.fence > 0 and lease.evidence is None:
        return refusal("ownership_unknown", "previous_exit_unverifiable", session=asked.session_id)
    return None


def _transcript_refusal(asked: Request, seen: Snapshot) -> Refusal | None:
    """Taking a conversation over needs what it says, read and decoded before anything is reserved."""
    if asked.adopt is None or seen.transcript == "ready":
        return None
    if seen.transcript == "missing":
        return refusal("identity_required", "record_missing")
    return refusal("identity_required", f"transcript_{seen.transcript}")


def _unreadable(record: UnreadableRecord) -> Refusal:
    return refusal("owner_reconciling", "record_unreadable", schema=record.newer, fault=record.fault)


def _superseded(asked: Request) -> Refusal:
    return refusal("ownership_unknown", "replay_superseded", operation=asked.operation_id)


def _malformed(fault: str) -> Refusal:
    return refusal("operation_invalid", "request_malformed", fault=fault)


def _account(home: AccountHome) -> str:
    return f"{home.variable}={home.path}"
