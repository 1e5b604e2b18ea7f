"""Attach, with real processes: who gets a session, what is refused, what a failure leaves, what a restart settles."""

import os
import signal

import msgspec
import pytest

from clew.errors import HostError, InDoubt, LeaseError
from clew.host.fake import Script, deliveries
from clew.host.protocol import NotStarted
from clew.journal.rows import Dispatch, Submission, text_fingerprint
from clew.journal.submissions import timeline
from clew.lease.declare import declare_gone
from clew.lease.lease import Holder
from clew.lease.ledger import make_operation_id
from clew.lease.record import AccountHome, Location
from clew.lease.reserve import reservation_fingerprint
from clew.lease.transitions import Standing, renew
from clew.lineage.handle import Handle, Namespace
from clew.platform import faults
from clew.verbs.attach import Adoption
from clew.verbs.journaling import read_journal
from clew.verbs.leases import HELD
from clew.verbs.seat import CLOSING
from live_world import CONVERSATION, HOST, SESSION, World, at_fence, ready
from record_making import own_schema


@pytest.fixture
def folder(tmp_path):
    tmp_path.chmod(0o700)
    return tmp_path


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def url(request):
    """Where the records lie: in the folder, or on a server."""
    if request.param == "sqlite":
        yield None
        return
    with own_schema() as made:
        yield made


@pytest.fixture
def world(folder, url):
    made = World(folder, url=url)
    yield made
    made.close()


@pytest.fixture
def another(folder, url):
    """Makes further views of the same folder: other processes, as far as leases go."""
    made = []

    def make(script=None, **options):
        # Another process by name: this very one would hold what it started.
        options.setdefault("holder", Holder(options.get("host", HOST), 1))
        own = World(folder, script, url=url, **options)
        made.append(own)
        return own

    yield make
    for one in made:
        one.close()
    HELD.clear()


def other_process(world, pid=None):
    """A holder that is no living process of this host."""
    here = world.leases.here
    return msgspec.structs.replace(here, pid=pid or 2**22 + 1, start_ticks=1)


class refused:  # noqa: N801 - it reads like pytest.raises
    """Expects a refusal of this code and reason, with a message and an act that helps."""

    def __init__(self, code, reason):
        self.code, self.reason = code, reason

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        assert isinstance(error, LeaseError), error
        assert (error.code, error.concerns.get("reason", "")) == (self.code, self.reason), error.message
        assert error.message
        assert error.hint
        return True


# --- 55 to 67: one owner ----------------------------------------------------------------------------------------


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


# --- 68 to 75: restarts -----------------------------------------------------------------------------------------


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


# --- 76 to 80: operations ---------------------------------------------------------------------------------------


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


# --- sending ----------------------------------------------------------------------------------------------------


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


# --- 81 to 87: what a crash left is compared with the agent's own history ----------------------------------------


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


# --- 88 to 91: adopting, failing, closing ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("transcript", "reason"),
    [
        (Adoption("missing"), "record_missing"),
        (Adoption("not_found", (), "/x.jsonl"), "transcript_not_found"),
        (Adoption("unreadable", (), "/x.jsonl", "no record in it"), "transcript_unreadable"),
        (Adoption("ready", (), "/x.jsonl"), "transcript_unreadable"),
        (None, "record_missing"),
    ],
)
def test_adopting_needs_what_the_conversation_says(world, transcript, reason):
    with refused("identity_required", reason):
        world.attach(world.adopting(), transcript=None if transcript is None else lambda: transcript)
    assert world.leases.store.strand(SESSION) is None
    assert world.leases.store.operations() == ()
    assert world.adapter.started == 0


def test_an_adopted_conversation_is_decoded_once_and_shown(world):
    decoded = []

    def transcript():
        assert world.adapter.started == 0
        decoded.append(1)
        return ready("one", "two")

    done = world.attach(world.adopting(), transcript=transcript)
    assert decoded == [1]
    assert [b.item.body for b in timeline(done.page)] == [b"one", b"two"]
    links = world.leases.view(SESSION).record.chain.links
    assert [link.origin for link in links] == ["adopted"]  # the identical proof is no news


def test_a_conversation_that_another_record_holds_is_not_adopted(world):
    world.attach(world.adopting(), transcript=lambda: ready("one"))
    other = msgspec.structs.replace(world.adopting(), session_id="session-live-0002", expected_fence=None)
    other = msgspec.structs.replace(other, fingerprint=reservation_fingerprint(other))
    with refused("conflict", "conversation_held_elsewhere"):
        world.attach(other, transcript=lambda: ready("one"))


def test_a_failed_import_releases_the_child_once_and_keeps_the_first_error(world):
    with faults.installed("attach.imported=raise"), pytest.raises(faults.InjectedFault, match=r"attach\.imported"):
        world.attach(world.adopting(), transcript=lambda: ready("one"))
    assert world.lease.is_free
    assert world.lease.evidence.kind == "exit_observed"
    assert [row.state for row in world.leases.store.operations(session=SESSION)] == ["failed"]
    assert CLOSING.held_directories() == ()


