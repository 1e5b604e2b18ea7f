"""Descriptions: the small JSON objects beside a session's records that name its folder, its title, its model.

What they say is read by each format; here is told where one says nothing because it is damaged. Nothing is read twice
but the few bytes of a description, and nothing raises on any bytes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

import msgspec

from clew.conversation.loss import Damage, DamageSort
from clew.conversation.source import SideFile

_EMPTY = b" \t\r\n\x00"


def damaged_descriptions(side: Collection[SideFile], paths: Collection[str]) -> Iterator[Damage]:
    """Yields the damage of those side files that are descriptions: no JSON object, or none that can be had.

    `paths` are the paths of descriptions. One that is not there is no damage.
    """
    for file in side:
        if file.path in paths:
            found = _look(file)
            if found is not None:
                yield Damage(file.path, -1, 0, *found)


def _look(file: SideFile) -> tuple[DamageSort, str] | None:
    try:
        data = bytes(file.load())
    except Exception as error:  # noqa: BLE001 - whatever a store or a disk raises, the session is read
        return "foreign record", f"the description cannot be read: {error}"
    if not data.strip(_EMPTY):
        sort = "nul run" if b"\x00" in data else "torn tail"
        return sort, "the description of the session is empty"
    try:
        value = msgspec.json.decode(data)
    except (ValueError, RecursionError):
        torn = data.lstrip(_EMPTY).startswith(b"{")
        return ("torn tail" if torn else "not json"), "the description of the session: its folder and title may be lost"
    return None if isinstance(value, dict) else ("not an object", "the description of the session")
