"""Checking the residue: every digest and source id recomputed, and what does not fit named. Nothing is
mended.

`drop_damaged` is the one act beside it: it forgets where damaged bytes lie, so that a capture taken while the
agent still has the session stores them again. What is gone in the agent too stays missing, and is said to be.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from clew.conversation.digest import source_id
from clew.errors import StoreDamaged
from clew.ids import AgentName, CaptureId, Digest, NativeId
from clew.store.body import Body, identity_of, read_body
from clew.store.lists import Entries, load_entries
from clew.store.pack import SEGMENTS, SIDE_FILES, Contents, read_pack
from clew.store.packing import slot_digest
from clew.store.protocol import Problem
from clew.store.rows import read_text
from clew.store.slots import SlotReader, load_pack
from clew.store.sqlite import Database

_Item = tuple[bytes, int]
_CAPTURES = (
    "SELECT id, agent, session_id, source_id, message_count, list, segment_count, identity, body "
    "FROM captures ORDER BY id"
)


def check(sql: Database) -> Iterator[Problem]:
    """Yields what is wrong, the file itself first, then capture by capture."""
    sentences = sql.check()
    for sentence in sentences:
        yield Problem("file_damaged", sentence)
    try:
        bad = find_damaged(sql)
        rows = sql.execute(_CAPTURES)
        numbers = {row[0] for row in rows}
    except StoreDamaged as error:
        if error.message not in sentences:
            yield Problem("file_damaged", error.message)
        return
    for row in rows:
        yield from _check_capture(sql, row, bad, numbers)


def find_damaged(sql: Database) -> dict[_Item, str]:
    """Returns the sort of the problem for every item whose bytes are not what its digest says."""
    bad: dict[_Item, str] = {}
    contents: Contents | None = None
    at_hand = 0
    for digest, kind, pack, slot in sql.execute("SELECT digest, kind, pack, slot FROM places ORDER BY pack, slot"):
        if pack != at_hand:
            data = load_pack(sql, pack)
            contents = read_pack(data) if data is not None else None
            at_hand = pack
        if contents is None or slot >= len(contents):
            bad[digest, kind] = "pack_unreadable"
        elif slot_digest(kind, contents.lengths(slot), contents.data(slot)) != digest.hex():
            bad[digest, kind] = "segment_digest" if kind == SEGMENTS else "side_digest"
    return bad


def drop_damaged(sql: Database) -> int:
    """Removes the places of damaged items and marks the captures that hold any; returns how many items."""
    with sql.transaction():
        bad = find_damaged(sql)
        sql.execute_many("DELETE FROM places WHERE digest = ? AND kind = ?", list(bad))
        sql.execute("DELETE FROM packs WHERE id NOT IN (SELECT pack FROM places)")
        for row in sql.execute(_CAPTURES):
            if _holds_missing(sql, row):
                sql.execute("UPDATE captures SET identity = ? WHERE id = ?", (b"", row[0]))
        return len(bad)


def _holds_missing(sql: Database, row: tuple[Any, ...]) -> bool:
    body = read_body(row[8])
    try:
        entries = load_entries(sql, row[5], row[6])
    except StoreDamaged:
        return True
    items = {(entries.digest(number), SEGMENTS) for number in range(len(entries))}
    if body is not None:
        items.update((bytes.fromhex(one.digest), SIDE_FILES) for one in body.side)
    return bool(_missing(sql, items))


def _missing(sql: Database, items: set[_Item]) -> set[_Item]:
    rows = sql.execute_many("SELECT digest, kind FROM places WHERE digest = ? AND kind = ?", list(items))
    return items - {(row[0], row[1]) for row in rows}


# --- one capture ------------------------------------------------------------------------------------------


def _check_capture(sql: Database, row: tuple[Any, ...], bad: dict[_Item, str], numbers: set[int]) -> Iterator[Problem]:
    capture = CaptureId(row[0])
    body = read_body(row[8])
    if body is None:
        yield Problem("capture_unreadable", "its body cannot be read", capture)
        return
    for other in body.refers:
        if other not in numbers:
            yield Problem("refers_missing", f"it refers to capture {other}, which is gone", capture)
    try:
        entries = load_entries(sql, row[5], row[6])
    except StoreDamaged as error:
        yield Problem("list_damaged", error.message, capture)
        return
    identity = identity_of(row[1], row[2], row[3], row[4], row[8], entries)
    if row[7] and row[7] != identity:
        yield Problem("capture_unreadable", "its row or its list was changed", capture)
    yield from _check_items(sql, capture, entries, body, bad)
    yield from _check_source(sql, row, body, entries, bad)


def _check_items(
    sql: Database, capture: CaptureId, entries: Entries, body: Body, bad: dict[_Item, str]
) -> Iterator[Problem]:
    segments = [(entries.digest(number), SEGMENTS) for number in range(len(entries))]
    side = [(bytes.fromhex(one.digest), SIDE_FILES) for one in body.side]
    missing = _missing(sql, {*segments, *side})
    for number, item in enumerate(segments):
        sort = "segment_missing" if item in missing else bad.get(item)
        if sort is not None:
            yield Problem(sort, f"segment {number}", capture, number, Digest(item[0].hex()))
    for item, entry in zip(side, body.side, strict=True):
        sort = "side_missing" if item in missing else bad.get(item)
        if sort is not None:
            yield Problem(sort, f"side file {entry.path}", capture, None, entry.digest)


def _check_source(
    sql: Database, row: tuple[Any, ...], body: Body, entries: Entries, bad: dict[_Item, str]
) -> Iterator[Problem]:
    """Recomputes the source id, if the record that went into it can be had (a missing one is named
    already)."""
    if body.source_record is None:
        return
    record = _record(sql, entries, body.source_record, bad)
    if record is None:
        return
    session = None if row[2] is None else NativeId(read_text(row[2]))
    if source_id(AgentName(row[1]), session, record) != row[3].hex():
        yield Problem("source_id", "its source id is not that of its records", CaptureId(row[0]))


def _record(sql: Database, entries: Entries, wanted: int, bad: dict[_Item, str]) -> bytes | None:
    """Returns the record of that number, b"" behind the last one, None when it cannot be had."""
    first = 0
    reader = SlotReader(sql, SEGMENTS)
    for number in range(len(entries)):
        digest = entries.digest(number)
        lengths, data = reader.read(digest, reader.find([digest]))
        if data is None or (digest, SEGMENTS) in bad:
            return None
        if wanted < first + len(lengths):
            start = sum(lengths[: wanted - first])
            return data[start : start + lengths[wanted - first]]
        first += len(lengths)
    return b""
