"""One SQLite file of clew: opened late, brought up to date, written by one at a time, and honest about
damage.

Promised:

* a file is created whole (built beside its place, then renamed), so an empty or foreign file there is damage,
never
  "no data yet"; folder 0700, file 0600;
* numbered migrations (`migrations/<schema>/NNNN_*.sql`, recorded in `user_version`) run in one transaction
under the
  lock; a file of a newer clew is read, and every write raises SchemaTooNew;
* a write transaction takes a `flock` on `<file>.lock` before BEGIN IMMEDIATE, since SQLite alone starves
waiters;
  reads take no lock and see the last commit;
* every commit is on the disk when the block ends (WAL, synchronous=FULL), unless the schema is a derived one;
* what SQLite refuses comes as an error of clew's tree that names the file.

One Database is for one thread at a time. It opens nothing before its first use, and a read of a file that
does not exist yet sees an empty schema and creates nothing.
"""

from __future__ import annotations

import os
import secrets
import threading
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal, NoReturn, Protocol, cast

import apsw

from clew.errors import ClewError, SchemaTooNew, StoreDamaged, StoreError, StoreLocked
from clew.platform.faults import declare, fault
from clew.platform.fs import ensure_folder
from clew.platform.lock import FileLock

APPLICATION_ID = 0x636C6577
"""The four letters `clew`, at byte 68 of each file."""

BUSY_TIMEOUT_S = 30.0
_FROZEN = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
_PAGE_SIZES = {"residue": 8192}
_MIGRATIONS = Path(__file__).with_name("migrations")

BEFORE_COMMIT = declare("store.before-commit")
AFTER_COMMIT = declare("store.after-commit")
IN_MIGRATION = declare("store.in-migration")
BEFORE_CREATED = declare("store.before-created")


_FAILURES = (apsw.Error, OSError)
_DEFECTS = (apsw.ConstraintError, apsw.BindingsError, apsw.MisuseError, apsw.ThreadingViolationError)


class Cursor(Protocol):
    """What clew uses of a cursor of apsw."""

    def fetchall(self) -> list[tuple[Any, ...]]:
        """Returns the rows that are left."""
        ...


class Connection(Protocol):
    """What clew uses of a connection of apsw, whose own types are not complete."""

    @property
    def in_transaction(self) -> bool:
        """Tells whether a transaction is open."""
        ...

    def execute(self, statements: str, bindings: Sequence[Any] = (), /) -> Cursor:
        """Runs statements."""
        ...

    def executemany(self, statements: str, bindings: Iterable[Sequence[Any]], /) -> Cursor:
        """Runs statements once for each row of bindings."""
        ...

    def pragma(self, name: str, value: str | int | None = None) -> Any:
        """Returns what a pragma says, after setting it."""
        ...

    def set_busy_timeout(self, milliseconds: int) -> None:
        """Waits so long for other processes."""
        ...

    def close(self) -> None:
        """Closes the file."""
        ...


