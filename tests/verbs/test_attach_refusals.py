"""Refusals of attach that need a world to happen in."""

import msgspec
import pytest

from clew.platform import faults
from clew.verbs.leases import HELD
from live_world import CONVERSATION, SESSION, change_record, other_process, refused, with_lease


def test_a_resumed_conversation_without_a_history_is_a_disagreement(world):
    world.seat().release()
    (world.home / f"{CONVERSATION}.jsonl").unlink()
    head = world.leases.store.journal(SESSION)
    rows = world.leases.store.journal_rows(SESSION)[:1]
    with world.leases.transaction():
        first = [msgspec.structs.replace(rows[0], fence=world.lease.fence)]
        world.leases.store.rewrite_journal(SESSION, first, strand=SESSION, fence=world.lease.fence, expected=head.place)
    change_record(world, lambda record: with_lease(record, checkpoint=None))
    world.adapter.history = lambda handle, home: None
    with refused("journal_unreadable", "unavailable"):
        world.attach()
    assert world.lease.is_free


def test_a_seat_whose_owner_is_another_says_so(world, another):
    seat = world.seat()
    change_record(world, lambda record: with_lease(record, holder=other_process(world)))
    with refused("conflict", "owner_alive"):
        seat.send("hello")


def test_waiting_for_an_unproved_reservation_names_what_is_missing(another, world):
    with faults.installed("attach.reserved=raise"), pytest.raises(faults.InjectedFault):
        world.attach()
    HELD.clear()
    change_record(world, lambda record: with_lease(record, holder=None, independent=True, renewed_at=0))
    two = another()
    two.leases.observer._activity = lambda record: None
    with refused("ownership_unknown", "owner_unproven"):
        two.attach()
    assert two.lease.fence == 1


def test_an_operation_that_cannot_be_read_holds_up_only_its_own_replay(world):
    asked = world.request()
    with faults.installed("attach.reserved=raise"), pytest.raises(faults.InjectedFault):
        world.attach(asked)
    HELD.clear()
    store = world.leases.store
    (row,) = store.operations(session=SESSION)
    with world.leases.transaction():
        kept = {name: getattr(row, name) for name in ("caller", "fingerprint", "state", "session", "expires_ms")}
        store.put_operation(row.key, **kept, body=b"\0", expected=row.revision)
    with refused("operation_unknown", "outcome_unknown"):
        world.attach(asked)
    assert world.attach().fence == 3
    assert store.operation(row.key).body == b"\0"
