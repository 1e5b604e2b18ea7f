"""Drives the real Kimi Code, headless, against the fake model.

Every function takes the HOME it works in (a throw-away one) and a folder to stand in; it returns what was sent to
the model (`Seen`). Each turn is a process of its own (`kimi -p`). It is told which model to take: a session that binds
none is refused without.
"""

import hashlib
import json
import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from agents.install import find_agent, find_runner
from agents.lab.acp import AcpClient
from agents.lab.model import FakeModel
from agents.lab.process import SECONDS, base_env, run
from agents.lab.running import Running
from agents.lab.script import Script
from agents.lab.seen import PROBE, Seen, find_prompt, from_chat_api

__all__ = ["MODEL", "list_sessions", "resume", "start"]

AGENT = "kimi"

MODEL = "lab"

FAILED = "<system>ERROR: Tool execution failed.</system>\n"

EMPTY = "<system>Tool output is empty.</system>"

MEDIA = "(see attached media)"
"""What the agent says where a result is an image alone."""

ATTACHED = "Attached media from tool result:"
"""How the agent opens a message of its own with the images of a result."""

Prompt = str | Sequence[dict[str, Any]]
"""A text; in ACP mode also blocks of a prompt: {type: text, text} and {type: image, mimeType, data}."""


def program() -> list[str]:
    """Returns the command line's beginning. Raises FileNotFoundError where the agent is not installed."""
    found, runner = find_agent(AGENT), find_runner(AGENT)
    if found is None or runner is None:
        raise FileNotFoundError("Kimi Code is not installed: run python tests/agents/install.py kimi")
    return [str(runner), str(found)]


def environment(home: Path) -> dict[str, str]:
    """Returns the whole environment of a run."""
    env = base_env(home)
    return env | {"PATH": f"{find_runner(AGENT).parent}:{env['PATH']}"}  # type: ignore[union-attr]


def configure(home: Path, url: str) -> None:
    """Writes the configuration: one model, which is the fake one."""
    base = home / ".kimi-code"
    base.mkdir(mode=0o700, parents=True, exist_ok=True)
    (base / "config.toml").write_text(
        f'default_model = "{MODEL}"\ntelemetry = false\n'
        f'[providers.lab]\ntype = "openai"\nbase_url = "{url}/v1"\napi_key = "sk-fake-000"\n'
        f'[models.{MODEL}]\nprovider = "lab"\nmodel = "lab-model"\nmax_context_size = 200000\n'
        'capabilities = ["thinking", "image_in", "tool_use"]\n'
    )
    (base / "tui.toml").write_text("[upgrade]\nauto_install = false\n")


def read_body(body: Any) -> tuple[list[dict[str, Any]], list[dict[str, str]]]:
    """Reads a request; images of results, which this API takes from a user only, go back to their results."""
    messages, injected = from_chat_api(body)
    out: list[dict[str, Any]] = []
    for message in messages:
        if message["role"] == "user" and message["texts"][:1] == [ATTACHED] and out and out[-1]["role"] == "tool":
            out[-1]["images"].extend(message["images"])
            injected.append({"role": "user", "text": ATTACHED})
        else:
            out.append(message)
    return out, injected


def bare(text: str) -> str:
    """Returns a result's text without what the agent says of a failure, an empty output, an image alone."""
    return "" if text in (EMPTY, MEDIA) else text.replace(FAILED, "", 1)


