"""A child process that speaks JSON lines: started in a session of its own, read by a thread, ended with proof.

Promises: an exit is only claimed when this process collected it; a signal goes to a process that was pinned by its
descriptor and is that very one, never to a pid alone; nothing here raises while it ends a child. Knows no agent.
"""

from __future__ import annotations

import os
import queue
import select
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from typing import Any, cast

import msgspec

from clew.errors import InDoubt
from clew.host.protocol import NotStarted, Seen
from clew.platform.process import Liveness, ProcessIdentity, identify, probe, wait_for_exit

_KIND_S = 2.0
"""How long a child may take to end by itself after its input was closed, and again after it was asked to."""


class JsonChild:
    """One started child. `None` in `lines` means that its output has ended."""

    def __init__(self, argv: Sequence[str], *, env: Mapping[str, str], cwd: str, kind_s: float = _KIND_S) -> None:
        """Starts it; raises NotStarted when no process exists, or it was gone at once."""
        self._kind_s = kind_s
        try:
            self._popen = subprocess.Popen(
                list(argv),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=dict(env),
                cwd=cwd or None,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            raise NotStarted(f"{argv[0]} cannot be started: {error}", hint="Install the agent.") from error
        identity = identify(self._popen.pid)
        if identity is None:
            self._collect()
            raise NotStarted(f"{argv[0]} ended at once", hint="Start it by hand to see why.")
        self.process = identity
        self.lines: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, name="clew-child", daemon=True)
        self._reader.start()

    def write(self, value: object) -> None:
        """Writes one line; raises InDoubt when the pipe is closed: how much arrived is not known."""
        assert self._popen.stdin is not None, "the child was started with a pipe"
        try:
            self._popen.stdin.write(msgspec.json.encode(value) + b"\n")
            self._popen.stdin.flush()
        except (OSError, ValueError) as error:
            raise InDoubt("the agent's input is closed", hint="Reopen the session.") from error

    def has_exited(self) -> bool:
        """Tells whether its exit was collected."""
        return self._popen.poll() is not None

    def wait(self, timeout_s: float) -> bool:
        """Waits for its exit and tells whether it was collected."""
        try:
            self._popen.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return False
        return True

    def release(self) -> Seen:
        """Closes its input, asks it to end, ends it; says what was seen. Idempotent; never raises."""
        self._close(self._popen.stdin)
        for number in (None, signal.SIGTERM, signal.SIGKILL):
            if self.has_exited():
                break
            if number is not None:
                self._popen.send_signal(number)
            self.wait(self._kind_s)
        if not self.has_exited():
            return "unproven"
        self._reader.join(self._kind_s)
        if not self._reader.is_alive():
            self._close(self._popen.stdout)
        return "root_exit_observed" if self._has_group() else "exit_proven"

    def _has_group(self) -> bool:
        """Tells whether anything is left of the session that the child began."""
        try:
            os.killpg(self._popen.pid, 0)
        except ProcessLookupError:
            return False
        except OSError:
            return True
        return True

    def _read(self) -> None:
        out = self._popen.stdout
        assert out is not None, "the child was started with a pipe"
        try:
            for line in out:
                value = _decoded(line)
                if value is not None:
                    self.lines.put(value)
        except (OSError, ValueError):
            pass
        self.lines.put(None)

    def _collect(self) -> None:
        self._popen.wait()
        self._close(self._popen.stdin)
        self._close(self._popen.stdout)

    def _close(self, stream: Any) -> None:
        try:
            stream.close()
        except OSError:
            pass


def stop_process(identity: ProcessIdentity, kind_s: float = _KIND_S) -> bool:
    """Ends a process that is no child of this one, kindly at first, and tells whether its death is proved.

    The caller has proved who it is; it is pinned by a descriptor and judged again before any signal is sent, so that
    a pid which is used again never gets one. Where the system offers no such descriptor, nothing is signalled.
    """
    pidfd_open = getattr(os, "pidfd_open", None)
    send = getattr(signal, "pidfd_send_signal", None)
    if pidfd_open is None or send is None:
        return probe(identity).liveness is Liveness.DEAD
    try:
        fd = int(pidfd_open(identity.pid))
    except OSError:
        return probe(identity).liveness is Liveness.DEAD
    try:
        for number in (signal.SIGTERM, signal.SIGKILL):
            if probe(identity).liveness is not Liveness.ALIVE:
                break
            send(fd, number)
            if wait_for_exit(identity, kind_s):
                break
        select.select([fd], [], [], 0)
    finally:
        os.close(fd)
    return probe(identity).liveness is Liveness.DEAD


def _decoded(line: bytes) -> dict[str, Any] | None:
    try:
        value: object = msgspec.json.decode(line)
    except msgspec.DecodeError:
        return None
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None
