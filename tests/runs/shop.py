"""A small git repository, and askers that answer from a script, for the tests of reviews."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from clew.runs.engine import RunOptions, RunResult, carry_out
from clew.runs.lineage import Target
from clew.runs.operation import ItemContext, Usage
from clew.runs.review.asking import Answer, Patience
from clew.runs.review.git import Git, open_repository
from clew.runs.review.operation import ReviewLimits, ReviewOperation, make_wanted
from clew.runs.review.rules import FileFilter, RuleSet, load_rules
from runs.toys import make_settings

QUIET = Patience(tries=3, first_s=0)


def environment(home: Path) -> dict[str, str]:
    """An environment that knows nothing of this machine."""
    home.mkdir(exist_ok=True)
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_AUTHOR_NAME": "A",
        "GIT_AUTHOR_EMAIL": "a@example.org",
        "GIT_COMMITTER_NAME": "A",
        "GIT_COMMITTER_EMAIL": "a@example.org",
        "GIT_AUTHOR_DATE": "2026-01-02T03:04:05Z",
        "GIT_COMMITTER_DATE": "2026-01-02T03:04:05Z",
    }


class Shop:
    """A repository below `folder`; `git` runs the command in it, `write` and `commit` make history."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.root = folder / "shop"
        self.environment = environment(folder / "home")
        self.root.mkdir()
        self.git("init", "-q", "-b", "main")

    def git(self, *arguments: str) -> str:
        done = subprocess.run(
            ("git", "-C", str(self.root), *arguments), env=self.environment, capture_output=True, check=True
        )
        return done.stdout.decode("utf-8", "surrogateescape").strip()

    def write(self, files: Mapping[str, str | bytes | None]) -> None:
        for name, content in files.items():
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if content is None:
                path.unlink()
            else:
                path.write_bytes(content.encode() if isinstance(content, str) else content)

    def commit(self, files: Mapping[str, str | bytes | None], message: str = "change") -> str:
        self.write(files)
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", message)
        return self.git("rev-parse", "HEAD")

    def open(self) -> Git:
        return open_repository(self.root, self.environment)


def finding(path: str = "", text: str = "look", **more: object) -> dict[str, object]:
    return {"text": text, "severity": "major", **({"path": path} if path else {}), **more}


def answer(*findings: dict[str, object]) -> str:
    return json.dumps({"findings": list(findings)})


class Scripted:
    """An asker that answers by the file it is asked about and remembers every question."""

    def __init__(
        self,
        reply: Callable[[str, ItemContext], Answer | str] = lambda question, context: answer(finding()),
        *,
        target: Target = Target("openai", "m-1"),  # noqa: B008
        works_in_folder: bool = False,
        left_out: tuple[str, ...] = (),
    ) -> None:
        self.reply = reply
        self.target = target
        self.protocol = "scripted"
        self.host = "host.example"
        self.works_in_folder = works_in_folder
        self.left_out = left_out
        self.questions: list[str] = []
        self.folders: list[Path | None] = []

    def ask(self, question: str, folder: Path | None, context: ItemContext) -> Answer:
        self.questions.append(question)
        self.folders.append(folder)
        told = self.reply(question, context)
        return told if isinstance(told, Answer) else Answer(told, Usage(10, 2), self.target.model)

    def asked_about(self) -> list[str]:
        return sorted(
            line[6:].split(" (before")[0] for q in self.questions for line in q.splitlines() if line[:6] == "File: "
        )


def operation(
    shop: Shop,
    asker: Scripted,
    *,
    rules: RuleSet | None = None,
    limits: ReviewLimits | None = None,
    include: tuple[str, ...] = (),
    exclude: tuple[str, ...] = (),
    pause: Callable[[ItemContext, float], None] = lambda context, seconds: None,
    **wanted: Any,
) -> ReviewOperation:
    git = shop.open()
    typed = FileFilter(include, exclude)
    return ReviewOperation(
        git,
        make_wanted(**wanted),
        rules or load_rules(git.root, custom=None, user=None, typed=typed),
        asker,
        checkouts=shop.folder / "data" / "checkouts",
        limits=limits,
        patience=QUIET,
        pause=pause,
        is_active=lambda run_id: False,
    )


def review(
    shop: Shop, asker: Scripted, *, parent: str = "", options: RunOptions | None = None, **more: Any
) -> RunResult:
    return carry_out(operation(shop, asker, **more), shop.settings, options, parent=parent)  # type: ignore[attr-defined]


def make_shop(folder: Path) -> Shop:
    """A repository with a base commit and a topic of two commits; `settings` are those of its runs."""
    shop = Shop(folder)
    shop.commit(
        {"app.py": "def load(path):\n    return open(path).read()\n", "old.py": "x = 1\n" * 9, "gone.py": "x\n"}
    )
    shop.git("branch", "base")
    shop.commit({"app.py": "def load(path):\n    return open(path, encoding='utf-8').read()\n", "gone.py": None})
    shop.git("mv", "old.py", "new.py")
    shop.commit({"lib/cart.py": "total = 0\n", "logo.png": b"\x89PNG\0\0", "poetry.lock": "a\n"})
    shop.settings = make_settings(folder / "data" / "runs")  # type: ignore[attr-defined]
    return shop
