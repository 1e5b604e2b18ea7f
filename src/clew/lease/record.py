"""The session record: everything clew keeps of one strand, and what makes a stored one readable.

The stored form is that of the strand (`clew.lineage.strand`) with the record's members beside {schema, session_id,
namespace, chain}. A strand that was only ever converted has none of them: it is read as `BareRecord` and becomes a
record with its first reservation. What is invalid, or was written by a newer clew, is an `UnreadableRecord`: kept byte
for byte, never rewritten, never granted a writer, never guessed at; other records are unaffected.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Final, Literal

import msgspec

from clew.errors import LeaseError
from clew.lease.lease import Lease, lease_fault
from clew.lineage.chain import EMPTY, Chain, store_chain
from clew.lineage.edge import StrandId
from clew.lineage.handle import Namespace
from clew.lineage.stored import (
    NUMBER,
    Extra,
    Malformed,
    Members,
    json_text,
    load_open,
    store_open,
    write_object,
)
from clew.lineage.strand import SCHEMA, Strand, load_strand, make_strand_id, store_namespace, store_strand

WorkspaceKind = Literal["git_worktree", "folder"]
Word = Annotated[str, msgspec.Meta(min_length=1, max_length=4096)]

OPTION_LIMIT: Final = 32
OPTION_NAME_LIMIT: Final = 64
OPTION_VALUE_LIMIT: Final = 1024
ARGUMENT_LIMIT: Final = 256
ENVIRONMENT_LIMIT: Final = 256
VALUE_LIMIT: Final = 64 * 1024
"""Bytes of one argument or one value of the environment."""


class Location(msgspec.Struct, frozen=True):
    """Where a session lives: the host's id, the container or WSL distribution on it, the workspace and its kind."""

    host: Word
    workspace: Word
    workspace_kind: WorkspaceKind
    container: Word | None = None

    @property
    def scope_key(self) -> str:
        """Host, container and workspace, joined by NUL."""
        return "\0".join((self.host, self.container or "", self.workspace))


class AccountHome(msgspec.Struct, frozen=True):
    """Which login the agent uses: the variable that names its home, and the absolute path; pinned for good."""

    variable: Word
    path: Word


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """One session record. `created_at` and `updated_at` in ms; `extra` holds members that this clew does not know."""

    session_id: StrandId
    namespace: Namespace
    location: Location
    account_home: AccountHome
    chain: Chain = EMPTY
    options: tuple[tuple[str, str], ...] = ()
    launch_arguments: tuple[str, ...] = ()
    lease: Lease = Lease()
    created_at: int = 0
    updated_at: int = 0
    extra: Extra = ()


class BareRecord(msgspec.Struct, frozen=True):
    """A strand that nobody ever attached: lineage, but no place, no account, no lease."""

    strand: Strand


class UnreadableRecord(msgspec.Struct, frozen=True):
    """A stored record that cannot be read. `newer` is the schema of a newer clew, None for anything else."""

    data: bytes
    fault: str
    newer: int | None = None


StoredRecord = Record | BareRecord | UnreadableRecord


def read_record(data: bytes) -> StoredRecord:
    """Returns what is stored, readable or not. Never raises."""
    newer = _newer_schema(data)
    if newer is not None:
        return UnreadableRecord(data, f"schema {newer}, this clew reads {SCHEMA}", newer)
    try:
        strand = load_strand(data)
        if "lease" not in dict(strand.extra):
            return BareRecord(strand)
        record = _load(strand)
    except (Malformed, LeaseError) as error:
        return UnreadableRecord(data, str(error))
    fault = record_fault(record)
    return UnreadableRecord(data, fault) if fault else record


def store_record(record: StoredRecord) -> bytes:
    """Returns the stored form; that of an unreadable record is its bytes as they were.

    A record that is not valid is a defect: AssertionError.
    """
    if isinstance(record, UnreadableRecord):
        return record.data
    if isinstance(record, BareRecord):
        return store_strand(record.strand)
    fault = record_fault(record)
    assert not fault, f"an invalid record is never written: {fault}"
    members = (
        ("schema", json_text(SCHEMA)),
        ("session_id", json_text(record.session_id)),
        ("namespace", store_namespace(record.namespace)),
        ("chain", store_chain(record.chain)),
        ("location", json_text(record.location)),
        ("account_home", json_text(record.account_home)),
        ("options", json_text(record.options)),
        ("launch_arguments", json_text(record.launch_arguments)),
        ("lease", store_open(record.lease)),
        ("created_at", json_text(record.created_at)),
        ("updated_at", json_text(record.updated_at)),
    )
    return write_object(members, record.extra)


