"""Times for people: headings of a list, the age of a session, the time of a message.

Takes the present moment and the time zone as arguments (None is the machine's own zone); month names are English
whatever the locale says, as all of clew's words are. A text that is no time gives empty strings.
"""

from __future__ import annotations

from datetime import datetime, timedelta, tzinfo

MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)


def read_time(text: str, zone: tzinfo | None = None) -> datetime | None:
    """Returns an ISO time with offset as a local time, or None when it is no such time."""
    try:
        return datetime.fromisoformat(text).astimezone(zone) if text else None
    except (ValueError, OverflowError, OSError):
        return None


def heading(moment: datetime | None, now: datetime) -> str:
    """Returns the heading that a session of this moment stands under; both times in one zone."""
    if moment is None:
        return "no date"
    days = (now.date() - moment.date()).days
    if days == 0:
        return "today"
    if days == 1:
        return "yesterday"
    month = MONTHS[moment.month - 1]
    return month if moment.year == now.year else f"{month} {moment.year}"


def age(moment: datetime | None, now: datetime) -> str:
    """Returns how long ago it was: minutes and hours today, the time yesterday, else the day."""
    if moment is None:
        return ""
    days = (now.date() - moment.date()).days
    if days == 0:
        minutes = int(max(now - moment, timedelta()).total_seconds()) // 60
        return "now" if minutes < 1 else f"{minutes} min" if minutes < 60 else f"{minutes // 60} h"
    return f"{moment:%H:%M}" if days == 1 else day(moment)


def day(moment: datetime) -> str:
    """Returns the day as `12 Oct`."""
    return f"{moment.day} {MONTHS[moment.month - 1][:3]}"


def stamp(moment: datetime | None, now: datetime | None) -> str:
    """Returns day and time: `12 Oct 09:54` near `now`, and with the year where it is another or `now` is None."""
    if moment is None:
        return ""
    if now is None:
        return f"{moment:%Y-%m-%d %H:%M}"
    year = "" if moment.year == now.year else f" {moment.year}"
    return f"{day(moment)}{year} {moment:%H:%M}"
