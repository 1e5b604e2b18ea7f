"""Every refusal of the table: the act that provokes it, and what is said: what is missing, and which act supplies it.

Those that only live adapters of real agents can provoke are named in docs/ownership.md, with the reason.
"""

import os
import signal
from pathlib import Path

import msgspec
import pytest

from clew.errors import LeaseError
from clew.host.fake import FAKE
from clew.host.protocol import Proof, Unsupported
from clew.journal.rows import Cursor
from clew.lease.ledger import CALLER_LIMIT, Row, make_operation_id
from clew.lease.record import AccountHome
from clew.lease.refusal import TABLE
from clew.lineage.chain import LINK_LIMIT, Chain, append
from clew.lineage.handle import Handle, Namespace
from clew.lineage.link import Fence, Link
from clew.platform import faults
from clew.verbs.attach import Adoption
from clew.verbs.journaling import read_page
from clew.verbs.leases import HELD
from live_world import (
    CONVERSATION,
    SESSION,
    at_fence,
    change_record,
    fill,
    ready,
    rewrite,
    with_lease,
)

LATER = {("item_revision_stale", ""), ("already_resolved", "")}
ROWS = {}


def provokes(code, reason, *words):
    """Notes the act that provokes a refusal, and words that its message and its hint must have."""

    def note(act):
        assert (code, reason) not in ROWS
        ROWS[code, reason] = (act, words)
        return act

    return note


def reserved_and_killed(world, asked=None):
    """Leaves a reservation as a process does that is killed behind it."""
    with faults.installed("attach.reserved=raise"), pytest.raises(faults.InjectedFault):
        world.attach(asked)
    HELD.clear()


def answering(world, proof):
    """Lets the agent answer its handshake with this."""
    start = world.adapter.start

    def started(launch):
        child = start(launch)
        child.prove = lambda: proof
        return child

    world.adapter.start = started


def store_body(world, change):
    row = world.leases.store.strand(SESSION)
    world.leases.store.put_lease(
        SESSION,
        fence=row.fence,
        claim=row.claim,
        body=change(row.body),
        expected=row.revision,
        now=world.leases.clock.now(),
    )


# --- whether at all -----------------------------------------------------------------------------------------------


@provokes("unsupported", "host_unsupported", "fake cannot be driven here: no such program", "another agent")
def _(world, another):
    world.adapter.refusal = Unsupported("no such program")
    world.attach()


@provokes("unsupported", "host_disabled", "driving fake is switched off here: by the administrator", "Switch it on")
def _(world, another):
    world.adapter.refusal = Unsupported("by the administrator", "host_disabled")
    world.attach()


# --- an old view of the session -----------------------------------------------------------------------------------


@provokes("checkpoint_stale", "fence_stale", "at fence 2 now, this call saw 1", "reload")
def _(world, another):
    world.seat().release()
    world.attach(world.request(expected_fence=at_fence(1)))


@provokes("checkpoint_stale", "lease_moved", "owner changed while this was under way (fence 2)", "Reload")
def _(world, another):
    seat = world.seat()
    os.kill(seat.child.process.pid, signal.SIGKILL)
    seat.child.release()
    HELD.clear()
    assert another().leases.judge(SESSION).kind == "evicted"
    seat.renew()


@provokes("checkpoint_stale", "record_missing", f"{SESSION} is not here any more", "without a fence")
def _(world, another):
    world.attach(world.request(expected_fence=at_fence(3)))


# --- somebody, or something else ----------------------------------------------------------------------------------


@provokes("conflict", "owner_alive", "process {pid} on host", "quit that process")
def _(world, another):
    pid = world.seat().child.process.pid
    another().attach()
    return {"pid": pid}


@provokes("conflict", "identity_mismatch", "another account", "/elsewhere", "fork it")
def _(world, another):
    world.seat().release()
    world.attach(world.request(account_home=AccountHome("base", "/elsewhere")))


@provokes("conflict", "session_exists", f"{SESSION} exists already", "with the fence it shows")
def _(world, another):
    world.seat().release()
    world.attach(world.request(expected_fence=None))


@provokes("conflict", "conversation_held_elsewhere", f"already kept as session {SESSION}", "Open that session")
def _(world, another):
    from clew.lease.reserve import reservation_fingerprint

    world.attach(world.adopting(), transcript=lambda: ready("one"))
    other = msgspec.structs.replace(world.adopting(), session_id="session-live-0002", expected_fence=None)
    other = msgspec.structs.replace(other, fingerprint=reservation_fingerprint(other))
    world.attach(other, transcript=lambda: ready("one"))


@provokes("conflict", "claim_conflicted", "two owners were recorded", "new session from a capture")
def _(world, another):
    world.seat().release()
    change_record(world, lambda record: with_lease(record, claim="conflicted"))
    another().attach()


# --- nobody can prove who -----------------------------------------------------------------------------------------


