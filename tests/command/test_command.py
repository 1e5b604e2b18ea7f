"""Runs the pages of this folder: each is a story in Markdown with commands and exactly what they print.

A fence `home` names fixtures whose homes are laid into the home of the story; a fence `file PATH` is a file there (the
escapes of a C string are understood); a fence `console` has lines beginning with `$ `, each followed by what it prints
on both streams, and `[N]` where the status is not 0. Commands run in a shell, in a home of their own that is written as
/home/me, in UTC, with no agent installed. What depends on the day is written as TIME or DATE. `scripts/accept` rewrites
the pages; read the difference.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
FIXTURES = HERE.parent / "fixtures" / "sessions"
FENCE = re.compile(r"^```(home|console|file)(?: (\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
TIMES = (
    (re.compile(r"rollout-\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d-"), "rollout-TIME-"),
    (re.compile(r"sessions/\d{4}/\d\d/\d\d/"), "sessions/DATE/"),
    (re.compile(r"taken \d{4}-\d\d-\d\dT[\d:.+]+"), "taken TIME"),
)


class Story:
    """One page and the home that its commands run in."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "me"
        self.home.mkdir()
        self.env = {
            "HOME": str(self.home),
            "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
            "TZ": "UTC",
            "LANG": "C.UTF-8",
        }

    def perform(self, match: re.Match[str]) -> str:
        kind, name, body = match.groups()
        if kind == "home":
            for fixture in body.split():
                shutil.copytree(FIXTURES / fixture / "home", self.home, dirs_exist_ok=True)
        elif kind == "file":
            path = self.home / name
            path.parent.mkdir(parents=True, exist_ok=True)
            text = body.replace("/home/me", str(self.home))
            path.write_bytes(text.encode().decode("unicode_escape").encode("latin-1"))
        else:
            commands = [line[2:] for line in body.splitlines() if line.startswith("$ ")]
            return f"```console\n{''.join(map(self.run, commands))}```"
        return match.group()

    def run(self, command: str) -> str:
        done = subprocess.run(
            ["sh", "-c", command.replace("/home/me", str(self.home))],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=self.home,
            env=self.env,
            timeout=60,
        )
        text = done.stdout.decode().replace(str(self.home), "/home/me")
        for pattern, word in TIMES:
            text = pattern.sub(word, text)
        if text and not text.endswith("\n"):
            text += "\n"
        return f"$ {command}\n{text}" + (f"[{done.returncode}]\n" if done.returncode else "")


@pytest.mark.parametrize("page", sorted(HERE.glob("*.md")), ids=lambda page: page.stem)
def test_page(page: Path, tmp_path: Path) -> None:
    expected = page.read_text("utf-8")
    said = FENCE.sub(Story(tmp_path).perform, expected)
    if os.environ.get("CLEW_ACCEPT"):
        page.write_text(said, "utf-8")
        return
    assert said == expected
