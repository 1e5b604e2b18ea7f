"""Drives the real Claude Code, headless, against the fake model.

Every function takes the HOME it works in (a throw-away one) and a folder to stand in; it returns what was
sent to the model (`Seen`). A session is one long-lived process over stream-json; `resume` and `fork` are
one-shot runs, as a user's would be.
"""

import json
import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from agents.install import find_agent
from agents.lab.model import FakeModel
from agents.lab.process import SECONDS, AgentProcess, Finished, base_env, run
from agents.lab.script import Script
from agents.lab.seen import PROBE, Seen, find_prompt, from_messages_api
from agents.lab.terminal import look

__all__ = ["ClaudeSession", "Session", "compact", "fork", "list_sessions", "resume", "resume_newest", "start"]

AGENT = "claude"

API_KEY = "sk-ant-fake-000-of-the-lab"

SYSTEM_PROMPT = "You are a test agent."

Prompt = str | Sequence[dict[str, Any]]
"""A text, or content blocks of the Messages API (text, image)."""


def binary() -> Path:
    """Returns the agent's binary. Raises FileNotFoundError where it is not installed."""
    found = find_agent(AGENT)
    if found is None:
        raise FileNotFoundError("Claude Code is not installed: run python tests/agents/install.py claude")
    return found


def environment(home: Path, model: FakeModel, **more: str) -> dict[str, str]:
    """Returns the whole environment of a run."""
    mine = {
        "IS_SANDBOX": "1",
        "ANTHROPIC_BASE_URL": model.url,
        "ANTHROPIC_API_KEY": API_KEY,
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
        "DISABLE_TELEMETRY": "1",
        "DISABLE_ERROR_REPORTING": "1",
    }
    return base_env(home) | mine | more


def arguments(*more: str, tools: str | None = None, commands: bool = False) -> list[str]:
    """Returns the command line that all runs share."""
    argv = [str(binary()), "-p", "--output-format", "stream-json", "--verbose"]
    argv += ["--system-prompt", SYSTEM_PROMPT, "--dangerously-skip-permissions"]
    if not commands:
        argv.append("--disable-slash-commands")
    if tools is not None:
        argv += ["--tools", tools]
    return [*argv, *more]


def _seen(model: FakeModel, prompt: str, status: int | None, events: Sequence[Any], said: str = "") -> Seen:
    bodies = tuple(request.body for request in model.turns)
    request, messages, injected = find_prompt(bodies, from_messages_api, prompt)
    results = [event for event in events if event.get("type") == "result"]
    ids = [event["session_id"] for event in events if event.get("session_id")]
    problems = [str(error) for result in results for error in result.get("errors") or []]
    refusal = "" if status == 0 and request is not None else (said or "\n".join(problems))
    return Seen(
        exit=status,
        refusal=refusal,
        session_id=ids[-1] if ids else None,
        messages=tuple(messages),
        injected=tuple(injected),
        request=request,
        requests=bodies,
        reply=(results[-1].get("result") or "") if results else "",
        events=tuple(events),
        prompt=prompt,
    )


def _one_shot(home: Path, cwd: Path, prompt: str, script: Script, seconds: float, more: Sequence[str]) -> Seen:
    with FakeModel(script) as model:
        done: Finished = run(arguments(*more, prompt), cwd, environment(home, model), seconds)
        return _seen(model, prompt, done.status, done.lines, done.said)


def resume(
    home: Path,
    cwd: Path,
    session_id: str,
    prompt: str = PROBE,
    script: Script = (),
    *,
    seconds: float = SECONDS,
    more: Sequence[str] = (),
) -> Seen:
    """Resumes a session (an id, a title, a path) with one prompt, to the end of its turn."""
    return _one_shot(home, cwd, prompt, script, seconds, ["--resume", session_id, *more])


def fork(
    home: Path,
    cwd: Path,
    session_id: str,
    prompt: str = PROBE,
    script: Script = (),
    *,
    seconds: float = SECONDS,
) -> Seen:
    """Forks a session: the turn goes to a new one, `Seen.session_id`."""
    more = ["--resume", session_id, "--fork-session"]
    return _one_shot(home, cwd, prompt, script, seconds, more)


def resume_newest(home: Path, cwd: Path, prompt: str = PROBE, *, seconds: float = SECONDS) -> Seen:
    """Lets the agent choose (`--continue`): the newest session of this folder, a new one where it finds none."""
    return _one_shot(home, cwd, prompt, (), seconds, ["--continue"])


