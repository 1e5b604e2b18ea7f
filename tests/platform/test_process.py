"""Who a process is and whether it still lives, on real processes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from clew.platform import host, process
from clew.platform.process import Liveness, identify, identify_self, probe, wait_for_exit

WAIT = "import sys; print('up', flush=True); sys.stdin.read()"


@contextmanager
def child(env: dict[str, str] | None = None) -> Generator[subprocess.Popen[bytes]]:
    with subprocess.Popen(
        [sys.executable, "-S", "-c", WAIT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env
    ) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == b"up\n"
        try:
            yield running
        finally:
            running.kill()


def test_this_process_is_alive_and_stays_the_same():
    own = identify_self()
    assert own.pid == os.getpid()
    assert own == identify_self()
    assert probe(own).liveness is Liveness.ALIVE


def test_a_killed_process_is_dead_before_and_after_it_is_reaped():
    with child() as running:
        identity = identify(running.pid)
        assert identity is not None
        assert probe(identity) == process.Probe(Liveness.ALIVE, "identity_matched")
        assert not wait_for_exit(identity, 0)
        running.kill()
        assert wait_for_exit(identity, 30)
        assert probe(identity) == process.Probe(Liveness.DEAD, "exited")
        assert identify(running.pid) is None
        running.wait(30)
        assert probe(identity) == process.Probe(Liveness.DEAD, "pid_absent")
        assert wait_for_exit(identity, 0)


def test_another_process_with_the_same_pid_is_not_the_one_meant():
    own = identify_self()
    assert probe(msgspec.structs.replace(own, start_ticks=own.start_ticks - 1)).evidence == "start_differs"
    assert probe(msgspec.structs.replace(own, boot_id="other")).evidence == "boot_differs"


def test_what_cannot_be_proved_is_unknown(monkeypatch: pytest.MonkeyPatch):
    own = identify_self()
    assert probe(msgspec.structs.replace(own, pid=0)).liveness is Liveness.UNKNOWN
    assert probe(msgspec.structs.replace(own, pid=-1)).liveness is Liveness.UNKNOWN
    assert probe(msgspec.structs.replace(own, pid=2**80)).liveness is Liveness.UNKNOWN
    assert probe(msgspec.structs.replace(own, boot_id="")).liveness is Liveness.UNKNOWN
    monkeypatch.setattr(process, "_stat", lambda pid: None)
    assert probe(own).liveness is Liveness.UNKNOWN


def test_a_signal_that_is_not_permitted_means_present(monkeypatch: pytest.MonkeyPatch):
    def forbid(pid: int, number: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(process.os, "kill", forbid)
    assert probe(identify_self()).liveness is Liveness.ALIVE


def test_the_name_of_a_process_may_hold_anything():
    line = b"12 (a) b) (c) S 1 12 12 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 777 1 2 3\n"
    stat = process.parse_stat(line)
    assert (stat.state, stat.start_ticks) == ("S", 777)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc")
def test_the_start_time_agrees_with_the_system():
    import psutil

    ticks = identify_self().start_ticks / os.sysconf("SC_CLK_TCK")
    assert abs(psutil.Process().create_time() - psutil.boot_time() - ticks) < 5


def test_psutil_gives_an_identity_where_there_is_no_proc(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(process, "_LINUX", False)
    process.boot_id.cache_clear()
    try:
        with child({"CLEW_TOKEN": "t"}) as running:
            identity = identify(running.pid)
            assert identity is not None
            assert probe(identity).liveness is Liveness.ALIVE
            assert process.carries_token(running.pid, "CLEW_TOKEN", "t") is True
            running.kill()
            assert wait_for_exit(identity, 30)
    finally:
        process.boot_id.cache_clear()


def test_a_token_is_seen_in_the_environment_and_found_among_all():
    with child({"CLEW_TOKEN": "tok-1", "OTHER": "x"}) as running:
        assert process.carries_token(running.pid, "CLEW_TOKEN", "tok-1") is True
        assert process.carries_token(running.pid, "CLEW_TOKEN", "tok") is False
        assert process.carries_token(running.pid, "TOKEN", "tok-1") is False
        scan = process.find_token("CLEW_TOKEN", "tok-1")
        assert scan is not None
        assert [found.pid for found in scan.carrying] == [running.pid]
        running.kill()
        running.wait(30)
        assert process.carries_token(running.pid, "CLEW_TOKEN", "tok-1") is False


def test_an_environment_that_tells_nothing_is_no_proof(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(process, "_environment", lambda pid: b"")
    assert process.carries_token(os.getpid(), "A", "b") is None
    monkeypatch.setattr(process, "_environment", lambda pid: None)
    assert process.carries_token(os.getpid(), "A", "b") is None
    monkeypatch.setattr(process, "_pids", lambda: (os.getpid(),))
    assert process.find_token("A", "b") == process.TokenScan((), (os.getpid(),))


def test_the_process_list_may_be_unavailable(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(process, "_pids", lambda: None)
    assert process.find_token("A", "b") is None


def test_waiting_works_without_a_descriptor_of_the_process(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(process, "_pidfd", lambda pid: None)
    with child() as running:
        identity = identify(running.pid)
        assert identity is not None
        assert not wait_for_exit(identity, 0)
        running.kill()
        assert wait_for_exit(identity, 30)


# --- the host ---------------------------------------------------------------------------------------------


def test_the_id_of_the_host_is_made_once_and_kept(tmp_path: Path):
    path = tmp_path / "data" / "host"
    first = host.host_id(path)
    assert len(first) == 17
    assert host.host_id(path) == first
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.read_text() == f"{first} {host.machine_fingerprint()}\n"


def test_another_machine_on_the_same_file_is_another_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "host"
    first = host.host_id(path)
    with monkeypatch.context() as patch:
        patch.setattr(host, "machine_fingerprint", lambda: "f" * 32)
        second = host.host_id(path)
        assert second != first
        assert host.host_id(path) == second
    assert host.host_id(path) == first


def test_a_torn_line_of_a_killed_process_names_no_host(tmp_path: Path):
    path = tmp_path / "host"
    path.write_text("h0123")
    first = host.host_id(path)
    assert host.host_id(path) == first
    assert path.read_text().splitlines()[0] == "h0123"
