"""`clew release`: gives a session free that nobody holds any more, on proof; or on a person's word, said twice.

Promises: a living owner is never released, and never stopped where clew did not drive it; what cannot be proved here
is only released by declaring its host gone, which is recorded as a declaration, with who and when.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from clew.errors import NotFoundError, Refused, UsageError
from clew.formats.protocol import Format
from clew.lease.declare import WARNING, declare_gone
from clew.lease.record import Record
from clew.lease.transitions import Standing, release_reservation
from clew.lineage.edge import StrandId
from clew.platform.faults import declare, fault
from clew.verbs import lineage_rows as rows
from clew.verbs.context import Context
from clew.verbs.leases import View, refusal_of, told_here
from clew.verbs.recovering import recover
from clew.verbs.refer import open_session

DECLARE_BEGUN = declare("release.declare-begun")
DECLARED = declare("release.declared")

Act = Literal["free", "exited", "stop", "drop_reservation", "declare_gone"]


class Plan(msgspec.Struct, frozen=True):
    """What releasing would do. `question` is what a person is asked before it; empty where proof is enough."""

    act: Act
    agent: str
    session_id: str
    strand: str
    fence: int
    host: str
    pid: int | None = None
    question: str = ""


class Released(msgspec.Struct, frozen=True):
    """What releasing came to. `warning` says what may still be running."""

    act: Act
    agent: str
    session_id: str
    fence: int
    evidence: str
    warning: str = ""


def plan_release(ctx: Context, ref: str, *, gone: str | None = None) -> Plan:
    """Returns what releasing a session would do; raises LeaseError where it may not be released.

    Judging a dead owner already evicts it: that is no act of a person.
    """
    form, native_id = find_named(ctx, ref)
    view = _view(ctx, form, native_id)
    record = view.record
    here = ctx.leases.here
    if record is None or (gone is None and record.lease.is_free):
        return _plan(view, form, native_id, "free" if view.kind != "evicted" else "exited", here.host)
    if gone is not None:
        return _plan_declaration(view, record, form, native_id, gone, here.host)
    if record.location.host == here.host and record.lease.stage == "recovering" and record.lease.owner is not None:
        probed = view.probed
        if probed is not None and probed.subject.proves == "life" and not record.lease.independent:
            return _plan(view, form, native_id, "stop", here.host, _STOP)
    if record.location.host == here.host and record.lease.owner is None and view.kind != "in_flight":
        return _plan(view, form, native_id, "drop_reservation", here.host, _DROP)
    refused = refusal_of(view, here)
    assert refused is not None, "what is not free is refused"
    raise told_here(refused.error(), here)


_STOP = "The agent (process {pid}) runs on, but the clew process that drove it is dead. Stop it?"
_DROP = "An agent may have been started before the stop. Is it certain that none has this session open?"
_DECLARE = "Nobody can prove from here what runs on host {host}. Is that host gone for good?"


def release(ctx: Context, plan: Plan, *, by: str) -> Released:
    """Does what was planned, if the session is still at that fence; `by` is the person who answers for it."""
    if plan.act in ("free", "exited"):
        return Released(plan.act, plan.agent, plan.session_id, plan.fence, _evidence(ctx, plan))
    leases, session_id = ctx.leases, StrandId(plan.strand)
    view = leases.judge(session_id)
    if plan.act == "stop":
        if recover(leases, view) != "stopped":
            raise Refused(
                f"process {plan.pid} could not be stopped",
                code="ownership_unknown",
                hint="Quit it yourself, then try again.",
                session=plan.session_id,
                pid=plan.pid,
            )
        leases.judge(session_id)
    elif plan.act == "drop_reservation":
        with leases.change(session_id, view.lease.fence) as change:
            change.record = release_reservation(change.record, change.standing)
    else:
        _declare(ctx, plan, view, by)
    after = leases.view(session_id)
    warning = WARNING.format(host=plan.host) if plan.act == "declare_gone" else ""
    return Released(plan.act, plan.agent, plan.session_id, after.lease.fence, _evidence(ctx, plan), warning)


def find_named(ctx: Context, ref: str) -> tuple[Format, str]:
    """Returns the format and native id of the session that `ref` means; it need not be readable any more."""
    opened = open_session(ctx, ref)
    return opened.format, opened.session.id


def _view(ctx: Context, form: Format, native_id: str) -> View:
    row = rows.find_strand(ctx, form, native_id) if ctx.stores.has_records else None
    if row is None:
        raise NotFoundError(
            f"nobody ever opened session {native_id} through clew",
            hint="There is nothing to release; `clew ps` shows what is open.",
            session=native_id,
            agent=form.name,
        )
    view = ctx.leases.judge(StrandId(row.id))
    refused = refusal_of(view, ctx.leases.here) if view.record is None else None
    if refused is not None:
        raise refused.error()
    return view


def _plan_declaration(view: View, record: Record, form: Format, native_id: str, gone: str, here: str) -> Plan:
    if record.location.host == here:
        raise UsageError(
            f"the session belongs to this host ({here}), whose processes can be looked at",
            hint="Leave --declare-gone out.",
            session=native_id,
        )
    if record.location.host != gone:
        raise UsageError(
            f"the session belongs to host {record.location.host}, not {gone}",
            hint=f"--declare-gone {record.location.host}, if that one is gone.",
            session=native_id,
        )
    return _plan(view, form, native_id, "declare_gone", gone, _DECLARE)


def _plan(view: View, form: Format, native_id: str, act: Act, host: str, question: str = "") -> Plan:
    owner = view.lease.owner
    pid = None if owner is None else owner.pid
    told = question.format(pid=pid, host=host)
    return Plan(act, form.name, native_id, str(view.session_id), view.lease.fence, host, pid, told)


def _declare(ctx: Context, plan: Plan, view: View, by: str) -> None:
    leases = ctx.leases
    fault(DECLARE_BEGUN)
    with leases.change(view.session_id, view.lease.fence) as change:
        standing = Standing(view.lease.fence, reconciled=False, now=leases.now_ms())
        change.record = declare_gone(change.record, standing, gone=plan.host, here=leases.here.host, by=by)
    fault(DECLARED)


def _evidence(ctx: Context, plan: Plan) -> str:
    evidence = ctx.leases.view(StrandId(plan.strand)).lease.evidence
    if evidence is None:
        return ""
    return f"{evidence.kind} by {evidence.by}" if evidence.by else str(evidence.kind)
