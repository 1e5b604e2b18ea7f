"""Where Grok keeps its sessions, and how one of them is opened.

The base folder is $GROK_HOME where the agents' own variables count, else ~/.grok. A session is a folder
`sessions/<working folder>/<id>/`; its history is the stream, everything else in the folder belongs to it, its
description `summary.json` above all. Links are reported, not followed; nothing is written here.
"""

from __future__ import annotations

import os
import stat
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import msgspec

from clew.conversation.source import SideFile, Source, Stream
from clew.formats.folders import LINK, Later, entries_of, is_folder, name_below, odd_kind, small_file
from clew.formats.grok import records as rec
from clew.formats.grok.folder import CWD, SESSIONS, cwd_of
from clew.formats.grok.reader import AGENT, DISPLAY, HISTORY, SUMMARY
from clew.formats.protocol import Found, Home, Settings
from clew.platform.mapped import open_source

_DEPTH = 8
_TYPES = ("system", "user", "assistant", "tool_result", "reasoning", "backend_tool_call")


class GrokLocate:
    """Finds, opens and recognises sessions of Grok."""

    def base(self, home: Home) -> Path:
        """Returns the agent's base folder, to which streams' paths are relative."""
        named = home.env.get("GROK_HOME")
        return Path(named) if named else home.root / ".grok"

    def places(self, home: Home) -> tuple[Path, ...]:
        """Returns the folder that is looked in."""
        return (self.base(home) / SESSIONS,)

    def find(self, home: Home) -> Iterator[Found]:
        """Yields every session, by the places of the files alone."""
        for group in entries_of(self.base(home) / SESSIONS):
            if not (is_folder(group) or group.is_symlink()):
                continue
            cwd = cwd_of(group.name) or _read_cwd(Path(group.path))
            for folder in entries_of(Path(group.path)):
                path = Path(folder.path)
                if folder.is_symlink() or group.is_symlink():
                    if folder.is_dir():
                        yield Found(AGENT, folder.name, path / HISTORY, problem=f"it lies behind {LINK}")
                elif is_folder(folder):
                    found = _found(path, cwd)
                    if found is not None:
                        yield found

    def load(self, found: Found, home: Home) -> Source:
        """Returns the source of a session; raises NotFoundError or UnreadableSource."""
        base = self.base(home)
        inside = found.path.is_relative_to(base)
        mapped = open_source(found.path, root=base if inside else None)
        stream = Stream(name_below(found.path, base), memoryview(mapped.data), mapped.mode, mapped.release)
        side = tuple(_below(found.path.parent, base, found.path)) if inside else ()
        return Source((stream,), side, hint_id=found.id, hint_cwd=found.cwd_hint)

    def claims(self, path: Path, head: bytes) -> bool:
        """Tells whether a file of unknown origin begins as a history of Grok does."""
        for line in head.splitlines()[:8]:
            try:
                members = msgspec.json.decode(line, type=dict[str, msgspec.Raw])
            except (msgspec.DecodeError, RecursionError):
                continue
            item = rec.decode(line, rec.Item)
            if item.type not in _TYPES or {"uuid", "message", "payload", "timestamp", "role"} & members.keys():
                return False
            return item.type in _TYPES and (item.content is not rec.NONE or item.type == "reasoning")
        return False

    def settings(self, home: Home) -> Settings:
        """Returns the model that the agent's own configuration names."""
        try:
            found = tomllib.loads(small_file(self.base(home) / "config.toml").decode())
        except (OSError, ValueError):
            return Settings()
        models = found.get("models")
        model = cast("dict[str, object]", models).get("default") if isinstance(models, dict) else None
        return Settings("", model if isinstance(model, str) else "")


def _read_cwd(group: Path) -> str:
    """Returns the path that a place with a hashed name keeps in a file."""
    path = group / CWD
    try:
        facts = path.lstat()
        return path.read_text("utf-8").strip() if stat.S_ISREG(facts.st_mode) and facts.st_size < 1 << 16 else ""
    except (OSError, ValueError):
        return ""


def _found(folder: Path, cwd: str) -> Found | None:
    """Returns a session by its folder; without a history the stream for display stands for it."""
    facts = {name: _facts(folder / name) for name in (HISTORY, DISPLAY, SUMMARY)}
    if facts[HISTORY] is None and facts[SUMMARY] is None:
        return None
    name = HISTORY if facts[HISTORY] is not None or facts[DISPLAY] is None else DISPLAY
    path, main, problem = folder / name, facts[name], ""
    if main is None:
        problem = "its history is missing"
    elif stat.S_ISLNK(main.st_mode):
        problem = LINK
    elif not stat.S_ISREG(main.st_mode):
        problem = "not a regular file"
    summary = facts[SUMMARY]
    if summary is not None:
        problem = problem or odd_kind(SUMMARY, summary.st_mode)
    there = [one for one in (main, summary) if one is not None]
    stamp = (max(one.st_mtime_ns for one in there), sum(one.st_size for one in there))
    return Found(AGENT, folder.name, path, (path,), stamp, "session", cwd, problem)


def _facts(path: Path) -> os.stat_result | None:
    try:
        return path.lstat()
    except OSError:
        return None


def _below(folder: Path, base: Path, stream: Path, depth: int = 0) -> Iterator[SideFile]:
    if depth > _DEPTH:
        return
    for entry in entries_of(folder):
        path = Path(entry.path)
        if is_folder(entry):
            yield from _below(path, base, stream, depth + 1)
        elif path != stream and not entry.name.endswith(".lock"):
            facts = _facts(path)
            if facts is not None and stat.S_ISREG(facts.st_mode):
                yield SideFile(name_below(path, base), stat.S_IMODE(facts.st_mode), facts.st_size, Later(path, base))
