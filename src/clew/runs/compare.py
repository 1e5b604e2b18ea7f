"""Compares the findings of two runs: what is new, what persists, what is resolved, what nobody looked at again.

Two findings are the same by `finding.identity`: path, category and snippet, without a line number. Equal ones are
matched as a multiset. A finding in a file that the later run did not decide is "not reviewed", never "resolved".
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from clew.runs.finding import Finding, findings_of, identity, sort_key

if TYPE_CHECKING:
    from collections.abc import Iterable

    from clew.runs.checkpoints import RunState
    from clew.runs.manifest import Manifest


class Comparison(Struct, frozen=True):
    """Four disjoint lists, each sorted; of a persisting finding the later run's copy is kept."""

    new: tuple[Finding, ...] = ()
    persisting: tuple[Finding, ...] = ()
    resolved: tuple[Finding, ...] = ()
    not_reviewed: tuple[Finding, ...] = ()


def compare_findings(before: Iterable[Finding], after: Iterable[Finding], manifest: Manifest | None) -> Comparison:
    """Returns how the later findings differ from the earlier ones; `manifest` is that of the later run.

    Renames follow it; without one, whatever is not matched counts as resolved.
    """
    renames = _renames(manifest)
    earlier: dict[tuple[str, str, str], list[Finding]] = defaultdict(list)
    for finding in sorted(before, key=sort_key):
        moved = msgspec.structs.replace(finding, path=renames.get(finding.path, finding.path))
        earlier[identity(moved)].append(moved)
    later: dict[tuple[str, str, str], list[Finding]] = defaultdict(list)
    for finding in sorted(after, key=sort_key):
        later[identity(finding)].append(finding)
    decided = _decided(manifest)
    new: list[Finding] = []
    persisting: list[Finding] = []
    resolved: list[Finding] = []
    unseen: list[Finding] = []
    for name in earlier.keys() | later.keys():
        old, now = earlier.get(name, []), later.get(name, [])
        both = min(len(old), len(now))
        persisting += now[:both]
        new += now[both:]
        gone = old[both:]
        (resolved if decided is None or name[0] in decided else unseen).extend(gone)
    return Comparison(*(tuple(sorted(group, key=sort_key)) for group in (new, persisting, resolved, unseen)))


def _renames(manifest: Manifest | None) -> dict[str, str]:
    if manifest is None:
        return {}
    selected = manifest.coverage.selected
    # A path that the later run itself selected is no old name: two files may have changed places.
    present = {item.path for item in selected}
    return {item.old_path: item.path for item in selected if item.old_path and item.old_path not in present}


def _decided(manifest: Manifest | None) -> frozenset[str] | None:
    if manifest is None:
        return None
    covered = manifest.coverage
    return frozenset(item.path for item in (*covered.completed, *covered.reused))


def all_findings(state: RunState) -> tuple[Finding, ...]:
    """Returns every finding of a run's last checkpoints, in their one order."""
    found = [f for item in state.checkpoints.values() for f in findings_of(item.result)]
    return tuple(sorted(found, key=sort_key))


def compare_runs(before: RunState, after: RunState) -> Comparison:
    """Returns how the findings of one run differ from those of an earlier one."""
    return compare_findings(all_findings(before), all_findings(after), after.manifest)
