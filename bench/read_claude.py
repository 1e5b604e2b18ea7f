"""Times reading a Claude Code session to keys against only decoding its lines (design page, section 8).

    python bench/read_claude.py [MEGABYTES]

Makes a session of that size (50 by default) in memory: prompts, replies with parallel calls, results of some
kilobytes with the agent's own copy beside them, records of bookkeeping. Prints the best of three runs of each.
"""

from __future__ import annotations

import gc
import json
import resource
import sys
import time
from collections.abc import Callable

import msgspec

from clew.conversation.canonical import keys_of
from clew.conversation.source import Source, Stream
from clew.formats.claude import FORMAT
from clew.formats.jsonl import line_ends

ID = "6f2b8a54-0c1e-4d7e-9a51-3f6f1c2d9b10"


def make_session(size: int) -> bytes:
    """Returns a session of about `size` bytes."""
    rows: list[bytes] = []
    total = number = 0
    parent: str | None = None
    text = "A line of output with some words in it, as tools print them, and a path /home/dev1/work/shop/app.py\n"

    def add(sort: str, **more: object) -> None:
        nonlocal parent, total, number
        number += 1
        row = {
            "parentUuid": parent,
            "isSidechain": False,
            "type": sort,
            "uuid": f"00000000-0000-4000-8000-{number:012d}",
            "timestamp": "2026-11-30T19:00:00.000Z",
            "userType": "external",
            "entrypoint": "cli",
            "cwd": "/home/dev1/work/shop",
            "sessionId": ID,
            "version": "2.1.332",
            "gitBranch": "main",
        }
        data = json.dumps(row | more, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
        rows.append(data)
        total += len(data)
        parent = row["uuid"]

    def reply(turn: int, block: dict[str, object]) -> None:
        usage = {"input_tokens": 9, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0, "output_tokens": 9}
        message = {"id": f"msg_{turn}", "type": "message", "role": "assistant", "model": "m", "content": [block]}
        add("assistant", message=message | {"usage": usage}, requestId=f"req_{turn}", effort="medium")

    turn = 0
    while total < size:
        turn += 1
        add("user", message={"role": "user", "content": f"Please look at part {turn} of it."}, promptId="p")
        add("attachment", attachment={"type": "date", "date": "2026-11-30"})
        reply(turn, {"type": "thinking", "thinking": "Let me see. " * 20, "signature": "S" * 300})
        reply(turn, {"type": "text", "text": "I will look at two files — both at once."})
        for call in ("a", "b"):
            given = {"command": f"cat part{turn}{call}.txt", "description": "Show the part"}
            reply(turn, {"type": "tool_use", "id": f"toolu_{turn}{call}", "name": "Bash", "input": given})
        for call in ("a", "b"):
            output = text * (10 + turn % 30)
            block = {"tool_use_id": f"toolu_{turn}{call}", "type": "tool_result", "content": output, "is_error": False}
            result = {"stdout": output, "stderr": "", "interrupted": False, "isImage": False}
            add("user", message={"role": "user", "content": [block]}, toolUseResult=result)
        reply(turn + 10**9, {"type": "text", "text": "Both parts are in order.\n\n" + "So it is. " * 40})
        rows.append(
            b'{"type":"last-prompt","leafUuid":"' + str(parent).encode() + b'","sessionId":"' + ID.encode() + b'"}\n'
        )
    return b"".join(rows)


def best(work: Callable[[], object], runs: int = 3) -> float:
    """Returns the shortest time in seconds."""
    times: list[float] = []
    for _ in range(runs):
        gc.collect()
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
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
