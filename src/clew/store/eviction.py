"""Taking captures away: forgetting, evicting to limits, and collecting what no capture holds any more.

Whole captures go, never parts of one. What is left of the packs they shared with others is written anew, so
that no forgotten byte stays in them; freed pages are overwritten with zeros (secure_delete) and given back to
the file system. Everything happens in one transaction.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable

import msgspec

from clew.ids import CaptureId
from clew.platform.faults import declare, fault
from clew.store.body import read_body
from clew.store.lists import Entries, load_entries, make_ends, read_ends
from clew.store.pack import PACK_SIZE, read_pack
from clew.store.packing import Packer, live_items
from clew.store.protocol import Freed, Limits
from clew.store.slots import load_pack
from clew.store.sqlite import Database

BEFORE_SWEEP = declare("store.before-sweep")

_Item = tuple[bytes, int]
"""Digest and kind: what a place is named by."""


class _Held(msgspec.Struct, frozen=True):
    """What eviction has to know of one capture."""

    id: CaptureId
    source: tuple[str, bytes]
    session: tuple[str, bytes]
    refers: tuple[CaptureId, ...]
    items: frozenset[_Item]


def forget(sql: Database, captures: Iterable[CaptureId]) -> Freed:
    """Removes these captures (unknown ones are none) and every byte that only they held."""
    with sql.transaction():
        gone = [
            number
            for number in sorted(set(captures))
            if sql.execute("DELETE FROM captures WHERE id = ? RETURNING id", (number,))
        ]
        freed = _sweep(sql, thorough=True)
    sql.shrink()
    return msgspec.structs.replace(freed, captures=tuple(gone))


def collect(sql: Database) -> Freed:
    """Removes what no capture holds, and joins small packs."""
    with sql.transaction():
        freed = _sweep(sql, thorough=False)
    sql.shrink()
    return freed


def evict(sql: Database, limits: Limits) -> Freed:
    """Removes whole captures, oldest first, until the limits hold or nothing more may go."""
    with sql.transaction():
        held = _load_held(sql)
        sizes: dict[_Item, int] = {
            (digest, kind): size for digest, kind, size in sql.execute("SELECT digest, kind, size FROM places")
        }
        gone: set[CaptureId] = set()
        if limits.per_session is not None:
            sessions: defaultdict[tuple[str, bytes], list[_Held]] = defaultdict(list)
            for one in held:
                sessions[one.session].append(one)
            for of_session in sessions.values():
                _choose(of_session, held, sizes, limits.per_session, gone)
        if limits.total is not None:
            _choose(held, held, sizes, limits.total, gone)
        if not gone:
            return Freed()
        sql.execute_many("DELETE FROM captures WHERE id = ?", [(number,) for number in sorted(gone)])
        freed = _sweep(sql, thorough=False)
    sql.shrink()
    return msgspec.structs.replace(freed, captures=tuple(sorted(gone)))


# --- choosing ---------------------------------------------------------------------------------------------


def _choose(
    among: list[_Held], everything: list[_Held], sizes: dict[_Item, int], limit: int, gone: set[CaptureId]
) -> None:
    """Adds to `gone` the oldest captures of `among` whose removal brings their distinct bytes down to the
    limit."""
    counts: Counter[_Item] = Counter()
    for one in among:
        if one.id not in gone:
            counts.update(one.items)
    total = sum(sizes.get(item, 0) for item in counts)
    newest = {one.source: one.id for one in everything}
    referred = Counter(number for one in everything if one.id not in gone for number in one.refers)
    at = 0
    while total > limit and at < len(among):
        one = among[at]
        at += 1
        if one.id in gone or newest[one.source] == one.id or referred[one.id] > 0:
            continue
        gone.add(one.id)
        counts.subtract(one.items)
        total -= sum(sizes.get(item, 0) for item in one.items if counts[item] == 0)
        if one.refers:
            referred.subtract(one.refers)
            at = 0  # What it referred to may be older, and free to go now.


def _load_held(sql: Database) -> list[_Held]:
    rows = sql.execute("SELECT id, agent, session_id, source_id, list, segment_count, body FROM captures ORDER BY id")
    held: list[_Held] = []
    for number, agent, session, source, of_list, count, data in rows:
        body = read_body(data)
        entries = load_entries(sql, of_list, count)
        items = {(entries.digest(place), 0) for place in range(count)}
        if body is not None:
            items.update((bytes.fromhex(one.digest), 1) for one in body.side)
        refers = body.refers if body is not None else ()
        held.append(_Held(number, (agent, source), (agent, session or source), refers, frozenset(items)))
    return held


# --- sweeping ---------------------------------------------------------------------------------------------


def _sweep(sql: Database, *, thorough: bool) -> Freed:
    """Removes lists, places and packs that no capture leads to.

    Packs that hold something dead beside something live are written anew: always when `thorough`, else when
    the dead part is the larger one. Small packs are joined.
    """
    fault(BEFORE_SWEEP)
    live = _trim_lists(sql)
    packs: defaultdict[int, list[tuple[_Item, int]]] = defaultdict(list)
    for digest, kind, pack, size in sql.execute("SELECT digest, kind, pack, size FROM places"):
        packs[pack].append(((digest, kind), size))
    dead: list[tuple[_Item, int]] = []
    anew: list[int] = []
    for pack, items in packs.items():
        of_pack = [one for one in items if one[0] not in live]
        dead += of_pack
        live_size = sum(size for item, size in items if item in live)
        if len(of_pack) < len(items) and _is_worn(of_pack, live_size, thorough=thorough):
            anew.append(pack)
    sql.execute_many("DELETE FROM places WHERE digest = ? AND kind = ?", [item for item, _ in dead])
    _write_anew(sql, anew, lambda pack: sum(1 for item, _ in packs[pack] if item in live))
    sql.execute("DELETE FROM packs WHERE id NOT IN (SELECT pack FROM places)")
    segments = sum(1 for (_, kind), _ in dead if kind == 0)
    return Freed((), segments, sum(size for _, size in dead))


def _is_worn(dead: list[tuple[_Item, int]], live_size: int, *, thorough: bool) -> bool:
    if thorough:
        return bool(dead)
    return sum(size for _, size in dead) > live_size or live_size < PACK_SIZE // 4


def _trim_lists(sql: Database) -> set[_Item]:
    """Removes the lists, and the ends of lists, that no capture leads to; returns the items that remain."""
    shapes = {row[0]: row[1:] for row in sql.execute("SELECT id, prev, prev_count, count FROM lists")}
    needed: dict[int, int] = {}
    live: set[_Item] = set()
    for number, count, data in sql.execute("SELECT list, segment_count, body FROM captures"):
        body = read_body(data)
        if body is not None:
            live.update((bytes.fromhex(one.digest), 1) for one in body.side)
        else:
            # Which side files it holds cannot be told: then none may go.
            live.update((row[0], 1) for row in sql.execute("SELECT digest FROM places WHERE kind = 1"))
        while count > 0 and needed.get(number, 0) < count and number in shapes:
            needed[number] = count
            prev, prev_count, _ = shapes[number]
            number, count = prev, min(prev_count, count)
    for number, (_, prev_count, own) in shapes.items():
        if number not in needed:
            sql.execute("DELETE FROM lists WHERE id = ?", (number,))
            continue
        digests = _trim(sql, number, max(0, needed[number] - prev_count), own)
        live.update((digests[at : at + 32], 0) for at in range(0, len(digests), 32))
    return live


def _trim(sql: Database, number: int, wanted: int, own: int) -> bytes:
    """Cuts a list down to `wanted` entries of its own and returns their digests."""
    keys, digests, ends = sql.execute("SELECT keys, digests, ends FROM lists WHERE id = ?", (number,))[0]
    if wanted < own:
        left = Entries(keys, digests, read_ends(ends)).first(wanted)
        sql.execute(
            "UPDATE lists SET count = ?, keys = ?, digests = ?, ends = ? WHERE id = ?",
            (wanted, left.keys, left.digests, make_ends(left.ends), number),
        )
        digests = left.digests
    return digests


def _write_anew(sql: Database, packs: list[int], live_count: Callable[[int], int]) -> None:
    """Moves what is live of these packs into new ones. A pack of which anything live is damaged stays as it
    is."""
    for kind in (0, 1):
        of_kind = [pack for pack in packs if sql.execute("SELECT 1 FROM packs WHERE id = ? AND kind = ?", (pack, kind))]
        if not of_kind:
            continue
        with Packer(sql, kind) as packer:
            for pack in of_kind:
                data = load_pack(sql, pack)
                contents = read_pack(data) if data is not None else None
                items = live_items(sql, pack, kind, contents) if contents is not None else []
                if contents is not None and len(items) == live_count(pack):
                    packer.move(pack, items)
            packer.finish()
