"""Records a scripted conversation with a real agent: its files, and what was really said in it.

What was said is taken from the model's side (the requests and the script's answers), never from the agent's files: so
a fixture can judge a reader of those files.
"""

import json
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agents.lab import (
    claude,
    cline,
    codex,
    droid,
    gemini,
    grok,
    hermes,
    kimi,
    opencode,
    openhands,
    pi,
    qwen,
    seen,
    vibe,
)
from agents.lab.judge import to_groups
from agents.lab.kit import KITS
from agents.lab.model import FakeModel, Request
from agents.lab.script import Call, Reasoning, Script, Step, Text

__all__ = ["Recorder", "Recording"]

READERS: dict[str, Any] = {
    "claude": seen.from_messages_api,
    "cline": cline.read_body,
    "codex": seen.from_responses_api,
    "droid": droid.read_body,
    "gemini": gemini.read_body,
    "grok": grok.read_body,
    "hermes": seen.from_chat_api,
    "kimi": kimi.read_body,
    "opencode": opencode.read_body,
    "openhands": openhands.read_body,
    "pi": pi.read_body,
    "qwen": qwen.read_body,
    "vibe": seen.from_chat_api,
}

FOLDERS: dict[str, tuple[str, ...]] = {
    "claude": (".claude/projects", ".claude/file-history"),
    "cline": (".cline/data/sessions",),
    "codex": (".codex/sessions",),
    "droid": (".factory/sessions",),
    "gemini": (".gemini/tmp",),
    "grok": (".grok/sessions",),
    "hermes": (),
    "kimi": (".kimi-code/sessions",),
    "opencode": (),
    "openhands": (openhands.CONVERSATIONS,),
    "pi": (".pi/agent/sessions",),
    "qwen": (".qwen/projects",),
    "vibe": (".vibe/logs/session/unified",),
}
"""What belongs to sessions in an agent's home; everything else is settings and caches."""


SESSIONS: dict[str, Any] = {
    "cline": cline,
    "droid": droid,
    "gemini": gemini,
    "grok": grok,
    "hermes": hermes,
    "kimi": kimi,
    "openhands": openhands,
    "pi": pi,
    "qwen": qwen,
    "vibe": vibe,
}
"""Drivers whose sessions are opened alike."""

ASIDES = {"grok": (grok.ASIDE,), "qwen": (qwen.ASIDE,)}
"""Answers to what an agent asks besides the conversation."""

KEPT = {
    "grok": ("chat_history.jsonl", "updates.jsonl", "summary.json", "meta.json", "output.json"),
    "kimi": ("wire.jsonl", "state.json"),
}
"""What a fixture keeps of a session's folder where most of it is the agent's own bookkeeping and prompts."""


@dataclass
class Recording:
    """One recorded session: its id and folder, and the messages of its effective context and of its full history."""

    session_id: str
    cwd: str
    expected: list[dict[str, Any]]
    expected_full: list[dict[str, Any]] | None = None
    notes: str = ""
    more: dict[str, Any] = field(default_factory=dict)


