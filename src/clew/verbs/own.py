"""The lease of a process that is about to become an agent: `clew resume` owns the session in its own name.

Pid and start time stay the same through exec, so the agent in the user's terminal *is* the recorded owner, and its
death frees the session. All in one transaction: reserved at the next fence, this process committed as the owner, the
conversation proved by the id that it is about to resume. An interruption leaves either nobody or this process.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager, suppress

import msgspec
from blake3 import blake3

from clew.errors import Conflict, LeaseError
from clew.formats.protocol import Format
from clew.lease.lease import OwnerProcess
from clew.lease.record import AccountHome, BareRecord, Location, Record, open_record
from clew.lease.refusal import Refusal, refusal
from clew.lease.reserve import Request, Reserved, Snapshot, decide_reservation, reservation_fingerprint
from clew.lease.transitions import Proven, commit_process, finish_settlement, prove_owner, settle_live
from clew.lineage.edge import StrandId
from clew.lineage.link import Fence, Link, make_link_id
from clew.platform.faults import declare, fault
from clew.verbs import lineage_rows as rows
from clew.verbs.context import Context
from clew.verbs.journaling import settle_in_flight
from clew.verbs.leases import Leases, View, probe_of, refusal_of, told_here
from clew.verbs.place import base_of

BEFORE_OWNED = declare("resume.before-owned")
OWNED = declare("resume.owned")

BASE = "base"
"""How an account home is named where clew does not start the agent itself: its base folder."""


class Owned(msgspec.Struct, frozen=True):
    """This process owns a session: clew's id of it, the fence, and the token to carry in the environment."""

    session_id: StrandId
    fence: Fence
    token: str


def refuse_held(ctx: Context, form: Format, native_id: str) -> View | None:
    """Returns a session's record, judged, where there is one; raises LeaseError when anybody holds its lease."""
    if not ctx.stores.has_records:
        return None
    row = rows.find_strand(ctx, form, native_id)
    if row is None:
        return None
    leases = ctx.leases
    view = leases.judge(StrandId(row.id))
    refused = refusal_of(view, leases.here)
    if refused is not None:
        raise told_here(_with_session(refused, form, native_id), leases.here)
    return view


@contextmanager
def holding(ctx: Context, view: View | None) -> Generator[None]:
    """Keeps a session without an owner for the block, where clew knows it: nobody can take its lease meanwhile.

    Raises LeaseError (`checkpoint_stale`) when somebody did so since the view.
    """
    if view is None or view.row is None:
        yield
        return
    fence = view.lease.fence
    store = ctx.stores.records
    with store.transaction():
        try:
            store.expect_fence(view.session_id, fence)
        except Conflict as error:
            raise refusal("checkpoint_stale", "lease_moved", expected=fence).error() from error
        yield


def own_session(ctx: Context, form: Format, native_id: str, cwd: str) -> Owned:
    """Makes this process the owner of a session; raises LeaseError when somebody else is, or may be."""
    view = refuse_held(ctx, form, native_id)
    leases = ctx.leases
    fault(BEFORE_OWNED)
    token = leases.new_token()
    try:
        with leases.transaction():
            if view is None:
                _begin_strand(ctx, form, native_id)
                view = leases.view(rows.strand_id_of(form.name, native_id))
            elif view.thread is not None and leases.store.thread(view.thread) is None:
                # Damage that is mended here: the strand names its thread.
                leases.store.put_thread(view.thread, b"{}", expected=None, now=ctx.clock.now())
            fence = _take(ctx, form, native_id, cwd, view, token)
    except LeaseError as error:
        raise told_here(error, leases.here) from error
    fault(OWNED)
    return Owned(view.session_id, fence, token)


def disown(ctx: Context, owned: Owned, why: str) -> None:
    """Gives a session back that this process could not become the agent of."""
    leases = ctx.leases
    leases.judge(owned.session_id)
    with suppress(LeaseError), leases.change(owned.session_id, owned.fence) as change:
        released = settle_live(change.record, change.standing, "exit_proven", why)
        standing = msgspec.structs.replace(change.standing, fence=released.lease.fence)
        change.record = finish_settlement(released, standing, released.lease.settlement_retry or "")


def location_here(leases: Leases, cwd: str) -> Location:
    """Returns a folder of this host as a location."""
    return Location(leases.here.host, cwd or "/", "folder")


def account_of(ctx: Context, form: Format) -> AccountHome:
    """Returns which of the agent's homes its sessions are looked for in."""
    return AccountHome(BASE, str(base_of(form, ctx.home)))


