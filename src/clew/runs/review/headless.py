"""Agents as they run without a terminal: one fresh session for each question, bounded in time.

A question goes in on stdin, so that no length limit of a command line cuts it. Agents are asked to read only: Claude
Code gets its reading tools and neither the settings of the folder under review nor any server, Codex its read-only
sandbox. The environment is handed in and cleaned of what makes an agent believe it runs inside another one.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol, cast

from msgspec import Struct

from clew.errors import HostError, UsageError
from clew.runs.admission import AGENT_PREFIX
from clew.runs.lineage import Target
from clew.runs.log import SessionRef
from clew.runs.operation import ItemContext, ItemFailed, Usage
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


class HeadlessAgent(Protocol):
    """How one agent is called without a terminal."""

    name: str

    def arguments(self, program: str, model: str, session_id: str, folder: Path) -> tuple[str, ...]:
        """Returns the command line; the question comes on stdin."""
        ...

    def read(self, stdout: bytes, session_id: str) -> Answer:
        """Returns the answer in what it wrote; raises ItemFailed when there is none."""
        ...


class ClaudeHeadless:
    """Claude Code: `claude -p`, one JSON object at the end."""

    name = "claude"

    def arguments(self, program: str, model: str, session_id: str, folder: Path) -> tuple[str, ...]:
        """Returns the command line: reading tools only, the user's settings only, no servers, no slash commands."""
        tools = "Read,Grep,Glob"
        fixed = ("-p", "--output-format", "json", "--session-id", session_id, "--tools", tools, "--allowedTools", tools)
        safe = ("--setting-sources", "user", "--strict-mcp-config", "--disable-slash-commands")
        return (program, *fixed, *safe, *(("--model", model) if model else ()))

    def read(self, stdout: bytes, session_id: str) -> Answer:
        """Returns the text of the `result` object."""
        told = _last_object(stdout)
        session = SessionRef(self.name, _string(told, "session_id") or session_id)
        usage = _claude_usage(told.get("usage"))
        text = _string(told, "result")
        if told.get("is_error") or told.get("type") != "result" or not text:
            why = text or _string(told, "subtype") or "no result in what it wrote"
            raise ItemFailed("provider", f"claude gave no answer: {why}", usage=usage, session=session)
        return Answer(text, usage, _main_model(told.get("modelUsage")), session)


class CodexHeadless:
    """Codex: `codex exec --json`, one event a line."""

    name = "codex"

    def arguments(self, program: str, model: str, session_id: str, folder: Path) -> tuple[str, ...]:
        """Returns the command line: read-only sandbox; Codex chooses the session's id itself."""
        fixed = ("exec", "--json", "--sandbox", "read-only", "--skip-git-repo-check", "--color", "never")
        return (program, *fixed, "--cd", str(folder), *(("--model", model) if model else ()), "-")

    def read(self, stdout: bytes, session_id: str) -> Answer:
        """Returns the last agent message of the turn."""
        text, why, usage = "", "no answer in what it wrote", Usage()
        session: SessionRef | None = None
        for event in _objects(stdout):
            kind = event.get("type")
            if kind == "thread.started" and (thread := _string(event, "thread_id")):
                session = SessionRef(self.name, thread)
            elif kind == "item.completed":
                item = _members(event.get("item"))
                if item.get("type") == "agent_message":
                    text = _string(item, "text") or text
            elif kind == "turn.completed":
                usage = _codex_usage(event.get("usage"))
            elif kind == "turn.failed":
                why, text = _string(_members(event.get("error")), "message") or why, ""
            elif kind == "error":
                why = _string(event, "message") or why
        if not text:
            raise ItemFailed("provider", f"codex gave no answer: {why}", usage=usage, session=session)
        return Answer(text, usage, "", session)


HEADLESS: dict[str, HeadlessAgent] = {agent.name: agent for agent in (ClaudeHeadless(), CodexHeadless())}
"""The agents that can be asked without a terminal, by their short names."""


def get_headless(name: str) -> HeadlessAgent:
    """Returns how an agent is called; raises UsageError for one that cannot be asked without a terminal here."""
    try:
        return HEADLESS[name]
    except KeyError:
        raise UsageError(
            f"{name!r} cannot be asked without a terminal", hint=f"Take one of: {', '.join(sorted(HEADLESS))}."
        ) from None


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

    def ask(self, question: str, folder: Path | None, context: ItemContext) -> Answer:
        """Returns the agent's answer; raises ItemFailed, with the session where it is known."""
        assert folder is not None, "an agent is asked in a folder"
        session_id = self._new_uuid()
        try:
            done = self._launch(
                self._agent.arguments(self._program, self.target.model, session_id, folder),
                stdin=question.encode("utf-8", "replace"),
                cwd=folder,
                environment=self._environment,
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


# --- what agents write ------------------------------------------------------------------------------------


def _objects(data: bytes) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for line in data.splitlines():
        with contextlib.suppress(ValueError, RecursionError):
            members = _members(json.loads(line))
            if members:
                found.append(members)
    return found


def _last_object(data: bytes) -> dict[str, Any]:
    try:
        whole: object = json.loads(data)
    except (ValueError, RecursionError):
        return (_objects(data) or [{}])[-1]
    # Some versions write the list of all messages; its last member is the result.
    return _members(cast("list[object]", whole)[-1] if isinstance(whole, list) and whole else cast("object", whole))


def _members(value: object) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _string(members: Mapping[str, Any], name: str) -> str:
    value = members.get(name)
    return value if isinstance(value, str) else ""


def _count(members: Mapping[str, Any], *names: str) -> int:
    values = [members.get(name) for name in names]
    return sum(value for value in values if isinstance(value, int) and value > 0)


def _claude_usage(value: object) -> Usage:
    told = _members(value)
    read = _count(told, "input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
    return Usage(read, _count(told, "output_tokens"))


def _codex_usage(value: object) -> Usage:
    # Its cached input is part of its input.
    return Usage(_count(_members(value), "input_tokens"), _count(_members(value), "output_tokens"))


def _main_model(value: object) -> str:
    told = _members(value)
    return max(told, key=lambda name: _count(_members(told[name]), "outputTokens"), default="")
