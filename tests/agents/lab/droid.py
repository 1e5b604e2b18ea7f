"""Drives the real Droid, headless, against the fake model.

Every function takes the HOME it works in (a throw-away one) and a folder to stand in; it returns what was sent to the
model (`Seen`). The one-shot command `droid exec -s` asks the vendor's server for the session first, so that it cannot
be used here; over the Agent Client Protocol the agent opens its own file. `resume` is that: load, one prompt, end.
"""

import json
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from agents.install import find_agent
from agents.lab.model import FakeModel
from agents.lab.process import SECONDS, AgentProcess, base_env
from agents.lab.script import Script
from agents.lab.seen import PROBE, REMINDER, Seen, find_prompt, from_chat_api

__all__ = ["MODEL", "DroidSession", "Session", "list_sessions", "resume", "start"]

AGENT = "droid"

MODEL = "custom:Lab-0"

ATTACHED = "Image content from tool result:"
"""How the agent opens a message of its own with the images of a result."""

Prompt = str | Sequence[dict[str, Any]]
"""A text, or parts of a prompt (text, image)."""


def binary() -> Path:
    """Returns the agent's binary. Raises FileNotFoundError where it is not installed."""
    found = find_agent(AGENT)
    if found is None:
        raise FileNotFoundError("Droid is not installed: run python tests/agents/install.py droid")
    return found


def environment(home: Path) -> dict[str, str]:
    """Returns the whole environment of a run."""
    mine = {"FACTORY_API_KEY": "fk-fake-000", "FACTORY_DROID_AUTO_UPDATE_ENABLED": "false", "SHELL": "/bin/bash"}
    lower = {"https_proxy": "http://127.0.0.1:9", "http_proxy": "http://127.0.0.1:9", "no_proxy": "127.0.0.1,localhost"}
    return base_env(home) | lower | mine


def configure(home: Path, url: str) -> None:
    """Writes the configuration: the fake model, also under the name that the collected sessions were held with."""
    model = {
        "model": "lab-model",
        "displayName": "Lab",
        "baseUrl": f"{url}/v1",
        "apiKey": "sk-fake-000",
        "provider": "generic-chat-completion-api",
        "noImageSupport": False,
        "maxOutputTokens": 8_000,
    }
    folder = home / ".factory"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    defaults = {"model": MODEL, "reasoningEffort": "none", "autonomyMode": "auto-high"}
    told = {"customModels": [model, model | {"displayName": "Fake [Lab]"}], "sessionDefaultSettings": defaults}
    (folder / "settings.json").write_text(json.dumps(told))


def read_body(body: Any) -> tuple[list[dict[str, Any]], list[dict[str, str]]]:
    """Reads a request; images of results, which this API takes from a user only, go back to their results.

    Reminders beside what was typed (the places of attached images) are set apart.
    """
    messages, injected = from_chat_api(body)
    out: list[dict[str, Any]] = []
    for message in messages:
        told = [text for text in message["texts"] if message["role"] == "user" and REMINDER.fullmatch(text)]
        if told:
            injected += [{"role": "user", "text": text} for text in told]
            rest = [text for text in message["texts"] if text not in told]
            message = message | {"texts": rest, "text": "".join(rest)}
        if message["role"] == "user" and message["texts"][:1] == [ATTACHED] and out and out[-1]["role"] == "tool":
            out[-1]["images"].extend(message["images"])
            injected.append({"role": "user", "text": ATTACHED})
        else:
            out.append(message)
    return out, injected