class Recorder:
    """One case being recorded: a home and a working folder, and everything the model was asked.

    `asides` are answers to requests that are not the main conversation (a helper's, a summary's).
    """

    def __init__(self, agent: str, home: Path, cwd: Path) -> None:
        self.agent = agent
        self.kit = KITS[agent]
        self.home = home
        self.cwd = cwd
        self.asides: list[Step] = list(ASIDES.get(agent, ()))
        self.model: FakeModel | None = None
        cwd.mkdir(parents=True)

    def file(self, name: str, text: str) -> Path:
        """Puts a file into the working folder."""
        path = self.cwd / name
        path.write_text(text, newline="")
        return path

    @contextmanager
    def open(
        self, script: Script = (), *, resume: str | None = None, fork: bool = False, **options: Any
    ) -> Iterator[Any]:
        """Opens a session, new or resumed; leaving the context ends it if it still runs."""
        with FakeModel([*ASIDES.get(self.agent, ()), *script]) as model:
            self.model = model
            if self.agent == "claude":
                more = (["--resume", resume] if resume else []) + (["--fork-session"] if fork else [])
                options.setdefault("tools", self.kit.tools)
                session: Any = claude.ClaudeSession(self.home, self.cwd, model, more, **options)
            elif self.agent == "opencode":
                session = opencode.OpenCodeSession(self.home, self.cwd, model, session_id=resume, fork=fork)
            elif self.agent in SESSIONS:
                session = self._session(model, resume, fork, options)
            else:
                session = codex.CodexSession(self.home, self.cwd, model, session_id=resume, fork=fork, **options)
            with session:
                yield session
            if model.unused:
                raise AssertionError(f"steps {model.unused} of the script were never asked for")

    def _session(self, model: FakeModel, resume: str | None, fork: bool, options: dict[str, Any]) -> Any:
        """Opens a session of a driver; with `acp` in that mode, with `runs` in runs of their own."""
        driver, acp, runs = SESSIONS[self.agent], options.pop("acp", False), options.pop("runs", False)
        kind = driver.AcpSession if acp else driver.Runs if runs else driver.Session
        return kind(self.home, self.cwd, model, session_id=resume, fork=fork, **options)

    def hold(self, prompts: Sequence[Any], script: Script, **options: Any) -> str:
        """Holds a whole session, one turn a prompt; returns its id."""
        with self.open(script, **options) as session:
            for prompt in prompts:
                session.say(prompt)
            session.close()
            return str(session.session_id)

    def said(self) -> list[dict[str, Any]]:
        """Returns the messages that the model of the last process knows: its last request and its answer to it."""
        assert self.model is not None
        turns = [one for one in self.model.turns if one.step not in self.asides and self._is_main(one)]
        last = turns[-1]
        messages, _ = READERS[self.agent](last.body)
        if self.agent == "claude":
            messages = [part for message in messages for part in _apart(message)]
        step = last.step
        if step.hang_after is None and step.cut_after is None and step.status is None:
            messages.append(_answer(step))
        if self.agent == "hermes":  # it keeps an answer without the blanks around it
            messages[-1]["text"] = messages[-1]["text"].strip()
        return to_groups(_without_halves(messages))

    def _is_main(self, request: Request) -> bool:
        return self.agent == "codex" or bool(request.body.get("tools"))

    def text(self) -> str:
        """Returns everything in the session files so far."""
        found = sorted(path for folder in FOLDERS[self.agent] for path in (self.home / folder).rglob("*.jsonl"))
        return "".join(path.read_bytes().decode("utf-8", "replace") for path in found)

    def records(self) -> list[Any]:
        """Returns the whole records of the session files so far."""
        found: list[Any] = []
        for line in self.text().split("\n"):
            try:
                found.append(json.loads(line))
            except ValueError:
                continue  # the last line may still be being written
        return found

    def collect(self, target: Path) -> None:
        """Copies the session files to a fixture's home."""
        for folder in FOLDERS[self.agent]:
            if (self.home / folder).is_dir():
                shutil.copytree(self.home / folder, target / folder)
        if self.agent == "opencode":
            opencode.pack(self.home, target)
        if self.agent == "hermes":
            hermes.pack(self.home, target)
        if self.agent == "vibe":
            vibe.strip(target)
        if self.agent == "openhands":
            openhands.strip(target)
        for path in sorted(target.rglob("*"), reverse=True):
            kept = KEPT.get(self.agent)
            is_other = kept is not None and path.name not in kept and path.parent.name != "blobs"
            is_log = self.agent in ("gemini", "qwen") and not _is_chat(path)
            if path.is_file() and (is_other or is_log):
                path.unlink()
            elif path.is_dir() and not any(path.iterdir()):
                path.rmdir()


def _is_chat(path: Path) -> bool:
    """Tells whether a file of Gemini CLI or Qwen Code is a session, a helper's, or the mark of their folder."""
    inside = path.parent.parent.name in ("chats", "subagents") and path.suffix == ".jsonl"
    return path.parent.name == "chats" or inside or path.name == ".project_root"


def _without_halves(value: Any) -> Any:
    """Puts U+FFFD for every lone surrogate, as what counts as being said."""
    if isinstance(value, dict):
        return {name: _without_halves(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_without_halves(one) for one in value]
    return re.sub("[\ud800-\udfff]", "\ufffd", value) if isinstance(value, str) else value


def _apart(message: dict[str, Any]) -> Iterator[dict[str, Any]]:
    # Claude Code joins neighbouring user records in a request, each as a text of its own; they are stored apart.
    if message["role"] != "user" or len(message["texts"]) < 2:
        yield message
        return
    first, *rest = message["texts"]
    yield message | {"texts": [first], "text": first}
    for text in rest:
        yield seen.message("user") | {"texts": [text], "text": text}


def _answer(step: Step) -> dict[str, Any]:
    answer = seen.message("assistant")
    for part in step.parts:
        match part:
            case Text(text=text):
                answer["texts"].append(text)
                answer["text"] += text
            case Call(name=name, arguments=arguments, id=call_id, namespace=namespace):
                call = {"id": call_id, "name": name, "arguments": arguments}
                answer["tool_calls"].append(call | ({"namespace": namespace} if namespace else {}))
            case Reasoning(text=text, signature=signature):
                answer["reasoning"].append({"text": text, "signature": signature})
            case _:
                raise AssertionError(f"a recorded answer has no such part: {part}")
    return answer
