"""Kill a real process at every named point of a session's life, start again, and count.

In every run: no message reached the agent twice, by the agent's own durable log; nothing that was acknowledged is gone
from the journal; attaching afterwards succeeds, or refuses with a reason that goes away by proof. The long form (every
commit of every life, every death of the agent) runs with the marker `law`, and says how many points and runs it took.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import pytest

from clew.host.fake import deliveries
from crash_worker import said
from live_world import CONVERSATION

TESTS = Path(__file__).resolve().parents[1]
MINE = ("attach.", "send.", "renew.", "evict.", "close.", "lease.", "journal.")
DEATHS = ("before-handshake", "after-handshake", "on-receive", "before-record", "recorded", "answered")


class Worker:
    """The process that forks one process for each life."""

    def __init__(self):
        env = {"PYTHONPATH": str(TESTS), "PATH": os.defpath, "PYTHONDONTWRITEBYTECODE": "1"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "crash_worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=env,
            text=True,
        )

    def ask(self, **order):
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def close(self):
        self.process.stdin.close()
        self.process.wait(20)
        self.process.stdout.close()


@pytest.fixture
def place(tmp_path):
    """A folder in memory where there is one: a kill is no power cut, and a thousand syncs are slow on a disk."""
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=memory) as name:
        yield Path(name)


@pytest.fixture(scope="module")
def worker():
    made = Worker()
    yield made
    made.close()


def check_life(worker, folder, *, spec="", end="release", script=None, next_script=None):
    """Lives one life with a fault, then the next one, and counts; returns how the first one ended."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    first = worker.ask(act="live", folder=str(folder), spec=spec, end=end, script=script or {})
    told = said(folder, "live")
    where = f"{spec} {end} {script}: {told}"
    assert not any("defect" in one for one in told), where
    count_deliveries(folder, where)
    check_next(worker, folder, told, next_script, where)
    return first


def count_deliveries(folder, where):
    counted = Counter(deliveries(folder / "agent", CONVERSATION))
    assert all(number == 1 for number in counted.values()), f"{where}: delivered twice: {counted}"


def check_next(worker, folder, told, script, where):
    for _ in range(30):
        second = worker.ask(act="again", folder=str(folder), script=script or {})
        found = said(folder, "again")
        if second["status"] == 3 and found[-1].get("reason") in ("owner_unproven", "owner_alive", "host_reconciling"):
            # The agent of the killed process is still reading its closed input: it ends, and that is the proof.
            (folder / "again.said").unlink()
            continue
        break
    assert second == {"signal": 0, "status": 0}, f"{where}\nthen {found}"
    count_deliveries(folder, where)
    standings = next(one["standings"] for one in found if "standings" in one)
    delivered = set(deliveries(folder / "agent", CONVERSATION))
    for one in told:
        if one.get("state") == "accepted":
            assert standings[one["sent"]] == "accepted", f"{where}: an acknowledged message is gone"
    for client_id, state in standings.items():
        if state == "accepted":
            assert client_id in delivered, f"{where}: accepted, but it never arrived"
        if state == "rejected":
            assert client_id not in delivered, f"{where}: rejected, but it arrived"
    fences = [one["attached"] for one in (*told, *found) if "attached" in one]
    assert fences == sorted(set(fences)), f"{where}: a fence was granted twice"


def points_of(worker):
    return [point for point in worker.ask(act="points")["points"] if point.startswith(MINE)]


def test_a_life_without_faults(worker, place):
    assert check_life(worker, place / "life") == {"signal": 0, "status": 0}
    assert check_life(worker, place / "life", end="evict") == {"signal": 0, "status": 0}


def test_killed_at_every_point_nothing_is_delivered_twice_and_nothing_is_lost(worker, place):
    killed, runs = set(), 0
    points = points_of(worker)
    assert len(points) > 25
    for point in points:
        for end in ("release", "evict") if point.startswith(("evict.", "close.")) else ("release",):
            ended = check_life(worker, place / "life", spec=f"{point}=kill", end=end)
            runs += 1
            if ended["signal"] == 9:
                killed.add(point)
    for point in set(points) - killed:
        # Passed only where something is to be judged or repaired: by the process that finds what a kill left.
        killed |= {point} if killed_cleaning_up(worker, place / "life", "attach.proved", point) else set()
        runs += 1
    assert set(points) == killed
    print(f"{len(points)} points, {runs} runs")


def killed_cleaning_up(worker, folder, first, point):
    """Kills a life at one point and the next one at another, then lets a third one count; tells if both were killed."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    end = "evict" if first.startswith("evict") else "release"
    worker.ask(act="live", folder=str(folder), spec=f"{first}=kill", end=end)
    ended = worker.ask(act="again", folder=str(folder), spec=f"{point}=kill")
    told = said(folder, "live") + said(folder, "again")
    (folder / "again.said").unlink(missing_ok=True)
    where = f"{first}, then {point}"
    assert not any("defect" in one for one in told), f"{where}: {told}"
    count_deliveries(folder, where)
    check_next(worker, folder, [one for one in told if "sent" in one], None, where)
    return ended["signal"] == 9


@pytest.mark.parametrize("death", DEATHS)
def test_the_agent_dies_where_it_likes(worker, place, death):
    for echo in (True, False):
        check_life(worker, place / "life", script={"die": death, "echo": echo}, next_script={"echo": echo})


@pytest.mark.law
def test_killed_at_every_commit_and_every_second_pass(worker, place):
    """Every pass of every point, every commit, both ends, with an agent that echoes ids and with one that does not."""
    runs = kills = 0
    points = [*points_of(worker), "store.before-commit", "store.after-commit", "records.before-witness"]
    for point in points:
        for end in ("release", "evict"):
            for echo in (True, False):
                for number in range(1, 60):
                    ended = check_life(
                        worker,
                        place / "life",
                        spec=f"{point}@{number}=kill",
                        end=end,
                        script={"echo": echo},
                        next_script={"echo": echo},
                    )
                    runs += 1
                    if ended["signal"] != 9:
                        break
                    kills += 1
    print(f"{len(points)} points, {runs} runs, {kills} kills")


@pytest.mark.law
def test_killed_twice(worker, place):
    """The process that cleans up is killed as well, at every point it passes; a third one ends it."""
    runs = 0
    first = ("attach.spawned", "attach.proved", "send.claimed", "send.answered", "evict.evicted", "close.released")
    for start in first:
        for point in (*points_of(worker), "store.before-commit@2", "store.before-commit@4"):
            killed_cleaning_up(worker, place / "life", start, point)
            runs += 1
    print(f"{len(first)} first kills, {runs} runs")
