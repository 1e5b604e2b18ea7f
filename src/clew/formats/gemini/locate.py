"""Where Gemini CLI keeps its sessions: `tmp/<slug>/chats/session-*.jsonl` (or .json) below `~/.gemini`.

A slug stands for a folder: `projects.json` says for which, else the slug's own `.project_root`; older ones are SHA-256
of the folder. The id stands in the first record, so the head of each file is read. Of several files with one id in one
place the agent goes on with the newest that says anything; stubs of a resume and documents that became lines are left
out, other ones are archived. Helpers lie in a folder of their parent's id. Links are reported, not followed.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from clew.conversation.source import SideFile, Source, Stream
from clew.errors import ClewError
from clew.formats.folders import LINK, entries_of, is_folder
from clew.formats.gemini.reader import AGENT, PROVIDER, read
from clew.formats.gemini.records import project_hash
from clew.formats.gemini.writer import CHATS, OWNER_FILE, PLACES, make_slug
from clew.formats.parts.values import as_text
from clew.formats.protocol import Found, Home, Settings
from clew.ids import is_safe_name
from clew.platform.mapped import open_source

PREFIX = "session-"
ENDINGS = (".jsonl", ".json")
REGISTRY = "projects.json"
HISTORY = "history"
OUTPUTS = "tool-outputs"
_HEAD = 4096
_STUB = 1 << 18
_ID = re.compile(rb'"sessionId"\s*:\s*("(?:[^"\\]|\\.){0,400}")')
_SLUG = re.compile(r"[a-z0-9-]+")


class _Registry(msgspec.Struct):
    projects: dict[str, Any] = {}


class _File:
    """One file by its name, with the id that its head names."""

    __slots__ = ("id", "link", "path", "problem", "stamp")

    def __init__(self, entry: os.DirEntry[str]) -> None:
        self.path = Path(entry.path)
        self.problem = ""
        self.stamp = (0, 0)
        self.id = self.path.name.removesuffix(".jsonl").removesuffix(".json")
        try:
            facts = entry.stat(follow_symlinks=False)
        except OSError as error:
            self.problem = f"cannot be looked at: {error.strerror}"
            return
        self.stamp = (facts.st_mtime_ns, facts.st_size)
        if stat.S_ISLNK(facts.st_mode):
            self.problem = LINK
        elif not stat.S_ISREG(facts.st_mode):
            self.problem = "not a regular file"
        else:
            self.id = _id_in(self._head()) or self.id

    def _head(self) -> bytes:
        try:
            fd = os.open(self.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            self.problem = f"may not be read: {error.strerror}"
            return b""
        try:
            return os.read(fd, _HEAD)
        except OSError as error:
            self.problem = f"may not be read: {error.strerror}"
            return b""
        finally:
            os.close(fd)

    @property
    def stem(self) -> str:
        return self.path.name.removesuffix(".jsonl").removesuffix(".json")


def _id_in(head: bytes) -> str:
    found = _ID.search(head)
    if found is None:
        return ""
    try:
        return msgspec.json.decode(found.group(1), type=str)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ""


class GeminiLocate:
    """Finds, opens and recognises sessions of Gemini CLI."""

    def base(self, home: Home) -> Path:
        """Returns `.gemini` in `$GEMINI_CLI_HOME`, else in the user's home."""
        named = home.env.get("GEMINI_CLI_HOME", "")
        return (Path(named) if named else home.root) / ".gemini"

    def places(self, home: Home) -> tuple[Path, ...]:
        """Returns the folder that is looked in."""
        return (self.base(home) / PLACES,)

    def find(self, home: Home) -> Iterator[Found]:
        """Yields every session, helpers' included; one bad entry hides none of the others."""
        base = self.base(home)
        folders = read_registry(base)
        for entry in entries_of(base / PLACES):
            place = Path(entry.path)
            cwd = folder_of(place, folders)
            if entry.is_symlink() and (place / CHATS).is_dir():
                yield Found(AGENT, entry.name, place, cwd_hint=cwd, problem=f"it lies behind {entry.name}, {LINK}")
            elif is_folder(entry):
                yield from self._in_place(place / CHATS, cwd)

    def _in_place(self, chats: Path, cwd: str) -> Iterator[Found]:
        if chats.is_symlink():
            yield Found(AGENT, chats.parent.name, chats, cwd_hint=cwd, problem=LINK)
            return
        groups: dict[str, list[_File]] = {}
        for entry in entries_of(chats):
            if entry.name.startswith(PREFIX) and entry.name.endswith(ENDINGS):
                file = _File(entry)
                groups.setdefault(file.id, []).append(file)
            elif is_folder(entry):
                for helper in entries_of(Path(entry.path)):
                    if helper.name.endswith(ENDINGS):
                        yield _found(_File(helper), cwd, "helper")
        for files in groups.values():
            yield from _of_one_id(files, cwd)

    def load(self, found: Found, home: Home) -> Source:
        """Returns the source of a session; raises NotFoundError or UnreadableSource."""
        base = self.base(home)
        inside = found.path.is_relative_to(base)
        mapped = open_source(found.path, root=base if inside else None)
        name = found.path.relative_to(base).as_posix() if inside else found.path.as_posix()
        stream = Stream(name, memoryview(mapped.data), mapped.mode, mapped.release)
        side = tuple(_side_files(found, base)) if inside and found.kind != "helper" else ()
        return Source((stream,), side, hint_id=found.id, hint_cwd=found.cwd_hint)

    def claims(self, path: Path, head: bytes) -> bool:
        """Tells whether a file of unknown origin begins as a session of Gemini CLI does."""
        start = head.removeprefix(b"\xef\xbb\xbf").lstrip()[:_HEAD]
        return start.startswith(b"{") and b'"sessionId"' in start and b'"projectHash"' in start

    def settings(self, home: Home) -> Settings:
        """Returns the model and the way to the provider that the agent's own settings name."""
        try:
            with open_source(self.base(home) / "settings.json") as opened:
                found = msgspec.json.decode(bytes(opened.data), type=_SettingsFile)
        except (ClewError, msgspec.DecodeError, RecursionError):
            found = _SettingsFile()
        return Settings(PROVIDER, home.env.get("GEMINI_MODEL") or as_text(found.model.name), (PROVIDER,))


