"""Agents as they run without a terminal: one fresh session for each question, bounded in time.

How each agent is called and what it writes is in agents.py; here it is launched, heard and ended. The environment is
handed in and cleaned of what makes an agent believe it runs inside another one.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal, Protocol

from msgspec import Struct

from clew.errors import HostError
from clew.runs.admission import AGENT_PREFIX
from clew.runs.lineage import Target
from clew.runs.operation import ItemContext, ItemFailed
from clew.runs.review.asking import MAX_ANSWER_BYTES, Answer

_POLL_S = 0.2
_GRACE_S = 3.0

_INSIDE_ANOTHER = (
    "CLAUDECODE",
    "CLAUDE_CODE_ENTRYPOINT",
    "CLAUDE_CODE_SSE_PORT",
    "CLAUDE_CODE_SESSION_ID",
    "CLAUDE_PROJECT_DIR",
    "CODEX_SANDBOX",
    "CODEX_SANDBOX_NETWORK_DISABLED",
    "CODEX_THREAD_ID",
    "OLDPWD",
    "PWD",
)


class Finished(Struct, frozen=True):
    """How a launched program ended, and what it wrote."""

    ended: Literal["exit", "timeout", "cancelled"]
    status: int
    stdout: bytes
    stderr: bytes


class Launch(Protocol):
    """Starts a program, feeds it, waits for its end within the item's time, and leaves no process behind."""

    def __call__(
        self, argv: Sequence[str], *, stdin: bytes, cwd: Path, environment: Mapping[str, str], context: ItemContext
    ) -> Finished: ...


def launch_process(
    argv: Sequence[str], *, stdin: bytes, cwd: Path, environment: Mapping[str, str], context: ItemContext
) -> Finished:
    """Runs a program in a process group of its own; on timeout and cancellation the whole group is ended.

    Raises HostError when it cannot be started.
    """
    try:
        process = subprocess.Popen(
            list(argv),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=cwd,
            env=dict(environment),
            start_new_session=True,
        )
    except OSError as error:
        raise HostError(
            f"{argv[0]} cannot be started: {error.strerror}",
            code="agent_missing",
            hint="`clew agents` shows which agents are installed.",
        ) from error
    given: bytes | None = stdin
    try:
        while True:
            try:
                out, err = process.communicate(given, timeout=_POLL_S)
                return Finished("exit", process.returncode, out, err)
            except subprocess.TimeoutExpired:
                given = None
            ended = _must_end(context)
            if ended is not None:
                out, err = _end(process)
                return Finished(ended, process.returncode, out, err)
    finally:
        if process.poll() is None:
            _end(process)


def _must_end(context: ItemContext) -> Literal["timeout", "cancelled"] | None:
    if context.cancelled.is_set():
        return "cancelled"
    return "timeout" if context.remaining_s() <= 0 else None


def _end(process: subprocess.Popen[bytes]) -> tuple[bytes, bytes]:
    for sign in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, sign)
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.communicate(timeout=_GRACE_S)
    process.kill()
    return process.communicate()


def agent_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Returns the environment for a headless agent."""
    kept = {
        name: value
        for name, value in environment.items()
        if name not in _INSIDE_ANOTHER and not name.startswith(("GIT_", "CLEW_"))
    }
    return kept | {"NO_COLOR": "1", "TERM": "dumb"}


class Call(Struct, frozen=True):
    """One call of an agent: its command line, what it gets on stdin, what its environment has besides."""

    argv: tuple[str, ...]
    stdin: bytes = b""
    environment: Mapping[str, str] = {}


class HeadlessAgent(Protocol):
    """How one agent is called without a terminal."""

    name: str

    obeys: tuple[str, ...]
    """What of a folder's top it would take settings, servers or addresses from: no commit under review may have it."""

    names_provider: bool
    """Tells whether a model is named `provider/model`."""

    def call(self, program: str, model: str, session_id: str, folder: Path, question: bytes) -> Call:
        """Returns the call; raises ItemFailed when the question cannot be handed over."""
        ...

    def read(self, stdout: bytes, session_id: str) -> Answer:
        """Returns the answer in what it wrote; raises ItemFailed when there is none."""
        ...


class AgentAsker:
    """Asks an agent, each question in a fresh session.

    `program` is the agent's executable, `new_uuid` makes the ids of sessions for agents that take one.
    """

    def __init__(
        self,
        agent: HeadlessAgent,
        *,
        program: str,
        model: str,
        environment: Mapping[str, str],
        new_uuid: Callable[[], str],
        launch: Launch = launch_process,
    ) -> None:
        self._agent = agent
        self._program = program
        self._environment = agent_environment(environment)
        self._new_uuid = new_uuid
        self._launch = launch
        self.target = Target(AGENT_PREFIX + agent.name, model)
        self.protocol = agent.name
        self.host = ""
        self.works_in_folder = True
        self.left_out = agent.obeys

    def ask(self, question: str, folder: Path | None, context: ItemContext) -> Answer:
        """Returns the agent's answer; raises ItemFailed, with the session where it is known."""
        assert folder is not None, "an agent is asked in a folder"
        session_id = self._new_uuid()
        try:
            call = self._agent.call(
                self._program, self.target.model, session_id, folder, question.encode("utf-8", "replace")
            )
            done = self._launch(
                call.argv,
                stdin=call.stdin,
                cwd=folder,
                environment=self._environment | dict(call.environment),
                context=context,
            )
        except HostError as error:
            raise ItemFailed("configuration", error.message, ends_run=True) from error
        return self._read(done, session_id)

    def _read(self, done: Finished, session_id: str) -> Answer:
        name = self._agent.name
        if done.ended != "exit":
            reason = "the item's time was over" if done.ended == "timeout" else "the run was interrupted"
            raise ItemFailed(done.ended, f"{name} was ended: {reason}")
        if len(done.stdout) > MAX_ANSWER_BYTES:
            raise ItemFailed("provider", f"{name} wrote {len(done.stdout)} bytes; {MAX_ANSWER_BYTES} are read")
        try:
            answer = self._agent.read(done.stdout, session_id)
        except ItemFailed as error:
            if done.status and not done.stdout.strip():
                said = done.stderr.decode("utf-8", "replace").strip()[-400:] or "it said nothing"
                raise ItemFailed("provider", f"{name} ended with status {done.status}: {said}") from error
            raise
        if done.status:
            reason = f"{name} ended with status {done.status} after it had answered"
            raise ItemFailed("provider", reason, usage=answer.usage, session=answer.session)
        return answer
