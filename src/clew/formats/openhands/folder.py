"""Where a conversation of OpenHands lies: the names of its folder and files."""

from __future__ import annotations

import re
from uuid import UUID

from blake3 import blake3

from clew.ids import derive_uuid

STATE = "base_state.json"
EVENTS = "events"
MOST_EVENTS = 100_000
"""The agent knows numbers of five digits only."""

_FOLDER = re.compile(r"[0-9a-f]{32}\Z", re.ASCII)
_EVENT = re.compile(r"(?:\A|/)event-(\d{5})-([0-9a-fA-F-]{8,})\.json\Z", re.ASCII)


def folder_of(session_id: str) -> str:
    """Returns the name of a conversation's folder; asserts that the id is a UUID."""
    return UUID(session_id).hex


def id_in_name(name: str) -> str:
    """Returns the id of the conversation whose folder has this name, or nothing."""
    return str(UUID(name)) if _FOLDER.match(name) else ""


def event_id(session_id: str, number: int) -> str:
    """Returns the id of an event that clew writes: always the same for its place.

    So a placing that was interrupted is gone on with over its own files, whenever that is.
    """
    return derive_uuid(blake3(f"clew-event\x00{session_id}\x00{number}".encode("utf-8", "replace")).digest())


def event_path(folder: str, number: int, event_id: str) -> str:
    """Returns where event `number` (from 0) of a conversation lies."""
    return f"{folder}/{EVENTS}/event-{number:05d}-{event_id}.json"


def number_of(path: str) -> int | None:
    """Returns the number of the event that a path names, or None."""
    found = _EVENT.search(path)
    return int(found.group(1)) if found else None


def session_folder(path: str) -> str:
    """Returns the folder of the conversation that an event's path belongs to."""
    return path.rpartition("/")[0].rpartition("/")[0]
