"""Refusals of attach that need a world to happen in."""

import msgspec
import pytest

from clew.platform import faults
from clew.verbs.leases import HELD
from live_world import CONVERSATION, SESSION, change_record, other_process, refused, with_lease


def test_an_id_that_is_none_is_refused(world):
    with refused("operation_invalid", "id_malformed"):
        world.attach(world.request(operation_id="now"))


def test_two_recorded_owners_are_never_judged(world, another):
    world.seat().release()
    change_record(world, lambda record: with_lease(record, claim="conflicted"))
    with refused("conflict", "claim_conflicted"):
        another().attach()


def test_who_is_just_opening_a_session_is_named(world, another):
    two = another()

    def come_between():
        asked = two.request(expected_fence=two.lease.fence)
        with refused("operation_conflict", "handoff_in_flight"):
            two.attach(asked)

    with faults.installed(attach__reserved=come_between):
        assert world.attach().fence == 1


def test_creating_anew_needs_proof_that_nothing_came_of_the_attempt_before(world, another):
    with faults.installed("attach.reserved=raise"), pytest.raises(faults.InjectedFault):
        world.attach()
    HELD.clear()
    change_record(
        world,
        lambda record: with_lease(record, fence=2, claim="released", stage=None, reserved_token=None, holder=None),
    )
    with refused("ownership_unknown", "previous_exit_unverifiable"):
        world.attach(world.request(expected_fence=None))
    assert world.attach().fence == 3


def test_the_reservation_of_an_operation_that_another_one_took_over(world, another):
    asked = world.request()
    with faults.installed("attach.reserved=raise"), pytest.raises(faults.InjectedFault):
        world.attach(asked)
    HELD.clear()
    row, revision = world.leases.operation(f"{asked.caller}\0{asked.operation_id}")
    world.attach()
    with world.leases.transaction():  # as it was before the other one settled it
        _, now = world.leases.operation(row.key)
        world.leases.put_operation(row, now)
    assert revision != now
    with refused("ownership_unknown", "replay_superseded"):
        world.attach(asked)


def test_an_operation_that_succeeded_is_not_run_again_when_its_session_is_gone(world):
    asked = world.request()
    world.attach(asked).seat.release()
    store = world.leases.store
    thread = store.thread("t0123456789abcdef")
    store.remove_thread(thread.id, expected=thread.revision)
    with refused("ownership_unknown", "record_missing"):
        world.attach(asked)
    assert world.adapter.started == 1


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
