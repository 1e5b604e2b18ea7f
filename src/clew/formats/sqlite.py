"""SQLite databases of agents: read as one consistent state without touching a byte, changed in one transaction.

Promised for reading: nothing in the database's folder is written, made or locked, so that it works on read-only
folders and beside a running agent; what lies in the write-ahead log and is committed is read, what is not is not; a
database that changes meanwhile is read again. Promised for writing: one transaction of SQLite's own, on the disk when
it returns, or nothing. Whatever is wrong with a file comes as an error of clew's tree.

This is the one module of the formats that knows SQLite's library.
"""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar, cast

import apsw
import msgspec

from clew.conversation.source import Buffer
from clew.errors import FormatError, NotFoundError, Refused, UnreadableSource, UnsupportedVersion
from clew.formats.rows import BadText, Row, Value, changed_columns, own_lines, row_key
from clew.platform.faults import declare, fault
from clew.platform.fs import write_new

T = TypeVar("T")

MAGIC = b"SQLite format 3\x00"
TRIES = 6
BUSY_MS = 8_000

BEFORE_CHECK = declare("rows.before-check")
BEFORE_COMMIT = declare("rows.before-commit")
AFTER_COMMIT = declare("rows.after-commit")

_RESTART = "Start the agent once, so that it brings its database in order; then try again."
_BROKEN = "Bring a sound copy of the file back. What clew kept of its sessions can be read all the same."


class Tables:
    """A database that is open: its tables, and their rows as exact values."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._columns: dict[str, tuple[tuple[str, int], ...]] = {}
        self.names: frozenset[str] = frozenset(
            str(row[0]) for row in self.query("SELECT name FROM sqlite_master WHERE type = 'table'")
        )

    def query(self, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Returns the rows of any statement, as SQLite's own types."""
        return cast(list[tuple[Any, ...]], self._connection.execute(statement, tuple(parameters)).fetchall())

    def columns(self, table: str) -> tuple[str, ...]:
        """Returns the columns of a table as declared; none where there is no such table."""
        return tuple(name for name, _ in self._facts(table))

    def key(self, table: str) -> tuple[str, ...]:
        """Returns the columns of a table's primary key in order; all columns where it has none."""
        facts = self._facts(table)
        key = sorted((place, name) for name, place in facts if place)
        return tuple(name for _, name in key) or tuple(name for name, _ in facts)

    def unique(self, table: str) -> list[tuple[str, ...]]:
        """Returns the columns of each further key of a table; those over expressions or of some rows are left out."""
        found: list[tuple[str, ...]] = []
        for row in self.query(f"PRAGMA index_list({quote(table)})"):
            names = [one[2] for one in self.query(f"PRAGMA index_info({quote(str(row[1]))})")]
            if row[2] and not row[4] and all(isinstance(name, str) for name in names):
                found.append(tuple(map(str, names)))
        return found

    def _facts(self, table: str) -> tuple[tuple[str, int], ...]:
        if table not in self._columns:
            found = self.query(f"PRAGMA table_info({quote(table)})")
            self._columns[table] = tuple((str(row[1]), int(row[5])) for row in found)
        return self._columns[table]

    def rows(self, table: str, where: str, parameters: Sequence[Any], order: Sequence[str]) -> Iterator[list[Value]]:
        """Yields rows as exact values in the order of the table's columns."""
        columns = self.columns(table)
        asked = ", ".join(
            f"typeof({c}), CASE typeof({c}) WHEN 'text' THEN CAST({c} AS BLOB) ELSE {c} END"
            for c in map(quote, columns)
        )
        ordered = ", ".join(map(quote, order))
        statement = f"SELECT {asked} FROM {quote(table)} WHERE {where} ORDER BY {ordered}"  # noqa: S608 - quoted names
        for found in self._connection.execute(statement, tuple(parameters)):
            yield [_value(found[at], found[at + 1]) for at in range(0, len(found), 2)]


def _value(kind: str, value: Any) -> Value:
    if kind != "text":
        return cast(Value, value)
    try:
        return str(value, "utf-8")
    except UnicodeDecodeError:
        return BadText(bytes(value))


def quote(name: str) -> str:
    """Returns a table's or column's name as SQL takes it, whatever is in it."""
    return '"' + name.replace('"', '""') + '"'


# --- reading ------------------------------------------------------------------------------------------------


