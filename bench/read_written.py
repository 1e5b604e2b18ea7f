"""Times reading a session of any agent to keys against only decoding its lines (design page, section 8).

    python bench/read_written.py AGENT [MEGABYTES]

The session is what clew's own writer of that agent makes of a long conversation (50 MB by default), so it serves for
every format of JSON lines that is written. Prints the best of five runs of each in processor time.
"""

from __future__ import annotations

import gc
import resource
import sys
import time
from collections.abc import Callable

import msgspec

from clew.conversation.builder import make_assistant, make_call, make_result, make_user
from clew.conversation.canonical import keys_of
from clew.conversation.model import Message
from clew.conversation.source import Source, Stream
from clew.formats.jsonl import line_ends
from clew.formats.protocol import Format, WriteOptions
from clew.formats.registry import get_format

ID = "01a22df5-7ada-8893-8deb-9be09a8006e1"


def conversation(size: int) -> tuple[Message, ...]:
    """Returns a conversation of about so many bytes."""
    messages: list[Message] = []
    text = "The thread goes on, past the corner and round the pillar. " * 20
    for number in range(size // 4000):
        call = make_call(f"call_{number}", "Bash", f'{{"command":"cat file-{number}.txt"}}')
        messages.append(make_user(f"Look at file {number}.", time_ms=1_760_000_000_000 + number))
        messages.append(make_assistant("I look.", call, model="m"))
        messages.append(make_result(f"call_{number}", f"file {number}\n{text}", is_error=False))
        messages.append(make_assistant(f"It says: {text}", model="m"))
    return tuple(messages)


def written(form: Format, size: int) -> bytes:
    """Returns the stream of the session."""
    assert form.write is not None, "only formats that write are measured so"
    options = WriteOptions(ID, "/w", 1_760_000_000_000, lambda name: f"{hash(name) & 0xFFFFFFFF:08x}-{name}")
    files = form.write(conversation(size), options).files
    return b"".join(b"".join(map(bytes, file.chunks())) for file in files if file.role == "stream")


def best(work: Callable[[], object], runs: int = 5) -> float:
    """Returns the shortest processor time in seconds."""
    times: list[float] = []
    for _ in range(runs):
        gc.collect()
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times)


def main() -> None:
    form = get_format(sys.argv[1])
    data = written(form, int(sys.argv[2] if len(sys.argv) > 2 else "50") << 20)
    view, decode = memoryview(data), msgspec.json.Decoder().decode

    def only_decode() -> None:
        begin = 0
        for end in line_ends(data):
            decode(view[begin:end])
            begin = end

    def only_read() -> None:
        form.read(Source((Stream("x.jsonl", data),), hint_id=ID))

    def read_to_keys() -> None:
        for _ in keys_of(form.read(Source((Stream("x.jsonl", data),), hint_id=ID)).messages):
            pass

    base, read, whole = best(only_decode), best(only_read), best(read_to_keys)
    print(f"{form.name}: {len(data) / 1e6:.0f} MB, {data.count(10)} lines")
    print(f"  only decoding   {base:7.3f} s")
    print(f"  reading         {read:7.3f} s  {read / base:4.1f}x")
    print(f"  reading to keys {whole:7.3f} s  {whole / base:4.1f}x")
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB (the session included)")


if __name__ == "__main__":
    main()
