"""Times reading a Codex rollout to keys against only decoding its lines (design page, section 8).

    python bench/read_codex.py [MEGABYTES]

Two rollouts of that size (50 by default) are made in memory: the bare synthetic one of `sessions.codex_lines`, and
the lines that the agent itself wrote for this repository's recorded threads, over and over. Prints the best of five
runs of each in processor time, so that other processes count less.
"""

from __future__ import annotations

import gc
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
from sessions import codex_lines

from clew.conversation.canonical import keys_of
from clew.conversation.source import Source, Stream
from clew.formats.codex import FORMAT
from clew.formats.jsonl import line_ends

ID = "01a22df5-7ada-8893-8deb-9be09a8006e1"
RECORDED = Path(__file__).resolve().parent.parent / "tests" / "fixtures" / "sessions" / "codex"


def best(work: Callable[[], object], runs: int = 5) -> float:
    """Returns the shortest processor time in seconds."""
    times: list[float] = []
    for _ in range(runs):
        gc.collect()
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times)


def recorded(size: int) -> bytes:
    """Returns the recorded threads' lines repeated; what would replace the history is left out."""
    lines: list[bytes] = []
    for path in sorted(RECORDED.glob("*/home/.codex/sessions/**/*.jsonl")):
        found = path.read_bytes().splitlines(keepends=True)
        lines += [line for line in found if b'"compacted"' not in line[:120] and b'"session_meta"' not in line[:120]]
    once = b"".join(lines)
    return once * (size // len(once)) if once else b""


def measure(name: str, data: bytes) -> None:
    view = memoryview(data)
    decode = msgspec.json.Decoder().decode

    def only_decode() -> None:
        begin = 0
        for end in line_ends(data):
            decode(view[begin:end])
            begin = end

    def only_read() -> None:
        FORMAT.read(Source((Stream("sessions/x.jsonl", data),), hint_id=ID))

    def read_to_keys() -> None:
        session = FORMAT.read(Source((Stream("sessions/x.jsonl", data),), hint_id=ID))
        for _ in keys_of(session.messages):
            pass

    base, read, whole = best(only_decode), best(only_read), best(read_to_keys)
    print(f"{name}: {len(data) / 1e6:.0f} MB, {data.count(10)} lines")
    print(f"  only decoding   {base:7.3f} s")
    print(f"  reading         {read:7.3f} s  {read / base:4.1f}x")
    print(f"  reading to keys {whole:7.3f} s  {whole / base:4.1f}x")


def main() -> None:
    size = int(sys.argv[1] if len(sys.argv) > 1 else "50") << 20
    measure("synthetic", "".join(codex_lines(size, ID)).encode())
    measure("recorded lines", recorded(size))
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB (the sessions included)")


if __name__ == "__main__":
    main()
