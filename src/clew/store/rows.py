"""How values become columns and columns values: times, hex digests, and texts that may be no UTF-8.

Times are whole microseconds since 1970-01-01 UTC. Digests, keys and source ids are their 32 bytes. Ids and
paths come from files and may hold what no database takes as text: they are stored as bytes, lone surrogates
included.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from clew.errors import Conflict

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def make_micros(time: datetime) -> int:
    """Returns an aware time as microseconds since 1970."""
    assert time.tzinfo is not None, "times are aware"
    return (time - _EPOCH) // _MICROSECOND


def read_micros(micros: int) -> datetime:
    """Returns the time, in UTC, of so many microseconds since 1970."""
    return _EPOCH + micros * _MICROSECOND


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