class _ModelChoice(msgspec.Struct):
    name: Any = None


class _SettingsFile(msgspec.Struct):
    model: _ModelChoice = msgspec.field(default_factory=_ModelChoice)


LOCATE = GeminiLocate()


def surroundings(home: Home, cwd: str) -> Mapping[str, str]:
    """Returns the slug under which the agent looks for sessions of a folder, where it has one (`slug`).

    Where it has none and its first choice is another folder's, `claim` names one that is free; `taken` are those of
    other folders, one a line.
    """
    base = LOCATE.base(home)
    registry = read_registry(base)
    for slug, folder in registry.items():
        if folder == cwd and folder_of(base / PLACES / slug, {}) in ("", cwd):
            return {"slug": slug}
    taken = {slug for slug, folder in registry.items() if folder != cwd}
    claim = ""
    for place in (PLACES, HISTORY):
        for entry in entries_of(base / place):
            if not _SLUG.fullmatch(entry.name):
                continue
            if folder_of(Path(entry.path), {}) == cwd:
                if place == PLACES:
                    return {"slug": entry.name}
                claim = claim or entry.name
            elif _is_taken(Path(entry.path), cwd):
                taken.add(entry.name)
    return {"claim": claim or _free_slug(cwd, taken | registry.keys())} | (
        {"taken": "\n".join(sorted(taken))} if taken else {}
    )


def _free_slug(cwd: str, taken: Collection[str]) -> str:
    slug, number = make_slug(cwd), 0
    claim = slug
    while claim in taken:
        number += 1
        claim = f"{slug}-{number}"
    return claim


def _is_taken(place: Path, cwd: str) -> bool:
    return (place / OWNER_FILE).exists() and folder_of(place, {}) != cwd


def read_registry(base: Path) -> dict[str, str]:
    """Returns the folder of each slug that the agent's own list names; nothing where it cannot be read."""
    try:
        with open_source(base / REGISTRY) as opened:
            found = msgspec.json.decode(bytes(opened.data), type=_Registry).projects
    except (ClewError, msgspec.DecodeError, RecursionError):
        return {}
    return {slug: folder for folder, slug in found.items() if isinstance(slug, str)}


def folder_of(place: Path, registry: Mapping[str, str]) -> str:
    """Returns the folder that a slug stands for: by the list, by its own mark, by hash; nothing where none says."""
    if place.name in registry:
        return registry[place.name]
    try:
        with open_source(place / OWNER_FILE) as opened:
            return bytes(opened.data[:4096]).decode("utf-8", "replace").strip()
    except ClewError:
        pass
    if len(place.name) == 64:
        return next((folder for folder in registry.values() if project_hash(folder) == place.name), "")
    return ""


def _of_one_id(files: list[_File], cwd: str) -> Iterator[Found]:
    """Yields the file that the agent goes on with, and others that say something as archived ones."""
    if len(files) == 1:
        yield _found(files[0], cwd, "session")
        return
    lines = {file.stem for file in files if file.path.name.endswith(".jsonl")}
    whole = [file for file in files if not (file.path.name.endswith(".json") and file.stem in lines)]
    files = sorted(whole, key=lambda file: file.stamp, reverse=True)
    said = [file for file in files if file.problem or len(files) == 1 or _says_something(file)] or files[:1]
    for number, file in enumerate(said):
        yield _found(file, cwd, "session" if number == 0 or file.problem else "archived")


def _says_something(file: _File) -> bool:
    """Tells whether a file has messages; a large one is not read for that."""
    if file.stamp[1] > _STUB:
        return True
    try:
        with open_source(file.path) as opened:
            return bool(read(Source((Stream(file.path.name, bytes(opened.data)),))).messages)
    except ClewError:
        return True


def _found(file: _File, cwd: str, kind: Literal["session", "helper", "archived"]) -> Found:
    return Found(AGENT, file.id, file.path, (file.path,), file.stamp, kind, cwd, file.problem)


def _side_files(found: Found, base: Path) -> Iterator[SideFile]:
    """Yields what belongs to a session: its helpers' transcripts, and outputs that were too long for it."""
    if not is_safe_name(found.id):
        return
    chats = found.path.parent
    for folder in (chats / found.id, chats.parent / OUTPUTS / f"{PREFIX}{found.id}"):
        yield from _files_in(folder, base)


def _files_in(folder: Path, base: Path) -> Iterable[SideFile]:
    if folder.is_symlink() or folder.parent.is_symlink():
        return
    for entry in entries_of(folder):
        try:
            facts = entry.stat(follow_symlinks=False)
        except OSError:
            continue
        if stat.S_ISREG(facts.st_mode):
            path = Path(entry.path)
            name = path.relative_to(base).as_posix()
            mode = stat.S_IMODE(facts.st_mode)
            yield SideFile(name, mode, facts.st_size, lambda p=path: _load(p, base))


def _load(path: Path, base: Path) -> memoryview:
    return memoryview(open_source(path, root=base).data)
