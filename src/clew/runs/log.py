"""The log of one run: a chain of JSON lines, appended while the run goes on.

Every record carries its own uuid, that of the record before it, its type, the run and the time, so that a gap shows.
Checkpoints are flushed at once; `run_sealed` and `run_end` are synced as well; requests and replies are buffered.
A log that cannot be opened or written never stops the work: the first failure is kept, nothing more is written behind
it, and closing the log reports it, the same way every time.

Reading never raises on damage: a line that does not parse is counted and marks the end of the unbroken chain.
"""

from __future__ import annotations

import contextlib
import os
import threading
from typing import TYPE_CHECKING, Protocol, cast

import msgspec
from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from datetime import datetime
    from pathlib import Path

RUN_START = "run_start"
RUN_SEALED = "run_sealed"
RESUME_LINEAGE = "resume_lineage"
ITEM_DONE = "item_done"
ITEM_REUSED = "item_reused"
ITEM_FAILED = "item_failed"
ITEM_WAIVED = "item_waived"
RUN_END = "run_end"


class WriteBytes(Protocol):
    """Writes some of `data` to an open file and returns how many bytes: `os.write`, or a fault in a test."""

    def __call__(self, fd: int, data: bytes, /) -> int: ...


class RunLog:
    """Appends one run's records to a new file; safe to call from many threads.

    `now` gives aware UTC times, `new_id` a fresh name for each record.
    """

    def __init__(
        self,
        path: Path,
        *,
        run_id: str,
        now: Callable[[], datetime],
        new_id: Callable[[], str],
        write: WriteBytes = os.write,
    ) -> None:
        self.path = path
        self._run_id = run_id
        self._now = now
        self._new_id = new_id
        self._write = write
        self._lock = threading.Lock()
        self._buffer = bytearray()
        self._parent = ""
        self._size = 0
        self._error = ""
        self._closed = False
        self._fd = -1
        try:
            self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
            _sync_folder(path.parent)
        except OSError as error:
            self._error = f"the run's log could not be opened: {_describe(error, path)}"

    @property
    def delivery_error(self) -> str:
        """What kept records from the file; empty while all is well."""
        return self._error

    def append(self, kind: str, fields: Mapping[str, object], *, flush: bool = True, sync: bool = False) -> None:
        """Adds one record; `flush` hands it to the system at once, `sync` to the disk as well."""
        with self._lock:
            if self._error or self._closed:
                return
            uuid = self._new_id()
            head: dict[str, object] = {
                "uuid": uuid,
                "parentUuid": self._parent or None,
                "type": kind,
                "runId": self._run_id,
                "time": self._now().isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            }
            self._buffer += encode_json({**head, **fields}) + b"\n"
            self._parent = uuid
            if flush or sync:
                self._flush(sync=sync)

    def close(self, fields: Mapping[str, object]) -> str:
        """Writes `run_end`, syncs and closes; returns the delivery error, the same at every later call."""
        self.append(RUN_END, fields, sync=True)
        with self._lock:
            if not self._closed:
                self._closed = True
                self._shut()
            return self._error

    def abandon(self) -> None:
        """Closes the file without an end record, as a killed process would; for a run that cannot be finished."""
        with self._lock:
            self._closed = True
            self._shut()

    def _shut(self) -> None:
        fd, self._fd = self._fd, -1
        if fd < 0:
            return
        try:
            os.close(fd)
        except OSError as error:
            self._error = self._error or f"the run's log was not closed: {_describe(error, self.path)}"

    def _flush(self, *, sync: bool) -> None:
        data = bytes(self._buffer)
        self._buffer.clear()
        done = 0
        try:
            while done < len(data):
                done += self._write(self._fd, data[done:])
            self._size += done
            if sync:
                os.fsync(self._fd)
        except OSError as error:
            self._error = f"the run's log is incomplete: {_describe(error, self.path)}"
            # Half a line would break the chain for a reader; what was whole before it stays usable.
            with contextlib.suppress(OSError):
                os.ftruncate(self._fd, self._size)


