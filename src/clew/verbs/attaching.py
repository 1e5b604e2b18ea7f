"""What `clew attach` would decide, and why: the decision taken with real probes, and nothing written.

The plan goes through the same checks as the attach itself; a dead owner is not even evicted. Which agents can be
driven is the registry's word (`ADAPTERS`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import msgspec

from clew.formats.protocol import Format
from clew.formats.registry import get_format
from clew.host.protocol import Adapter, Unsupported
from clew.lease.acquire import Acquisition, Grant, Retry, decide_acquisition
from clew.lease.record import Record, UnreadableRecord
from clew.lease.refusal import Refusal, refusal
from clew.lease.reserve import identity_refusal
from clew.lineage.edge import StrandId
from clew.verbs import lineage_rows as rows
from clew.verbs.context import Context
from clew.verbs.leases import View, probe_of, refusal_of, told_here
from clew.verbs.own import request_of
from clew.verbs.refer import open_session

ADAPTERS: dict[str, Callable[[], Adapter]] = {}
"""From an agent's name to what makes its adapter; those of real agents register here when they are loaded."""


class AttachPlan(msgspec.Struct, frozen=True):
    """What an attach would come to.

    `decision`: granted (at `fence`), refused (with code, reason, message, hint), or unsupported: the lease would be
    granted, but no adapter drives this agent here. `owner_pid` and `evidence` are what was seen of the owner now.
    """

    decision: Literal["granted", "refused", "unsupported"]
    agent: str
    session_id: str
    strand: str
    fence_now: int
    fence: int | None = None
    steps: tuple[str, ...] = ()
    code: str = ""
    reason: str = ""
    message: str = ""
    hint: str = ""
    owner_pid: int | None = None
    evidence: str = ""


def plan_attach(ctx: Context, ref: str, *, in_agent: str | None = None) -> AttachPlan:
    """Returns what attaching a session would decide now; writes nothing."""
    opened = open_session(ctx, ref)
    form = get_format(in_agent) if in_agent else opened.format
    native_id = opened.session.id
    if form is not opened.format:
        view = rows.find_thread(ctx, opened.format, native_id)
        strand = rows.strand_of(view, opened.format, native_id)
        there = sorted(rows.ids_of(view, strand, form.name))
        if not there:
            return _refused_to_convert(form, native_id)
        native_id = there[-1]
    row = rows.find_strand(ctx, form, native_id) if ctx.stores.has_records else None
    if row is None:
        return _decided(ctx, form, native_id, View(rows.strand_id_of(form.name, native_id), None, None, True), None)
    leases = ctx.leases
    before = leases.view(StrandId(row.id))
    return _decided(ctx, form, native_id, leases.look(before), before)


def _refused_to_convert(form: Format, native_id: str) -> AttachPlan:
    return AttachPlan(
        "refused",
        form.name,
        native_id,
        "",
        0,
        code="not_found",
        message=f"the conversation of session {native_id} has no session in {form.title} yet",
        hint=f"`clew convert {native_id} --to {form.name}` makes one.",
    )


def _decided(ctx: Context, form: Format, native_id: str, seen: View, before: View | None) -> AttachPlan:
    stored = None if before is None else before.stored
    if isinstance(stored, UnreadableRecord):
        told = refusal_of(seen, ctx.leases.here)
        assert told is not None, "an unreadable record is refused"
        error = told.error()
        return AttachPlan(
            "refused",
            form.name,
            native_id,
            str(seen.session_id),
            _row_fence(seen),
            code=error.code,
            reason=told.reason,
            message=told.message,
            hint=told.hint,
        )
    was = before.record if before is not None else None
    owner = None if was is None else was.lease.owner
    probe = probe_of(seen).subject
    told_probe = probe.outcome + (
        f" ({', '.join(probe.fields) or probe.reason})" if probe.fields or probe.reason else ""
    )
    plan = AttachPlan(
        "granted",
        form.name,
        native_id,
        str(seen.session_id),
        0 if was is None else was.lease.fence,
        owner_pid=None if owner is None else owner.pid,
        evidence=told_probe if owner is not None else "",
    )
    return _decide(ctx, plan, seen, was)


def _row_fence(seen: View) -> int:
    return 0 if seen.row is None else seen.row.fence


def _decide(ctx: Context, plan: AttachPlan, seen: View, was: Record | None) -> AttachPlan:
    leases, record = ctx.leases, seen.record
    steps: list[str] = []
    if record is None:
        return _supported(plan, max(1, leases.floor), ("no record yet: one is made",))
    if seen.kind == "evicted" and was is not None:
        evidence = record.lease.evidence
        why = evidence.kind if evidence is not None else "nothing can drive it any more"
        steps.append(f"the owner before is released at fence {record.lease.fence}: {why}")
    stranded = seen.kind == "recovering" and probe_of(seen).subject.proves == "life" and not record.lease.independent
    if stranded:
        steps.append(f"process {plan.owner_pid}, which outlived its clew, is stopped")
        return _supported(plan, record.lease.next_fence + 1, tuple(steps))
    moved = was is not None and was.lease.fence != record.lease.fence
    asked = Acquisition(
        lease=record.lease,
        reconciled=True,
        expected_fence=record.lease.fence,
        operation_id=leases.new_operation(),
        probe=probe_of(seen).subject,
        record_host=record.location.host,
        here=leases.here,
    )
    answer = decide_acquisition(asked)
    if not isinstance(answer, Refusal):
        call = request_of(ctx, get_format(plan.agent), record, asked.operation_id)
        answer = identity_refusal(call, leases.here.host, record) or answer
    if isinstance(answer, Grant | Retry):
        return _supported(plan, answer.fence, tuple(steps))
    error = told_here(answer.error(), leases.here)
    return msgspec.structs.replace(
        plan,
        decision="refused",
        steps=tuple(steps) if moved else (),
        code=error.code,
        reason=answer.reason,
        message=error.message,
        hint=error.hint,
    )


def _supported(plan: AttachPlan, fence: int, steps: tuple[str, ...]) -> AttachPlan:
    granted = msgspec.structs.replace(plan, fence=fence, steps=(*steps, f"reserved at fence {fence}"))
    make = ADAPTERS.get(plan.agent)
    why = Unsupported("this clew has no driver for it") if make is None else make().unsupported()
    if why is None:
        return granted
    told = refusal("unsupported", why.reason, agent=plan.agent, detail=why.detail)
    return msgspec.structs.replace(
        granted,
        decision="unsupported",
        code=told.code,
        reason=told.reason,
        message=told.message,
        hint=f"`clew resume` opens it in your terminal. {told.hint}",
    )
