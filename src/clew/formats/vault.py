"""Sessions in a database of which clew reads rows and makes none: found, exported, recognised, put back.

Reading is that of `sqlite`: one consistent state, the log included, nothing touched. `Vault` is the locate room; its
databases may stand beside single files (`Shelf`). What was captured is put back row by row, each with every column as
it was, into tables that have exactly those columns: a row that the agent did not write is never put there, and no
database is laid out where the agent has none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from clew.conversation.source import Buffer, Source, Stream
from clew.errors import AmbiguousError, ClewError, NotFoundError, Refused, UnsupportedVersion
from clew.formats.folders import LINK, REAL_PLACE, hiding
from clew.formats.loose import NONE, Members, first_byte, members_of, raw_of, word_in
from clew.formats.protocol import Found, Home, Settings
from clew.formats.rows import (
    NoRow,
    Row,
    Value,
    database_of,
    decode_rows,
    encode_row,
    name_rows,
    own_lines,
    session_of,
)
from clew.formats.shelf import Shelf, places_of
from clew.formats.sketch import Sketch
from clew.formats.sqlite import MAGIC, Change, Tables, change_database, read_database

Needed = Mapping[str, Sequence[str]]


class Listed(msgspec.Struct, frozen=True):
    """One session as its database lists it: `changed` in any unit, as long as it grows with each change."""

    id: str
    cwd: str = ""
    changed: int = 0
    size: int = 0
    kind: Literal["session", "helper", "archived"] = "session"


class Layout(msgspec.Struct, frozen=True):
    """What a database has to have, and how its sessions are listed and exported (None: there is none of that id).

    `counting` are tables whose rows the agent's own triggers change when others come: they are put there last.
    """

    needed: Needed
    sessions: Callable[[Tables], Iterable[Listed]]
    export: Callable[[Tables, str], bytes | None]
    counting: tuple[str, ...] = ()


class Vault:
    """Finds, opens and recognises sessions in databases of one layout, and in files beside them.

    `folder` gives the working folder that a database's place tells, where each project has its own.
    """

    def __init__(
        self,
        agent: str,
        title: str,
        base: Callable[[Home], Path],
        patterns: Iterable[str],
        layout: Layout,
        shelf: Shelf | None = None,
        folder: Callable[[Path], str] = lambda path: "",
    ) -> None:
        self.agent, self.title, self._base, self._folder = agent, title, base, folder
        self.patterns, self.layout, self.shelf = tuple(patterns), layout, shelf

    def base(self, home: Home) -> Path:
        """Returns the folder to which streams' paths are relative."""
        return self._base(home)

    def places(self, home: Home) -> tuple[Path, ...]:
        """Returns the databases and folders that are looked in."""
        patterns = (*self.patterns, *(self.shelf.patterns if self.shelf is not None else ()))
        return places_of(self._base(home), patterns)

    def databases(self, home: Home) -> list[Path]:
        """Returns the databases that are there."""
        base = self._base(home)
        return sorted({path for pattern in self.patterns for path in base.glob(pattern)})

    def find(self, home: Home) -> Iterator[Found]:
        """Yields every session; a database that cannot be read is one entry with its reason."""
        for path in self.databases(home):
            yield from self._in_database(path)
        if self.shelf is not None:
            yield from self.shelf.find(home)

    def load(self, found: Found, home: Home) -> Source:
        """Returns the source of a session; raises NotFoundError, AmbiguousError, UnreadableSource or
        UnsupportedVersion."""
        if self.shelf is not None and not _is_database(found.path):
            return self.shelf.load(found, home)
        base = self._base(home)

        def read(tables: Tables) -> tuple[str, bytes]:
            self._check(tables, found.path)
            data = self.layout.export(tables, found.id)
            if data is not None:
                return found.id, data
            only = self._only(tables, found)
            return only, self.layout.export(tables, only) or b""

        session_id, data = read_database(found.path, read)
        name = found.path.relative_to(base).as_posix() if found.path.is_relative_to(base) else str(found.path)
        stream = Stream(name_rows(name, session_id), data, found.path.stat().st_mode & 0o777)
        return Source((stream,), hint_id=session_id, hint_cwd=found.cwd_hint or self._folder(found.path))

    def claims(self, path: Path, head: bytes) -> bool:
        """Tells whether a file of unknown origin is a database of this layout, or one of the files beside them."""
        if not head.startswith(MAGIC):
            return self.shelf is not None and self.shelf.claims(path, head)
        try:
            read_database(path, lambda tables: self._check(tables, path))
        except ClewError:
            return False
        return True

    def settings(self, home: Home) -> Settings:
        """Returns nothing: clew does not know what this agent is set to."""
        return Settings()

    def present_rows(self, home: Home, path: str) -> Buffer | None:
        """Returns the rows of one session as they are now, None where there is no such session."""
        database = self._base(home) / database_of(path)
        if not database.exists() and not database.is_symlink():
            return None

        def read(tables: Tables) -> bytes | None:
            self._check(tables, database)
            return self.layout.export(tables, session_of(path))

        return read_database(database, read)

    def place_rows(self, home: Home, path: str, data: Buffer, expect: Buffer | None, now_ms: int) -> None:
        """Brings the rows of one session to exactly `data`, in one transaction, if they are exactly `expect` now.

        Raises Refused (`no_database`, `target_diverged`, `database_busy`, `schema_differs`, `damaged_rows`),
        UnsupportedVersion or UnreadableSource; then nothing was written.
        """
        database, session_id = self._base(home) / database_of(path), session_of(path)
        if not database.exists() and not database.is_symlink():
            raise Refused(
                f"{database} does not exist, and {self.title} alone knows how it is laid out; nothing was written",
                code="no_database",
                hint=f"Start {self.title} once, so that it makes its database; then try again. The session is kept.",
                path=str(database),
                session=session_id,
            )
        rows = self._rows(data, database)

        def export(tables: Tables) -> bytes | None:
            self._check(tables, database)
            for row in rows:
                self._check_columns(tables, row, database)
            return self.layout.export(tables, session_id)

        def check(there: bytes | None) -> None:
            same = there is None if expect is None else there is not None and own_lines(there) == own_lines(expect)
            if not same:
                raise _diverged(database, session_id, there, expect)

        change_database(database, [Change(export, check, data, lambda lines: self._rows(lines, database))])

    def _rows(self, data: Buffer, database: Path) -> list[Row]:
        """Returns rows in the order in which they are put there."""
        try:
            rows = decode_rows(data)
        except NoRow as error:
            raise Refused(
                f"the rows for {database} are damaged: {error}; nothing was written",
                code="damaged_rows",
                hint="A database takes whole rows only; an older capture may be sound: `clew restore --capture N`.",
                path=str(database),
            ) from error
        return sorted(rows, key=lambda row: row.table in self.layout.counting)

    def _check_columns(self, tables: Tables, row: Row, database: Path) -> None:
        """Raises Refused where a table has other columns than a row of it had: it is of another version."""
        here = tables.columns(row.table)
        if set(here) == set(row.values):
            return
        odd = sorted(set(here) ^ set(row.values))
        what = f"no table {row.table!r}" if not here else f"other columns in {row.table!r} ({', '.join(odd)})"
        raise Refused(
            f"{database} has {what} than when the session was kept; nothing was written"
            if here
            else f"{database} has {what}, which the session's rows need; nothing was written",
            code="schema_differs",
            hint=f"It is of another version of {self.title}. The session is kept: `clew convert` carries it on.",
            path=str(database),
        )

    def _check(self, tables: Tables, path: Path) -> None:
        for table, columns in self.layout.needed.items():
            missing = [name for name in columns if name not in tables.columns(table)]
            if missing or table not in tables.names:
                what = f"no table {table!r}" if table not in tables.names else f"no column {table}.{missing[0]}"
                raise UnsupportedVersion(
                    f"{path} has {what}: it is half made, or of a version of {self.title} that clew does not know",
                    hint=f"Start {self.title} once, so that it brings its database up to date; then try again.",
                    path=str(path),
                )

    def _only(self, tables: Tables, found: Found) -> str:
        names = [listed.id for listed in self.layout.sessions(tables)]
        if found.id != found.path.stem or not names:
            raise NotFoundError(f"{found.path} has no session {found.id}", session=found.id, path=str(found.path))
        if len(names) > 1:
            raise AmbiguousError(
                f"{found.path} holds {len(names)} sessions",
                hint=f"Name one: PATH#ID, for instance {found.path}#{names[-1]}",
                path=str(found.path),
                candidates=names[:8],
            )
        return names[0]

    def _in_database(self, path: Path) -> Iterator[Found]:
        if path.is_symlink():
            yield hiding(self.agent, path, f"{path} is {LINK}", REAL_PLACE)
            return

        def read(tables: Tables) -> list[Listed]:
            self._check(tables, path)
            return list(self.layout.sessions(tables))

        try:
            listed = read_database(path, read)
        except NotFoundError:
            return
        except ClewError as error:
            yield hiding(self.agent, path, error.message, error.hint)
            return
        for one in listed:
            cwd = one.cwd or self._folder(path)
            yield Found(self.agent, one.id, path, (path,), (one.changed, one.size), one.kind, cwd)