def test_a_missing_program_settles_as_processless(another):
    world = another(Script(missing=True))
    with pytest.raises(NotStarted):
        world.attach()
    lease = world.lease
    assert (lease.claim, lease.stage, lease.fence, lease.evidence.kind) == ("released", None, 2, "never_spawned")
    assert another().attach().fence == 3


def test_an_agent_that_fails_its_handshake_leaves_a_free_session(another):
    world = another(Script(die="before-handshake"))
    with pytest.raises(HostError):
        world.attach()
    assert world.lease.is_free
    assert world.lease.evidence.kind == "exit_observed"


def test_support_that_drifts_after_the_reservation_is_settled(world, monkeypatch):
    world.adapter.refusal = "switched off"
    with refused("unsupported", "host_unsupported"):
        world.attach()
    assert world.leases.store.operations() == ()
    world.adapter.refusal = ""
    with (
        faults.installed(attach__reserved=lambda: setattr(world.adapter, "refusal", "gone")),
        pytest.raises(NotStarted),
    ):
        world.attach()
    assert world.lease.is_free
    assert world.adapter.started == 0


def test_when_settling_fails_too_both_errors_rise(another, url):
    if url is not None:
        pytest.skip("the fault point is the SQLite store's")
    world = another(Script(die="before-handshake"))
    with (
        faults.installed(attach__committed=lambda: faults.install("store.before-commit=raise")),
        pytest.raises(ExceptionGroup) as raised,
    ):
        world.attach()
    assert isinstance(raised.value.exceptions[0], HostError)
    assert isinstance(raised.value.exceptions[1], faults.InjectedFault)


def test_a_close_that_fails_is_kept_and_the_first_error_rises(world, monkeypatch):
    from clew.verbs.journaling import Journal

    monkeypatch.setattr(Journal, "close", lambda self: (_ for _ in ()).throw(OSError("busy")))
    with faults.installed("attach.published=raise"), pytest.raises(faults.InjectedFault):
        world.attach()
    assert CLOSING.held_directories() == (f"journal {SESSION}",)
    monkeypatch.undo()
    assert CLOSING.retry_all() == ()
    assert CLOSING.held_directories() == ()


# --- 92 to 94: damaged journals ----------------------------------------------------------------------------------


def fill(world, *texts):
    seat = world.seat()
    ids = [seat.send(text).client_id for text in texts]
    seat.release()
    return ids


def rewrite(world, rows):
    head = world.leases.store.journal(SESSION)
    rows = [msgspec.structs.replace(row, fence=world.lease.fence) for row in rows]
    with world.leases.transaction():
        world.leases.store.rewrite_journal(SESSION, rows, strand=SESSION, fence=world.lease.fence, expected=head.place)


def test_a_damaged_journal_keeps_its_sound_part_and_is_rebuilt(world, another):
    fill(world, "one", "two")
    rows = world.leases.store.journal_rows(SESSION)
    broken = [msgspec.structs.replace(row, body=b"{}") if row.sequence == 7 else row for row in rows]
    rewrite(world, broken)
    done = another().attach()
    assert (done.report.trigger, done.report.reset, done.report.epoch) == ("malformed_row", True, 2)
    events = [row.body.detail for row in done.page if row.kind == "lifecycle" and row.body.event == "repaired"]
    assert events
    assert "rows dropped" in events[0]
    assert done.page[0].body.reason == "repaired: malformed_row"


def test_a_journal_of_a_newer_clew_is_left_alone(world, another):
    fill(world, "one")
    rows = list(world.leases.store.journal_rows(SESSION))
    newer = rows[2].body.replace(b'"schema":1', b'"schema":9')
    rows[2] = msgspec.structs.replace(rows[2], body=newer)
    rewrite(world, rows)
    before = read_journal(world.leases, SESSION)
    two = another()
    done = two.attach()
    assert done.report.trigger == "newer_schema"
    assert done.report.imported >= 1
    done.seat.send("two")
    done.seat.release()
    assert read_journal(two.leases, SESSION) == before
    assert len(two.leases.store.journals(SESSION)) == 2


def test_an_unknown_error_of_the_store_is_raised_as_it_is(world, monkeypatch):
    world.make_thread()

    def broken(*_, **__):
        raise ZeroDivisionError("a defect")

    monkeypatch.setattr(world.leases.store, "put_record", broken)
    with pytest.raises(ZeroDivisionError):
        world.attach()


# --- the rest of the refusals -----------------------------------------------------------------------------------


def change_record(world, change):
    """Writes the session's record as an older or a broken clew may have left it."""
    view = world.leases.view(SESSION)
    with world.leases.transaction():
        world.leases.put(view, change(view.record))


def with_lease(record, **fields):
    return msgspec.structs.replace(record, lease=msgspec.structs.replace(record.lease, **fields))


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
