"""The page on what lies on the disk is true: a capture is read by it, without clew's own code."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import apsw
import msgspec
import pytest
from blake3 import blake3

from clew.store.opening import Stores, open_stores
from store_making import CODEX, make_groups, make_new, make_segments, make_side, put

zstd = pytest.importorskip("backports.zstd", reason="from 3.14 on it is compression.zstd")
PAGE = Path(__file__).parents[2] / "docs" / "on-disk.md"


def u64(number: int) -> bytes:
    return struct.pack("<Q", number)


def framed(domain: bytes, *parts: bytes) -> bytes:
    return blake3(domain + b"".join(u64(len(part)) + part for part in parts)).digest()


def entries(db: apsw.Connection, number: int, count: int) -> list[tuple[bytes, bytes, bool]]:
    if count == 0:
        return []
    prev, prev_count, keys, digests, ends = db.execute(
        "SELECT prev, prev_count, keys, digests, ends FROM lists WHERE id = ?", (number,)
    ).fetchall()[0]
    marked = set(struct.unpack(f"<{len(ends) // 4}I", ends))
    own = [
        (keys[at * 32 : at * 32 + 32], digests[at * 32 : at * 32 + 32], at in marked) for at in range(len(keys) // 32)
    ]
    before = entries(db, prev, min(prev_count, count)) if prev is not None else []
    return before + own[: max(0, count - prev_count)]


def records(db: apsw.Connection, digest: bytes, kind: int) -> list[bytes]:
    pack, slot = db.execute("SELECT pack, slot FROM places WHERE digest = ? AND kind = ?", (digest, kind)).fetchall()[0]
    (data,) = db.execute("SELECT data FROM packs WHERE id = ?", (pack,)).fetchall()[0]
    inside = zstd.decompress(data)
    slots, total = struct.unpack_from("<2I", inside)
    counts = struct.unpack_from(f"<{slots}I", inside, 8)
    lengths = struct.unpack_from(f"<{total}I", inside, 8 + 4 * slots)
    at = 8 + 4 * (slots + total)
    found: list[list[bytes]] = []
    each = iter(lengths)
    for count in counts:
        found.append([])
        for _ in range(count):
            length = next(each)
            found[-1].append(inside[at : at + length])
            at += length
    assert at == len(inside)
    return found[slot]


@pytest.mark.usefixtures("small_packs")
def test_a_capture_is_read_by_the_page_alone(tmp_path: Path):
    groups = make_groups(70)
    side = make_side(notes=b"n" * 3000, empty=b"")
    with open_stores(tmp_path) as stores:
        first = put(stores.residue, groups[:40], agent=CODEX, session="é")
        put(stores.residue, groups, agent=CODEX, session="é", side=side, base=first, shared=39, facts=b"F", refers=[1])
    db: Any = apsw.Connection(str(tmp_path / "residue.db"))
    row = db.execute(
        "SELECT agent, session_id, source_id, taken_at, list, segment_count, message_count, side_count, size, "
        "first_key, identity, body FROM captures WHERE id = 2"
    ).fetchall()[0]
    agent, session, source, taken, number, count, messages, side_count, size, first_key, identity, body = row
    new = make_new(groups, agent=CODEX, session="é")
    wanted = make_segments(groups)
    whole = b"".join(record for group in groups for record in group)
    assert (agent, session.decode(), taken) == ("codex", "é", int(new.taken_at.timestamp() * 1_000_000))
    assert (count, messages, side_count, size) == (70, 70, 2, len(whole))

    read = entries(db, number, count)
    assert [(key.hex(), digest.hex(), end) for key, digest, end in read] == [
        (one.key, one.digest, one.end_of_source) for one in wanted
    ]
    assert first_key == read[0][0]
    per_segment = [records(db, digest, 0) for _, digest, _ in read]
    assert per_segment == groups
    for (_, digest, _), of_segment in zip(read, per_segment, strict=True):
        assert blake3(b"".join(u64(len(record)) + record for record in of_segment)).digest() == digest

    assert source == framed(b"clew-source-v1", b"codex", session, groups[0][0])
    assert msgspec.msgpack.decode(body) == [
        1,
        b"F",
        [[b"p/\xc3\xa9.jsonl", 0o600, len(whole), sum(map(len, groups))]],
        [1],
        0,
        [[entry.path.encode(), entry.mode, entry.size, bytes.fromhex(entry.digest)] for entry, _ in side],
    ]
    for entry, data in side:
        assert records(db, bytes.fromhex(entry.digest), 1) == [data]
    ends = [at for at, (_, _, end) in enumerate(read) if end]
    assert identity == framed(
        b"clew-capture-v1",
        b"codex",
        b"\1" + session,
        source,
        u64(messages),
        body,
        b"".join(key for key, _, _ in read),
        b"".join(digest for _, digest, _ in read),
        struct.pack(f"<{len(ends)}I", *ends),
    )
    db.close()


def test_the_page_names_every_table_and_column(tmp_path: Path):
    text = PAGE.read_text(encoding="utf-8")
    with open_stores(tmp_path) as stores:
        put(stores.residue, make_groups(1))
        stores.records.put_thread("t1", b"", expected=None, now=make_new([]).taken_at)  # type: ignore[arg-type]
    for name in ("records.db", "residue.db"):
        db: Any = apsw.Connection(str(tmp_path / name))
        tables = [row[0] for row in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        for table in tables:
            if table.startswith("sqlite_"):
                continue
            assert f"### {table}\n" in text
            section = text.split(f"### {table}\n")[1].split("\n## ")[0].split("\n### ")[0]
            for column in db.execute(f"SELECT name FROM pragma_table_info('{table}')"):
                assert f"`{column[0]}`" in section, f"{table}.{column[0]}"
        db.close()


@pytest.mark.postgres
def test_the_page_names_every_table_on_a_server(server: Stores):
    page = PAGE.read_text(encoding="utf-8")
    text = page.split("## records.db\n")[1].split("\n## residue.db")[0]
    server.records.threads()
    columns = server.sql.execute(
        "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = current_schema()"
    )
    assert {table for table, _ in columns} >= {"threads", "strands", "journal_rows", "held_roots", "clew_schema"}
    for table, column in columns:
        known = text.split(f"### {table}\n") if f"### {table}\n" in text else text.split(f"| `{table}` |")
        assert len(known) == 2, f"{table} is not described"
        section = known[1].split("\n### ")[0]
        assert f"`{column}`" in section, f"{table}.{column}"
