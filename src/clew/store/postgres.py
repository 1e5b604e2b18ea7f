"""A PostgreSQL database of clew: the records for more than one machine, behind the same `Sql` as the SQLite file.

Promised:

* it connects at the first use, makes its schema there or brings it up to date in one transaction; a schema of a newer
  clew is read, and every write raises SchemaTooNew;
* a transaction is READ COMMITTED; what must not change meanwhile is read with row locks (`lock`), every write is a
  compare-and-swap; no advisory locks, no triggers, so that what speaks this protocol serves as well;
* a commit is on the server's disk when the block ends (synchronous_commit=on); where the connection broke while it
  was committing, the outcome is not known and InDoubt says so;
* a connection that was lost while nothing was going on is made anew; a lost one in the middle is a StoreError;
* no message names the password.

Like libpq it takes what the address leaves open from libpq's own variables and files. One Postgres is for one thread
at a time. Not through a pooler that hands connections around between transactions: the schema is set for the session.
"""

from __future__ import annotations

import select
import threading
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Final, Literal, NoReturn

import psycopg
from psycopg import errors
from psycopg.pq import ConnStatus, TransactionStatus

from clew.errors import ClewError, Conflict, InDoubt, SchemaTooNew, StoreDamaged, StoreError, StoreLocked
from clew.platform.faults import declare, fault
from clew.store.address import Address

TIMEOUT_S: Final = 30
_MIGRATIONS = Path(__file__).with_name("migrations") / "postgres"
_ATTEMPTS: Final = 20

BEFORE_COMMIT = declare("postgres.before-commit")
AFTER_COMMIT = declare("postgres.after-commit")
IN_MIGRATION = declare("postgres.in-migration")

_DEFAULTS: Final = {
    "application_name": "clew",
    "connect_timeout": 10,
    "tcp_user_timeout": TIMEOUT_S * 1000,
    "client_encoding": "UTF8",
}
_SETTINGS: Final = (
    "SET synchronous_commit TO on; SET default_transaction_isolation TO 'read committed'; "
    "SET lock_timeout TO '{wait}s'; SET idle_in_transaction_session_timeout TO '{idle}s'; SET search_path TO {schema}"
)
_ORIGIN: Final = (
    "SELECT system_identifier, substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8), 'store'::regclass::oid::bigint "
    "FROM pg_control_system()"
)
_BEGIN: Final = "BEGIN; SELECT version FROM clew_schema WHERE id = 1"
_BEGIN_SNAPSHOT: Final = "BEGIN TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"
_LOST = (psycopg.OperationalError, psycopg.InterfaceError)
_RACED = (errors.UniqueViolation, errors.DuplicateSchema, errors.DuplicateTable, errors.DuplicateObject)
_OVERTAKEN = (errors.SerializationFailure, errors.DeadlockDetected)


