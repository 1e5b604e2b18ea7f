"""Measures what a live session costs its store: leases, journal rows and operations, and opening a long journal.

Targets (medians): a lease with a journal row below 1 ms on SQLite, below 2 ms on PostgreSQL over loopback. Prints one
JSON object, times in ms: median and 99th percentile of the wall clock, and this process' own CPU time. `sync` is what a
bare write of 4 kB with fdatasync takes, in turn with the commits and on the same disk: no commit can be faster.
`above_sync` is the median of a commit less that of the bare write, which compares between disks; `load` is the
machine's at the beginning: above 1.5 look at the CPU time instead. A server's disk is taken to be the folder's.

`attach` opens a session with a long journal as `clew` does, with a real (scripted) agent: `start` is the same with an
empty journal, so that the difference is the journal's.

    python bench/records.py [--store URL] [--count 1000] [--rows 100000] [--folder DIR]
    scripts/with-postgres sh -c 'python bench/records.py --store "$CLEW_TEST_POSTGRES"'
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import statistics
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from clew.host.fake import FAKE, FakeAdapter
from clew.ids import AgentName, NativeId, ThreadId
from clew.journal.opening import Readable, classify
from clew.journal.rows import Item, Row, begin, next_rows, store_row
from clew.journal.submissions import fold
from clew.lease.record import AccountHome, Location
from clew.lease.reserve import Request, reservation_fingerprint
from clew.lineage.edge import StrandId
from clew.lineage.link import Fence
from clew.platform.clock import SystemClock
from clew.store.opening import Stores, open_stores
from clew.store.record_protocol import JournalRow, Place, RecordStore
from clew.verbs.attach import Attachment, attach
from clew.verbs.leases import Leases
from clew.verbs.probing import Observer, make_holder

SESSION = "session-0001"
NOW = datetime(2026, 1, 1, tzinfo=UTC)
BODY = b"x" * 1500


class Session:
    """One record with its journal, and what a holder of it remembers: revision, fence, last place."""

    def __init__(self, store: RecordStore) -> None:
        self.store, self.revision, self.fence, self.last = store, 1, 1, Place(1, 1)
        thread = ThreadId("t0000000000000001")
        with store.transaction():
            store.put_thread(thread, b"{}", expected=None, now=NOW)
            store.put_record(
                SESSION,
                thread=thread,
                agent=AgentName("claude"),
                native_id=NativeId("n"),
                roots=("r",),
                scope="h",
                fence=1,
                claim="live",
                body=BODY,
                expected=None,
                now=NOW,
            )
            first = JournalRow(1, 1, "epoch", 0, 1, b"{}")
            store.rewrite_journal(SESSION, (first,), strand=SESSION, fence=1, expected=None)

    def lease(self, fence: int) -> None:
        self.revision = self.store.put_lease(
            SESSION, fence=fence, claim="live", body=BODY, expected=self.revision, now=NOW
        )
        self.fence = fence

    def append(self) -> None:
        row = JournalRow(1, self.last.sequence + 1, "item", 0, self.fence, b"y" * 300)
        self.store.append_journal(SESSION, (row,), last=self.last, fence=self.fence)
        self.last = row.place

    def renew_and_append(self) -> None:
        with self.store.transaction():
            self.lease(self.fence)
            self.append()

    def grant_and_append(self) -> None:
        with self.store.transaction():
            self.lease(self.fence + 1)
            self.append()

    def admit(self) -> None:
        key = f"me\0{secrets.token_hex(16)}"
        with self.store.transaction():
            self.store.expect_fence(SESSION, self.fence)
            assert self.store.operation(key) is None
            self.store.count_operations("me")
            self.store.put_operation(
                key,
                caller="me",
                fingerprint="f" * 64,
                state="pending",
                session=SESSION,
                expires_ms=0,
                body=b"z" * 300,
                expected=None,
            )
            self.append()


def measure(act: Callable[[], None], sync: Callable[[], None], count: int) -> dict[str, float]:
    """Takes turns with the bare write, so that both meet the same disk."""
    for _ in range(20):
        act()
    taken: list[float] = []
    bare: list[float] = []
    cpu = 0.0
    for _ in range(count):
        own, began = time.process_time(), time.perf_counter()
        act()
        taken.append((time.perf_counter() - began) * 1000)
        cpu += time.process_time() - own
        began = time.perf_counter()
        sync()
        bare.append((time.perf_counter() - began) * 1000)
    median, alone = statistics.median(taken), statistics.median(bare)
    told = {"median": median, "p99": sorted(taken)[int(count * 0.99)], "cpu": cpu * 1000 / count}
    told |= {"sync": alone, "above_sync": median - alone}
    return {name: round(value, 3) for name, value in told.items()}


def sync_alone(folder: str) -> Callable[[], None]:
    fd = os.open(Path(folder) / "sync", os.O_RDWR | os.O_CREAT)
    os.pwrite(fd, bytes(4096), 0)

    def act() -> None:
        os.pwrite(fd, secrets.token_bytes(4096), 0)
        getattr(os, "fdatasync", os.fsync)(fd)

    return act


def long_journal(store: RecordStore, session: Session, count: int) -> dict[str, float]:
    first = begin(2, "bench", 0, session.fence)
    items = (Item(f"item-{number}", b"a line of the conversation " * 8) for number in range(count - 1))
    made = (first, *next_rows(first.cursor, items, 0, session.fence))
    rows = [stored(row) for row in made]
    times: dict[str, float] = {}
    began = time.perf_counter()
    store.rewrite_journal(SESSION, rows, strand=SESSION, fence=session.fence, expected=session.last)
    times["write_s"] = round(time.perf_counter() - began, 2)
    began = time.perf_counter()
    found = store.journal_rows(SESSION)
    times["read_s"] = round(time.perf_counter() - began, 2)
    assert found is not None
    assert len(found) == count
    opened = classify([row.body for row in found])
    assert isinstance(opened, Readable)
    fold(opened.rows)
    times["read_and_opened_s"] = round(time.perf_counter() - began, 2)
    began = time.perf_counter()
    rest = store.journal_rows(SESSION, after=Place(2, count - 10))
    times["last_ten_ms"] = round((time.perf_counter() - began) * 1000, 2)
    assert rest is not None
    assert len(rest) == 10
    return times


def attach_long(folder: Path, stores: Stores, count: int) -> dict[str, float]:
    """Attaches a session of the scripted agent, gives it a long journal, and attaches it again."""
    leases = Leases(stores.records, Observer(make_holder("h0000000000000001"), lambda record: False), SystemClock())
    thread, session = ThreadId("t0000000000000002"), StrandId("session-0002")
    stores.records.put_thread(thread, b"{}", expected=None, now=NOW)

    def once() -> float:
        fence = leases.judge(session).lease.fence
        asked = Request(
            caller="bench",
            operation_id=leases.new_operation(),
            fingerprint="",
            session_id=session,
            expected_fence=Fence(fence) if fence else None,
            location=Location(leases.here.host, str(folder), "folder"),
            namespace=FAKE,
            account_home=AccountHome("base", str(folder / "agent")),
        )
        asked = msgspec.structs.replace(asked, fingerprint=reservation_fingerprint(asked))
        began = time.perf_counter()
        done = attach(leases, Attachment(asked=asked, adapter=FakeAdapter(), thread=thread))
        taken = time.perf_counter() - began
        assert done.seat is not None
        done.seat.release()
        return taken

    once()
    start = statistics.median(once() for _ in range(5))
    fence = leases.view(session).lease.fence
    head = stores.records.journal(session)
    assert head is not None
    first = begin(head.epoch + 1, "bench", 0, fence)
    items = (Item(f"item-{number}", b"a line of the conversation " * 8) for number in range(count - 1))
    rows = [stored(row) for row in (first, *next_rows(first.cursor, items, 0, fence))]
    stores.records.rewrite_journal(session, rows, strand=session, fence=fence, expected=head.place)
    own = time.process_time()
    long = once()
    return {
        "start_s": round(start, 3),
        "attach_s": round(long, 3),
        "attach_and_release_cpu_s": round(time.process_time() - own, 3),
    }


def stored(row: Row) -> JournalRow:
    return JournalRow(row.epoch, row.sequence, row.kind, row.time, row.fence, store_row(row))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", default=None, help="a PostgreSQL URL with a schema that is empty")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--folder", default=None, help="where to work, to choose the disk")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=asked.folder) as name, open_stores(Path(name), url=asked.store) as stores:
        session, sync = Session(stores.records), sync_alone(name)
        told: dict[str, object] = {"store": "postgresql" if asked.store else "sqlite", "load": os.getloadavg()[0]}
        for act in ("append", "renew_and_append", "grant_and_append", "admit"):
            told[act] = measure(getattr(session, act), sync, asked.count)
        told["long_journal"] = {"rows": asked.rows, **long_journal(stores.records, session, asked.rows)}
        told["attach"] = {"rows": asked.rows, **attach_long(Path(name), stores, asked.rows)}
    print(json.dumps(told, indent=2))


if __name__ == "__main__":
    main()
