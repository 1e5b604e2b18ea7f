"""Drives the real Cline CLI, on a terminal of its own, against the fake model.

Every function takes the HOME it works in (a throw-away one) and a folder to stand in; it returns what was sent to
the model (`Seen`). The agent resumes on a terminal only, so that its screen is waited for and prompts are typed. It is
told to keep its sessions itself: otherwise it starts a daemon that outlives it.
"""

import fcntl
import json
import os
import pty
import select
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from agents.install import find_agent
from agents.lab.model import FakeModel
from agents.lab.process import SECONDS, base_env, end_tree, run
from agents.lab.script import Script
from agents.lab.seen import PROBE, Seen, find_prompt, from_chat_api

__all__ = ["MODEL", "ClineSession", "Session", "list_sessions", "rehome", "resume", "start"]

AGENT = "cline"

MODEL = "lab-model"

PROVIDER = "openai-compatible"

READY = b"Ask anything"
"""What the empty line for a prompt says."""

ANSWERS = ((b"\x1b[c", b"\x1b[?62;c"), (b"\x1b[6n", b"\x1b[1;1R"))
"""What a terminal says when it is asked what it is, and where its cursor stands."""

BESIDE = "(see following user message for image)"
"""What stands for an image in a result."""

Prompt = str


def binary() -> Path:
    """Returns the agent's binary. Raises FileNotFoundError where it is not installed."""
    found = find_agent(AGENT)
    if found is None:
        raise FileNotFoundError("Cline is not installed: run python tests/agents/install.py cline")
    return found


def environment(home: Path) -> dict[str, str]:
    """Returns the whole environment of a run."""
    mine = {"CLINE_SESSION_BACKEND_MODE": "local", "CLINE_NO_AUTO_UPDATE": "1", "CLINE_TELEMETRY_DISABLED": "1"}
    lower = {"https_proxy": "http://127.0.0.1:9", "http_proxy": "http://127.0.0.1:9", "no_proxy": "127.0.0.1,localhost"}
    return base_env(home) | lower | mine | {"TERM": "xterm-256color"}


def data_folder(home: Path) -> Path:
    """Returns the folder that the agent keeps everything in."""
    return home / ".cline" / "data"


def configure(home: Path, url: str) -> None:
    """Writes the configuration: the fake model, and no other."""
    told = {"provider": PROVIDER, "apiKey": "sk-fake-000", "model": MODEL, "baseUrl": f"{url}/v1"}
    one = {"settings": told, "updatedAt": "2026-11-30T00:00:00.000Z", "tokenSource": "manual"}
    root = {"version": 1, "lastUsedProvider": PROVIDER, "modes": {}, "providers": {PROVIDER: one}}
    folder = data_folder(home) / "settings"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    (folder / "providers.json").write_text(json.dumps(root))


def rehome(home: Path, session_id: str, cwd: Path) -> Path:
    """Gives a recorded session the paths of this home, as the agent would have written them; returns its messages.

    The agent looks for the messages where its database says, and the description where there is no row.
    """
    del cwd
    folder = data_folder(home) / "sessions" / session_id
    path = folder / f"{session_id}.json"
    facts = json.loads(path.read_text())
    messages = folder / f"{session_id}.messages.json"
    path.write_text(json.dumps(facts | {"messages_path": str(messages)}, indent=2) + "\n")
    for name in ("sessions.db", "sessions.db-wal", "sessions.db-shm"):
        (data_folder(home) / "db" / name).unlink(missing_ok=True)
    return messages


