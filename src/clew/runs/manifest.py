"""The manifest: what one run was asked to do, what it covered, and how it ended.

A manifest is made once, by `builder.ManifestBuilder`, and never changes; the same value goes to the command's JSON and
to the run's log. `validate` states what every manifest fulfils. Labels and digests only: no token, endpoint, rule text
or configuration ever stands in one.
"""

from __future__ import annotations

from typing import Literal, get_args

import msgspec
from msgspec import Struct

SCHEMA = "clew.run-manifest/v1"

TerminalState = Literal["complete", "partial", "failed", "skipped"]
FailureClass = Literal["provider", "timeout", "cancelled", "configuration", "input", "budget", "panic", "unknown"]
RunFailureClass = Literal["input", "configuration", "timeout", "cancelled", "budget", "internal", "unknown"]

FAILURE_CLASSES: frozenset[str] = frozenset(get_args(FailureClass))
RUN_FAILURE_CLASSES: frozenset[str] = frozenset(get_args(RunFailureClass))

NO_OUTCOME = "no terminal outcome recorded"
"""The reason of an item that was selected and never decided, when nothing else explains it."""


class ManifestError(ValueError):
    """A manifest, or a change to one, would break a rule of manifests: a defect of the caller."""


class CoverageItem(Struct, frozen=True, omit_defaults=True, gc=False):
    """One item in one set of the coverage; class only when it failed, reason when it failed or was waived."""

    item_id: str
    path: str = ""
    old_path: str = ""
    fingerprint: str = ""
    classification: str = ""
    reason: str = ""


class Repository(Struct, frozen=True):
    """The repository of a run, by the digest of its remote's identity; empty when there is no remote."""

    identity_sha256: str = ""


class RunInput(Struct, frozen=True):
    """What a run worked on: as typed (`requested`), and as it was resolved before the run existed."""

    mode: str
    requested_from: str = ""
    requested_head: str = ""
    resolved_base: str = ""
    resolved_head: str = ""
    exact_range: str = ""
    source_artifact_sha256: str = ""
    snapshot_tree: str = ""


class Execution(Struct, frozen=True):
    """How a run was carried out, in labels and digests."""

    version: str = ""
    provider: str = ""
    model: str = ""
    configured_concurrency: int = 1
    rule_config_sha256: str = ""
    runtime_config_sha256: str = ""


class Coverage(Struct, frozen=True):
    """The selected items and what became of each; arrays are sorted by item id."""

    selected: tuple[CoverageItem, ...] = ()
    completed: tuple[CoverageItem, ...] = ()
    reused: tuple[CoverageItem, ...] = ()
    failed: tuple[CoverageItem, ...] = ()
    waived: tuple[CoverageItem, ...] = ()


class RunFailure(Struct, frozen=True):
    """Why a run as a whole failed."""

    classification: str
    reason: str = ""


class Manifest(Struct, frozen=True, omit_defaults=False):
    """The immutable record of one run. A sealed one, before the end, has no state and only `selected` items."""

    run_id: str
    operation: str
    input: RunInput
    schema_version: str = SCHEMA
    parent_run_id: str = ""
    parent_interrupted: bool = False
    terminal_state: str = ""
    repository: Repository = Repository()
    execution: Execution = Execution()
    coverage: Coverage = Coverage()
    run_failure: RunFailure | None = None
    elapsed_ms: int = 0


def terminal_state(coverage: Coverage, run_failure: RunFailure | None) -> TerminalState:
    """Returns the state a run ends in; findings and warnings never count."""
    if run_failure is not None:
        return "failed"
    if not coverage.selected:
        return "skipped"
    if not coverage.failed:
        return "complete"
    return "failed" if len(coverage.failed) == len(coverage.selected) else "partial"


def validate(manifest: Manifest, modes: frozenset[str]) -> None:
    """Raises ManifestError when `manifest` breaks a rule; `modes` are those its operation knows."""
    if not manifest.run_id:
        raise ManifestError("the run has no id")
    if not manifest.operation:
        raise ManifestError("the run has no operation")
    _validate_input(manifest, modes)
    _validate_partition(manifest.coverage)
    for item in manifest.coverage.failed:
        if item.classification not in FAILURE_CLASSES:
            raise ManifestError(f"item {item.item_id} failed with the unknown class {item.classification!r}")
    for item in manifest.coverage.waived:
        if not item.reason.strip():
            raise ManifestError(f"item {item.item_id} was waived without a reason")
    failure = manifest.run_failure
    if failure is not None and failure.classification not in RUN_FAILURE_CLASSES:
        raise ManifestError(f"the run failed with the unknown class {failure.classification!r}")


def _validate_input(manifest: Manifest, modes: frozenset[str]) -> None:
    given = manifest.input
    if given.mode not in modes:
        known = ", ".join(sorted(modes))
        raise ManifestError(f"{manifest.operation} has no mode {given.mode!r}; its modes are {known}")
    if not given.snapshot_tree:
        return
    # An index is no commit: a manifest that named both could be taken for a review of the commit.
    refs = (given.resolved_head, given.exact_range, given.requested_from, given.requested_head)
    if any(refs) or manifest.parent_run_id:
        raise ManifestError("a run over the index carries no commit, range, typed ref or parent")


def _validate_partition(coverage: Coverage) -> None:
    selected = [item.item_id for item in coverage.selected]
    decided = [
        item.item_id
        for items in (coverage.completed, coverage.reused, coverage.failed, coverage.waived)
        for item in items
    ]
    if "" in selected:
        raise ManifestError("a selected item has no id")
    if len(decided) != len(selected) or sorted(decided) != sorted(selected):
        raise ManifestError(f"{len(selected)} items were selected and {len(decided)} decided")


def read_manifest(data: object) -> tuple[str, Manifest | None]:
    """Returns (schema version, manifest) of a decoded JSON value.

    The manifest is None when the schema is another one, or when the value is no manifest of this schema; the version
    is empty when the value names none.
    """
    if not isinstance(data, dict):
        return "", None
    members: dict[str, object] = {str(k): v for k, v in data.items()}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    version = members.get("schema_version")
    if not isinstance(version, str):
        return "", None
    if version != SCHEMA:
        return version, None
    try:
        return version, msgspec.convert(members, Manifest)
    except msgspec.ValidationError:
        return version, None
