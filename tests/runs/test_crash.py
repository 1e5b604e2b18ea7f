"""Kill -9 at every boundary of a run and inside its log's writes; then the resume does exactly the rest.

Each try forks a child that carries out a run and is killed at a chosen point. "Paid" is a line in a ledger that the
work itself appends before it answers. What the log vouches for is worked out here by hand, not by the code under test.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import uuid
from collections import Counter
from pathlib import Path

import pytest

from clew.errors import RunError
from clew.platform import faults
from clew.platform.clock import SystemClock
from clew.runs import log
from clew.runs.engine import RunOptions, RunResult, RunSettings, carry_out
from clew.runs.log import WriteBytes
from clew.runs.operation import Done, Item, ItemContext, ItemFailed
from clew.runs.summary import list_runs
from runs.toys import Toy, echo

CONTENTS = {f"{name}.py": name * 3 for name in "abcdefg"}
BROKEN = "d.py"

Kill = tuple[str, int, float]
"""(fault point, its pass) or ("write", the n-th write, which part of it is written before the kill)."""


class KilledWrite:
    """Writes a part of the n-th write and kills the process."""

    def __init__(self, number: int, part: float) -> None:
        self.number = number
        self.part = part

    def __call__(self, fd: int, data: bytes) -> int:
        self.number -= 1
        if self.number == 0:
            os.write(fd, data[: int(len(data) * self.part)])
            os.kill(os.getpid(), signal.SIGKILL)
        return os.write(fd, data)


class Shop:
    """One folder of runs with its ledger of what was paid."""

    def __init__(self, folder: Path, concurrency: int) -> None:
        self.runs = folder / "runs"
        self.ledger = folder / "ledger"
        self.concurrency = concurrency
        self.ledger.touch()

    def paid(self) -> Counter[str]:
        return Counter(self.ledger.read_text().split())

    def carry_out(self, parent: str, write: WriteBytes = os.write) -> RunResult:
        ledger = os.open(self.ledger, os.O_WRONLY | os.O_APPEND)

        def work(item: Item, context: ItemContext) -> Done:
            os.write(ledger, f"{item.path}\n".encode())
            if item.path == BROKEN and not parent:
                raise ItemFailed("provider", "HTTP 500")
            return echo(item, context)

        settings = RunSettings(self.runs, SystemClock(), lambda: uuid.uuid4().hex, write=write)
        options = RunOptions(concurrency=self.concurrency)
        try:
            return carry_out(Toy(CONTENTS, work), settings, options, parent=parent)
        finally:
            os.close(ledger)

    def killed(self, parent: str, kill: Kill) -> tuple[str, bool]:
        """Carries out a run in a child that is killed; returns its id ("" when it left no log) and whether it died."""
        before = {run.run_id for run in list_runs(self.runs)}
        child = os.fork()
        if child == 0:
            try:
                point, number, part = kill
                if point != "write":
                    faults.install(f"{point}@{number}=kill")
                self.carry_out(parent, KilledWrite(number, part) if point == "write" else os.write)
            finally:
                os._exit(0)
        _, status = os.waitpid(child, 0)
        new = [run.run_id for run in list_runs(self.runs) if run.run_id not in before]
        return (new[0] if new else ""), os.WIFSIGNALED(status)

    def vouched(self, run_id: str) -> set[str] | None:
        """Returns the paths whose results stand whole in a run's log; None when it never sealed its input."""
        [path] = self.runs.rglob(f"{run_id}.jsonl")
        whole = [json.loads(line) for line in path.read_bytes().split(b"\n")[:-1]]
        types = [record["type"] for record in whole]
        if log.RUN_SEALED not in types:
            return None
        return {r["file"] for r in whole if r["type"] in (log.ITEM_DONE, log.ITEM_REUSED)}


def results(result: RunResult) -> dict[str, object]:
    return {name: item.result for name, item in result.items.items()}


def kill_and_resume(folder: Path, kills: list[Kill], concurrency: int) -> None:
    """Kills one run after another, each going on from the last that sealed its input, and finishes undisturbed."""
    shop = Shop(folder, concurrency)
    parent = ""
    final: set[str] = set()
    cut_off: Counter[str] = Counter()
    for kill in kills:
        before = shop.paid()
        run_id, died = shop.killed(parent, kill)
        newly = shop.paid() - before
        vouched = shop.vouched(run_id) if run_id else None
        if vouched is None:
            assert not newly, "nothing is paid for before the input is sealed"
            if run_id:
                with pytest.raises(RunError) as caught:
                    shop.carry_out(run_id)
                assert caught.value.concerns["row"] in ("b", "1"), "b when not even the start is whole"
            continue
        assert final <= vouched, "what was final stays final"
        assert not (set(newly) & final), "what was final is not paid for again"
        cut_off.update(path for path in newly if path not in vouched)
        [told] = [run for run in list_runs(shop.runs) if run.run_id == run_id]
        assert told.reusable == len(vouched)
        assert told.state == "aborted" if died and told.legacy else told.state in ("partial", "complete")
        parent, final = run_id, vouched
    before = shop.paid()
    result = shop.carry_out(parent or "")
    if not parent:
        result = shop.carry_out(result.manifest.run_id)
        final = set(CONTENTS) - {BROKEN}
        assert {i.path for i in result.manifest.coverage.reused} == final
        return
    assert {i.path for i in result.manifest.coverage.reused} == final
    assert set(shop.paid() - before) == set(CONTENTS) - final
    assert result.manifest.terminal_state == "complete"
    # Each item is paid for once, and once more for each time that it was cut off before its checkpoint (or failed).
    for path, count in shop.paid().items():
        assert count == 1 + cut_off[path], path
    (folder / "control").mkdir()
    control = Shop(folder / "control", 1)
    first = control.carry_out("")
    assert results(result) == results(control.carry_out(first.manifest.run_id))


