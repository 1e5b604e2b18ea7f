"""What every adapter promises (clew.host.protocol). A real agent's adapter passes the same tests, by one more entry."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from clew.errors import InDoubt
from clew.host.fake import FakeAdapter, Script, deliveries
from clew.host.protocol import TOKEN_VARIABLE, Accepted, Adapter, Exited, HandshakeFailed, Launch, NotStarted, Payload
from clew.journal.rows import text_fingerprint
from clew.lineage.handle import Handle
from clew.platform.process import carries_token, identify

TOKEN = "0123456789abcdef0123456789abcdef"


class Bench(msgspec.Struct, frozen=True):
    """How an adapter is put to the test: made to behave, and asked what really reached its agent."""

    name: str
    make: Callable[[], Adapter]
    ending: Callable[[], Adapter]
    """One whose agent dies before it answers the handshake."""
    dying: Callable[[], Adapter]
    """One whose agent dies when a message reaches it."""
    missing: Callable[[], Adapter]
    reached: Callable[[Path, str], list[str]]


BENCHES = [
    Bench(
        "fake",
        FakeAdapter,
        lambda: FakeAdapter(Script(die="before-handshake")),
        lambda: FakeAdapter(Script(die="on-receive")),
        lambda: FakeAdapter(Script(missing=True)),
        deliveries,
    )
]


@pytest.fixture(params=BENCHES, ids=lambda bench: bench.name)
def bench(request):
    return request.param


@pytest.fixture
def launch(tmp_path):
    return Launch(token=TOKEN, cwd=str(tmp_path), home=str(tmp_path / "agent"), environment={"PATH": os.defpath})


@pytest.fixture
def children():
    started = []
    yield started
    for child in started:
        child.release()


def start(adapter, launch, children):
    child = adapter.start(launch)
    children.append(child)
    return child


def test_a_child_exists_and_carries_its_token_when_start_returns(bench, launch, children):
    child = start(bench.make(), launch, children)
    assert identify(child.process.pid) == child.process
    assert child.token == TOKEN
    assert carries_token(child.process.pid, TOKEN_VARIABLE, TOKEN)


def test_a_program_that_is_not_there_starts_nothing(bench, launch):
    with pytest.raises(NotStarted):
        bench.missing().start(launch)


def test_the_handshake_proves_a_conversation_of_the_adapters_namespace(bench, launch, children):
    adapter = bench.make()
    proof = start(adapter, launch, children).prove()
    assert proof.handle.namespace == adapter.namespace
    assert proof.origin == "created"
    assert proof.token in (None, TOKEN)


def test_nothing_reaches_the_agent_that_was_not_sent(bench, launch, children):
    child = start(bench.make(), launch, children)
    proof = child.prove()
    child.interrupt()
    assert bench.reached(Path(launch.home), proof.handle.native_id) == []


def test_what_is_sent_reaches_it_once_and_stands_in_its_history(bench, launch, children):
    adapter = bench.make()
    child = start(adapter, launch, children)
    handle = child.prove().handle
    answer = child.send(Payload("m1", b"hello", "hello"))
    assert isinstance(answer, Accepted)
    assert bench.reached(Path(launch.home), handle.native_id) == ["m1"]
    child.release()
    window = adapter.window(handle, launch.home, None)
    assert window is not None
    assert window.boundary_consistent
    assert [item.fingerprint for item in window.items] == [text_fingerprint("hello")]
    assert answer.item_key in (None, window.items[0].item_key)
    assert bench.reached(Path(launch.home), handle.native_id) == ["m1"]


def test_a_resumed_conversation_is_the_same_one(bench, launch, children):
    adapter = bench.make()
    child = start(adapter, launch, children)
    handle = child.prove().handle
    child.send(Payload("m1", b"hello", "hello"))
    child.release()
    again = start(adapter, msgspec.structs.replace(launch, handle=handle), children)
    proof = again.prove()
    assert proof.origin == "resumed"
    assert proof.handle.root == handle.root
    assert bench.reached(Path(launch.home), handle.native_id) == ["m1"]


def test_the_window_begins_behind_the_item_that_is_known(bench, launch, children):
    adapter = bench.make()
    child = start(adapter, launch, children)
    handle = child.prove().handle
    for name in ("m1", "m2"):
        child.send(Payload(name, name.encode(), name))
    child.release()
    everything = adapter.window(handle, launch.home, None)
    assert everything is not None
    first = everything.items[0].item_key
    behind = adapter.window(handle, launch.home, first)
    assert behind is not None
    assert [item.fingerprint for item in behind.items] == [text_fingerprint("m2")]
    lost = adapter.window(handle, launch.home, "an item that is not there")
    assert lost is not None
    assert not lost.boundary_consistent


def test_a_conversation_that_is_not_there_has_no_history(bench, launch):
    adapter = bench.make()
    handle = Handle(adapter.namespace, "never-was")
    assert adapter.window(handle, launch.home, None) is None
    assert adapter.history(handle, launch.home) is None


def test_an_agent_that_ends_before_its_handshake_has_failed_it(bench, launch, children):
    child = start(bench.ending(), launch, children)
    with pytest.raises(HandshakeFailed):
        child.prove()


def test_an_agent_that_dies_over_a_message_leaves_it_in_doubt(bench, launch, children):
    child = start(bench.dying(), launch, children)
    child.prove()
    with pytest.raises(InDoubt):
        child.send(Payload("m1", b"hello", "hello"))
    assert isinstance(child.receive(5.0), Exited)
    assert child.release() in ("exit_proven", "root_exit_observed")


def test_a_kill_from_outside_is_told_as_an_exit(bench, launch, children):
    child = start(bench.make(), launch, children)
    child.prove()
    os.kill(child.process.pid, signal.SIGKILL)
    deadline = time.monotonic() + 10
    event = None
    while not isinstance(event, Exited) and time.monotonic() < deadline:
        event = child.receive(1.0)
    assert isinstance(event, Exited)


def test_release_ends_it_with_proof_and_may_be_called_again(bench, launch, children):
    child = start(bench.make(), launch, children)
    child.prove()
    assert not child.has_exited()
    assert child.release() == "exit_proven"
    assert child.has_exited()
    assert identify(child.process.pid) != child.process
    assert child.release() == "exit_proven"