def read_database(path: Path, read: Callable[[Tables], T]) -> T:
    """Returns what `read` makes of one consistent state of the database.

    Raises NotFoundError, UnreadableSource (no database, damaged, in the middle of a change) or UnsupportedVersion.
    """
    for _ in range(TRIES):
        before = _facts(path)
        try:
            with _opened(path) as connection:
                result = read(Tables(connection))
        except (apsw.Error, UnicodeDecodeError) as error:  # names in a damaged schema may be no UTF-8
            if _facts(path) != before:
                continue
            raise _unreadable(path, error) from error
        if _facts(path) == before:
            return result
    raise UnreadableSource(
        f"{path} is being written to all the time",
        hint="Try again when the agent rests.",
        code="database_busy",
        path=str(path),
    )


def _facts(path: Path) -> tuple[int, int, int]:
    """Returns what changes when the database file does; the log only grows meanwhile, which changes nothing."""
    try:
        facts = path.stat()
    except FileNotFoundError as error:
        raise NotFoundError(f"{path} does not exist", path=str(path)) from error
    except OSError as error:
        raise UnreadableSource(
            f"{path} cannot be read: {error.strerror}", hint="Make it yours to read.", path=str(path)
        ) from error
    if not stat.S_ISREG(facts.st_mode):
        what = "a directory" if stat.S_ISDIR(facts.st_mode) else "no regular file"
        raise UnreadableSource(
            f"{path} is {what}, where the database should be",
            hint="Move it away and put the database back; the agent makes a new one when it starts.",
            path=str(path),
        )
    return facts.st_ino, facts.st_size, facts.st_mtime_ns


def _unreadable(path: Path, error: Exception) -> FormatError:
    broken = isinstance(error, (apsw.CorruptError, apsw.NotADBError))
    what, hint = ("is damaged", _BROKEN) if broken else ("cannot be read", _RESTART)
    return UnreadableSource(f"{path} {what}: {error}", hint=hint, path=str(path))


@contextmanager
def _opened(path: Path) -> Generator[Any]:
    """Opens the present state of a database: by the file alone, or through its log, which is held in memory."""
    head = _read_bytes(path, 100)
    if not head.startswith(MAGIC):
        what = "is empty" if not head else "is no SQLite database"
        raise UnreadableSource(f"{path} {what}", hint=_BROKEN if head else _RESTART, path=str(path))
    if _read_bytes(Path(f"{path}-journal"), 8).strip(b"\x00"):
        raise UnreadableSource(f"{path} was left in the middle of a change", hint=_RESTART, path=str(path))
    log = _read_bytes(Path(f"{path}-wal"))
    if not log:
        _check_size(path, head)
    with _view(path, log) as connection:
        encoding = connection.pragma("encoding")
        if encoding != "UTF-8":
            raise UnsupportedVersion(
                f"{path} keeps its texts as {encoding}",
                hint="clew reads databases whose texts are UTF-8, as the agents make them.",
                path=str(path),
            )
        yield connection


def _check_size(path: Path, head: bytes) -> None:
    """Raises SQLite's own error for a file that is shorter than it says: a page that is cut off reads as zeros."""
    if len(head) < 100 or head[24:28] != head[92:96]:  # an old library wrote it and left the count as it was
        return
    page = int.from_bytes(head[16:18], "big")
    wanted = (65536 if page == 1 else page) * int.from_bytes(head[28:32], "big")
    size = path.stat().st_size
    if size < wanted:
        raise apsw.CorruptError(f"it is cut off, {size} bytes of {wanted}")


def _read_bytes(path: Path, limit: int = -1) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(limit)
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise UnreadableSource(
            f"{path} cannot be read: {error.strerror}", hint="Make it yours to read.", path=str(path)
        ) from error


@contextmanager
def _view(path: Path, log: bytes) -> Generator[Any]:
    """Opens a database that nobody can write through; a log is replayed in memory by SQLite itself."""
    if not log:
        name = path.absolute().as_uri() + "?immutable=1"
        flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
        connection: Any = apsw.Connection(name, flags=flags)
        try:
            yield connection
        finally:
            connection.close()
        return
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        with _views().offer(fd, log) as name:
            connection = apsw.Connection(name, flags=apsw.SQLITE_OPEN_READWRITE, vfs=_VIEWS)
            try:
                connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
                connection.pragma("locking_mode", "EXCLUSIVE")  # keeps the log's index in memory
                connection.pragma("query_only", 1)
                yield connection
            finally:
                connection.close()
    finally:
        os.close(fd)


_VIEWS = "clew-views"
_lock = threading.Lock()
_registered: list[_Views] = []


