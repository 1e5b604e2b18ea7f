"""Files that agents' homes have beside sessions: whatever lies in their place, nothing waits for it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from clew.formats.folders import small_file

LOOK = """
import sys
from pathlib import Path
from clew.formats.protocol import Home
from clew.formats.registry import all_formats
home = Home(Path(sys.argv[1]))
for form in all_formats():
    list(form.locate.find(home)), form.locate.settings(home), form.resume.owners(home)
"""

PIPES = (
    ".vibe/config.toml",
    ".vibe/logs/session/session_20260101_000000_0badcafe/meta.json",
    ".vibe/logs/session/unified/11111111-1111-4111-8111-111111111111/CURRENT",
    ".claude/settings.json",
    ".claude/sessions/1.json",
    ".claude/projects/-w/sessions-index.json",
    ".codex/config.toml",
    ".factory/settings.json",
    ".pi/agent/settings.json",
    ".grok/config.toml",
    ".kimi-code/config.toml",
    ".hermes/config.yaml",
    ".openhands/conversations/0badcafe/base_state.json",
    ".openhands/conversations/0badcafe/meta.json",
    ".gemini/projects.json",
)


def test_a_pipe_in_the_place_of_a_file_is_not_waited_for(tmp_path: Path) -> None:
    for name in PIPES:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        os.mkfifo(path)
    for folder in (tmp_path / ".vibe/logs/session").glob("session_*"):
        (folder / "messages.jsonl").write_bytes(b'{"role":"user","content":"Hello"}\n')
    done = subprocess.run([sys.executable, "-c", LOOK, str(tmp_path)], timeout=60, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_small_file_is_read_behind_a_link_and_nothing_else_is(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"abc")
    (tmp_path / "link").symlink_to("file")
    assert small_file(tmp_path / "link") == b"abc"
    os.mkfifo(tmp_path / "pipe")
    for path, limit in ((tmp_path / "pipe", 9), (tmp_path, 9), (tmp_path / "file", 2), (tmp_path / "none", 9)):
        with pytest.raises(OSError):
            small_file(path, limit)
