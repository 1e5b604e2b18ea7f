"""What a reading of a session of Mistral Vibe gives, and where its sessions are: both layouts, imports, leases."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest

from clew.conversation.builder import make_assistant, make_call, make_result, make_user
from clew.conversation.source import Session, SideFile, Source, Stream
from clew.errors import UnreadableSource, UnsupportedVersion
from clew.formats.protocol import Home
from clew.formats.vibe import FORMAT
from clew.formats.vibe.folder import folder_path, id_in_name, store_kind
from clew.formats.vibe.locate import VibeLocate
from clew.laws.stored import group_keys, make_id, write_options

LOCATE = VibeLocate()
OLD = "logs/session/session_20261130_120000_1a32a31d"
OWN = "d70fd7b1-7d94-9ade-6c9d-5c15750795ed"


def old(rows: list[Any], meta: dict[str, Any] | None = None) -> Session:
    data = b"".join(json.dumps(row).encode() + b"\n" for row in rows)
    told = json.dumps(meta or {}).encode()
    side = (SideFile(f"{OLD}/meta.json", 0o600, len(told), lambda: told),)
    return FORMAT.read(Source((Stream(f"{OLD}/messages.jsonl", data),), side, hint_id="1a32a31d"))


def test_the_older_layout() -> None:
    call = {"id": "c1", "index": 0, "type": "function", "function": {"name": "f", "arguments": '{"a": 1.0}'}}
    meta = {
        "session_id": "whole-id",
        "parent_session_id": "p",
        "start_time": "2026-11-30T12:00:00Z",
        "end_time": "2026-11-30T12:05:00+00:00",
        "environment": {"working_directory": "/w"},
        "title": "T",
        "config": {"active_model": "a", "model_name": "m"},
    }
    session = old(
        [
            {"role": "system", "content": "prompt"},
            {"role": "user", "content": "one", "images": [{"mime_type": "image/png", "data": "iVBORw0KGgo="}]},
            {"role": "user", "content": "a note", "injected": True},
            {"role": "assistant", "content": "", "reasoning_content": "hm", "tool_calls": [call]},
            {"role": "tool", "content": "<tool_error>no</tool_error>", "name": "f", "tool_call_id": "c1"},
            {"role": "user", "content": "sum", "context_boundary": "compaction"},
            {"role": "tool", "content": "x", "tool_call_id": "c9"},
        ],
        meta,
    )
    assert [(m.role, m.origin, m.kind) for m in session.messages] == [
        ("user", "user", ""),
        ("user", "agent", "notice"),
        ("assistant", "model", ""),
        ("tool", "agent", ""),
        ("user", "agent", "summary"),
    ]
    assert session.messages[3].is_error is True
    assert len(session.messages[0].images) == 1
    assert (session.id, session.cwd, session.title, session.model) == ("whole-id", "/w", "T", "m")
    assert session.updated_ms is not None
    assert session.created_ms == session.updated_ms - 300_000
    assert [(r.relation, r.session_id) for r in session.references] == [("forked", "p")]
    assert [d.sort for d in session.damage] == ["stray result"]


def test_arguments_that_are_an_object_are_read_too() -> None:
    call = {"id": "c1", "function": {"name": "f", "arguments": {"a": 1}}}
    assert (
        old([{"role": "assistant", "content": "x", "tool_calls": [call]}]).messages[0].calls[0].arguments == '{"a": 1}'
    )


def test_an_image_in_a_file_beside_the_session() -> None:
    row = {"role": "user", "content": "x", "images": [{"mime_type": "image/png", "path": "a.png"}]}
    data = json.dumps(row).encode() + b"\n"
    side = (SideFile(f"{OLD}/a.png", 0o600, 3, lambda: b"png"), SideFile("a.png", 0o600, 3, lambda: b"not this"))
    session = FORMAT.read(Source((Stream(f"{OLD}/messages.jsonl", data),), side))
    assert session.messages[0].images[0].data == "cG5n"
    assert FORMAT.read(Source((Stream(f"{OLD}/messages.jsonl", data),))).messages[0].images[0].url == "file:a.png"


def test_a_side_file_that_cannot_be_had_costs_nothing() -> None:
    def fail() -> bytes:
        raise OSError("gone")

    side = (SideFile(f"{OLD}/meta.json", 0o600, 3, fail),)
    data = b'{"role":"user","content":"x"}\n'
    assert FORMAT.read(Source((Stream(f"{OLD}/messages.jsonl", data),), side)).messages[0].text == "x"


# --- the unified store ------------------------------------------------------------------------------------------------


def canonical(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def item(role: str, *parts: Any, source: str = "history", **members: Any) -> dict[str, Any]:
    content = [{"type": "text", "text": part} if isinstance(part, str) else part for part in parts]
    return {"message": {"role": role, "content": content} | members, "source": source, "turn_index": 0}


class Store:
    """A session of the unified store."""

    def __init__(self, home: Path, session_id: str = OWN, minor: int = 10) -> None:
        self.home, self.id, self.minor = home, session_id, minor
        self.folder = home / ".vibe" / "logs" / "session" / "unified" / session_id
        self.origin: Any = None

    def put(self, name: str, data: bytes) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)

    def chunk(self, items: list[Any]) -> str:
        body = canonical(items)
        name = hashlib.sha256(body).hexdigest()
        self.put(f"chunks/{name}.json", body + b"\n")
        return name

    def save(self, *chunks: list[Any], journal: bytes = b"", generation: str = "0000000000000004") -> None:
        names = [self.chunk(items) for items in chunks]
        place = f"generations/{generation}"
        manifest = {
            "checkpoint": {"checkpoint_version": 1, "chunks": names, "path": "checkpoint.json"},
            "execution_state": "quiescent",
            "generation": generation,
            "recovery_journal_segment": {"path": "journal/0000000000000005.jsonl"},
        }
        runtime = {"import_provenance": {"source": {"backend": "legacy", "session_id": self.origin}}}
        self.put(f"{place}/checkpoint.json", canonical({"context": {"messages": []}}) + b"\n")
        self.put(f"{place}/runtime-state.json", canonical(runtime if self.origin else {}) + b"\n")
        self.put(f"{place}/projection-state.json", b"{}\n")
        self.put(f"{place}/manifest.json", canonical(manifest) + b"\n")
        self.put("journal/0000000000000005.jsonl", journal)
        self.put("meta.json", canonical({"session_id": self.id, "environment": {"working_directory": "/w"}}))
        current = {
            "generation": generation,
            "manifest_sha256": hashlib.sha256(canonical(manifest)).hexdigest(),
            "session_id": self.id,
            "snapshot_sequence": 4,
            "store_format": "mistral.vibe.unified-session-store/v1",
            "store_format_minor": self.minor,
        }
        self.put("CURRENT", canonical(current) + b"\n")

    def read(self) -> Session:
        found = next(f for f in LOCATE.find(Home(self.home)) if f.id == self.id)
        return FORMAT.read(LOCATE.load(found, Home(self.home)))


def test_chunks_are_read_in_order_with_a_record_an_item(tmp_path: Path) -> None:
    store = Store(tmp_path)
    call = {"type": "tool_call", "id": "c1", "name": "f", "arguments": {"type": "json", "raw": '{"a": 1}', "value": {}}}
    reasoning = {"type": "reasoning", "content": [{"type": "text", "text": "hm"}]}
    picture = {"type": "resource", "resource": {"uri": "file:///x", "mimeType": "image/png", "blob": "AAAA"}}
    first = [item("user", "one", picture), item("assistant", reasoning, "two", call)]
    second = [
        item("tool", "no", tool_call_id="c1", name="f", outcome="failure"),
        item("user", "<compaction_summary>x</compaction_summary>", source="injection"),
        item("user", "a hook", source="injection"),
    ]
    store.save(first, second)
    session = store.read()
    assert [(m.role, m.text, m.kind) for m in session.messages] == [
        ("user", "one", ""),
        ("assistant", "two", ""),
        ("tool", "no", ""),
        ("user", "<compaction_summary>x</compaction_summary>", "summary"),
        ("user", "a hook", "notice"),
    ]
    assert session.messages[2].is_error is True
    assert session.messages[1].calls[0].arguments == '{"a": 1}'
    assert session.messages[0].images[0].data == "AAAA"
    assert session.created_by == (0, 1, 2, 3, 4)
    assert (session.id, session.cwd, session.ending) == (OWN, "/w", None)
    for number, stream in enumerate(session.records.streams):
        pieces = [bytes(view) for view, _ in session.records.spans(0, len(session.records))]
        assert pieces[number] == bytes(stream.data) if len(memoryview(stream.data)) else True


def test_the_journal_goes_on_behind_the_chunks(tmp_path: Path) -> None:
    def event(command: Any) -> bytes:
        given = {"command": command, "determinism": {"time_unix_ms": 1_796_000_000_000}}
        return canonical({"type": "core_input", "payload": {"input": given}}) + b"\n"

    parts = [{"type": "text", "text": "x"}, {"type": "tool_call", "id": "c1", "name": "f", "arguments_json": "{}"}]
    journal = b"".join(
        [
            canonical({"type": "command_reserved", "payload": {}}) + b"\n",
            event({"type": "user_message", "content": [{"type": "text", "text": "two"}]}),
            event({"type": "completion_succeeded", "result": {"parts": parts}}),
            event(
                {"type": "tool_succeeded", "call_id": "c1", "result": {"content": [], "structured_content": {"a": 1}}}
            ),
            b'{"type":"core_in',
        ]
    )
    store = Store(tmp_path)
    store.save([item("user", "one")], journal=journal)
    session = store.read()
    assert [m.text for m in session.messages] == ["one", "two", "x", '{"a":1}']
    assert session.updated_ms == 1_796_000_000_000
    assert [d.sort for d in session.damage] == ["torn tail"]


def test_spoiled_chunks_are_told(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.save([item("user", "one")], [item("assistant", "two")])
    for path in (store.folder / "chunks").iterdir():
        if b"two" in path.read_bytes():
            path.write_bytes(b"[{")
    session = store.read()
    assert [m.text for m in session.messages] == ["one"]
    assert [d.sort for d in session.damage] == ["not json"]


def test_a_line_of_a_role_that_nobody_knows_is_told() -> None:
    lines = b'{"role":"user","content":"one"}\n{"rolf":"user","content":"two"}\n{"role":"system","content":"x"}\n'
    path = f"logs/session/{folder_path(OWN, 0)}/messages.jsonl"
    session = FORMAT.read(Source((Stream(path, lines),)))
    assert [m.text for m in session.messages] == ["one"]
    assert [(d.record, d.offset, d.sort, d.lost) for d in session.damage] == [(1, 32, "foreign record", True)]


@pytest.mark.parametrize("left", [b"", b"[]\n", None])
def test_a_chunk_with_other_bytes_than_were_written_is_told(tmp_path: Path, left: bytes | None) -> None:
    store = Store(tmp_path)
    store.save([item("user", "one")], [item("assistant", "two")])
    for path in (store.folder / "chunks").iterdir():
        if b"two" in path.read_bytes():
            path.write_bytes(path.read_bytes().replace(b"two", b"tvo") if left is None else left)
            name = path.name
    session = store.read()
    assert [m.text for m in session.messages] == (["one", "tvo"] if left is None else ["one"])
    assert [(d.file.rpartition("/")[2], d.record, d.sort) for d in session.damage] == [(name, 1, "wrong digest")]


def test_a_manifest_that_names_no_chunk_any_more_is_told(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.save([item("user", "one")])
    (path,) = store.folder.glob("generations/*/manifest.json")
    path.write_bytes(path.read_bytes().replace(b'"chunks"', b'"chunkz"'))
    session = store.read()
    assert not session.messages
    assert [(d.file.rpartition("/")[2], d.sort) for d in session.damage] == [("manifest.json", "wrong digest")]


def test_an_unknown_store_is_refused_by_name(tmp_path: Path) -> None:
    store = Store(tmp_path, minor=11)
    store.save([item("user", "one")])
    with pytest.raises(UnsupportedVersion, match="minor version 11"):
        store.read()


@pytest.mark.parametrize("name", ["../../x", "x", ""])
def test_no_hostile_generation_builds_a_path(tmp_path: Path, name: str) -> None:
    store = Store(tmp_path)
    store.save([item("user", "one")])
    current = json.loads((store.folder / "CURRENT").read_text()) | {"generation": name}
    store.put("CURRENT", canonical(current) + b"\n")
    with pytest.raises(UnreadableSource, match="no generation"):
        store.read()


def test_links_are_named_and_not_followed(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.save([item("user", "one")])
    (store.folder.parent / "linked").symlink_to(store.folder)
    base = store.folder.parent.parent
    (base / "session_20261130_120000_aaaaaaaa").symlink_to(store.folder)
    found = {f.id: f.problem for f in LOCATE.find(Home(tmp_path))}
    assert not found[OWN]
    assert "symbolic link" in found["linked"]
    assert "symbolic link" in found["aaaaaaaa"]


def test_an_imported_session_is_found_where_it_goes_on_and_under_its_old_id(tmp_path: Path) -> None:
    said = (
        make_user("<one>", origin="agent", kind="notice"),
        make_assistant(make_call("c 1", "a b", "free text"), make_call("c2", "f", "{}")),
        make_result("c 1", "[clew: not ours]"),
        make_user("[clew: nor this]"),
    )
    assert FORMAT.write is not None
    base = tmp_path / ".vibe"
    written = FORMAT.write(said, write_options(make_id("old"), origin="claude:c-1"))
    for file in written.files:
        (base / file.path).parent.mkdir(parents=True, exist_ok=True)
        (base / file.path).write_bytes(b"".join(map(bytes, file.chunks())))
    assert [(f.id, f.kind) for f in LOCATE.find(Home(tmp_path))] == [(make_id("old"), "session")]
    store = Store(tmp_path)
    store.origin = make_id("old")
    rows = [json.loads(line) for line in (base / written.files[-1].path).read_bytes().splitlines()]
    store.save([imported(row) for row in rows] + [item("user", "more")])
    found = {f.id: f for f in LOCATE.find(Home(tmp_path))}
    assert {name: f.kind for name, f in found.items()} == {OWN: "session", make_id("old"): "archived"}
    for name, one in found.items():
        session = FORMAT.read(LOCATE.load(one, Home(tmp_path)))
        assert session.id == name
        assert group_keys(session.messages) == group_keys((*said, make_user("more")))
        assert [(m.origin, m.kind) for m in session.messages] == [
            *((m.origin, m.kind) for m in said),
            ("user", ""),
        ]
        assert session.messages[1].calls[0].id == "c 1"
        assert session.foreign == "claude:c-1"


def imported(row: dict[str, Any]) -> dict[str, Any]:
    """An item as Vibe makes it of a line: marks and other members are gone."""
    calls = [
        {
            "type": "tool_call",
            "id": c["id"],
            "name": c["function"]["name"],
            "arguments": {"raw": c["function"]["arguments"]},
        }
        for c in row.get("tool_calls", [])
    ]
    if row["role"] == "tool":
        return item("tool", row["content"], tool_call_id=row["tool_call_id"], name=row["name"], outcome="success")
    return item(row["role"], row["content"], *calls)


def test_who_holds_a_session(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.save([item("user", "one")])
    active = store.folder.parent / "active"
    active.mkdir()
    lease = {"session_id": OWN, "process_id": os.getpid()}
    (active / f"{OWN}.lock.json").write_text(json.dumps(lease))
    (active / "gone.lock.json").write_text(json.dumps({"session_id": "gone", "process_id": 2**22 + 5}))
    (active / "odd.lock.json").write_text("[")
    owners = FORMAT.resume.owners(Home(tmp_path))
    assert list(owners) == [OWN]
    (found,) = LOCATE.find(Home(tmp_path))
    owner = FORMAT.resume.owner(found, Home(tmp_path))
    assert owner is not None
    assert owner.pid == os.getpid()


def test_names_base_settings_and_command_lines(tmp_path: Path) -> None:
    assert folder_path(OWN, 1_796_066_040_161) == "logs/session/session_20261130_191400_d70fd7b1"
    assert id_in_name("session_20261130_191400_d70fd7b1") == "d70fd7b1"
    assert id_in_name("session_basic") == "basic"
    assert store_kind(f"logs/session/unified/{OWN}/chunks/x.json") == "chunks"
    assert store_kind(f"{OLD}/messages.jsonl") == ""
    with pytest.raises(AssertionError):
        folder_path("../x", 0)
    assert LOCATE.base(Home(tmp_path, {"VIBE_HOME": "/x"})) == Path("/x")
    assert LOCATE.settings(Home(tmp_path)).model == ""
    (tmp_path / ".vibe").mkdir()
    (tmp_path / ".vibe" / "config.toml").write_text('active_model = "m"\n')
    assert LOCATE.settings(Home(tmp_path)).model == "m"
    assert LOCATE.claims(tmp_path / "messages.jsonl", b'{"role": "user", "content": "x"}\n')
    assert not LOCATE.claims(tmp_path / "x.jsonl", b'{"role": "user", "content": "x"}\n')
    assert FORMAT.resume.argv("x", extra=("-y",)) == ("vibe", "--resume", "x", "-y")
    assert FORMAT.resume.fork_argv("x") == ()
