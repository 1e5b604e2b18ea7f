from datetime import UTC, datetime, timedelta, timezone

import pytest

from clew.cli.dates import age, heading, read_time, stamp

NOW = datetime(2026, 11, 20, 15, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("ago", "expected_heading", "expected_age"),
    [
        (timedelta(seconds=10), "today", "now"),
        (timedelta(minutes=5), "today", "5 min"),
        (timedelta(hours=2, minutes=50), "today", "2 h"),
        (timedelta(hours=20), "yesterday", "19:30"),
        (timedelta(days=3), "November", "17 Nov"),
        (timedelta(days=40), "October", "11 Oct"),
        (timedelta(days=400), "October 2025", "16 Oct"),
        (-timedelta(minutes=3), "today", "now"),
    ],
)
def test_ages(ago, expected_heading, expected_age):
    assert heading(NOW - ago, NOW) == expected_heading
    assert age(NOW - ago, NOW) == expected_age


def test_days_are_those_of_the_zone():
    east = timezone(timedelta(hours=10))
    moment = read_time("2026-11-20T13:59:00Z", east)
    assert heading(moment, NOW.astimezone(east)) == "yesterday"
    assert heading(read_time("2026-11-20T13:59:00Z", UTC), NOW) == "today"


@pytest.mark.parametrize("text", ["", "yesterday", "2026-13-01T00:00:00Z", "\x1b[2J"])
def test_what_is_no_time_is_none(text):
    assert read_time(text) is None
    assert (heading(None, NOW), age(None, NOW), stamp(None, NOW)) == ("no date", "", "")


def test_stamps():
    assert stamp(NOW, NOW) == "20 Nov 15:30"
    assert stamp(NOW.replace(year=2025), NOW) == "20 Nov 2025 15:30"
    assert stamp(NOW, None) == "2026-11-20 15:30"
