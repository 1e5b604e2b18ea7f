"""Drives the real Qwen Code, headless, against the fake model.

Every function takes the HOME it works in (a throw-away one) and a folder to stand in; it returns what was sent to the
model (`Seen`). `resume` and `fork` are one-shot runs, as a user's would be; a session is one long-lived process in ACP
mode. The agent looks only at the sessions of the folder that it runs in.
"""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from agents.install import find_agent, find_runner
from agents.lab.acp import AcpClient, Refused
from agents.lab.model import FakeModel
from agents.lab.process import SECONDS, Finished, base_env, run
from agents.lab.script import Script, Step, Text
from agents.lab.seen import PROBE, Seen, find_prompt, from_chat_api

__all__ = [
    "MODEL",
    "QwenSession",
    "Refused",
    "Session",
    "compact",
    "fork",
    "list_sessions",
    "rehome",
    "resume",
    "start",
]

AGENT = "qwen"

MODEL = "qwen3-vl-plus"
"""A name that the agent takes for a model which sees pictures."""

Prompt = str | Sequence[dict[str, Any]]
"""A text, or blocks of a prompt: {type: text, text} and {type: image, mimeType, data}."""

ASIDE = Step([Text("Go on")], when=r"\[SUGGESTION MODE", repeat=True)
"""What is said where the agent asks by itself what the user might say next."""

ATTACHED = "(attached media from previous tool call)"
"""How the agent opens a message of its own with the images of a result."""

ELSEWHERE = "[media attached in following user message]"
"""What the agent sends for a result of images alone."""

GUARD = "\u200b"
"""The sign with which clew guards a text."""


def program() -> list[str | Path]:
    """Returns the agent's program with what runs it. Raises FileNotFoundError where it is not installed."""
    found, runner = find_agent(AGENT), find_runner(AGENT)
    if found is None or runner is None:
        raise FileNotFoundError("Qwen Code is not installed: run python tests/agents/install.py qwen")
    return [runner, found]


OPTIONS = ("-y", "--auth-type", "openai")


def environment(home: Path, url: str) -> dict[str, str]:
    """Returns the whole environment of a run."""
    more = {"OPENAI_API_KEY": "fake-key", "OPENAI_BASE_URL": f"{url}/v1", "OPENAI_MODEL": MODEL}
    more |= {"QWEN_CODE_SUPPRESS_YOLO_WARNING": "1", "SHELL": "/bin/bash", "USER": "dev1"}
    return base_env(home) | more


def configure(home: Path) -> None:
    """Writes the settings: a key, and nothing that reaches out or remembers by itself."""
    settings = {
        "telemetry": {"enabled": False},
        "privacy": {"usageStatisticsEnabled": False},
        "general": {"enableAutoUpdate": False},
        "memory": {"enableManagedAutoMemory": False, "enableManagedAutoDream": False},
        "security": {"auth": {"selectedType": "openai"}},
    }
    path = home / ".qwen" / "settings.json"
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.write_text(json.dumps(settings))


def read_body(body: Any) -> tuple[list[dict[str, Any]], list[dict[str, str]]]:
    """Reads a request; what the agent itself puts before a prompt, and clew's guard, are injected."""
    messages, injected = from_chat_api(body)
    out: list[dict[str, Any]] = []
    for message in messages:
        for result in message["tool_results"]:
            result["text"] = "" if result["text"] == ELSEWHERE else result["text"]
        if message["role"] == "user":
            texts = message["texts"]
            own = [text for before, text in zip(["", *texts], texts, strict=False) if _is_own(before, text)]
            injected += [{"role": "user", "text": text} for text in own]
            message["texts"] = [
                text for before, text in zip(["", *texts], texts, strict=False) if not _is_own(before, text)
            ]
            message["text"] = "".join(message["texts"])
            if ATTACHED in own and out and out[-1]["role"] == "tool":
                out[-1]["images"].extend(message["images"])
                continue
        if any(message[name] for name in ("texts", "tool_calls", "tool_results", "images")):
            out.append(message)
    return out, injected


def _is_own(before: str, text: str) -> bool:
    if text in (GUARD, ATTACHED):
        return True
    return before != GUARD and text.startswith("<system-reminder>") and text.rstrip().endswith("</system-reminder>")


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


def _one_shot(home: Path, cwd: Path, session_id: str, prompt: str, script: Script, seconds: float, *more: str) -> Seen:
    with FakeModel(script) as model:
        configure(home)
        argv = [*program(), *OPTIONS, "--resume", session_id, *more, "-p", prompt]
        done = run(argv, cwd, environment(home, model.url), seconds)
        return _seen(model, prompt, done.status, session_id, done.plain.strip(), done.said)


