"""Admission: each row alone and in all pairs; nothing is written by a rejection."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clew.errors import RunError
from clew.runs.admission import Asked, Identity, admit, find_differences
from clew.runs.checkpoints import RunState, replay
from clew.runs.engine import RunOptions, carry_out
from clew.runs.fingerprint import tree_digest
from clew.runs.lineage import Target
from clew.runs.manifest import SCHEMA, Coverage, CoverageItem, Execution, Manifest, Repository, RunInput
from clew.runs.operation import Sealed
from runs.toys import MODES, Toy, make_settings, tree_of


@dataclass
class Attempt:
    """A parent and a command, as one value that rows are broken in."""

    mode_asked: str = "range"
    mode_started: str = "range"
    manifest: bool = True
    closed: bool = True
    interrupted: bool = False
    schema: str = SCHEMA
    operation: str = "review"
    selected: bool = True
    mode_recorded: str = "range"
    repository: str = "r" * 64
    artifact: str = "a" * 64
    rules: str = "u" * 64
    provider: str = "openai"
    model: str = "m-1"
    asked_provider: str = "openai"
    asked_model: str = "m-1"
    more: dict[str, bool] = field(default_factory=dict)

    def parent_log(self) -> bytes:
        manifest = Manifest(
            run_id="p",
            operation=self.operation,
            schema_version=self.schema,
            input=RunInput(self.mode_recorded, source_artifact_sha256=self.artifact),
            repository=Repository(self.repository),
            execution=Execution(provider=self.provider, model=self.model, rule_config_sha256=self.rules),
            coverage=Coverage(selected=(CoverageItem("i"),) if self.selected else ()),
            terminal_state="failed",
        )
        records: list[dict[str, object]] = [
            {"type": "run_start", "uuid": "1", "runId": "p", "mode": self.mode_started, "cwd": "/home/dev/shop"}
        ]
        if self.interrupted:
            records.append(
                {"type": "run_sealed", "uuid": "2", "parentUuid": "1", "manifest": msgspec.to_builtins(manifest)}
            )
        elif self.closed:
            told = {"run_manifest": msgspec.to_builtins(manifest)} if self.manifest else {}
            records.append({"type": "run_end", "uuid": "2", "parentUuid": "1", **told})
        elif self.manifest:
            raise AssertionError("an unclosed run has no manifest")
        return b"".join(json.dumps(record).encode() + b"\n" for record in records)

    def parent(self) -> RunState:
        return replay(self.parent_log(), "p")

    def asked(self) -> Asked:
        return Asked(
            identity=Identity("review", self.mode_asked, "a" * 64, "u" * 64, "r" * 64),
            target=Target(self.asked_provider, self.asked_model),
            modes=MODES,
            resumable_hint="--from/--to or --commit",
            **self.more,
        )


def set_to(**values: object) -> Callable[[Attempt], None]:
    def change(attempt: Attempt) -> None:
        for name, value in values.items():
            setattr(attempt, name, value)

    return change


ROWS: list[tuple[str, str, Callable[[Attempt], None]]] = [
    (
        "a",
        "resuming requires --from/--to or --commit",
        set_to(mode_asked="workspace", mode_started="workspace", mode_recorded="workspace"),
    ),
    ("b", "it ran in mode commit, and", set_to(mode_started="commit")),
    ("1", "interrupted before it closed", set_to(manifest=False, closed=False)),
    ("2", "closed without a run manifest", set_to(manifest=False)),
    ("3", "clew.run-manifest/v9, and this clew knows clew.run-manifest/v1", set_to(schema="clew.run-manifest/v9")),
    ("4", "it is a run of translate, and review was asked for", set_to(operation="translate")),
    ("5", "selected nothing", set_to(selected=False)),
    ("6", "its input was of mode commit, and now", set_to(mode_recorded="commit")),
    ("7", "not the repository it worked on", set_to(repository="")),
    ("8", "its input changed", set_to(artifact="b" * 64)),
    ("9", "recorded no digest of its rules", set_to(rules="")),
    ("10", "its rules changed", set_to(rules="v" * 64)),
    ("11", "pass `--provider azure`", set_to(asked_provider="azure")),
    ("12", "pass `--model m-2`", set_to(asked_model="m-2")),
]
ORDER = [row for row, _, _ in ROWS]
# No run is both open and closed, or has both no digest of its rules and another one.
EXCLUSIVE = [{"1", "2"}, {"9", "10"}]


def decide(attempt: Attempt) -> tuple[str, str]:
    with pytest.raises(RunError) as caught:
        admit(attempt.parent(), attempt.asked())
    assert caught.value.exit_code == 5
    assert caught.value.hint
    return str(caught.value.concerns["row"]), caught.value.message


def test_an_unchanged_command_is_admitted() -> None:
    assert find_differences(Attempt().parent(), Attempt().asked()) == ()
    interrupted = Attempt(interrupted=True)
    assert find_differences(interrupted.parent(), interrupted.asked()) == ()


@pytest.mark.parametrize(("row", "message", "change"), ROWS, ids=ORDER)
def test_scenarios_97_to_102_each_row_alone_rejects_with_its_message(
    row: str, message: str, change: Callable[[Attempt], None]
) -> None:
    attempt = Attempt()
    change(attempt)
    assert decide(attempt)[0] == row
    assert message in decide(attempt)[1]


@pytest.mark.parametrize(("row", "message", "change"), ROWS[4:] + ROWS[:2], ids=ORDER[4:] + ORDER[:2])
def test_a_killed_run_is_checked_by_its_seal(row: str, message: str, change: Callable[[Attempt], None]) -> None:
    attempt = Attempt(interrupted=True)
    change(attempt)
    assert decide(attempt)[0] == row
    assert message in decide(attempt)[1]


PAIRS = [
    (low, high, interrupted)
    for low, high in itertools.combinations(range(len(ROWS)), 2)
    for interrupted in (False, True)
    if {ORDER[low], ORDER[high]} not in EXCLUSIVE
    if not (interrupted and {ORDER[low], ORDER[high]} & {"1", "2"})
]


class Stub:
    """An operation that resolves to the identity of an attempt and must never be opened."""

    name = "review"
    modes = MODES

    def __init__(self, asked: Asked) -> None:
        self.asked = asked

    def resolve(self) -> Sealed:
        given = RunInput(self.asked.identity.mode)
        return Sealed(self.asked.identity, (), given, Path("/home/dev/shop"), self.asked.target)

    def open(self, sealed: Sealed, run_id: str) -> NoReturn:
        raise AssertionError("a rejected run is not opened")


@pytest.mark.parametrize(("low", "high", "interrupted"), PAIRS)
def test_law_2_and_3_of_two_rows_the_lower_decides_and_nothing_is_written(
    low: int, high: int, interrupted: bool, tmp_path: Path
) -> None:
    attempt = Attempt(interrupted=interrupted)
    for index in (low, high):
        ROWS[index][2](attempt)
    row, message = decide(attempt)
    assert row == ORDER[low]
    assert ROWS[low][1] in message
    folder = tmp_path / "runs" / "shop-1"
    folder.mkdir(parents=True)
    (folder / "p.jsonl").write_bytes(attempt.parent_log())
    before = tree_of(tmp_path)
    options = RunOptions(resumable_hint="--from/--to or --commit")
    with pytest.raises(RunError) as caught:
        carry_out(Stub(attempt.asked()), make_settings(tmp_path / "runs"), options, parent="p")
    assert caught.value.message == message
    assert tree_of(tmp_path) == before


@settings(max_examples=80)
@given(st.sets(st.sampled_from(ORDER), min_size=1))
def test_law_2_of_several_rows_the_lowest_decides_and_all_are_named(chosen: set[str]) -> None:
    rows = chosen - {max(pair, key=ORDER.index) for pair in EXCLUSIVE if pair <= chosen}
    attempt = Attempt()
    for row, _, change in ROWS:
        if row in rows:
            change(attempt)
    found = [difference.row for difference in find_differences(attempt.parent(), attempt.asked())]
    expected = sorted(rows, key=ORDER.index)
    if rows & {"1", "2"}:
        expected = [row for row in expected if row in ("a", "b", "1", "2")]
    if "11" in rows:
        expected = [row for row in expected if row != "12"]
    if "3" in rows and not rows & {"1", "2"}:
        # Nothing in a manifest of an unknown schema is believed.
        expected = [row for row in expected if row in ("a", "b", "3")]
    assert found == expected
    assert decide(attempt)[0] == expected[0]


def test_scenario_99_no_remote_on_both_sides_is_equal() -> None:
    attempt = Attempt(repository="")
    asked = attempt.asked()
    both = msgspec.structs.replace(asked, identity=msgspec.structs.replace(asked.identity, repository_sha256=""))
    assert find_differences(attempt.parent(), both) == ()
    assert find_differences(Attempt().parent(), both)[0].row == "7"


def test_scenario_100_delta_passes_over_the_input_alone() -> None:
    assert find_differences(*pair(artifact="b" * 64, more={"delta": True})) == ()
    for other in ({"rules": "v" * 64}, {"repository": ""}, {"asked_model": "m-2"}):
        assert len(find_differences(*pair(artifact="b" * 64, more={"delta": True}, **other))) == 1


def test_scenario_101_a_typed_provider_brings_its_model() -> None:
    changed = {"asked_provider": "azure", "asked_model": "m-9"}
    assert find_differences(*pair(**changed))[0].row == "11"
    assert find_differences(*pair(**changed, more={"explicit_provider": True})) == ()
    assert find_differences(*pair(**changed, more={"explicit_model": True}))[0].row == "11"


def test_scenario_102_a_typed_model_is_accepted() -> None:
    assert find_differences(*pair(asked_model="m-2", more={"explicit_model": True})) == ()


def test_scenario_103_a_provider_without_a_name_is_written_as_a_placeholder() -> None:
    assert "--provider <name>" in decide(Attempt(asked_provider=""))[1]
    assert "--model <name>" in decide(Attempt(asked_model=""))[1]
    assert "--agent codex" in decide(Attempt(provider="agent:claude", asked_provider="agent:codex"))[1]


def pair(**values: object) -> tuple[RunState, Asked]:
    attempt = Attempt(**values)  # type: ignore[arg-type]
    return attempt.parent(), attempt.asked()


def test_an_unknown_artifact_is_a_difference_even_from_an_unknown_one() -> None:
    attempt = Attempt(artifact="")
    asked = attempt.asked()
    unknown = msgspec.structs.replace(
        asked, identity=msgspec.structs.replace(asked.identity, source_artifact_sha256="")
    )
    assert find_differences(attempt.parent(), unknown)[0].row == "8"


def test_both_modes_missing_or_unsupported() -> None:
    assert "no mode was asked for" in decide(Attempt(mode_asked=""))[1]
    assert "recorded no mode" in decide(Attempt(mode_started=""))[1]
    assert "'full' is not supported" in decide(Attempt(mode_started="full"))[1]


ASTRA = Target("openai", "gpt-6-astra")

# --- over real runs ---------------------------------------------------------------------------------------

CONTENTS = {"a.py": "1", "b.py": "2"}
REJECTED: dict[str, dict[str, object]] = {
    "8": {"contents": CONTENTS | {"b.py": "3"}},
    "10": {"rules": ("be strict",)},
    "7": {"remote": "elsewhere"},
    "11": {"target": Target("azure", "m-1")},
    "12": {"target": Target("openai", "m-2")},
    "a": {"mode": "workspace"},
    "b": {"mode": "commit"},
}


@pytest.mark.parametrize("row", REJECTED)
def test_scenario_121_and_law_3_a_rejection_leaves_every_byte(tmp_path: Path, row: str) -> None:
    settings = make_settings(tmp_path / "runs")
    parent = carry_out(Toy(CONTENTS), settings).manifest.run_id
    before = tree_of(tmp_path)
    changed: dict[str, object] = {"contents": CONTENTS} | REJECTED[row]
    with pytest.raises(RunError) as caught:
        carry_out(Toy(**changed), settings, parent=parent)  # type: ignore[arg-type]
    assert caught.value.concerns["row"] == row
    assert tree_of(tmp_path) == before


@settings(max_examples=50, deadline=None)
@given(
    contents=st.dictionaries(st.sampled_from(["a.py", "b/c.py", "d"]), st.text(max_size=5), min_size=1),
    rules=st.lists(st.text(max_size=5), max_size=3),
    remote=st.sampled_from(["", "h/x"]),
    target=st.builds(Target, st.sampled_from(["", "openai"]), st.sampled_from(["", "m"])),
    mode=st.sampled_from(["range", "commit"]),
)
def test_scenario_95_and_law_1_the_same_command_is_always_admitted(
    tmp_path_factory: pytest.TempPathFactory,
    contents: dict[str, str],
    rules: list[str],
    remote: str,
    target: Target,
    mode: str,
) -> None:
    settings = make_settings(tmp_path_factory.mktemp("runs"))

    def toy() -> Toy:
        return Toy(contents, rules=tuple(rules), remote=remote, target=target, mode=mode)

    first = carry_out(toy(), settings)
    second = carry_out(toy(), settings, RunOptions(), parent=first.manifest.run_id)
    assert len(second.manifest.coverage.reused) == len(contents)


def test_case_32_every_change_of_a_field_stops(tmp_path: Path) -> None:
    """The variants of "something changed between interruption and resume", for work in the user's own tree."""
    tree = {"root": "/home/dev/shop", "head": "3f78", "changes": "clean"}

    def toy(target: Target = ASTRA, **more: object) -> Toy:
        state: dict[str, str | None] = tree | more.pop("tree", {})  # type: ignore[operator]
        return Toy(**({"contents": CONTENTS, "target": target, "tree": tree_digest(**state)} | more))  # type: ignore[arg-type]

    settings = make_settings(tmp_path / "runs")
    parent = carry_out(toy(), settings).manifest.run_id
    variants: dict[str, tuple[str, Toy]] = {
        "input": ("source_artifact", toy(contents={"a.py": "9"})),
        "rules": ("rules", toy(rules=("other",))),
        "head": ("source_artifact", toy(tree={"head": "89e6"})),
        "dirty": ("source_artifact", toy(tree={"changes": "dirty"})),
        "root": ("source_artifact", toy(tree={"root": "/home/dev/shop-copy"})),
        "root unknown": ("source_artifact", toy(tree={"root": None})),
        "provider": ("provider", toy(Target("azure", "gpt-6-astra"))),
        "model": ("model", toy(Target("openai", "gpt-6-mini"))),
        "model-unknown": ("model", toy(Target("openai", ""))),
    }
    for name, (expected, operation) in variants.items():
        before = tree_of(tmp_path)
        with pytest.raises(RunError) as caught:
            carry_out(operation, settings, parent=parent)
        [difference] = caught.value.concerns["differences"]  # type: ignore[misc]
        assert difference["field"] == expected, name
        assert difference["recorded"] != difference["now"], name
        assert tree_of(tmp_path) == before, name
    assert carry_out(toy(), settings, parent=parent).manifest.terminal_state == "complete"


def test_an_accepted_change_is_written_down_and_accepts_no_later_one(tmp_path: Path) -> None:
    settings = make_settings(tmp_path / "runs")
    parent = carry_out(Toy(CONTENTS), settings).manifest.run_id
    other = Toy(CONTENTS, target=Target("azure", "m-5"))
    child = carry_out(other, settings, RunOptions(explicit_provider=True), parent=parent)
    assert child.manifest.execution.provider == "azure"
    assert b'"source":{"provider":"openai","model":"m-1"},"target":{"provider":"azure","model":"m-5"}' in (
        child.log_path.read_bytes()
    )
    with pytest.raises(RunError, match="model m-5"):
        carry_out(Toy(CONTENTS, target=Target("azure", "m-6")), settings, parent=child.manifest.run_id)
