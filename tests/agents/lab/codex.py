"""Drives the real Codex, headless, against the fake model.

Every function takes the HOME it works in (a throw-away one) and a folder to stand in; it returns what was
sent to the model (`Seen`). A session is one `codex app-server`; `resume` and `fork` are one-shot runs (`codex
exec`), as a user's would be. Codex refuses to resume a thread under another provider than the recorded one,
so that the recorded name is pointed at the fake model.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from agents.install import find_agent
from agents.lab.model import FakeModel
from agents.lab.packed import decompress
from agents.lab.process import SECONDS, AgentProcess, Finished, base_env, run
from agents.lab.script import Script
from agents.lab.seen import PROBE, Seen, find_prompt, from_responses_api

__all__ = [
    "AppServer",
    "CodexSession",
    "Session",
    "compact",
    "fork",
    "list_sessions",
    "recorded",
    "resume",
    "rollouts",
    "start",
]

AGENT = "codex"

PROVIDER = "lab"

MODEL = "gpt-5.5"
"""A model of the built-in catalogue that calls tools directly."""

INSTRUCTIONS = "You are a test agent.\n"

Prompt = str | Sequence[dict[str, Any]]
"""A text, or input items of the app-server: {type: text, text} and {type: image, url}."""


class Refused(Exception):
    """The app-server answered with an error; the message is its own."""


def binary() -> Path:
    """Returns the agent's binary. Raises FileNotFoundError where it is not installed."""
    found = find_agent(AGENT)
    if found is None:
        raise FileNotFoundError("Codex is not installed: run python tests/agents/install.py codex")
    return found


def environment(home: Path) -> dict[str, str]:
    """Returns the whole environment of a run."""
    keys = ("LAB_KEY", "CODEX_API_KEY", "OPENAI_API_KEY")
    return base_env(home) | dict.fromkeys(keys, "sk-fake-000")


def overrides(model: FakeModel, home: Path, provider: str, name: str) -> Iterator[str]:
    """Yields the `-c` options of a run."""
    instructions = home / ".codex" / "lab-instructions.md"
    instructions.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    instructions.write_text(INSTRUCTIONS)
    served = (
        f'{{name="lab",base_url="{model.url}/v1",wire_api="responses",env_key="LAB_KEY",'
        "request_max_retries=0,stream_max_retries=0,supports_websockets=false}"
    )
    settings = {
        "model": json.dumps(name),
        "model_provider": json.dumps(provider),
        "model_instructions_file": json.dumps(str(instructions)),
        "approval_policy": '"never"',
        "sandbox_mode": '"danger-full-access"',
        "check_for_update_on_startup": "false",
        "analytics.enabled": "false",
        "skills.bundled.enabled": "false",
        "openai_base_url": json.dumps(f"{model.url}/v1"),
        f"model_providers.{PROVIDER}": served,
    }
    if provider not in (PROVIDER, "openai"):
        settings[f"model_providers.{provider}"] = served
    for key, value in settings.items():
        yield from ("-c", f"{key}={value}")


def recorded(home: Path, session_id: str | None) -> tuple[str, str]:
    """Returns the provider that a thread's first record names and the model of its last turn, else our own."""
    provider, model = PROVIDER, MODEL
    for path in rollouts(home, session_id) if session_id else ():
        for line in read_rollout(path).split(b"\n"):
            if b'"session_meta"' in line or b'"turn_context"' in line:
                try:
                    record = json.loads(line)
                    provider = record["payload"].get("model_provider") or provider
                    model = record["payload"].get("model") or model
                except (ValueError, KeyError, TypeError, AttributeError):
                    continue  # a damaged record is the agent's business, not ours
    return str(provider), str(model)


def rollouts(home: Path, session_id: str) -> list[Path]:
    """Returns the files of a thread, the oldest first."""
    found: list[Path] = []
    for folder in ("archived_sessions", "sessions"):
        found += sorted((home / ".codex" / folder).rglob(f"rollout-*{session_id}*.jsonl*"))
    return found


def read_rollout(path: Path) -> bytes:
    """Returns a rollout's bytes, unpacked."""
    data = path.read_bytes()
    return decompress(data) if path.suffix == ".zst" else data


