"""Where OpenCode keeps its sessions: rows of `opencode.db` in its data folder, or files of an older version beside it.

A database is read as it stands, its write-ahead log included, without a byte written in its folder. One that cannot
be read is listed with the reason. Sessions of the older layout (`storage/session/<project>/<id>.json`) are read while
the agent has not taken them into its database yet; those of the first layout are listed, and refused by name.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, cast

from clew.conversation.source import Source, Stream
from clew.errors import AmbiguousError, ClewError, NotFoundError, UnsupportedVersion
from clew.formats.folders import LINK, REAL_PLACE, hiding, small_file
from clew.formats.opencode.database import check_layout, export_session
from clew.formats.opencode.project import find_project
from clew.formats.protocol import Found, Home, Settings
from clew.formats.rows import name_rows
from clew.formats.sqlite import MAGIC, Tables, read_database
from clew.platform.fs import open_source

AGENT = "opencode"
DATABASE = "opencode.db"

_CHANNELS = re.compile(r"opencode(?:-[A-Za-z0-9._-]+)?\.db")
_EXPORT = re.compile(rb'(?:\xef\xbb\xbf)?\s*\{\s*"info"\s*:\s*\{[^{}]*"id"\s*:\s*"ses_')
_FIRST_LAYOUT = "it lies in the first layout of OpenCode; start OpenCode once, so that it brings it up to date"

_LISTED = """
SELECT s.id, s.directory, s.parent_id, {archived}, s.time_updated,
  (SELECT count(*) FROM message m WHERE m.session_id = s.id),
  (SELECT count(*) FROM part p WHERE p.session_id = s.id),
  (SELECT max(p.time_updated) FROM part p WHERE p.message_id = (
    SELECT m.id FROM message m WHERE m.session_id = s.id ORDER BY m.time_created DESC, m.id DESC LIMIT 1)),
  (SELECT max(m.time_updated) FROM message m WHERE m.id = (
    SELECT m.id FROM message m WHERE m.session_id = s.id ORDER BY m.time_created DESC, m.id DESC LIMIT 1))
FROM session s ORDER BY s.time_created, s.id
"""


class OpenCodeLocate:
    """The locate room of OpenCode."""

    def base(self, home: Home) -> Path:
        """Returns `$XDG_DATA_HOME/opencode`, else `~/.local/share/opencode`."""
        named = home.env.get("XDG_DATA_HOME", "")
        return (Path(named) if named else home.root / ".local" / "share") / "opencode"

    def databases(self, home: Home) -> tuple[Path, ...]:
        """Returns the databases to look in; the first is the one that is written to."""
        base, named = self.base(home), home.env.get("OPENCODE_DB", "")
        if named and named != ":memory:":
            return (base / named,)
        try:
            others = sorted(name for name in os.listdir(base) if _CHANNELS.fullmatch(name) and name != DATABASE)
        except OSError:
            others = []
        return (base / DATABASE, *(base / name for name in others))

    def places(self, home: Home) -> tuple[Path, ...]:
        """Returns the databases and folders that are looked in."""
        return (*self.databases(home), self.base(home) / "storage")

    def find(self, home: Home) -> Iterator[Found]:
        """Yields every session: helpers and archived ones are marked."""
        seen: set[str] = set()
        for path in self.databases(home):
            if path.is_symlink() or path.exists():
                for found in _in_database(path):
                    seen.add(found.id)
                    yield found
        yield from _in_files(self.base(home), seen)

    def load(self, found: Found, home: Home) -> Source:
        """Returns the source of a session; raises NotFoundError, AmbiguousError, UnreadableSource or
        UnsupportedVersion."""
        base = self.base(home)
        if found.path.suffix == ".json":
            streams = _tree(base, found)
        elif found.path.suffix == ".db" or _is_database(found.path):
            streams = (_rows(base, found),)
        else:
            streams = (_file(found.path, found.path.as_posix()),)
        return Source(streams=streams, hint_id=found.id, hint_cwd=found.cwd_hint)

    def claims(self, path: Path, head: bytes) -> bool:
        """Tells whether a file of unknown origin is a database of OpenCode's or what it exports."""
        if head.startswith(MAGIC):
            try:
                read_database(path, lambda tables: check_layout(tables, path))
            except ClewError:
                return False
            return True
        return _EXPORT.match(head) is not None

    def settings(self, home: Home) -> Settings:
        """Returns the model that is set: by the configuration, else the one that was used last."""
        provider, _, model = self._model(home).partition("/")
        return Settings(provider=provider, model=model)

    def surroundings(self, home: Home, cwd: str) -> Mapping[str, str]:
        """Returns what a writer has to know: the database's name, the folder's project, the model that is set."""
        path = self.databases(home)[0]
        base = self.base(home)
        facts = find_project(path, cwd)
        facts["database"] = path.relative_to(base).as_posix() if path.is_relative_to(base) else str(path)
        model = self._model(home) or _last_model(path)
        return facts | ({"model": model} if model else {})

    def _model(self, home: Home) -> str:
        config = Path(home.env.get("XDG_CONFIG_HOME", "") or home.root / ".config") / "opencode"
        for name in ("opencode.jsonc", "opencode.json", "config.json"):
            model = _member(_read_json(config / name), "model")
            if isinstance(model, str) and "/" in model:
                return model
        state = Path(home.env.get("XDG_STATE_HOME", "") or home.root / ".local" / "state") / "opencode"
        recent = _member(_read_json(state / "model.json"), "recent")
        first: object = cast(list[object], recent)[0] if isinstance(recent, list) and recent else None
        provider, model = _member(first, "providerID"), _member(first, "modelID")
        return f"{provider}/{model}" if isinstance(provider, str) and isinstance(model, str) else ""