class DroidSession:
    """One long-lived process over the protocol. Leaving the context ends it, gently (`close`) or not (`kill`)."""

    def __init__(self, home: Path, cwd: Path, model: FakeModel, *, session_id: str | None = None, **_: Any) -> None:
        configure(home, model.url)
        self.model = model
        self.cwd = cwd
        self.updates: list[Any] = []
        argv = [binary(), "exec", "--output-format", "acp", "-m", MODEL]
        self.process = AgentProcess(argv, cwd, environment(home))
        self.refusal = ""
        self.session_id = session_id
        self._prompt = ""
        self._count = 0
        self._open(session_id)

    def _open(self, session_id: str | None) -> None:
        files = {"readTextFile": False, "writeTextFile": False}
        told = {"protocolVersion": 1, "clientCapabilities": {"fs": files, "terminal": False}}
        self.call("initialize", told | {"clientInfo": {"name": "lab", "version": "0"}})
        where = {"cwd": str(self.cwd), "mcpServers": []}
        if session_id is None:
            self.session_id = (self.call("session/new", where) or {}).get("sessionId")
        else:
            self.call("session/load", where | {"sessionId": session_id})

    def ask(self, method: str, params: Any) -> int:
        """Sends a request, and does not wait."""
        self._count += 1
        self.process.send({"jsonrpc": "2.0", "id": self._count, "method": method, "params": params})
        return self._count

    def answer(self, number: int, what: str, seconds: float = SECONDS * 2) -> Any:
        """Returns the result of a request, None where it was refused; permissions are given on the way."""
        while True:
            found = self.process.receive(lambda line: isinstance(line, dict), what, seconds)
            if found is None:
                self.refusal = self.refusal or f"{what}: the agent ended"
                return None
            if "method" in found and "id" in found:
                self._permit(found)
            elif found.get("id") == number and "method" not in found:
                if "error" in found:
                    self.refusal = f"{what}: {json.dumps(found['error'])[:400]}"
                return found.get("result")
            elif found.get("method") == "session/update":
                self.updates.append(found["params"]["update"])

    def _permit(self, asked: Any) -> None:
        told: dict[str, Any] = {"error": {"code": -32601, "message": "not supported"}}
        if asked["method"] == "session/request_permission":
            options = asked["params"]["options"]
            pick = next((one for one in options if one.get("kind", "").startswith("allow")), options[0])
            told = {"result": {"outcome": {"outcome": "selected", "optionId": pick["optionId"]}}}
        self.process.send({"jsonrpc": "2.0", "id": asked["id"]} | told)

    def call(self, method: str, params: Any, seconds: float = SECONDS * 2) -> Any:
        """Sends a request and returns its result."""
        return self.answer(self.ask(method, params), method, seconds)

    def send(self, prompt: Prompt) -> None:
        """Sends one message of the user, and does not wait."""
        parts = [{"type": "text", "text": prompt}] if isinstance(prompt, str) else list(prompt)
        self._prompt = next((part["text"] for part in parts if part["type"] == "text"), "")
        self.updates.clear()
        self._asked = self.ask("session/prompt", {"sessionId": self.session_id, "prompt": parts})

    def wait(self, seconds: float = SECONDS * 2) -> Any:
        """Returns the answer that ends the turn; None when the agent has ended."""
        return self.answer(self._asked, "session/prompt", seconds)

    def say(self, prompt: Prompt, seconds: float = SECONDS * 2) -> Any:
        """Sends one message and waits for the end of its turn."""
        self.send(prompt)
        return self.wait(seconds)

    def interrupt(self, seconds: float = SECONDS * 2) -> Any:
        """Stops the running turn, as the user's Escape does, and waits until it has ended."""
        params = {"sessionId": self.session_id}
        self.process.send({"jsonrpc": "2.0", "method": "session/cancel", "params": params})
        return self.wait(seconds)

    @property
    def reply(self) -> str:
        """What the agent said since the last prompt."""
        said = [one["content"].get("text", "") for one in self.updates if one["sessionUpdate"] == "agent_message_chunk"]
        return "".join(said)

    def kill(self) -> Seen:
        """Ends the process where it stands (SIGKILL)."""
        self.process.kill()
        return self.seen(None)

    def close(self, seconds: float = SECONDS) -> Seen:
        """Ends the process; it writes a little after its last answer, so that is waited for."""
        del seconds
        time.sleep(1.0)
        self.process.kill()
        return self.seen(0)

    def seen(self, status: int | None = None) -> Seen:
        """Returns what was sent to the model, for the last prompt."""
        bodies = tuple(request.body for request in self.model.turns)
        request, messages, injected = find_prompt(bodies, read_body, self._prompt)
        refusal = self.refusal or ("" if request is not None else "the model was not asked")
        return Seen(
            exit=1 if status == 0 and self.refusal else status,
            refusal=refusal,
            session_id=self.session_id,
            messages=tuple(messages),
            injected=tuple(injected),
            request=request,
            requests=bodies,
            reply=self.reply,
            events=tuple(self.process.lines),
            prompt=self._prompt,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.__exit__(kind, error, trace)


Session = DroidSession
"""The same name in every driver."""


def resume(
    home: Path, cwd: Path, session_id: str, prompt: str = PROBE, script: Script = (), *, seconds: float = SECONDS * 2
) -> Seen:
    """Resumes a session with one prompt, to the end of its turn."""
    with FakeModel(script) as model, DroidSession(home, cwd, model, session_id=session_id) as session:
        if not session.refusal:
            session.say(prompt, seconds)
        return session.close()


def start(
    home: Path, cwd: Path, prompts: Sequence[Prompt], script: Script = (), *, seconds: float = SECONDS * 2
) -> Seen:
    """Holds a new session: one turn a prompt, in one process. What is seen is the last turn."""
    with FakeModel(script) as model, DroidSession(home, cwd, model) as session:
        for prompt in prompts:
            session.say(prompt, seconds)
        return session.close()


def list_sessions(home: Path, cwd: Path, *, seconds: float = SECONDS * 2) -> list[dict[str, Any]]:
    """Returns the sessions that the agent lists for a folder, newest first, as {id, title}."""
    with FakeModel() as model, DroidSession(home, cwd, model) as session:
        found = session.call("session/list", {"cwd": str(cwd)}, seconds) or {}
        session.process.kill()
    return [{"id": one["sessionId"], "title": one.get("title")} for one in found.get("sessions") or []]
