"""What every store of records promises: one suite for memory, SQLite and PostgreSQL."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clew.errors import Conflict, NotFoundError, StoreError
from clew.ids import AgentName, NativeId, ThreadId
from clew.store.record_protocol import (
    FENCE_FLOOR,
    FENCE_MOVED,
    STRAND_HELD,
    JournalRow,
    OperationCounts,
    RecordStore,
)
from record_making import (
    CLAUDE,
    NOW,
    SCOPE,
    SESSION,
    THREAD,
    begin,
    place,
    places,
    put,
    put_operation,
    rows,
)

LATER = NOW + timedelta(seconds=1)
OTHER = "session-0002"


def conflict(act: Any, *arguments: Any, **named: Any) -> Conflict:
    with pytest.raises(Conflict) as caught:
        act(*arguments, **named)
    return caught.value


# --- records ----------------------------------------------------------------------------------------------


def test_a_record_is_a_strand_with_its_lease(records: RecordStore):
    assert put(records, fence=3, claim="live", roots=("r1", "r\ud800")) == 1
    row = records.strand(SESSION)
    assert row is not None
    assert (row.scope, row.fence, row.claim, row.body) == (SCOPE, 3, "live", b"\x00body\xff")
    assert (row.thread, row.agent, row.native_id, row.roots, row.revision) == (
        THREAD,
        CLAUDE,
        f"n-{SESSION}",
        ("r1", "r\ud800"),
        1,
    )
    assert (row.created_at, row.updated_at) == (NOW, NOW)
    assert records.records() == (row,)
    assert put(records, fence=3, claim="released", roots=("r2",), native_id=NativeId(""), expected=1, now=LATER) == 2
    again = records.strand(SESSION)
    assert again is not None
    assert (again.claim, again.roots, again.native_id, again.revision) == ("released", ("r2",), "", 2)
    assert (again.created_at, again.updated_at) == (NOW, LATER)
    assert records.strands(root="r1") == ()


def test_a_record_is_swapped_or_left_alone(records: RecordStore):
    with pytest.raises(NotFoundError):
        put(records, thread=ThreadId("t0000000000000009"))
    put(records)
    before = records.strand(SESSION)
    assert conflict(put, records).concerns["found"] == 1
    assert conflict(put, records, expected=2).concerns["found"] == 1
    assert conflict(put, records, OTHER, expected=1).concerns.get("found") is None
    conflict(put, records, expected=1, agent=AgentName("codex"))
    assert records.strand(SESSION) == before
    assert records.strand(OTHER) is None


def test_a_lease_is_swapped_without_its_lineage(records: RecordStore):
    put(records, fence=1, claim="reserved", roots=("r",))
    before = records.strand(SESSION)
    assert before is not None
    lease: dict[str, Any] = {"claim": "live", "body": b"2", "now": LATER}
    assert records.put_lease(SESSION, fence=1, expected=1, **lease) == 2
    assert records.put_lease(SESSION, fence=2, expected=2, **lease) == 3
    row = records.strand(SESSION)
    assert row is not None
    assert (row.fence, row.claim, row.body, row.revision, row.updated_at) == (2, "live", b"2", 3, LATER)
    assert (row.roots, row.native_id, row.scope, row.thread) == (("r",), before.native_id, SCOPE, THREAD)
    for fence in (2, 3):
        assert conflict(records.put_lease, SESSION, fence=fence, expected=2, **lease).concerns["found"] == 3
        conflict(records.put_lease, OTHER, fence=fence, expected=1, **lease)
    assert records.strand(SESSION) == row


def test_a_strand_that_was_never_attached_has_no_lease_to_swap(records: RecordStore):
    records.put_thread(THREAD, b"", expected=None, now=NOW)
    bare: dict[str, Any] = {"thread": THREAD, "agent": CLAUDE, "native_id": NativeId("n"), "roots": ("r",), "now": NOW}
    records.put_strand(SESSION, body=b"bare", expected=None, **bare)
    row = records.strand(SESSION)
    assert row is not None
    assert (row.scope, row.fence, row.claim, row.is_held) == (None, 0, None, False)
    assert records.records() == ()
    for fence in (0, 1):
        conflict(records.put_lease, SESSION, fence=fence, claim="live", body=b"", expected=1, now=NOW)
    assert put(records, expected=1, fence=1, claim="reserved") == 2
    assert [one.id for one in records.records()] == [SESSION]


def test_a_held_strand_is_only_written_with_its_lease(records: RecordStore):
    put(records, fence=1, claim="live")
    plain: dict[str, Any] = {"thread": THREAD, "agent": CLAUDE, "native_id": NativeId("n"), "roots": ("r",), "now": NOW}
    assert conflict(records.put_strand, SESSION, body=b"x", expected=1, **plain).code == STRAND_HELD
    assert conflict(records.put_strand, SESSION, body=b"x", expected=2, **plain).code == "store_conflict"
    put(records, expected=1, fence=1, claim="released")
    assert records.put_strand(SESSION, body=b"free", expected=2, **plain) == 3
    row = records.strand(SESSION)
    assert row is not None
    assert (row.body, row.fence, row.claim, row.scope) == (b"free", 1, "released", SCOPE)


def test_a_fence_never_falls(records: RecordStore):
    put(records, fence=5, claim="live")
    found = conflict(put, records, fence=4, claim="live", expected=1)
    assert (found.code, found.concerns["found"]) == (FENCE_MOVED, 5)
    lower = conflict(records.put_lease, SESSION, fence=4, claim="live", body=b"", expected=1, now=NOW)
    assert lower.code == FENCE_MOVED
    row = records.strand(SESSION)
    assert row is not None
    assert (row.fence, row.revision) == (5, 1)


def test_records_are_found_by_scope_and_claim(records: RecordStore):
    put(records, "session-aaaa", claim="live", fence=1)
    put(records, "session-bbbb", claim="released", now=LATER)
    put(records, "session-cccc", claim="reserved", fence=1, scope="h2\0c\0/w", now=LATER)
    every = ["session-aaaa", "session-bbbb", "session-cccc"]
    assert [row.id for row in records.records()] == every
    assert [row.id for row in records.records(scope="h2\0c\0/w")] == every[2:]
    assert [row.id for row in records.records(claims=("live", "reserved"))] == [every[0], every[2]]
    assert records.records(scope=SCOPE, claims=["reserved"]) == ()


# --- one transaction --------------------------------------------------------------------------------------


def test_a_fence_is_held_to_the_end_of_the_transaction(records: RecordStore):
    put(records, fence=2, claim="live")
    with records.transaction():
        records.expect_fence(SESSION, 2)
        put_operation(records)
    with records.transaction():
        moved = conflict(records.expect_fence, SESSION, 1)
        assert (moved.code, moved.concerns["expected"], moved.concerns["found"]) == (FENCE_MOVED, 1, 2)
        assert conflict(records.expect_fence, OTHER, 1).concerns.get("found") is None
    assert records.operation("c\x001") is not None


def test_everything_becomes_visible_together_or_not_at_all(records: RecordStore):
    begin(records, 2)
    put_operation(records)
    before = (records.strand(SESSION), records.operation("c\x001"), records.journal_rows(SESSION))

    def all_of_it(fail: bool) -> None:
        with records.transaction():
            records.put_thread(ThreadId("t0000000000000002"), b"", expected=None, now=NOW)
            put(records, fence=2, claim="live", expected=1)
            put_operation(records, state="succeeded", expected=1)
            put_operation(records, key="c\x002")
            records.append_journal(SESSION, rows(1, 3, 2, fence=2), last=place(1, 2), fence=2)
            records.rewrite_journal("sibling", rows(1, 1, 1, fence=2), strand=SESSION, fence=2, expected=None)
            assert places(records.journal_rows(SESSION)) == [(1, 1), (1, 2), (1, 3), (1, 4)]
            if fail:
                raise StoreError("half way")

    with pytest.raises(StoreError, match="half way"):
        all_of_it(fail=True)
    assert (records.strand(SESSION), records.operation("c\x001"), records.journal_rows(SESSION)) == before
    assert len(records.threads()) == 1
    assert (records.operation("c\x002"), records.journal("sibling")) == (None, None)
    all_of_it(fail=False)
    row = records.strand(SESSION)
    assert row is not None
    assert (row.fence, row.revision) == (2, 2)
    assert len(records.operations()) == 2
    assert records.journal("sibling") is not None


def test_a_write_that_was_refused_spoils_nothing_around_it(records: RecordStore):
    begin(records)
    with records.transaction():
        put_operation(records)
        conflict(put_operation, records)
        conflict(put, records, fence=2, claim="live", expected=7)
        conflict(records.put_lease, SESSION, fence=9, claim="live", body=b"", expected=7, now=NOW)
        conflict(records.append_journal, SESSION, rows(1, 5, 1), last=place(1, 4), fence=1)
        records.append_journal(SESSION, rows(1, 2, 1), last=place(1, 1), fence=1)
    assert [row.key for row in records.operations()] == ["c\x001"]
    assert places(records.journal_rows(SESSION)) == [(1, 1), (1, 2)]
    row = records.strand(SESSION)
    assert row is not None
    assert (row.fence, row.revision) == (1, 1)


# --- the floor --------------------------------------------------------------------------------------------


def test_after_a_restore_no_fence_below_the_floor_is_granted(records: RecordStore):
    put(records, fence=7, claim="live")
    state = records.state()
    assert state.fence_floor == 0
    restored = records.mark_restored()
    assert restored == records.state()
    assert restored.store_id == state.store_id
    assert restored.fence_floor > 7
    below = conflict(put, records, fence=8, claim="reserved", expected=1)
    assert below.code == FENCE_FLOOR
    assert conflict(records.put_lease, SESSION, fence=8, claim="reserved", body=b"", expected=1, now=NOW).code == (
        FENCE_FLOOR
    )
    assert conflict(put, records, OTHER, fence=1, claim="reserved").code == FENCE_FLOOR
    assert records.strand(OTHER) is None
    assert put(records, fence=7, claim="live", expected=1) == 2
    assert put(records, fence=restored.fence_floor, claim="reserved", expected=2) == 3
    assert put(records, fence=restored.fence_floor + 1, claim="reserved", expected=3) == 4
    assert records.mark_restored().fence_floor > restored.fence_floor + 1


# --- the ledger -------------------------------------------------------------------------------------------


def test_an_operation_comes_back_as_it_was(records: RecordStore):
    assert records.operation("c\x001") is None
    assert put_operation(records) == 1
    row = records.operation("c\x001")
    assert row is not None
    assert (row.key, row.caller, row.fingerprint, row.state) == ("c\x001", "c", "f" * 64, "pending")
    assert (row.session, row.expires_ms, row.body, row.revision) == (SESSION, 1000, b"op\x00\xff", 1)
    assert put_operation(records, state="failed", session=None, expires_ms=2000, body=b"", expected=1) == 2
    row = records.operation("c\x001")
    assert row is not None
    assert (row.state, row.session, row.expires_ms, row.body, row.revision) == ("failed", None, 2000, b"", 2)


def test_of_two_that_read_a_pending_operation_one_claims_it(records: RecordStore):
    put_operation(records)
    assert put_operation(records, state="running", expected=1) == 2
    assert conflict(put_operation, records, state="running", expected=1).concerns["found"] == 2
    conflict(put_operation, records)
    conflict(put_operation, records, expected=2, fingerprint="0" * 64)
    conflict(put_operation, records, expected=2, caller="d")
    conflict(put_operation, records, key="none", expected=1)
    row = records.operation("c\x001")
    assert row is not None
    assert (row.state, row.revision) == ("running", 2)


def test_operations_are_found_counted_and_dropped(records: RecordStore):
    put_operation(records, key="a\x001", state="succeeded", expires_ms=10)
    put_operation(records, key="a\x002", state="pending", expires_ms=10)
    put_operation(records, key="b\x001", state="failed", expires_ms=20, session=OTHER)
    put_operation(records, key="\ud800", state="unknown", expires_ms=10, session=None)
    assert records.count_operations("a") == OperationCounts(2, 4)
    assert records.count_operations("none") == OperationCounts(0, 4)
    assert [row.key for row in records.operations(caller="a")] == ["a\x001", "a\x002"]
    assert [row.key for row in records.operations(session=OTHER)] == ["b\x001"]
    assert [row.key for row in records.operations(states=("pending", "unknown"))] == ["a\x002", "\ud800"]
    assert records.drop_operations(10, ("succeeded", "failed", "unknown")) == 0
    assert records.drop_operations(11, ()) == 0
    assert records.drop_operations(11, ("succeeded", "failed", "unknown")) == 2
    assert [row.key for row in records.operations()] == ["a\x002", "b\x001"]


# --- journals ---------------------------------------------------------------------------------------------


def test_a_journal_grows_without_gaps(records: RecordStore):
    assert (records.journal(SESSION), records.journal_rows(SESSION)) == (None, ())
    put(records, fence=1, claim="live")
    first = rows(1, 1, 1)
    records.rewrite_journal(SESSION, first, strand=SESSION, fence=1, expected=None, identity=b"\x00who")
    records.append_journal(SESSION, rows(1, 2, 2), last=place(1, 1), fence=1)
    records.append_journal(SESSION, (), last=place(1, 3), fence=1)
    records.append_journal(SESSION, rows(1, 4, 200), last=place(1, 3), fence=1)
    assert records.journal_rows(SESSION) == (*first, *rows(1, 2, 202))
    head = records.journal(SESSION)
    assert head is not None
    assert (head.name, head.strand, head.place, head.identity) == (SESSION, SESSION, place(1, 203), b"\x00who")
    assert records.journals(SESSION) == (head,)
    assert records.journals(OTHER) == ()


def test_an_append_that_saw_another_end_is_refused(records: RecordStore):
    begin(records, 3)
    for last in (place(1, 2), place(1, 4), place(2, 3)):
        for count in (1, 100):
            conflict(
                records.append_journal,
                SESSION,
                rows(last.epoch, last.sequence + 1, count),
                last=last,
                fence=1,
            )
    conflict(records.append_journal, "none", rows(1, 2, 1), last=place(1, 1), fence=1)
    assert places(records.journal_rows(SESSION)) == [(1, 1), (1, 2), (1, 3)]


def test_a_journal_is_written_at_the_fence_of_its_strand_or_not_at_all(records: RecordStore):
    begin(records, 2, fence=3)
    put(records, fence=4, claim="live", expected=1)
    for count in (1, 100):
        stale = conflict(records.append_journal, SESSION, rows(1, 3, count, fence=3), last=place(1, 2), fence=3)
        assert (stale.code, stale.concerns["expected"], stale.concerns["found"]) == (FENCE_MOVED, 3, 4)
    roll: dict[str, Any] = {"strand": SESSION, "fence": 3, "expected": place(1, 2)}
    assert conflict(records.rewrite_journal, SESSION, rows(2, 1, 1, fence=3), **roll).code == FENCE_MOVED
    missing: dict[str, Any] = {"strand": OTHER, "fence": 3, "expected": None}
    assert conflict(records.rewrite_journal, OTHER, rows(1, 1, 1, fence=3), **missing).code == FENCE_MOVED
    assert places(records.journal_rows(SESSION)) == [(1, 1), (1, 2)]
    records.append_journal(SESSION, rows(1, 3, 1, fence=4), last=place(1, 2), fence=4)
    assert places(records.journal_rows(SESSION)) == [(1, 1), (1, 2), (1, 3)]


def test_a_new_epoch_takes_the_place_of_the_old_one(records: RecordStore):
    begin(records, 5)
    records.rewrite_journal(SESSION, rows(2, 1, 3), strand=SESSION, fence=1, expected=place(1, 5), identity=b"new")
    assert records.journal_rows(SESSION) == rows(2, 1, 3)
    head = records.journal(SESSION)
    assert head is not None
    assert (head.place, head.identity) == (place(2, 3), b"new")
    for expected in (None, place(1, 5), place(2, 2)):
        conflict(records.rewrite_journal, SESSION, rows(3, 1, 1), strand=SESSION, fence=1, expected=expected)
    put(records, OTHER, fence=1, claim="live")
    conflict(records.rewrite_journal, SESSION, rows(3, 1, 1), strand=OTHER, fence=1, expected=place(2, 3))
    assert records.journal_rows(SESSION) == rows(2, 1, 3)


def test_a_cut_keeps_the_sound_prefix(records: RecordStore):
    begin(records, 5)
    records.rewrite_journal(
        SESSION, rows(1, 3, 4, kind="lifecycle"), strand=SESSION, fence=1, expected=place(1, 5), keep=place(1, 2)
    )
    assert records.journal_rows(SESSION) == (*rows(1, 1, 2), *rows(1, 3, 4, kind="lifecycle"))
    head = records.journal(SESSION)
    assert head is not None
    assert head.place == place(1, 6)
    records.rewrite_journal(SESSION, (), strand=SESSION, fence=1, expected=place(1, 6), keep=place(1, 1))
    assert records.journal_rows(SESSION) == rows(1, 1, 1)
    records.append_journal(SESSION, rows(1, 2, 1), last=place(1, 1), fence=1)


def test_a_reader_goes_on_from_its_cursor(records: RecordStore):
    begin(records, 6)
    assert places(records.journal_rows(SESSION, after=place(1, 4))) == [(1, 5), (1, 6)]
    assert records.journal_rows(SESSION, after=place(1, 6)) == ()
    assert places(records.journal_rows(SESSION, after=place(1, 0), limit=2)) == [(1, 1), (1, 2)]
    assert places(records.journal_rows(SESSION, limit=1)) == [(1, 1)]
    assert records.journal_rows(SESSION, after=place(1, 7)) is None
    assert records.journal_rows("none", after=place(1, 0)) is None
    records.rewrite_journal(SESSION, rows(2, 1, 1), strand=SESSION, fence=1, expected=place(1, 6))
    assert records.journal_rows(SESSION, after=place(1, 4)) is None
    assert records.journal_rows(SESSION, after=place(2, 1)) == ()


def test_removing_a_thread_takes_its_journals(records: RecordStore):
    begin(records, 3)
    records.rewrite_journal("sibling", rows(1, 1, 1), strand=SESSION, fence=1, expected=None)
    put_operation(records)
    records.remove_thread(THREAD, expected=1)
    assert (records.journals(SESSION), records.journal_rows(SESSION), records.journal_rows("sibling")) == ((), (), ())
    assert records.strand(SESSION) is None
    assert records.operation("c\x001") is not None, "an outcome is remembered without its session"


# --- bytes ------------------------------------------------------------------------------------------------


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(bodies=st.lists(st.binary(max_size=300), min_size=1, max_size=4))
def test_bodies_nobody_can_read_survive_every_other_write(records: RecordStore, bodies: list[bytes]):
    if records.thread(THREAD) is not None:
        found = records.thread(THREAD)
        assert found is not None
        records.remove_thread(THREAD, expected=found.revision)
    records.drop_operations(2**53, ("pending", "succeeded"))
    for number, body in enumerate(bodies):
        put(records, f"unread-{number:04}", body=body, fence=1, claim="conflicted")
        put_operation(records, key=f"u\x00{number}", body=body)
    begin(records)
    unread = [JournalRow(1, n, "item", n, 1, body) for n, body in enumerate(bodies, 2)]
    records.append_journal(SESSION, unread, last=place(1, 1), fence=1)
    put(records, expected=1, fence=2, claim="live", body=b"2")
    records.put_lease(SESSION, fence=2, claim="released", body=b"3", expected=2, now=LATER)
    put_operation(records, key="o")
    put_operation(records, key="o", state="succeeded", expected=1)
    for number, body in enumerate(bodies):
        row = records.strand(f"unread-{number:04}")
        assert row is not None
        assert (row.body, row.revision) == (body, 1)
        operation = records.operation(f"u\x00{number}")
        assert operation is not None
        assert operation.body == body
    there = records.journal_rows(SESSION)
    assert there is not None
    assert [row.body for row in there[1:]] == bodies
