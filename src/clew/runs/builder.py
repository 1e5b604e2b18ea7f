"""The builder of a manifest, with its two boundaries: `open`, sealed, frozen.

While open, items are registered; the seal closes the denominator, before anything is reused or dispatched; after it
each item goes from selected to exactly one terminal state; `finalize` decides what is undecided, validates and
freezes. All calls are serialised by one lock, so marks may come from any thread. Wrong calls raise ManifestError and
change nothing.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Literal

import msgspec
from msgspec import Struct

from clew.runs.manifest import (
    FAILURE_CLASSES,
    NO_OUTCOME,
    RUN_FAILURE_CLASSES,
    Coverage,
    CoverageItem,
    Manifest,
    ManifestError,
    RunFailure,
    terminal_state,
    validate,
)
from clew.runs.reason import sanitise

if TYPE_CHECKING:
    from collections.abc import Iterable

Outcome = Literal["completed", "reused", "failed", "waived"]
Boundary = Literal["open", "sealed", "frozen"]


class _Decision(Struct, frozen=True, gc=False):
    outcome: Outcome
    classification: str = ""
    reason: str = ""


class ManifestBuilder:
    """Collects one run's coverage and makes its manifest, once.

    `header` is the manifest without coverage and state; `modes` are those the operation knows.
    """

    def __init__(self, header: Manifest, modes: Iterable[str]) -> None:
        self._header = header
        self._modes = frozenset(modes)
        self._lock = threading.Lock()
        self._boundary: Boundary = "open"
        self._items: dict[str, CoverageItem] = {}
        self._decided: dict[str, _Decision] = {}
        self._run_failure: RunFailure | None = None
        self._pending_cause: RunFailure | None = None
        self._frozen: Manifest | None = None

    @property
    def boundary(self) -> Boundary:
        """The stage the builder is in."""
        return self._boundary

    def register(self, item: CoverageItem) -> None:
        """Takes an item into the selected set; a known id keeps its first registration."""
        with self._lock:
            if self._boundary != "open":
                raise ManifestError(f"item {item.item_id} comes after the seal")
            if not item.item_id:
                raise ManifestError("an item needs an id")
            plain = CoverageItem(item.item_id, item.path, item.old_path, item.fingerprint)
            self._items.setdefault(item.item_id, plain)

    def seal(self) -> Manifest:
        """Closes the selected set and returns the sealed manifest: header and selected items, no outcome."""
        with self._lock:
            self._refuse_frozen("seal")
            self._boundary = "sealed"
            return msgspec.structs.replace(self._header, coverage=Coverage(selected=self._sorted_items()))

    def mark_completed(self, item_id: str) -> None:
        """Records that the item's work was done in this run."""
        self._mark(item_id, _Decision("completed"))

    def mark_reused(self, item_id: str) -> None:
        """Records that the item's result came from the parent run."""
        self._mark(item_id, _Decision("reused"))

    def mark_failed(self, item_id: str, classification: str, reason: str) -> None:
        """Records that the item failed; the class is one of FAILURE_CLASSES and stays."""
        if classification not in FAILURE_CLASSES:
            raise ManifestError(f"item {item_id}: {classification!r} is no class of failure")
        self._mark(item_id, _Decision("failed", classification, sanitise(reason)))

    def mark_waived(self, item_id: str, reason: str) -> None:
        """Records that the item is passed over on purpose, with a reason that is not blank."""
        safe = sanitise(reason)
        if not safe:
            raise ManifestError(f"item {item_id} cannot be waived without a reason")
        self._mark(item_id, _Decision("waived", reason=safe))

    def set_run_failure(self, classification: str, reason: str) -> None:
        """Records why the run as a whole fails; the first class stays, another one is an error."""
        with self._lock:
            self._run_failure = self._caused(self._run_failure, classification, reason, "run failure")

    def set_pending_cause(self, classification: str, reason: str) -> None:
        """Records a controlled truncation: it colours undecided items and does not fail the run."""
        with self._lock:
            self._pending_cause = self._caused(self._pending_cause, classification, reason, "pending cause")

    def finalize(self, elapsed_ms: int) -> Manifest:
        """Returns the manifest; the first call freezes it, later ones return equal copies.

        A validation failure raises, freezes nothing and decides no item.
        """
        with self._lock:
            if self._frozen is None:
                manifest = self._assemble(elapsed_ms)
                validate(manifest, self._modes)
                self._frozen = manifest
                self._boundary = "frozen"
            return msgspec.convert(msgspec.to_builtins(self._frozen), Manifest)

    def _mark(self, item_id: str, decision: _Decision) -> None:
        with self._lock:
            self._refuse_frozen("mark")
            if item_id not in self._items:
                raise ManifestError(f"item {item_id} was never registered")
            present = self._decided.get(item_id)
            if present is None:
                self._decided[item_id] = decision
            elif (present.outcome, present.classification) != (decision.outcome, decision.classification):
                was = " ".join(filter(None, (present.outcome, present.classification)))
                raise ManifestError(f"item {item_id} is {was} already and cannot become {decision.outcome}")

    def _caused(self, present: RunFailure | None, classification: str, reason: str, what: str) -> RunFailure:
        self._refuse_frozen(what)
        if classification not in RUN_FAILURE_CLASSES:
            raise ManifestError(f"{classification!r} is no class of a {what}")
        if present is None:
            return RunFailure(classification, sanitise(reason))
        if present.classification != classification:
            raise ManifestError(f"the {what} is {present.classification} already, not {classification}")
        return present

    def _refuse_frozen(self, what: str) -> None:
        if self._boundary == "frozen":
            raise ManifestError(f"the manifest is final: {what} comes too late")

    def _sorted_items(self) -> tuple[CoverageItem, ...]:
        return tuple(self._items[name] for name in sorted(self._items))

    def _undecided(self) -> _Decision:
        cause = self._run_failure or self._pending_cause
        if cause is None:
            return _Decision("failed", "unknown", NO_OUTCOME)
        known = cause.classification if cause.classification in FAILURE_CLASSES else "unknown"
        return _Decision("failed", known, cause.reason or NO_OUTCOME)

    def _assemble(self, elapsed_ms: int) -> Manifest:
        sets: dict[Outcome, list[CoverageItem]] = {"completed": [], "reused": [], "failed": [], "waived": []}
        undecided = self._undecided()
        selected = self._sorted_items()
        for item in selected:
            decision = self._decided.get(item.item_id, undecided)
            sets[decision.outcome].append(
                msgspec.structs.replace(item, classification=decision.classification, reason=decision.reason)
            )
        coverage = Coverage(
            selected=selected,
            completed=tuple(sets["completed"]),
            reused=tuple(sets["reused"]),
            failed=tuple(sets["failed"]),
            waived=tuple(sets["waived"]),
        )
        return msgspec.structs.replace(
            self._header,
            coverage=coverage,
            run_failure=self._run_failure,
            terminal_state=terminal_state(coverage, self._run_failure),
            elapsed_ms=elapsed_ms,
        )