def _seen(
    model: FakeModel,
    prompt: str,
    status: int | None,
    events: Sequence[Any],
    session_id: str | None,
    said: str = "",
) -> Seen:
    bodies = tuple(request.body for request in model.turns)
    request, messages, injected = find_prompt(bodies, from_responses_api, prompt)
    replies = [text for event in events if (text := _agent_text(event))]
    return Seen(
        exit=status,
        refusal="" if status == 0 and request is not None else said,
        session_id=session_id,
        messages=tuple(messages),
        injected=tuple(injected),
        request=request,
        requests=bodies,
        reply=replies[-1] if replies else "",
        events=tuple(events),
        prompt=prompt,
    )


def _agent_text(event: Any) -> str:
    item = event.get("item") or (event.get("params") or {}).get("item") or {}
    done = event.get("type") == "item.completed" or event.get("method") == "item/completed"
    return item.get("text") or "" if done and item.get("type") in ("agent_message", "agentMessage") else ""


def _one_shot(
    home: Path, cwd: Path, verb: str, session_id: str, prompt: str, script: Script, seconds: float, name: str | None
) -> Seen:
    with FakeModel(script) as model:
        provider, recorded_name = recorded(home, session_id)
        options = overrides(model, home, provider, name or recorded_name)
        argv = [binary(), "exec", *options, verb, "--json", "--skip-git-repo-check", session_id, prompt]
        done: Finished = run(argv, cwd, environment(home), seconds)
        ids = [event["thread_id"] for event in done.lines if event.get("type") == "thread.started"]
        problems = [str(event.get("message")) for event in done.lines if event.get("type") == "error"]
        said = done.said or "\n".join(problems)
        return _seen(model, prompt, done.status, done.lines, ids[-1] if ids else None, said)


def resume(
    home: Path,
    cwd: Path,
    session_id: str,
    prompt: str = PROBE,
    script: Script = (),
    *,
    seconds: float = SECONDS,
    model: str | None = None,
) -> Seen:
    """Resumes a thread with one prompt, to the end of its turn; with its recorded model where none is named."""
    return _one_shot(home, cwd, "resume", session_id, prompt, script, seconds, model)


def fork(
    home: Path,
    cwd: Path,
    session_id: str,
    prompt: str = PROBE,
    script: Script = (),
    *,
    seconds: float = SECONDS,
    model: str | None = None,
) -> Seen:
    """Forks a thread: the turn goes to a new one, `Seen.session_id`."""
    return _one_shot(home, cwd, "fork", session_id, prompt, script, seconds, model)


def start(
    home: Path,
    cwd: Path,
    prompts: Sequence[Prompt],
    script: Script = (),
    *,
    seconds: float = SECONDS,
    model: str = MODEL,
) -> Seen:
    """Holds a new thread: one turn a prompt, in one app-server. What is seen is the last turn."""
    with FakeModel(script) as fake, CodexSession(home, cwd, fake, name=model) as session:
        for prompt in prompts:
            session.say(prompt, seconds)
        return session.close(seconds)


def compact(home: Path, cwd: Path, session_id: str, script: Script, *, seconds: float = SECONDS) -> Seen:
    """Resumes a thread and has it compacted; the script gives the summary."""
    with FakeModel(script) as model, CodexSession(home, cwd, model, session_id=session_id) as session:
        session.compact(seconds)
        return session.close(seconds)


def list_sessions(home: Path, cwd: Path | None = None, *, seconds: float = SECONDS) -> list[dict[str, Any]]:
    """Returns the threads that the agent lists (for one folder, or for all), newest first, as {id, title, cwd}."""
    params: dict[str, Any] = {"sourceKinds": ["cli", "exec", "vscode", "appServer"], "modelProviders": []}
    if cwd is not None:
        params["cwd"] = str(cwd)
    with FakeModel() as model, AppServer(home, cwd or home, model) as server:
        found = server.call("thread/list", params, seconds)["data"]
        server.process.finish(seconds)
    return [{"id": one["id"], "title": one["name"] or one["preview"], "cwd": one["cwd"]} for one in found]


class AppServer:
    """One `codex app-server`: JSON-RPC over lines, without the member "jsonrpc"."""

    def __init__(self, home: Path, cwd: Path, model: FakeModel, provider: str = PROVIDER, name: str = MODEL) -> None:
        argv = [binary(), *overrides(model, home, provider, name), "app-server"]
        self.process = AgentProcess(argv, cwd, environment(home))
        self._number = 0

    def call(self, method: str, params: Any, seconds: float = SECONDS) -> Any:
        """Returns the result of one request. Raises Refused with the server's own message."""
        self._number += 1
        number = self._number
        self.process.send({"id": number, "method": method, "params": params})
        answer = self.process.receive(
            lambda line: line.get("id") == number and "method" not in line, f"the answer to {method}", seconds
        )
        if answer is None:
            raise Refused(f"the server ended: {self.process.errors[-400:]}")
        if "error" in answer:
            raise Refused(str(answer["error"].get("message")))
        return answer["result"]

    def wait(self, method: str, seconds: float = SECONDS) -> Any:
        """Returns the next notification of that name; None when the server has ended."""
        return self.process.receive(lambda line: line.get("method") == method, method, seconds)

    def __enter__(self) -> Self:
        who = {"clientInfo": {"name": "clew_lab", "title": "lab", "version": "0"}}
        self.call("initialize", who)
        self.process.send({"method": "initialized"})
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.__exit__(kind, error, trace)


