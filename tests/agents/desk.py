"""A desk at which a real agent reviews: a repository, a home with the agent's settings, the command line as a process.

The agent is the one that a user would call, by its name on PATH, with the fake model behind it.
"""

import hashlib
import json
import os
import re
import shlex
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from agents.install import find_agent, find_runner
from agents.lab import claude, codex, droid, gemini, grok, kimi, opencode, pi, qwen, vibe
from agents.lab.model import FakeModel
from agents.lab.process import end_tree
from agents.lab.script import Step, say

__all__ = ["MODELS", "SECONDS", "Desk", "answer", "fingerprint"]

MODELS = {
    "claude": ("claude-opus-4-5", "claude-sonnet-4-5"),
    "codex": ("gpt-5.5", "gpt-5.4"),
    "droid": (droid.MODEL, ""),
    "gemini": (gemini.MODEL, ""),
    "grok": (grok.MODEL, ""),
    "kimi": (kimi.MODEL, ""),
    "opencode": (opencode.MODEL, ""),
    "pi": (pi.MODEL, ""),
    "qwen": (qwen.MODEL, ""),
    "vibe": ("fake", ""),
}
"""The model that an agent is asked with, and another one."""

SECONDS = 120

ASKED = re.compile(r"Lines are counted from 1 in the new file.*?\\n\\nFile: (.+?)(?: \(before|\\n)")


def answer(path: str, **options: Any) -> Step:
    """The answer about one file: one finding on its first line."""
    finding = {"text": f"look at {path}", "severity": "major", "start_line": 1}
    when = f"File: {path}(?:$|[^A-Za-z0-9_./-])"
    return say(json.dumps({"findings": [finding]}), when=when, **options)


def fingerprint(*folders: Path) -> str:
    """A digest over every file below the folders: names, links, contents, modes, times."""
    told = hashlib.sha256()
    for folder in folders:
        for path in sorted(folder.rglob("*")):
            facts = path.lstat()
            told.update(f"{path}\0{facts.st_mode}\0{facts.st_size}\0{facts.st_mtime_ns}\0".encode())
            if path.is_symlink():
                told.update(os.fsencode(path.readlink()))
            elif path.is_file():
                told.update(path.read_bytes())
    return told.hexdigest()


