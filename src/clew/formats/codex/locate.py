"""Where Codex keeps its threads: `sessions/YYYY/MM/DD/rollout-<time>-<thread id>.jsonl` below `$CODEX_HOME`.

Only the prefix `rollout-` and the id in the name count, as for the agent: a file in another folder, or with another
time in its name, is found all the same. One thread may have several files (a revert adds `_<segment>` to the id);
a plain file goes before a compressed one of the same name. Nothing of a file is read to find it, links are reported
and not followed, and ids come from names, so none of them can lead out of the folder.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, cast

import msgspec

from clew.conversation.source import Source, Stream
from clew.errors import ClewError
from clew.formats.codex.compressed import MAGIC, SUFFIX
from clew.formats.protocol import Found, Home, Settings
from clew.platform.fs import open_source

AGENT = "codex"
SESSIONS, ARCHIVED = "sessions", "archived_sessions"
INDEX = "session_index.jsonl"
_ID = r"[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}"
_NAME = re.compile(
    rf"rollout-(?:(?P<time>\d{{4}}-\d\d-\d\dT\d\d-\d\d-\d\d)-)?(?P<id>{_ID})(?:_(?P<part>{_ID}))?"
    r"\.jsonl(?P<packed>\.zst)?"
)
_MAX_DEPTH = 6


class _Named(msgspec.Struct, frozen=True):
    """A line of the index: the name that somebody gave to a thread."""

    id: str
    thread_name: str


class _File:
    """One rollout file by its name."""

    __slots__ = ("id", "link", "packed", "part", "path", "stamp", "time")

    def __init__(self, entry: os.DirEntry[str], found: re.Match[str]) -> None:
        self.path = Path(entry.path)
        self.id = found["id"].lower()
        self.time = found["time"] or ""
        self.part = found["part"] or ""
        self.packed = found["packed"] is not None
        self.link = entry.is_symlink()
        try:
            facts = entry.stat(follow_symlinks=False)
        except OSError:
            self.stamp = (0, 0)
        else:
            self.stamp = (facts.st_mtime_ns, facts.st_size)


class CodexLocate:
    """The locate room of Codex."""

    def base(self, home: Home) -> Path:
        """Returns `$CODEX_HOME`, else `~/.codex`."""
        named = home.env.get("CODEX_HOME", "")
        return Path(named) if named else home.root / ".codex"

    def places(self, home: Home) -> tuple[Path, ...]:
        """Returns the folders that are looked in."""
        base = self.base(home)
        return (base / SESSIONS, base / ARCHIVED)

    def find(self, home: Home) -> Iterator[Found]:
        """Yields every thread with its files in order; archived ones too."""
        for folder, kind in ((SESSIONS, "session"), (ARCHIVED, "archived")):
            threads: dict[str, list[_File]] = {}
            for file in _files(self.base(home) / folder, 0):
                threads.setdefault(file.id, []).append(file)
            for id_, files in sorted(threads.items()):
                yield _found(id_, files, cast(Literal["session", "archived"], kind))

    def load(self, found: Found, home: Home) -> Source:
        """Returns the source of a thread; raises NotFoundError or UnreadableSource."""
        base = self.base(home)
        growing = found.kind == "session"
        streams = tuple(_stream(path, base) for path in found.files or (found.path,))
        return Source(
            streams=streams,
            resolve=lambda id_: self._resolve(id_, home),
            growing=growing,
            hint_id=found.id,
            hint_cwd=found.cwd_hint,
            facts=self._facts(found.id, base),
        )

    def _facts(self, id_: str, base: Path) -> dict[str, str]:
        """Returns the thread's name, where the index of versions up to 0.15x has one; the last line counts."""
        try:
            with open_source(base / INDEX) as opened:
                lines = bytes(opened.data).splitlines()
        except ClewError:
            return {}
        for line in reversed(lines):
            if id_.encode() in line:
                try:
                    named = msgspec.json.decode(line, type=_Named)
                except (msgspec.DecodeError, UnicodeDecodeError):
                    continue
                if named.id == id_:
                    return {"title": named.thread_name}
        return {}

    def _resolve(self, id_: str, home: Home) -> Source | None:
        """Returns another thread by its id; ids come from files and are looked up, never joined into a path."""
        for found in self.find(home):
            if found.id == id_.lower() and not found.problem:
                try:
                    return self.load(found, home)
                except ClewError:
                    continue
        return None

    def claims(self, path: Path, head: bytes) -> bool:
        """Tells whether a file of unknown origin is a rollout, by its first line; a compressed one by its name."""
        if head.startswith(MAGIC):
            return path.name.startswith("rollout-")
        line = head.removeprefix(b"\xef\xbb\xbf").split(b"\n", 1)[0]
        if b'"session_meta"' in line and b'"payload"' in line:
            return True
        return path.name.startswith("rollout-") and line.startswith(b'{"id":')  # before late 2025

    def settings(self, home: Home) -> Settings:
        """Returns what `config.toml` says; the agent's own default where it is silent."""
        path = self.base(home) / "config.toml"
        try:
            with open_source(path) as opened:
                config = tomllib.loads(bytes(opened.data).decode("utf-8"))
        except (ClewError, ValueError, RecursionError):
            return Settings(provider="openai", providers=("openai",))
        return _settings(config)


def _files(folder: Path, depth: int) -> Iterator[_File]:
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:
        return
    for entry in entries:
        match = _NAME.fullmatch(entry.name)
        try:
            if match is not None and not entry.is_dir(follow_symlinks=False):
                yield _File(entry, match)
            elif depth < _MAX_DEPTH and entry.is_dir(follow_symlinks=False):
                yield from _files(Path(entry.path), depth + 1)
        except OSError:
            continue


def _found(id_: str, files: list[_File], kind: Literal["session", "archived"]) -> Found:
    plain = {(str(file.path.parent), file.path.name) for file in files if not file.packed}
    kept = [f for f in files if not f.packed or (str(f.path.parent), f.path.name.removesuffix(SUFFIX)) not in plain]
    kept.sort(key=lambda file: (file.part != "", file.time, file.part, file.path.name))
    problem = next((f"{file.path} is a symbolic link" for file in kept if file.link), "")
    return Found(
        agent=AGENT,
        id=id_,
        path=kept[0].path,
        files=tuple(file.path for file in kept),
        stamp=(sum(file.stamp[0] for file in kept), sum(file.stamp[1] for file in kept)),
        kind=kind,
        problem=problem,
    )


def _stream(path: Path, base: Path) -> Stream:
    opened = open_source(path)
    try:
        name = path.relative_to(base).as_posix()
    except ValueError:
        name = str(path)
    return Stream(name, cast(bytes, opened.data), opened.mode, opened.release)


def _settings(config: dict[str, object]) -> Settings:
    providers = config.get("model_providers")
    names = tuple(sorted(cast(dict[str, object], providers))) if isinstance(providers, dict) else ()
    provider, model = config.get("model_provider"), config.get("model")
    return Settings(
        provider=provider if isinstance(provider, str) else "openai",
        model=model if isinstance(model, str) else "",
        providers=tuple(dict.fromkeys(("openai", *names))),
    )


LOCATE = CodexLocate()
