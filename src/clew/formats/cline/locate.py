"""Where Cline keeps its sessions: folders of the command line's sessions, and of the VS Code extension's tasks.

A session is the file of its folder's name in `sessions/<id>/`; other documents there are its helpers'. Everything
else in a folder goes with it. Tasks lie in the data folder, and in the editors' folders of an older extension. The
agent's database only repeats what stands in a session's description, and is not looked into. Links are reported, not
followed; no id from inside a file builds a path.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

import msgspec

from clew.conversation.source import SideFile, Source
from clew.errors import ClewError
from clew.formats.cline.folder import COMPACTION, DATA, EDITORS, HISTORY, MANIFEST, MESSAGES, SESSIONS, TASK, TASKS
from clew.formats.cline.reader import AGENT
from clew.formats.folders import Later, entries_of, is_folder
from clew.formats.loose import NONE, Members, items_of, members_of, raw_of, word_in
from clew.formats.protocol import Found, Home, Settings
from clew.formats.shelf import LINK, look_at, open_stream
from clew.platform.mapped import open_source

_LARGEST = 64 << 20
_HEAD = 4096
_LEFT_OUT = (".lock", ".tmp")


class ClineLocate:
    """Finds, opens and recognises sessions of Cline."""

    def base(self, home: Home) -> Path:
        """Returns the folder to which streams' paths are relative: the user's home."""
        return home.root

    def data(self, home: Home) -> Path:
        """Returns the agent's data folder."""
        named, folder = home.env.get("CLINE_DATA_DIR", "").strip(), home.env.get("CLINE_DIR", "").strip()
        if named:
            return Path(named)
        return Path(folder) / "data" if folder else home.root / DATA

    def places(self, home: Home) -> tuple[Path, ...]:
        """Returns the folders that are looked in."""
        data = self.data(home)
        return (data / SESSIONS, data / TASKS)

    def find(self, home: Home) -> Iterator[Found]:
        """Yields every session and every helper of one, then every task, by the places of the files alone."""
        data = self.data(home)
        for entry in entries_of(data / SESSIONS):
            yield from _in_session(entry)
        for place in (data, *(home.root / folder for folder in EDITORS)):
            folders = _folders(place)
            for entry in entries_of(place / TASKS):
                path = Path(entry.path) / TASK
                if entry.is_symlink() and path.exists():
                    yield Found(AGENT, entry.name, path, (path,), problem=f"it lies behind {LINK}")
                elif is_folder(entry) and os.path.lexists(path):
                    yield _found(path, entry.name, "session", folders.get(entry.name, ""))

    def load(self, found: Found, home: Home) -> Source:
        """Returns the source of a session; raises NotFoundError or UnreadableSource."""
        stream = open_stream(found.path, home.root)
        known = (self.data(home), *(home.root / folder for folder in EDITORS))
        inside = any(found.path.is_relative_to(place) for place in known)
        side = tuple(_beside(found, home.root)) if inside else ()
        return Source((stream,), side, hint_id=found.id, hint_cwd=found.cwd_hint)

    def claims(self, path: Path, head: bytes) -> bool:
        """Tells whether a file of unknown origin begins as the messages of Cline do."""
        start = head.removeprefix(b"\xef\xbb\xbf").lstrip()[:_HEAD]
        if path.name == TASK:
            return start.startswith(b"[")
        parts = (b'"version"', b'"updated_at"', b'"agent"', b'"sessionId"')
        return start.startswith(b"{") and all(part in start for part in parts) and b'"messages"' in start

    def settings(self, home: Home) -> Settings:
        """Returns the provider that was used last and its model, as the agent's own settings name them."""
        found = read_object(self.data(home) / "settings" / "providers.json")
        provider = word_in(found.get("lastUsedProvider", NONE))
        known = members_of(found.get("providers", NONE))
        chosen = members_of(members_of(known.get(provider, NONE)).get("settings", NONE))
        return Settings(provider, word_in(chosen.get("model", NONE)), tuple(known))

    def surroundings(self, home: Home, cwd: str) -> Mapping[str, str]:
        """Returns where the data folder is, and the provider that is set: a description names both."""
        data, root = self.data(home), home.root.absolute()
        name = data.relative_to(home.root).as_posix() if data.is_relative_to(home.root) else data.absolute().as_posix()
        return {"data": name, "root": root.as_posix(), "provider": self.settings(home).provider}


LOCATE = ClineLocate()


def _in_session(entry: os.DirEntry[str]) -> Iterator[Found]:
    """Yields the session of a folder, and its helpers'; a folder without messages holds none."""
    folder, own = Path(entry.path), entry.name + MESSAGES
    if entry.is_symlink():
        if (folder / own).exists():
            yield Found(AGENT, entry.name, folder / own, (folder / own,), problem=f"it lies behind {LINK}")
        return
    for file in entries_of(folder) if is_folder(entry) else ():
        path = Path(file.path)
        if file.name == own:
            yield _found(path, entry.name, "session", _cwd_in(path))
        elif file.name.endswith(MESSAGES):
            yield _found(path, file.name.removesuffix(MESSAGES), "helper", "")


def _cwd_in(path: Path) -> str:
    facts = read_object(path.with_name(path.name.removesuffix(MESSAGES) + MANIFEST))
    return word_in(facts.get("cwd", NONE))


def _found(path: Path, session_id: str, kind: Literal["session", "helper"], cwd: str) -> Found:
    own = path.name.removesuffix(MESSAGES)
    beside = [path.with_name(own + end) for end in (MANIFEST, COMPACTION)] if own != path.name else []
    found = look_at(AGENT, path, session_id, cwd, beside=beside)
    return msgspec.structs.replace(found, kind=kind) if kind != found.kind else found


def _folders(data: Path) -> dict[str, str]:
    """Returns the working folder of each task that the extension's own list names."""
    facts = (members_of(item) for item in items_of(_read_json(data / HISTORY)))
    return {word_in(one.get("id", NONE)): word_in(one.get("cwdOnTaskInitialization", NONE)) for one in facts}


def _read_json(path: Path) -> msgspec.Raw:
    """Returns the value in a file of the agent's; nothing where it cannot be read or is too large."""
    try:
        with open_source(path) as opened:
            return raw_of(bytes(opened.data)) if opened.size <= _LARGEST else NONE
    except ClewError:
        return NONE


def read_object(path: Path) -> Members:
    """Returns the members of the object in a file of the agent's; none where it cannot be read."""
    return members_of(_read_json(path))


def _beside(found: Found, root: Path) -> Iterator[SideFile]:
    """Yields what lies in a session's folder besides its messages; a helper has only the messages."""
    if found.kind == "helper":
        return
    for entry in entries_of(found.path.parent):
        if entry.name != found.path.name and not entry.name.endswith(_LEFT_OUT):
            path = Path(entry.path)
            try:
                facts = entry.stat(follow_symlinks=False)
            except OSError:
                continue
            if stat.S_ISREG(facts.st_mode):
                inside = path.is_relative_to(root)
                name = path.relative_to(root).as_posix() if inside else path.as_posix()
                mode = stat.S_IMODE(facts.st_mode)
                yield SideFile(name, mode, facts.st_size, Later(path, root if inside else None))
