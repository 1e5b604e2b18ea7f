"""Drives the real Hermes, headless, against the fake model.

Every function takes the HOME it works in (a throw-away one) and a folder to stand in; it returns what was sent to the
model (`Seen`). Each turn is a process of its own (`hermes chat -q`), with the prompt as an argument, which therefore
has no zero byte. A resumed session goes to its own folder by itself.
"""

import contextlib
import re
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agents.install import find_agent
from agents.lab.model import FakeModel
from agents.lab.process import SECONDS, Finished, base_env, run
from agents.lab.script import Script
from agents.lab.seen import PROBE, Seen, find_prompt, from_chat_api, message

__all__ = ["Session", "binary", "command", "environment", "list_sessions", "pack", "resume", "start"]

AGENT = "hermes"

TURN_SECONDS = SECONDS * 3

Prompt = str

CONFIG = """model:
  provider: custom
  default: lab-model
  base_url: {url}/v1
  api_key: sk-fake-000
  context_length: 200000
  supports_vision: true
security:
  tirith_enabled: false
"""

DATABASE = ".hermes/state.db"


def binary() -> Path:
    """Returns the agent's program. Raises FileNotFoundError where it is not installed."""
    found = find_agent(AGENT)
    if found is None:
        raise FileNotFoundError("Hermes is not installed: run python tests/agents/install.py hermes")
    return found


def environment(home: Path) -> dict[str, str]:
    """Returns the whole environment of a run."""
    lower = {"https_proxy": "http://127.0.0.1:9", "http_proxy": "http://127.0.0.1:9", "no_proxy": "127.0.0.1,localhost"}
    return base_env(home) | lower | {"OPENAI_API_KEY": "sk-fake-000"}


def configure(home: Path, url: str) -> None:
    """Writes the configuration: one model, which is the fake one."""
    folder = home / ".hermes"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    (folder / "config.yaml").write_text(CONFIG.format(url=url))


def turn(home: Path, cwd: Path, prompt: str, model: FakeModel, more: Sequence[str], seconds: float) -> Seen:
    """Gives one prompt to the agent, in a process of its own."""
    configure(home, model.url)
    asked = len(model.turns)
    argv = [binary(), "chat", "-t", "terminal,file", "-q", prompt, "-Q", "--yolo", *more]
    done = run(argv, cwd, environment(home), seconds)
    bodies = tuple(request.body for request in model.turns[asked:])
    request, messages, injected = find_prompt(bodies, lambda body: read_body(body, prompt), prompt)
    named = re.search(r"session_id: (\S+)", done.said + "\n" + done.plain)
    return Seen(
        exit=done.status,
        refusal="" if done.status == 0 and request is not None else done.said or "the model was not asked",
        session_id=named.group(1) if named else newest(home),
        messages=tuple(messages),
        injected=tuple(injected),
        request=request,
        requests=bodies,
        reply=done.plain.strip(),
        prompt=prompt,
    )


def read_body(body: Any, prompt: str) -> tuple[list[dict[str, Any]], list[dict[str, str]]]:
    """Reads a request; a prompt that the agent glued to one before it without an answer is taken off again."""
    messages, injected = from_chat_api(body)
    last = next((n for n in range(len(messages) - 1, -1, -1) if messages[n]["role"] == "user"), None)
    glued = f"\n\n{prompt}"
    if last is not None and messages[last]["text"].endswith(glued):
        text = messages[last]["text"].removesuffix(glued)
        before = messages[last] | {"text": text, "texts": [text]}
        after = message("user") | {"text": prompt, "texts": [prompt]}
        messages[last : last + 1] = [before, after]
    return messages, injected


def newest(home: Path) -> str | None:
    """Returns the session that the last message was written to."""
    path = home / DATABASE
    if not path.exists():
        return None
    with contextlib.closing(sqlite3.connect(path)) as database:
        found = database.execute("SELECT session_id FROM messages ORDER BY id DESC LIMIT 1").fetchone()
    return str(found[0]) if found else None


