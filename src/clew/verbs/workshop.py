"""Where texts are made before they are placed: held in memory while small, in an unnamed file when large.

A text of 200 MB is written once to a draft, read back from there, and copied to its place; it is never in memory.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from clew.conversation.model import Message
from clew.conversation.source import Buffer, Session, SideFile, Source, Stream
from clew.conversation.walk import letting_go
from clew.errors import ClewError
from clew.formats.protocol import Format, WriteOptions, Written, WrittenFile
from clew.platform.fs import ensure_folder

_SPILL = 8 << 20
_GATHER = 1 << 20


def hold_text(drafts: Path, path: str, mode: int, pieces: Iterable[Buffer]) -> Stream:
    """Returns a stream of these pieces laid end to end; large ones lie in an unnamed file below `drafts`."""
    gathered: list[bytes | memoryview] = []
    size = 0
    rest = iter(pieces)
    for piece in rest:
        gathered.append(bytes(piece))
        size += len(piece)
        if size >= _SPILL:
            return _spill(drafts, path, mode, gathered, rest)
    return Stream(path, b"".join(gathered), mode)


def _spill(drafts: Path, path: str, mode: int, head: list[bytes | memoryview], rest: Iterator[Buffer]) -> Stream:
    ensure_folder(drafts)
    try:
        with tempfile.TemporaryFile(dir=drafts) as file:
            file.write(b"".join(head))
            head.clear()
            for piece in rest:
                file.write(piece)
            file.flush()
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as error:
        raise ClewError(
            f"a draft cannot be written in {drafts}: {os.strerror(error.errno or 0)}",
            hint="Free some room there, or name another folder with --data.",
            path=str(drafts),
        ) from error
    return Stream(path, memoryview(mapped), mode, lambda: mapped.madvise(mmap.MADV_DONTNEED))


class Workshop:
    """Reads and splices in one target format; remembers what the writer said about its last text.

    `beneath` are the streams that the messages to write lie in: their pages are let go of while writing.
    """

    def __init__(
        self,
        form: Format,
        options: WriteOptions,
        drafts: Path,
        *,
        side: tuple[SideFile, ...] = (),
        resolve: Callable[[str], Source | None] | None = None,
        beneath: tuple[Stream, ...] = (),
    ) -> None:
        self.format, self.options, self.drafts = form, options, drafts
        self.beneath = beneath
        self.side, self.resolve = side, resolve
        self.written: Written | None = None

    def hold(self, path: str, mode: int, pieces: Iterable[Buffer]) -> Stream:
        """Keeps bytes as a stream that can be read."""
        return hold_text(self.drafts, path, mode, pieces)

    def read(self, streams: tuple[Stream, ...]) -> Session:
        """Reads streams in the target's format."""
        source = Source(streams, self.side, self.resolve, hint_id=self.options.session_id, hint_cwd=self.options.cwd)
        return self.format.read(source)

    def splice(self, prefix: Session, messages: Sequence[Message]) -> tuple[Stream, ...]:
        """Appends messages behind a restored prefix, in the target's format."""
        assert self.format.splice is not None, "a format that writes also splices"
        return self.take(self.format.splice(prefix, messages, self.options))

    def write(self, messages: Sequence[Message]) -> tuple[Stream, ...]:
        """Writes a conversation plainly, in the target's format."""
        assert self.format.write is not None, "the caller has asked whether the format writes"
        return self.take(self.format.write(messages, self.options))

    def take(self, written: Written) -> tuple[Stream, ...]:
        """Holds the streams of what a writer made and remembers the rest of it; its side files are read with them."""
        self.written = written
        made = {file.path: self._hold_side(file) for file in written.files if file.role == "side"}
        self.side = (*(file for file in self.side if file.path not in made), *made.values())
        return tuple(
            self.hold(file.path, file.mode, letting_go(file.chunks(), self.beneath))
            for file in written.files
            if file.role == "stream"
        )

    def _hold_side(self, file: WrittenFile) -> SideFile:
        held = self.hold(file.path, file.mode, file.chunks())
        return SideFile(file.path, file.mode, len(held.data), lambda: held.data)
