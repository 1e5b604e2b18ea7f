"""Conversations that are adopted, and what an attach that fails leaves behind."""

import msgspec
import pytest

from clew.errors import HostError
from clew.host.fake import Script
from clew.host.protocol import NotStarted, Unsupported
from clew.journal.submissions import timeline
from clew.lease.reserve import reservation_fingerprint
from clew.platform import faults
from clew.verbs.attach import Adoption
from clew.verbs.seat import CLOSING
from live_world import SESSION, ready, refused


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
    world.adapter.refusal = Unsupported("by its owner", "host_disabled")
    with refused("unsupported", "host_disabled"):
        world.attach()
    assert world.leases.store.operations() == ()
    world.adapter.refusal = None
    with (
        faults.installed(attach__reserved=lambda: setattr(world.adapter, "refusal", Unsupported("it is gone"))),
        refused("unsupported", "host_unsupported"),
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
