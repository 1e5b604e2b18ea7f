"""Agents whose databases are read: rows are exported, listed, said and put back; reading touches nothing."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from clew.conversation.source import Session, Source, Stream
from clew.errors import AmbiguousError, Refused, UnsupportedVersion
from clew.formats.protocol import Found, Home
from clew.formats.registry import get_format
from clew.formats.rows import name_rows
from clew.residue.segments import cut_session, slice_segments
from clew_corpus import shared_dir
from kept_databases import BASES, Base, everything, make, run_in

every_base = pytest.mark.parametrize("base", BASES, ids=lambda b: b.agent)


def find(base: Base, home: Path) -> list[Found]:
    return list(get_format(base.agent).locate.find(Home(home)))


def read_first(base: Base, home: Path) -> tuple[Source, Session]:
    form = get_format(base.agent)
    source = form.locate.load(find(base, home)[0], Home(home))
    return source, form.read(source)


@every_base
def test_sessions_are_listed_and_said(base: Base, tmp_path: Path) -> None:
    make(base, tmp_path)
    assert tuple(found.id for found in find(base, tmp_path)) == base.ids
    source, session = read_first(base, tmp_path)
    assert session.id == base.ids[0]
    assert tuple((m.role, m.text) for m in session.messages) == base.said
    assert not session.damage
    assert all(record is not None for record in session.created_by)
    parts = slice_segments(session.records, cut_session(session))
    assert b"".join(bytes(part.data) for part in parts) == bytes(source.streams[0].data)


@every_base
def test_what_is_only_in_the_log_is_read_and_nothing_is_touched(base: Base, tmp_path: Path) -> None:
    path = tmp_path / base.path
    path.parent.mkdir(parents=True)
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA journal_mode=WAL")
        with db:
            base.fill(db)
        before = {file.name: file.read_bytes() for file in path.parent.iterdir()}
        assert len(before) == 3
        _, session = read_first(base, tmp_path)
        assert tuple((m.role, m.text) for m in session.messages) == base.said
        assert {file.name: file.read_bytes() for file in path.parent.iterdir()} == before


@every_base
def test_a_broken_or_newer_database_is_named(base: Base, tmp_path: Path) -> None:
    path = make(base, tmp_path)
    whole = path.read_bytes()
    path.write_bytes(whole[:100] + b"\xff" * (len(whole) - 100))
    (found,) = find(base, tmp_path)
    assert str(path) in found.problem
    path.write_bytes(b"no database at all")
    (found,) = find(base, tmp_path)
    assert "no SQLite database" in found.problem
    path.unlink()
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("CREATE TABLE another (id TEXT)")
    (found,) = find(base, tmp_path)
    assert "clew does not know" in found.problem
    with pytest.raises(UnsupportedVersion):
        get_format(base.agent).locate.load(found, Home(tmp_path))


@every_base
def test_a_locked_database_is_read_as_it_was_committed(base: Base, tmp_path: Path) -> None:
    path = make(base, tmp_path)
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("BEGIN EXCLUSIVE")
        try:
            _, session = read_first(base, tmp_path)
        finally:
            db.execute("ROLLBACK")
    assert tuple((m.role, m.text) for m in session.messages) == base.said


def restored(base: Base, home: Path, rows: Any, expect: Any = None) -> None:
    form = get_format(base.agent)
    name = name_rows(base.path if base.agent != "goose" else "sessions.db", base.ids[0])
    name = name.removeprefix(".openclaw/")
    assert form.place_rows is not None
    form.place_rows(Home(home), name, rows, expect, 0)


@every_base
def test_rows_are_put_back_as_they_were(base: Base, tmp_path: Path) -> None:
    path = make(base, tmp_path)
    before = everything(path)
    form = get_format(base.agent)
    source, _ = read_first(base, tmp_path)
    name, data = source.streams[0].path, source.streams[0].data
    assert form.present_rows is not None
    assert form.present_rows(Home(tmp_path), name) == data
    assert form.present_rows(Home(tmp_path), name + "x") is None
    run_in(path, *base.removal)
    assert form.present_rows(Home(tmp_path), name) is None
    assert everything(path) != before
    restored(base, tmp_path, data)
    assert everything(path) == before
    assert form.present_rows(Home(tmp_path), name) == data


@every_base
def test_rows_that_are_there_with_other_values_are_left_alone(base: Base, tmp_path: Path) -> None:
    path = make(base, tmp_path)
    source, _ = read_first(base, tmp_path)
    run_in(path, base.spoil)
    changed = everything(path)
    with pytest.raises(Refused, match="is there already") as caught:
        restored(base, tmp_path, source.streams[0].data)
    assert caught.value.code == "target_diverged"
    assert everything(path) == changed


@every_base
def test_a_table_that_is_not_as_it_was_is_refused_by_name(base: Base, tmp_path: Path) -> None:
    path = make(base, tmp_path)
    source, _ = read_first(base, tmp_path)
    table = {"goose": "messages", "crush": "messages", "kiro": "conversations_v2", "openclaw": "transcript_events"}
    run_in(path, *base.removal, f"ALTER TABLE {table[base.agent]} ADD COLUMN newer TEXT")
    changed = everything(path)
    with pytest.raises(Refused, match=r"other columns in .*\(newer\)") as caught:
        restored(base, tmp_path, source.streams[0].data)
    assert caught.value.code == "schema_differs"
    run_in(path, f"DROP TABLE {table[base.agent]}")
    with pytest.raises(UnsupportedVersion, match="no table"):
        restored(base, tmp_path, source.streams[0].data)
    path.unlink()
    with pytest.raises(Refused, match="does not exist") as caught:
        restored(base, tmp_path, source.streams[0].data)
    assert caught.value.code == "no_database"
    assert not path.exists()
    assert changed


def test_rows_of_others_are_never_touched(tmp_path: Path) -> None:
    base = BASES[0]
    path = make(base, tmp_path)
    source, _ = read_first(base, tmp_path)
    data = bytes(source.streams[0].data)
    run_in(path, *base.removal, "INSERT INTO messages (id, session_id, role) VALUES (2, 'g-2', 'user')")
    before = everything(path)
    with pytest.raises(Refused, match=r"table '\w+' is in the way \(\w+ .*, which belongs to session "):
        restored(base, tmp_path, data)
    run_in(path, "DELETE FROM messages")
    before = everything(path)
    with pytest.raises(Refused, match="did not come out"):
        restored(base, tmp_path, data.replace(b'"session_id":"g-1"', b'"session_id":"g-2"', 1))
    with pytest.raises(Refused, match="damaged"):
        restored(base, tmp_path, data[:-9])
    assert everything(path) == before


def test_what_several_sessions_share_is_put_where_it_is_missing(tmp_path: Path) -> None:
    base = BASES[3]
    path = make(base, tmp_path)
    source, _ = read_first(base, tmp_path)
    run_in(path, *base.removal, "INSERT INTO session_nodes VALUES ('agent:main:w-1', 'w-2', '{}')")
    restored(base, tmp_path, source.streams[0].data)
    assert everything(path)["session_nodes"] == [("text 'agent:main:w-1'", "text 'w-2'", "text '{}'")]
    assert len(everything(path)["transcript_events"]) == len(source.streams[0].data.splitlines()) - 2


@every_base
def test_rows_are_read_whatever_is_in_them(base: Base, tmp_path: Path) -> None:
    import random

    make(base, tmp_path)
    source, _ = read_first(base, tmp_path)
    data = bytes(source.streams[0].data)
    rng = random.Random(5)
    for _ in range(200):
        broken = bytearray(data[: rng.randrange(len(data) + 1)])
        for _ in range(rng.randrange(4)):
            if broken:
                broken[rng.randrange(len(broken))] = rng.randrange(256)
        session = get_format(base.agent).read(Source((Stream(source.streams[0].path, bytes(broken)),)))
        assert b"".join(bytes(session.records[n]) for n in range(len(session.records))) == bytes(broken)


def test_a_database_of_several_sessions_wants_an_id(tmp_path: Path) -> None:
    path = make(BASES[0], tmp_path)
    form = get_format("goose")
    assert form.locate.claims(path, path.read_bytes()[:100])
    with pytest.raises(AmbiguousError, match="2 sessions"):
        form.locate.load(Found("goose", path.stem, path), Home(tmp_path / "elsewhere"))


def test_after_a_compaction_of_crush_the_summary_comes_first(tmp_path: Path) -> None:
    path = make(BASES[1], tmp_path)
    with closing(sqlite3.connect(path)) as db, db:
        parts = json.dumps([{"type": "text", "data": {"text": "They counted."}}])
        values = ("s", "c-1", "assistant", parts, "m", "lab", 1790000001, 1790000001, 1)
        db.execute("INSERT INTO messages VALUES (?,?,?,?,?,?,?,?,?)", values)
        db.execute("UPDATE sessions SET summary_message_id = 's'")
    _, session = read_first(BASES[1], tmp_path)
    assert [(m.role, m.text, m.kind) for m in session.messages] == [("user", "They counted.", "summary")]
    assert len(session.history) == 4
    assert [boundary.at for boundary in session.boundaries] == [3]


def test_an_event_that_cannot_be_unpacked_is_damage(tmp_path: Path) -> None:
    path = make(BASES[3], tmp_path)
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE transcript_events SET event_zstd = x'28b52ffd00' WHERE event_zstd IS NOT NULL")
    _, session = read_first(BASES[3], tmp_path)
    assert "unreadable row" in [damage.sort for damage in session.damage]


def test_events_of_the_larger_collection_are_read() -> None:
    base = shared_dir()
    path = base / "corpus/openclaw/tools/home/transcript_events.jsonl" if base else Path("none")
    if not path.exists():
        pytest.skip("the larger collection is not here")
    case = json.loads((path.parents[1] / "case.json").read_text("utf-8"))
    session = get_format("openclaw").read(Source((Stream(path.name, path.read_bytes()),)))
    assert session.id == case["session_id"]
    assert not session.damage
    wanted = [(e["role"], e["text"]) for e in case["expected"]["messages"] if e["role"] != "tool"]
    assert [(m.role, m.text) for m in session.messages if m.role != "tool"] == wanted
    results = [r["text"] for e in case["expected"]["messages"] for r in e["tool_results"]]
    assert [m.text for m in session.messages if m.role == "tool"] == results


def test_payloads_of_the_larger_collection_are_read() -> None:
    base = shared_dir()
    paths = sorted((base / "corpus/kiro/public-sqlite-payload/home").glob("*")) if base else []
    if not paths:
        pytest.skip("the larger collection is not here")
    said = {}
    for path in paths:
        session = get_format("kiro").read(Source((Stream(path.with_suffix(".json").name, path.read_bytes()),)))
        said[path.stem] = [message.role for message in session.messages]
        assert bool(session.damage) == (path.suffix == ".txt")
    assert said["standard_payload"] == ["user", "assistant", "user", "assistant"]
    assert said["overlap_payload"] == ["user", "assistant"]