def _describe(error: OSError, path: Path) -> str:
    return f"{path}: {error.strerror or type(error).__name__}"


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def encode_json(value: object) -> bytes:
    """Returns `value` as one line of JSON; text that is no valid Unicode is made so first."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return msgspec.json.encode(_scrub(value))


def _scrub(value: object) -> object:
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, Struct):
        return _scrub(msgspec.structs.asdict(value))
    if isinstance(value, dict):
        members = cast("dict[object, object]", value)
        return {str(_scrub(name)): _scrub(member) for name, member in members.items()}
    if isinstance(value, (list, tuple)):
        return [_scrub(member) for member in cast("list[object]", value)]
    return value


class SessionRef(Struct, frozen=True):
    """An agent's session in which an item was done."""

    agent: str
    session_id: str


class StartRecord(Struct, frozen=True, rename={"run_id": "runId"}):
    """`run_start`: what was typed, where, and by what the run was to be done."""

    run_id: str = ""
    time: str = ""
    operation: str = ""
    mode: str = ""
    cwd: str = ""
    branch: str = ""
    provider: str = ""
    model: str = ""
    requested: dict[str, object] = {}
    skipped: tuple[dict[str, str], ...] = ()
    resumed_from: str = ""


class ItemRecord(Struct, frozen=True):
    """`item_done`, `item_reused`, `item_failed` or `item_waived`: the checkpoint of one item."""

    type: str = ""
    item_id: str = ""
    file: str = ""
    old_path: str = ""
    new_path: str = ""
    fingerprint: str = ""
    result: dict[str, object] = {}
    source_run: str = ""
    session: SessionRef | None = None
    model: str = ""
    usage: dict[str, int] = {}
    classification: str = ""
    error: str = ""

    @property
    def path(self) -> str:
        """The item's path; the new path stands in for a missing one."""
        return self.file or self.new_path


class EndRecord(Struct, frozen=True):
    """`run_end`; the manifest is kept as it was decoded, because its schema may be another one."""

    time: str = ""
    elapsed_ms: int = 0
    run_manifest: object = None


class SealedRecord(Struct, frozen=True):
    """`run_sealed`: the manifest's header and selected set, before any outcome."""

    manifest: object = None


class LineageRecord(Struct, frozen=True):
    """`resume_lineage`, undecoded: an unknown schema is ignored whole."""

    lineage: object = None


Body = StartRecord | ItemRecord | EndRecord | SealedRecord | LineageRecord

_BODIES: dict[str, msgspec.json.Decoder[Body]] = {
    RUN_START: msgspec.json.Decoder(StartRecord),
    RUN_SEALED: msgspec.json.Decoder(SealedRecord),
    RESUME_LINEAGE: msgspec.json.Decoder(LineageRecord),
    ITEM_DONE: msgspec.json.Decoder(ItemRecord),
    ITEM_REUSED: msgspec.json.Decoder(ItemRecord),
    ITEM_FAILED: msgspec.json.Decoder(ItemRecord),
    ITEM_WAIVED: msgspec.json.Decoder(ItemRecord),
    RUN_END: msgspec.json.Decoder(EndRecord),
}  # pyright: ignore[reportAssignmentType]


class _Head(Struct, frozen=True, rename={"parent_uuid": "parentUuid"}):
    type: str
    uuid: str
    parent_uuid: str | None = None


_HEAD = msgspec.json.Decoder(_Head)


class Line(Struct, frozen=True):
    """One line of a log: its type and body (None for a type that is not known here), or damage.

    `chained` tells whether every line up to this one is whole and names the one before it. `torn` is a last line
    without its end that does not parse, which is normal for a run that was killed.
    """

    number: int
    type: str = ""
    body: Body | None = None
    chained: bool = False
    damaged: bool = False
    torn: bool = False


def read_lines(data: bytes) -> Iterator[Line]:
    """Yields the lines of a log in order; blank ones are left out, and nothing raises."""
    chained = True
    before: str | None = None
    for number, raw in enumerate(data.split(b"\n")):
        if not raw.strip():
            continue
        parsed = _parse(raw)
        if parsed is None:
            chained = False
            at_end = data.endswith(raw)
            yield Line(number, damaged=not at_end, torn=at_end)
            continue
        head, body = parsed
        chained = chained and head.parent_uuid == before
        before = head.uuid
        yield Line(number, head.type, body, chained)


def _parse(raw: bytes) -> tuple[_Head, Body | None] | None:
    try:
        head = _HEAD.decode(raw)
        decoder = _BODIES.get(head.type)
        return head, None if decoder is None else decoder.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return None
