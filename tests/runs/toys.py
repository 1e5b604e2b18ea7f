"""A toy operation and the settings of a run, for the tests of the machinery."""

from __future__ import annotations

import hashlib
import itertools
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from clew.platform.clock import FixedClock
from clew.runs.engine import RunSettings
from clew.runs.fingerprint import UNKNOWN, RunDigest, item_fingerprint, item_id
from clew.runs.lineage import Target
from clew.runs.operation import Done, Item, ItemContext, Sealed, Waived, Worker, seal

TARGET = Target("openai", "m-1")
MODES: Mapping[str, bool] = {"range": True, "commit": True, "workspace": False}


def echo(item: Item, context: ItemContext) -> Done:
    """Does an item: one finding that names it."""
    finding = {"path": item.path, "start_line": 1, "end_line": 1, "text": f"look at {item.path}"}
    return Done({"findings": [finding]})


class Toy:
    """Items are paths with contents; `work` does one."""

    name = "toy"
    modes = MODES

    def __init__(
        self,
        contents: Mapping[str, str],
        work: Callable[[Item, ItemContext], Done | Waived] = echo,
        *,
        scope: Path = Path("/home/dev/shop"),
        mode: str = "range",
        rules: tuple[str, ...] = ("be kind",),
        remote: str = "",
        target: Target = TARGET,
        tree: RunDigest | None = None,
        tokens: int = 0,
    ) -> None:
        self.contents = contents
        self.work = work
        self.scope = scope
        self.mode = mode
        self.rules = rules
        self.remote = remote
        self.target = target
        self.tree = tree
        self.tokens = tokens

    def resolve(self) -> Sealed:
        items = tuple(
            Item(
                item_id(self.name, self.mode, path, path),
                path,
                item_fingerprint(self.mode, f"{path}\0{content}".encode()),
                path,
                self.tokens,
            )
            for path, content in self.contents.items()
        )
        repository = RunDigest(hashlib.sha256(self.remote.encode()).hexdigest()) if self.remote else UNKNOWN
        return seal(
            self.name,
            self.mode,
            items,
            scope=self.scope,
            rules=self.rules,
            repository=repository,
            tree=self.tree,
            target=self.target,
        )

    @contextmanager
    def open(self, sealed: Sealed, run_id: str) -> Iterator[Worker]:
        yield self.work


def make_settings(folder: Path, prefix: str = "run", **more: Any) -> RunSettings:
    """Settings with a fixed clock and counted ids."""
    numbers = itertools.count(1)
    return RunSettings(
        folder=folder, clock=FixedClock(), new_id=lambda: f"{prefix}-{next(numbers)}", version="0", **more
    )


def tree_of(folder: Path) -> dict[str, bytes | None]:
    """Every path below a folder with its bytes: what must be equal when nothing may have happened."""
    return {
        os.path.relpath(path, folder): path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
    }