class HermesSession:
    """One session, new or resumed: each prompt is a process of its own."""

    def __init__(
        self, home: Path, cwd: Path, model: FakeModel, *, session_id: str | None = None, fork: bool = False
    ) -> None:
        assert not fork, "the agent forks on its own screen only"
        self.model = model
        self.session_id = session_id
        self._home, self._cwd = home, cwd
        self._seen = Seen(exit=0, session_id=session_id)

    def say(self, prompt: Prompt, seconds: float = TURN_SECONDS) -> Seen:
        """Says one thing."""
        more = ["--resume", self.session_id] if self.session_id else []
        self._seen = turn(self._home, self._cwd, prompt, self.model, more, seconds)
        self.session_id = self._seen.session_id or self.session_id
        return self._seen

    def close(self, seconds: float = SECONDS) -> Seen:
        """Returns what was seen last; nothing runs any more."""
        return self._seen

    def __enter__(self) -> "HermesSession":
        return self

    def __exit__(self, *_: object) -> None:
        return


Session = HermesSession
"""The same name in every driver."""


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
        return turn(home, cwd, prompt, model, ["--resume", session_id], seconds)


def start(
    home: Path, cwd: Path, prompts: Sequence[Prompt], script: Script = (), *, seconds: float = TURN_SECONDS
) -> Seen:
    """Holds a new session, a process a prompt. What is seen is the last turn."""
    with FakeModel(script) as model, HermesSession(home, cwd, model) as session:
        for prompt in prompts:
            session.say(prompt, seconds)
        return session.close()


def command(home: Path, cwd: Path, argv: Sequence[str], seconds: float = TURN_SECONDS) -> Finished:
    """Runs one command of the agent's that asks no model."""
    with FakeModel() as model:
        configure(home, model.url)
        return run([binary(), *argv], cwd, environment(home), seconds)


def list_sessions(home: Path, cwd: Path | None = None, *, seconds: float = TURN_SECONDS) -> list[dict[str, Any]]:
    """Returns the sessions that the agent lists, newest first, as {id, title}: ids as the last word of a line."""
    done = command(home, cwd or home, ["sessions", "list", "--limit", "1000"], seconds)
    assert done.status == 0, done.said
    lines = [line.split() for line in done.plain.split("\n")]
    return [{"id": words[-1], "title": " ".join(words[:-1])} for words in lines if len(words) > 1]


def pack(home: Path, target: Path) -> None:
    """Copies the database into a fixture's home: without the agent's own prompt and search, in the smallest pages."""
    path = target / DATABASE
    path.parent.mkdir(parents=True)
    with (
        contextlib.closing(sqlite3.connect(home / DATABASE)) as source,
        contextlib.closing(sqlite3.connect(path, isolation_level=None)) as copy,
    ):
        source.backup(copy)
        copy.execute("PRAGMA journal_mode=DELETE")
        copy.execute("UPDATE sessions SET system_prompt = NULL, billing_base_url = 'http://127.0.0.1:9/v1'")
        copy.execute("UPDATE OR REPLACE session_model_usage SET billing_base_url = 'http://127.0.0.1:9/v1'")
        for name in ("messages_fts_trigram", "messages_fts"):  # all of this the agent makes anew
            for when in ("insert", "delete", "update"):
                copy.execute(f"DROP TRIGGER IF EXISTS {name}_{when}")
            copy.execute(f"DROP TABLE IF EXISTS {name}")
        for name in ("async_delegations", "compression_locks", "gateway_routing"):
            copy.execute(f"DROP TABLE {name}")
        for (name,) in copy.execute("SELECT name FROM sqlite_master WHERE type = 'index' AND sql NOTNULL").fetchall():
            copy.execute(f"DROP INDEX {name}")
        copy.execute("PRAGMA page_size=512")
        copy.execute("VACUUM")
