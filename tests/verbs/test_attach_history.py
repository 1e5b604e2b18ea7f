"""What a crash left in doubt is compared with the agent's own history."""

import os
import signal

import pytest

from clew.host.fake import deliveries
from clew.journal.rows import Dispatch, Submission, text_fingerprint
from clew.verbs.leases import HELD
from live_world import CONVERSATION


def crashed(world, *texts, echo=True):
    """Leaves messages in doubt, as a host that was killed after handing them over; returns their client ids."""
    seat = world.seat()
    ids = []
    for text in texts:
        operation = world.leases.new_operation()
        with world.leases.transaction():
            body = Submission(operation, text_fingerprint(text), text.encode(), plain_text=True)
            seat.journal.append([body, Dispatch(operation, "pending")])
        ids.append(operation)
    os.kill(seat.child.process.pid, signal.SIGKILL)
    seat.child.release()
    HELD.clear()
    return ids


def write_history(world, *entries):
    import json

    world.home.mkdir(exist_ok=True)
    with (world.home / f"{CONVERSATION}.jsonl").open("a") as file:
        for number, (text, client_id) in enumerate(entries):
            entry = {"own_id": f"own-{number}", "role": "user", "text": text, "client_id": client_id}
            file.write(json.dumps(entry) + "\n")


def states(seat, ids):
    return [(seat.journal.standing(one).state, seat.journal.standing(one).reason) for one in ids]


def test_a_message_whose_id_the_history_echoes_is_accepted(world):
    ids = crashed(world, "hello")
    write_history(world, ("hello", ids[0]))
    done = world.attach()
    assert states(done.seat, ids) == [("accepted", None)]
    assert done.unconfirmed == ()


def test_two_equal_texts_get_their_own_by_id(world):
    ids = crashed(world, "same", "same")
    write_history(world, ("same", ids[1]), ("same", ids[0]))
    done = world.attach()
    keys = [done.seat.journal.standing(one).item_key for one in ids]
    assert keys == [f"fake:{CONVERSATION}:own-1", f"fake:{CONVERSATION}:own-0"]


@pytest.mark.parametrize("copies", [1, 2])
def test_two_equal_texts_without_ids_are_ambiguous(world, copies):
    ids = crashed(world, "same", "same")
    write_history(world, *[("same", None)] * copies)
    assert states(world.attach().seat, ids) == [("unknown", "ambiguous_match")] * 2


def test_one_text_with_one_equal_item_is_accepted(world):
    ids = crashed(world, "hello")
    write_history(world, ("hello", None))
    assert states(world.attach().seat, ids) == [("accepted", None)]


def test_absence_proves_nothing_and_nothing_is_sent(world):
    ids = crashed(world, "hello")
    done = world.attach()
    assert states(done.seat, ids) == [("unknown", "unmatched")]
    assert done.unconfirmed == tuple(ids)
    assert deliveries(world.home, CONVERSATION) == []


@pytest.mark.parametrize("way", ["none", "raises"])
def test_without_a_window_attach_goes_on_and_all_stays_unknown(world, monkeypatch, way):
    ids = crashed(world, "hello")
    write_history(world, ("hello", ids[0]))

    def window(*_):
        if way == "raises":
            raise RuntimeError("no history today")

    monkeypatch.setattr(world.adapter, "window", window)
    done = world.attach()
    assert states(done.seat, ids) == [("unknown", "host_restarted")]
