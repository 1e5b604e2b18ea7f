"""The clock: system time is aware; a fixed clock moves only when told."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

from clew.platform.clock import FixedClock, SystemClock


def test_the_system_clock_tells_aware_utc():
    clock = SystemClock()
    assert clock.now().utcoffset() == timedelta(0)
    assert clock.monotonic() <= clock.monotonic()


def test_a_fixed_clock_stands_still_until_moved():
    clock = FixedClock(datetime(2026, 1, 1, 1, tzinfo=timezone(timedelta(hours=1))))
    assert clock.now() == clock.now() == datetime(2026, 1, 1, tzinfo=UTC)
    clock.advance(2.5)
    assert clock.now() == datetime(2026, 1, 1, 0, 0, 2, 500000, tzinfo=UTC)
    assert clock.monotonic() == 2.5
    clock.set(datetime(2020, 1, 1, tzinfo=UTC))
    assert clock.now().year == 2020
    assert clock.monotonic() == 2.5
