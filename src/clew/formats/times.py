"""Times as sessions spell them: milliseconds since 1970 UTC inside, ISO 8601 or numbers outside.

Reading is total: a time that says nothing is None. Writing is clamped to the years 1 to 9999.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)
_AS_WRITTEN = len("2026-01-01T00:00:00.000Z")
_ISO = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)(?:[T ](\d\d):(\d\d)(?::(\d\d)(?:[.,](\d{1,9}))?)?)?\s*(Z|[+-]\d\d:?\d\d|)\s*\Z", re.ASCII
)
_EPOCH_MS_FROM = 100_000_000_000
"""A number at least this large counts milliseconds: as seconds it would be the year 5138."""

_FIRST_MS = -62_135_596_800_000
_LAST_MS = 253_402_300_799_999


def read_time(value: object) -> int | None:
    """Returns milliseconds since 1970 UTC, or None for a time that says nothing.

    Takes RFC 3339 text with any offset (without one: UTC), and numbers of seconds or milliseconds.
    """
    if isinstance(value, str):
        return _text_time(value)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        if value != value or not 0 < abs(value) < 1e16:
            return None
        return int(value) if abs(value) >= _EPOCH_MS_FROM else int(value * 1000)
    return None


def _text_time(value: str) -> int | None:
    if len(value) == _AS_WRITTEN and value[10] == "T" and value[19] == "." and value.endswith("Z"):
        try:
            return (datetime.fromisoformat(value) - _EPOCH) // _MS
        except ValueError:
            pass
    match = _ISO.match(value)
    if match is None:
        return None
    year, month, day, hour, minute, second, fraction, zone = match.groups()
    try:
        moment = datetime(
            int(year), int(month), int(day), int(hour or 0), int(minute or 0), min(int(second or 0), 59), tzinfo=UTC
        )
    except ValueError:
        return None
    ms = int((fraction or "0").ljust(3, "0")[:3])
    return (moment - _EPOCH) // _MS + ms - _offset_ms(zone)


def _offset_ms(zone: str) -> int:
    if not zone or zone == "Z":
        return 0
    minutes = int(zone[1:3]) * 60 + int(zone[-2:])
    return minutes * 60_000 * (-1 if zone[0] == "-" else 1)


def write_time(ms: int) -> str:
    """Returns a time in UTC with milliseconds and Z."""
    days, rest = divmod(min(max(ms, _FIRST_MS), _LAST_MS), 86_400_000)
    seconds, fraction = divmod(rest, 1000)
    minutes, second = divmod(seconds, 60)
    return f"{_day(days)}T{minutes // 60:02d}:{minutes % 60:02d}:{second:02d}.{fraction:03d}Z"


@lru_cache(maxsize=8)
def _day(days: int) -> str:
    """Returns the date so many days after the first of 1970."""
    return f"{_EPOCH + timedelta(days=days):%Y-%m-%d}".rjust(10, "0")
