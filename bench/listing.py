"""`clew ls` over many sessions, cold (nothing remembered) and warm: wall and CPU seconds of the whole command.

Usage: python bench/listing.py [SESSIONS] [MEAN_KB]. Makes its sessions in a temporary folder and removes it.
"""

from __future__ import annotations

import random
import resource
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path

import sessions


def measure(command: list[str]) -> tuple[float, float, int]:
    """Returns wall seconds, CPU seconds and the number of lines printed."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    done = subprocess.run(command, capture_output=True, check=True)
    wall = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return wall, cpu, done.stdout.count(b"\n")


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    mean_kb = int(sys.argv[2]) if len(sys.argv) > 2 else 200
    rng = random.Random(7)
    clew = str(Path(sys.executable).with_name("clew"))
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        lines = list(sessions.claude_lines(4_000_000, "SESSION-ID", "/SESSION/CWD"))
        total = 0
        for number in range(count):
            session_id = str(uuid.UUID(int=rng.getrandbits(128), version=4))
            cwd = f"/home/dev1/proj/p{number % 20}"
            size = int(rng.lognormvariate(0, 0.8) * mean_kb * 1000 / 1.38)
            path = home / ".claude" / "projects" / cwd.replace("/", "-") / f"{session_id}.jsonl"
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("w") as file:
                made = 0
                for line in lines:
                    made += file.write(line.replace("SESSION-ID", session_id).replace("/SESSION/CWD", cwd))
                    if made > size:
                        break
            total += made
        command = [clew, "--root", folder, "--data", folder + "/data", "ls", "--all"]
        print(f"{count} sessions, {total / 1e6:.0f} MB")
        for name, runs in (("cold", 1), ("warm", 5)):
            figures = [measure(command) for _ in range(runs)]
            wall, cpu, rows = min(figures)
            print(f"{name}: {wall:.2f} s wall, {cpu:.2f} s cpu, {rows} rows")


if __name__ == "__main__":
    main()
