"""`clew store check`: all of clew's own data verified: captures against their digests, records by reading each of them.

Nothing is changed; one row that cannot be read is a finding, never the end of the list.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from clew.errors import ClewError
from clew.journal.opening import Corrupt
from clew.lease.ledger import load_row
from clew.lease.record import UnreadableRecord
from clew.lineage.edge import StrandId, load_edge
from clew.lineage.stored import Malformed
from clew.store.protocol import Problem
from clew.store.rows import EARLIEST, LATEST
from clew.verbs.context import Context
from clew.verbs.journaling import classify_journal


def check_store(ctx: Context) -> Iterator[Problem]:
    """Yields what is wrong in the stores, the records first; nothing when they are sound."""
    damaged = False
    for sentence in ctx.stores.check_records():
        damaged = True
        yield Problem("file_damaged", sentence)
    if ctx.stores.has_records and not damaged:
        try:
            yield from _records(ctx)
        except ClewError as error:
            yield Problem("file_damaged", error.message)
    yield from ctx.stores.residue.fsck()


def _records(ctx: Context) -> Iterator[Problem]:
    leases, store = ctx.leases, ctx.stores.records
    store.state()
    known: set[str] = set()
    for thread in store.threads():
        known.add(thread.id)
        yield from _times(f"thread {thread.id}", thread.created_at, thread.updated_at)
    for row in store.strands():
        yield from _times(f"{row.agent} {row.native_id or row.id}", row.created_at, row.updated_at)
        stored = leases.view_row(StrandId(row.id), row).stored
        if isinstance(stored, UnreadableRecord):
            yield Problem("record_unreadable", f"{row.agent} {row.native_id or row.id}: {stored.fault}")
        if row.thread not in known:
            yield Problem("thread_missing", f"{row.agent} {row.native_id or row.id}: {row.thread} is not there")
        for head in store.journals(row.id):
            opening = classify_journal(leases, head.name)
            if isinstance(opening, Corrupt):
                yield Problem("journal_damaged", f"{head.name}: {opening.cause}, {opening.dropped} rows")
    for edge in store.edges():
        yield from _times(f"edge to {edge.to_strand}", edge.at)
        try:
            load_edge(edge.body)
        except Malformed as error:
            yield Problem("edge_unreadable", f"to {edge.to_strand}: {error}")
    for operation in store.operations():
        try:
            load_row(operation.body)
        except Malformed as error:
            yield Problem("operation_unreadable", f"{operation.key!r}: {error}")


def _times(what: str, *times: datetime) -> Iterator[Problem]:
    if any(time in (EARLIEST, LATEST) for time in times):
        yield Problem("time_impossible", f"{what}: no calendar holds a time of it")
