"""A host that was stopped, declared gone and re-homed, and wakes up again: it can write nothing anywhere."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from clew.host.fake import deliveries
from clew.lease.declare import declare_gone
from clew.lease.lease import Holder
from clew.lease.transitions import Standing
from live_world import CONVERSATION, HOST, SESSION, World
from record_making import own_schema

TESTS = Path(__file__).resolve().parents[1]
OTHER = "h0000000000000002"

HOST_PROGRAM = """
import json, sys
from pathlib import Path
from clew.errors import ClewError
from live_world import World
world = World(Path(sys.argv[1]), url=sys.argv[2] or None)
seat = world.seat()
print(json.dumps({"pid": seat.child.process.pid}), flush=True)
for line in sys.stdin:
    act = line.strip()
    try:
        if act == "send": seat.send("late")
        elif act == "renew": seat.renew()
        elif act == "release": seat.release()
        elif act == "pump": seat.pump(0.1)
        elif act == "attach": world.seat()
        print(json.dumps({"act": act, "done": True}), flush=True)
    except ClewError as error:
        print(json.dumps({"act": act, "code": error.code, "reason": error.concerns.get("reason")}), flush=True)
"""


class Remote:
    """A clew process of another host, which drives an agent."""

    def __init__(self, folder, url):
        env = {"PYTHONPATH": str(TESTS), "PATH": os.defpath, "PYTHONDONTWRITEBYTECODE": "1"}
        self.process = subprocess.Popen(
            [sys.executable, "-c", HOST_PROGRAM, str(folder), url or ""],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=env,
            text=True,
        )
        self.agent = json.loads(self.process.stdout.readline())["pid"]

    def ask(self, act):
        self.process.stdin.write(act + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def close(self):
        self.process.send_signal(signal.SIGCONT)
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait(20)


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def url(request):
    """Where the records lie: in a folder that two hosts share, or on a server."""
    if request.param == "sqlite":
        yield None
        return
    with own_schema() as made:
        yield made


@pytest.fixture
def remote(tmp_path, url):
    made = Remote(tmp_path, url)
    yield made
    made.close()


@pytest.fixture
def here(tmp_path, url):
    made = World(tmp_path, host=OTHER, url=url)
    yield made
    made.close()


def declare(world, gone):
    view = world.leases.view(SESSION)
    with world.leases.change(SESSION, view.lease.fence) as change:
        standing = Standing(view.lease.fence, reconciled=False, now=world.leases.now_ms())
        change.record = declare_gone(change.record, standing, gone=gone, here=world.leases.here.host, by="dev")


def everything(world):
    """All that the store says of the session."""
    store = world.leases.store
    rows = {head.name: store.journal_rows(head.name) for head in store.journals(SESSION)}
    return store.strand(SESSION), rows, store.operations()


def is_stopped(pid):
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "T"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")
def test_a_host_that_wakes_up_after_it_was_declared_gone_writes_nothing(remote, here):
    os.kill(remote.process.pid, signal.SIGSTOP)
    while not is_stopped(remote.process.pid):
        time.sleep(0.01)
    refused = here.leases.judge(SESSION)
    assert refused.kind is None  # another host's lease is read, never judged
    assert refused.record.location.host == HOST
    declare(here, HOST)
    assert here.lease.evidence.kind == "declared"
    seat = here.seat()
    sent = seat.send("from here")
    assert sent.state == "accepted"
    before, reached = everything(here), deliveries(here.home, CONVERSATION)
    os.kill(remote.process.pid, signal.SIGCONT)
    for act in ("send", "renew", "pump"):
        answer = remote.ask(act)
        if act != "pump":
            assert (answer.get("code"), answer.get("reason")) == ("checkpoint_stale", "lease_moved"), answer
    assert "code" in remote.ask("attach")
    assert remote.ask("release") == {"act": "release", "done": True}  # its agent ends; nothing is written
    with pytest.raises(ProcessLookupError):
        os.kill(remote.agent, 0)
    assert everything(here) == before
    assert deliveries(here.home, CONVERSATION) == reached == [sent.client_id]
    assert seat.send("still mine").state == "accepted"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")
def test_woken_in_the_middle_of_a_send_it_records_no_outcome(remote, here):
    """Declared gone between the durable submission and its hand-over: the claim meets the higher fence."""
    view = here.leases.view(SESSION)
    assert view.record.lease.holder.pid == remote.process.pid
    declare(here, HOST)
    answer = remote.ask("send")
    assert (answer["code"], answer["reason"]) == ("checkpoint_stale", "lease_moved")
    assert here.leases.store.operations(caller="", session=SESSION) == ()
    assert deliveries(here.home, CONVERSATION) == []


def test_the_holder_of_a_stopped_process_is_alive(remote, tmp_path, url):
    """Silence is no death: a stopped process of this host keeps its session, however long."""
    os.kill(remote.process.pid, signal.SIGSTOP)
    two = World(tmp_path, holder=Holder(HOST, 1), url=url)
    assert two.leases.judge(SESSION).kind == "kept"
    assert two.lease.fence == 1
    two.close()
