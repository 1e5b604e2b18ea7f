"""Drives the real Grok, headless, against the fake model.

Every function takes the HOME it works in (a throw-away one) and a folder to stand in; it returns what was sent to
the model (`Seen`). Each turn is a process of its own (`grok -p`). After a turn the agent asks once more, with the same
tools, for a line for its dashboard: those requests are answered apart, and no script has to think of them.
"""

import json
import re
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agents.install import find_agent
from agents.lab.model import FakeModel
from agents.lab.process import SECONDS, base_env, run
from agents.lab.running import Running
from agents.lab.script import Script, Step, Text
from agents.lab.seen import PROBE, Seen, find_prompt, from_chat_api

__all__ = ["MODEL", "compact", "fork", "list_sessions", "resume", "start"]

AGENT = "grok"

MODEL = "lab-model"

QUERY = re.compile(
    r"(?:<image_files>\n.*</image_files>\s*)?<user_query>\n(.*)\n</user_query>"
    r"(?:\s*<system-reminder>.*</system-reminder>\s*)?\Z",
    re.DOTALL,
)
"""A prompt in its wrapper, behind the places of its images."""

CONTEXT = re.compile(r"\s*<(user_info|system-reminder)>.*>\s*\Z", re.DOTALL)

GONE = re.compile(r"\n?\[image removed — [^\]\n]*\]")
"""What the agent puts in place of an image that is too small or broken."""

ASIDE = Step([Text("A line of the lab")], when="Write an ultra-short dashboard line|session title", repeat=True)
"""What is said to what the agent asks for besides the conversation."""

Prompt = str | Sequence[dict[str, Any]]
"""A text, or blocks of a prompt: {type: text, text} and {type: image, mimeType, data}."""


def binary() -> Path:
    """Returns the agent's binary. Raises FileNotFoundError where it is not installed."""
    found = find_agent(AGENT)
    if found is None:
        raise FileNotFoundError("Grok is not installed: run python tests/agents/install.py grok")
    return found


def environment(home: Path) -> dict[str, str]:
    """Returns the whole environment of a run."""
    nowhere = "http://127.0.0.1:9"
    return base_env(home) | {
        "XAI_API_KEY": "sk-fake-000",
        "https_proxy": nowhere,
        "http_proxy": nowhere,
        "no_proxy": "127.0.0.1,localhost",
        "USER": "dev1",
        "SHELL": "/bin/bash",
    }


def configure(home: Path, url: str) -> None:
    """Writes the configuration: one model, which is the fake one."""
    path = home / ".grok" / "config.toml"
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.write_text(
        "[cli]\nauto_update = false\n"
        f'[models]\ndefault = "{MODEL}"\n'
        f'[model.{MODEL}]\nmodel = "{MODEL}"\nbase_url = "{url}/v1"\nname = "Lab"\napi_key = "sk-fake-000"\n'
        'api_backend = "chat_completions"\ncontext_window = 200000\n'
    )


def scripted(script: Script) -> list[Any]:
    """Returns a script with an answer to what the agent asks besides."""
    return [ASIDE, *script]


def read_body(body: Any) -> tuple[list[dict[str, Any]], list[dict[str, str]]]:
    """Reads a request: prompts come out of their wrapper, what the agent makes anew is no part of the conversation."""
    messages, injected = from_chat_api(body)
    out: list[dict[str, Any]] = []
    for message in messages:
        if message["role"] == "user":
            kept = [GONE.sub("", text) for text in message["texts"]]
            texts = [text for text in kept if text and not CONTEXT.match(text)]
            injected += [{"role": "user", "text": text} for text in message["texts"] if CONTEXT.match(text)]
            texts = [found.group(1) if (found := QUERY.match(text)) else text for text in texts]
            images = [*message["images"], *(found for text in message["texts"] for found in GONE.findall(text))]
            if not texts and not images:
                continue
            message = message | {"texts": texts, "text": "".join(texts), "images": images}
        out.append(message)
    return out, injected


def command(prompt: Prompt, more: Sequence[str]) -> list[str]:
    """Returns the command line of one turn."""
    asked = ["-p", prompt] if isinstance(prompt, str) else ["--prompt-json", json.dumps(list(prompt))]
    return [str(binary()), *asked, "-m", MODEL, "--output-format", "json", "--always-approve", *more]


