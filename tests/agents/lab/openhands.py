"""Drives the real OpenHands CLI, headless, against the fake model.

Every function takes the HOME it works in (a throw-away one) and a folder to stand in; it returns what was sent to the
model (`Seen`). Each turn is a process of its own. The agent takes long to start: it brings many libraries and looks
for skills on the net.
"""

import dataclasses
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

from agents.install import find_agent
from agents.lab.model import FakeModel
from agents.lab.process import SECONDS, base_env, run
from agents.lab.script import Script
from agents.lab.seen import PROBE, Seen, find_prompt, from_chat_api

__all__ = ["Session", "bare", "heard", "list_sessions", "resume", "start", "strip"]

AGENT = "openhands"

Prompt = str

FAILED = "[An error occurred during execution.]\n"
"""What the agent puts before an observation of a failure when it sends it."""

EMPTY = "(no output)"
"""What clew writes for a result without a sign in it."""

TURN_SECONDS = SECONDS * 5
"""A turn takes a minute on a loaded machine."""

CONVERSATIONS = ".openhands/conversations"


def binary() -> Path:
    """Returns the agent's program. Raises FileNotFoundError where it is not installed."""
    found = find_agent(AGENT)
    if found is None:
        raise FileNotFoundError("OpenHands is not installed: run python tests/agents/install.py openhands")
    return found


def environment(home: Path, url: str = "http://127.0.0.1:9") -> dict[str, str]:
    """Returns the whole environment of a run."""
    lower = {"https_proxy": "http://127.0.0.1:9", "http_proxy": "http://127.0.0.1:9", "no_proxy": "127.0.0.1,localhost"}
    model = {"LLM_API_KEY": "sk-fake-000", "LLM_BASE_URL": f"{url}/v1", "LLM_MODEL": "openai/lab-model"}
    quiet = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "OPENHANDS_SUPPRESS_BANNER": "1", "DO_NOT_TRACK": "1"}
    return base_env(home) | lower | model | quiet


def bare(text: str) -> str:
    """Returns a result's text without the agent's own word on a failure, and nothing for what stands for nothing."""
    text = text.removeprefix(FAILED)
    return "" if text == EMPTY else text


def heard(seen: Seen) -> Seen:
    """Returns what was seen, with results as they are kept."""
    kept = [
        {**one, "tool_results": [{**r, "text": bare(r["text"])} for r in one["tool_results"]]} for one in seen.messages
    ]
    return dataclasses.replace(seen, messages=tuple(kept))


def read_body(body: Mapping[str, Any]) -> Any:
    """Reads a request; results are told without the agent's own word on a failure."""
    messages, injected = from_chat_api(body)
    for one in messages:
        for result in one["tool_results"]:
            result["text"] = result["text"].removeprefix(FAILED)
    return messages, injected


def _sizes(home: Path) -> dict[str, int]:
    """Returns the conversations of a home by id, with how many events each has."""
    folders = (home / CONVERSATIONS).glob("*/events")
    return {str(UUID(path.parent.name)): len(list(path.glob("event-*.json"))) for path in folders}


def _turn(home: Path, cwd: Path, prompt: str, model: FakeModel, more: Sequence[str], seconds: float) -> Seen:
    before, asked = _sizes(home), len(model.turns)
    argv = [binary(), "--headless", "--json", "--override-with-envs", "-t", prompt, *more]
    done = run(argv, cwd, environment(home, model.url), seconds)
    bodies = tuple(request.body for request in model.turns[asked:])
    request, messages, injected = find_prompt(bodies, from_chat_api, prompt)
    changed = [name for name, count in _sizes(home).items() if before.get(name) != count]
    session_id = changed[-1] if changed else None
    return Seen(
        exit=done.status,
        refusal="" if done.status == 0 and request is not None else done.said or "the model was not asked",
        session_id=session_id,
        messages=tuple(messages),
        injected=tuple(injected),
        request=request,
        requests=bodies,
        reply=_reply(home, session_id),
        prompt=prompt,
    )


def _reply(home: Path, session_id: str | None) -> str:
    """Returns the last text of the agent in the events of a conversation."""
    if session_id is None:
        return ""
    for path in sorted((home / CONVERSATIONS / UUID(session_id).hex / "events").glob("event-*.json"), reverse=True):
        event = json.loads(path.read_text("utf-8"))
        if event["kind"] == "MessageEvent" and event["source"] == "agent":
            return "".join(part.get("text", "") for part in event["llm_message"]["content"])
    return ""


class Session:
    """One session, new or resumed: each prompt is a process of its own."""

    def __init__(
        self, home: Path, cwd: Path, model: FakeModel, *, session_id: str | None = None, fork: bool = False
    ) -> None:
        assert not fork, "the command line forks no conversation"
        self.model = model
        self.session_id = session_id
        self._home, self._cwd = home, cwd
        self._seen = Seen(exit=0, session_id=session_id)

    def say(self, prompt: Prompt, seconds: float = TURN_SECONDS) -> Seen:
        """Says one thing."""
        more = ["--resume", self.session_id] if self.session_id else []
        self._seen = _turn(self._home, self._cwd, prompt, self.model, more, seconds)
        self.session_id = self._seen.session_id or self.session_id
        return self._seen

    def close(self, seconds: float = SECONDS) -> Seen:
        """Returns what was seen last; nothing runs any more."""
        return self._seen

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, *_: object) -> None:
        return


def strip(home: Path) -> None:
    """Leaves of each conversation its events and its state."""
    for path in (home / CONVERSATIONS).rglob("*"):
        if path.is_file() and path.suffix != ".json":
            path.unlink()


def resume(
    home: Path,
    cwd: Path,
    session_id: str,
    prompt: str = PROBE,
    script: Script = (),
    *,
    seconds: float = TURN_SECONDS,
) -> Seen:
    """Resumes a session with one prompt, to the end of its turn."""
    with FakeModel(script) as model:
        return _turn(home, cwd, prompt, model, ["--resume", session_id], seconds)


def start(
    home: Path, cwd: Path, prompts: Sequence[Prompt], script: Script = (), *, seconds: float = TURN_SECONDS
) -> Seen:
    """Holds a new session, a process a prompt. What is seen is the last turn."""
    with FakeModel(script) as model:
        seen = _turn(home, cwd, prompts[0], model, [], seconds)
        for prompt in prompts[1:]:
            assert seen.session_id is not None, seen.refusal
            seen = _turn(home, cwd, prompt, model, ["--resume", seen.session_id], seconds)
        return seen


_LISTED = re.compile(r"^ *\d+\. ([0-9a-f]{32}) .*\n(?:    (.*))?", re.MULTILINE)


def list_sessions(home: Path, cwd: Path, *, seconds: float = TURN_SECONDS) -> list[dict[str, Any]]:
    """Returns the sessions that the agent lists, newest first, as {id, title}."""
    done = run([binary(), "--resume"], cwd, environment(home), seconds)
    return [{"id": str(UUID(one)), "title": title} for one, title in _LISTED.findall(done.plain)]
