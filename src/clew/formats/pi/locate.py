"""Where pi keeps its sessions, and how one of them is opened.

The base folder is $PI_CODING_AGENT_DIR where the agent's own variables count, else ~/.pi/agent. A session is one file
`sessions/<folder>/<time>_<id>.jsonl`; $PI_CODING_AGENT_SESSION_DIR, or `sessionDir` of the settings, names another
folder that holds all files side by side. There is no index and there are no side files. Links are reported, not
followed; nothing is written here, and no id from inside a record builds a path.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from clew.conversation.source import Source, Stream
from clew.formats import raws
from clew.formats.folders import LINK, entries_of, is_folder, small_file
from clew.formats.pi import records as rec
from clew.formats.pi.folder import ENDING, SESSIONS, has_id, id_in_name
from clew.formats.protocol import Found, Home, Settings
from clew.formats.shelf import look_at
from clew.platform.mapped import open_source

AGENT = "pi"
_HEAD_BYTES = 1 << 16


class _SettingsFile(msgspec.Struct, rename="camel"):
    default_provider: Any = None
    default_model: Any = None
    session_dir: Any = None


class PiLocate:
    """Finds, opens and recognises sessions of pi."""

    def base(self, home: Home) -> Path:
        """Returns the agent's base folder, to which streams' paths are relative."""
        named = home.env.get("PI_CODING_AGENT_DIR")
        return _expanded(named, home) if named else home.root / ".pi" / "agent"

    def places(self, home: Home) -> tuple[Path, ...]:
        """Returns the folders that are looked in."""
        extra = self.flat_folder(home)
        return (self.base(home) / SESSIONS, *((extra,) if extra is not None else ()))

    def flat_folder(self, home: Home) -> Path | None:
        """Returns the folder that variable or settings name for all sessions, or None."""
        named = home.env.get("PI_CODING_AGENT_SESSION_DIR") or raws.as_word(self._read_settings(home).session_dir)
        path = _expanded(named, home) if named else None
        return path if path is not None and path.is_absolute() else None

    def find(self, home: Home) -> Iterator[Found]:
        """Yields every session; the id stands in the file's name, or, in a name that pi did not give, in its head."""
        for folder in entries_of(self.base(home) / SESSIONS):
            path = Path(folder.path)
            if is_folder(folder):
                yield from _in_folder(path, "")
            elif folder.is_symlink() and path.is_dir():
                yield from _in_folder(path, f"it lies behind {folder.name}, {LINK}")
            elif folder.name.endswith(ENDING):
                yield _found(path, "")
        flat = self.flat_folder(home)
        if flat is not None:
            yield from _in_folder(flat, "")

    def load(self, found: Found, home: Home) -> Source:
        """Returns the source of a session; raises NotFoundError or UnreadableSource."""
        base = self.base(home)
        inside = found.path.is_relative_to(base)
        mapped = open_source(found.path, root=base if inside else None)
        path = found.path.relative_to(base).as_posix() if inside else found.path.as_posix()
        stream = Stream(path, memoryview(mapped.data), mapped.mode, mapped.release)
        return Source((stream,), hint_id=id_in_name(found.path.name))

    def claims(self, path: Path, head: bytes) -> bool:
        """Tells whether a file of unknown origin begins with pi's header."""
        line = next((line for line in head.lstrip(b"\xef\xbb\xbf").splitlines() if line.strip()), b"")
        try:
            entry = rec.ENTRIES.decode(line)
        except (msgspec.DecodeError, RecursionError):
            return False
        return entry.type == "session" and isinstance(entry.id, str) and (entry.version, entry.cwd) != (None, None)

    def settings(self, home: Home) -> Settings:
        """Returns the model and the provider that the agent's own settings name."""
        found = self._read_settings(home)
        return Settings(raws.as_word(found.default_provider), raws.as_word(found.default_model))

    def _read_settings(self, home: Home) -> _SettingsFile:
        try:
            return msgspec.json.decode(small_file(self.base(home) / "settings.json"), type=_SettingsFile)
        except (OSError, msgspec.DecodeError, RecursionError):
            return _SettingsFile()


def surroundings(home: Home, cwd: str) -> Mapping[str, str]:
    """Returns the model that pi is set to, and the folder for all sessions where one is named."""
    locate = PiLocate()
    settings, flat = locate.settings(home), locate.flat_folder(home)
    facts = {"provider": settings.provider, "model": settings.model, "sessions": flat.as_posix() if flat else ""}
    return {name: value for name, value in facts.items() if value}


def _expanded(named: str, home: Home) -> Path:
    return home.root / named[2:] if named.startswith("~/") else Path(named)


def _in_folder(folder: Path, problem: str) -> Iterator[Found]:
    try:
        entries = entries_of(folder, strict=True)
    except FileNotFoundError:
        return
    except OSError as error:
        yield Found(AGENT, folder.name, folder, problem=f"the folder may not be read: {error.strerror}")
        return
    for entry in entries:
        if entry.name.endswith(ENDING):
            yield _found(Path(entry.path), problem)


def _found(path: Path, problem: str) -> Found:
    found = look_at(AGENT, path, id_in_name(path.name), problem=problem)
    if found.problem or has_id(path.name):
        return found
    return msgspec.structs.replace(found, id=_id_in_head(path) or found.id)


def _id_in_head(path: Path) -> str:
    try:
        with path.open("rb") as file:
            entry = rec.ENTRIES.decode(file.readline(_HEAD_BYTES))
    except (OSError, msgspec.DecodeError, RecursionError):
        return ""
    return raws.as_word(entry.id) if entry.type == "session" else ""
