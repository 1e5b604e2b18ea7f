"""Children that do not want to end, and processes that are stopped by proof alone."""

import os
import subprocess
import sys

import pytest

from clew.errors import InDoubt
from clew.host.child import stop_process
from clew.host.fake import FakeAdapter, Script
from clew.host.protocol import Launch, Payload
from clew.platform.process import ProcessIdentity, identify


@pytest.fixture
def launch(tmp_path):
    return Launch(token="t", cwd=str(tmp_path), home=str(tmp_path / "agent"), environment={"PATH": os.defpath})


def test_a_stubborn_child_is_ended_all_the_same(launch):
    child = FakeAdapter(Script(stubborn=True, outlives=True)).start(launch)
    child.prove()
    assert child.release() == "exit_proven"


def test_a_silent_agent_leaves_a_message_in_doubt(launch):
    child = FakeAdapter(Script(silent=True, wait_s=0.05)).start(launch)
    child.prove()
    with pytest.raises(InDoubt, match="does not answer"):
        child.send(Payload("m1", b"x", "x"))
    child.release()


def test_a_process_is_only_stopped_when_it_is_that_very_one():
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        identity = identify(process.pid)
        assert identity is not None
        other = ProcessIdentity(identity.boot_id, identity.pid, identity.start_ticks + 1)
        assert stop_process(other)  # that one is dead: nobody has this pid and that start time
        assert process.poll() is None
        assert stop_process(identity)
        assert process.wait(10) != 0
