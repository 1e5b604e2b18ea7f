"""A stream opened for reading: unpacked where it is compressed, with the first facts in it."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from clew.conversation.loss import Damage
from clew.conversation.source import Records, Stream
from clew.formats.codex import compressed
from clew.formats.codex.records import Meta, decode_meta_line, line_bytes, rollout_lines


class Opened(msgspec.Struct, frozen=True):
    """A stream as it is read: the lines, the first facts in them, and whether they were compressed."""

    stream: Stream
    lines: Stream
    meta: Meta
    damage: tuple[Damage, ...] = ()

    @property
    def packed(self) -> bool:
        return self.lines is not self.stream

    @property
    def base(self) -> tuple[str, int | None] | None:
        """Returns thread and end of what this file goes on from."""
        found = self.meta.history_base
        return None if found is None else (found.thread_id, found.end_ordinal_exclusive)


def open_stream(stream: Stream, record: int) -> Opened:
    if not compressed.is_compressed(stream):
        return Opened(stream, stream, _find_meta(stream))
    lines, damage = compressed.unpack(stream, record)
    return Opened(stream, lines, _find_meta(lines), damage)


def _find_meta(stream: Stream) -> Meta:
    """Returns the facts of the first `session_meta` among the first lines; empty ones where there is none."""
    lines = rollout_lines(Records(), stream, [])
    for _, (number, line) in zip(range(8), lines, strict=False):
        if line is not None and line.type == "session_meta":
            return decode_meta_line(line_bytes(lines, number))
    return Meta()


def least(ends: Iterable[int | None]) -> int | None:
    return min((end for end in ends if end is not None), default=None)