BOUNDARIES: list[Kill] = [
    ("run.before-seal", 1, 0),
    ("run.after-seal", 1, 0),
    *(("run.before-checkpoint", n, 0) for n in range(1, len(CONTENTS) + 1)),
    *(("run.after-checkpoint", n, 0) for n in range(1, len(CONTENTS) + 1)),
    ("run.before-end", 1, 0),
]


@pytest.mark.parametrize("kill", BOUNDARIES, ids=lambda kill: f"{kill[0]}@{kill[1]}")
def test_scenario_122_killed_at_every_item_boundary(tmp_path: Path, kill: Kill) -> None:
    kill_and_resume(tmp_path, [kill], concurrency=1)


@pytest.mark.parametrize("number", range(1, 4 + len(CONTENTS)))
def test_scenario_122_killed_inside_every_write_of_the_log(tmp_path: Path, number: int) -> None:
    kill_and_resume(tmp_path, [("write", number, 0.5)], concurrency=1)


def any_kill(chance: random.Random) -> Kill:
    if chance.random() < 0.5:
        return "write", chance.randint(1, len(CONTENTS) + 3), chance.random()
    return chance.choice(BOUNDARIES)


def kill_at_random(folder: Path, seed: int) -> None:
    chance = random.Random(seed)
    kills = [any_kill(chance) for _ in range(chance.randint(1, 4))]
    kill_and_resume(folder, kills, concurrency=chance.choice([1, 1, 2, 4]))


# Daily a few random points; the long form (scripts/law) takes two hundred.
SEEDS = range(200 if os.environ.get("CLEW_LAW") else 12)


@pytest.mark.parametrize("seed", SEEDS)
def test_killed_again_and_again_at_random_points(tmp_path: Path, seed: int) -> None:
    kill_at_random(tmp_path, seed)


RESUME = """
import os, sys, uuid
from pathlib import Path
from clew.errors import RunError
from clew.platform.clock import SystemClock
from clew.runs.engine import RunSettings, carry_out
from runs.toys import Toy, echo

folder, parent = Path(sys.argv[1]), sys.argv[2]


def work(item, context):
    with open(folder / "ledger", "a") as ledger:
        ledger.write(item.path + "\\n")
    print("asked", flush=True)
    sys.stdin.readline()
    return echo(item, context)


contents = {name + ".py": name * 3 for name in "abcdefg"}
settings = RunSettings(folder / "runs", SystemClock(), lambda: uuid.uuid4().hex)
try:
    done = carry_out(Toy(contents, work), settings, parent=parent)
except RunError as error:
    print(error.code, flush=True)
else:
    print(done.manifest.terminal_state, flush=True)
"""


def test_of_two_resumes_of_one_killed_run_one_goes_on_and_the_other_is_refused(tmp_path: Path) -> None:
    shop = Shop(tmp_path, 1)
    parent, died = shop.killed("", ("run.before-checkpoint", 3, 0))
    assert died
    before = shop.paid()
    command = [sys.executable, "-c", RESUME, str(tmp_path), parent]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    both = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
        for _ in range(2)
    ]
    try:
        # The one that goes on holds at its first item until the other has had its say.
        said = [process.stdout.readline().strip() for process in both if process.stdout]
        assert sorted(said) == ["asked", "run_active"]
        [told] = [run for run in list_runs(shop.runs) if run.run_id == parent]
        assert told.state == "aborted", "the parent does not run"
        [goes_on] = [process for process, first in zip(both, said, strict=True) if first == "asked"]
        rest, _ = goes_on.communicate("\n" * len(CONTENTS), timeout=60)
        assert rest.split()[-1] == "complete"
    finally:
        for process in both:
            process.kill()
            process.communicate()
    assert sorted((shop.paid() - before).elements()) == ["c.py", "d.py", "e.py", "f.py", "g.py"]
    assert len(list_runs(shop.runs)) == 2, "the refused one left nothing"
