"""The operation ledger: every effectful call has an id, and the outcome of each is remembered.

Promises: a row that exists answers, whatever its age; an unseen id that is old or dated in the future is never
permission to act; rows are not dropped early to make room; of two calls that both read a pending row one runs. A
fingerprint is SHA-256 over canonical JSON of {method, session id, fields}: what decides *which* effect, not how it is
carried out.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from clew.errors import LeaseError
from clew.lease.refusal import Refusal, refusal
from clew.lineage.edge import StrandId
from clew.lineage.link import Fence
from clew.lineage.stored import Extra, Malformed, load_open, store_open

MINUTE_MS: Final = 60_000
DAY_MS: Final = 24 * 60 * MINUTE_MS
FUTURE_MS: Final = 5 * MINUTE_MS
CALLER_LIMIT: Final = 512
TOTAL_LIMIT: Final = 4096

_LATEST_MS: Final = 10**13 - 1
_ID: Final = re.compile(r"([0-9]{13})-[0-9a-f]{32}\Z")

State = Literal["pending", "running", "succeeded", "failed", "unknown"]
"""`running` is a pending row that somebody has claimed; to everybody else it is pending."""


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One remembered operation. Times in ms.

    `caller` is empty for sends, which are keyed by their id alone. `fence` is the one a reservation was made at;
    `session_id` the session it is about; `code` and `message` tell why it failed.
    """

    caller: str
    operation_id: str
    fingerprint: str
    state: State
    recorded_at: int
    expires_at: int
    session_id: StrandId | None = None
    fence: Fence | None = None
    code: str | None = None
    message: str | None = None
    extra: Extra = ()

    @property
    def key(self) -> str:
        """By what the row is found."""
        return ledger_key(self.caller, self.operation_id)

    @property
    def is_settled(self) -> bool:
        """Whether there is an outcome to answer with."""
        return self.state in ("succeeded", "failed", "unknown")


class Admit(msgspec.Struct, frozen=True):
    """The operation is new: here is its row, to be written in the transaction of the effect."""

    row: Row


class Replay(msgspec.Struct, frozen=True):
    """The operation is known: answer with this row."""

    row: Row


def make_operation_id(now: int, random: bytes) -> str:
    """Returns an operation id of a time in ms and 16 random bytes; of a wild clock, the nearest that it can say."""
    assert len(random) == 16, "an operation id takes 16 random bytes"
    return f"{min(max(now, 0), _LATEST_MS):013d}-{random.hex()}"


def operation_time(operation_id: str) -> int | None:
    """Returns the time in an operation id, in ms; None when it is no operation id."""
    matched = _ID.match(operation_id)
    return None if matched is None else int(matched[1])


def ledger_key(caller: str, operation_id: str) -> str:
    """Returns the key of a row: caller, NUL, id; the id alone for sends (no caller)."""
    return f"{caller}\0{operation_id}" if caller else operation_id


def fingerprint(method: str, session_id: str | None, fields: Mapping[str, object]) -> str:
    """Returns the fingerprint of a call, 64 hex digits.

    `fields` hold JSON values; members that are `msgspec.UNSET` are absent and dropped at every depth, null is kept.
    """
    told = {"method": method, "session_id": session_id, "fields": _canonical(fields)}
    text = json.dumps(told, sort_keys=True, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def admit(
    row: Row | None,
    *,
    caller: str,
    operation_id: str,
    print_: str,
    now: int,
    caller_rows: int,
    all_rows: int,
    session_id: StrandId | None = None,
) -> Admit | Replay | Refusal:
    """Returns whether an operation is new, known, or refused. `row` is the row under its key, if there is one;
    `print_` its fingerprint; `caller_rows` and `all_rows` how many rows there are."""
    made_at = operation_time(operation_id)
    if made_at is None:
        return refusal("operation_invalid", "id_malformed", operation=operation_id[:80])
    if made_at > now + FUTURE_MS:
        return refusal("operation_invalid", "id_future", operation=operation_id)
    if row is not None:
        if row.fingerprint != print_:
            return refusal("operation_conflict", "operation_id_reused", operation=operation_id)
        return Replay(row)
    if made_at < now - DAY_MS:
        return refusal("operation_expired", operation=operation_id)
    if caller_rows >= CALLER_LIMIT or all_rows >= TOTAL_LIMIT:
        return refusal("operation_capacity", count=all_rows if all_rows >= TOTAL_LIMIT else caller_rows)
    return Admit(
        Row(
            caller=caller,
            operation_id=operation_id,
            fingerprint=print_,
            state="pending",
            recorded_at=now,
            expires_at=max(now, made_at) + DAY_MS + FUTURE_MS,
            session_id=session_id,
        )
    )


def may_drop(row: Row, now: int) -> bool:
    """Tells whether a row's time is over. A pending one stays: its outcome is not known yet."""
    return now > row.expires_at and row.is_settled


def claim(row: Row) -> Row | None:
    """Returns the row claimed for running its effect, or None when somebody else has it.

    The caller writes it by compare-and-swap: of two that read a pending row, one wins.
    """
    return msgspec.structs.replace(row, state="running") if row.state == "pending" else None


def succeed(row: Row, session_id: StrandId) -> Row:
    """Returns the row with its outcome: it succeeded, for this session. A settled row stays as it is."""
    return row if row.is_settled else msgspec.structs.replace(row, state="succeeded", session_id=session_id)


def fail(row: Row, code: str, message: str) -> Row:
    """Returns the row with its outcome: it failed. A settled row stays as it is."""
    return row if row.is_settled else msgspec.structs.replace(row, state="failed", code=code, message=message)


def settle_after_crash(row: Row, *, may_have_happened: bool) -> Row:
    """Returns the row of a process that is gone: unknown when its effect may have happened, else pending again."""
    if row.is_settled:
        return row
    return msgspec.structs.replace(row, state="unknown" if may_have_happened else "pending")


def replayed_error(row: Row) -> LeaseError | None:
    """Returns the recorded answer of a row that did not succeed, as the error it was; None for any other row."""
    if row.state == "unknown":
        return refusal("operation_unknown", "outcome_unknown", operation=row.operation_id).error()
    if row.state == "failed":
        hint = "This is the recorded outcome; make a new operation to try again."
        return LeaseError(row.message or "", code=row.code or "", hint=hint, operation=row.operation_id)
    return None


def store_row(row: Row) -> bytes:
    """Returns the stored form of a row; unknown members are kept."""
    return store_open(row)


def load_row(data: bytes) -> Row:
    """Returns the row of a stored form; raises Malformed."""
    row = load_open(data, Row, "operation")
    if operation_time(row.operation_id) is None:
        raise Malformed(f"operation: {row.operation_id[:80]!r} is no operation id")
    return row


def _canonical(value: object) -> object:
    if isinstance(value, Mapping):
        members: Mapping[str, object] = value  # pyright: ignore[reportUnknownVariableType]
        return {name: _canonical(item) for name, item in members.items() if item is not msgspec.UNSET}
    if isinstance(value, list | tuple):
        items: list[object] | tuple[object, ...] = value  # pyright: ignore[reportUnknownVariableType]
        return [_canonical(item) for item in items]
    return value
