"""Measures the run machinery over items of no work: time and bytes of log for each item.

Targets: below 2 ms and below 2 kB an item. Prints one JSON object.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
import uuid
from contextlib import nullcontext
from pathlib import Path

from clew.platform.clock import SystemClock
from clew.runs.engine import RunOptions, RunSettings, carry_out
from clew.runs.fingerprint import item_fingerprint, item_id
from clew.runs.operation import Done, Item, ItemContext, Sealed, Worker, seal


class Nothing:
    """An operation whose items are numbers and whose work is nothing."""

    name = "nothing"
    modes = {"range": True}  # noqa: RUF012

    def __init__(self, count: int) -> None:
        self.count = count

    def resolve(self) -> Sealed:
        items = tuple(
            Item(item_id("nothing", "range", path, path), path, item_fingerprint("range", path.encode()), path)
            for path in (f"src/package/module_{number:05}.py" for number in range(self.count))
        )
        return seal("nothing", "range", items, scope=Path("/bench/shop"))

    def open(self, sealed: Sealed, run_id: str) -> nullcontext[Worker]:
        return nullcontext(self.work)

    def work(self, item: Item, context: ItemContext) -> Done:
        return Done({"findings": []})


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
    told: dict[str, object] = {"items": count}
    with tempfile.TemporaryDirectory() as folder:
        settings = RunSettings(Path(folder), SystemClock(), lambda: str(uuid.uuid4()))
        parent = ""
        for name, concurrency in (("run", 1), ("run with 4 workers", 4), ("resume", 1)):
            started = time.perf_counter()
            result = carry_out(
                Nothing(count), settings, RunOptions(concurrency=concurrency), parent=parent if name == "resume" else ""
            )
            seconds = time.perf_counter() - started
            parent = result.manifest.run_id
            told[name] = {
                "ms_an_item": round(seconds * 1000 / count, 4),
                "log_bytes_an_item": round(result.log_path.stat().st_size / count),
            }
    print(json.dumps(told, indent=1))


if __name__ == "__main__":
    main()
