"""Where Kimi Code keeps its sessions, and how one of them is opened.

The base folder is $KIMI_CODE_HOME where the agents' own variables count, else ~/.kimi-code. A session is a folder
`sessions/<place>/<id>/`; its journal is `agents/main/wire.jsonl`, those of its helpers lie beside it, everything else
in the folder belongs to it, its description `state.json` above all. Links are reported, not followed; nothing is
written here.
"""

from __future__ import annotations

import os
import stat
import tomllib
from collections.abc import Iterator
from pathlib import Path

from clew.conversation.source import SideFile, Source, Stream
from clew.errors import UnsupportedVersion
from clew.formats.folders import LINK, Later, entries_of, is_folder, name_below, odd_kind, small_file
from clew.formats.kimi import records as rec
from clew.formats.kimi.folder import SESSIONS
from clew.formats.kimi.reader import AGENT, MAIN, STATE
from clew.formats.protocol import Found, Home, Settings
from clew.platform.mapped import open_source

_WIRE = "wire.jsonl"
_KNOWN_STATE = 2
_LEFT_OUT = (".lock", ".tmp")
_DEPTH = 8


class KimiLocate:
    """Finds, opens and recognises sessions of Kimi Code."""

    def base(self, home: Home) -> Path:
        """Returns the agent's base folder, to which streams' paths are relative."""
        named = home.env.get("KIMI_CODE_HOME")
        return Path(named) if named else home.root / ".kimi-code"

    def places(self, home: Home) -> tuple[Path, ...]:
        """Returns the folder that is looked in."""
        return (self.base(home) / SESSIONS,)

    def find(self, home: Home) -> Iterator[Found]:
        """Yields every session and every helper of one, by the places of the files alone."""
        for place in entries_of(self.base(home) / SESSIONS):
            if place.name.startswith(".") or not (is_folder(place) or place.is_symlink()):
                continue
            for folder in entries_of(Path(place.path)):
                if folder.is_symlink() or place.is_symlink():
                    path = Path(folder.path) / MAIN
                    yield Found(AGENT, folder.name, path, (path,), problem=f"it lies behind {LINK}")
                elif is_folder(folder):
                    yield from self._in_session(Path(folder.path))

    def _in_session(self, folder: Path) -> Iterator[Found]:
        agents = [entry for entry in entries_of(folder / "agents") if is_folder(entry)]
        if os.path.lexists(folder / MAIN) or os.path.lexists(folder / STATE):
            yield _found(folder / MAIN, folder.name, "session")
        for entry in agents:
            if entry.name != "main":
                yield _found(Path(entry.path) / _WIRE, f"{folder.name}.{entry.name}", "helper")

    def load(self, found: Found, home: Home) -> Source:
        """Returns the source of a session; raises NotFoundError, UnreadableSource or UnsupportedVersion."""
        base = self.base(home)
        inside = found.path.is_relative_to(base)
        mapped = open_source(found.path, root=base if inside else None)
        stream = Stream(name_below(found.path, base), memoryview(mapped.data), mapped.mode, mapped.release)
        if not inside:
            return Source((stream,), hint_id=found.id)
        folder = found.path.parent.parent.parent
        helper = found.path.parent.name != "main"
        side = tuple(_below(found.path.parent if helper else folder, base, found.path))
        if helper:
            side = (*side, *_one(folder / STATE, base))
        for file in side:
            if file.path == name_below(folder / STATE, base):
                _refuse_newer(rec.decode(bytes(file.load()), rec.State), found)
        return Source((stream,), side, hint_id=found.id)

    def claims(self, path: Path, head: bytes) -> bool:
        """Tells whether a file of unknown origin begins as a journal of Kimi Code does."""
        for line in head.splitlines()[:8]:
            record = rec.decode(line, rec.Line)
            if record.type == "metadata" and isinstance(record.protocol_version, str):
                return True
            if record.type in (rec.APPEND, rec.LOOP) and b'"agentId"' in line:
                return True
        return False

    def settings(self, home: Home) -> Settings:
        """Returns the model that the agent's own configuration names (an alias of its own)."""
        try:
            found = tomllib.loads(small_file(self.base(home) / "config.toml").decode())
        except (OSError, ValueError):
            return Settings()
        model = found.get("default_model")
        return Settings("", model if isinstance(model, str) else "")


def _refuse_newer(state: rec.State, found: Found) -> None:
    version = rec.number(state.version)
    if version is not None and version > _KNOWN_STATE:
        raise UnsupportedVersion(
            f"{found.path}: this session is of layout {version}; clew knows layouts up to {_KNOWN_STATE}",
            hint="A newer clew may read it.",
            path=str(found.path),
            session=found.id,
        )


def _found(path: Path, session_id: str, kind: str) -> Found:
    stamp, problem = (0, 0), ""
    try:
        facts = path.lstat()
        stamp = (facts.st_mtime_ns, facts.st_size)
        if stat.S_ISLNK(facts.st_mode):
            problem = LINK
        elif not stat.S_ISREG(facts.st_mode):
            problem = "not a regular file"
    except FileNotFoundError:
        problem = "its journal is missing"
    except OSError as error:
        problem = f"cannot be looked at: {error.strerror}"
    if kind == "session" and not problem:
        try:  # a title and a folder change without the journal
            state = (path.parent.parent.parent / STATE).lstat()
            stamp = (max(stamp[0], state.st_mtime_ns), stamp[1] + state.st_size)
            problem = odd_kind(STATE, state.st_mode)
        except OSError:
            pass
    return Found(AGENT, session_id, path, (path,), stamp, "helper" if kind == "helper" else "session", "", problem)


def _below(folder: Path, base: Path, stream: Path, depth: int = 0) -> Iterator[SideFile]:
    if depth > _DEPTH:
        return
    for entry in entries_of(folder):
        path = Path(entry.path)
        if is_folder(entry):
            yield from _below(path, base, stream, depth + 1)
        elif path != stream and not entry.name.endswith(_LEFT_OUT):
            yield from _one(path, base)


def _one(path: Path, base: Path) -> Iterator[SideFile]:
    try:
        facts = path.lstat()
    except OSError:
        return
    if stat.S_ISREG(facts.st_mode):
        yield SideFile(name_below(path, base), stat.S_IMODE(facts.st_mode), facts.st_size, Later(path, base))