def _begin_strand(ctx: Context, form: Format, native_id: str) -> None:
    before = rows.find_thread(ctx, form, native_id)
    after, _ = rows.with_session(before, form, native_id, "adopted", ctx.now_ms())
    rows.save_thread(ctx, before, after)


def _take(ctx: Context, form: Format, native_id: str, cwd: str, view: View, token: str) -> Fence:
    """Reserves, commits and proves in one step; inside a transaction."""
    leases, now = ctx.leases, ctx.now_ms()
    view = msgspec.structs.replace(leases.view(view.session_id), probed=view.probed)
    record = _prepared(ctx, form, cwd, view)
    asked = request_of(ctx, form, record, leases.new_operation())
    probed = probe_of(view)
    key = f"{asked.caller}\0{asked.operation_id}"
    row, _ = leases.operation(key)
    leases.store.drop_operations(now, ("succeeded", "failed", "unknown"))
    counts = leases.store.count_operations(asked.caller)
    seen = Snapshot(
        record=record,
        row=row,
        here=leases.here,
        now=now,
        reconciled=view.reconciled,
        probe=probed.subject,
        probed_fence=probed.fence,
        caller_rows=counts.caller,
        all_rows=counts.total,
        fence_floor=leases.floor,
    )
    answer = decide_reservation(asked, seen, token)
    if isinstance(answer, Refusal):
        raise answer.error()
    assert isinstance(answer, Reserved), "a new operation is no replay"
    proven = _prove(leases, form, native_id, answer)
    _write(leases, view, proven)
    done = msgspec.structs.replace(answer.row, state="succeeded", session_id=record.session_id)
    leases.put_operation(done, None)
    return proven.record.lease.fence


def _prepared(ctx: Context, form: Format, cwd: str, view: View) -> Record:
    """Returns the record to be reserved: as it is, or the strand opened in this place."""
    stored = view.stored
    if isinstance(stored, Record):
        return stored
    assert isinstance(stored, BareRecord), "an unreadable record was refused before"
    return open_record(stored, location_here(ctx.leases, cwd), account_of(ctx, form), ctx.now_ms())


def request_of(ctx: Context, form: Format, record: Record, operation_id: str) -> Request:
    """Returns the call to reserve a session for its agent here, whatever the folder: the user named it."""
    here = ctx.leases.here.host
    asked = Request(
        caller=f"resume-{record.session_id}",
        operation_id=operation_id,
        fingerprint="",
        session_id=record.session_id,
        expected_fence=record.lease.fence,
        location=msgspec.structs.replace(record.location, host=here),
        namespace=record.namespace,
        account_home=account_of(ctx, form),
        independent=True,
    )
    return msgspec.structs.replace(asked, fingerprint=reservation_fingerprint(asked))


def _prove(leases: Leases, form: Format, native_id: str, answer: Reserved) -> Proven:
    reserved, now = answer.record, leases.now_ms()
    fence, here = reserved.lease.fence, leases.here
    standing = msgspec.structs.replace(leases.standing(View(reserved.session_id, None, None, True), fence), now=now)
    process = OwnerProcess(here.host, here.pid, answer.token, here.boot, here.start_ticks)
    committed = commit_process(reserved, standing, process)
    handle = rows.handle_of(form, native_id)
    link = Link(
        link_id=make_link_id(handle, fence, committed.chain.link_ids),
        handle=handle,
        origin="resumed",
        minted_at_fence=fence,
        observed_at=now,
    )
    proven = prove_owner(committed, standing, link, archive_id(reserved.session_id, fence))
    retry = proven.record.lease.settlement_retry
    if retry is None:
        return proven
    # Whatever the owner before had handed over is in doubt; nobody drives this one who could compare.
    return msgspec.structs.replace(proven, record=finish_settlement(proven.record, standing, retry))


def _write(leases: Leases, view: View, proven: Proven) -> None:
    record = proven.record
    settled = view.lease.settlement_retry is not None
    leases.put(view, record)
    leases.put_archive(view, proven)
    if settled:
        settle_in_flight(leases, record)


def archive_id(session_id: StrandId, fence: Fence) -> StrandId:
    """Returns the id of the strand that keeps a chain which was full when a session was opened at this fence."""
    return StrandId("a" + blake3(f"clew-archive-v1\x00{session_id}\x00{fence}".encode()).hexdigest()[:23])


def _with_session(refused: Refusal, form: Format, native_id: str) -> LeaseError:
    error = refused.error()
    error.concerns.setdefault("session", native_id)
    error.concerns.setdefault("agent", form.name)
    return error


__all__ = ["Owned", "archive_id", "disown", "own_session", "refusal", "refuse_held"]
