"""Rollouts that Codex has compressed (`.jsonl.zst`): unpacked for reading, restored as the bytes they are.

A compressed file is one record: it can come back whole, byte for byte, or be gone on with by a further frame behind
it; no part of it can. Promised: unpacking is bounded and never raises; a torn or broken file gives what came out of
it before the break, and a damage. All frames of a file are read.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator

from clew.conversation.loss import Damage
from clew.conversation.source import Buffer, Stream

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

MAGIC = b"\x28\xb5\x2f\xfd"
SUFFIX = ".zst"
MAX_BYTES = 4 << 30
"""More than this is never unpacked: a file can claim any size."""

_CHUNK = 1 << 20


def is_compressed(stream: Stream) -> bool:
    """Tells whether a stream is a compressed rollout, by its first bytes or its name."""
    return bytes(memoryview(stream.data)[:4]) == MAGIC or stream.path.endswith(SUFFIX)


def unpack(stream: Stream, record: int) -> tuple[Stream, tuple[Damage, ...]]:
    """Returns the lines of a compressed rollout as a stream of their own, and what was wrong with it.

    `record` is the number of the one record that the compressed file is. Offsets of later damage count in the
    unpacked lines, under the name without `.zst`.
    """
    pieces: list[bytes] = []
    damage: list[Damage] = []
    size = 0
    try:
        for piece in _pieces(memoryview(stream.data)):
            size += len(piece)
            if size > MAX_BYTES:
                detail = f"more than {MAX_BYTES >> 30} GiB when unpacked; the rest is not read"
                damage.append(Damage(stream.path, record, 0, "too large", detail))
                break
            pieces.append(piece)
    except EOFError:
        damage.append(Damage(stream.path, record, len(stream.data), "torn tail", "the compressed file breaks off"))
    except zstd.ZstdError as error:
        detail = f"the compressed file cannot be unpacked any further: {error}"
        damage.append(Damage(stream.path, record, 0, "torn tail" if pieces else "not zstd", detail))
    return Stream(stream.path.removesuffix(SUFFIX), b"".join(pieces), stream.mode), tuple(damage)


def _pieces(data: memoryview) -> Iterator[bytes]:
    """Yields what comes out of all frames; raises EOFError where the last one is not complete."""
    at = 0
    while at < len(data):
        decompressor = zstd.ZstdDecompressor()
        while not decompressor.eof:
            chunk = b""
            if decompressor.needs_input:
                if at >= len(data):
                    raise EOFError
                chunk = data[at : at + _CHUNK]
                at += len(chunk)
            out = decompressor.decompress(chunk, _CHUNK)
            if out:
                yield out
        at -= len(decompressor.unused_data)


def pack(chunks: Iterable[Buffer]) -> Iterator[bytes]:
    """Yields one frame that holds these bytes."""
    compressor = zstd.ZstdCompressor()
    for chunk in chunks:
        out = compressor.compress(chunk)
        if out:
            yield out
    yield compressor.flush()
