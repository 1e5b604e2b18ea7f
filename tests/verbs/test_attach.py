"""Attach, with real processes: who gets a session, and what an operation's id is worth."""

import os
import signal

import msgspec
import pytest

from clew.host.fake import Script
from clew.lease.ledger import make_operation_id
from clew.lease.record import AccountHome, Location
from clew.lineage.handle import Handle, Namespace
from clew.platform import faults
from clew.verbs.leases import HELD
from live_world import SESSION, at_fence, refused


def test_an_attach_creates_proves_and_answers(world):
    done = world.attach()
    assert (done.replayed, done.fence, done.unconfirmed) == (False, 1, ())
    assert done.report.trigger == "new"
    lease = world.lease
    assert (lease.claim, lease.stage, lease.fence) == ("live", None, 1)
    assert lease.owner.pid == done.seat.child.process.pid
    record = world.leases.view(SESSION).record
    assert len(record.chain.links) == 1
    assert lease.proven_link_id == record.chain.head.link_id
    rows = world.leases.store.operations(session=SESSION)
    assert [row.state for row in rows] == ["succeeded"]


def test_the_claim_goes_reserved_reserved_live(world):
    seen = {}

    def note(name):
        return lambda: seen.setdefault(name, (world.lease.claim, world.lease.owner is not None))

    with faults.installed(
        attach__reserved=note("reserved"), attach__committed=note("committed"), attach__proved=note("proved")
    ):
        world.attach()
    assert seen == {"reserved": ("reserved", False), "committed": ("reserved", True), "proved": ("live", True)}


def test_a_child_with_another_token_is_not_the_owner(folder, another):
    world = another(Script(token="somebody else's"))
    with refused("ownership_unknown", "spawn_identity_mismatch"):
        world.attach()
    lease = world.lease
    assert (lease.claim, lease.stage, lease.fence) == ("released", None, 2)
    assert lease.evidence.kind == "exit_observed"


def test_a_handle_of_another_agent_is_a_malformed_call(world):
    foreign = Handle(Namespace("other", "other"), "x")
    with refused("operation_invalid", "request_malformed"):
        world.attach(world.request(handle=foreign))
    assert world.adapter.started == 0


def test_creating_with_a_fence_and_creating_over_an_owner(world):
    with refused("checkpoint_stale", "record_missing"):
        world.attach(world.request(expected_fence=at_fence(3)))
    world.attach()
    with refused("conflict", "session_exists"):
        world.attach(world.request(expected_fence=None))


@pytest.mark.parametrize(
    "field",
    ["account_home", "workspace", "kind", "container", "host"],
)
def test_another_identity_is_refused_even_with_proof_of_death(world, field):
    world.seat().release()
    asked = world.request()
    place = asked.location
    fields = {
        "account_home": {"account_home": AccountHome("base", "/elsewhere")},
        "workspace": {"location": Location(place.host, "/elsewhere", "folder")},
        "kind": {"location": Location(place.host, place.workspace, "git_worktree")},
        "container": {"location": Location(place.host, place.workspace, "folder", "box")},
        "host": {"location": Location("h2", place.workspace, "folder")},
    }[field]
    with refused("conflict", "identity_mismatch"):
        world.attach(world.request(**fields))
    assert world.adapter.started == 1


def test_of_two_against_a_dead_owner_one_is_granted(world, another):
    first = world.seat()
    os.kill(first.child.process.pid, signal.SIGKILL)
    first.child.release()
    HELD.clear()
    two = another()
    fence = world.leases.judge(SESSION).lease.fence
    asked = world.request(expected_fence=fence)
    late = two.request(expected_fence=fence)
    world.attach(asked)
    with refused("checkpoint_stale", "fence_stale"):
        two.attach(late)
    assert two.adapter.started == 0


def test_the_same_operation_again_is_a_replay_and_another_call_a_conflict(world):
    asked = world.request()
    first = world.attach(asked)
    again = world.attach(asked)
    assert again.replayed
    assert again.fence == first.fence
    assert world.adapter.started == 1
    assert len(world.leases.store.operations(session=SESSION)) == 1
    other = world.request(operation_id=asked.operation_id, runtime_kind="other")
    with refused("operation_conflict", "operation_id_reused"):
        world.attach(other)


def test_a_refused_reservation_leaves_everything_as_it_was(world):
    world.seat()
    before = world.leases.store.strand(SESSION), world.leases.store.operations()
    with refused("conflict", "owner_alive"):
        world.attach()
    assert (world.leases.store.strand(SESSION), world.leases.store.operations()) == before


def test_a_full_disk_inside_the_commit_shows_the_old_state(world, url):
    if url is not None:
        pytest.skip("the fault point is the SQLite store's")
    world.make_thread()
    with faults.installed("store.before-commit=raise:ENOSPC"), pytest.raises(OSError, match="space"):
        world.attach()
    assert world.leases.store.strand(SESSION) is None
    assert world.leases.store.operations() == ()
    assert world.adapter.started == 0
    assert world.attach().fence == 1


def test_a_passed_deadline_changes_nothing_and_proof_does(world, another):
    from datetime import timedelta

    from clew.platform.clock import FixedClock

    seat = world.seat()
    late = another(clock=FixedClock(world.leases.clock.now() + timedelta(hours=1)))
    with refused("conflict", "owner_alive"):
        late.attach()
    assert late.lease.fence == 1
    os.kill(seat.child.process.pid, signal.SIGKILL)
    seat.child.release()
    view = late.leases.judge(SESSION)
    assert (view.kind, view.lease.fence, view.lease.evidence.kind) == ("evicted", 2, "pid_absent")


def test_a_wrong_fingerprint_leaves_no_row(world):
    with refused("operation_conflict", "fingerprint_mismatch"):
        world.attach(world.request(fingerprint="0" * 64))
    assert world.leases.store.operations() == ()
    seat = world.seat()
    operation = world.leases.new_operation()
    with refused("operation_conflict", "fingerprint_mismatch"):
        seat.send("hello", operation, declared="0" * 64)
    assert world.leases.store.operation(operation) is None
    assert seat.send("hello", operation).state == "accepted"


def test_options_may_differ_between_an_attempt_and_its_retry(world):
    asked = world.request()
    world.attach(asked)
    assert world.attach(msgspec.structs.replace(asked, options=(("model", "other"),))).replayed


def test_ids_of_the_future_and_of_the_day_before(world):
    now = world.leases.now_ms()
    with refused("operation_invalid", "id_future"):
        world.attach(world.request(operation_id=make_operation_id(now + 6 * 60_000, b"\1" * 16)))
    with refused("operation_expired", ""):
        world.attach(world.request(operation_id=make_operation_id(now - 25 * 3_600_000, b"\1" * 16)))


def test_a_caller_that_has_too_many_operations_is_refused_and_none_is_dropped(world):
    from clew.lease.ledger import CALLER_LIMIT, Row

    world.make_thread()
    now = world.leases.now_ms()
    with world.leases.transaction():
        for number in range(CALLER_LIMIT):
            made = make_operation_id(now, number.to_bytes(16, "big"))
            row = Row(
                caller="test",
                operation_id=made,
                fingerprint="f",
                state="succeeded",
                recorded_at=now,
                expires_at=now + 1_000_000,
            )
            world.leases.put_operation(row, None)
    with refused("operation_capacity", ""):
        world.attach()
    assert world.leases.store.count_operations("test").caller == CALLER_LIMIT
