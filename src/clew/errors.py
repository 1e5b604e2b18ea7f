"""Every error that clew raises on purpose, drawn as one tree.

Each carries what a user needs: a message that names the file, the session or the record; a `hint` that says what
to do; the exit status of the command line; and a stable `code` word for scripts. What is not in this tree is a
defect and rises as it is.

    ClewError                     1  failed
    ├── UsageError                2  usage
    ├── NotFoundError             3  not_found
    ├── AmbiguousError            4  ambiguous
    ├── Refused                   5  refused            (and a more exact word: target_diverged, live_owner, ...)
    │   ├── LeaseError            5  (codes of the attach tables)
    │   └── RunError              5  (codes of the run tables)
    ├── FormatError               6  unreadable
    │   ├── UnknownFormat         6  unknown_format
    │   ├── UnreadableSource      6  unreadable
    │   ├── UnsupportedVersion    6  unsupported_version
    │   └── UnwritableContent     5  unwritable
    ├── ResidueError              1  residue_failed
    ├── StoreError                1  store_failed
    │   ├── Conflict              1  store_conflict
    │   ├── StoreDamaged          1  store_damaged
    │   ├── SchemaTooNew          1  schema_too_new
    │   └── StoreLocked           1  store_locked
    ├── HostError                 1  host_failed
    └── InDoubt                   1  outcome_unknown
"""

from __future__ import annotations

from typing import ClassVar


class ClewError(Exception):
    """Stands for every failure that clew foresees.

    `code` is a stable word; `exit_code` the status of the command line (0-7, 130); `hint` one sentence on what the
    user may do; `concerns` the objects concerned, for the JSON form: session, path, record (number from 0), offset
    (bytes from the start of the file), and others by name.
    """

    exit_code: ClassVar[int] = 1
    default_code: ClassVar[str] = "failed"

    def __init__(self, message: str, *, code: str = "", hint: str = "", **concerns: object) -> None:
        super().__init__(message)
        self.message = message
        self.code = code or self.default_code
        self.hint = hint
        self.concerns: dict[str, object] = {k: v for k, v in concerns.items() if v is not None}

    def as_dict(self) -> dict[str, object]:
        """Returns the JSON form: {status, code, message, hint, and what it concerns}."""
        return {
            "status": self.exit_code,
            "code": self.code,
            "message": self.message,
            "hint": self.hint,
            **self.concerns,
        }


class UsageError(ClewError):
    """The call itself is wrong: an unknown option, agent or a value out of range."""

    exit_code = 2
    default_code = "usage"


class NotFoundError(ClewError):
    """Nothing answers to the name that was given."""

    exit_code = 3
    default_code = "not_found"


class AmbiguousError(ClewError):
    """More than one thing answers to the name that was given."""

    exit_code = 4
    default_code = "ambiguous"


class Refused(ClewError):
    """The act would lose or mix something; the message names the missing evidence and the act that supplies it."""

    exit_code = 5
    default_code = "refused"


class LeaseError(Refused):
    """A lease, operation or journal refuses; `code` and `reason` are those of the attach tables."""

    default_code = "ownership_unknown"


class RunError(Refused):
    """A run refuses to start or to go on; all differences are named, the lowest row decides."""

    default_code = "run_rejected"


class FormatError(ClewError):
    """A session's bytes and a format do not fit together."""

    exit_code = 6
    default_code = "unreadable"


class UnknownFormat(FormatError):
    """No format claims these bytes, or no agent has that name."""

    default_code = "unknown_format"


class UnreadableSource(FormatError):
    """A session cannot be read at all: no permission, a directory, a link loop, nothing of it is a record."""


class UnsupportedVersion(FormatError):
    """The layout is newer or older than what this format knows; it is never read as empty."""

    default_code = "unsupported_version"


class UnwritableContent(FormatError):
    """The target cannot hold this conversation, and bending it would change what was said."""

    exit_code = 5
    default_code = "unwritable"


class ResidueError(ClewError):
    """Segments are missing or damaged where they are needed."""

    default_code = "residue_failed"


class StoreError(ClewError):
    """clew's own data cannot be read or written."""

    default_code = "store_failed"


class Conflict(StoreError):
    """A compare-and-swap lost: the row is no longer what the caller last saw."""

    default_code = "store_conflict"


class StoreDamaged(StoreError):
    """The store's file is damaged or is not a store."""

    default_code = "store_damaged"


class SchemaTooNew(StoreError):
    """The store was written by a newer clew; it is read, never written."""

    default_code = "schema_too_new"


class StoreLocked(StoreError):
    """Another process holds the store for longer than clew waits."""

    default_code = "store_locked"


class HostError(ClewError):
    """A live agent is missing, refused, broke its protocol or died."""

    default_code = "host_failed"


class InDoubt(ClewError):
    """An effect may or may not have happened; reconciliation decides, never a second try."""

    default_code = "outcome_unknown"
