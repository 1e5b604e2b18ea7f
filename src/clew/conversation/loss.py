"""What could not be read, and what a target cannot carry: values that travel with a result, never log lines."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

DamageSort: TypeAlias = str
"""One of: torn tail, fragment, missing newline, bad utf-8, nul run, not json, not an object, too deep, broken link,
foreign record, stray result, missing parent, unreadable row, unreadable image, too large, still being written."""


class Damage(msgspec.Struct, frozen=True):
    """One unsound place: which file, record (from 0, through all streams), byte offset in that file, and what sort.

    `line` counts from 1 where the file has lines. `record` is -1 where no record can be named.
    """

    file: str
    record: int
    offset: int
    sort: DamageSort
    detail: str = ""
    line: int = 0
    lost: bool = True
    """Whether content was lost by it; a place that was recovered whole is reported, but costs nothing."""


class Loss(msgspec.Struct, frozen=True):
    """Something that the target of a translation cannot say; the source's segments keep it.

    `what` is a short plural word (reasoning blocks, images, ...), `count` how many, `kept` where it is kept.
    """

    what: str
    count: int = 1
    detail: str = ""
    kept: str = "residue"
