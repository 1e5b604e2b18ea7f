"""Reading, converting and restoring: against only decoding the same lines, measured in the same run.

Usage: python bench/carry.py [SIZE_IN_BYTES]. Default 200 kB; 200000000 gives the large session. Each part runs in a
process of its own, so that its peak memory is its own.
"""

from __future__ import annotations

import mmap
import resource
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

import sessions

ID = "11111111-2222-4333-8444-555555555555"


def decode_lines(path: Path) -> float:
    """Returns the CPU seconds of msgspec-decoding every line, best of three."""
    import msgspec

    decode = msgspec.json.Decoder().decode
    best = 1e9
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        for _ in range(3):
            data.seek(0)
            start = time.process_time()
            for line in iter(data.readline, b""):
                decode(line)
            best = min(best, time.process_time() - start)
    return best


def context(home: Path):
    from clew.formats.protocol import Home
    from clew.platform.clock import FixedClock
    from clew.verbs.context import Context

    return Context(Home(home), home / "data", cwd=home, clock=FixedClock(datetime(2026, 12, 1, tzinfo=UTC)))


def part(name: str, home: Path) -> None:
    """Runs one part in this process and prints its figures."""
    from clew.verbs.convert import convert
    from clew.verbs.reading import find_sessions, open_found
    from clew.verbs.refer import open_session
    from clew.verbs.restore import restore

    with context(home) as ctx:
        form, found = next((m, f) for m, f in find_sessions(ctx, "claude") if f.id == ID)
        repeat = 1 if found.stamp[1] > 5_000_000 or name != "read" else 5
        wall, cpu = time.perf_counter(), time.process_time()
        for _ in range(repeat):
            if name == "read":
                open_found(ctx, form, found)
            elif name == "convert":
                convert(ctx, f"claude:{ID}", to="codex")
            elif name == "home":
                codex = next(f.id for _, f in find_sessions(ctx, "codex"))
                convert(ctx, f"codex:{codex}", to="claude")
            else:
                assert open_session
                restore(ctx, f"claude:{ID}", to=home / "back")
        wall, cpu = (time.perf_counter() - wall) / repeat, (time.process_time() - cpu) / repeat
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
    print(f"{wall} {cpu} {peak}")


def main() -> None:
    size = int(sys.argv[1]) if len(sys.argv) > 1 else 200_000
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        path = sessions.write_claude(home, size, ID)
        base = decode_lines(path)
        print(f"session {path.stat().st_size / 1e6:.2f} MB; only decoding its lines {base * 1000:.1f} ms cpu")
        for name in ("read", "convert", "home", "restore"):
            done = subprocess.run([sys.executable, __file__, name, folder], capture_output=True, text=True, check=False)
            if done.returncode:
                print(name, "failed:", done.stderr.strip().splitlines()[-1])
                continue
            wall, cpu, peak = map(float, done.stdout.split())
            print(f"{name:8} {wall:7.3f} s wall {cpu:7.3f} s cpu {cpu / base:6.1f} x decoding, peak {peak:.0f} MB")
        clew = str(Path(sys.executable).with_name("clew"))
        start = time.perf_counter()
        subprocess.run([clew, "--root", folder, "--data", folder + "/d2", "convert", ID, "--to", "codex", "--out",
                        folder + "/out"], capture_output=True, check=True)  # fmt: skip
        print(f"the whole command `clew convert`: {time.perf_counter() - start:.3f} s wall")


if __name__ == "__main__":
    if len(sys.argv) == 3:
        part(sys.argv[1], Path(sys.argv[2]))
    else:
        main()