# --- databases ---------------------------------------------------------------------------------------------------


def _last_model(path: Path) -> str:
    """Returns the model of the newest session in a database."""
    if not path.is_file():
        return ""

    def read(tables: Tables) -> object:
        if "model" not in tables.columns("session"):
            return None
        found = tables.query("SELECT model FROM session WHERE model IS NOT NULL ORDER BY time_updated DESC LIMIT 1")
        return found[0][0] if found else None

    try:
        text = read_database(path, read)
        model: object = json.loads(text) if isinstance(text, str) else None
    except (ClewError, ValueError, RecursionError):
        return ""
    provider, name = _member(model, "providerID"), _member(model, "id")
    return f"{provider}/{name}" if isinstance(provider, str) and isinstance(name, str) else ""


def _is_database(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


def _in_database(path: Path) -> Iterator[Found]:
    if path.is_symlink():
        yield hiding(AGENT, path, f"{path} is {LINK}", REAL_PLACE)
        return

    def read(tables: Tables) -> list[tuple[Any, ...]]:
        check_layout(tables, path)
        archived = "s.time_archived" if "time_archived" in tables.columns("session") else "NULL"
        return tables.query(_LISTED.format(archived=archived))

    try:
        rows = read_database(path, read)
    except NotFoundError:
        return
    except ClewError as error:
        yield hiding(AGENT, path, error.message, error.hint)
        return
    for row in rows:
        if isinstance(row[0], str):
            yield _found(path, row)


def _found(path: Path, row: tuple[Any, ...]) -> Found:
    kind: Literal["session", "helper", "archived"] = "helper" if row[2] else "archived" if row[3] else "session"
    times = [value for value in (row[4], row[7], row[8]) if isinstance(value, int)]
    stamp = (max(times, default=0) * 1_000_000 + sum(times) % 1_000_000, row[5] + row[6])
    cwd = row[1] if isinstance(row[1], str) else ""
    return Found(AGENT, row[0], path, (path,), stamp, kind, cwd)


def _rows(base: Path, found: Found) -> Stream:
    """Returns the rows of a session; of a database that was named as a file, those of its only session."""

    def read(tables: Tables) -> tuple[str, bytes]:
        check_layout(tables, found.path)
        session_id = found.id
        data = export_session(tables, session_id)
        if data is None:
            session_id = _only_session(tables, found)
            data = export_session(tables, session_id) or b""
        if b'{"table":"message"' not in data and b'{"table":"session_message"' in data:
            raise UnsupportedVersion(
                f"session {session_id} in {found.path} is kept in a layout that clew does not know (session_message)",
                hint="`opencode export` prints it in a form that clew reads.",
                path=str(found.path),
                session=session_id,
            )
        return session_id, data

    session_id, data = read_database(found.path, read)
    name = found.path.relative_to(base).as_posix() if found.path.is_relative_to(base) else str(found.path)
    return Stream(name_rows(name, session_id), data, found.path.stat().st_mode & 0o777)


def _only_session(tables: Tables, found: Found) -> str:
    roots = [str(row[0]) for row in tables.query("SELECT id FROM session WHERE parent_id IS NULL ORDER BY id")]
    if len(roots) == 1 and found.id == found.path.stem:
        return roots[0]
    if found.id == found.path.stem and roots:
        raise AmbiguousError(
            f"{found.path} holds {len(roots)} sessions",
            hint="Name one: PATH#ID, for instance " + f"{found.path}#{roots[-1]}",
            path=str(found.path),
            candidates=roots[:8],
        )
    raise NotFoundError(f"{found.path} has no session {found.id}", session=found.id, path=str(found.path))


# --- files of older versions -------------------------------------------------------------------------------------


def _in_files(base: Path, seen: set[str]) -> Iterator[Found]:
    for path in sorted((base / "storage" / "session").glob("*/*.json")):
        if path.stem not in seen and path.parent.name not in ("info", "message", "part"):
            yield _found_file(base, path)
    for path in sorted((base / "project").glob("*/storage/session/info/*.json")):
        if path.stem not in seen:
            yield Found(AGENT, path.stem, path, (path,), _stamp([path]), problem=f"{path}: {_FIRST_LAYOUT}")


def _found_file(base: Path, path: Path) -> Found:
    info = _read_json(path)
    folder, parent = _member(info, "directory"), _member(info, "parentID")
    kind: Literal["session", "helper"] = "helper" if isinstance(parent, str) else "session"
    files = _tree_files(base, path)
    link = next((file for file in files if file.is_symlink()), None)
    problem = f"{link} is {LINK}" if link is not None else ""
    return Found(
        AGENT, path.stem, path, (path,), _stamp(files), kind, folder if isinstance(folder, str) else "", problem
    )


def _tree_files(base: Path, path: Path) -> list[Path]:
    storage = base / "storage"
    messages = sorted((storage / "message" / path.stem).glob("*.json"))
    parts = [part for message in messages for part in sorted((storage / "part" / message.stem).glob("*.json"))]
    return [path, *messages, *parts]


def _tree(base: Path, found: Found) -> tuple[Stream, ...]:
    if found.path.is_relative_to(base / "storage" / "session"):
        return tuple(_file(path, path.relative_to(base).as_posix()) for path in _tree_files(base, found.path))
    return (_file(found.path, str(found.path)),)


def _file(path: Path, name: str) -> Stream:
    opened = open_source(path)
    return Stream(name, cast(bytes, opened.data), opened.mode, opened.release)


def _stamp(paths: list[Path]) -> tuple[int, int]:
    time = size = 0
    for path in paths:
        try:
            facts = path.lstat()
        except OSError:
            continue
        time, size = time + facts.st_mtime_ns, size + facts.st_size
    return time, size


def _read_json(path: Path) -> object:
    """Returns the JSON in a small file, comments on lines of their own let through; None where there is none."""
    try:
        text = small_file(path).decode()
    except (OSError, ValueError):
        return None
    for candidate in (text, re.sub(r"(?m)^\s*//.*$|,(?=\s*[}\]])", "", text)):
        try:
            return json.loads(candidate)
        except (ValueError, RecursionError):
            continue
    return None


def _member(value: object, name: str) -> object:
    return cast(dict[str, object], value).get(name) if isinstance(value, dict) else None


LOCATE = OpenCodeLocate()
