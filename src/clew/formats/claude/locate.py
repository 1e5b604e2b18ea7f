"""Where Claude Code keeps its sessions, and how one of them is opened.

The base folder is $CLAUDE_CONFIG_DIR where the agents' own variables count, else ~/.claude. A session is a file
`projects/<folder>/<id>.jsonl`; beside it a folder `<id>/` holds its helpers' transcripts and long results, and
`file-history/<id>/` its checkpoints. Folder names are never taken for an identity. Links are reported, not followed;
nothing is written here, and no id from inside a record builds a path.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from clew.conversation.source import Buffer, SideFile, Source, Stream
from clew.formats.claude.folder import HELPERS, HISTORY, PROJECTS, is_helper_path
from clew.formats.folders import LINK, is_folder, name_below, small_file
from clew.formats.protocol import Found, Home, Settings
from clew.platform.mapped import open_source

AGENT = "claude"
_ENDING = ".jsonl"


class Index(msgspec.Struct):
    """The index that versions up to 2.1.x kept beside the sessions; it is often stale and never trusted."""

    entries: list[dict[str, Any]] = []


class ClaudeLocate:
    """Finds, opens and recognises sessions of Claude Code."""

    def base(self, home: Home) -> Path:
        """Returns the agent's base folder, to which streams' paths are relative."""
        named = home.env.get("CLAUDE_CONFIG_DIR")
        return Path(named) if named else home.root / ".claude"

    def places(self, home: Home) -> tuple[Path, ...]:
        """Returns the folder that is looked in."""
        return (self.base(home) / PROJECTS,)

    def find(self, home: Home) -> Iterator[Found]:
        """Yields every session, helpers' transcripts included, by the places of the files alone."""
        projects = self.base(home) / PROJECTS
        for folder in _entries(projects):
            if is_folder(folder):
                yield from self._in_folder(Path(folder.path), "")
            elif folder.is_symlink() and folder.is_dir():
                yield from self._in_folder(Path(folder.path), f"it lies behind {folder.name}, {LINK}")

    def _in_folder(self, folder: Path, problem: str) -> Iterator[Found]:
        try:
            entries = _entries(folder, strict=True)
        except OSError as error:
            yield Found(AGENT, folder.name, folder, problem=f"the folder may not be read: {error.strerror}")
            return
        for entry in entries:
            if entry.name.endswith(_ENDING):
                yield _found(entry, problem, is_helper=entry.name.startswith("agent-"))
            elif not problem and is_folder(entry):
                for helper in _entries(folder / entry.name / HELPERS):
                    if helper.name.endswith(_ENDING):
                        yield _found(helper, "", is_helper=True)

    def ghosts(self, home: Home) -> Iterator[Found]:
        """Yields sessions that the agent's own old index lists although their files are gone."""
        for folder in _entries(self.base(home) / PROJECTS):
            index = Path(folder.path) / "sessions-index.json"
            try:
                entries = msgspec.json.decode(small_file(index), type=Index).entries if is_folder(folder) else []
            except (OSError, msgspec.DecodeError, RecursionError):
                continue
            for entry in entries:
                name = entry.get("sessionId")
                path = Path(folder.path) / f"{name}{_ENDING}"
                if isinstance(name, str) and re.fullmatch(r"[A-Za-z0-9._-]{1,200}", name) and not os.path.lexists(path):
                    cwd = entry.get("projectPath")
                    hint = cwd if isinstance(cwd, str) else ""
                    yield Found(AGENT, name, path, cwd_hint=hint, problem="listed by the agent, file missing")

    def load(self, found: Found, home: Home) -> Source:
        """Returns the source of a session; raises NotFoundError or UnreadableSource."""
        base = self.base(home)
        inside = found.path.is_relative_to(base)
        mapped = open_source(found.path, root=base if inside else None)
        stream = Stream(name_below(found.path, base), memoryview(mapped.data), mapped.mode, mapped.release)
        side = tuple(_side_files(found.path, base)) if inside else ()
        return Source((stream,), side, hint_id=found.path.name.removesuffix(_ENDING))

    def claims(self, path: Path, head: bytes) -> bool:
        """Tells whether a file of unknown origin begins as a session of Claude Code does."""
        return path.suffix in (_ENDING, ".json", "") and any(map(_is_ours, head.splitlines()[:64]))

    def settings(self, home: Home) -> Settings:
        """Returns the model and the provider that the agent's own settings name."""
        model, provider = "", ""
        for name in ("settings.json", "settings.local.json"):
            try:
                found = msgspec.json.decode(small_file(self.base(home) / name), type=_SettingsFile)
            except (OSError, msgspec.DecodeError, RecursionError):
                continue
            model = found.model if isinstance(found.model, str) else model
            provider = _provider(found.env) or provider
        model = home.env.get("ANTHROPIC_MODEL") or model
        return Settings(_provider(home.env) or provider or "anthropic", model, ("anthropic",))