@provokes("ownership_unknown", "owner_unproven", "cannot prove that process {pid} on host", "has exited", "Quit it")
def _(world, another):
    pid = world.seat().child.process.pid
    another(host="h0000000000000002").attach(world.request())
    return {"pid": pid}


@provokes("ownership_unknown", "no_live_owner", "no agent has this session open", "Attach it first")
def _(world, another):
    seat = world.seat()
    change_record(
        world,
        lambda record: with_lease(record, claim="released", owner=None, holder=None, reserved_token=None),
    )
    seat.send("hello")


@provokes("ownership_unknown", "record_missing", "succeeded, but its session is not here", "not run again")
def _(world, another):
    asked = world.request()
    world.attach(asked).seat.release()
    store = world.leases.store
    thread = store.thread("t0123456789abcdef")
    store.remove_thread(thread.id, expected=thread.revision)
    try:
        world.attach(asked)
    finally:
        assert world.adapter.started == 1


@provokes("ownership_unknown", "replay_superseded", "the reservation of operation", "start a new operation")
def _(world, another):
    asked = world.request()
    reserved_and_killed(world, asked)
    row, revision = world.leases.operation(f"{asked.caller}\0{asked.operation_id}")
    world.attach()
    with world.leases.transaction():  # as it was before the other one settled it
        _, now = world.leases.operation(row.key)
        world.leases.put_operation(row, now)
    assert revision != now
    world.attach(asked)


@provokes("ownership_unknown", "spawn_identity_mismatch", "does not carry the token", "quit it and attach again")
def _(world, another):
    answering(world, Proof(Handle(FAKE, CONVERSATION), "created", "another token"))
    world.attach()


@provokes(
    "ownership_unknown", "previous_exit_unverifiable", "left no proof that its agent has exited", "with its fence"
)
def _(world, another):
    reserved_and_killed(world)
    freed = {"fence": 2, "claim": "released", "stage": None, "reserved_token": None, "holder": None}
    change_record(world, lambda record: with_lease(record, **freed))
    try:
        world.attach(world.request(expected_fence=None))
    except LeaseError:
        assert world.attach().fence == 3
        raise


# --- not yet ------------------------------------------------------------------------------------------------------


@provokes("owner_reconciling", "host_reconciling", "still being looked for", "try again")
def _(world, another):
    world.seat()
    two = another()
    with two.leases.change(SESSION, at_fence(1)) as change:
        from clew.lease.transitions import renew

        change.record = renew(change.record, change.standing, two.leases.observer.owner(change.record.lease.owner))


@provokes("owner_reconciling", "record_unreadable", "cannot be read: ", "fence", "restore a backup")
def _(world, another):
    world.seat().release()
    store_body(world, lambda body: body.replace(b'"fence":2', b'"fence":"two"'))
    another().attach(world.request(expected_fence=at_fence(2)))


# --- operations ---------------------------------------------------------------------------------------------------


@provokes("operation_invalid", "id_malformed", "'now' is no operation id", "32 hex digits")
def _(world, another):
    world.attach(world.request(operation_id="now"))


@provokes("operation_invalid", "id_future", "is dated in the future", "Set the clock right")
def _(world, another):
    world.attach(world.request(operation_id=make_operation_id(world.leases.now_ms() + 6 * 60_000, b"\1" * 16)))


@provokes("operation_invalid", "request_malformed", "a handle of other/other for", "Correct it")
def _(world, another):
    world.attach(world.request(handle=Handle(Namespace("other", "other"), "x")))


@provokes("operation_conflict", "fingerprint_mismatch", "not what its fingerprint says", "Nothing was recorded")
def _(world, another):
    world.attach(world.request(fingerprint="0" * 64))


@provokes("operation_conflict", "operation_id_reused", "was another call", "new id for each call")
def _(world, another):
    asked = world.request()
    world.attach(asked)
    world.attach(world.request(operation_id=asked.operation_id, runtime_kind="other"))


@provokes("operation_conflict", "handoff_in_flight", "process {pid} on host", "just opening", "Wait until it has")
def _(world, another):
    two = another()
    caught = []

    def come_between():
        try:
            two.attach(two.request(expected_fence=two.lease.fence))
        except LeaseError as error:
            caught.append(error)

    with faults.installed(attach__reserved=come_between):
        assert world.attach().fence == 1
    raise caught[0]


@provokes("operation_expired", "", "older than a day and nothing is known of it", "make a new operation")
def _(world, another):
    world.attach(world.request(operation_id=make_operation_id(world.leases.now_ms() - 25 * 3_600_000, b"\1" * 16)))


@provokes("operation_capacity", "", "512 operations are remembered", "none is forgotten early")
def _(world, another):
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
    world.attach()


@provokes("operation_unknown", "outcome_unknown", "nobody knows whether operation", "only if it did not")
def _(world, another):
    seat = world.seat()
    operation = world.leases.new_operation()
    with faults.installed("send.claimed=raise"), pytest.raises(faults.InjectedFault):
        seat.send("hello", operation)
    seat.send("hello", operation)


