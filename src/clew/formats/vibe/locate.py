"""Where Mistral Vibe keeps its sessions, and how one of them is opened.

The base folder is $VIBE_HOME where the agent's own variables count, else ~/.vibe. A session of the 2.x layout is a
folder `logs/session/session_<time>_<id>` with `messages.jsonl` and `meta.json`; one of the unified store is a folder
`logs/session/unified/<id>`, whose file CURRENT names the generation that counts. Vibe imports a session of the old
layout when it is resumed and leaves its folder: such a session is then found where Vibe goes on with it, and under its
old id as well, which Vibe takes for the same. Links are reported, not followed; nothing is written here.
"""

from __future__ import annotations

import os
import re
import stat
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import msgspec

from clew.conversation.source import SideFile, Source, Stream
from clew.errors import UnreadableSource, UnsupportedVersion
from clew.formats import raws
from clew.formats.folders import LINK, Later, entries_of, is_folder, name_below, small_file
from clew.formats.protocol import Found, Home, Settings
from clew.formats.vibe import records as rec
from clew.formats.vibe.folder import CURRENT, MESSAGES, META, SESSIONS, UNIFIED, id_in_name
from clew.platform.mapped import open_source

AGENT = "vibe"
_GENERATION = re.compile(r"\d{16}\Z", re.ASCII)
_CHUNK = re.compile(r"[0-9a-f]{64}\Z", re.ASCII)
_JOURNAL = re.compile(r"journal/\d{16}\.jsonl\Z", re.ASCII)


class VibeLocate:
    """Finds, opens and recognises sessions of Mistral Vibe."""

    def base(self, home: Home) -> Path:
        """Returns the agent's base folder, to which streams' paths are relative."""
        named = home.env.get("VIBE_HOME")
        return Path(named) if named else home.root / ".vibe"

    def places(self, home: Home) -> tuple[Path, ...]:
        """Returns the folder that is looked in."""
        return (self.base(home) / SESSIONS,)

    def find(self, home: Home) -> Iterator[Found]:
        """Yields every session of both layouts."""
        base = self.base(home)
        old = [entry for entry in entries_of(base / SESSIONS) if entry.name.startswith("session_")]
        taken: dict[str, Path] = {}
        for entry in entries_of(base / UNIFIED):
            path = Path(entry.path)
            if entry.is_symlink() and path.is_dir():
                yield Found(AGENT, entry.name, path / CURRENT, problem=f"it lies behind {entry.name}, {LINK}")
            elif is_folder(entry) and os.path.lexists(path / CURRENT):
                yield _stored(path)
                origin = _imported_from(path) if old else ""
                if origin:
                    taken.setdefault(origin, path)
        for entry in old:
            found = _legacy(Path(entry.path), is_link=entry.is_symlink())
            if found is None:
                continue
            if found.id in taken:
                now = _stored(taken[found.id])
                found = msgspec.structs.replace(found, kind="archived", stamp=now.stamp)
            yield found

    def load(self, found: Found, home: Home) -> Source:
        """Returns the source of a session; raises NotFoundError, UnreadableSource or UnsupportedVersion."""
        base = self.base(home)
        if found.path.name == CURRENT:
            return _load_store(found.path.parent, base, found.id)
        if found.kind == "archived":
            for entry in entries_of(base / UNIFIED):
                path = Path(entry.path)
                if is_folder(entry) and _imported_from(path) == found.id:
                    return _load_store(path, base, found.id)
        inside = found.path.is_relative_to(base)
        mapped = open_source(found.path, root=base if inside else None)
        stream = Stream(name_below(found.path, base), memoryview(mapped.data), mapped.mode, mapped.release)
        root = base if inside else found.path.parent
        side = tuple(_side_files(found.path.parent, base, root, {found.path}))
        return Source((stream,), side, hint_id=found.id)

    def claims(self, path: Path, head: bytes) -> bool:
        """Tells whether a file of unknown origin is the messages of a session of the 2.x layout, or a CURRENT."""
        if path.name == CURRENT:
            return rec.STORE.encode() in head
        if path.name != MESSAGES:
            return False
        line = next((line for line in head.splitlines() if line.strip()), b"")
        try:
            found = rec.LINES.decode(line)
        except raws.DECODE_ERRORS:
            return False
        return found.role in ("user", "assistant", "system")

    def settings(self, home: Home) -> Settings:
        """Returns the model that the agent's configuration names."""
        try:
            config: dict[str, Any] = tomllib.loads(small_file(self.base(home) / "config.toml").decode())
        except (OSError, ValueError):
            return Settings()
        return Settings("", raws.as_word(config.get("active_model")))


def _stored(folder: Path) -> Found:
    path = folder / CURRENT
    stamp, problem = (0, 0), ""
    try:
        facts = path.lstat()
        stamp = (facts.st_mtime_ns, facts.st_size)
        if not stat.S_ISREG(facts.st_mode):
            problem = LINK if stat.S_ISLNK(facts.st_mode) else "not a regular file"
    except OSError as error:
        problem = f"cannot be looked at: {error.strerror}"
    for entry in entries_of(folder / "journal"):
        try:
            facts = entry.stat(follow_symlinks=False)
        except OSError:
            continue
        stamp = (max(stamp[0], facts.st_mtime_ns), stamp[1] + facts.st_size)
    return Found(AGENT, folder.name, path, (path,), stamp, problem=problem)


