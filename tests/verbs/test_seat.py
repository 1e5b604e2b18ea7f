"""A seat: what is sent is durable first, handed over once, and only written by the one who has the lease."""

import os
import signal

import pytest

from clew.errors import InDoubt
from clew.host.fake import Script, deliveries
from clew.journal.submissions import timeline
from clew.lease.declare import declare_gone
from clew.lease.transitions import Standing
from clew.platform import faults
from clew.verbs.journaling import read_journal
from live_world import CONVERSATION, SESSION, refused


def test_a_message_is_durable_then_handed_over_then_settled(world, folder):
    seat = world.seat()
    seen = {}

    def note(name):
        def run():
            states = [s.state for s in seat.journal.standings]
            seen[name] = (states, deliveries(world.home, CONVERSATION))

        return run

    with faults.installed(
        send__recorded=note("recorded"), send__claimed=note("claimed"), send__answered=note("answered")
    ):
        sent = seat.send("hello")
    assert sent.state == "accepted"
    assert seen["recorded"] == (["queued"], [])
    assert seen["claimed"] == (["pending"], [])
    assert seen["answered"] == (["pending"], [sent.client_id])
    again = seat.send("hello", sent.client_id)
    assert (again.state, again.replayed) == ("accepted", True)
    assert deliveries(world.home, CONVERSATION) == [sent.client_id]


def test_a_rejected_message_stays_rejected_and_was_not_delivered(world, another):
    """Scenario 82."""
    seat = world.seat()
    sent = seat.send("reject this")
    assert (sent.state, sent.reason) == ("rejected", "not now")
    seat.release()
    two = another()
    again = two.seat()
    assert again.journal.standing(sent.client_id).state == "rejected"
    assert again.send("reject this", sent.client_id).state == "rejected"
    assert deliveries(world.home, CONVERSATION) == []


def test_a_message_without_an_answer_is_in_doubt_and_never_sent_again(another):
    world = another(Script(die="recorded"))
    seat = world.seat()
    with pytest.raises(InDoubt) as raised:
        seat.send("hello")
    client_id = str(raised.value.concerns["operation"])
    with refused("operation_unknown", "outcome_unknown"):
        seat.send("hello", client_id)
    assert seat.unconfirmed == (client_id,)
    seat.pump(1.0)
    assert seat.ended == "exited"
    assert world.lease.evidence.kind == "exit_observed"
    two = another()
    done = two.attach()
    assert done.unconfirmed == ()  # the agent's history has it: one message, not two
    assert done.seat.journal.standing(client_id).state == "accepted"
    assert [b.standing.client_id for b in timeline(done.page) if b.standing] == [client_id]
    assert deliveries(world.home, CONVERSATION) == [client_id]


def test_the_agents_own_copy_lands_in_the_users_message(world):
    seat = world.seat()
    sent = seat.send("hello")
    while not any(type(event).__name__ == "TurnEnded" for event in seat.pump(2.0)):
        pass
    bubbles = timeline(seat.journal.rows)
    assert [b.standing.client_id if b.standing else b.item.body for b in bubbles] == [sent.client_id, b"heard hello"]


def test_an_exit_that_was_seen_frees_the_session(world, another):
    seat = world.seat()
    os.kill(seat.child.process.pid, signal.SIGKILL)
    while not seat.ended:
        seat.pump(1.0)
    assert world.lease.is_free
    assert world.lease.settlement_retry is None
    assert world.attach().fence == 3


def test_renewing_needs_proof_and_the_lease(world, another):
    seat = world.seat()
    seat.renew()
    os.kill(seat.child.process.pid, signal.SIGKILL)
    seat.child.release()
    with refused("ownership_unknown", "owner_unproven"):
        seat.renew()


def test_a_seat_that_lost_its_lease_can_write_nothing(world, another):
    seat = world.seat()
    two = another(host="h0000000000000002")
    view = two.leases.view(SESSION)
    with two.leases.change(SESSION, view.lease.fence) as change:
        standing = Standing(view.lease.fence, reconciled=False, now=0)
        change.record = declare_gone(
            change.record, standing, gone=world.leases.here.host, here=two.leases.here.host, by="me"
        )
    rows = read_journal(two.leases, SESSION)
    for act in (lambda: seat.send("late"), seat.renew):
        with refused("checkpoint_stale", "lease_moved"):
            act()
    assert read_journal(two.leases, SESSION) == rows
    assert deliveries(world.home, CONVERSATION) == []
