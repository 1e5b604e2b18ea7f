"""Processes: who one is, whether it still lives, and which ones carry a token.

Promised: a process is named by boot, pid and start time, never by its pid alone; `dead` is only said on proof
(no such process, another start time, another boot, or a zombie), `alive` only when boot and start time agree,
and `unknown` is everything else. Nothing here signals a process, and time never decides anything.

Linux is read from /proc, where the start time is in clock ticks since the boot and cannot move; elsewhere
psutil gives it (there in hundredths of a second since 1970).
"""

from __future__ import annotations

import os
import select
import sys
import time
from enum import StrEnum
from functools import cache
from pathlib import Path

import msgspec

_LINUX = sys.platform.startswith("linux")
_PROC = Path("/proc")
_POLL_S = 0.02


class ProcessIdentity(msgspec.Struct, frozen=True):
    """Names one process on this machine for good."""

    boot_id: str
    pid: int
    start_ticks: int


class Liveness(StrEnum):
    """What is proved of a process."""

    ALIVE = "alive"
    DEAD = "dead"
    UNKNOWN = "unknown"


class Probe(msgspec.Struct, frozen=True):
    """The verdict on a process, and the evidence as a stable word.

    alive: identity_matched. dead: pid_absent, exited (a zombie), start_differs, boot_differs. unknown: the
    rest.
    """

    liveness: Liveness
    evidence: str


class TokenScan(msgspec.Struct, frozen=True):
    """The processes that carry a token, and the pids of those of this user that would not tell."""

    carrying: tuple[ProcessIdentity, ...]
    unsure: tuple[int, ...]


class _Stat(msgspec.Struct, frozen=True):
    state: str
    start_ticks: int


def identify(pid: int) -> ProcessIdentity | None:
    """Returns the identity of the process that has this pid now; None when there is none, or it does not
    tell."""
    stat = _stat(pid) if pid > 0 else None
    if stat is None or stat.state in "ZX":
        return None
    return ProcessIdentity(boot_id(), pid, stat.start_ticks)


def identify_self() -> ProcessIdentity:
    """Returns the identity of the running process."""
    own = identify(os.getpid())
    assert own is not None, "a running process can be identified"
    return own


def probe(identity: ProcessIdentity) -> Probe:
    """Tells what can be proved of the process with this identity."""
    if identity.pid <= 0:
        return Probe(Liveness.UNKNOWN, "pid_invalid")
    boot = boot_id()
    if not boot or not identity.boot_id:
        return Probe(Liveness.UNKNOWN, "boot_unknown")
    if boot != identity.boot_id:
        return Probe(Liveness.DEAD, "boot_differs")
    try:
        os.kill(identity.pid, 0)
    except ProcessLookupError:
        return Probe(Liveness.DEAD, "pid_absent")
    except PermissionError:
        pass  # Somebody else's process has this pid: it is there.
    except (OSError, OverflowError):
        return Probe(Liveness.UNKNOWN, "not_probed")
    stat = _stat(identity.pid)
    if stat is None:
        return Probe(Liveness.UNKNOWN, "start_unknown")
    if stat.start_ticks != identity.start_ticks:
        return Probe(Liveness.DEAD, "start_differs")
    if stat.state in "ZX":
        return Probe(Liveness.DEAD, "exited")
    return Probe(Liveness.ALIVE, "identity_matched")


def wait_for_exit(identity: ProcessIdentity, timeout_s: float) -> bool:
    """Waits until the process is proved dead, at most `timeout_s` seconds, and tells whether it is."""
    fd = _pidfd(identity.pid)
    try:
        # The identity is judged after the descriptor is open, which pins the process that it was opened for.
        if probe(identity).liveness is Liveness.DEAD:
            return True
        if fd is not None:
            poll = select.poll()
            poll.register(fd, select.POLLIN)
            return bool(poll.poll(max(0, int(timeout_s * 1000))))
    finally:
        if fd is not None:
            os.close(fd)
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        time.sleep(_POLL_S)
        if probe(identity).liveness is Liveness.DEAD:
            return True
    return False


