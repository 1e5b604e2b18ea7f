"""Something changed between an interruption and its resume: every variant stops, and only its own acceptance helps.

The values are those of the fault collection's case 32, which is asked itself where it stands beside the checkout.
"""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from clew.errors import RunError
from clew.platform import faults
from clew.runs.engine import RunOptions, RunSettings, carry_out
from clew.runs.fingerprint import tree_digest
from clew.runs.folder import get_run
from clew.runs.lineage import Target
from clew_corpus import shared_dir
from runs.toys import Toy, echo, make_settings, tree_of

RECORDED: dict[str, Any] = {
    "input_sha256": "1" * 64,
    "rules_sha256": "2" * 64,
    "repository": {"root": "/home/dev1/work/shop", "head": "3" * 40, "dirty": False},
    "provider": "openai",
    "model": "gpt-6-astra",
}
NOW: dict[str, dict[str, Any]] = {
    "same": {},
    "input": {"input_sha256": "0" * 64},
    "rules": {"rules_sha256": "0" * 64},
    "head": {"repository": RECORDED["repository"] | {"head": "4" * 40}},
    "head-unknown": {"repository": RECORDED["repository"] | {"head": None}},
    "dirty": {"repository": RECORDED["repository"] | {"dirty": True}},
    "dirty-unknown": {"repository": RECORDED["repository"] | {"dirty": None}},
    "root": {"repository": RECORDED["repository"] | {"root": "/home/dev1/work/shop-copy"}},
    "provider": {"provider": "azure"},
    "model": {"model": "gpt-6-mini"},
    "model-unknown": {"model": None},
}
CODES = {
    "input": "input_changed",
    "rules": "rules_changed",
    "head": "input_changed",
    "head-unknown": "input_changed",
    "dirty": "input_changed",
    "dirty-unknown": "input_changed",
    "root": "input_changed",
    "provider": "provider_changed",
    "model": "model_changed",
    "model-unknown": "model_changed",
}


class Worked(Toy):
    """Two steps in the user's own tree, with the facts of a case."""

    def __init__(self, facts: dict[str, Any]) -> None:
        where = facts["repository"]
        dirty = None if where["dirty"] is None else str(where["dirty"])
        self.steps: list[str] = []

        def work(item: Any, context: Any) -> Any:
            self.steps.append(item.path)
            return echo(item, context)

        super().__init__(
            {f"step {n}": str(facts["input_sha256"]) for n in (1, 2, 3)},
            work,
            rules=(str(facts["rules_sha256"]),),
            target=Target(facts["provider"] or "", facts["model"] or ""),
            tree=tree_digest(where["root"], where["head"], dirty),
        )


def interrupted(folder: Path, facts: dict[str, Any]) -> tuple[RunSettings, str]:
    """A run that was killed after two of its three steps."""
    settings = make_settings(folder, "first")
    with faults.installed("run.before-checkpoint@3=raise"), pytest.raises(BaseException):  # noqa: B017 - the fault's own
        carry_out(Worked(facts), settings)
    run = get_run(folder, "first-1")
    whole = run.path.read_bytes().splitlines(keepends=True)
    run.path.write_bytes(b"".join(line for line in whole if b'"run_end"' not in line and b'"item_failed"' not in line))
    assert len(run.load().chained) == 2
    return make_settings(folder, "second"), run.run_id


def variants() -> list[tuple[str, dict[str, Any], dict[str, Any], str]]:
    """(name, recorded, now, expected code): our own, then the collection's."""
    found = [(name, RECORDED, RECORDED | change, CODES.get(name, "")) for name, change in NOW.items()]
    base = shared_dir()
    folder = base / "cases" / "32-interrupted-run-changed-manifest" if base else None
    if folder is not None and folder.is_dir():
        case = json.loads((folder / "case.json").read_text())
        recorded = json.loads((folder / "manifest.json").read_text())
        changes = json.loads((folder / "now.json").read_text())
        for name, verdict in case["expected"]["verdicts"].items():
            assert (verdict == "resume") is (name not in CODES)
            found.append((f"collection-{name}", recorded, recorded | changes[name], CODES.get(name, "")))
    return found


@pytest.mark.parametrize(
    ("name", "recorded", "now", "code"), variants(), ids=lambda value: value if isinstance(value, str) else ""
)
def test_each_variant_stops_or_resumes(
    tmp_path: Path, name: str, recorded: dict[str, Any], now: dict[str, Any], code: str
) -> None:
    settings, parent = interrupted(tmp_path, recorded)
    operation = Worked(now)
    before = tree_of(tmp_path)
    if not code:
        done = carry_out(operation, settings, parent=parent)
        assert operation.steps == ["step 3"]
        assert done.manifest.parent_interrupted
        return
    with pytest.raises(RunError) as caught:
        carry_out(operation, settings, parent=parent)
    assert caught.value.code == code
    first = caught.value.concerns["differences"][0]  # type: ignore[index]
    assert first["field"]
    assert first["recorded"] != first["now"]
    assert operation.steps == []
    assert tree_of(tmp_path) == before


def test_only_the_acceptance_of_exactly_the_changed_field_helps_and_it_is_written_down(tmp_path: Path) -> None:
    settings, parent = interrupted(tmp_path, RECORDED)
    other = copy.deepcopy(RECORDED) | {"model": "gpt-6-mini"}
    both = other | {"rules_sha256": "0" * 64}
    with pytest.raises(RunError) as caught:
        carry_out(Worked(both), settings, RunOptions(explicit_model=True), parent=parent)
    assert caught.value.code == "rules_changed", "another difference is not accepted with it"
    with pytest.raises(RunError) as caught:
        carry_out(Worked(RECORDED | {"provider": "azure"}), settings, RunOptions(explicit_model=True), parent=parent)
    assert caught.value.code == "provider_changed"
    second = carry_out(Worked(other), settings, RunOptions(explicit_model=True), parent=parent).manifest
    told = get_run(tmp_path, second.run_id).load().lineage
    assert told is not None
    assert (told.source.model, told.target.model) == ("gpt-6-astra", "gpt-6-mini")
    for later, code in ((RECORDED, "model_changed"), (other | {"provider": "azure"}, "provider_changed")):
        with pytest.raises(RunError) as caught:
            carry_out(Worked(later), settings, parent=second.run_id)
        assert caught.value.code == code, "a later difference stops again"
