"""Times reading a Claude Code session to keys against only decoding its lines (design page, section 8).

    python bench/read_claude.py [MEGABYTES]

Makes a session of that size (50 by default) in memory and prints the best of five runs of each, in CPU seconds.
"""

from __future__ import annotations

import gc
import resource
import sys
import time
from collections.abc import Callable

import msgspec
from sessions import claude_lines

from clew.conversation.canonical import keys_of
from clew.conversation.source import Source, Stream
from clew.formats.claude import FORMAT
from clew.formats.jsonl import line_ends

ID = "6f2b8a54-0c1e-4d7e-9a51-3f6f1c2d9b10"


def make_session(size: int) -> bytes:
    """Returns a session of about `size` bytes."""
    return "".join(claude_lines(size, ID)).encode()


def best(work: Callable[[], object], runs: int = 5) -> float:
    """Returns the shortest time in seconds."""
    times: list[float] = []
    for _ in range(runs):
        gc.collect()
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times)


def main() -> None:
    size = int(sys.argv[1] if len(sys.argv) > 1 else "50") << 20
    data = make_session(size)
    view = memoryview(data)
    decode = msgspec.json.Decoder().decode

    def only_decode() -> None:
        begin = 0
        for end in line_ends(data):
            decode(view[begin:end])
            begin = end

    def read_to_keys() -> None:
        session = FORMAT.read(Source((Stream(f"projects/-x/{ID}.jsonl", data),), hint_id=ID))
        for _ in keys_of(session.messages):
            pass

    def only_read() -> None:
        FORMAT.read(Source((Stream(f"projects/-x/{ID}.jsonl", data),), hint_id=ID))

    base, whole, read = best(only_decode), best(read_to_keys), best(only_read)
    lines = data.count(b"\n")
    print(f"{len(data) / 1e6:.0f} MB, {lines} lines")
    print(f"only decoding   {base:7.3f} s")
    print(f"reading         {read:7.3f} s  {read / base:4.1f}x")
    print(f"reading to keys {whole:7.3f} s  {whole / base:4.1f}x")
    print(f"peak memory     {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:7.0f} MB (the session included)")


if __name__ == "__main__":
    main()