class Postgres:
    """One schema of a PostgreSQL database."""

    def __init__(self, address: Address, *, migrations: Path = _MIGRATIONS, timeout_s: int = TIMEOUT_S) -> None:
        self.address = address
        self._timeout_s = timeout_s
        self._migrations = migrations
        self._connection: psycopg.Connection[tuple[Any, ...]] | None = None
        self._opened = 0
        self._origin: str | None = None
        self._too_new = 0
        self._depth = 0
        self._thread = 0
        self._in_snapshot = False

    # --- statements ---------------------------------------------------------------------------------------

    @property
    def dialect(self) -> Literal["postgresql"]:
        """Tells which SQL it speaks."""
        return "postgresql"

    @property
    def is_there(self) -> bool:
        """Is always so: a schema is made at the first use."""
        return True

    @property
    def opened(self) -> object:
        """Returns a value that is another one whenever it was connected anew."""
        return self._opened or None

    @property
    def origin(self) -> str | None:
        """Returns the server's system identifier, its timeline, and the number of the table of the store.

        A dump that was put back has another table, a server restored from its own backup another timeline; both are
        read once for each connection. None where the server does not tell.
        """
        if self._origin is None and self._depth == 0 and not self._in_snapshot:
            try:
                rows = self._connected().execute(_ORIGIN.encode()).fetchall()
                self._origin = " ".join(str(value) for value in rows[0])
            except psycopg.Error:
                self._origin = ""
        return self._origin or None

    @property
    def in_transaction(self) -> bool:
        """Tells whether a `transaction()` is open."""
        return self._depth > 0

    @property
    def lock(self) -> str:
        """What keeps the rows of a SELECT as they are until the open transaction ends."""
        return " FOR UPDATE" if self._depth > 0 else ""

    def execute(self, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Runs one statement and returns its rows. Statements that write belong into a `transaction()`."""
        connection = self._connected()
        try:
            cursor = connection.execute(_translated(statement), parameters)
            return cursor.fetchall() if cursor.description is not None else []
        except psycopg.Error as error:
            self._fail(error)

    def execute_many(self, statement: str, rows: Iterable[Sequence[Any]]) -> list[tuple[Any, ...]]:
        """Runs one statement for each row of parameters and returns all result rows together, in order."""
        given = list(rows)
        connection = self._connected()
        found: list[tuple[Any, ...]] = []
        try:
            cursor = connection.cursor()
            cursor.executemany(_translated(statement), given, returning=" RETURNING " in statement)
            while given and cursor.description is not None:
                found += cursor.fetchall()
                if not cursor.nextset():
                    break
        except psycopg.Error as error:
            self._fail(error)
        return found

    def change(self, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Runs one writing statement: within the open transaction, or as one by itself."""
        connection = self._connected()
        self._require_writable()
        try:
            return self.execute(statement, parameters)
        except StoreError as error:
            if self._depth == 0 and connection.closed:
                raise self._in_doubt() from error
            raise

    @contextmanager
    def writing(self) -> Generator[None]:
        """Is part of the open transaction, or one by itself."""
        if self._depth > 0:
            yield
            return
        with self.transaction():
            yield

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
        assert not self._in_snapshot, "a snapshot is only read"
        connection = self._connected()
        self._require_writable()
        self._begin(connection)
        self._depth, self._thread = 1, threading.get_ident()
        try:
            yield
            fault(BEFORE_COMMIT)
            self._commit(connection)
        except BaseException:
            self._roll_back(connection)
            raise
        finally:
            self._depth = 0
        fault(AFTER_COMMIT)

    @contextmanager
    def snapshot(self) -> Generator[None]:
        """Lets all reads of the block see one state."""
        if self._depth > 0 or self._in_snapshot:
            yield
            return
        connection = self._connected()
        self._run(connection, _BEGIN_SNAPSHOT)
        self._in_snapshot = True
        try:
            yield
        finally:
            self._in_snapshot = False
            self._roll_back(connection)

    def close(self) -> None:
        """Disconnects; the next use connects again."""
        assert self._depth == 0, "a database is not closed within a transaction"
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    # --- transactions -------------------------------------------------------------------------------------

    def _begin(self, connection: psycopg.Connection[tuple[Any, ...]]) -> None:
        """Begins, and notices in the same round trip that a newer clew has changed the schema meanwhile."""
        try:
            cursor = connection.execute(_BEGIN.encode())
            cursor.nextset()
            (version,) = cursor.fetchone() or (0,)
        except psycopg.Error as error:
            self._roll_back(connection)
            self._fail(error)
        if version != self._newest:
            self._roll_back(connection)
            raise self._newer(version)

    def _commit(self, connection: psycopg.Connection[tuple[Any, ...]]) -> None:
        """Commits; raises when nothing was committed, and InDoubt when that is not known."""
        assert connection.info.transaction_status != TransactionStatus.INERROR, "a failed statement is not passed over"
        try:
            connection.execute(b"COMMIT")
        except psycopg.Error as error:
            if connection.closed and not isinstance(error, _OVERTAKEN):
                raise self._in_doubt() from error
            self._fail(error)

    def _roll_back(self, connection: psycopg.Connection[tuple[Any, ...]]) -> None:
        """Undoes what is open. Where that fails the connection is gone, and everything is undone with it."""
        try:
            if not connection.closed and connection.info.transaction_status != TransactionStatus.IDLE:
                connection.execute(b"ROLLBACK")
        except psycopg.Error:
            connection.close()

    @contextmanager
    def _savepoint(self) -> Generator[None]:
        connection = self._connected()
        name = f"level{self._depth}"
        self._run(connection, f"SAVEPOINT {name}")
        self._depth += 1
        try:
            yield
            self._run(connection, f"RELEASE SAVEPOINT {name}")
        except BaseException:
            if not connection.closed:
                self._run(connection, f"ROLLBACK TO SAVEPOINT {name}")
            raise
        finally:
            self._depth -= 1

    def _run(self, connection: psycopg.Connection[tuple[Any, ...]], statement: str) -> None:
        try:
            connection.execute(statement.encode())
        except psycopg.Error as error:
            self._fail(error)

    # --- connecting ---------------------------------------------------------------------------------------

    def _connected(self) -> psycopg.Connection[tuple[Any, ...]]:
        connection = self._connection
        if connection is not None and _is_alive(connection, idle=self._depth == 0 and not self._in_snapshot):
            return connection
        if self._depth > 0 or self._in_snapshot:
            raise self._lost()
        return self._connect()

    def _connect(self) -> psycopg.Connection[tuple[Any, ...]]:
        given = self.address.given
        defaults: dict[str, Any] = {name: value for name, value in _DEFAULTS.items() if name not in given}
        try:
            connection = psycopg.connect(self.address.conninfo, autocommit=True, **defaults)
        except psycopg.ProgrammingError:
            # The driver's own text may repeat a part of the address.
            raise StoreError(
                f"{self.address.shown}: the driver does not understand this address",
                hint="Write postgresql://USER@HOST/DATABASE; encode what is special in a password as %XX.",
            ) from None
        except psycopg.Error as error:
            raise self._refused(error, "Check that the server runs and lets this user in.") from None
        try:
            wait = self._timeout_s
            settings = _SETTINGS.format(wait=wait, idle=2 * wait, schema=self.address.schema)
            connection.execute(settings.encode())
            self._migrate(connection)
        except psycopg.Error as error:
            connection.close()
            self._fail(error)
        except BaseException:
            connection.close()
            raise
        self._connection = connection
        self._opened += 1
        self._origin = None
        return connection

    @property
    def _newest(self) -> int:
        return len(self._steps)

    @cached_property
    def _steps(self) -> list[Path]:
        """Returns the migrations in order; the n-th leads to version n."""
        found = sorted(self._migrations.glob("[0-9][0-9][0-9][0-9]_*.sql"))
        assert [int(path.name[:4]) for path in found] == list(range(1, len(found) + 1)), "gap in the migrations"
        return found

    def _migrate(self, connection: psycopg.Connection[tuple[Any, ...]]) -> None:
        """Makes the schema, or brings it up to date. Several may try at once: one does it."""
        for attempt in range(_ATTEMPTS):
            version = self._version(connection)
            newest = self._newest
            self._too_new = version if version > newest else 0
            if version >= newest:
                return
            try:
                with connection.transaction():
                    self._upgrade(connection)
            except (*_RACED, *_OVERTAKEN):
                if attempt == _ATTEMPTS - 1:
                    raise

    def _version(self, connection: psycopg.Connection[tuple[Any, ...]]) -> int:
        try:
            row = connection.execute(b"SELECT version FROM clew_schema WHERE id = 1").fetchone()
        except (errors.UndefinedTable, errors.InvalidSchemaName):
            return 0
        return int(row[0]) if row is not None else 0

    def _upgrade(self, connection: psycopg.Connection[tuple[Any, ...]]) -> None:
        schema = self.address.schema
        # Asked first: making a schema "if not exists" needs the right to make one.
        known = connection.execute(
            b"SELECT 1 FROM information_schema.schemata WHERE schema_name = %s", (schema,)
        ).fetchone()
        if known is None:
            connection.execute(f"CREATE SCHEMA {schema}".encode())
        connection.execute(
            b"CREATE TABLE IF NOT EXISTS clew_schema (id BIGINT PRIMARY KEY CHECK (id = 1), version BIGINT NOT NULL)"
        )
        connection.execute(b"INSERT INTO clew_schema VALUES (1, 0) ON CONFLICT DO NOTHING")
        row = connection.execute(b"SELECT version FROM clew_schema WHERE id = 1 FOR UPDATE").fetchone()
        version = int(row[0]) if row is not None else 0
        for number, path in enumerate(self._steps[version:], version + 1):
            connection.execute(path.read_bytes())
            fault(IN_MIGRATION)
            connection.execute(b"UPDATE clew_schema SET version = %s WHERE id = 1", (number,))

    # --- failures -----------------------------------------------------------------------------------------

    def _require_writable(self) -> None:
        if self._too_new:
            raise self._newer(self._too_new)

    def _newer(self, version: int) -> SchemaTooNew:
        return SchemaTooNew(
            f"{self.address.shown} was written by a newer clew (schema {version}, this one knows {self._newest}); "
            "it is only read",
            hint="Update clew.",
        )

    def _lost(self) -> StoreError:
        return StoreError(
            f"{self.address.shown}: the connection was lost; nothing was written",
            hint="Check that the server runs, then try again.",
        )

    def _in_doubt(self) -> InDoubt:
        return InDoubt(
            f"{self.address.shown}: the connection was lost in a write; whether it was written is not known",
            hint="Try again: clew looks at what is there before it writes.",
        )

    def _refused(self, error: psycopg.Error, hint: str, *, code: str = "") -> StoreError:
        text = error.diag.message_primary or str(error).partition("\n")[0]
        return StoreError(f"{self.address.shown}: {self.address.scrub(text)}", code=code, hint=hint)

    def _fail(self, error: psycopg.Error) -> NoReturn:
        """Raises the error of clew's tree that stands for what the server refused; defects as they are."""
        explained = self._explained(error)
        if explained is None:
            raise error
        raise explained from error

    def _explained(self, error: psycopg.Error) -> ClewError | None:
        shown = self.address.shown
        if isinstance(error, _OVERTAKEN):
            return Conflict(f"{shown}: another clew was writing there at once", hint="Try again.")
        if isinstance(error, errors.LockNotAvailable):
            return StoreLocked(
                f"{shown} has been busy for more than {self._timeout_s} s",
                hint="Wait for the other clew command, or stop it.",
            )
        if isinstance(error, errors.UndefinedTable | errors.UndefinedColumn | errors.InvalidSchemaName):
            kind = SchemaTooNew if self._too_new else StoreDamaged
            return kind(
                f"{shown} does not have the tables it should: {error.diag.message_primary}", hint="Update clew."
            )
        if isinstance(error, errors.DataCorrupted | errors.IndexCorrupted):
            return StoreDamaged(f"{shown} is damaged: {error.diag.message_primary}", hint="Put a backup in its place.")
        if isinstance(error, errors.InsufficientPrivilege):
            return self._refused(error, f"Give this user the right to make and use the schema {self.address.schema}.")
        if isinstance(error, errors.ReadOnlySqlTransaction):
            return self._refused(error, "This is a replica, or a read-only server: name the one that is written to.")
        if isinstance(error, errors.DiskFull):
            return self._refused(error, "Free some space on the server.", code="disk_full")
        if isinstance(error, _LOST):
            return self._refused(error, "Check that the server runs, then try again.")
        return None


def _is_alive(connection: psycopg.Connection[tuple[Any, ...]], *, idle: bool) -> bool:
    """Tells whether a connection can still be used; an idle one is asked whether its server went away meanwhile."""
    if connection.closed:
        return False
    if idle and _has_word(connection.fileno()):
        # Nobody asked the server anything: mostly this is its farewell.
        try:
            connection.execute(b"SELECT 1")
        except psycopg.Error:
            connection.close()
            return False
    return connection.pgconn.status == ConnStatus.OK


def _has_word(socket: int) -> bool:
    """Tells whether something has arrived, or the other side has closed; never waits."""
    poll = select.poll()
    poll.register(socket, select.POLLIN)
    return bool(poll.poll(0))


@lru_cache(maxsize=256)
def _translated(statement: str) -> bytes:
    """Returns a statement with the driver's sign for a parameter."""
    assert "%" not in statement, "statements of the store hold no percent sign"
    return statement.replace("?", "%s").encode()
