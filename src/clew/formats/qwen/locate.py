"""Where Qwen Code keeps its sessions: `projects/<folder>/chats/<id>.jsonl` below `~/.qwen`, archived in `archive/`.

The file's name is the id. Helpers lie in `projects/<folder>/subagents/<id>/`. Folder names are places, never an
identity; links are reported, not followed; nothing of a file is read to find it.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import msgspec

from clew.conversation.source import SideFile, Source, Stream
from clew.errors import ClewError
from clew.formats.folders import LINK, entries_of
from clew.formats.parts.values import as_text
from clew.formats.protocol import Found, Home, Settings
from clew.formats.qwen.reader import AGENT, HELPERS
from clew.formats.qwen.writer import CHATS, PROJECTS
from clew.ids import is_safe_name
from clew.platform.mapped import open_source

ARCHIVE = "archive"
_NAME = re.compile(r"[0-9a-fA-F-]{32,36}\.jsonl")
_ENDING = ".jsonl"


class QwenLocate:
    """Finds, opens and recognises sessions of Qwen Code."""

    def base(self, home: Home) -> Path:
        """Returns `$QWEN_RUNTIME_DIR`, else `$QWEN_HOME`, else `~/.qwen`."""
        named = home.env.get("QWEN_RUNTIME_DIR") or home.env.get("QWEN_HOME")
        return Path(named) if named else home.root / ".qwen"

    def places(self, home: Home) -> tuple[Path, ...]:
        """Returns the folder that is looked in."""
        return (self.base(home) / PROJECTS,)

    def find(self, home: Home) -> Iterator[Found]:
        """Yields every session, archived ones and helpers' too, by the places of the files alone."""
        for folder in entries_of(self.base(home) / PROJECTS):
            path = Path(folder.path)
            if folder.is_symlink():
                if (path / CHATS).is_dir():
                    yield Found(AGENT, folder.name, path, problem=f"it lies behind {folder.name}, {LINK}")
            elif _is_folder(path):
                yield from _in_chats(path / CHATS, "session")
                yield from _in_chats(path / CHATS / ARCHIVE, "archived")
                for parent in entries_of(path / HELPERS):
                    if not parent.is_symlink():
                        for entry in entries_of(Path(parent.path)):
                            if entry.name.endswith(_ENDING):
                                yield _found(Path(entry.path), "helper")

    def load(self, found: Found, home: Home) -> Source:
        """Returns the source of a session; raises NotFoundError or UnreadableSource."""
        base = self.base(home)
        inside = found.path.is_relative_to(base)
        mapped = open_source(found.path, root=base if inside else None)
        name = found.path.relative_to(base).as_posix() if inside else found.path.as_posix()
        stream = Stream(name, memoryview(mapped.data), mapped.mode, mapped.release)
        side = tuple(_side_files(found, base)) if inside and found.kind != "helper" else ()
        return Source((stream,), side, hint_id=found.path.name.removesuffix(_ENDING))

    def claims(self, path: Path, head: bytes) -> bool:
        """Tells whether a file of unknown origin begins as a session of Qwen Code does."""
        return any(map(_is_ours, head.splitlines()[:16]))

    def settings(self, home: Home) -> Settings:
        """Returns the model and the way to the provider that the agent's own settings name."""
        try:
            with open_source(self.base(home) / "settings.json") as opened:
                found = msgspec.json.decode(bytes(opened.data), type=_SettingsFile)
        except (ClewError, msgspec.DecodeError, RecursionError):
            found = _SettingsFile()
        provider = as_text(found.security.auth.selected_type)
        model = home.env.get("OPENAI_MODEL") or as_text(found.model.name)
        return Settings(provider, model, (provider,) if provider else ())


class _Auth(msgspec.Struct, rename="camel"):
    selected_type: Any = None


class _Security(msgspec.Struct):
    auth: _Auth = msgspec.field(default_factory=_Auth)


class _ModelChoice(msgspec.Struct):
    name: Any = None


class _SettingsFile(msgspec.Struct):
    security: _Security = msgspec.field(default_factory=_Security)
    model: _ModelChoice = msgspec.field(default_factory=_ModelChoice)


LOCATE = QwenLocate()


class _Head(msgspec.Struct, rename="camel"):
    uuid: Any = None
    parent_uuid: Any = msgspec.UNSET
    session_id: Any = None
    type: Any = None
    provenance: Any = None
    message: msgspec.Raw = msgspec.Raw(b"")


_HEAD = msgspec.json.Decoder(_Head).decode


def _is_ours(line: bytes) -> bool:
    """Contents of the Gemini API under a uuid: no other agent's records have both."""
    try:
        found = _HEAD(line.removeprefix(b"\xef\xbb\xbf"))
    except (msgspec.DecodeError, RecursionError):
        return False
    if not isinstance(found.uuid, str) or found.parent_uuid is msgspec.UNSET or not isinstance(found.session_id, str):
        return False
    if found.type == "system":
        return found.provenance == "system"
    return found.type in ("user", "assistant", "tool_result") and b'"parts"' in bytes(found.message)


def _in_chats(folder: Path, kind: Literal["session", "archived"]) -> Iterator[Found]:
    if folder.is_symlink():
        if kind == "session":
            yield Found(AGENT, folder.parent.name, folder, problem=LINK)
        return
    for entry in entries_of(folder):
        if _NAME.fullmatch(entry.name):
            yield _found(Path(entry.path), kind)


def _found(path: Path, kind: Literal["session", "helper", "archived"]) -> Found:
    name = path.name.removesuffix(_ENDING)
    problem, stamp = "", (0, 0)
    try:
        facts = path.lstat()
        stamp = (facts.st_mtime_ns, facts.st_size)
        if stat.S_ISLNK(facts.st_mode):
            problem = LINK
        elif not stat.S_ISREG(facts.st_mode):
            problem = "not a regular file"
    except OSError as error:
        problem = f"cannot be looked at: {error.strerror}"
    return Found(AGENT, name, path, (path,), stamp, kind, "", problem)


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _side_files(found: Found, base: Path) -> Iterator[SideFile]:
    """Yields the transcripts of a session's helpers, and what is noted about them."""
    chats = found.path.parent if found.kind != "archived" else found.path.parent.parent
    folder = chats.parent / HELPERS / found.id
    if not is_safe_name(found.id) or folder.is_symlink() or folder.parent.is_symlink():
        return
    for entry in entries_of(folder):
        try:
            facts = entry.stat(follow_symlinks=False)
        except OSError:
            continue
        if stat.S_ISREG(facts.st_mode):
            path = Path(entry.path)
            name, mode = path.relative_to(base).as_posix(), stat.S_IMODE(facts.st_mode)
            yield SideFile(name, mode, facts.st_size, lambda p=path: _load(p, base))


def _load(path: Path, base: Path) -> memoryview:
    return memoryview(open_source(path, root=base).data)