class _Whole:
    """The database file, read in place; a write is a defect and fails."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def xRead(self, amount: int, offset: int) -> bytes:  # noqa: N802 - SQLite's names
        return os.pread(self._fd, amount, offset)

    def xFileSize(self) -> int:  # noqa: N802
        return os.fstat(self._fd).st_size

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
        raise apsw.ReadOnlyError("a view of an agent's database is never written")

    def xTruncate(self, size: int) -> None:  # noqa: N802
        raise apsw.ReadOnlyError("a view of an agent's database is never written")

    def xSync(self, flags: int) -> None:  # noqa: N802
        return

    def xLock(self, level: int) -> None:  # noqa: N802
        return

    def xUnlock(self, level: int) -> None:  # noqa: N802
        return

    def xCheckReservedLock(self) -> bool:  # noqa: N802
        return False

    def xClose(self) -> None:  # noqa: N802
        return

    def xSectorSize(self) -> int:  # noqa: N802
        return 4096

    def xDeviceCharacteristics(self) -> int:  # noqa: N802
        return 0

    def xFileControl(self, op: int, pointer: int) -> bool:  # noqa: N802
        return False


class _Held(_Whole):
    """A file in memory: the log, and what SQLite wants beside it."""

    def __init__(self, data: bytes) -> None:
        super().__init__(-1)
        self._data = bytearray(data)

    def xRead(self, amount: int, offset: int) -> bytes:  # noqa: N802
        return bytes(self._data[offset : offset + amount])

    def xFileSize(self) -> int:  # noqa: N802
        return len(self._data)

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
        missing = offset + len(data) - len(self._data)
        if missing > 0:
            self._data.extend(bytes(missing))
        self._data[offset : offset + len(data)] = data

    def xTruncate(self, size: int) -> None:  # noqa: N802
        del self._data[size:]


class _Views(apsw.VFS):
    """A file system of names that stand for a database file and the log that goes with it."""

    def __init__(self) -> None:
        super().__init__(_VIEWS, "")
        self._offered: dict[str, tuple[int, bytes]] = {}
        self._count = 0

    @contextmanager
    def offer(self, fd: int, log: bytes) -> Generator[str]:
        """Gives the name by which SQLite can open this pair for the block."""
        with _lock:
            self._count += 1
            name = f"/view-{self._count}"
            self._offered[name] = fd, log
        try:
            yield name
        finally:
            del self._offered[name]

    def xOpen(self, name: Any, flags: list[int]) -> Any:  # noqa: N802
        text = str(name.filename() if isinstance(name, apsw.URIFilename) else name or "")
        base = text.removesuffix("-wal")
        if base in self._offered and flags[0] & apsw.SQLITE_OPEN_MAIN_DB:
            return _Whole(self._offered[base][0])
        return _Held(self._offered[base][1] if base in self._offered and base != text else b"")

    def xAccess(self, pathname: str, flags: int) -> bool:  # noqa: N802
        return pathname.removesuffix("-wal") in self._offered and pathname.endswith("-wal")

    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: N802
        return

    def xFullPathname(self, name: str) -> str:  # noqa: N802
        return name

    def xRandomness(self, numbytes: int) -> bytes:  # noqa: N802
        return bytes(numbytes)

    def xSleep(self, microseconds: int) -> int:  # noqa: N802
        return microseconds

    def xCurrentTime(self) -> float:  # noqa: N802
        return 0.0

    def xCurrentTimeInt64(self) -> int:  # noqa: N802
        return 0


def _views() -> _Views:
    with _lock:
        if not _registered:
            _registered.append(_Views())
        return _registered[0]


# --- writing ------------------------------------------------------------------------------------------------


class Change(msgspec.Struct, frozen=True):
    """What is to become of one session's rows: `data` in the export form, which `decode` takes apart.

    `export` gives them as they are (None: none), in order; `check` is called with them before anything is written and
    raises to stop it all.
    """

    export: Callable[[Tables], bytes | None]
    check: Callable[[bytes | None], None]
    data: Buffer
    decode: Callable[[Buffer], Sequence[Row]]


def change_database(path: Path, changes: Sequence[Change], *, make: Callable[[Any], None] | None = None) -> None:
    """Makes all changes in one transaction, or none; `make` lays out a database that is not there yet.

    A new one is built in memory and appears whole. Raises Refused (`target_diverged`, `database_busy`,
    `schema_differs`, `orphaned_log`), or UnreadableSource.
    """
    if path.is_symlink():
        raise Refused(
            f"{path} is a symbolic link; clew writes through none",
            code="through_link",
            hint="Put the database itself where the link is, or name the home that it lies in.",
            path=str(path),
        )
    if path.exists():
        _facts(path)
        with _refusals(path), _transaction(path) as connection:
            _apply_all(connection, path, changes)
            fault(BEFORE_COMMIT)
        fault(AFTER_COMMIT)
    elif make is None:
        raise NotFoundError(f"{path} does not exist", path=str(path))
    else:
        _make_new(path, changes, make)


def _make_new(path: Path, changes: Sequence[Change], make: Callable[[Any], None]) -> None:
    for name in (f"{path}-wal", f"{path}-journal"):
        if _read_bytes(Path(name), 1):
            raise Refused(
                f"{name} is there without its database; a new one would take it for its own",
                code="orphaned_log",
                hint="Bring the database back, or move that file away.",
                path=name,
            )
    connection: Any = apsw.Connection(":memory:")
    try:
        with _refusals(path):
            make(connection)
            _apply_all(connection, path, changes)
        fault(BEFORE_COMMIT)
        write_new(path, [connection.serialize("main")], root=path.parent)
        fault(AFTER_COMMIT)
    finally:
        connection.close()


@contextmanager
def _transaction(path: Path) -> Generator[Any]:
    """Opens a database for writing and commits what the block did, on the disk; nothing of it when the block raises."""
    connection: Any = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        connection.set_busy_timeout(BUSY_MS)
        connection.pragma("synchronous", "FULL")
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield connection
            connection.execute("COMMIT")
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
    finally:
        connection.close()


@contextmanager
def _refusals(path: Path) -> Generator[None]:
    """Turns what SQLite says into refusals that name the file."""
    try:
        yield
    except (apsw.BusyError, apsw.LockedError) as error:
        raise Refused(
            f"{path} is held by another program; nothing was written",
            code="database_busy",
            hint="End the agent, or try again when it rests.",
            path=str(path),
        ) from error
    except apsw.ConstraintError as error:
        raise Refused(
            f"{path} has rows that stand in the way: {error}; nothing was written",
            code="target_diverged",
            hint="Another session there has rows of the same ids; write a new session (--new).",
            path=str(path),
        ) from error
    except apsw.Error as error:
        raise _unwritten(path, error) from error


def _unwritten(path: Path, error: Exception) -> FormatError | Refused:
    if isinstance(error, (apsw.CorruptError, apsw.NotADBError)):
        return _unreadable(path, error)
    return Refused(f"{path} cannot be written: {error}; nothing was written", code="write_failed", path=str(path))


def _apply_all(connection: Any, path: Path, changes: Sequence[Change]) -> None:
    tables = Tables(connection)
    fault(BEFORE_CHECK)
    before: list[bytes | None] = []
    for change in changes:
        there = change.export(tables)
        before.append(there)
        change.check(there)
        present = change.decode(there) if there is not None else ()
        _apply(connection, tables, path, present, change.decode(change.data))
    for change, there in zip(changes, before, strict=True):
        _verify(change, path, tables, new=there is None)


def _apply(connection: Any, tables: Tables, path: Path, present: Sequence[Row], wanted: Sequence[Row]) -> None:
    """Brings the rows from what they are to what they shall be: by key, and only what differs."""
    known = {(row.table, row_key(row, tables.key(row.table))): row for row in present}
    for row in wanted:
        _fits(tables, path, row)
        old = known.pop((row.table, row_key(row, tables.key(row.table))), None)
        try:
            if row.shared:
                if old is None and not _is_there(connection, tables, row):
                    _insert(connection, row)
            elif old is None:
                _insert(connection, row)
            else:
                _update(connection, tables, row, changed_columns(old.values, row.values))
        except apsw.ConstraintError as error:
            raise _in_the_way(tables, path, row, error) from error
    for row in known.values():
        if not row.shared:
            where, values = _where(tables, row)
            connection.execute(f"DELETE FROM {quote(row.table)} WHERE {where}", values)  # noqa: S608 - quoted names


def _in_the_way(tables: Tables, path: Path, row: Row, error: Exception) -> Refused:
    """Returns the refusal that names the row which has the place of one that is to be put there, and what to do."""
    by, owner = _rival(tables, row)
    if not by:
        return Refused(
            f"{path} does not take a row of the table {row.table!r}: {error}; nothing was written",
            code="target_diverged",
            hint="It is of another version of the agent, or the session's rows are not whole.",
            path=str(path),
            table=row.table,
        )
    own = row.values.get("session_id")
    left = owner if owner is not None and owner == own else ""
    return _occupied(path, row, by, left, "" if left else owner or "")


def _occupied(path: Path, row: Row, by: Sequence[str], left: str, owner: str = "") -> Refused:
    """Returns the refusal over a row that is there: `left` of a session that is gone, or of another `owner`."""
    named = ", ".join(f"{name} {row.values.get(name)!r}" for name in by)
    whose = (
        f", left of session {left}, which is gone" if left else f", which belongs to session {owner}" if owner else ""
    )
    hint = "Another session has a row of the same id there: write a new session (`clew convert --new`)."
    if left:
        hint = (
            f"With the agent ended, take the rows of session {left} out of {row.table} (sqlite3); or write a new"
            " session: `clew convert --new`."
        )
    return Refused(
        f"{path}: a row of the table {row.table!r} is in the way ({named}{whose}); nothing was written",
        code="target_diverged",
        hint=hint,
        path=str(path),
        table=row.table,
        row={name: str(row.values.get(name)) for name in by},
    )


def _rival(tables: Tables, row: Row) -> tuple[tuple[str, ...], str | None]:
    """Returns the columns by which another row has this one's place, and the session that row says it is of."""
    for names in (tables.key(row.table), *tables.unique(row.table)):
        if any(row.values.get(name) is None for name in names):
            continue
        where = " AND ".join(f"{quote(name)} IS {_mark(row.values[name])}" for name in names)
        statement = f"SELECT * FROM {quote(row.table)} WHERE {where}"  # noqa: S608 - quoted names
        for found in tables.query(statement, [_bound(row.values[name]) for name in names]):
            values = dict(zip(tables.columns(row.table), found, strict=False))
            owner = values.get("session_id")
            return names, owner if isinstance(owner, str) else None
    return (), None