def apart(messages: Sequence[dict[str, Any]], said: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns what was sent with its first text taken apart where `said` has it in two.

    What the agent keeps of the past behind a compaction it sends joined.
    """
    found = list(messages)
    for one, other in pairwise(said):
        joined = f"{one['text']}\n\n{other['text']}"
        if one["role"] == other["role"] == "user" and found and found[0]["texts"] == [joined]:
            texts = [one["text"], other["text"]]
            found[0] = {**found[0], "texts": texts, "text": "".join(texts)}
    return found


def reader(prompt: str) -> Any:
    """Returns a reader of requests in which the prompt is a text of its own: the agent joins what a person says."""

    def read(body: Any) -> tuple[list[dict[str, Any]], list[dict[str, str]]]:
        messages, injected = read_body(body)
        for message in messages:
            if message["role"] == "user" and len(message["texts"]) == 1:
                before, joined, _ = message["text"].rpartition(f"\n\n{prompt}")
                if joined and message["text"].endswith(prompt):
                    message["texts"] = [before, prompt]
        return messages, injected

    return read


def command(prompt: str, more: Sequence[str]) -> list[str]:
    """Returns the command line of one turn."""
    return [*program(), "-p", prompt, "--output-format", "stream-json", *more]


def turn(
    home: Path, cwd: Path, prompt: str, model: FakeModel, more: Sequence[str], seconds: float, session_id: str = ""
) -> Seen:
    """Gives one prompt to the agent, in a process of its own."""
    configure(home, model.url)
    before = len(model.turns)
    done = run(command(prompt, more), cwd, environment(home), seconds)
    bodies = tuple(request.body for request in model.turns[before:])
    request, messages, injected = find_prompt(bodies, reader(prompt), prompt)
    replies = [line["content"] for line in done.lines if line.get("role") == "assistant" and line.get("content")]
    return Seen(
        exit=done.status,
        refusal="" if done.status == 0 and request is not None else done.said,
        session_id=session_id or newest(home),
        messages=tuple(messages),
        injected=tuple(injected),
        request=request,
        requests=bodies,
        reply=str(replies[-1]) if replies else "",
        events=tuple(done.lines),
        prompt=prompt,
    )


def rehome(home: Path, session_id: str, cwd: Path) -> Path:
    """Moves a session to another folder, as the agent would have made it there; returns its journal.

    The agent resumes a session in its own folder only, and a recorded one is nowhere.
    """
    (old,) = home.glob(f".kimi-code/sessions/*/{session_id}")
    key = f"wd_{cwd.name}_{hashlib.sha256(str(cwd).encode()).hexdigest()[:12]}"
    new = old.parent.parent / key / session_id
    new.parent.mkdir(mode=0o700, exist_ok=True)
    old.rename(new)
    state = json.loads((new / "state.json").read_text())
    (new / "state.json").write_text(json.dumps(state | {"cwd": str(cwd)}))
    journal = new / "agents" / "main" / "wire.jsonl"
    bound = b'"workspaceId":"%s"'
    old_key, new_key = old.parent.name.encode(), key.encode()
    journal.write_bytes(journal.read_bytes().replace(bound % old_key, bound % new_key))
    return journal


def newest(home: Path) -> str | None:
    """Returns the session whose description was written last."""
    found = sorted(home.glob(".kimi-code/sessions/*/*/state.json"), key=lambda path: path.stat().st_mtime_ns)
    return found[-1].parent.name if found else None


class Session(Running):
    """One session, new or resumed: each prompt is a process of its own."""

    def __init__(
        self, home: Path, cwd: Path, model: FakeModel, *, session_id: str | None = None, fork: bool = False
    ) -> None:
        self.model = model
        self.session_id = copy_session(home, cwd, str(session_id)) if fork else session_id
        self._home, self._cwd = home, cwd
        self._seen = Seen(exit=0, session_id=session_id)

    def say(self, prompt: str, seconds: float = SECONDS * 2) -> Seen:
        """Says one thing."""
        self._seen = turn(self._home, self._cwd, prompt, self.model, self._more(), seconds, self.session_id or "")
        self.session_id = self._seen.session_id
        return self._seen

    def _more(self) -> list[str]:
        return ["-m", MODEL, *(["-S", self.session_id] if self.session_id else [])]

    def send(self, prompt: str) -> None:
        """Says one thing, and does not wait."""
        configure(self._home, self.model.url)
        self.begin(command(prompt, self._more()), self._cwd, environment(self._home))

    def kill(self) -> Seen:
        """Ends the run at once (SIGKILL), with the children it has."""
        self.session_id = self.session_id or newest(self._home)
        return super().kill()

    def close(self, seconds: float = SECONDS) -> Seen:
        """Returns what was seen last; nothing runs any more."""
        return self._seen

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, *_: object) -> None:
        return


class AcpSession:
    """One long-lived process in ACP mode, in which the agent takes images, and commands such as a compaction."""

    def __init__(self, home: Path, cwd: Path, model: FakeModel, *, session_id: str | None = None, **_: Any) -> None:
        configure(home, model.url)
        self.model, self.session_id = model, session_id
        self.client = AcpClient([*program(), "acp"], cwd, environment(home))

    def say(self, prompt: Prompt, seconds: float = SECONDS * 2) -> Any:
        """Says one thing, and waits for the end of its turn."""
        blocks = [{"type": "text", "text": prompt}] if isinstance(prompt, str) else list(prompt)
        return self.client.call("session/prompt", {"sessionId": self.session_id, "prompt": blocks}, seconds)

    def compact(self) -> Any:
        """Has the session compacted; it is not yet when this returns."""
        return self.say("/compact")

    def close(self, seconds: float = SECONDS) -> int:
        """Ends the process by closing its input."""
        return self.client.process.finish(seconds)

    def __enter__(self) -> "AcpSession":
        self.client.__enter__()
        where = {"cwd": str(self.client.cwd), "mcpServers": []}
        self.session_id = self.client.call("session/new", where)["sessionId"]
        return self

    def __exit__(self, *_: Any) -> None:
        self.client.process.__exit__(None, None, None)


def copy_session(home: Path, cwd: Path, session_id: str) -> str:
    """Has the agent copy a session to a new one, as its command for that does; returns the new id."""
    done = run([*program(), "fork", session_id], cwd, environment(home), SECONDS)
    found = re.search(r"Forked to (\S+)", done.plain)
    if found is None:
        raise AssertionError(f"no fork: {done.said}")
    return found[1]


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
    """Resumes a session with one prompt, to the end of its turn; one whose folder is nowhere moves here first."""
    (path,) = home.glob(f".kimi-code/sessions/*/{session_id}/state.json")
    if not Path(json.loads(path.read_text())["cwd"]).is_dir():
        rehome(home, session_id, cwd)
    with FakeModel(script) as fake:
        return turn(home, cwd, prompt, fake, ["-S", session_id, "-m", model or MODEL], seconds, session_id)


def start(
    home: Path, cwd: Path, prompts: Sequence[Prompt], script: Script = (), *, seconds: float = SECONDS * 2
) -> Seen:
    """Holds a new session, a process a prompt. What is seen is the last turn."""
    with FakeModel(script) as fake:
        seen = turn(home, cwd, prompts[0], fake, ["-m", MODEL], seconds)
        for prompt in prompts[1:]:
            assert seen.session_id is not None, seen.refusal
            seen = turn(home, cwd, prompt, fake, ["-S", seen.session_id, "-m", MODEL], seconds, seen.session_id)
        return seen


def list_sessions(home: Path, cwd: Path | None = None, *, seconds: float = SECONDS) -> list[dict[str, Any]]:
    """Returns the sessions that the agent lists, newest first, as {id, title, cwd}."""
    with FakeModel() as fake:
        configure(home, fake.url)
        more = ["--cwd", str(cwd)] if cwd is not None else ["--all"]
        done = run([*program(), "session", "list", "--json", *more], cwd or home, environment(home), seconds)
    text = done.plain or json.dumps(done.lines[0] if done.lines else [])
    found = json.loads(text)
    rows = found if isinstance(found, list) else found.get("sessions", [])
    return [
        {"id": one["id"], "title": one.get("title") or one.get("lastPrompt"), "cwd": one.get("cwd")} for one in rows
    ]
