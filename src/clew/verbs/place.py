"""Placing: the only step that touches an agent's home. Atomic, never over unexpected bytes, never through a link.

What may lie at a path is said beforehand (absent, or exactly these bytes); anything else refuses with
`target_diverged` and changes nothing. A session with a live owner is never placed into. A database is shared by all
sessions of its agent: only one session's own rows are put there, in one transaction of its own engine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path, PurePosixPath

import msgspec
from blake3 import blake3

from clew.conversation.source import Buffer, Stream
from clew.errors import Refused
from clew.formats.protocol import Format, Found, Home
from clew.formats.rows import database_of, is_rows, own_lines
from clew.ids import Digest
from clew.platform.fs import ABSENT, Exactly, Expected, ensure_folder, open_source, replace_file
from clew.platform.mapped import Mapped


class Rows(msgspec.Struct, frozen=True):
    """The rows of one session to place: the stream's path, the rows, and those that may be there now (None: none)."""

    path: str
    data: Buffer
    expect: Buffer | None


class Item(msgspec.Struct, frozen=True):
    """One file to place: where, what may lie there now, and its bytes in pieces."""

    path: Path
    chunks: Callable[[], Iterable[Buffer]]
    mode: int
    expect: Expected


def base_of(form: Format, home: Home) -> Path:
    """Returns the agent's base folder with links in its own path resolved; below it no link is followed."""
    return Path(form.locate.base(home)).resolve()


def path_below(base: Path, name: str) -> Path:
    """Returns the path that a stream's name stands for; raises Refused when it would leave the base folder."""
    pure = PurePosixPath(name)
    if pure.is_absolute():
        return Path(pure)
    if not name or ".." in pure.parts or "\x00" in name:
        raise Refused(
            f"{name!r} would lie outside of {base}",
            code="unsafe_path",
            hint="The session's id or folder has an unsafe form; nothing was written.",
            path=name,
        )
    return base.joinpath(*pure.parts)


def expected_of(stream: Stream | None) -> Expected:
    """Returns the expectation that exactly this stream lies there; absence where there is none."""
    if stream is None:
        return ABSENT
    data = memoryview(stream.data)
    return Exactly(len(data), Digest(blake3(data).hexdigest()))


def stream_item(path: Path, stream: Stream, expect: Expected) -> Item:
    """Returns the item that puts a stream at a path."""
    return Item(path, lambda: pieces_of(stream), stream.mode, expect)


def pieces_of(stream: Stream, size: int = 1 << 20) -> Iterable[memoryview]:
    """Yields a stream's bytes in pieces of `size`, letting go of the pages behind it."""
    data = memoryview(stream.data)
    for at in range(0, len(data), size):
        yield data[at : at + size]
        if stream.release is not None and at % (16 * size) == 0:
            stream.release()


def holds_rows(form: Format, path: str) -> bool:
    """Tells whether a stream of this format names rows of a database rather than a file."""
    return form.place_rows is not None and is_rows(path)


def shown_path(form: Format, base: Path, path: str) -> Path:
    """Returns the file that a stream lies in: its own, or the database."""
    return path_below(base, database_of(path) if holds_rows(form, path) else path)


def make_item(form: Format, base: Path, stream: Stream, old: Stream | None) -> Item | Rows:
    """Returns what puts a stream where it belongs, in place of exactly `old` (None: of nothing)."""
    if holds_rows(form, stream.path):
        path_below(base, database_of(stream.path))
        return Rows(stream.path, stream.data, None if old is None else old.data)
    return stream_item(path_below(base, stream.path), stream, expected_of(old))


def place_all(form: Format, home: Home, items: Sequence[Item | Rows], now_ms: int) -> None:
    """Places files and rows in order, those by which the agent finds a session last."""
    base = base_of(form, home)
    for item in in_safe_order(form, items):
        if isinstance(item, Rows):
            assert form.place_rows is not None, "only a format that places rows names some"
            form.place_rows(home, item.path, item.data, item.expect, now_ms)
        else:
            place_items(base, [item])


def in_safe_order(form: Format, items: Sequence[Item | Rows]) -> list[Item | Rows]:
    """Returns the items in an order that is safe to interrupt; of several for one file only the last one counts."""
    last = {item.path: number for number, item in enumerate(items)}
    left = [item for number, item in enumerate(items) if last[item.path] == number]
    return sorted(left, key=lambda item: isinstance(item, Item) and item.path.name in form.traits.listed_by)


def present_stream(form: Format, home: Home, path: str) -> Buffer | None:
    """Returns what lies where a stream belongs, or None: the bytes of a file, the present rows of a session."""
    if holds_rows(form, path):
        assert form.present_rows is not None, "a format that places rows also reads them"
        return form.present_rows(home, path)
    there = present_bytes(path_below(base_of(form, home), path))
    return None if there is None else memoryview(there.data)


def is_same(form: Format, path: str, one: Buffer, other: Buffer) -> bool:
    """Tells whether two contents of a stream are the same; rows that other sessions share do not count."""
    if holds_rows(form, path):
        return own_lines(one) == own_lines(other)
    return memoryview(one) == memoryview(other)


def place_items(base: Path, items: Sequence[Item]) -> tuple[Path, ...]:
    """Places files in order and returns their paths; the caller orders them so that an interruption is harmless."""
    done: list[Path] = []
    for item in items:
        root = base if item.path.is_relative_to(base) else item.path.parent
        ensure_folder(root)
        replace_file(item.path, item.chunks(), root=root, expect=item.expect, mode=item.mode)
        done.append(item.path)
    return tuple(done)


def present_bytes(path: Path) -> Mapped | None:
    """Returns what lies at a path, or None; raises UnreadableSource for anything but a regular file."""
    if not path.is_symlink() and not path.exists():
        return None
    return open_source(path)


def refuse_live(form: Format, found: Found, home: Home) -> None:
    """Raises Refused (`live_owner`) when the agent itself holds the session now."""
    owner = form.resume.owner(found, home)
    if owner is not None:
        raise Refused(
            f"{form.title} is running on session {found.id} (process {owner.pid}{_detail(owner.detail)})",
            code="live_owner",
            hint="End that process, then try again; or write a new session with --new.",
            session=found.id,
            path=str(found.path),
            pid=owner.pid,
        )


def _detail(text: str) -> str:
    return f", {text}" if text else ""