def _fits(tables: Tables, path: Path, row: Row) -> None:
    missing = [name for name in row.values if name not in tables.columns(row.table)]
    if missing:
        what = f"no table {row.table!r}" if row.table not in tables.names else f"no column {row.table}.{missing[0]}"
        raise Refused(
            f"{path} has {what}, which the session's rows need; nothing was written",
            code="schema_differs",
            hint="It is of another version of the agent: start the agent once, so that it brings it up to date.",
            path=str(path),
        )


def _is_there(connection: Any, tables: Tables, row: Row) -> bool:
    where, values = _where(tables, row)
    return bool(connection.execute(f"SELECT 1 FROM {quote(row.table)} WHERE {where}", values).fetchall())  # noqa: S608


def _insert(connection: Any, row: Row) -> None:
    names = ", ".join(map(quote, row.values))
    marks = ", ".join(map(_mark, row.values.values()))
    statement = f"INSERT INTO {quote(row.table)} ({names}) VALUES ({marks})"  # noqa: S608 - quoted names
    connection.execute(statement, [_bound(value) for value in row.values.values()])


def _update(connection: Any, tables: Tables, row: Row, changed: Mapping[str, Value]) -> None:
    if not changed:
        return
    sets = ", ".join(f"{quote(name)} = {_mark(value)}" for name, value in changed.items())
    where, values = _where(tables, row)
    statement = f"UPDATE {quote(row.table)} SET {sets} WHERE {where}"  # noqa: S608 - quoted names
    connection.execute(statement, [*(_bound(value) for value in changed.values()), *values])