class _SettingsFile(msgspec.Struct):
    model: Any = None
    env: dict[str, Any] = {}


def _provider(env: Mapping[str, Any]) -> str:
    for name, provider in (("CLAUDE_CODE_USE_BEDROCK", "bedrock"), ("CLAUDE_CODE_USE_VERTEX", "vertex")):
        if str(env.get(name) or "").lower() in ("1", "true", "yes", "on"):
            return provider
    return ""


class _Head(msgspec.Struct):
    type: Any = None
    uuid: Any = None
    is_sidechain: Any = msgspec.field(default=None, name="isSidechain")
    leaf_uuid: Any = msgspec.field(default=None, name="leafUuid")
    message_id: Any = msgspec.field(default=None, name="messageId")
    session_id: Any = msgspec.field(default=None, name="sessionId")
    parent_uuid: Any = msgspec.field(default=msgspec.UNSET, name="parentUuid")
    message: msgspec.Raw = msgspec.Raw(b"")


_HEAD = msgspec.json.Decoder(_Head).decode
_BOOKKEEPING = ("queue-operation", "last-prompt", "mode", "atis-latch", "custom-title", "api-request", "tools-used")


def _is_ours(line: bytes) -> bool:
    try:
        r = _HEAD(line)
    except (msgspec.DecodeError, RecursionError):
        return False
    if r.type in ("user", "assistant"):
        says = b'"content"' in bytes(r.message) and b'"role"' in bytes(r.message)
        return says and (r.is_sidechain is not None or (r.parent_uuid is not msgspec.UNSET and r.uuid is not None))
    if r.type in ("system", "attachment", "progress"):
        return r.is_sidechain is not None and r.uuid is not None
    if r.type == "summary":
        return r.leaf_uuid is not None
    if r.type == "file-history-snapshot":
        return r.message_id is not None
    return r.type in _BOOKKEEPING and isinstance(r.session_id, str)


def _entries(folder: Path, *, strict: bool = False) -> list[os.DirEntry[str]]:
    """Returns a folder's entries by name; nothing for one that cannot be read, unless `strict`."""
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=_order)
    except OSError:
        if strict:
            raise
        return []


def _order(entry: os.DirEntry[str]) -> tuple[str, bool]:
    """A session's file comes before the folder of its side files."""
    name = entry.name.removesuffix(_ENDING)
    return name, name == entry.name


def _found(entry: os.DirEntry[str], problem: str, *, is_helper: bool) -> Found:
    path = Path(entry.path)
    stamp = (0, 0)
    try:
        facts = entry.stat(follow_symlinks=False)
        stamp = (facts.st_mtime_ns, facts.st_size)
        if stat.S_ISLNK(facts.st_mode):
            problem = problem or LINK
        elif not stat.S_ISREG(facts.st_mode):
            problem = problem or "not a regular file"
    except OSError as error:
        problem = problem or f"cannot be looked at: {error.strerror}"
    name = entry.name.removesuffix(_ENDING)
    return Found(AGENT, name, path, (path,), stamp, "helper" if is_helper else "session", "", problem)


def _side_files(path: Path, base: Path) -> Iterator[SideFile]:
    """Yields what belongs to a session besides its file."""
    name = path.name.removesuffix(_ENDING)
    if is_helper_path(path.as_posix()):
        yield from _one(path.with_name(name + ".meta.json"), base)
        return
    for folder in (path.with_name(name), base / HISTORY / name):
        yield from _below(folder, base)


def _below(folder: Path, base: Path, depth: int = 0) -> Iterator[SideFile]:
    if depth > 8 or folder.is_symlink():
        return
    for entry in _entries(folder):
        if is_folder(entry):
            yield from _below(Path(entry.path), base, depth + 1)
        else:
            yield from _one(Path(entry.path), base)


def _one(path: Path, base: Path) -> Iterator[SideFile]:
    try:
        facts = path.lstat()
    except OSError:
        return
    if stat.S_ISREG(facts.st_mode):
        yield SideFile(name_below(path, base), stat.S_IMODE(facts.st_mode), facts.st_size, _loader(path, base))


class _loader:  # noqa: N801 - it stands for a function
    """Opens a side file when it is asked for."""

    __slots__ = ("base", "path")

    def __init__(self, path: Path, base: Path) -> None:
        self.path, self.base = path, base

    def __call__(self) -> Buffer:
        return memoryview(open_source(self.path, root=self.base).data)
