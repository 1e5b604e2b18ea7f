"""Where OpenHands keeps its conversations, and how one of them is opened.

The base folder holds the conversations: $OPENHANDS_CONVERSATIONS_DIR, or `conversations` in $OPENHANDS_PERSISTENCE_DIR
where the agent's own variables count, else ~/.openhands/conversations. A conversation is a folder named by the digits
of its id, with `base_state.json` and a file for each event in `events`. Links are reported, not followed; nothing is
written here.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from clew.conversation.source import SideFile, Source, Stream
from clew.errors import NotFoundError
from clew.formats import raws
from clew.formats.folders import LINK, Later, entries_of, is_folder, name_below, small_file
from clew.formats.openhands import records as rec
from clew.formats.openhands.folder import EVENTS, STATE, id_in_name, number_of
from clew.formats.openhands.reader import AGENT, read_state
from clew.formats.protocol import Found, Home, Settings
from clew.platform.mapped import open_source

_SETTINGS = "agent_settings.json"
_DEPTH = 6
_NEWEST = 20
"""How many conversations are looked into for a system prompt."""


class OpenHandsLocate:
    """Finds, opens and recognises conversations of OpenHands."""

    def base(self, home: Home) -> Path:
        """Returns the folder of all conversations, to which streams' paths are relative."""
        named = home.env.get("OPENHANDS_CONVERSATIONS_DIR")
        return Path(named) if named else _own_folder(home) / "conversations"

    def places(self, home: Home) -> tuple[Path, ...]:
        """Returns the folder that is looked in."""
        return (self.base(home),)

    def find(self, home: Home) -> Iterator[Found]:
        """Yields every conversation, by the names of the folders alone."""
        for entry in entries_of(self.base(home)):
            session_id = id_in_name(entry.name)
            if session_id and (entry.is_symlink() or is_folder(entry)):
                found = _found(Path(entry.path), session_id, is_link=entry.is_symlink())
                if found is not None:
                    yield found

    def load(self, found: Found, home: Home) -> Source:
        """Returns the source of a conversation; raises NotFoundError or UnreadableSource."""
        base = self.base(home)
        folder = found.path.parent
        if folder.name == EVENTS:  # an event was named
            folder = folder.parent
        inside = folder.is_relative_to(base)
        root = base if inside else folder
        names = [entry.name for entry in entries_of(folder / EVENTS)]
        numbered = sorted((number, name) for name in names if (number := number_of(name)) is not None)
        if not numbered and not os.path.lexists(folder / STATE):
            raise NotFoundError(f"{folder} holds no conversation", path=str(folder), session=found.id)
        streams: list[Stream] = []
        for _, name in numbered:
            path = folder / EVENTS / name
            mapped = open_source(path, root=root)
            streams.append(Stream(name_below(path, base), memoryview(mapped.data), mapped.mode, mapped.release))
        side = tuple(_side_files(folder, base, root))
        named = id_in_name(folder.name) or raws.as_word(read_state(side).id) or found.id
        return Source(tuple(streams), side, hint_id=named)

    def claims(self, path: Path, head: bytes) -> bool:
        """Tells whether a file of unknown origin is an event or the state of a conversation."""
        if path.name == STATE:
            return b'"agent"' in head and b'"workspace"' in head
        return path.parent.name == EVENTS and number_of(path.name) is not None and b'"timestamp"' in head

    def settings(self, home: Home) -> Settings:
        """Returns the model that the agent's own settings name."""
        found = _read_json(_own_folder(home) / _SETTINGS)
        model: Any = found.get("llm", {}).get("model") if isinstance(found.get("llm"), dict) else None
        return Settings("", model if isinstance(model, str) else "")


def surroundings(home: Home, cwd: str) -> Mapping[str, str]:
    """Returns where conversations lie, which model is set, and the system prompt of the newest conversation."""
    locate = OpenHandsLocate()
    facts = {"folder": str(locate.base(home)), "model": locate.settings(home).model, "system_prompt": ""}
    newest = sorted(locate.find(home), key=lambda found: found.stamp, reverse=True)
    for found in newest[:_NEWEST]:
        prompt = "" if found.problem else _prompt_in(found.path.parent)
        if prompt:
            facts["system_prompt"] = prompt
            break
    return facts


def _prompt_in(folder: Path) -> str:
    """Returns the system prompt that a conversation of the agent's own begins with, or nothing."""
    for entry in entries_of(folder / EVENTS):
        if number_of(entry.name) == 0 and not entry.is_symlink():
            event = _read_json(Path(entry.path))
            prompt: Any = event.get("system_prompt")
            if event.get("kind") == rec.SYSTEM and event.get("tools") and isinstance(prompt, dict):
                text: Any = prompt.get("text")  # type: ignore[union-attr]
                return text if isinstance(text, str) else ""
    return ""


def _read_json(path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_size > 1 << 24:
            return {}
        value: Any = json.loads(small_file(path).decode())
    except (OSError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}  # type: ignore[return-value]


def _own_folder(home: Home) -> Path:
    named = home.env.get("OPENHANDS_PERSISTENCE_DIR")
    return Path(named) if named else home.root / ".openhands"


def _found(folder: Path, session_id: str, *, is_link: bool) -> Found | None:
    path = folder / STATE
    if is_link:
        return Found(AGENT, session_id, path, (path,), problem=f"it lies behind {folder.name}, {LINK}")
    if not os.path.lexists(path) and not _has_event(folder / EVENTS):
        return None
    stamp, problem = (0, 0), ""
    for one, wanted in ((folder / EVENTS, stat.S_ISDIR), (path, stat.S_ISREG)):
        try:
            facts = one.lstat()
        except FileNotFoundError:
            continue
        except OSError as error:
            problem = f"cannot be looked at: {error.strerror}"
            continue
        stamp = (max(stamp[0], facts.st_mtime_ns), stamp[1] + (facts.st_size if one is path else 0))
        if not wanted(facts.st_mode):
            problem = f"{one.name} is {LINK}" if stat.S_ISLNK(facts.st_mode) else f"{one.name} is of another kind"
    return Found(AGENT, session_id, path, (path,), stamp, problem=problem)


def _has_event(folder: Path) -> bool:
    try:
        with os.scandir(folder) as entries:
            return any(number_of(entry.name) is not None for entry in entries)
    except OSError:
        return False


def _side_files(folder: Path, base: Path, root: Path, depth: int = 0) -> Iterator[SideFile]:
    if depth > _DEPTH:
        return
    for entry in entries_of(folder):
        path = Path(entry.path)
        if is_folder(entry):
            yield from _side_files(path, base, root, depth + 1)
            continue
        is_event = folder.name == EVENTS and number_of(entry.name) is not None
        if is_event or entry.name.endswith(".lock"):
            continue
        try:
            facts = path.lstat()
        except OSError:
            continue
        if stat.S_ISREG(facts.st_mode):
            yield SideFile(name_below(path, base), stat.S_IMODE(facts.st_mode), facts.st_size, Later(path, root))
