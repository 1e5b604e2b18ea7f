"""Drives the real pi, headless, against the fake model.

Every function takes the HOME it works in (a throw-away one) and a folder to stand in; it returns what was sent to the
model (`Seen`). `resume` and `fork` are one-shot runs, as a user's would be; a session is one long-lived process in rpc
mode. A run outside the session's folder asks whether to fork, and ends with status 0 having done nothing: whether the
model was asked is what counts.
"""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from agents.install import find_agent, find_runner
from agents.lab.model import FakeModel
from agents.lab.process import SECONDS, AgentProcess, base_env, run
from agents.lab.script import Script
from agents.lab.seen import PROBE, Seen, find_prompt, from_chat_api
from agents.lab.terminal import look

__all__ = ["MODEL", "PiSession", "Session", "compact", "fork", "list_sessions", "resume", "start"]

AGENT = "pi"

MODEL = "lab/lab-model"

ATTACHED = "Attached image(s) from tool result:"
"""How the agent opens a message of its own with the images of a result."""

EMPTY = ("(see attached image)", "(no tool output)")
"""What the agent sends for a result without a text."""

PICKED = re.compile(r"^\S*\s*(?P<title>.*?)\s+\d+ (?:now|\d+[a-z]+)$")
"""A session in the picker: its title, how many messages, its age."""

Prompt = str | Sequence[dict[str, Any]]
"""A text, or parts of a prompt (text, image)."""


def program() -> list[str | Path]:
    """Returns the agent's program with what runs it. Raises FileNotFoundError where it is not installed."""
    found, runner = find_agent(AGENT), find_runner(AGENT)
    if found is None or runner is None:
        raise FileNotFoundError("pi is not installed: run python tests/agents/install.py pi")
    return [runner, found]


def environment(home: Path) -> dict[str, str]:
    """Returns the whole environment of a run."""
    return base_env(home) | {"PI_OFFLINE": "1", "PI_SKIP_VERSION_CHECK": "1", "PI_TELEMETRY": "0", "SHELL": "/bin/bash"}


def configure(home: Path, url: str) -> None:
    """Writes the configuration: one provider, which is the fake model."""
    provider, _, name = MODEL.partition("/")
    model = {"id": name, "reasoning": True, "input": ["text", "image"], "contextWindow": 200_000, "maxTokens": 8_000}
    served = {"baseUrl": f"{url}/v1", "api": "openai-completions", "apiKey": "sk-fake-000", "models": [model]}
    folder = home / ".pi" / "agent"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    (folder / "settings.json").write_text(json.dumps({"compaction": {"keepRecentTokens": 1}}))
    (folder / "models.json").write_text(json.dumps({"providers": {provider: served}}))


def read_body(body: Any) -> tuple[list[dict[str, Any]], list[dict[str, str]]]:
    """Reads a request; images of results, which this API takes from a user only, go back to their results."""
    messages, injected = from_chat_api(body)
    out: list[dict[str, Any]] = []
    for message in messages:
        for result in message["tool_results"]:
            result["text"] = "" if result["text"] in EMPTY else result["text"]
        if message["role"] == "user" and message["texts"][:1] == [ATTACHED] and out and out[-1]["role"] == "tool":
            out[-1]["images"].extend(message["images"])
            injected.append({"role": "user", "text": ATTACHED})
        else:
            out.append(message)
    return out, injected


def rehome(home: Path, session_id: str, cwd: Path) -> Path:
    """Moves a session to another folder, as the agent would have made it there; returns its file.

    The agent resumes a session in its own folder only, and a recorded one is nowhere.
    """
    (old,) = home.glob(f".pi/agent/sessions/*/*{session_id}.jsonl")
    folder = old.parent.parent / f"--{str(cwd).lstrip('/').replace('/', '-')}--"
    folder.mkdir(mode=0o700, exist_ok=True)
    head, _, rest = old.read_bytes().partition(b"\n")
    header = json.loads(head) | {"cwd": str(cwd)}
    new = folder / old.name
    new.write_bytes(json.dumps(header, separators=(",", ":")).encode() + b"\n" + rest)
    if new != old:
        old.unlink()
    return new


def _seen(model: FakeModel, prompt: str, status: int | None, events: Sequence[Any], said: str = "") -> Seen:
    bodies = tuple(request.body for request in model.turns)
    request, messages, injected = find_prompt(bodies, read_body, prompt)
    ids = [event["id"] for event in events if event.get("type") == "session"]
    ids += [event["data"]["sessionId"] for event in events if event.get("command") == "get_state"]
    replies = [event["message"] for event in events if event.get("type") == "message_end"]
    texts = [_text(message) for message in replies if message.get("role") == "assistant"]
    return Seen(
        exit=status,
        refusal="" if status == 0 and request is not None else said or "the model was not asked",
        session_id=ids[-1] if ids else None,
        messages=tuple(messages),
        injected=tuple(injected),
        request=request,
        requests=bodies,
        reply=texts[-1] if texts else "",
        events=tuple(events),
        prompt=prompt,
    )


def _text(message: Any) -> str:
    return "".join(block.get("text", "") for block in message.get("content") or [] if block.get("type") == "text")


