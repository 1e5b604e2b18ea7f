"""What an agent needs besides a session's own files to list it: an index, or a mark that says whose a folder is.

A format names such files where it splices; a splice of nothing gives those of a session as it is. They are clew's own
making and no part of what comes home byte for byte: one is written only where nothing lies, never over a file.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from pathlib import Path

from clew.conversation.source import Session
from clew.errors import FormatError, Refused
from clew.formats.protocol import Format, WriteOptions
from clew.platform.fs import ABSENT
from clew.verbs.place import Item, holds_rows, path_below, place_items


def missing_index(
    form: Format, base: Path, session: Session, options: WriteOptions, own: Collection[str] = ()
) -> list[Item]:
    """Returns the index files of a session that are not there; `own` are paths that are placed anyway.

    `options` names the session's folder and what the home says of it. Where nothing can be put behind the session, its
    format names none.
    """
    if form.splice is None or session.helper or any(holds_rows(form, s.path) for s in session.records.streams):
        return []
    try:
        written = form.splice(session, (), options)
    except FormatError:
        return []
    index = [file for file in written.files if file.role == "index" and file.path not in own]
    items = [Item(path_below(base, file.path), file.chunks, file.mode, ABSENT) for file in index]
    return [item for item in items if not os.path.lexists(item.path)]


def place_index(base: Path, items: Sequence[Item]) -> tuple[Path, ...]:
    """Places index files behind the session's own and returns their paths; one that somebody made meanwhile stays."""
    placed: list[Path] = []
    for item in items:
        try:
            placed += place_items(base, [item])
        except Refused:
            continue
    return tuple(placed)
