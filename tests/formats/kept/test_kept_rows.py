"""Agents whose databases are read: rows are exported, listed and said; nothing is written, the log counts."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from clew.conversation.source import Session, Source, Stream
from clew.errors import AmbiguousError, Refused, UnsupportedVersion
from clew.formats.protocol import Found, Home
from clew.formats.registry import get_format
from clew.residue.segments import cut_session, slice_segments
from clew_corpus import shared_dir
from kept_databases import BASES, Base, make

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


@every_base
def test_nothing_is_put_into_a_database(base: Base, tmp_path: Path) -> None:
    path = make(base, tmp_path)
    before = path.read_bytes()
    form = get_format(base.agent)
    source, _ = read_first(base, tmp_path)
    name = source.streams[0].path
    assert form.present_rows is not None
    assert form.place_rows is not None
    assert form.present_rows(Home(tmp_path), name) == source.streams[0].data
    assert form.present_rows(Home(tmp_path), name + "x") is None
    with pytest.raises(Refused, match="writes nothing"):
        form.place_rows(Home(tmp_path), name, source.streams[0].data, None, 0)
    assert path.read_bytes() == before


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