class CodexSession:
    """One thread, new or resumed, in an app-server of its own."""

    def __init__(
        self,
        home: Path,
        cwd: Path,
        model: FakeModel,
        *,
        session_id: str | None = None,
        fork: bool = False,
        last_turn: str | None = None,
        name: str | None = None,
    ) -> None:
        self.model = model
        self._cwd = cwd
        self._given = (session_id, fork, last_turn)
        provider, recorded_name = recorded(home, session_id)
        self.server = AppServer(home, cwd, model, provider, name or recorded_name)
        self.session_id = session_id
        self.path: Path | None = None
        self.turns: list[str] = []
        self._prompt = ""

    def _open(self) -> None:
        session_id, fork, last_turn = self._given
        params: dict[str, Any] = {"cwd": str(self._cwd)}
        if session_id is None:
            params |= {"approvalPolicy": "never", "sandbox": "danger-full-access"}
            thread = self.server.call("thread/start", params)["thread"]
        else:
            params |= {"threadId": session_id} | ({"lastTurnId": last_turn} if last_turn else {})
            thread = self.server.call("thread/fork" if fork else "thread/resume", params)["thread"]
        self.session_id = thread["id"]
        self.path = Path(thread["path"]) if thread.get("path") else None

    def send(self, prompt: Prompt) -> str:
        """Sends one message of the user, and does not wait; returns the turn's id."""
        parts = [{"type": "text", "text": prompt}] if isinstance(prompt, str) else list(prompt)
        self._prompt = next((part["text"] for part in parts if part.get("text")), "")
        turn = self.server.call("turn/start", {"threadId": self.session_id, "input": parts})["turn"]
        self.turns.append(turn["id"])
        return str(turn["id"])

    def wait(self, seconds: float = SECONDS) -> Any:
        """Returns the notification that ends the turn; None when the server has ended."""

        def ends(line: Any) -> bool:  # a helper's thread ends turns as well
            return line.get("method") == "turn/completed" and line["params"]["threadId"] == self.session_id

        return self.server.process.receive(ends, "the end of the turn", seconds)

    def say(self, prompt: Prompt, seconds: float = SECONDS) -> Any:
        """Sends one message and waits for the end of its turn."""
        self.send(prompt)
        return self.wait(seconds)

    def interrupt(self, seconds: float = SECONDS) -> Any:
        """Stops the running turn, as the user's Escape does, and waits until it has ended."""
        self.server.call("turn/interrupt", {"threadId": self.session_id, "turnId": self.turns[-1]}, seconds)
        return self.wait(seconds)

    def compact(self, seconds: float = SECONDS) -> Any:
        """Has the thread compacted, and waits until that is done."""
        self.server.call("thread/compact/start", {"threadId": self.session_id}, seconds)
        return self.wait(seconds)

    def revert(self, before_turn: str, seconds: float = SECONDS) -> Any:
        """Takes the thread back to before a turn: the agent writes a second file of the same thread."""
        params = {"threadId": self.session_id, "beforeTurnId": before_turn}
        return self.server.call("thread/revert", params, seconds)

    def kill(self) -> Seen:
        """Ends the process where it stands (SIGKILL)."""
        self.server.process.kill()
        return self.seen(None)

    def close(self, seconds: float = SECONDS) -> Seen:
        """Ends the process by closing its input."""
        return self.seen(self.server.process.finish(seconds))

    def seen(self, status: int | None = None) -> Seen:
        """Returns what was sent to the model, for the last prompt."""
        process = self.server.process
        return _seen(self.model, self._prompt, status, process.lines, self.session_id, process.errors.strip())

    def __enter__(self) -> Self:
        try:
            self.server.__enter__()
            self._open()
        except BaseException:
            self.server.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.server.__exit__(kind, error, trace)


Session = CodexSession
"""The same name in every driver."""