class ClineSession:
    """One session: its first prompt is a process of its own, all others are typed in one on a terminal.

    Leaving the context ends it, with all its children.
    """

    def __init__(self, home: Path, cwd: Path, model: FakeModel, *, session_id: str | None = None, **_: Any) -> None:
        configure(home, model.url)
        self.home, self.cwd, self.model, self.session_id = home, cwd, model, session_id
        self.refusal = ""
        self._data = b""
        self._prompt = ""
        self._terminal = -1
        self._child: subprocess.Popen[bytes] | None = None

    def _open(self) -> None:
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
        argv = [str(binary()), "-P", PROVIDER, "-m", MODEL, "--id", str(self.session_id)]
        self._child = subprocess.Popen(
            argv,
            cwd=self.cwd,
            env=environment(self.home),
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        self._terminal = ours
        os.close(theirs)
        self._wait(lambda: READY in self._data, SECONDS)

    def _begin(self, prompt: Prompt, seconds: float) -> bool:
        """Starts a session with its first prompt, and waits for the end of its turn."""
        before = _session_ids(self.home)
        done = run([binary(), "--json", "-P", PROVIDER, "-m", MODEL, prompt], self.cwd, environment(self.home), seconds)
        self.session_id = next(iter(sorted(_session_ids(self.home) - before)), None)
        self.refusal = "" if done.status == 0 else done.said
        return done.status == 0

    def _wait(self, holds: Callable[[], bool], seconds: float) -> bool:
        """Reads the screen until something holds; tells whether it does."""
        end = time.monotonic() + seconds
        while not holds():
            if time.monotonic() > end:
                return False
            if not select.select([self._terminal], [], [], 0.1)[0]:
                continue
            try:
                new = os.read(self._terminal, 1 << 16)
            except OSError:  # the agent has closed its terminal
                return holds()
            self._data += new
            for asked, answer in ANSWERS:
                if asked in new:
                    os.write(self._terminal, answer)
        return True

    def _rest(self, quiet: float = 1.0, seconds: float = 8.0) -> None:
        """Reads the screen until nothing has changed on it for a while."""
        end = time.monotonic() + seconds
        size = -1
        while size != len(self._data) and time.monotonic() < end:
            size = len(self._data)
            self._wait(lambda: False, quiet)

    def say(self, prompt: Prompt, seconds: float = SECONDS) -> bool:
        """Types one prompt and waits for the end of its turn; tells whether it came."""
        self._prompt = prompt
        if self.session_id is None:
            return self._begin(prompt, seconds)
        if self._child is None:
            self._open()
        self._rest()  # it shows its line before it takes what is typed
        os.write(self._terminal, prompt.encode())
        self._rest()
        os.write(self._terminal, b"\r")
        done = self._wait(self._is_over, seconds)
        self.refusal = self.refusal or ("" if done else "the turn did not end")
        return done

    def _is_over(self) -> bool:
        """Tells whether the agent has kept a reply without calls behind the prompt."""
        messages = _kept(self.home, self.session_id or "")
        last: dict[str, Any] = messages[-1] if messages else {}
        asked = any(self._prompt in json.dumps(m["content"], ensure_ascii=False) for m in messages[-12:])
        calls = [block for block in last.get("content", []) if block.get("type") == "tool_use"]
        return asked and last.get("role") == "assistant" and not calls

    @property
    def reply(self) -> str:
        """What the agent said last."""
        messages = _kept(self.home, self.session_id or "")
        blocks: Any = messages[-1]["content"] if messages and messages[-1]["role"] == "assistant" else []
        return "".join(block.get("text", "") for block in blocks)

    def close(self) -> Seen:
        """Ends the process as a person does, and what is left of it after a moment."""
        child = self._child
        for _ in range(2 if child is not None else 0):
            try:
                os.write(self._terminal, b"\x03")
            except OSError:
                break
            self._wait(lambda: child is None or child.poll() is not None, 1.5)
        self._end()
        return self.seen(0)

    def seen(self, status: int | None) -> Seen:
        """Returns what was sent to the model, for the last prompt."""
        bodies = tuple(request.body for request in self.model.turns)
        request, messages, injected = find_prompt(bodies, read_body, self._prompt)
        refusal = self.refusal or ("" if request is not None else "the model was not asked")
        return Seen(
            exit=1 if status == 0 and refusal else status,
            refusal=refusal,
            session_id=self.session_id,
            messages=tuple(messages),
            injected=tuple(injected),
            request=request,
            requests=bodies,
            reply=self.reply,
            prompt=self._prompt,
        )

    def _end(self) -> None:
        if self._child is not None:
            end_tree(self._child)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()
        if self._terminal >= 0:
            os.close(self._terminal)


Session = ClineSession
"""The same name in every driver."""


def read_body(body: Any) -> tuple[list[dict[str, Any]], list[dict[str, str]]]:
    """Reads a request; images of results, which this API takes from a user only, go back to their results.

    Such a result is sent as a list of its texts, spelled as JSON.
    """
    messages, injected = from_chat_api(body)
    out: list[dict[str, Any]] = []
    for message in messages:
        before = out[-1] if out else None
        if message["role"] == "user" and not message["texts"] and before is not None and before["role"] == "tool":
            before["images"].extend(message["images"])
            for result in before["tool_results"]:
                result["text"] = _joined(result["text"])
        else:
            out.append(message)
    return out, injected


def _joined(text: str) -> str:
    try:
        blocks: Any = json.loads(text)
        texts = [block["text"] for block in blocks if block["type"] == "text"]
    except (ValueError, TypeError, KeyError):
        return text
    return "".join(one for one in texts if one != BESIDE)


def _session_ids(home: Path) -> set[str]:
    return {path.parent.name for path in data_folder(home).glob("sessions/*/*.json")}


def _kept(home: Path, session_id: str) -> list[dict[str, Any]]:
    path = data_folder(home) / "sessions" / session_id / f"{session_id}.messages.json"
    try:
        return json.loads(path.read_bytes())["messages"]
    except (OSError, ValueError, KeyError):
        return []


def resume(
    home: Path, cwd: Path, session_id: str, prompt: str = PROBE, script: Script = (), *, seconds: float = SECONDS
) -> Seen:
    """Resumes a session with one prompt, to the end of its turn."""
    with FakeModel(script) as model, ClineSession(home, cwd, model, session_id=session_id) as session:
        session.say(prompt, seconds)
        return session.close()


def start(home: Path, cwd: Path, prompts: Sequence[Prompt], script: Script = (), *, seconds: float = SECONDS) -> Seen:
    """Holds a new session: one turn a prompt, in one process. What is seen is the last turn."""
    with FakeModel(script) as model, ClineSession(home, cwd, model) as session:
        for prompt in prompts:
            session.say(prompt, seconds)
        return session.close()


def list_sessions(home: Path, cwd: Path, *, seconds: float = SECONDS) -> list[dict[str, Any]]:
    """Returns the sessions that the agent lists, newest first, as {id, title}."""
    done = run([binary(), "history", "--json"], cwd, environment(home), seconds)
    rows: list[Any] = done.lines[-1] if done.lines else json.loads(done.plain)
    return [
        {"id": one["sessionId"], "title": one["metadata"]["title"] if one.get("metadata") else None} for one in rows
    ]