def record_fault(record: Record) -> str:
    """Returns what makes a record invalid as a whole, or an empty text (the chain is valid by its own rules)."""
    lease, head = record.lease, record.chain.head
    if any(link.handle.namespace != record.namespace for link in record.chain.links):
        return "the chain is of another namespace"
    fault = lease_fault(lease) or launch_fault({}, record.launch_arguments, record.options)
    if fault:
        return fault
    if lease.proven_link_id is not None and lease.proven_link_id not in record.chain.link_ids:
        return f"the proof names link {lease.proven_link_id}, which is not in the chain"
    if lease.claim == "live":
        if head is None or head.link_id != lease.proven_link_id:
            return "live, but the proof is not the chain's head"
        if head.minted_at_fence != lease.fence:
            return "live, but the head was not minted at the current fence"
    if head is not None and head.minted_at_fence > lease.fence:
        return "the head was minted at a fence that never was"
    return "" if _is_absolute(record.account_home.path) else "the account home is no absolute path"


def launch_fault(environment: Mapping[str, str], arguments: Sequence[str], options: Sequence[tuple[str, str]]) -> str:
    """Returns what is wrong with a launch, or an empty text. The environment is checked and never stored."""
    if len(environment) > ENVIRONMENT_LIMIT:
        return f"more than {ENVIRONMENT_LIMIT} variables"
    if len(arguments) > ARGUMENT_LIMIT:
        return f"more than {ARGUMENT_LIMIT} launch arguments"
    for name, value in environment.items():
        if not name or "=" in name or "\0" in name or "\0" in value:
            return f"{name!r} cannot be a variable"
    if any(_size(value) > VALUE_LIMIT for value in (*environment.values(), *arguments)):
        return f"a value of more than {VALUE_LIMIT} bytes"
    if any("\0" in argument for argument in arguments):
        return "a NUL in a launch argument"
    if len(options) > OPTION_LIMIT or len({name for name, _ in options}) != len(options):
        return f"more than {OPTION_LIMIT} options, or one of them twice"
    if any(not 0 < len(n) <= OPTION_NAME_LIMIT or len(v) > OPTION_VALUE_LIMIT for n, v in options):
        return "an option that is not short"
    return ""


def strand_of(record: Record) -> Strand:
    """Returns the record's lineage, for a thread."""
    return Strand(record.session_id, record.namespace, record.chain)


def open_record(bare: BareRecord, location: Location, account_home: AccountHome, now: int) -> Record:
    """Returns a bare strand as a record: at fence 0, with this place and this account; `now` in ms."""
    strand = bare.strand
    return Record(
        session_id=strand.strand_id,
        namespace=strand.namespace,
        location=location,
        account_home=account_home,
        chain=strand.chain,
        created_at=now,
        updated_at=now,
        extra=strand.extra,
    )


def _load(strand: Strand) -> Record:
    """Takes the record's own members out of what the strand kept for it."""
    members = Members(write_object((), strand.extra), "record")
    location = members.take("location", _LOCATION)
    account = members.take("account_home", _ACCOUNT)
    options = members.take("options", _OPTIONS)
    arguments = members.take("launch_arguments", _ARGUMENTS)
    lease = load_open(members.take_object("lease"), Lease, "lease")
    created, updated = members.take("created_at", NUMBER), members.take("updated_at", NUMBER)
    return Record(
        session_id=make_strand_id(strand.strand_id),
        namespace=strand.namespace,
        location=location,
        account_home=account,
        chain=strand.chain,
        options=options,
        launch_arguments=arguments,
        lease=lease,
        created_at=created,
        updated_at=updated,
        extra=members.rest(),
    )


_LOCATION: Final = msgspec.json.Decoder(Location)
_ACCOUNT: Final = msgspec.json.Decoder(AccountHome)
_OPTIONS: Final = msgspec.json.Decoder(tuple[tuple[str, str], ...])
_ARGUMENTS: Final = msgspec.json.Decoder(tuple[str, ...])


def _newer_schema(data: bytes) -> int | None:
    try:
        schema = msgspec.json.decode(data, type=_Schema).schema
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return schema if schema > SCHEMA else None


class _Schema(msgspec.Struct):
    schema: int


def _is_absolute(path: str) -> bool:
    return path.startswith(("/", "\\\\")) or path[1:3] in (":\\", ":/")


def _size(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))
