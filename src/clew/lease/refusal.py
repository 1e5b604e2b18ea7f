"""Every refusal of a lease, an operation or a journal: its code, its reason, and what the user is told.

Promises: each known (code, reason) has wordings that name the missing evidence and the act that supplies it; the first
wording whose facts are all known is used, and the last one needs none. A code that is not in the table is a defect and
rises: nothing unknown is ever dressed up as a refusal. Facts that name things (session, pid, host, fence, ...) travel
with the refusal, for the JSON form.
"""

from __future__ import annotations

from string import Formatter
from typing import Final

import msgspec

from clew.errors import LeaseError
from clew.lineage.refusal import HANDLE_CODES, HINTS

Fact = str | int


class Refusal(msgspec.Struct, frozen=True):
    """One refusal as a value. `facts` name what it concerns, in a fixed order."""

    code: str
    reason: str = ""
    facts: tuple[tuple[str, Fact], ...] = ()

    @property
    def message(self) -> str:
        """What is the matter, in a sentence."""
        return _word(self)[0]

    @property
    def hint(self) -> str:
        """What the user can do."""
        return _word(self)[1]

    def error(self) -> LeaseError:
        """Returns the error that says this, ready to be raised."""
        facts: dict[str, object] = dict(self.facts)
        return LeaseError(self.message, code=self.code, hint=self.hint, reason=self.reason or None, **facts)


Wordings = tuple[tuple[str, str], ...]
"""Message and act, the most exact first; {names} are facts."""