@provokes("operation_unknown", "result_lost", "was done, its answer is lost", "See what the session holds")
def _(world, another):
    (operation, *_) = fill(world, "one", "two")
    rows = world.leases.store.journal_rows(SESSION)
    rewrite(world, [msgspec.structs.replace(row, body=b"{}") if row.sequence == 2 else row for row in rows])
    two = another()
    two.adapter.history = lambda handle, home: None
    two.seat().send("one", operation)


# --- what the conversation says -----------------------------------------------------------------------------------


@provokes("identity_required", "record_missing", "no conversation to take over", "Choose another session")
def _(world, another):
    world.attach(world.adopting())


@provokes("identity_required", "transcript_not_found", "is not there: /x.jsonl", "Choose another session")
def _(world, another):
    world.attach(world.adopting(), transcript=lambda: Adoption("not_found", (), "/x.jsonl"))


@provokes("identity_required", "transcript_unreadable", "/x.jsonl cannot be read: no record in it", "clew check")
def _(world, another):
    world.attach(world.adopting(), transcript=lambda: Adoption("unreadable", (), "/x.jsonl", "no record in it"))


# --- journals -----------------------------------------------------------------------------------------------------


def with_row(world, change):
    rows = world.leases.store.journal_rows(SESSION)
    rewrite(world, [msgspec.structs.replace(row, body=change(row.body)) if row.sequence == 3 else row for row in rows])


@provokes("journal_unreadable", "corrupt", "damaged from row 3 on", "attach again to rebuild")
def _(world, another):
    fill(world, "one")
    with_row(world, lambda body: b"{}")
    read_page(another().leases, SESSION)


@provokes("journal_unreadable", "unavailable", "cannot be opened: nobody has attached", "nothing was sent")
def _(world, another):
    read_page(world.leases, SESSION, Cursor(1, 1))


@provokes("journal_unreadable", "written_by_newer", "newer clew (schema 9)", "Update clew")
def _(world, another):
    fill(world, "one")
    with_row(world, lambda body: body.replace(b'"schema":1', b'"schema":9'))
    read_page(another().leases, SESSION)


# --- handles ------------------------------------------------------------------------------------------------------


@provokes("handle_invalid", "", "a fork has a new root", "read the agent's session again")
def _(world, another):
    world.seat().release()
    answering(world, Proof(Handle(FAKE, CONVERSATION), "forked"))
    world.attach()


@provokes("handle_provider_mismatch", "", "the link of other/other", "Resume it in the agent it belongs to")
def _(world, another):
    answering(world, Proof(Handle(Namespace("other", "other"), "x"), "created"))
    world.attach()


def chain_of(count, native_id="x"):
    chain = Chain()
    for number in range(count):
        chain = append(chain, link_at(number, native_id))
    return chain


def link_at(fence, native_id="x"):
    return Link(
        link_id=f"l{fence}",
        handle=Handle(FAKE, native_id),
        origin="resumed" if fence else "created",
        minted_at_fence=Fence(fence),
        observed_at=fence,
    )


@provokes("handle_stale_fence", "", "made at fence 1, the chain stands at 2", "took the session over")
def _(world, another):
    append(chain_of(3), link_at(1))


@provokes("handle_forked", "", "resumed 'conversation-1', but the agent went on in 'elsewhere'", "as a fork")
def _(world, another):
    world.seat().release()
    answering(world, Proof(Handle(FAKE, "elsewhere"), "resumed"))
    world.attach()


@provokes("handle_chain_overflow", "", f"the chain has {LINK_LIMIT} links already", "start a new one")
def _(world, another):
    chain_of(LINK_LIMIT + 1)


@pytest.mark.parametrize(("code", "reason"), sorted(ROWS))
def test_the_act_is_refused_in_words_that_help(world, another, code, reason):
    act, words = ROWS[code, reason]
    told = {}
    before = world.leases.here.host
    try:
        told = act(world, another) or {}
    except LeaseError as error:
        refused = error
    else:
        pytest.fail(f"nothing was refused: {told}")
    assert (refused.code, refused.concerns.get("reason", "")) == (code, reason), refused.message
    seen = f"{refused.message} / {refused.hint}"
    pid = refused.concerns.get("pid")
    for word in words:
        assert word.replace("{pid}", str(pid)) in seen, seen
    assert code not in seen.replace(" ", "_") or "_" not in code
    if " on host" in seen:
        assert before in seen
    assert refused.exit_code == 5


def test_every_row_of_the_table_has_its_act_or_says_why_not():
    page = (Path(__file__).parents[2] / "docs" / "ownership.md").read_text("utf-8")
    assert set(ROWS) | LATER == set(TABLE)
    assert not set(ROWS) & LATER
    for code, reason in LATER:
        assert f"`{'/'.join(filter(None, (code, reason)))}`" in page, code
