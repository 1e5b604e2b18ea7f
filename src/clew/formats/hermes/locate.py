"""Where Hermes keeps its sessions: rows of `state.db` in its home folder.

A database is read as it stands, its write-ahead log included, without a byte written in its folder. One that cannot
be read is listed with the reason. Profiles have homes of their own, which `HERMES_HOME` names.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal
from zlib import crc32

from clew.conversation.source import Source, Stream
from clew.errors import AmbiguousError, ClewError, NotFoundError
from clew.formats.folders import LINK, REAL_PLACE, hiding, small_file
from clew.formats.hermes.database import check_layout, export_session
from clew.formats.hermes.reader import AGENT, relation_of
from clew.formats.hermes.writer import DATABASE
from clew.formats.protocol import Found, Home, Settings
from clew.formats.rows import name_rows
from clew.formats.sqlite import MAGIC, Tables, read_database

_MODEL = re.compile(r"^model:[ \t]*(?:#.*)?\n((?:[ \t]+.*\n|[ \t]*\n)*)", re.MULTILINE)
_SETTING = re.compile(r"^[ \t]+(provider|default):[ \t]*[\"']?([^\"'#\n]*)", re.MULTILINE)
_FACTS = ("cwd", "parent_session_id", "source", "model_config", "end_reason", "archived", "ended_at", "title")


class HermesLocate:
    """The locate room of Hermes."""

    def base(self, home: Home) -> Path:
        """Returns `$HERMES_HOME`, else `~/.hermes`."""
        named = home.env.get("HERMES_HOME", "").strip()
        return Path(named) if named else home.root / ".hermes"

    def database(self, home: Home) -> Path:
        """Returns the database of a home."""
        return self.base(home) / DATABASE

    def places(self, home: Home) -> tuple[Path, ...]:
        """Returns the database that is looked in."""
        return (self.database(home),)

    def find(self, home: Home) -> Iterator[Found]:
        """Yields every session: helpers, archived ones, and those that were compacted into another are marked."""
        path = self.database(home)
        if path.is_symlink():
            yield hiding(AGENT, path, f"{path} is {LINK}", REAL_PLACE)
        elif path.exists():
            yield from _in_database(path)

    def load(self, found: Found, home: Home) -> Source:
        """Returns the source of a session; raises NotFoundError, AmbiguousError, UnreadableSource or
        UnsupportedVersion."""
        return Source(streams=(_rows(self.base(home), found),), hint_id=found.id, hint_cwd=found.cwd_hint)

    def claims(self, path: Path, head: bytes) -> bool:
        """Tells whether a file of unknown origin is a database of Hermes's."""
        if not head.startswith(MAGIC):
            return False
        try:
            read_database(path, lambda tables: check_layout(tables, path))
        except ClewError:
            return False
        return True

    def settings(self, home: Home) -> Settings:
        """Returns the provider and the model that the configuration sets, as far as it is spelled plainly."""
        try:
            text = small_file(self.base(home) / "config.yaml").decode()
        except (OSError, ValueError):
            return Settings()
        block = _MODEL.search(text + "\n")
        found = dict(_SETTING.findall(block.group(1))) if block is not None else {}
        return Settings(provider=found.get("provider", "").strip(), model=found.get("default", "").strip())

    def surroundings(self, home: Home, cwd: str) -> Mapping[str, str]:
        """Returns what a writer has to know: the last number of a message, the titles that are taken, the columns.

        A database that cannot be read tells nothing; whoever writes there is refused.
        """
        path = self.database(home)
        if not path.exists():
            return {}
        try:
            return read_database(path, _facts)
        except ClewError:
            return {}