def _legacy(folder: Path, *, is_link: bool) -> Found | None:
    path = folder / MESSAGES
    if is_link:
        return Found(AGENT, id_in_name(folder.name), path, problem=f"it lies behind {folder.name}, {LINK}")
    if not folder.is_dir() or not os.path.lexists(path):
        return None
    stamp, problem = (0, 0), ""
    try:
        facts = path.lstat()
        stamp = (facts.st_mtime_ns, facts.st_size)
        if not stat.S_ISREG(facts.st_mode):
            problem = LINK if stat.S_ISLNK(facts.st_mode) else "not a regular file"
    except OSError as error:
        problem = f"cannot be looked at: {error.strerror}"
    meta = _read_meta(folder)
    own = raws.as_word(meta.session_id) if meta is not None else ""
    cwd = raws.as_word(meta.environment.working_directory) if meta is not None and meta.environment else ""
    return Found(AGENT, own or id_in_name(folder.name), path, (path,), stamp, cwd_hint=cwd, problem=problem)


def _read_meta(folder: Path) -> rec.Meta | None:
    path = folder / META
    try:
        if path.is_symlink() or path.stat().st_size > 1 << 22:
            return None
        return rec.METAS.one(msgspec.Raw(small_file(path).strip() or b"0"))
    except OSError:
        return None


def _imported_from(folder: Path) -> str:
    """Returns the id of the session of the old layout that a unified one was made from, or nothing."""
    try:
        current = rec.CURRENTS.one(msgspec.Raw(small_file(folder / CURRENT).strip() or b"0"))
        name = current.generation if current is not None else None
        if not isinstance(name, str) or not _GENERATION.match(name):
            return ""
        data = small_file(folder / "generations" / name / "runtime-state.json")
    except OSError:
        return ""
    state = rec.RUNTIMES.one(msgspec.Raw(data.strip() or b"0"))
    source = state.import_provenance.source if state is not None and state.import_provenance is not None else None
    return raws.as_word(source.session_id) if source is not None and source.backend == "legacy" else ""


def _load_store(folder: Path, base: Path, session_id: str) -> Source:
    """Returns the source of a unified session: the chunks that its generation names, and its journal."""
    inside = folder.is_relative_to(base)
    root = base if inside else folder
    current = rec.CURRENTS.one(msgspec.Raw(bytes(open_source(folder / CURRENT, root=root).data).strip() or b"0"))
    if current is None or not isinstance(current.generation, str) or not _GENERATION.match(current.generation):
        raise UnreadableSource(
            f"{folder / CURRENT} names no generation", path=str(folder / CURRENT), session=session_id
        )
    _check_format(current, folder, session_id)
    generation = folder / "generations" / current.generation
    data = bytes(open_source(generation / "manifest.json", root=root).data).strip()
    manifest = rec.MANIFESTS.one(msgspec.Raw(data or b"0"))
    if manifest is None or manifest.checkpoint is None:
        path = generation / "manifest.json"
        raise UnreadableSource(f"{path} names no checkpoint", path=str(path), session=session_id)
    paths = [folder / "chunks" / f"{name}.json" for name in _chunk_names(manifest)]
    paths.append(generation / "checkpoint.json")
    segment = manifest.recovery_journal_segment
    if segment is not None and isinstance(segment.path, str) and _JOURNAL.match(segment.path):
        paths.append(folder / segment.path)
    streams: list[Stream] = []
    for path in paths:
        mapped = open_source(path, root=root)
        streams.append(Stream(name_below(path, base), memoryview(mapped.data), mapped.mode, mapped.release))
    side = list(_side_files(folder, base, root, set(paths)))
    origin = _imported_from(folder)
    if origin:
        side += _imported_files(base, origin)
    return Source(tuple(streams), tuple(side), hint_id=session_id)


def _check_format(current: rec.Current, folder: Path, session_id: str) -> None:
    minor = current.store_format_minor
    if current.store_format == rec.STORE and not (isinstance(minor, int) and minor > rec.STORE_MINOR):
        return
    told = f"{raws.as_word(current.store_format) or 'unknown'}, minor version {minor}"
    raise UnsupportedVersion(
        f"{folder}: the store's format is {told}; clew reads {rec.STORE} up to {rec.STORE_MINOR}",
        hint="A newer clew may read it; `clew keep` is not possible until then.",
        session=session_id,
        path=str(folder),
    )


def _chunk_names(manifest: rec.Manifest) -> list[str]:
    found: Any = manifest.checkpoint.chunks if manifest.checkpoint is not None else None
    if not isinstance(found, list):
        return []
    return [name for name in cast(list[Any], found) if isinstance(name, str) and _CHUNK.match(name)]


def _imported_files(base: Path, session_id: str) -> Iterator[SideFile]:
    """Yields the files of the old layout that a unified session was made from: clew's marks are there."""
    for entry in entries_of(base / SESSIONS):
        if entry.name.startswith("session_") and is_folder(entry):
            meta = _read_meta(Path(entry.path))
            if meta is not None and meta.session_id == session_id:
                yield from _side_files(Path(entry.path), base, base, set())
                return


def _side_files(folder: Path, base: Path, root: Path, streams: set[Path], depth: int = 0) -> Iterator[SideFile]:
    if depth > 6 or folder.is_symlink():
        return
    for entry in entries_of(folder):
        path = Path(entry.path)
        if is_folder(entry):
            yield from _side_files(path, base, root, streams, depth + 1)
            continue
        try:
            facts = path.lstat()
        except OSError:
            continue
        if stat.S_ISREG(facts.st_mode) and path not in streams:
            loader = Later(path, root)
            yield SideFile(name_below(path, base), stat.S_IMODE(facts.st_mode), facts.st_size, loader)