def _where(tables: Tables, row: Row) -> tuple[str, list[Any]]:
    key = tables.key(row.table)
    where = " AND ".join(f"{quote(name)} IS {_mark(row.values.get(name))}" for name in key)
    return where, [_bound(row.values.get(name)) for name in key]


def _mark(value: Value) -> str:
    return "CAST(? AS TEXT)" if isinstance(value, BadText) else "?"


def _bound(value: Value) -> Any:
    return value.data if isinstance(value, BadText) else value


def _verify(change: Change, path: Path, tables: Tables, *, new: bool) -> None:
    """Looks at what lies there now: the wanted rows in their order, equal in every column that they name.

    Where a `new` session has more than was put there, those rows were left of an earlier one of its id.
    """
    there = change.export(tables)
    if there is not None and own_lines(there) == own_lines(change.data):
        return
    found = [row for row in change.decode(there or b"") if not row.shared]
    wanted = [row for row in change.decode(change.data) if not row.shared]
    put = {(row.table, row_key(row, tables.key(row.table))) for row in wanted}
    for row in found if new else ():
        key = tables.key(row.table)
        if (row.table, row_key(row, key)) not in put:
            raise _occupied(path, row, key, str(row.values.get("session_id") or "of this id"))
    same = len(found) == len(wanted) and all(
        one.table == other.table and not changed_columns(one.values, other.values)
        for one, other in zip(found, wanted, strict=True)
    )
    if not same:
        raise Refused(
            f"{path}: the rows did not come out as they should; nothing was written",
            code="schema_differs",
            hint="The database is of a version of the agent that clew does not know.",
            path=str(path),
        )