class Desk:
    """Everything that a review needs, below one folder; `root` is the repository, which `git` works in."""

    def __init__(self, agent: str, folder: Path, model: FakeModel) -> None:
        self.agent, self.model = agent, model
        self.home, self.root, self.data = folder / "home", folder / "shop", folder / "data"
        for made in (self.home, self.root):
            made.mkdir()
        self.environment = self._environment(folder)

    def _environment(self, folder: Path) -> dict[str, str]:
        programs = folder / "bin"
        programs.mkdir()
        _lay_out(self.agent, programs)
        git = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
        env = SURROUNDINGS[self.agent](self.home, self.model)
        return env | git | {"PATH": f"{programs}:{env['PATH']}", "CLEW_DATA": str(self.data)}

    def git(self, *arguments: str) -> str:
        """Runs git in the repository."""
        who = ("-c", "user.name=A", "-c", "user.email=a@example.org")
        done = subprocess.run(
            ("git", "-C", self.root, *who, *arguments), env=self.environment, capture_output=True, check=True
        )
        return done.stdout.decode()

    def commit(self, files: dict[str, str]) -> None:
        """Commits files as they are given."""
        for name, content in files.items():
            (self.root / name).write_text(content)
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "change")

    def start(self, *words: str, **more: str) -> subprocess.Popen[bytes]:
        """Starts the command line, which writes JSON."""
        code = "from clew.cli.main import main; main()"
        return subprocess.Popen(
            (sys.executable, "-c", code, *words, "--json"),
            cwd=self.root,
            env=self.environment | more,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def clew(self, *words: str, **more: str) -> tuple[int, dict[str, Any]]:
        """Runs the command line and returns its status and what it wrote: a report, else the last line."""
        child = self.start(*words, **more)
        try:
            out, err = child.communicate(timeout=SECONDS)
        finally:
            end_tree(child)
        text = (out or err).decode().strip()
        if text and "--format" not in words:
            text = text.splitlines()[-1]
        return child.returncode, json.loads(text or "{}")

    def listed(self) -> list[dict[str, Any]]:
        """The sessions of every folder, as `clew ls` has them."""
        child = self.start("ls", "--all", "--hidden")
        out, _ = child.communicate(timeout=SECONDS)
        return [json.loads(line) for line in out.splitlines()]

    def asked(self, since: int = 0) -> Counter[str]:
        """How often the model was asked about each file; answers are given at once, so that every request counts."""
        bodies = [json.dumps(turn.body) for turn in self.model.turns[since:]]
        return Counter(found[1] for body in bodies if (found := ASKED.search(body)))


def _lay_out(agent: str, programs: Path) -> None:
    """Puts the agent under its plain name; a script with its runner gets a shell line that calls both."""
    binary, runner = find_agent(agent), find_runner(agent)
    assert binary is not None
    if runner is None:
        (programs / agent).symlink_to(binary)
        return
    path = programs / agent
    path.write_text(f'#!/bin/sh\nexec {shlex.quote(str(runner))} {shlex.quote(str(binary))} "$@"\n')
    path.chmod(0o755)


def _claude(home: Path, model: FakeModel) -> dict[str, str]:
    return claude.environment(home, model)


def _codex(home: Path, model: FakeModel) -> dict[str, str]:
    env = codex.environment(home)
    options = list(codex.overrides(model, home, codex.PROVIDER, MODELS["codex"][0]))[1::2]
    (home / ".codex" / "config.toml").write_text(_config(options))
    return env


def _config(options: Sequence[str]) -> str:
    """Codex's `-c` options as its configuration file: plain keys first, then tables."""
    plain = [option for option in options if "." not in option.partition("=")[0]]
    dotted = [option for option in options if "." in option.partition("=")[0]]
    return "\n".join([*plain, *dotted]) + "\n"


def _gemini(home: Path, model: FakeModel) -> dict[str, str]:
    gemini.configure(home)
    return gemini.environment(home, model.url)


def _qwen(home: Path, model: FakeModel) -> dict[str, str]:
    qwen.configure(home)
    return qwen.environment(home, model.url)


def _opencode(home: Path, model: FakeModel) -> dict[str, str]:
    opencode.configure(home, model.url)
    return opencode.environment(home)


def _grok(home: Path, model: FakeModel) -> dict[str, str]:
    grok.configure(home, model.url)
    return grok.environment(home)


def _kimi(home: Path, model: FakeModel) -> dict[str, str]:
    kimi.configure(home, model.url)
    return kimi.environment(home)


def _pi(home: Path, model: FakeModel) -> dict[str, str]:
    pi.configure(home, model.url)
    return pi.environment(home)


def _droid(home: Path, model: FakeModel) -> dict[str, str]:
    droid.configure(home, model.url)
    return droid.environment(home)


def _vibe(home: Path, model: FakeModel) -> dict[str, str]:
    folder = home / ".vibe"
    folder.mkdir(mode=0o700)
    (folder / "config.toml").write_text(vibe.CONFIG.replace("{url}", model.url))
    return vibe.environment(home)


SURROUNDINGS: dict[str, Callable[[Path, FakeModel], dict[str, str]]] = {
    "claude": _claude,
    "codex": _codex,
    "droid": _droid,
    "gemini": _gemini,
    "grok": _grok,
    "kimi": _kimi,
    "opencode": _opencode,
    "pi": _pi,
    "qwen": _qwen,
    "vibe": _vibe,
}
"""What writes each agent's settings into a home and returns the environment that it runs in."""
