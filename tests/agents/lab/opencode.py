"""Drives the real OpenCode, headless, against the fake model.

Every function takes the HOME it works in (a throw-away one) and a folder to stand in; it returns what was sent to
the model (`Seen`). Each turn is a process of its own (`opencode run`), with the prompt on its input: as an argument a
prompt would be stored with quotes around it. It has to be started in the session's own folder: from another one it
answers and never ends.
"""

import contextlib
import json
import sqlite3
import subprocess
import tempfile
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agents.install import find_agent
from agents.lab.model import FakeModel
from agents.lab.process import SECONDS, TooSlow, base_env, end_tree, wait_for
from agents.lab.script import Script
from agents.lab.seen import PROBE, Seen, find_prompt, from_chat_api

__all__ = [
    "MODEL",
    "OpenCodeSession",
    "Server",
    "Session",
    "compact",
    "export",
    "fork",
    "import_file",
    "list_sessions",
    "resume",
    "run",
    "start",
]

AGENT = "opencode"

MODEL = "lab/lab-model"

ATTACHED = "Attached media from tool result:"
"""How the agent opens a message of its own with the images of a result."""

Prompt = str


def binary() -> Path:
    """Returns the agent's binary. Raises FileNotFoundError where it is not installed."""
    found = find_agent(AGENT)
    if found is None:
        raise FileNotFoundError("OpenCode is not installed: run python tests/agents/install.py opencode")
    return found


def environment(home: Path) -> dict[str, str]:
    """Returns the whole environment of a run: nothing is fetched, updated or installed."""
    return base_env(home) | {
        "OPENCODE_DISABLE_AUTOUPDATE": "1",
        "OPENCODE_DISABLE_MODELS_FETCH": "1",
        "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
        "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1",
        "npm_config_registry": "http://127.0.0.1:9/",
        "npm_config_fetch_retries": "0",
        "SHELL": "/bin/bash",
        "USER": "dev1",
    }


def recorded(home: Path, session_id: str) -> str:
    """Returns the provider and model that a session was held with, else our own: with another one than recorded the
    agent sends reasoning as text."""
    path = home / ".local" / "share" / "opencode" / "opencode.db"
    if not path.exists():
        return MODEL
    with contextlib.closing(sqlite3.connect(path)) as database:
        found = database.execute("SELECT model FROM session WHERE id = ?", (session_id,)).fetchone()
    model = json.loads(found[0]) if found and found[0] else None
    return f"{model['providerID']}/{model['id']}" if model else MODEL


def configure(home: Path, url: str, named: str = MODEL) -> None:
    """Writes the configuration: one provider, which is the fake model."""
    provider, _, name = named.partition("/")
    model = {
        "name": "Lab model",
        "limit": {"context": 200_000, "output": 8_000},
        "reasoning": True,
        "tool_call": True,
        "attachment": True,
        "modalities": {"input": ["text", "image"], "output": ["text"]},
    }
    served = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "Lab",
        "options": {"baseURL": f"{url}/v1", "apiKey": "sk-fake-000"},
        "models": {name: model},
    }
    config = {
        "autoupdate": False,
        "share": "disabled",
        "model": named,
        "small_model": named,
        "enabled_providers": [provider],
        "permission": "allow",
        "snapshot": False,
        "provider": {provider: served},
    }
    path = home / ".config" / "opencode" / "opencode.json"
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.write_text(json.dumps(config))


