"""Drives the real Mistral Vibe, headless, against the fake model.

Every function takes the HOME it works in (a throw-away one) and a folder to stand in; it returns what was sent to the
model (`Seen`). Each turn is a process of its own. A session of the 2.x layout is imported when it is resumed: the
turn then goes to a new session of the unified store, `Seen.session_id`. A session pins plugins that any new session
of a home makes, so a home without them gets a throw-away session first.
"""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agents.install import find_agent
from agents.lab.acp import AcpClient
from agents.lab.model import FakeModel
from agents.lab.process import SECONDS, base_env, run
from agents.lab.script import Script
from agents.lab.seen import PROBE, Seen, find_prompt, from_chat_api

__all__ = ["Session", "list_sessions", "resume", "start", "strip"]

AGENT = "vibe"

Prompt = str

CONFIG = """active_model = "lab"
enable_telemetry = false
enable_update_checks = false
enable_auto_update = false
[[providers]]
name = "lab"
api_base = "{url}/v1"
api_key_env_var = "LAB_API_KEY"
api_style = "openai"
backend = "generic"
[[models]]
name = "lab-model"
provider = "lab"
alias = "lab"
temperature = 0.2
input_price = 0.0
output_price = 0.0
supports_images = true
[[models]]
name = "lab-model"
provider = "lab"
alias = "fake"
"""
"""The fake model, also under the name that the collected sessions were held with."""

TURN_SECONDS = SECONDS * 3
"""A turn takes long: the agent waits for names that nobody here can look up."""


def binary() -> Path:
    """Returns the agent's program. Raises FileNotFoundError where it is not installed."""
    found = find_agent(AGENT)
    if found is None:
        raise FileNotFoundError("Mistral Vibe is not installed: run python tests/agents/install.py vibe")
    return found


def environment(home: Path) -> dict[str, str]:
    """Returns the whole environment of a run."""
    lower = {"https_proxy": "http://127.0.0.1:9", "http_proxy": "http://127.0.0.1:9", "no_proxy": "127.0.0.1,localhost"}
    return base_env(home) | lower | {"LAB_API_KEY": "sk-fake-000", "MISTRAL_API_KEY": "sk-fake-000"}


def _configure(home: Path, url: str) -> None:
    folder = home / ".vibe"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    (folder / "config.toml").write_text(CONFIG.replace("{url}", url))


def _sessions(home: Path) -> dict[str, float]:
    found = (home / ".vibe" / "logs" / "session" / "unified").glob("*/CURRENT")
    return {path.parent.name: path.stat().st_mtime for path in found}


def _warm_up(home: Path) -> None:
    """Makes the plugins that every session pins, and removes the session that they were made with."""
    if (home / ".vibe" / "logs" / "session" / "plugins").is_dir():
        return
    before, folder = _sessions(home), home / ".warm-up"
    folder.mkdir()
    with FakeModel() as model:
        _turn(home, folder, "warm-up", model, [], TURN_SECONDS)
    for name in _sessions(home).keys() - before.keys():
        shutil.rmtree(home / ".vibe" / "logs" / "session" / "unified" / name)
    shutil.rmtree(folder)


def _turn(home: Path, cwd: Path, prompt: str, model: FakeModel, more: Sequence[str], seconds: float) -> Seen:
    _configure(home, model.url)
    before, asked = _sessions(home), len(model.turns)
    argv = [binary(), "-p", prompt, *more, "--output", "json", "--auto-approve", "--trust"]
    done = run(argv, cwd, environment(home), seconds)
    bodies = tuple(request.body for request in model.turns[asked:])
    request, messages, injected = find_prompt(bodies, from_chat_api, prompt)
    changed = [name for name, time in _sessions(home).items() if before.get(name) != time]
    return Seen(
        exit=done.status,
        refusal="" if done.status == 0 and request is not None else done.said or "the model was not asked",
        session_id=changed[-1] if changed else None,
        messages=tuple(messages),
        injected=tuple(injected),
        request=request,
        requests=bodies,
        reply=_reply(done.plain),
        prompt=prompt,
    )


def _reply(printed: str) -> str:
    """Returns the last text of the assistant in what `--output json` prints: one list over many lines."""
    try:
        found: Any = json.loads(printed)
    except ValueError:
        return ""
    said = [one.get("content") or [] for one in found if isinstance(one, dict) and one.get("role") == "assistant"]
    return "".join(part.get("text", "") for part in said[-1] if part.get("type") == "text") if said else ""


class Session:
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
        self._seen = _turn(self._home, self._cwd, prompt, self.model, more, seconds)
        self.session_id = self._seen.session_id
        return self._seen

    def close(self, seconds: float = SECONDS) -> Seen:
        """Returns what was seen last; nothing runs any more."""
        return self._seen

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, *_: object) -> None:
        return


def strip(home: Path) -> None:
    """Leaves of each session what a reader needs: the rest holds the agent's own prompts, under digests of their bytes.

    Such a session can be read, but the agent does not resume it.
    """
    for current in home.glob(".vibe/logs/session/unified/*/CURRENT"):
        folder = current.parent
        generation = folder / "generations" / json.loads(current.read_text())["generation"]
        manifest = json.loads((generation / "manifest.json").read_text())
        kept = {current, folder / "meta.json", generation / "manifest.json", generation / "checkpoint.json"}
        kept.add(folder / manifest["recovery_journal_segment"]["path"])
        kept |= {folder / "chunks" / f"{name}.json" for name in manifest["checkpoint"]["chunks"]}
        for path in folder.rglob("*"):
            if path.is_file() and path.parent == generation and path not in kept:
                path.write_bytes(b"{}\n")
            elif path.is_file() and path not in kept:
                path.unlink()
    for path in home.glob(".vibe/logs/session/unified/.*"):
        path.unlink()
    for path in home.glob(".vibe/logs/session/unified/active/*"):
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
    _warm_up(home)
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


def list_sessions(home: Path, cwd: Path, *, seconds: float = TURN_SECONDS) -> list[dict[str, Any]]:
    """Returns the sessions that the agent lists for a folder, newest first, as {id, title}."""
    with FakeModel() as model:
        _configure(home, model.url)
        with AcpClient([binary().with_name("vibe-acp")], cwd, environment(home)) as client:
            found = client.call("session/list", {"cwd": str(cwd)}, seconds)
            client.process.kill()
    return [{"id": one["sessionId"], "title": one.get("title")} for one in found.get("sessions") or []]
