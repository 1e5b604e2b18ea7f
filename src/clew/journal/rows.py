"""Rows of a journal: their kinds, their bodies, their stored form, and the cursor of a reader.

A journal is, per session, a list of rows {epoch, sequence, kind, time, fence, body}: append-only, without gaps from 1
within an epoch; row 1 of an epoch is its `epoch` row with a reason. Rolling an epoch deletes the old rows in the
transaction that publishes the new one. Stored form of a row: one JSON object with `schema`, the version of the form;
texts may hold NUL (JSON escapes it). Rows are never rewritten, so unknown members need no keeping: the bytes stay.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Annotated, Final, Literal

import msgspec

SCHEMA: Final = 1

Number = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
Positive = Annotated[int, msgspec.Meta(ge=1, le=2**53)]
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=1024)]

Kind = Literal["epoch", "submission", "dispatch", "item", "lifecycle", "checkpoint"]
SubmissionState = Literal["queued", "pending", "accepted", "rejected", "unknown"]

PENDING_HANDLE: Final = "pending"
"""Stands in a journal's identity while its conversation has no handle yet."""


class Malformed(ValueError):
    """Stored bytes are no row; the message says why."""


class Newer(Malformed):
    """The row was written by a newer clew: `schema` is its version."""

    def __init__(self, schema: int) -> None:
        super().__init__(f"row of schema {schema}, this clew reads {SCHEMA}")
        self.schema = schema


class JournalIdentity(msgspec.Struct, frozen=True):
    """Whose journal it is. `handle` is the key of the chain head's handle, else of the one the caller gave, else
    PENDING_HANDLE."""

    session: Name
    workspace: Name
    host: Name
    agent: Name
    handle: Name = PENDING_HANDLE


class Cursor(msgspec.Struct, frozen=True, order=True):
    """A reader's place: it has everything up to and with this row."""

    epoch: Positive
    sequence: Number


# Rows come by the hundred thousand and hold no cycles: the collector need not walk them.
# --- bodies ------------------------------------------------------------------------------------------------------


class Epoch(msgspec.Struct, frozen=True, tag="epoch", tag_field="kind", gc=False):
    """Opens an epoch: why it began."""

    reason: Name


class Submission(msgspec.Struct, frozen=True, tag="submission", tag_field="kind", gc=False):
    """What the user sent, durable before anything is handed over.

    `fingerprint` is of the payload; `plain_text`: the body is one non-blank text block, the only sort that agents'
    histories can be compared with; `body` is the payload as it will be handed over.
    """

    client_id: Name
    fingerprint: Name
    body: bytes
    plain_text: bool


class Dispatch(msgspec.Struct, frozen=True, tag="dispatch", tag_field="kind", gc=False):
    """What became of a submission. `item_key` and `receipt` come with `accepted`; `recovered`: settled after a stop."""

    client_id: Name
    state: SubmissionState
    reason: str | None = None
    recovered: bool = False
    item_key: Name | None = None
    receipt: str | None = None


class Item(msgspec.Struct, frozen=True, tag="item", tag_field="kind", gc=False):
    """One item of the conversation. `item_key` is derived from its identity: an agent's raw id renumbers."""

    item_key: Name
    body: bytes
    client_id: Name | None = None
    fingerprint: Name | None = None


class Lifecycle(msgspec.Struct, frozen=True, tag="lifecycle", tag_field="kind", gc=False):
    """Something that happened to the session itself: an agent started, exited, the journal was repaired."""

    event: Name
    detail: str = ""


class Checkpoint(msgspec.Struct, frozen=True, tag="checkpoint", tag_field="kind", gc=False):
    """Up to which item of the agent's own history the journal has everything."""

    item_key: Name | None


Body = Epoch | Submission | Dispatch | Item | Lifecycle | Checkpoint


class Row(msgspec.Struct, frozen=True, gc=False):
    """One row. `time` in ms; `fence` is the one it was written at."""

    epoch: Positive
    sequence: Positive
    time: int
    fence: Number
    body: Body

    @property
    def kind(self) -> Kind:
        """The row's kind."""
        return _KINDS[type(self.body)]

    @property
    def cursor(self) -> Cursor:
        """The row's place."""
        return Cursor(self.epoch, self.sequence)


_KINDS: Final[dict[type, Kind]] = {
    Epoch: "epoch",
    Submission: "submission",
    Dispatch: "dispatch",
    Item: "item",
    Lifecycle: "lifecycle",
    Checkpoint: "checkpoint",
}


# --- stored form -------------------------------------------------------------------------------------------------


class _Stored(msgspec.Struct, gc=False):
    schema: int
    epoch: Positive
    sequence: Positive
    time: int
    fence: Number
    body: Body


class _Version(msgspec.Struct):
    schema: int


_STORED: Final = msgspec.json.Decoder(_Stored)
_VERSION: Final = msgspec.json.Decoder(_Version)


def store_row(row: Row) -> bytes:
    """Returns the stored form of a row; bytes in it are base64."""
    return msgspec.json.encode(
        {
            "schema": SCHEMA,
            "epoch": row.epoch,
            "sequence": row.sequence,
            "time": row.time,
            "fence": row.fence,
            "body": row.body,
        }
    )


def load_row(data: bytes) -> Row:
    """Returns the row of a stored form; raises Newer for one of a newer schema, Malformed for anything else."""
    try:
        stored = _STORED.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        newer = _version(data)
        raise (Malformed(str(error)) if newer is None or newer <= SCHEMA else Newer(newer)) from error
    if stored.schema > SCHEMA:
        raise Newer(stored.schema)
    if stored.schema != SCHEMA:
        raise Malformed(f"row of schema {stored.schema}")
    return Row(stored.epoch, stored.sequence, stored.time, stored.fence, stored.body)


def _version(data: bytes) -> int | None:
    try:
        return _VERSION.decode(data).schema
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


# --- growing and reading -----------------------------------------------------------------------------------------


def begin(epoch: int, reason: str, time: int, fence: int) -> Row:
    """Returns the first row of an epoch."""
    return Row(epoch, 1, time, fence, Epoch(reason))


def next_rows(last: Cursor, bodies: Iterable[Body], time: int, fence: int) -> tuple[Row, ...]:
    """Returns rows with these bodies, numbered on from `last`."""
    return tuple(Row(last.epoch, number, time, fence, body) for number, body in enumerate(bodies, last.sequence + 1))


def rows_after(rows: Sequence[Row], cursor: Cursor | None) -> tuple[Row, ...] | None:
    """Returns what a reader at `cursor` has not seen; None means "reload": its epoch is gone, or it is ahead."""
    if not rows or cursor is None:
        return tuple(rows)
    first, last = rows[0], rows[-1]
    if cursor.epoch != last.epoch or cursor > last.cursor or cursor.sequence + 1 < first.sequence:
        return None
    return tuple(row for row in rows if row.sequence > cursor.sequence)


def text_fingerprint(text: str) -> str:
    """Returns the payload fingerprint of one text block, 64 hex digits."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def is_plain_text(blocks: Sequence[str | None]) -> bool:
    """Tells whether a payload is one non-blank text block; blocks that are no text are None."""
    return len(blocks) == 1 and blocks[0] is not None and bool(blocks[0].strip())
