"""Runs one agent as a child: cleaned environment, lines of JSON in and out, bounded in time, ended with all
its children.

Nothing of this process's environment reaches the child. What is ended is only what was started here: the
child by its pid, and the children it has at that moment.
"""

import json
import queue
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

import psutil

__all__ = ["AgentProcess", "TooSlow", "base_env", "end_tree", "run", "wait_for"]

BASE_ENV = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "TERM": "dumb",
    "LANG": "C.UTF-8",
    "LC_ALL": "C.UTF-8",
    "TZ": "UTC",
    "HTTPS_PROXY": "http://127.0.0.1:9",
    "HTTP_PROXY": "http://127.0.0.1:9",
    "NO_PROXY": "127.0.0.1,localhost",
}
"""What every agent gets besides HOME and its keys: proxies that lead nowhere, so that only loopback is
reached.
"""


def base_env(home: Path) -> dict[str, str]:
    """Returns what every agent gets besides its keys; its temporary files lie in a folder of the home as well."""
    scratch = home / ".scratch"
    scratch.mkdir(mode=0o700, parents=True, exist_ok=True)
    return BASE_ENV | {"HOME": str(home), "TMPDIR": str(scratch), "CLAUDE_CODE_TMPDIR": str(scratch)}


SECONDS = 60.0
"""How long an agent may take for one thing, where the caller says nothing else."""


class TooSlow(Exception):
    """An agent did not do in time what was waited for."""


def wait_for(holds: Callable[[], bool], what: str, seconds: float = SECONDS) -> None:
    """Returns when `holds` does; raises TooSlow when that takes too long."""
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            raise TooSlow(f"waited {seconds:g} s for {what}")
        time.sleep(0.02)


def end_tree(child: "subprocess.Popen[bytes]") -> None:
    """Ends a child of ours at once (SIGKILL), then the children it had, and waits for it."""
    try:
        children = psutil.Process(child.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        children = []
    if child.poll() is None:
        child.kill()
    child.wait()
    for one in children:
        try:
            one.kill()
        except psutil.NoSuchProcess:
            pass


class AgentProcess:
    """One running agent. `lines` collects each line of its output that is JSON, in order."""

    def __init__(self, argv: Sequence[str | Path], cwd: Path, env: Mapping[str, str]) -> None:
        self.lines: list[Any] = []
        self.plain: list[str] = []
        self._new: queue.Queue[Any] = queue.Queue()
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 (closed in __exit__)
        self.child = subprocess.Popen(
            [str(part) for part in argv],
            cwd=cwd,
            env=dict(env),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.child.stdout is not None
        for raw in self.child.stdout:
            try:
                value = json.loads(raw)
            except ValueError:
                self.plain.append(raw.decode("utf-8", "replace"))
                continue
            self.lines.append(value)
            self._new.put(value)
        self._new.put(None)

    @property
    def pid(self) -> int:
        """The child's process id."""
        return self.child.pid

    @property
    def errors(self) -> str:
        """What the child has written to stderr."""
        self._errors.seek(0)
        return self._errors.read().decode("utf-8", "replace")

    def send(self, value: Any) -> None:
        """Writes one line of JSON to the child."""
        assert self.child.stdin is not None
        self.child.stdin.write(json.dumps(value).encode() + b"\n")
        self.child.stdin.flush()

    def receive(self, fits: Callable[[Any], bool], what: str, seconds: float = SECONDS) -> Any:
        """Returns the next line that fits, passing over others; None when the output ended. Raises TooSlow."""
        end = time.monotonic() + seconds
        while True:
            try:
                value = self._new.get(timeout=max(0.01, end - time.monotonic()))
            except queue.Empty:
                raise TooSlow(f"waited {seconds:g} s for {what}; stderr: {self.errors[-400:]}") from None
            if value is None:
                self._new.put(None)
                return None
            if fits(value):
                return value

    def finish(self, seconds: float = SECONDS) -> int:
        """Closes the child's input and returns its exit status. Raises TooSlow (the child is then ended)."""
        self._close_input()
        try:
            status = self.child.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            raise TooSlow(f"the agent did not end within {seconds:g} s; stderr: {self.errors[-400:]}") from None
        self._reader.join(timeout=5)
        return status

    def kill(self) -> None:
        """Ends the child at once (SIGKILL), then the children it had."""
        end_tree(self.child)
        self._close_input()
        self._reader.join(timeout=5)

    def _close_input(self) -> None:
        try:
            if self.child.stdin is not None:
                self.child.stdin.close()
        except BrokenPipeError:
            pass

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.child.poll() is None:
            self.kill()
        self._close_input()
        self._reader.join(timeout=5)
        if self.child.stdout is not None:
            self.child.stdout.close()
        self._errors.close()


def run(argv: Sequence[str | Path], cwd: Path, env: Mapping[str, str], seconds: float = SECONDS) -> "Finished":
    """Runs an agent to its end with nothing on its input."""
    with AgentProcess(argv, cwd, env) as process:
        status = process.finish(seconds)
        return Finished(status, process.lines, "".join(process.plain), process.errors)


class Finished:
    """What a finished run left: exit status, lines of JSON, other output, stderr."""

    def __init__(self, status: int, lines: list[Any], plain: str, errors: str) -> None:
        self.status = status
        self.lines = lines
        self.plain = plain
        self.errors = errors

    @property
    def said(self) -> str:
        """What a person would read of it: stderr, else the plain output."""
        return (self.errors.strip() or self.plain.strip())[-2000:]