def _diverged(database: Path, session_id: str, there: bytes | None, expect: Buffer | None) -> Refused:
    what = "is gone" if there is None else "is there already" if expect is None else "was changed"
    return Refused(
        f"{database}: session {session_id} {what} meanwhile; nothing was written",
        code="target_diverged",
        hint="Look at what is there now; the kept rows stay in clew's store.",
        path=str(database),
        session=session_id,
    )


def _is_database(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return path.suffix in (".db", ".sqlite", ".sqlite3")


def export_table(
    tables: Tables, table: str, column: str, session_id: Value, order: Sequence[str], *, shared: bool = False
) -> Iterator[bytes]:
    """Yields the rows of a table that belong to one session, in the export form; none where it has no such column."""
    columns = tables.columns(table)
    if column in columns:
        for values in tables.rows(
            table, f'"{column}" = ?', (session_id,), [name for name in order if name in columns or name == "rowid"]
        ):
            yield encode_row(table, columns, values, shared=shared)


# --- reading rows ---------------------------------------------------------------------------------------------


def row_lines(sketch: Sketch, stream: Stream) -> Iterator[tuple[int, str, Members]]:
    """Yields record number, table and cells of each exported row."""
    for number, line in sketch.lines(stream):
        yield number, word_in(line.get("table", NONE)), members_of(line.get("row", NONE))


def json_cell(raw: msgspec.Raw) -> msgspec.Raw:
    """Returns the JSON that a text in a cell is; nothing where it is none."""
    first = first_byte(raw)
    if first == 0x7B:
        return members_of(raw).get("json", NONE)
    return raw_of(word_in(raw).encode()) if first == 0x22 else NONE
