"""What a restart makes of leases that it finds."""

import msgspec
import pytest

from clew.lease.transitions import renew
from clew.platform import faults
from clew.verbs.leases import HELD
from live_world import SESSION, at_fence, other_process, refused


def test_a_process_that_has_not_judged_a_lease_may_change_nothing(world, another):
    world.seat()
    two = another()
    with refused("owner_reconciling", "host_reconciling"), two.leases.change(SESSION, at_fence(1)) as change:
        change.record = renew(change.record, change.standing, two.leases.observer.owner(change.record.lease.owner))


def test_an_owner_without_its_transport_is_recovering_then_stopped_and_respawned(world, another):
    """Scenario 138: the host is gone, its agent lives."""
    seat = world.seat()
    view = world.leases.view(SESSION)
    orphaned = msgspec.structs.replace(
        view.record, lease=msgspec.structs.replace(view.lease, holder=other_process(world))
    )
    with world.leases.transaction():
        world.leases.put(view, orphaned)
    two = another()
    pid = seat.child.process.pid
    done = two.attach()
    assert done.fence == 3
    assert seat.child.release() == "exit_proven"
    assert two.lease.owner.pid != pid


def test_a_host_that_drives_an_agent_is_left_alone(world, another):
    """Scenario 137: another process opens the store, judges and lists; nothing changes."""
    world.seat()
    before = world.leases.store.strand(SESSION)
    two = another()
    assert two.leases.judge(SESSION).kind == "kept"
    assert two.leases.store.strand(SESSION) == before
    with refused("conflict", "owner_alive"):
        two.attach()


def test_another_hosts_lease_is_never_judged_here(world, another):
    """Scenario 140."""
    world.seat()
    two = another(host="h0000000000000002")
    before = two.leases.store.strand(SESSION)
    with refused("ownership_unknown", "owner_unproven"):
        two.attach(msgspec.structs.replace(world.request()))
    assert two.leases.store.strand(SESSION) == before


def test_a_reservation_that_never_spawned_is_evicted(world, another):
    with faults.installed("attach.reserved=raise"), pytest.raises(faults.InjectedFault):
        world.attach()
    lease = world.lease
    assert lease.claim == "reserved"  # the fault stood outside of what settles: as after a kill
    two = another()
    view = two.leases.judge(SESSION)
    assert view.kind == "in_flight"  # its holder, this very process, lives
    HELD.clear()
    view = world.leases.judge(SESSION)
    assert (view.kind, view.lease.fence, view.lease.reserved_token) == ("evicted", 2, None)
    assert world.attach().fence == 3


def test_an_outcome_survives_a_restart(world, another):
    asked = world.request()
    world.attach(asked)
    assert another().attach(asked).replayed


def test_an_unreadable_record_is_refused_and_survives_other_writes(world, another):
    world.seat().release()
    row = world.leases.store.strand(SESSION)
    broken = row.body.replace(b'"fence":2', b'"fence":"two"')
    assert broken != row.body
    world.leases.store.put_lease(
        SESSION, fence=2, claim="released", body=broken, expected=row.revision, now=world.leases.clock.now()
    )
    two = another()
    with refused("owner_reconciling", "record_unreadable"):
        two.attach(two.request(expected_fence=at_fence(2)))
    assert two.leases.store.strand(SESSION).body == broken