def command(
    home: Path, cwd: Path, argv: Sequence[str], given: str = "", seconds: float = SECONDS * 3
) -> tuple[int, str, str]:
    """Runs one command of the agent's to its end; returns its status, what it printed and what it complained of."""
    child = subprocess.Popen(
        [str(binary()), *argv],
        cwd=cwd,
        env=environment(home),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        out, err = child.communicate(given.encode("utf-8", "surrogatepass"), timeout=seconds)
    except subprocess.TimeoutExpired:
        end_tree(child)
        raise TooSlow(f"opencode {argv[0]} did not end within {seconds:g} s") from None
    return child.returncode, out.decode("utf-8", "replace"), err.decode("utf-8", "replace")


def run(
    home: Path,
    cwd: Path,
    prompt: str,
    model: FakeModel,
    more: Sequence[str] = (),
    *,
    seconds: float = SECONDS * 3,
    named: str = MODEL,
) -> Seen:
    """Gives one prompt to the agent, in a process of its own."""
    configure(home, model.url, named)
    before = len(model.turns)
    status, out, err = command(home, cwd, ["run", "--format", "json", *more], prompt, seconds)
    events = [json.loads(line) for line in out.split("\n") if line.startswith("{")]
    bodies = tuple(request.body for request in model.turns[before:])
    request, messages, injected = find_prompt(bodies, read_body, prompt)
    texts = [event["part"]["text"] for event in events if event.get("type") == "text"]
    return Seen(
        exit=status,
        refusal="" if status == 0 and request is not None else (err.strip() or out.strip())[-2000:],
        session_id=next((event["sessionID"] for event in events if event.get("sessionID")), None),
        messages=tuple(messages),
        injected=tuple(injected),
        request=request,
        requests=bodies,
        reply=texts[-1] if texts else "",
        events=tuple(events),
        prompt=prompt,
    )


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


def settle(home: Path, cwd: Path, session_id: str) -> None:
    """Moves a recorded session to the folder it is resumed in, where its own is not there: the agent needs one."""
    path = home / ".local" / "share" / "opencode" / "opencode.db"
    if not path.exists():
        return
    with contextlib.closing(sqlite3.connect(path)) as database, database:
        found = database.execute("SELECT directory FROM session WHERE id = ?", (session_id,)).fetchone()
        if found is not None and not Path(found[0]).is_dir():
            values = (str(cwd), str(cwd).strip("/"), session_id)
            database.execute("UPDATE session SET directory = ?, path = ? WHERE id = ?", values)


def resume(
    home: Path,
    cwd: Path,
    session_id: str,
    prompt: str = PROBE,
    script: Script = (),
    *,
    seconds: float = SECONDS * 3,
    model: str | None = None,
) -> Seen:
    """Resumes a session with one prompt, to the end of its turn."""
    settle(home, cwd, session_id)
    named = model or recorded(home, session_id)
    more = ["--session", session_id, "--model", named]
    with FakeModel(script) as fake:
        return run(home, cwd, prompt, fake, more, seconds=seconds, named=named)


def fork(
    home: Path, cwd: Path, session_id: str, prompt: str = PROBE, script: Script = (), *, seconds: float = SECONDS * 3
) -> Seen:
    """Forks a session: the turn goes to a new one, `Seen.session_id`."""
    settle(home, cwd, session_id)
    named = recorded(home, session_id)
    more = ["--session", session_id, "--fork", "--model", named]
    with FakeModel(script) as fake:
        return run(home, cwd, prompt, fake, more, seconds=seconds, named=named)


def start(
    home: Path, cwd: Path, prompts: Sequence[Prompt], script: Script = (), *, seconds: float = SECONDS * 3
) -> Seen:
    """Holds a new session, a process a prompt. What is seen is the last turn."""
    with FakeModel(script) as fake:
        seen = run(home, cwd, prompts[0], fake, seconds=seconds)
        for prompt in prompts[1:]:
            assert seen.session_id is not None, seen.refusal
            seen = run(home, cwd, prompt, fake, ["--session", seen.session_id], seconds=seconds)
        return seen


class OpenCodeSession:
    """One session, new or resumed: each prompt is a process of its own."""

    def __init__(
        self, home: Path, cwd: Path, model: FakeModel, *, session_id: str | None = None, fork: bool = False
    ) -> None:
        self.model = model
        self.session_id = session_id
        self._home, self._cwd, self._fork = home, cwd, fork
        self._seen = Seen(exit=0, session_id=session_id)

    def say(self, prompt: Prompt | Sequence[str], seconds: float = SECONDS * 3) -> Seen:
        """Says one thing; files to attach stand behind the text."""
        text, *files = [prompt] if isinstance(prompt, str) else list(prompt)
        more = ["--session", self.session_id] if self.session_id else []
        more += ["--fork"] if self._fork else []
        more += [part for path in files for part in ("--file", path)]
        self._fork = False
        self._seen = run(self._home, self._cwd, text, self.model, more, seconds=seconds)
        self.session_id = self._seen.session_id or self.session_id
        return self._seen

    def close(self, seconds: float = SECONDS) -> Seen:
        """Returns what was seen last; nothing runs any more."""
        return self._seen

    def __enter__(self) -> "OpenCodeSession":
        return self

    def __exit__(self, *_: object) -> None:
        return


Session = OpenCodeSession
"""The same name in every driver."""


def list_sessions(home: Path, cwd: Path | None = None, *, seconds: float = SECONDS * 3) -> list[dict[str, Any]]:
    """Returns the sessions that the agent lists in a folder, newest first, as {id, title, cwd}."""
    with FakeModel() as fake:
        configure(home, fake.url)
        status, out, err = command(home, cwd or home, ["session", "list", "--format", "json"], seconds=seconds)
        assert status == 0, err
        found = json.loads(out) if out.strip() else []
    return [{"id": one["id"], "title": one["title"], "cwd": one["directory"]} for one in found]


def export(home: Path, cwd: Path, session_id: str, *, seconds: float = SECONDS * 3) -> str:
    """Returns what `opencode export` prints of a session."""
    with FakeModel() as fake:
        configure(home, fake.url)
        status, out, err = command(home, cwd, ["export", session_id], seconds=seconds)
        assert status == 0, err
        return out


def import_file(home: Path, cwd: Path, path: Path, *, seconds: float = SECONDS * 3) -> str:
    """Has the agent take in an export; returns what it printed."""
    with FakeModel() as fake:
        configure(home, fake.url)
        status, out, err = command(home, cwd, ["import", str(path)], seconds=seconds)
        assert status == 0, err
        return out


def pack(home: Path, target: Path) -> None:
    """Copies the database into a fixture's home: without the agent's log of changes, in the smallest pages."""
    path = target / ".local" / "share" / "opencode" / "opencode.db"
    path.parent.mkdir(parents=True)
    with (
        contextlib.closing(sqlite3.connect(home / ".local" / "share" / "opencode" / "opencode.db")) as source,
        contextlib.closing(sqlite3.connect(path, isolation_level=None)) as copy,
    ):
        source.backup(copy)
        copy.execute("PRAGMA journal_mode=DELETE")
        copy.execute("DELETE FROM event")
        copy.execute("DELETE FROM event_sequence")
        copy.execute("PRAGMA page_size=512")
        copy.execute("VACUUM")


class Server:
    """One `opencode serve`: the agent behind its HTTP interface, for what the command line cannot ask for."""

    def __init__(self, home: Path, cwd: Path, model: FakeModel) -> None:
        configure(home, model.url)
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed in close
        argv = [str(binary()), "serve", "--port", "0", "--hostname", "127.0.0.1"]
        self.child = subprocess.Popen(
            argv,
            cwd=cwd,
            env=environment(home),
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            start_new_session=True,
        )
        self._cwd = cwd
        try:
            wait_for(lambda: "http://" in self._printed(), "the server's address", SECONDS * 2)
        except BaseException:
            self.close()
            raise
        self.url = "http://" + self._printed().split("http://", 1)[1].split()[0]

    def _printed(self) -> str:
        self._log.seek(0)
        return self._log.read().decode("utf-8", "replace")

    def call(self, method: str, path: str, value: Any = None, seconds: float = SECONDS) -> Any:
        """Returns the answer to one request; raises urllib's error where it is refused."""
        data = None if value is None else json.dumps(value).encode()
        headers = {"content-type": "application/json", "x-opencode-directory": str(self._cwd)}
        asked = urllib.request.Request(self.url + path, data, headers, method=method)
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(asked, timeout=seconds) as answer:
            raw = answer.read()
        return json.loads(raw) if raw else None

    def close(self) -> None:
        """Ends the server."""
        end_tree(self.child)
        self._log.close()

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def compact(home: Path, cwd: Path, session_id: str, script: Script, *, seconds: float = SECONDS * 2) -> Seen:
    """Has a session compacted; the script gives the summary."""
    provider, _, name = MODEL.partition("/")
    with FakeModel(script) as model, Server(home, cwd, model) as server:
        asked = {"providerID": provider, "modelID": name}
        server.call("POST", f"/session/{session_id}/summarize", asked, seconds)
        bodies = tuple(request.body for request in model.turns)
    return Seen(exit=0, session_id=session_id, requests=bodies)