class Database:
    """One SQLite file with one of clew's schemas. `durable=False` is for derived data: a commit may be
    lost."""

    def __init__(self, path: Path, schema: str, *, durable: bool = True, timeout_s: float = BUSY_TIMEOUT_S) -> None:
        self.path = path
        self.schema = schema
        self._durable = durable
        self._timeout_s = timeout_s
        self._lock = FileLock(path.with_name(path.name + ".lock"))
        self._connection: Connection | None = None
        self._empty: Connection | None = None
        self._version = 0
        self._too_new = 0
        self._frozen = False
        self._depth = 0
        self._thread = 0
        self._file: tuple[int, int] | None = None

    # --- statements ---------------------------------------------------------------------------------------

    @property
    def dialect(self) -> Literal["sqlite"]:
        """Tells which SQL it speaks."""
        return "sqlite"

    @property
    def is_there(self) -> bool:
        """Tells whether the file exists."""
        return os.path.lexists(self.path)

    @property
    def opened(self) -> object:
        """Returns a value that is another one whenever the file was opened anew."""
        return self._file

    @property
    def origin(self) -> str | None:
        """Returns the file's inode, which a copy of it does not have; None before it is opened."""
        return None if self._file is None else f"inode {self._file[1]}"

    @property
    def in_transaction(self) -> bool:
        """Tells whether a `transaction()` is open."""
        return self._depth > 0

    @property
    def lock(self) -> str:
        """Is empty: writers exclude each other."""
        return ""

    def change(self, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Runs one writing statement: within the open transaction, or as one by itself."""
        with self.writing():
            return self.execute(statement, parameters)

    @contextmanager
    def writing(self) -> Generator[None]:
        """Is part of the open transaction, or one by itself."""
        if self._depth > 0:
            yield
            return
        with self.transaction():
            yield

    def execute(self, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Runs one statement and returns its rows. Statements that write belong into a `transaction()`."""
        connection = self._reader()
        try:
            return connection.execute(statement, parameters).fetchall()
        except _FAILURES as error:
            self._fail(error)

    def execute_many(self, statement: str, rows: Iterable[Sequence[Any]]) -> list[tuple[Any, ...]]:
        """Runs one statement for each row of parameters and returns all result rows together, in order."""
        connection = self._reader()
        try:
            return connection.executemany(statement, rows).fetchall()
        except _FAILURES as error:
            self._fail(error)

    @contextmanager
    def transaction(self) -> Generator[None]:
        """Makes the writes of the block durable and visible together, or none of them when it raises.

        A block inside a block joins the outer one; when it raises, its own writes are undone.
        """
        if self._depth > 0:
            assert self._thread == threading.get_ident(), "a database is used by one thread at a time"
            with self._savepoint():
                yield
            return
        connection = self._writer()
        self._lock.acquire(self._timeout_s)
        try:
            self._run(connection, "BEGIN IMMEDIATE")
            self._depth, self._thread = 1, threading.get_ident()
            try:
                self._check_file()
                self._check_version(connection)
                yield
                fault(BEFORE_COMMIT)
                self._run(connection, "COMMIT")
            except BaseException:
                if connection.in_transaction:
                    self._run(connection, "ROLLBACK")
                raise
            finally:
                self._depth = 0
            fault(AFTER_COMMIT)
        finally:
            self._lock.release()

    @contextmanager
    def snapshot(self) -> Generator[None]:
        """Lets all reads of the block see one state of the file."""
        connection = self._reader()
        if connection.in_transaction:
            yield
            return
        self._run(connection, "BEGIN")
        try:
            yield
        finally:
            if connection.in_transaction:
                self._run(connection, "ROLLBACK")

    def shrink(self) -> None:
        """Gives free pages back to the file system and empties the write-ahead log, outside of any
        transaction."""
        connection = self._writer()
        with self._lock.held(self._timeout_s):
            for statement in ("PRAGMA incremental_vacuum", "PRAGMA wal_checkpoint(TRUNCATE)"):
                self._run(connection, statement)

    def check(self) -> list[str]:
        """Returns what SQLite itself finds wrong with the file, one sentence each."""
        try:
            found = [str(row[0]) for row in self.execute("PRAGMA integrity_check(20)")]
        except StoreDamaged as error:
            return [error.message]
        return [] if found == ["ok"] else found

    def file_size(self) -> int:
        """Returns the bytes that the file and its write-ahead log take on the disk."""
        total = 0
        for suffix in ("", "-wal"):
            with suppress(FileNotFoundError):
                total += self.path.with_name(self.path.name + suffix).stat().st_size
        return total

    def close(self) -> None:
        """Closes the file; the next use opens it again."""
        assert self._depth == 0, "a database is not closed within a transaction"
        for connection in (self._connection, self._empty):
            if connection is not None:
                connection.close()
        self._connection = self._empty = self._file = None
        self._lock.close()

    def discard(self) -> None:
        """Deletes the file with everything that belongs to it but the lock file. For derived data only."""
        assert not self._durable, "only derived data is thrown away"
        self.close()
        with self._lock.held(self._timeout_s):
            _remove_with_logs(self.path)

    # --- opening ------------------------------------------------------------------------------------------

    def _reader(self) -> Connection:
        if self._connection is not None:
            if self._depth == 0:
                self._check_file()
            return self._connection
        if not os.path.lexists(self.path):
            return self._nothing()
        return self._open()

    def _writer(self) -> Connection:
        connection = self._connection
        if connection is None:
            if not os.path.lexists(self.path):
                self._create()
            connection = self._open()
        if self._too_new:
            raise self._newer(self._too_new)
        if self._frozen:
            raise _refused(str(self.path), "nothing can be written there; it is only read")
        return connection

    def _nothing(self) -> Connection:
        """Returns an empty database in memory that stands for the file that does not exist yet."""
        if self._empty is None:
            self._empty = _connect(":memory:")
            _migrate(self._empty, self.schema, 0)
            self._run(self._empty, "PRAGMA query_only=ON")
        return self._empty

    def _open(self) -> Connection:
        connection: Connection | None = None
        self._frozen = self._is_frozen()
        try:
            if self._frozen:
                connection = _connect(f"{self.path.absolute().as_uri()}?immutable=1", _FROZEN)
            else:
                connection = _connect(str(self.path), apsw.SQLITE_OPEN_READWRITE)
            self._prepare(connection)
        except _FAILURES as error:
            if connection is not None:
                connection.close()
            self._fail(error)
        self._connection = connection
        facts = self.path.stat()
        self._file = (facts.st_dev, facts.st_ino)
        return connection

    def _is_frozen(self) -> bool:
        """Tells whether the file lies where nothing can be written, and is whole without a log: SQLite wants to write
        even to read, unless it is told that nobody will."""
        log = self.path.with_name(self.path.name + "-wal")
        try:
            return not os.access(self.path.parent, os.W_OK) and (not log.exists() or log.stat().st_size == 0)
        except OSError:
            return False

    def _prepare(self, connection: Connection) -> None:
        connection.set_busy_timeout(int(self._timeout_s * 1000))
        for pragma in (
            f"synchronous={'FULL' if self._durable else 'NORMAL'}",
            "cache_size=-16384",
            "journal_size_limit=4194304",
            "secure_delete=ON",
            "cell_size_check=ON",
            "trusted_schema=OFF",
        ):
            connection.execute(f"PRAGMA {pragma}")
        if connection.pragma("application_id") != APPLICATION_ID:
            raise self._no_store()
        version = int(connection.pragma("user_version"))
        newest = _newest(self.schema)
        self._too_new = version if version > newest else 0
        if version < newest:
            self._upgrade(connection)
        self._version = max(version, newest)

    def _upgrade(self, connection: Connection) -> None:
        with self._lock.held(self._timeout_s):
            connection.execute("BEGIN IMMEDIATE")
            try:
                _migrate(connection, self.schema, int(connection.pragma("user_version")))
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    def _create(self) -> None:
        """Builds a new file beside its place and renames it there, so that no half-made one is ever seen."""
        ensure_folder(self.path.parent)
        with self._lock.held(self._timeout_s):
            if os.path.lexists(self.path):
                return
            # A log left by a deleted file would be played into the new one.
            _remove_with_logs(self.path)
            temp = self.path.with_name(f".clew-{secrets.token_hex(8)}.tmp")
            try:
                os.close(os.open(temp, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600))
                _build(temp, self.schema)
                fault(BEFORE_CREATED)
                temp.rename(self.path)
                _sync(self.path.parent)
            except _FAILURES as error:
                self._fail(error)
            finally:
                _remove_with_logs(temp)

    # --- the rest -----------------------------------------------------------------------------------------

    @contextmanager
    def _savepoint(self) -> Generator[None]:
        assert self._connection is not None, "a transaction is open"
        connection = self._connection
        name = f"level{self._depth}"
        self._run(connection, f"SAVEPOINT {name}")
        self._depth += 1
        try:
            yield
        except BaseException:
            if connection.in_transaction:
                self._run(connection, f"ROLLBACK TO {name}")
            raise
        finally:
            self._depth -= 1
            if connection.in_transaction:
                self._run(connection, f"RELEASE {name}")

    def _run(self, connection: Connection, statement: str) -> None:
        try:
            connection.execute(statement).fetchall()
        except _FAILURES as error:
            self._fail(error)

    def _check_file(self) -> None:
        """Notices that the file was deleted or replaced while it was open: what is written then would be lost."""
        try:
            facts = self.path.stat()
            if (facts.st_dev, facts.st_ino) == self._file:
                return
            what = "was replaced"
        except FileNotFoundError:
            what = "is gone"
        raise StoreDamaged(
            f"{self.path} {what} while clew had it open",
            hint="Stop every clew that is running, put the file in its place, and start again.",
            path=str(self.path),
        )

    def _check_version(self, connection: Connection) -> None:
        """Notices that a newer clew has changed the file while this one had it open."""
        version = int(connection.pragma("user_version"))
        if version != self._version:
            raise self._newer(version)

    def _newer(self, version: int) -> SchemaTooNew:
        return SchemaTooNew(
            f"{self.path} was written by a newer clew (schema {version}, this one knows "
            f"{_newest(self.schema)}); it is only read",
            hint="Update clew.",
            path=str(self.path),
        )

    def _no_store(self) -> StoreDamaged:
        return StoreDamaged(
            f"{self.path} is no store of clew, or a damaged one",
            hint="Move it away, or put a backup in its place; clew changes nothing there.",
            path=str(self.path),
        )

    def _fail(self, error: apsw.Error | OSError) -> NoReturn:
        """Raises the error of clew's tree that stands for what SQLite or the system raised; defects as they
        are."""
        if isinstance(error, _DEFECTS):
            raise error
        raise self._explained(error) from error

    def _explained(self, error: apsw.Error | OSError) -> ClewError:
        where = str(self.path)
        if isinstance(error, OSError):
            return _refused(where, error.strerror or str(error))
        if isinstance(error, apsw.CorruptError | apsw.NotADBError):
            return StoreDamaged(
                f"{where} is damaged: {error}",
                hint="`clew store check` tells what is wrong; a backup can be put in its place.",
                path=where,
            )
        if isinstance(error, apsw.BusyError | apsw.LockedError):
            return StoreLocked(
                f"{where} has been busy for more than {self._timeout_s:g} s",
                hint="Wait for the other clew command, or stop it.",
                path=where,
            )
        if isinstance(error, apsw.SQLError):
            # Only clew's own statements run here: one that does not fit means tables that are not clew's.
            kind = SchemaTooNew if self._too_new else StoreDamaged
            return kind(f"{where} does not have the tables it should: {error}", hint="Update clew.", path=where)
        return _refused(where, str(error), full=isinstance(error, apsw.FullError))


def _refused(where: str, reason: str, *, full: bool = False) -> ClewError:
    hint = "Free some space." if full else "Check that the disk has space and that the folder is yours to write."
    return StoreError(f"{where}: {reason}", code="disk_full" if full else "", hint=hint, path=where)


def _connect(name: str, flags: int = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE) -> Connection:
    return cast("Connection", apsw.Connection(name, flags))


def _build(path: Path, schema: str) -> None:
    """Makes an empty file a whole, synced database of a schema."""
    connection = _connect(str(path), apsw.SQLITE_OPEN_READWRITE)
    try:
        page_size = _PAGE_SIZES.get(schema, 4096)
        for pragma in (
            f"page_size={page_size}",
            "synchronous=OFF",
            "auto_vacuum=INCREMENTAL",
            f"application_id={APPLICATION_ID}",
            # Not the write-ahead log yet: what cannot be moved out of that on a full disk would be left behind.
            "journal_mode=MEMORY",
        ):
            connection.execute(f"PRAGMA {pragma}")
        connection.execute("BEGIN")
        _migrate(connection, schema, 0)
        connection.execute("COMMIT")
        connection.execute("PRAGMA journal_mode=WAL")
    finally:
        connection.close()
    _sync(path)


def _migrations(schema: str) -> list[Path]:
    """Returns the migrations of a schema in order; the n-th leads to version n."""
    found = sorted((_MIGRATIONS / schema).glob("[0-9][0-9][0-9][0-9]_*.sql"))
    assert [int(path.name[:4]) for path in found] == list(range(1, len(found) + 1)), f"gap in {schema}"
    return found


def _newest(schema: str) -> int:
    return len(_migrations(schema))


def _migrate(connection: Connection, schema: str, version: int) -> None:
    for number, path in enumerate(_migrations(schema)[version:], version + 1):
        connection.execute(path.read_text(encoding="utf-8"))
        fault(IN_MIGRATION)
        connection.execute(f"PRAGMA user_version={number}")


def _remove_with_logs(path: Path) -> None:
    for suffix in ("", "-wal", "-shm", "-journal"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
