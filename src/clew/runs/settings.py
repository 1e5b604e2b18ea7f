"""What a run is given and what it gives back: settings, options, progress, result.

The settings are everything that the library would otherwise have to look for: a folder, a clock, fresh ids.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from msgspec import Struct

from clew.platform.clock import Clock
from clew.runs.log import ItemRecord, SessionRef, WriteBytes
from clew.runs.manifest import Manifest
from clew.runs.operation import Skipped, Usage


class RunSettings(Struct, frozen=True):
    """What the library is handed: the folder `<data>/runs`, a clock, a maker of fresh ids, and clew's version.

    `write` stands for `os.write` and may be exchanged for one that fails. `linked` is told of every agent's session
    in which an item was done: (run id, item id, session).
    """

    folder: Path
    clock: Clock
    new_id: Callable[[], str]
    version: str = ""
    write: WriteBytes = os.write
    linked: Callable[[str, str, SessionRef], None] | None = None


class RunOptions(Struct, frozen=True):
    """How a run is to be carried out; none of it is compared when it is resumed, but for what was typed.

    `budget_tokens` of 0 is no budget, `item_timeout_s` of 0 no limit. `waived` maps item ids or paths to reasons.
    """

    concurrency: int = 1
    budget_tokens: int = 0
    item_timeout_s: float = 0
    explicit_provider: bool = False
    explicit_model: bool = False
    delta: bool = False
    waived: Mapping[str, str] = {}
    resumable_hint: str = ""


class Progress(Struct, frozen=True):
    """How far a run is: counts of items, what was spent by this run, and the item last decided."""

    run_id: str
    total: int
    done: int = 0
    reused: int = 0
    failed: int = 0
    waived: int = 0
    spent: Usage = Usage()
    path: str = ""


class RunResult(Struct, frozen=True):
    """A finished run: its manifest, the checkpoints of its items by item id, and what could not be delivered."""

    manifest: Manifest
    items: dict[str, ItemRecord]
    log_path: Path
    spent: Usage = Usage()
    skipped: tuple[Skipped, ...] = ()
    delivery_error: str = ""
