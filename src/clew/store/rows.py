"""How values become columns and columns values: times, hex digests, and texts that may be no UTF-8.

Times are whole microseconds since 1970-01-01 UTC. Digests, keys and source ids are their 32 bytes. Ids and
paths come from files and may hold what no database takes as text: they are stored as bytes, lone surrogates
included.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from clew.errors import Conflict
from clew.store.record_protocol import FENCE_FLOOR, FENCE_MOVED, STRAND_HELD, Place

EARLIEST = datetime.min.replace(tzinfo=UTC)
LATEST = datetime.max.replace(tzinfo=UTC)
"""The ends of the calendar. Nothing is written with such a time: one that is read so is damaged."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def make_micros(time: datetime) -> int:
    """Returns an aware time as microseconds since 1970."""
    assert time.tzinfo is not None, "times are aware"
    return (time - _EPOCH) // _MICROSECOND


def read_micros(micros: int) -> datetime:
    """Returns the time, in UTC, of so many microseconds since 1970; of what no calendar holds, the nearest it does."""
    try:
        return _EPOCH + micros * _MICROSECOND
    except OverflowError:
        return EARLIEST if micros < 0 else LATEST


def make_text(text: str) -> bytes:
    """Returns any str as bytes: UTF-8, with surrogates as their three bytes. `read_text` gives it back."""
    return text.encode("utf-8", "surrogatepass")


def read_text(data: bytes) -> str:
    """Returns the str that `make_text` was given; never fails."""
    try:
        return data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return data.decode("utf-8", "replace")


def make_conflict(what: str, name: str, expected: int | None, found: int | None) -> Conflict:
    """Returns the error of a compare-and-swap that lost."""
    return Conflict(
        f"{what} {name} is not what it was: expected revision {expected}, found {found}",
        hint="Another clew command changed it meanwhile; try again.",
        expected=expected,
        found=found,
    )


def make_fence_conflict(strand: str, expected: int, found: int | None) -> Conflict:
    """Returns the error of a write at a fence that is not the strand's."""
    there = "it is not there" if found is None else f"it is at {found}"
    return Conflict(
        f"strand {strand} is not at fence {expected}: {there}",
        code=FENCE_MOVED,
        hint="Somebody else owns the session now; look at it again.",
        strand=strand,
        expected=expected,
        found=found,
    )


def make_journal_conflict(name: str, expected: Place | None, found: Place | None) -> Conflict:
    """Returns the error of a write to a journal that ends elsewhere than its writer saw."""
    shown = ["nothing" if place is None else f"{place.epoch}:{place.sequence}" for place in (expected, found)]
    return Conflict(
        f"journal {name} does not end where it did: expected {shown[0]}, found {shown[1]}",
        hint="Another clew command wrote to it meanwhile; read it again.",
        journal=name,
        expected=shown[0],
        found=shown[1],
    )


def make_held(strand: str) -> Conflict:
    """Returns the error of a write to a strand that passes its lease by."""
    return Conflict(
        f"strand {strand} is held by an owner",
        code=STRAND_HELD,
        hint="Close the session where it is open, then try again.",
        strand=strand,
    )


def make_floor_conflict(strand: str, fence: int) -> Conflict:
    """Returns the error of granting a fence that may have been granted before a backup came back."""
    return Conflict(
        f"fence {fence} of strand {strand} may have been granted before: the store came back from a backup",
        code=FENCE_FLOOR,
        hint="Try again; clew then takes a higher one.",
        strand=strand,
        fence=fence,
    )