TABLE: Final[dict[tuple[str, str], Wordings]] = {
    ("unsupported", "host_unsupported"): (
        ("{agent} cannot be driven here: {detail}", "Use another agent, or another machine."),
        ("{agent} cannot be driven here", "Use another agent, or another machine."),
        ("this agent cannot be driven here", "Use another agent, or another machine."),
    ),
    ("unsupported", "host_disabled"): (
        ("driving {agent} is switched off here: {detail}", "Switch it on, or use another agent."),
        ("driving {agent} is switched off here", "Switch it on, or use another agent."),
        ("driving this agent is switched off here", "Switch it on, or use another agent."),
    ),
    ("checkpoint_stale", "fence_stale"): (
        (
            "the session is at fence {fence} now, this call saw {expected}",
            "Somebody took it over meanwhile; reload the session and try again.",
        ),
        (
            "the session moved on since this call looked at it",
            "Somebody took it over meanwhile; reload the session and try again.",
        ),
    ),
    ("checkpoint_stale", "lease_moved"): (
        (
            "the session's owner changed while this was under way (fence {fence})",
            "Reload the session and try again.",
        ),
        ("the session's owner changed while this was under way", "Reload the session and try again."),
    ),
    ("checkpoint_stale", "record_missing"): (
        ("session {session} is not here any more", "Reload; start it anew without a fence if you want it again."),
        ("the session is not here any more", "Reload; start it anew without a fence if you want it again."),
    ),
    ("conflict", "owner_alive"): (
        (
            "process {pid} on host {host} has this session open",
            "Go on there, or quit that process and try again.",
        ),
        ("the session is open elsewhere", "Go on there, or quit it there and try again."),
    ),
    ("conflict", "identity_mismatch"): (
        (
            "the session belongs to another {what} ({recorded}, not {given})",
            "Open it where it belongs, or fork it into a new session: `clew convert SESSION --to AGENT --new`.",
        ),
        (
            "the session belongs to another place, agent or account",
            "Open it where it belongs, or fork it into a new session: `clew convert SESSION --to AGENT --new`.",
        ),
    ),
    ("conflict", "session_exists"): (
        ("session {session} exists already", "Open it with the fence it shows, or start a new session."),
        ("the session exists already", "Open it with the fence it shows, or start a new session."),
    ),
    ("conflict", "conversation_held_elsewhere"): (
        (
            "this conversation is already kept as session {other}",
            "Open that session, or fork the conversation into a new one.",
        ),
        (
            "another session already keeps this conversation",
            "Open that session, or fork the conversation into a new one.",
        ),
    ),
    ("conflict", "claim_conflicted"): (
        ("two owners were recorded for this session", "Start a new session from a capture of it."),
    ),
    ("ownership_unknown", "owner_unproven"): (
        (
            "cannot prove that process {pid} on host {host}, the previous owner, has exited",
            "Quit it and reopen; from another machine, `clew release --declare-gone {host}` if that one is gone.",
        ),
        (
            "cannot tell whether an agent was started before the stop",
            "Make sure that no agent has this session open, then release it and reopen.",
        ),
    ),
    ("ownership_unknown", "no_live_owner"): (
        (
            "the agent has exited and its last messages are not settled ({settlement})",
            "Reopen to finish settling.",
        ),
        ("no agent has this session open", "Attach it first."),
    ),
    ("ownership_unknown", "record_missing"): (
        (
            "operation {operation} succeeded, but its session is not here any more",
            "It is not run again; look for the session, or start a new one.",
        ),
        ("the session of this operation is not here any more", "Look for it, or start a new one."),
    ),
    ("ownership_unknown", "replay_superseded"): (
        (
            "the reservation of operation {operation} is gone: another one took its place",
            "Reload the session and start a new operation.",
        ),
        (
            "the reservation of this operation is gone: another one took its place",
            "Reload the session and start a new operation.",
        ),
    ),
    ("ownership_unknown", "spawn_identity_mismatch"): (
        (
            "process {pid} does not carry the token that was reserved for this session",
            "It is not this session's agent; quit it and attach again.",
        ),
        (
            "the agent that answered is not the one that was started",
            "Quit it and attach again.",
        ),
    ),
    ("ownership_unknown", "previous_exit_unverifiable"): (
        (
            "the last attempt to open session {session} left no proof that its agent has exited",
            "Make sure that no agent has it open, then open it with its fence instead of creating it.",
        ),
        (
            "the last attempt left no proof that its agent has exited",
            "Make sure that no agent has it open, then open it with its fence instead of creating it.",
        ),
    ),
    ("owner_reconciling", "host_reconciling"): (
        ("the owner of this session is still being looked for", "Wait a moment and try again."),
    ),
    ("owner_reconciling", "record_unreadable"): (
        (
            "the record of this session was written by a newer clew (schema {schema})",
            "Update clew; nothing was changed.",
        ),
        (
            "the record of this session cannot be read: {fault}",
            "It is kept as it is; update clew, or restore a backup.",
        ),
        ("the record of this session cannot be read", "It is kept as it is; update clew, or restore a backup."),
    ),
    ("operation_invalid", "id_malformed"): (
        ("{operation!r} is no operation id", "Make a new id: 13 digits of time in ms, -, 32 hex digits."),
        ("this is no operation id", "Make a new id: 13 digits of time in ms, -, 32 hex digits."),
    ),
    ("operation_invalid", "id_future"): (
        ("operation {operation} is dated in the future", "Set the clock right and make a new id."),
        ("the operation is dated in the future", "Set the clock right and make a new id."),
    ),
    ("operation_invalid", "request_malformed"): (
        ("the call is malformed: {fault}", "Correct it and make a new operation."),
        ("the call is malformed", "Correct it and make a new operation."),
    ),
    ("operation_conflict", "fingerprint_mismatch"): (
        (
            "the call is not what its fingerprint says it is",
            "Nothing was recorded; compute the fingerprint of exactly this call and repeat it.",
        ),
    ),
    ("operation_conflict", "operation_id_reused"): (
        ("operation {operation} was another call", "Make a new id for each call."),
        ("this operation id was another call's", "Make a new id for each call."),
    ),
    ("operation_conflict", "handoff_in_flight"): (
        (
            "process {pid} on host {host} is just opening this session",
            "Wait until it has, or quit it and try again.",
        ),
        ("another operation is just opening this session", "Wait until it has, and try again."),
    ),
    ("operation_expired", ""): (
        (
            "operation {operation} is older than a day and nothing is known of it",
            "See what the session holds, then make a new operation.",
        ),
        (
            "the operation is older than a day and nothing is known of it",
            "See what the session holds, then make a new operation.",
        ),
    ),
    ("operation_capacity", ""): (
        (
            "{count} operations are remembered already",
            "Wait until the oldest are a day old; none is forgotten early.",
        ),
        ("too many operations are remembered", "Wait until the oldest are a day old; none is forgotten early."),
    ),
    ("operation_unknown", "outcome_unknown"): (
        (
            "nobody knows whether operation {operation} took effect",
            "See what the session holds; repeat it as a new operation only if it did not.",
        ),
        (
            "nobody knows whether this operation took effect",
            "See what the session holds; repeat it as a new operation only if it did not.",
        ),
    ),
    ("operation_unknown", "result_lost"): (
        ("operation {operation} was done, its answer is lost", "See what the session holds."),
        ("the operation was done, its answer is lost", "See what the session holds."),
    ),
    ("identity_required", "record_missing"): (
        ("there is no conversation to take over", "Choose another session, or start a new one."),
    ),
    ("identity_required", "transcript_not_found"): (
        ("the conversation's file is not there: {path}", "Choose another session, or start a new one."),
        ("the conversation's file is not there", "Choose another session, or start a new one."),
    ),
    ("identity_required", "transcript_unreadable"): (
        (
            "the conversation at {path} cannot be read: {fault}",
            "`clew check` says what is wrong with it; choose another session, or start a new one.",
        ),
        (
            "the conversation's file cannot be read",
            "`clew check` says what is wrong with it; choose another session, or start a new one.",
        ),
    ),
    ("journal_unreadable", "corrupt"): (
        ("the journal is damaged from row {row} on", "Its sound part is kept; attach again to rebuild the rest."),
        ("the journal is damaged", "Its sound part is kept; attach again to rebuild the rest."),
    ),
    ("journal_unreadable", "unavailable"): (
        ("the journal cannot be opened: {fault}", "Try again; nothing was sent."),
        ("the journal cannot be opened", "Try again; nothing was sent."),
    ),
    ("journal_unreadable", "written_by_newer"): (
        ("the journal was written by a newer clew (schema {schema})", "Update clew; nothing was changed."),
        ("the journal was written by a newer clew", "Update clew; nothing was changed."),
    ),
    ("item_revision_stale", ""): (("the prompt has changed since it was shown", "Look at it again."),),
    ("already_resolved", ""): (
        ("the prompt was answered already, by {winner}", "Nothing is left to do."),
        ("the prompt was answered already", "Nothing is left to do."),
    ),
    **{
        (code, ""): (("{fault}", HINTS[code]), ("the agent's handle does not fit the session", HINTS[code]))
        for code in HANDLE_CODES
    },
}


