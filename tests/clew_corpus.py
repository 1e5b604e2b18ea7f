"""Sessions to test with, one small value a case.

`own_cases` are this repository's fixtures (tests/fixtures). `shared_cases`, `fault_cases` and `public_sessions` are
larger collections that may stand beside the checkout (`CLEW_SHARED` names the folder, else ../shared); where there is
none they are empty. Everything here is read-only input: a test works on a copy (`Case.copy_home`).
"""

import json
import os
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agents.lab.judge import to_groups

__all__ = [
    "FIXTURES",
    "Case",
    "fault_cases",
    "own_case",
    "own_cases",
    "public_sessions",
    "shared_cases",
    "shared_dir",
]

ROOT = Path(__file__).resolve().parent

FIXTURES = ROOT / "fixtures" / "sessions"

SHORT_NAMES = {"claude-code": "claude", "kimi-code": "kimi", "mistral-vibe": "vibe"}


@dataclass(frozen=True)
class Case:
    """One stored session with what was really said in it.

    home: stands for the user's HOME, read-only. paths: the session's own file(s) under it, the streams in order
    (all sessions' files where the case has no session_id).
    expected: the effective context as messages {role, text, tool_calls: [{id, name, arguments}], tool_results:
    [{call_id, text, is_error}], images}, a result at the message of its call; None where nobody knows.
    expected_full: the full history, where it is another. data: the case's description as it is stored.
    """

    agent: str
    name: str
    home: Path
    session_id: str | None
    cwd: str | None
    expected: tuple[dict[str, Any], ...] | None = None
    expected_full: tuple[dict[str, Any], ...] | None = None
    paths: tuple[Path, ...] = ()
    data: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def __str__(self) -> str:
        return f"{self.agent}-{self.name}"

    def copy_home(self, target: Path) -> Path:
        """Copies the home to a folder that may not exist yet, writable, with the agents' own file modes."""
        shutil.copytree(self.home, target, symlinks=True)
        for path in [target, *target.rglob("*")]:
            if not path.is_symlink():
                path.chmod(0o700 if path.is_dir() else 0o600)
        return target

    def copied_paths(self, target: Path) -> tuple[Path, ...]:
        """Returns the session's files in a copy of the home."""
        return tuple(target / path.relative_to(self.home) for path in self.paths)


def own_cases(agent: str | None = None) -> tuple[Case, ...]:
    """Returns this repository's fixtures, in a fixed order."""
    return _of_agent(agent, sorted(FIXTURES.glob("*/*/case.json")))


def own_case(agent: str, name: str) -> Case:
    """Returns one of this repository's fixtures."""
    return _read(FIXTURES / agent / name / "case.json")


def shared_dir() -> Path | None:
    """Returns the folder of the shared collections, or None where there is none."""
    named = os.environ.get("CLEW_SHARED")
    path = Path(named) if named else ROOT.parent.parent / "shared"
    return path if path.is_dir() else None


def shared_cases(agent: str | None = None) -> tuple[Case, ...]:
    """Returns the shared collection of real sessions.

    Its `expected` joins the texts of one message, and neighbouring user messages of Claude Code, with a line end.
    """
    base = shared_dir()
    return _of_agent(agent, sorted(base.glob("corpus/*/*/case.json")) if base else ())


def fault_cases(agent: str | None = None) -> tuple[Case, ...]:
    """Returns the shared collection of faults; `data` holds the whole expectation, in each case's own form."""
    base = shared_dir()
    return _of_agent(agent, sorted(base.glob("cases/*/case.json")) if base else ())


def public_sessions(agent: str | None = None) -> tuple[Case, ...]:
    """Returns single files of public repositories: `paths` is the file, nothing more is known.

    The agent is guessed from the file's name ("unknown" where it does not tell).
    """
    base = shared_dir()
    found: list[Case] = []
    for path in sorted(base.glob("public-sessions/*.json*")) if base else ():
        parts = path.name.split("__")
        name = parts[2] if len(parts) > 2 else "unknown"
        short = SHORT_NAMES.get(name, name)
        if agent in (None, short):
            found.append(Case(short, path.stem, path.parent, None, None, paths=(path,)))
    return tuple(found)


def _of_agent(agent: str | None, paths: Iterable[Path]) -> tuple[Case, ...]:
    cases = [_read(path) for path in paths]
    return tuple(case for case in cases if agent in (None, case.agent))


def _read(path: Path) -> Case:
    data = json.loads(path.read_text("utf-8"))
    named = str(data.get("agent") or "unknown")
    agent = SHORT_NAMES.get(named, named)
    home = path.parent / "home"
    session_id = data.get("session_id")
    return Case(
        agent=agent,
        name=path.parent.name,
        home=home,
        session_id=session_id,
        cwd=data.get("cwd"),
        expected=_messages(data.get("expected")),
        expected_full=_messages(data.get("expected_full") or data.get("expected_before_compaction")),
        paths=_streams(agent, home, session_id),
        data=data,
    )


def _messages(found: Any) -> tuple[dict[str, Any], ...] | None:
    messages = found.get("messages") if isinstance(found, dict) else found
    if not isinstance(messages, list):
        return None
    return tuple(to_groups(messages))


def _streams(agent: str, home: Path, session_id: str | None) -> tuple[Path, ...]:
    if agent.startswith("claude"):
        return tuple(sorted(home.glob(f".claude/projects/*/{session_id or '*'}.jsonl")))
    if agent == "gemini":
        short = (session_id or "")[:8]
        return tuple(sorted(home.glob(f".gemini/tmp/*/chats/session-*{short}.json*")))
    if agent == "qwen":
        return tuple(sorted(home.glob(f".qwen/projects/*/chats/{session_id or '*'}.jsonl")))
    if agent == "grok":
        return tuple(sorted(home.glob(f".grok/sessions/*/{session_id or '*'}/chat_history.jsonl")))
    if agent == "cline":
        return tuple(sorted(home.glob(f".cline/data/sessions/*/{session_id or '*'}.messages.json")))
    if agent == "kimi":
        return tuple(sorted(home.glob(f".kimi-code/sessions/*/{session_id or '*'}/agents/main/wire.jsonl")))
    if agent == "pi":
        return tuple(sorted(home.glob(f".pi/agent/sessions/*/*{session_id or ''}.jsonl")))
    if agent == "droid":
        return tuple(sorted(home.glob(f".factory/sessions/*/{session_id or '*'}.jsonl")))
    if agent == "vibe":
        return tuple(sorted(home.glob(f".vibe/logs/session/unified/{session_id or '*'}/chunks/*.json")))
    if agent == "openhands":
        name = (session_id or "*").replace("-", "")
        return tuple(sorted(home.glob(f".openhands/conversations/{name}/events/event-*.json")))
    if agent == "hermes":
        return tuple(sorted(home.glob(".hermes/state.db")))
    if agent == "opencode":
        return tuple(sorted(home.glob(".local/share/opencode/opencode.db")))
    if agent == "codex":
        found = [path for path in home.glob(".codex/*sessions/**/rollout-*") if (session_id or "") in path.name]
        # One thread, several files: the plain name is the first; a revert adds "_<segment>" and a later time.
        return tuple(sorted(found, key=lambda path: ("_" in path.name, path.name)))
    return ()