def _facts(tables: Tables) -> dict[str, str]:
    facts = {f"columns.{table}": ",".join(tables.columns(table)) for table in ("sessions", "messages", "state_meta")}
    last: list[Any] = []
    if "id" in tables.columns("messages"):
        last += [row[0] for row in tables.query("SELECT max(id) FROM messages")]
    if tables.query("SELECT 1 FROM sqlite_master WHERE name = 'sqlite_sequence'"):
        last += [row[0] for row in tables.query("SELECT seq FROM sqlite_sequence WHERE name = 'messages'")]
    facts["last"] = str(max((number for number in last if isinstance(number, int)), default=0))
    if "title" in tables.columns("sessions"):
        titles = tables.query("SELECT title FROM sessions WHERE title IS NOT NULL")
        facts["titles"] = json.dumps([row[0] for row in titles if isinstance(row[0], str)])
    return facts


def _in_database(path: Path) -> Iterator[Found]:
    def read(tables: Tables) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
        check_layout(tables, path)
        known = tables.columns("sessions")
        facts = ", ".join(f'"{name}"' if name in known else "NULL" for name in _FACTS)
        active = "sum(active)" if "active" in tables.columns("messages") else "0"
        asked = f"session_id, count(*), max(id), {active}, max(timestamp)"
        counts = f"SELECT {asked} FROM messages GROUP BY session_id"  # noqa: S608 - known names
        listed = f"SELECT id, started_at, {facts} FROM sessions ORDER BY started_at, id"  # noqa: S608 - known names
        return tables.query(listed), tables.query(counts)

    try:
        rows, counts = read_database(path, read)
    except NotFoundError:
        return
    except ClewError as error:
        yield hiding(AGENT, path, error.message, error.hint)
        return
    by_id = {row[0]: row[1:] for row in counts}
    for row in rows:
        if isinstance(row[0], str):
            yield _found(path, row, by_id.get(row[0], (0, 0, 0, None)))


def _found(path: Path, row: tuple[Any, ...], counts: tuple[Any, ...]) -> Found:
    id_, started, cwd, parent, source, config, end_reason, archived, *_ = row
    kind: Literal["session", "helper", "archived"] = "session"
    if relation_of(_word(source), _word(config), _word(parent)) == "helper_of":
        kind = "helper"
    elif archived == 1 or end_reason == "compression":
        kind = "archived"
    times = [value for value in (started, counts[3]) if isinstance(value, int | float) and 0 < value < 1e11]
    change = crc32(repr((row, counts)).encode("utf-8", "replace")) % 1_000_000
    stamp = (round(max(times, default=0) * 1000) * 1_000_000 + change, int(counts[0]))
    return Found(AGENT, id_, path, (path,), stamp, kind, _word(cwd))


def _word(value: object) -> str:
    return value if isinstance(value, str) else ""


def _rows(base: Path, found: Found) -> Stream:
    """Returns the rows of a session; of a database that was named as a file, those of its only session."""

    def read(tables: Tables) -> tuple[str, bytes]:
        check_layout(tables, found.path)
        data = export_session(tables, found.id)
        if data is not None:
            return found.id, data
        session_id = _only_session(tables, found)
        return session_id, export_session(tables, session_id) or b""

    session_id, data = read_database(found.path, read)
    name = found.path.relative_to(base).as_posix() if found.path.is_relative_to(base) else str(found.path)
    return Stream(name_rows(name, session_id), data, found.path.stat().st_mode & 0o777)


def _only_session(tables: Tables, found: Found) -> str:
    ids = [str(row[0]) for row in tables.query("SELECT id FROM sessions WHERE parent_session_id IS NULL ORDER BY id")]
    if found.id == found.path.stem and len(ids) == 1:
        return ids[0]
    if found.id == found.path.stem and ids:
        raise AmbiguousError(
            f"{found.path} holds {len(ids)} sessions",
            hint="Name one: PATH#ID, for instance " + f"{found.path}#{ids[-1]}",
            path=str(found.path),
            candidates=ids[:8],
        )
    raise NotFoundError(f"{found.path} has no session {found.id}", session=found.id, path=str(found.path))


LOCATE = HermesLocate()