def carries_token(pid: int, name: str, value: str) -> bool | None:
    """Tells whether the environment that a process was started with holds name=value; None when it does not
    tell.

    A process that is gone carries nothing. One may overwrite its own environment: an empty or unreadable one
    is None, never False.
    """
    environment = _environment(pid)
    if not environment:
        return False if environment is None and _is_gone(pid) else None
    return f"{name}={value}".encode() in environment.split(b"\0")


def find_token(name: str, value: str) -> TokenScan | None:
    """Returns which processes of this user carry name=value, or None when processes cannot be listed here."""
    pids = _pids()
    if pids is None:
        return None
    carrying: list[ProcessIdentity] = []
    unsure: list[int] = []
    for pid in pids:
        verdict = carries_token(pid, name, value)
        if verdict is None and _is_own(pid):
            unsure.append(pid)
        elif verdict and (identity := identify(pid)) is not None:
            carrying.append(identity)
    return TokenScan(tuple(carrying), tuple(unsure))


@cache
def boot_id() -> str:
    """Returns a name of the present boot of this machine; empty when there is none to be had."""
    if _LINUX:
        try:
            return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError):
            return ""
    import psutil

    return str(int(psutil.boot_time()))


# --- what the system tells --------------------------------------------------------------------------------


def _stat(pid: int) -> _Stat | None:
    if not _LINUX:
        return _stat_of_psutil(pid)
    try:
        return parse_stat((_PROC / str(pid) / "stat").read_bytes())
    except (OSError, ValueError, IndexError):
        return None


def parse_stat(text: bytes) -> _Stat:
    """Returns state and start time (field 22) of a /proc/PID/stat line.

    The second field is a name in parentheses that may hold blanks and parentheses: what follows the last `) `
    counts.
    """
    fields = text[text.rindex(b") ") + 2 :].split()
    return _Stat(fields[0].decode("ascii"), int(fields[19]))


def _stat_of_psutil(pid: int) -> _Stat | None:
    import psutil

    try:
        process = psutil.Process(pid)
        state = "Z" if process.status() == psutil.STATUS_ZOMBIE else "S"
        return _Stat(state, round(process.create_time() * 100))
    except psutil.Error:
        return None


def _pidfd(pid: int) -> int | None:
    open_pidfd = getattr(os, "pidfd_open", None)
    if open_pidfd is None or pid <= 0:
        return None
    try:
        return int(open_pidfd(pid))
    except OSError:
        return None


def _environment(pid: int) -> bytes | None:
    if pid <= 0:
        return None
    if _LINUX:
        try:
            return (_PROC / str(pid) / "environ").read_bytes()
        except OSError:
            return None
    import psutil

    try:
        pairs = psutil.Process(pid).environ()
    except (psutil.Error, OSError):
        return None
    return b"\0".join(f"{name}={value}".encode("utf-8", "surrogateescape") for name, value in pairs.items())


def _is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        return False
    return False


def _pids() -> tuple[int, ...] | None:
    try:
        if _LINUX:
            return tuple(int(entry.name) for entry in _PROC.iterdir() if entry.name.isdecimal())
        import psutil

        return tuple(psutil.pids())
    except OSError:
        return None


def _is_own(pid: int) -> bool:
    """Tells whether a process is of this user and could tell (a zombie and a kernel thread have no
    environment)."""
    if not _LINUX:
        return _is_own_by_psutil(pid)
    folder = _PROC / str(pid)
    stat = _stat(pid)
    try:
        own = folder.stat().st_uid == os.getuid()
        return own and stat is not None and stat.state not in "ZX" and bool((folder / "cmdline").read_bytes())
    except OSError:
        return False


def _is_own_by_psutil(pid: int) -> bool:
    import psutil

    try:
        return psutil.Process(pid).uids().real == os.getuid()
    except (psutil.Error, OSError):
        return False