def _one_shot(home: Path, cwd: Path, prompt: str, script: Script, seconds: float, more: Sequence[str]) -> Seen:
    with FakeModel(script) as model:
        configure(home, model.url)
        argv = [*program(), "--offline", "--model", MODEL, "--mode", "json", "-p", *more, "--", prompt]
        done = run(argv, cwd, environment(home), seconds)
        return _seen(model, prompt, done.status, done.lines, done.said)


def resume(
    home: Path, cwd: Path, session_id: str, prompt: str = PROBE, script: Script = (), *, seconds: float = SECONDS
) -> Seen:
    """Resumes a session (an id, a path) with one prompt, to the end of its turn."""
    return _one_shot(home, cwd, prompt, script, seconds, ["--session", session_id])


def fork(
    home: Path, cwd: Path, session_id: str, prompt: str = PROBE, script: Script = (), *, seconds: float = SECONDS
) -> Seen:
    """Forks a session: the turn goes to a new one, `Seen.session_id`."""
    return _one_shot(home, cwd, prompt, script, seconds, ["--fork", session_id])


def start(home: Path, cwd: Path, prompts: Sequence[Prompt], script: Script = (), *, seconds: float = SECONDS) -> Seen:
    """Holds a new session: one turn a prompt, in one process. What is seen is the last turn."""
    with FakeModel(script) as model, PiSession(home, cwd, model) as session:
        for prompt in prompts:
            session.say(prompt, seconds)
        return session.close(seconds)


def compact(home: Path, cwd: Path, session_id: str, script: Script, *, seconds: float = SECONDS) -> Seen:
    """Resumes a session and has it compacted; the script gives the summary."""
    with FakeModel(script) as model, PiSession(home, cwd, model, session_id=session_id) as session:
        session.compact(seconds)
        return session.close(seconds)


def list_sessions(home: Path, cwd: Path, *, seconds: float = SECONDS) -> list[dict[str, Any]]:
    """Returns what the agent's own picker (`pi --resume`) shows for a folder, as {id, title}, newest first.

    There is no headless list: the picker is looked at on a terminal. It shows no ids (`id` is None); a title is the
    session's name, else its first prompt.
    """
    with FakeModel() as model:
        configure(home, model.url)
        argv = [*program(), "--offline", "--model", MODEL, "--resume"]
        lines = look(argv, cwd, environment(home), lambda screen: "Resume Session" in screen, seconds)
    picked = [PICKED.match(line.strip()) for line in lines]
    return [{"id": None, "title": found["title"]} for found in picked if found]


class PiSession:
    """One long-lived process. Leaving the context ends it, gently (`close`) or not (`kill`)."""

    def __init__(
        self, home: Path, cwd: Path, model: FakeModel, *, session_id: str | None = None, fork: bool = False, **_: Any
    ) -> None:
        configure(home, model.url)
        more = ["--fork" if fork else "--session", session_id] if session_id else []
        self.model = model
        argv = [*program(), "--offline", "--model", MODEL, "--mode", "rpc", *more]
        self.process = AgentProcess(argv, cwd, environment(home))
        self._prompt = ""
        self.ask("get_state")

    def send(self, prompt: Prompt) -> None:
        """Sends one message of the user, and does not wait."""
        parts = [{"type": "text", "text": prompt}] if isinstance(prompt, str) else list(prompt)
        self._prompt = next((part["text"] for part in parts if part["type"] == "text"), "")
        images = [part for part in parts if part["type"] == "image"]
        self.process.send({"type": "prompt", "message": self._prompt} | ({"images": images} if images else {}))

    def wait(self, seconds: float = SECONDS) -> Any:
        """Returns the event that ends the turn; None when the agent has ended."""
        return self.process.receive(
            lambda event: event.get("type") == "agent_settled" or event.get("success") is False,
            "the end of the turn",
            seconds,
        )

    def say(self, prompt: Prompt, seconds: float = SECONDS) -> Any:
        """Sends one message and waits for the end of its turn."""
        self.send(prompt)
        return self.wait(seconds)

    def ask(self, command: str, seconds: float = SECONDS) -> Any:
        """Gives one command of the interface and returns its answer."""
        self.process.send({"type": command})
        return self.process.receive(lambda event: event.get("command") == command, command, seconds)

    def interrupt(self, seconds: float = SECONDS) -> Any:
        """Stops the running turn, as the user's Escape does, and waits until it has ended."""
        self.process.send({"type": "abort"})
        return self.wait(seconds)

    def compact(self, seconds: float = SECONDS) -> Any:
        """Has the session compacted and returns the agent's answer."""
        return self.ask("compact", seconds)

    @property
    def session_id(self) -> str | None:
        """The session's id, once the agent has told it."""
        found = [event["data"] for event in self.process.lines if event.get("command") == "get_state"]
        if not found and self.process.child.poll() is None:
            found = [self.ask("get_state")["data"]]
        return found[-1]["sessionId"] if found else None

    def kill(self) -> Seen:
        """Ends the process where it stands (SIGKILL)."""
        self.process.kill()
        return self.seen(None)

    def close(self, seconds: float = SECONDS) -> Seen:
        """Ends the process by closing its input."""
        self.ask("get_state", seconds)
        return self.seen(self.process.finish(seconds))

    def seen(self, status: int | None = None) -> Seen:
        """Returns what was sent to the model, for the last prompt."""
        return _seen(self.model, self._prompt, status, self.process.lines, self.process.errors.strip())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.__exit__(kind, error, trace)


Session = PiSession
"""The same name in every driver."""
