"""The witness: a small file beside a store that remembers how far the store has come.

A store that was put back from a backup cannot know it; its witness, which was not put back with it, can. It holds the
store's id, how many fences were granted, and the highest of them, in two slots of 96 bytes of text that are written in
turn, so that a torn write leaves the other. Promises that reading never fails on what it finds; that one which cannot
be read is told from one that is not there; that a number is never replaced by a lower one.
"""

from __future__ import annotations

import os
import re
import zlib
from pathlib import Path
from typing import Final

import msgspec

from clew.errors import StoreError
from clew.platform.fs import ensure_folder

SLOT_SIZE: Final = 96
_sync_data = getattr(os, "fdatasync", os.fsync)
_SLOT: Final = re.compile(rb"(clew-witness-1 ([0-9a-f]{32}) ([0-9a-f]{16}) ([0-9a-f]{16})) ([0-9a-f]{8}) *\n\Z")


class Seen(msgspec.Struct, frozen=True):
    """What a witness has seen of a store: its id (empty: nothing of this can be read), the number of grants, and the
    highest fence."""

    store_id: str
    grants: int
    fence: int


UNREADABLE: Final = Seen("", 0, 0)


class Witness:
    """The witness at one path. It makes no file before there is something to remember."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> Seen | None:
        """Returns what was seen last; None without a file, UNREADABLE when there is one that says nothing."""
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._failed(error) from error
        slots = [_read(data[at : at + SLOT_SIZE]) for at in (0, SLOT_SIZE)]
        return max(filter(None, slots), key=lambda seen: seen.grants, default=UNREADABLE)

    def write(self, seen: Seen, *, durable: bool) -> None:
        """Remembers, unless more is remembered already of the same store; raises StoreError.

        `durable`: it is on the disk before this returns.
        """
        there = self.read()
        if there is not None and there.store_id == seen.store_id and there.grants >= seen.grants:
            return
        try:
            self._write(seen, durable=durable, anew=there is None or there.store_id != seen.store_id)
        except OSError as error:
            raise self._failed(error) from error

    def _write(self, seen: Seen, *, durable: bool, anew: bool) -> None:
        ensure_folder(self.path.parent)
        fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            if anew:
                os.ftruncate(fd, 0)
                os.pwrite(fd, (b" " * (SLOT_SIZE - 1) + b"\n") * 2, 0)
            os.pwrite(fd, _slot(seen), SLOT_SIZE * (seen.grants % 2))
            if durable:
                # The file keeps its size, so that its bytes are all there is to sync.
                (os.fsync if anew else _sync_data)(fd)
        finally:
            os.close(fd)
        if durable and anew:
            folder = os.open(self.path.parent, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)

    def _failed(self, error: OSError) -> StoreError:
        return StoreError(
            f"{self.path}: {error.strerror}",
            hint="Check that the disk has space and that the folder is yours to write.",
            path=str(self.path),
        )


def _slot(seen: Seen) -> bytes:
    text = f"clew-witness-1 {seen.store_id} {seen.grants:016x} {seen.fence:016x}".encode()
    line = text + f" {zlib.crc32(text):08x}".encode()
    return line.ljust(SLOT_SIZE - 1) + b"\n"


def _read(data: bytes) -> Seen | None:
    found = _SLOT.match(data)
    if found is None or zlib.crc32(found[1]) != int(found[5], 16):
        return None
    return Seen(found[2].decode(), int(found[3], 16), int(found[4], 16))
