"""Drives the real Gemini CLI, headless, against the fake model.

Every function takes the HOME it works in (a throw-away one) and a folder to stand in; it returns what was sent to the
model (`Seen`). `resume` is a one-shot run, as a user's would be; a session is one long-lived process in ACP mode. The
agent has no way to fork, and looks only at the sessions of the folder that it runs in.
"""

import json
import re
import uuid
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from agents.install import find_agent, find_runner
from agents.lab.acp import AcpClient, Refused
from agents.lab.model import FakeModel
from agents.lab.process import SECONDS, Finished, base_env, run
from agents.lab.running import Running
from agents.lab.script import Script
from agents.lab.seen import PROBE, Seen, find_prompt, from_gemini_api

__all__ = [
    "MODEL",
    "GeminiRuns",
    "GeminiSession",
    "Refused",
    "Session",
    "list_sessions",
    "read_body",
    "rehome",
    "resume",
    "start",
]

AGENT = "gemini"

MODEL = "gemini-2.5-pro"

LISTED = re.compile(r"^\s+\d+\. (?P<title>.*) \([^()]*\) \[(?P<id>[^\]]+)\]$", re.MULTILINE)

Prompt = str | Sequence[dict[str, Any]]
"""A text, or blocks of a prompt: {type: text, text} and {type: image, mimeType, data}."""


def program() -> list[str | Path]:
    """Returns the agent's program with what runs it. Raises FileNotFoundError where it is not installed."""
    found, runner = find_agent(AGENT), find_runner(AGENT)
    if found is None or runner is None:
        raise FileNotFoundError("Gemini CLI is not installed: run python tests/agents/install.py gemini")
    return [runner, found, "--skip-trust", "-m", MODEL, "--approval-mode", "yolo"]


def environment(home: Path, url: str) -> dict[str, str]:
    """Returns the whole environment of a run."""
    more = {"GEMINI_API_KEY": "fake-key", "GOOGLE_GEMINI_BASE_URL": url, "SHELL": "/bin/bash", "USER": "dev1"}
    return base_env(home) | more


def configure(home: Path, *, compacts: bool = False) -> None:
    """Writes the settings: a key, and nothing that reaches out; with `compacts` every prompt asks for a compaction."""
    settings: dict[str, Any] = {
        "security": {"auth": {"selectedType": "gemini-api-key"}},
        "telemetry": {"enabled": False},
        "privacy": {"usageStatisticsEnabled": False},
        "general": {"enableAutoUpdate": False},
    }
    if compacts:
        settings["model"] = {"compressionThreshold": 1e-7}
    path = home / ".gemini" / "settings.json"
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.write_text(json.dumps(settings))


def read_body(body: Any) -> tuple[list[dict[str, Any]], list[dict[str, str]]]:
    """Reads a request; the copies of a result that the agent sends after it was resumed are injected."""
    messages, injected = from_gemini_api(body)
    for message in messages:
        once: dict[Any, Any] = {}
        for result in message["tool_results"]:
            if once.setdefault(result["call_id"], result) != result:
                raise AssertionError(f"two results of the call {result['call_id']} differ")
        copies = len(message["tool_results"]) - len(once)
        if copies:
            message["images"] = list(dict.fromkeys(message["images"]))
        message["tool_results"] = list(once.values())
        injected += [{"role": "tool", "text": "a result once more"}] * copies
    return messages, injected


def _seen(model: FakeModel, prompt: str, status: int | None, session_id: str | None, reply: str, said: str) -> Seen:
    bodies = tuple(request.body for request in model.turns)
    request, messages, injected = find_prompt(bodies, read_body, prompt)
    return Seen(
        exit=status,
        refusal="" if status == 0 and request is not None else said or "the model was not asked",
        session_id=session_id,
        messages=tuple(messages),
        injected=tuple(injected),
        request=request,
        requests=bodies,
        reply=reply,
        prompt=prompt,
    )


def resume(
    home: Path, cwd: Path, session_id: str, prompt: str = PROBE, script: Script = (), *, seconds: float = SECONDS * 2
) -> Seen:
    """Resumes a session with one prompt, to the end of its turn."""
    with FakeModel(script) as model:
        configure(home)
        argv = [*program(), "--resume", session_id, "-p", prompt]
        done = run(argv, cwd, environment(home, model.url), seconds)
        return _seen(model, prompt, done.status, session_id, done.plain.strip(), done.said)


def start(
    home: Path, cwd: Path, prompts: Sequence[Prompt], script: Script = (), *, seconds: float = SECONDS * 2
) -> Seen:
    """Holds a new session: one turn a prompt, in one process. What is seen is the last turn."""
    with FakeModel(script) as model, GeminiSession(home, cwd, model) as session:
        for prompt in prompts:
            session.say(prompt, seconds)
        return session.close(seconds)


