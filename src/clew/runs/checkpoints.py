"""What a run's log says to a resume: its start, its manifest or seal, and the items it vouches for.

Replay follows the lines; per fingerprint the last one wins. Loading never raises for a run that a manifest
arbitrates; `strict` is for logs that nothing arbitrates, where a dropped line may have been a retraction.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from clew.errors import UnreadableSource
from clew.runs import log
from clew.runs.lineage import ResumeLineage, read_lineage
from clew.runs.log import EndRecord, ItemRecord, LineageRecord, SealedRecord, StartRecord, read_lines
from clew.runs.manifest import Manifest, read_manifest

if TYPE_CHECKING:
    from pathlib import Path


class RunState(Struct, frozen=True):
    """One run as its log tells it.

    `manifest` is the final one and `schema_version` what it names (also when that schema is not known, and the
    manifest therefore None); `sealed` is the header of a run that was sealed. `checkpoints` holds the last done or
    reused record of each fingerprint, `chained` those of them that an unbroken chain leads up to. `damaged` counts
    lines that do not parse; `torn` is set when only the last one is cut.
    """

    run_id: str
    start: StartRecord | None = None
    manifest: Manifest | None = None
    schema_version: str = ""
    sealed: Manifest | None = None
    closed: bool = False
    ended: str = ""
    elapsed_ms: int = 0
    checkpoints: dict[str, ItemRecord] = {}
    chained: frozenset[str] = frozenset()
    items: dict[str, ItemRecord] = {}
    lineage: ResumeLineage | None = None
    damaged: int = 0
    torn: bool = False

    @property
    def interrupted(self) -> bool:
        """Tells whether the run was sealed and never closed: killed, not ended."""
        return self.sealed is not None and not self.closed

    @property
    def vouched(self) -> Manifest | None:
        """The manifest that a resume is checked against: the final one, or the seal of a killed run."""
        if self.manifest is not None:
            return self.manifest
        return self.sealed if self.interrupted and not self.schema_version else None

    @property
    def mode(self) -> str:
        """The mode that the run was started in; empty when its start is not readable."""
        return self.start.mode if self.start is not None else ""


class _Replay:
    """Collects a state line by line."""

    def __init__(self) -> None:
        self.start: StartRecord | None = None
        self.end: EndRecord | None = None
        self.manifest: Manifest | None = None
        self.schema_version = ""
        self.sealed: Manifest | None = None
        self.sealed_schema = ""
        self.checkpoints: dict[str, ItemRecord] = {}
        self.chained: set[str] = set()
        self.items: dict[str, ItemRecord] = {}
        self.lineage: ResumeLineage | None = None
        self.damaged = 0
        self.torn = False

    def take(self, line: log.Line) -> None:
        if line.damaged:
            self.damaged += 1
        self.torn = self.torn or line.torn
        body = line.body
        if isinstance(body, StartRecord):
            self.start = self.start or body
        elif isinstance(body, SealedRecord):
            self.sealed_schema, self.sealed = read_manifest(body.manifest)
        elif isinstance(body, LineageRecord):
            self.lineage = self.lineage or read_lineage(body.lineage)
        elif isinstance(body, EndRecord):
            self._take_end(body)
        elif isinstance(body, ItemRecord):
            self._take_item(body, line.type, chained=line.chained)

    def _take_end(self, end: EndRecord) -> None:
        self.end = end
        version, manifest = read_manifest(end.run_manifest)
        if version:
            self.schema_version, self.manifest = version, manifest

    def _take_item(self, item: ItemRecord, kind: str, *, chained: bool) -> None:
        if item.item_id:
            self.items[item.item_id] = item
        if not item.fingerprint:
            return
        if kind in (log.ITEM_DONE, log.ITEM_REUSED):
            self.checkpoints[item.fingerprint] = item
            if chained:
                self.chained.add(item.fingerprint)
            else:
                self.chained.discard(item.fingerprint)
        elif kind == log.ITEM_FAILED:
            self.checkpoints.pop(item.fingerprint, None)
            self.chained.discard(item.fingerprint)


def replay(data: bytes, run_id: str, *, strict: bool = False, path: Path | None = None) -> RunState:
    """Returns the state that a log's bytes tell; a line that does not parse is counted and passed over.

    With `strict` such a line raises UnreadableSource, naming the record.
    """
    told = _Replay()
    for line in read_lines(data):
        if strict and (line.damaged or line.torn):
            where = f"{path}: " if path is not None else ""
            raise UnreadableSource(
                f"{where}record {line.number} of run {run_id} does not parse", path=str(path), record=line.number
            )
        told.take(line)
    # A seal of another schema is a manifest of another schema as far as a resume is concerned.
    schema = told.schema_version
    if not schema and told.end is None and told.sealed is None:
        schema = told.sealed_schema
    return RunState(
        run_id=run_id,
        start=told.start,
        manifest=told.manifest,
        schema_version=schema,
        sealed=told.sealed,
        closed=told.end is not None,
        ended=told.end.time if told.end is not None else "",
        elapsed_ms=told.end.elapsed_ms if told.end is not None else 0,
        checkpoints=told.checkpoints,
        chained=frozenset(told.chained),
        items=told.items,
        lineage=told.lineage,
        damaged=told.damaged,
        torn=told.torn,
    )


def reusable(state: RunState) -> dict[str, ItemRecord]:
    """Returns the checkpoints that a resume may reuse, by fingerprint.

    Of an ended run: those that its manifest lists as completed or reused. Of a killed one: those of its sealed set up
    to which the record chain is unbroken. A checkpoint that nothing vouches for is not among them.
    """
    if state.manifest is not None:
        covered = state.manifest.coverage
        vouched = {item.fingerprint for item in (*covered.completed, *covered.reused)}
    elif state.interrupted and state.sealed is not None:
        vouched = {item.fingerprint for item in state.sealed.coverage.selected} & state.chained
    else:
        return {}
    return {name: state.checkpoints[name] for name in vouched if name and name in state.checkpoints}