def refusal(code: str, reason: str = "", **facts: Fact | None) -> Refusal:
    """Returns the refusal of a known code and reason; facts that are None are left out.

    Raises LookupError when the pair is not in the table: that is a defect.
    """
    if (code, reason) not in TABLE:
        raise LookupError(f"no refusal {code}/{reason}")
    return Refusal(code, reason, tuple((k, v) for k, v in facts.items() if v is not None))


def known_refusal(error: BaseException) -> Refusal:
    """Returns the refusal that an error of the store or of a transition stands for; anything else is raised again."""
    if not isinstance(error, LeaseError):
        raise error
    reason = error.concerns.get("reason") or ""
    if not isinstance(reason, str) or (error.code, reason) not in TABLE:
        raise error
    facts = [(k, v) for k, v in error.concerns.items() if k != "reason" and isinstance(v, str | int)]
    if error.code in HANDLE_CODES and "fault" not in error.concerns:
        facts.append(("fault", error.message))
    return Refusal(error.code, reason, tuple(facts))


def placeholders(text: str) -> frozenset[str]:
    """Returns the names of the facts that a wording needs."""
    return frozenset(name for _, name, _, _ in Formatter().parse(text) if name)


def _word(told: Refusal) -> tuple[str, str]:
    facts = dict(told.facts)
    wordings = TABLE[told.code, told.reason]
    for message, act in wordings:
        if (placeholders(message) | placeholders(act)) <= facts.keys():
            return message.format(**facts), act.format(**facts)
    raise AssertionError(f"the last wording of {told.code}/{told.reason} needs no facts")
