"""Any sequence of writes to the records, sound ones and refused ones, gives the same on disk as in memory."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from clew.errors import Conflict, NotFoundError
from clew.store.memory_records import MemoryRecords
from clew.store.opening import open_stores
from clew.store.record_protocol import RecordStore
from record_making import NOW, own_schema, place, put, put_operation, rows

SESSIONS = ("session-aaaa", "session-bbbb")
JOURNALS = (*SESSIONS, "session-aaaa-recovered-v2")
sessions = st.sampled_from(SESSIONS)
numbers = st.integers(0, 4)
claims = st.sampled_from(("released", "reserved", "live"))


class Undone(Exception):
    """Ends a transaction without its effects."""


class Records(RuleBasedStateMachine):
    """Two homes side by side: memory, and one that lasts."""

    url: str | None = None

    @initialize()
    def begin(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.stores = open_stores(Path(self.folder.name), url=self.url)
        self.both: tuple[RecordStore, RecordStore] = (MemoryRecords(), self.stores.records)
        if self.url is not None:
            for thread in self.stores.records.threads():
                self.stores.records.remove_thread(thread.id, expected=thread.revision)
            self.stores.records.drop_operations(2**53, ("pending", "succeeded"))
        self.floor = self.stores.records.state().fence_floor
        self.pending: list[Callable[[RecordStore], Any]] = []

    def teardown(self) -> None:
        if hasattr(self, "stores"):
            self.stores.close()
            self.folder.cleanup()

    def on_both(self, act: Callable[[RecordStore], Any]) -> None:
        found = []
        for store in self.both:
            try:
                found.append((act(store), ""))
            except (Conflict, NotFoundError, Undone) as error:
                found.append((type(error), getattr(error, "code", "")))
        assert found[0] == found[1]
        self.pending.append(act)

    @rule(session=sessions, expected=st.one_of(st.none(), numbers), fence=numbers, claim=claims)
    def record(self, session: str, expected: int | None, fence: int, claim: str) -> None:
        self.on_both(lambda store: put(store, session, expected, fence=fence, claim=claim, body=b"%d" % fence))

    @rule(session=sessions, fence=numbers, claim=claims)
    def lease(self, session: str, fence: int, claim: str) -> None:
        def act(store: RecordStore) -> int:
            row = store.strand(session)
            revision = row.revision if row is not None else 1
            return store.put_lease(session, fence=fence, claim=claim, body=b"l", expected=revision, now=NOW)

        self.on_both(act)

    @rule(key=st.sampled_from(("a\x001", "a\x002", "b")), expected=st.one_of(st.none(), st.integers(1, 3)))
    def operation(self, key: str, expected: int | None) -> None:
        state = "pending" if expected is None else "succeeded"
        self.on_both(lambda store: put_operation(store, key, expected, state=state))

    @rule(name=st.sampled_from(JOURNALS), fence=numbers, count=st.integers(1, 3), behind=st.integers(-1, 1))
    def append(self, name: str, fence: int, count: int, behind: int) -> None:
        def act(store: RecordStore) -> None:
            head = store.journal(name)
            epoch, last = (head.epoch, head.sequence) if head is not None else (1, 0)
            last = max(0, last + min(behind, 0)) if behind < 0 else last + (behind if last == 0 else 0)
            store.append_journal(name, rows(epoch, last + 1, count, fence=fence), last=place(epoch, last), fence=fence)

        self.on_both(act)

    @rule(name=st.sampled_from(JOURNALS), fence=numbers, count=st.integers(1, 3), keep=st.booleans())
    def rewrite(self, name: str, fence: int, count: int, keep: bool) -> None:
        def act(store: RecordStore) -> None:
            head = store.journal(name)
            kept = place(head.epoch, (head.sequence + 1) // 2) if head is not None and keep else None
            epoch, first = (1, 1) if head is None else (head.epoch + 1, 1)
            if kept is not None:
                epoch, first = kept.epoch, kept.sequence + 1
            store.rewrite_journal(
                name,
                rows(epoch, first, count, fence=fence),
                strand=name[: len(SESSIONS[0])],
                fence=fence,
                expected=head.place if head is not None else None,
                keep=kept,
                identity=b"i%d" % epoch,
            )

        self.on_both(act)

    @rule()
    def undone(self) -> None:
        """The latest acts once more, in a transaction that fails."""
        acts = self.pending[-3:]

        def act(store: RecordStore) -> None:
            with store.transaction():
                for one in acts:
                    try:
                        one(store)
                    except (Conflict, NotFoundError, Undone):
                        continue
                raise Undone

        self.on_both(act)
        self.pending.pop()

    @invariant()
    def both_are_the_same(self) -> None:
        if not hasattr(self, "both"):
            return
        memory, lasting = self.both
        assert memory.strands() == lasting.strands()
        assert memory.operations() == lasting.operations()
        for name in JOURNALS:
            assert memory.journal(name) == lasting.journal(name)
            there = memory.journal_rows(name)
            assert there == lasting.journal_rows(name)
            assert there is not None
            assert [row.sequence for row in there] == list(range(1, len(there) + 1))
            assert len({row.epoch for row in there}) <= 1


def test_the_file_does_what_memory_does():
    run_state_machine_as_test(Records, settings=settings(max_examples=20, stateful_step_count=25))


@pytest.mark.postgres
def test_the_server_does_what_memory_does():
    assert os.environ.get("CLEW_TEST_POSTGRES") or pytest.skip("CLEW_TEST_POSTGRES names no server")
    with own_schema() as url:
        machine = type("OnServer", (Records,), {"url": url})
        run_state_machine_as_test(machine, settings=settings(max_examples=15, stateful_step_count=20))
