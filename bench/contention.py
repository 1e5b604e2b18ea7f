"""Many processes fight for one session; what they did is judged by its effects.

Each process takes the session over (moves its fence) and writes to its journal at that fence until somebody else took
it over; nobody waits for anybody. What it believes it did it tells at the end. Then the journal is read, and told:

* fences of grants grow by one from row to row: none is granted twice, none falls;
* between two grants only the winner of the first one wrote: there were never two admitted writers;
* what a process was told is written is there, and nothing else;
* how often each process won; the most over the least is the fairness.

    python bench/contention.py [--store URL] [--processes 8] [--seconds 30] [--effects 3] [--pause MS]

Exit status 1 when one of the first three does not hold. `--fair N` makes more than N for the fairness fail as well.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

from clew.errors import Conflict
from clew.ids import AgentName, NativeId, ThreadId
from clew.store.opening import Stores, open_stores
from clew.store.record_protocol import FENCE_MOVED, JournalRow, Place, RecordStore

SESSION = "session-0001"
THREAD = ThreadId("t0000000000000001")
NOW = datetime(2026, 1, 1, tzinfo=UTC)
Told = dict[str, list[tuple[int, int]]]


def row(sequence: int, fence: int, kind: str, worker: int) -> JournalRow:
    return JournalRow(1, sequence, kind, 0, fence, json.dumps({"by": worker, "pad": "x" * 250}).encode())


def take_over(store: RecordStore, worker: int) -> tuple[int, int]:
    """Moves the fence and says so in the journal, in one transaction; returns the fence and the place."""
    while True:
        try:
            with store.transaction():
                record = store.strand(SESSION)
                assert record is not None
                fence = record.fence + 1
                store.put_lease(SESSION, fence=fence, claim="live", body=b"", expected=record.revision, now=NOW)
                head = store.journal(SESSION)
                assert head is not None
                grant = row(head.sequence + 1, fence, "grant", worker)
                store.append_journal(SESSION, (grant,), last=head.place, fence=fence)
                return fence, grant.sequence
        except Conflict:
            continue


def write_on(store: RecordStore, worker: int, fence: int, last: int, count: int) -> list[int]:
    """Writes effects at a fence, one transaction each, until it is somebody else's; returns where they stand."""
    written: list[int] = []
    for _ in range(count):
        try:
            store.append_journal(SESSION, (row(last + 1, fence, "effect", worker),), last=Place(1, last), fence=fence)
        except Conflict as conflict:
            if conflict.code != FENCE_MOVED:
                raise
            break
        last += 1
        written.append(last)
    return written


def work(worker: int, data: str, url: str | None, seconds: float, effects: int, pause: float, out: str) -> None:
    told: Told = {"grants": [], "effects": []}
    waits: list[float] = []
    with open_stores(Path(data), url=url) as stores:
        store = stores.records
        store.state()
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            began = time.monotonic()
            fence, last = take_over(store, worker)
            waits.append(time.monotonic() - began)
            told["grants"].append((fence, last))
            told["effects"] += [(fence, place) for place in write_on(store, worker, fence, last, effects)]
            time.sleep(pause)
    Path(out, f"{worker}.json").write_text(
        json.dumps({**told, "worst": max(waits), "median": statistics.median(waits)})
    )


def begin(stores: Stores) -> None:
    store = stores.records
    with store.transaction():
        store.put_thread(THREAD, b"{}", expected=None, now=NOW)
        store.put_record(
            SESSION,
            thread=THREAD,
            agent=AgentName("claude"),
            native_id=NativeId("n"),
            roots=("r",),
            scope="h",
            fence=1,
            claim="live",
            body=b"",
            expected=None,
            now=NOW,
        )
        first = JournalRow(1, 1, "epoch", 0, 1, b"{}")
        store.rewrite_journal(SESSION, (first,), strand=SESSION, fence=1, expected=None)


def judge(stores: Stores, told: list[Told]) -> tuple[list[str], Counter[int]]:
    """Returns what is wrong, and how often each process won."""
    wrong: list[str] = []
    wins: Counter[int] = Counter()
    found: Told = {"grants": [], "effects": []}
    fence, owner = 1, -1
    rows = stores.records.journal_rows(SESSION) or ()
    by = [-1, *(json.loads(one.body)["by"] for one in rows[1:])]
    for number, (one, worker) in enumerate(zip(rows, by, strict=True), 1):
        if one.sequence != number:
            wrong.append(f"row {number} has the number {one.sequence}")
        if one.kind == "grant":
            if one.fence != fence + 1:
                wrong.append(f"row {number}: fence {one.fence} was granted after {fence}")
            fence, owner = one.fence, worker
            wins[worker] += 1
            found["grants"].append((one.fence, one.sequence))
        elif one.kind == "effect":
            if (one.fence, worker) != (fence, owner):
                wrong.append(f"row {number}: process {worker} wrote at {one.fence}, the owner was {owner} at {fence}")
            found["effects"].append((one.fence, one.sequence))
    record = stores.records.strand(SESSION)
    if record is None or record.fence != fence:
        wrong.append(f"the record is at another fence than the last grant, {fence}")
    for what, there in found.items():
        believed = sorted((a, b) for one in told for a, b in one[what])
        if believed != sorted(there):
            wrong.append(f"{what}: the processes were told of {len(believed)}, {len(there)} are there")
    return wrong, wins


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", default=None, help="a PostgreSQL URL with a schema that is empty")
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--effects", type=int, default=3)
    parser.add_argument("--pause", type=float, default=0, help="ms between giving up and taking over again")
    parser.add_argument("--fair", type=float, default=0)
    asked = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        with open_stores(Path(folder), url=asked.store) as stores:
            begin(stores)
        given = (folder, asked.store, asked.seconds, asked.effects, asked.pause / 1000, folder)
        workers = [context.Process(target=work, args=(number, *given)) for number in range(asked.processes)]
        for one in workers:
            one.start()
        for one in workers:
            one.join()
        if any(one.exitcode for one in workers):
            print("a process failed", file=sys.stderr)
            return 1
        told = [json.loads(Path(folder, f"{number}.json").read_text()) for number in range(asked.processes)]
        with open_stores(Path(folder), url=asked.store) as stores:
            wrong, wins = judge(stores, told)
    counts = [wins[number] for number in range(asked.processes)]
    fairness = max(counts) / max(1, min(counts))
    effects = sum(len(one["effects"]) for one in told)
    median, worst = statistics.median(one["median"] for one in told), max(one["worst"] for one in told)
    where = "PostgreSQL" if asked.store else "SQLite"
    print(f"{where}, {asked.processes} processes, {asked.seconds:g} s, {os.cpu_count()} CPUs")
    print(f"grants {sum(counts)} ({sum(counts) / asked.seconds:.0f}/s), effects {effects}")
    print(f"each {counts}, most over least {fairness:.2f}")
    print(f"a grant took {median * 1000:.1f} ms, at worst {worst * 1000:.0f} ms")
    for one in wrong[:20]:
        print("WRONG", one)
    return 1 if wrong or (asked.fair and fairness > asked.fair) else 0


if __name__ == "__main__":
    sys.exit(main())