def start(
    home: Path,
    cwd: Path,
    prompts: Sequence[Prompt],
    script: Script = (),
    *,
    session_id: str | None = None,
    tools: str | None = None,
    seconds: float = SECONDS,
    **env: str,
) -> Seen:
    """Holds a new session: one turn a prompt, in one process. What is seen is the last turn."""
    more = ["--session-id", session_id] if session_id else []
    with FakeModel(script) as model, ClaudeSession(home, cwd, model, more, tools=tools, **env) as session:
        for prompt in prompts:
            session.say(prompt, seconds)
        return session.close(seconds)


def compact(home: Path, cwd: Path, session_id: str, script: Script, *, seconds: float = SECONDS) -> Seen:
    """Resumes a session and has it compacted (`/compact`); the script gives the summary."""
    with (
        FakeModel(script) as model,
        ClaudeSession(home, cwd, model, ["--resume", session_id], commands=True) as session,
    ):
        session.say("/compact", seconds)
        return session.close(seconds)


PICKED = re.compile(r"(?:now|ago) · .*\d ?(?:bytes|B|KB|MB)$")
"""The second line of a session in the picker: its age, branch and size."""


def list_sessions(home: Path, cwd: Path, *, seconds: float = SECONDS) -> list[dict[str, Any]]:
    """Returns what the agent's own picker (`claude --resume`) shows for a folder, as {id, title}, newest first.

    There is no headless list: the picker is looked at on a terminal. It shows no ids (`id` is None); a title is
    the custom title, else the last prompt. Measured: a session whose first records say `entrypoint` "sdk-cli"
    (what -p writes) is not in it; one with "cli", or without that field, is.
    """
    _skip_onboarding(home, cwd)
    with FakeModel() as model:
        argv = [str(binary()), "--resume"]
        lines = look(argv, cwd, environment(home, model), lambda screen: "Esc to close" in screen, seconds)
    found: list[dict[str, Any]] = []
    for above, line in pairwise(lines):
        if PICKED.search(line):
            found.append({"id": None, "title": above.strip(" ❯")})
    return found


def _skip_onboarding(home: Path, cwd: Path) -> None:
    path = home / ".claude.json"
    settings = json.loads(path.read_text()) if path.exists() else {}
    settings |= {"hasCompletedOnboarding": True, "theme": "dark"}
    settings["customApiKeyResponses"] = {"approved": [API_KEY[-20:]], "rejected": []}
    settings.setdefault("projects", {})[str(cwd.resolve())] = {"hasTrustDialogAccepted": True}
    path.write_text(json.dumps(settings))


class ClaudeSession:
    """One long-lived process. Leaving the context ends it, gently (`close`) or not (`kill`)."""

    def __init__(
        self,
        home: Path,
        cwd: Path,
        model: FakeModel,
        more: Sequence[str] = (),
        *,
        tools: str | None = None,
        commands: bool = False,
        **env: str,
    ) -> None:
        argv = arguments("--input-format", "stream-json", *more, tools=tools, commands=commands)
        self.model = model
        self.process = AgentProcess(argv, cwd, environment(home, model, **env))
        self._prompt = ""

    def send(self, prompt: Prompt) -> None:
        """Sends one message of the user, and does not wait."""
        content = prompt if isinstance(prompt, str) else list(prompt)
        texts = [content] if isinstance(content, str) else [part.get("text", "") for part in content]
        self._prompt = next((text for text in texts if text), "")
        self.process.send({"type": "user", "message": {"role": "user", "content": content}})

    def wait(self, seconds: float = SECONDS) -> Any:
        """Returns the `result` event that ends the turn; None when the agent has ended."""
        return self.process.receive(lambda event: event.get("type") == "result", "the end of the turn", seconds)

    def say(self, prompt: Prompt, seconds: float = SECONDS) -> Any:
        """Sends one message and waits for the end of its turn."""
        self.send(prompt)
        return self.wait(seconds)

    def interrupt(self, seconds: float = SECONDS) -> Any:
        """Stops the running turn, as the user's Escape does, and waits until it has ended.

        When that was the last turn, the process ends with exit status 1.
        """
        self.process.send({"type": "control_request", "request_id": "stop-1", "request": {"subtype": "interrupt"}})
        return self.wait(seconds)

    @property
    def session_id(self) -> str | None:
        """The session's id, once the agent has told it."""
        ids = [event["session_id"] for event in self.process.lines if event.get("session_id")]
        return ids[-1] if ids else None

    def kill(self) -> Seen:
        """Ends the process where it stands (SIGKILL)."""
        self.process.kill()
        return self.seen(None)

    def close(self, seconds: float = SECONDS) -> Seen:
        """Ends the process by closing its input."""
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


Session = ClaudeSession
"""The same name in every driver."""