def resume(
    home: Path, cwd: Path, session_id: str, prompt: str = PROBE, script: Script = (), *, seconds: float = SECONDS * 2
) -> Seen:
    """Resumes a session with one prompt, to the end of its turn."""
    return _one_shot(home, cwd, session_id, prompt, script, seconds)


def fork(
    home: Path, cwd: Path, session_id: str, prompt: str = PROBE, script: Script = (), *, seconds: float = SECONDS * 2
) -> Seen:
    """Forks a session: the turn goes to a new one."""
    return _one_shot(home, cwd, session_id, prompt, script, seconds, "--fork-session")


def compact(home: Path, cwd: Path, session_id: str, script: Script, *, seconds: float = SECONDS * 2) -> Seen:
    """Resumes a session and has it compacted; the script gives the summary."""
    return _one_shot(home, cwd, session_id, "/compress", script, seconds)


def start(
    home: Path, cwd: Path, prompts: Sequence[Prompt], script: Script = (), *, seconds: float = SECONDS * 2
) -> Seen:
    """Holds a new session: one turn a prompt, in one process. What is seen is the last turn."""
    with FakeModel(script) as model, QwenSession(home, cwd, model) as session:
        for prompt in prompts:
            session.say(prompt, seconds)
        return session.close(seconds)


def rehome(home: Path, session_id: str, cwd: Path) -> Path:
    """Makes a stored session one of another folder, which the agent wants to stand in; returns its file."""
    old = next((home / ".qwen" / "projects").glob(f"*/chats/{session_id}.jsonl"))
    was = json.loads(old.read_bytes().split(b"\n", 1)[0])["cwd"]
    new = home / ".qwen" / "projects" / re.sub("[^A-Za-z0-9]", "-", str(cwd)) / "chats" / old.name
    new.parent.mkdir(parents=True, exist_ok=True)
    spelled = [b'"cwd":' + json.dumps(one, ensure_ascii=False).encode() for one in (was, str(cwd))]
    new.write_bytes(old.read_bytes().replace(*spelled))
    old.unlink()
    return new


def list_sessions(home: Path, cwd: Path, *, seconds: float = SECONDS * 2) -> list[dict[str, Any]]:
    """Returns the sessions that the agent lists for a folder, as {id, title}, newest first."""
    with FakeModel() as model:
        configure(home)
        done = run([*program(), "sessions", "list", "--json"], cwd, environment(home, model.url), seconds)
        rows = [row for row in done.lines if isinstance(row, dict)]
        return [{"id": row.get("sessionId"), "title": row.get("customTitle") or row.get("prompt")} for row in rows]


class QwenSession:
    """One long-lived process in ACP mode. Leaving the context ends it, gently (`close`) or not (`kill`)."""

    def __init__(self, home: Path, cwd: Path, model: FakeModel, *, session_id: str | None = None, **_: Any) -> None:
        configure(home)
        self.model, self.session_id = model, session_id
        self.client = AcpClient([*program(), *OPTIONS, "--acp"], cwd, environment(home, model.url))
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


Session = QwenSession
"""The same name in every driver."""


class QwenRuns:
    """A session that is there already, gone on with in one-shot runs: only they fork, and only they compact."""

    def __init__(self, home: Path, cwd: Path, model: FakeModel, *, session_id: str, fork: bool = False) -> None:
        configure(home)
        self.home, self.cwd, self.model = home, cwd, model
        self.session_id = session_id
        self._fork = fork

    def say(self, prompt: str, seconds: float = SECONDS * 2) -> Finished:
        """Gives one prompt and waits for the end of its turn."""
        more = ["--fork-session"] if self._fork else []
        before = self._sessions()
        argv = [*program(), *OPTIONS, "--resume", self.session_id, *more, "-p", prompt]
        done = run(argv, self.cwd, environment(self.home, self.model.url), seconds)
        if self._fork:
            (self.session_id,) = self._sessions() - before
            self._fork = False
        return done

    def _sessions(self) -> set[str]:
        return {path.stem for path in self.home.glob(".qwen/projects/*/chats/*.jsonl")}

    def compact(self) -> Finished:
        """Has the session compacted; the script gives the summary."""
        return self.say("/compress")

    def close(self) -> None:
        """Nothing runs any more."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return


Runs = QwenRuns
"""How a session is opened that is to be forked or compacted."""
