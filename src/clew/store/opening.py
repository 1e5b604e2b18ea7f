"""Opening clew's stores: three files in one folder, each opened at its first use; the records perhaps on a server.

    <data>/records.db   threads, strands with their leases, edges, ledger, journals
    <data>/residue.db   captures and their segments
    <data>/index.db     derived: the list cache; may be deleted at any time

With a URL the records lie on a PostgreSQL server; residue and index stay in the folder.

Making a `Stores` touches no file and imports no database. One Stores is for one thread.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from clew.errors import StoreDamaged, UsageError
from clew.platform.clock import Clock
from clew.store.protocol import ListCache, ResidueStore, Sql
from clew.store.record_protocol import RecordStore

if TYPE_CHECKING:
    from clew.store.address import Address
    from clew.store.postgres import Postgres
    from clew.store.sqlite import Database

RECORDS = "records.db"
RESIDUE = "residue.db"
INDEX = "index.db"
WITNESS = "records.witness"


class Stores:
    """The stores of one data folder. Use as a context manager, or call `close`."""

    def __init__(
        self,
        data: Path,
        address: Address | None = None,
        witness: Path | None = None,
        outside: Path | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.data = data
        self._address = address
        name = WITNESS if address is None else f"server-{address.key}.witness"
        self.witness = data / name if witness is None else witness
        self._outside, self._clock = outside, clock
        self._open: list[Database | Postgres] = []

    @cached_property
    def sql(self) -> Sql:
        """The database of records, for modules of the store that keep tables beside the threads."""
        if self._address is None:
            return self._database(RECORDS, "records")
        try:
            from clew.store.postgres import Postgres
        except ImportError as error:
            raise UsageError(
                f"--store {self._address.shown}: clew is installed without what PostgreSQL needs ({error})",
                hint="Install it with: pip install 'clew[server]'",
            ) from error
        server = Postgres(self._address)
        self._open.append(server)
        return server

    @cached_property
    def records(self) -> RecordStore:
        """Threads, session records, ledger and journals."""
        from clew.store.records import SqlRecords
        from clew.store.witness import Witness

        records = SqlRecords(self.sql, Witness(self.witness), self._outside, self._clock)
        records.require()
        return records

    @cached_property
    def residue(self) -> ResidueStore:
        """Captures and their segments."""
        from clew.store.captures import SqlResidue

        return SqlResidue(self._database(RESIDUE, "residue"))

    @cached_property
    def index(self) -> ListCache:
        """What listing found out about files; it forgets rather than fails."""
        from clew.store.listcache import SqlListCache

        return SqlListCache(self._database(INDEX, "index", durable=False))

    @property
    def has_records(self) -> bool:
        """Whether there are records to look at, or should be; asking makes no file."""
        return self._address is not None or (self.data / RECORDS).exists() or self.witness.exists()

    def outside(self, store_id: str) -> Path | None:
        """Returns the file outside of the folder that remembers how far the records have come; it need not exist."""
        from clew.store.restored import outside_path

        return None if self._outside is None else outside_path(self._outside, store_id)

    @property
    def has_residue(self) -> bool:
        """Whether there are captures to look at; asking makes no file."""
        return (self.data / RESIDUE).exists()

    def check_records(self) -> list[str]:
        """Returns what is wrong with the file of the records, one sentence each; writes nothing.

        Nothing is looked at on a server, which looks after its own files.
        """
        from clew.store.sqlite import Database

        sql = self.sql if self.has_records else None
        if not isinstance(sql, Database):
            return []
        try:
            _ = self.records  # raises when the witness knows records and there are none
            return sql.check()
        except StoreDamaged as error:
            return [error.message]

    def close(self) -> None:
        """Closes what was opened."""
        for database in self._open:
            database.close()

    def __enter__(self) -> Stores:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _database(self, name: str, schema: str, *, durable: bool = True) -> Database:
        from clew.store.sqlite import Database

        database = Database(self.data / name, schema, durable=durable)
        self._open.append(database)
        return database


def open_stores(
    data: Path,
    *,
    url: str | None = None,
    blobs: str | None = None,
    witness: Path | None = None,
    outside: Path | None = None,
    clock: Clock | None = None,
) -> Stores:
    """Returns the stores of a data folder, which need not exist yet.

    `witness` is the file that remembers how far the records have come, `<data>/records.witness` where it is not
    given. `outside` is a folder that is not part of the data, for a second one: it notices when the whole data folder
    went back to a backup. `clock` gives the fences a floor where a backup was put back and nobody remembers more.
    `url` names a PostgreSQL database for the records (`clew.store.address`); it is not connected to before its first
    use. UsageError for any other address, and for any `blobs`: there is no object store yet, and an option that has a
    name already is refused rather than left aside.
    """
    if blobs is not None:
        raise UsageError(
            "--blobs: this version of clew has no object store; what sessions hold stays in the data folder",
            hint="Leave it out, here, in CLEW_BLOBS and in clew.toml; --data names the folder. Nothing was written.",
        )
    if url is None:
        return Stores(data, None, witness, outside, clock)
    from clew.store.address import read_address

    return Stores(data, read_address(url), witness, outside, clock)