def turn(
    home: Path, cwd: Path, prompt: Prompt, model: FakeModel, more: Sequence[str], session_id: str, seconds: float
) -> Seen:
    """Gives one prompt to the agent, in a process of its own."""
    configure(home, model.url)
    before = len(model.turns)
    done = run(command(prompt, more), cwd, environment(home), seconds)
    prompt = prompt if isinstance(prompt, str) else next(one["text"] for one in prompt if one["type"] == "text")
    bodies = tuple(request.body for request in model.turns[before:])
    request, messages, injected = find_prompt(bodies, read_body, prompt)
    reply = re.search(r'"text"\s*:\s*("(?:[^"\\]|\\.)*")', done.plain or json.dumps(done.lines))
    return Seen(
        exit=done.status,
        refusal="" if done.status == 0 and request is not None else done.said,
        session_id=session_id,
        messages=tuple(messages),
        injected=tuple(injected),
        request=request,
        requests=bodies,
        reply=json.loads(reply.group(1)) if reply else "",
        events=tuple(done.lines),
        prompt=prompt,
    )


class Session(Running):
    """One session, new or resumed: each prompt is a process of its own."""

    def __init__(
        self, home: Path, cwd: Path, model: FakeModel, *, session_id: str | None = None, fork: bool = False
    ) -> None:
        self.model = model
        self.session_id = str(uuid.uuid4()) if session_id is None or fork else session_id
        self._home, self._cwd, self._started = home, cwd, session_id is not None
        self._from = session_id if fork else None
        self._seen = Seen(exit=0, session_id=session_id)

    def say(self, prompt: Prompt, seconds: float = SECONDS * 2) -> Seen:
        """Says one thing."""
        self._seen = turn(self._home, self._cwd, prompt, self.model, self._more(), self.session_id, seconds)
        return self._seen

    def _more(self) -> list[str]:
        more = ["-r", self.session_id] if self._started else ["-s", self.session_id]
        if self._from is not None:
            more = ["-r", self._from, "--fork-session", "-s", self.session_id]
        self._started, self._from = True, None
        return more

    def send(self, prompt: Prompt) -> None:
        """Says one thing, and does not wait."""
        configure(self._home, self.model.url)
        self.begin(command(prompt, self._more()), self._cwd, environment(self._home))

    def compact(self) -> Seen:
        """Has the session compacted; the script gives the summary."""
        return self.say("/compact")

    def close(self, seconds: float = SECONDS) -> Seen:
        """Returns what was seen last; nothing runs any more."""
        return self._seen

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, *_: object) -> None:
        return


def resume(
    home: Path,
    cwd: Path,
    session_id: str,
    prompt: str = PROBE,
    script: Script = (),
    *,
    seconds: float = SECONDS * 2,
    model: str | None = None,
) -> Seen:
    """Resumes a session with one prompt, to the end of its turn."""
    with FakeModel(scripted(script)) as fake:
        return turn(home, cwd, prompt, fake, ["-r", session_id], session_id, seconds)


def fork(
    home: Path, cwd: Path, session_id: str, prompt: str = PROBE, script: Script = (), *, seconds: float = SECONDS * 2
) -> Seen:
    """Forks a session: the turn goes to a new one, `Seen.session_id`."""
    fresh = str(uuid.uuid4())
    with FakeModel(scripted(script)) as fake:
        return turn(home, cwd, prompt, fake, ["-r", session_id, "--fork-session", "-s", fresh], fresh, seconds)


def start(
    home: Path, cwd: Path, prompts: Sequence[Prompt], script: Script = (), *, seconds: float = SECONDS * 2
) -> Seen:
    """Holds a new session, a process a prompt. What is seen is the last turn."""
    session_id = str(uuid.uuid4())
    with FakeModel(scripted(script)) as fake:
        seen = turn(home, cwd, prompts[0], fake, ["-s", session_id], session_id, seconds)
        for prompt in prompts[1:]:
            seen = turn(home, cwd, prompt, fake, ["-r", session_id], session_id, seconds)
        return seen


def compact(home: Path, cwd: Path, session_id: str, script: Script, *, seconds: float = SECONDS * 2) -> Seen:
    """Has a session compacted; the script gives the summary (a short one is refused)."""
    with FakeModel(scripted(script)) as fake:
        return turn(home, cwd, "/compact", fake, ["-r", session_id], session_id, seconds)


def list_sessions(home: Path, cwd: Path | None = None, *, seconds: float = SECONDS) -> list[dict[str, Any]]:
    """Returns the sessions that the agent lists in a folder as {id, title, cwd}."""
    with FakeModel() as fake:
        configure(home, fake.url)
        done = run([str(binary()), "sessions", "list"], cwd or home, environment(home), seconds)
    rows = re.findall(r"^([0-9a-f]{8}-[0-9a-f-]{27})\s+\S+\s+\S+\s+\S+ ?(.*)$", done.plain, re.MULTILINE)
    return [{"id": found, "title": title.strip(), "cwd": str(cwd or home)} for found, title in rows]
