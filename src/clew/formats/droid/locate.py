"""Where Droid keeps its sessions, and how one of them is opened.

The base folder is .factory in $FACTORY_HOME_OVERRIDE where the agent's own variables count, else in the user's home. A
session is a file `sessions/<folder>/<id>.jsonl` with its settings beside it; older versions kept it in `sessions/`
itself. The discovery index in `cache/` is made anew by the agent and is not needed. Links are reported, not followed;
nothing is written here, and no id from inside a record builds a path.
"""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from clew.conversation.source import SideFile, Source, Stream
from clew.formats import raws
from clew.formats.droid import records as rec
from clew.formats.droid.folder import ENDING, SESSIONS, SIDE_ENDINGS
from clew.formats.folders import LINK, Later, entries_of, is_folder, name_below, small_file
from clew.formats.protocol import Found, Home, Settings
from clew.formats.shelf import look_at
from clew.platform.mapped import open_source

AGENT = "droid"


class _SettingsFile(msgspec.Struct, rename="camel"):
    model: Any = None
    session_default_settings: Any = None


class DroidLocate:
    """Finds, opens and recognises sessions of Droid."""

    def base(self, home: Home) -> Path:
        """Returns the agent's base folder, to which streams' paths are relative."""
        named = home.env.get("FACTORY_HOME_OVERRIDE")
        return (Path(named) if named else home.root) / ".factory"

    def places(self, home: Home) -> tuple[Path, ...]:
        """Returns the folder that is looked in."""
        return (self.base(home) / SESSIONS,)

    def find(self, home: Home) -> Iterator[Found]:
        """Yields every session, by the places of the files alone."""
        for entry in entries_of(self.base(home) / SESSIONS):
            path = Path(entry.path)
            if is_folder(entry):
                yield from _in_folder(path, "")
            elif entry.is_symlink() and path.is_dir():
                yield from _in_folder(path, f"it lies behind {entry.name}, {LINK}")
            elif entry.name.endswith(ENDING):
                yield _found(path, "")

    def load(self, found: Found, home: Home) -> Source:
        """Returns the source of a session; raises NotFoundError or UnreadableSource."""
        base = self.base(home)
        inside = found.path.is_relative_to(base)
        mapped = open_source(found.path, root=base if inside else None)
        stream = Stream(name_below(found.path, base), memoryview(mapped.data), mapped.mode, mapped.release)
        side = tuple(_side_files(found.path, base)) if inside else ()
        return Source((stream,), side, hint_id=found.path.name.removesuffix(ENDING))

    def claims(self, path: Path, head: bytes) -> bool:
        """Tells whether a file of unknown origin begins with Droid's first record."""
        line = next((line for line in head.lstrip(b"\xef\xbb\xbf").splitlines() if line.strip()), b"")
        try:
            record = rec.RECORDS.decode(line)
        except raws.DECODE_ERRORS:
            return False
        return record.type == "session_start" and isinstance(record.id, str)

    def settings(self, home: Home) -> Settings:
        """Returns the model that the agent's own settings name."""
        try:
            found = msgspec.json.decode(small_file(self.base(home) / "settings.json"), type=_SettingsFile)
        except (OSError, *raws.DECODE_ERRORS):
            return Settings()
        defaults: Any = found.session_default_settings
        model = defaults.get("model") if isinstance(defaults, dict) else None  # type: ignore[union-attr]
        return Settings("", raws.as_word(model) or raws.as_word(found.model))  # type: ignore[arg-type]


def _in_folder(folder: Path, problem: str) -> Iterator[Found]:
    try:
        entries = entries_of(folder, strict=True)
    except OSError as error:
        yield Found(AGENT, folder.name, folder, problem=f"the folder may not be read: {error.strerror}")
        return
    for entry in entries:
        if entry.name.endswith(ENDING):
            yield _found(Path(entry.path), problem)


def _found(path: Path, problem: str) -> Found:
    return look_at(AGENT, path, path.name.removesuffix(ENDING), problem=problem)


def _side_files(path: Path, base: Path) -> Iterator[SideFile]:
    """Yields the files of a session's own name that lie beside it."""
    stem = path.name.removesuffix(ENDING)
    for ending in SIDE_ENDINGS:
        beside = path.with_name(stem + ending)
        try:
            facts = beside.lstat()
        except OSError:
            continue
        if stat.S_ISREG(facts.st_mode):
            mode = stat.S_IMODE(facts.st_mode)
            yield SideFile(name_below(beside, base), mode, facts.st_size, Later(beside, base))