def rehome(home: Path, session_id: str, cwd: Path) -> Path:
    """Makes a stored session one of another folder, which the agent wants to stand in; returns its file."""
    path = max((home / ".gemini" / "tmp").glob(f"*/chats/session-*{session_id[:8]}.json*"), key=_size)
    slug = path.parent.parent
    for marked in (slug, home / ".gemini" / "history" / slug.name):
        marked.mkdir(parents=True, exist_ok=True)
        (marked / ".project_root").write_text(str(cwd))
    (home / ".gemini" / "projects.json").write_text(json.dumps({"projects": {str(cwd): slug.name}}))
    return path


def _size(path: Path) -> int:
    return path.stat().st_size


def list_sessions(home: Path, cwd: Path, *, seconds: float = SECONDS * 2) -> list[dict[str, Any]]:
    """Returns the sessions that the agent lists for a folder, as {id, title}, oldest first."""
    with FakeModel() as model:
        configure(home)
        done = run([*program(), "--list-sessions"], cwd, environment(home, model.url), seconds)
        return [{"id": found["id"], "title": found["title"]} for found in LISTED.finditer(done.plain)]


class GeminiSession:
    """One long-lived process in ACP mode. Leaving the context ends it, gently (`close`) or not (`kill`)."""

    def __init__(self, home: Path, cwd: Path, model: FakeModel, *, session_id: str | None = None, **_: Any) -> None:
        configure(home)
        self.model, self.session_id = model, session_id
        self.client = AcpClient([*program(), "--acp"], cwd, environment(home, model.url))
        self._prompt = ""
        self._running = 0

    def send(self, prompt: Prompt) -> None:
        """Sends one message of the user, and does not wait."""
        blocks = [{"type": "text", "text": prompt}] if isinstance(prompt, str) else list(prompt)
        self._prompt = next((block["text"] for block in blocks if block["type"] == "text"), "")
        self._running = self.client.start("session/prompt", {"sessionId": self.session_id, "prompt": blocks})

    def wait(self, seconds: float = SECONDS * 2) -> Any:
        """Returns what the agent says at the end of the turn."""
        return self.client.wait(self._running, "the end of the turn", seconds)

    def say(self, prompt: Prompt, seconds: float = SECONDS * 2) -> Any:
        """Sends one message and waits for the end of its turn."""
        self.send(prompt)
        return self.wait(seconds)

    def interrupt(self, seconds: float = SECONDS * 2) -> Any:
        """Stops the running turn, as the user's Escape does, and waits until it has ended."""
        self.client.tell("session/cancel", {"sessionId": self.session_id})
        return self.wait(seconds)

    def kill(self) -> Seen:
        """Ends the agent at once (SIGKILL)."""
        self.client.process.kill()
        return self.seen()

    def close(self, seconds: float = SECONDS) -> Seen:
        """Ends the process by closing its input."""
        return self.seen(self.client.process.finish(seconds))

    def seen(self, status: int | None = None) -> Seen:
        """Returns what was sent to the model, for the last prompt."""
        said = self.client.process.errors.strip()
        return _seen(self.model, self._prompt, status, self.session_id, "", said)

    def __enter__(self) -> Self:
        try:
            self.client.__enter__()
            where = {"cwd": str(self.client.cwd), "mcpServers": []}
            if self.session_id is None:
                self.session_id = self.client.call("session/new", where, SECONDS)["sessionId"]
            else:
                self.client.call("session/load", where | {"sessionId": self.session_id}, SECONDS)
        except BaseException:
            self.client.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.client.__exit__(kind, error, trace)


class GeminiRuns(Running):
    """A session of one-shot runs, one process a prompt: in ACP mode all calls of a turn are kept in one message."""

    def __init__(
        self,
        home: Path,
        cwd: Path,
        model: FakeModel,
        *,
        session_id: str | None = None,
        compacts: bool = False,
        **_: Any,
    ) -> None:
        configure(home, compacts=compacts)
        self.home, self.cwd, self.model = home, cwd, model
        self.session_id = session_id or str(uuid.uuid4())
        self._option = "--resume" if session_id else "--session-id"
        self._last: tuple[str, Finished | None] = ("", None)

    def say(self, prompt: str, seconds: float = SECONDS * 2) -> Finished:
        """Gives one prompt and waits for the end of its turn."""
        done = run(self._command(prompt), self.cwd, environment(self.home, self.model.url), seconds)
        self._last = (prompt, done)
        return done

    def _command(self, prompt: str) -> list[str | Path]:
        option, self._option = self._option, "--resume"
        return [*program(), option, self.session_id, "-p", prompt]

    def send(self, prompt: str) -> None:
        """Gives one prompt, and does not wait."""
        self.begin(self._command(prompt), self.cwd, environment(self.home, self.model.url))

    def close(self) -> Seen:
        """Returns what was sent to the model, for the last prompt."""
        prompt, done = self._last
        status, said = (None, "") if done is None else (done.status, done.said)
        return _seen(self.model, prompt, status, self.session_id, "", said)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing runs any more."""


Session = GeminiRuns
"""The same name in every driver."""

AcpSession = GeminiSession
"""The same name in every driver that has one."""
