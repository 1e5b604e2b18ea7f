"""Real sessions and real faults: our own fixtures, and the larger collections where they stand beside the checkout."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from claude_samples import joined, options, read_data
from clew.conversation.canonical import keys_of, normal_arguments
from clew.conversation.groups import group_messages
from clew.conversation.model import Message
from clew.conversation.source import Session, Source, Stream
from clew.formats.claude import FORMAT
from clew.formats.claude.rebase import rebase
from clew.formats.claude.splice import splice
from clew.formats.claude.writer import write
from clew.formats.protocol import Home
from clew_corpus import Case, fault_cases, own_cases, public_sessions, shared_cases

REAL = [case for case in (*own_cases("claude"), *shared_cases("claude")) if case.paths]
FAULTS = {case.name[:2]: case for case in fault_cases() if "claude" in case.agent}
PUBLIC = [case.paths[0] for case in public_sessions()]

needs_faults = pytest.mark.skipif(not FAULTS, reason="the collection of faults is not here")


def open_case(case: Case) -> dict[str, Session]:
    """Reads every session of a case, by id."""
    home = Home(case.home)
    return {f.id: FORMAT.read(FORMAT.locate.load(f, home)) for f in FORMAT.locate.find(home) if not f.problem}


def open_path(case: Case, path: Path) -> Session:
    home = Home(case.home)
    return next(FORMAT.read(FORMAT.locate.load(f, home)) for f in FORMAT.locate.find(home) if f.path == path)


def measure(messages: Iterable[Message]) -> list[dict[str, Any]]:
    """Groups as the collections have them, neighbouring messages of a user joined as a request has them."""
    rows: list[dict[str, Any]] = []
    for group in group_messages(messages):
        head = group.head
        if head.role == "user" and rows and rows[-1]["role"] == "user":
            rows[-1]["text"].append(head.text)
            rows[-1]["images"] += len(head.images)
            continue
        calls = [(c.id, c.name, normal_arguments(c.arguments)) for c in head.calls]
        results = sorted((r.call_id, r.text) for r in group.results)
        images = len(head.images) + sum(len(r.images) for r in group.results)
        rows.append({"role": head.role, "text": [head.text], "calls": calls, "results": results, "images": images})
    return rows


def expected(groups: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for group in groups:
        if group["role"] == "user" and rows and rows[-1]["role"] == "user":
            rows[-1]["text"].append(group["text"])
            rows[-1]["images"] += len(group["images"])
            continue
        calls = [
            (c["id"], c["name"], normal_arguments(json.dumps(c["arguments"], ensure_ascii=False)))
            for c in group["tool_calls"]
        ]
        results = sorted((r["call_id"], r["text"]) for r in group["tool_results"])
        rows.append(
            {
                "role": group["role"],
                "text": [group["text"]],
                "calls": calls,
                "results": results,
                "images": len(group["images"]),
            }
        )
    return rows


def assert_equal(session: Iterable[Message], wanted: Iterable[dict[str, Any]]) -> None:
    got, want = measure(session), expected(wanted)
    assert len(got) == len(want)
    if got[-1]["calls"] and not want[-1]["results"]:
        got[-1]["results"] = []  # killed before the model was told: the file has more than was exchanged
    for one, other in zip(got, want, strict=True):
        # A request has the texts of neighbours as blocks of their own, with line breaks put in between.
        plain = ["".join("".join(row["text"]).split("\n")).replace("\r", "") for row in (one, other)]
        assert plain[0] == plain[1].encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        assert {k: v for k, v in one.items() if k != "text"} == {k: v for k, v in other.items() if k != "text"}


@pytest.mark.parametrize("case", REAL, ids=str)
def test_real_sessions_say_what_was_said(case: Case) -> None:
    session = open_path(case, case.paths[0])
    assert not session.damage
    assert case.expected is not None
    assert_equal(session.messages, case.expected)
    if case.expected_full is not None:
        # What was kept verbatim over the compaction stands once in a history: only what is before is compared.
        history = session.history[: session.boundaries[0].at]
        groups = sum(1 for _ in group_messages(history))
        assert_equal(history, case.expected_full[:groups])
    assert session.version
    assert case.cwd in (None, session.cwd)
    assert all(not m.text.startswith("<system-reminder>") for m in session.messages)


def sessions() -> list[tuple[str, Path, bytes]]:
    paths = [p for case in REAL for p in case.paths] + PUBLIC
    paths += [p for case in FAULTS.values() for p in case.home.glob(".claude/projects/*/*.jsonl") if not p.is_symlink()]
    return [(p.stem[:60], p, p.read_bytes()) for p in dict.fromkeys(paths)]


SESSIONS = [(p, data) for _, p, data in sessions() if FORMAT.locate.claims(p, data[:65536])]


@pytest.mark.parametrize(("path", "data"), SESSIONS, ids=lambda v: v.stem[:50] if isinstance(v, Path) else "")
def test_every_session_comes_back_whole_by_every_way(path: Path, data: bytes) -> None:
    session = FORMAT.read(Source((Stream(f"projects/-x/{path.name}", data),), hint_id=path.stem))
    keys = list(keys_of(session.messages))
    records = session.records
    assert b"".join(bytes(records[n]) for n in range(len(records))) == data
    again = read_data(joined(write(session.messages, options(origin="claude:x"))))
    assert list(keys_of(again.messages)) == keys
    assert not again.damage
    assert [(m.origin, m.kind) for m in again.messages] == [(m.origin, m.kind) for m in session.messages]
    spliced = joined(splice(session, again.messages[:1], options()))
    assert spliced.startswith(data)
    longer = FORMAT.read(Source((Stream(f"projects/-x/{path.name}", spliced),), hint_id=path.stem))
    want = list(keys_of((*session.messages, *again.messages[:1])))
    assert list(keys_of(longer.messages)) == want
    new = "6f2b8a54-0c1e-8d7e-9a51-3f6f1c2d9bff"
    rebased = rebase(session, options(session_id=new))
    other = FORMAT.read(Source((Stream(rebased.files[0].path, joined(rebased)),), hint_id=new))
    assert list(keys_of(other.messages)) == keys


def growing() -> list[tuple[Path, bytes]]:
    return [(path, data) for path, data in SESSIONS if data.count(b"\n") > 5 and len(data) < 400_000]


@pytest.mark.parametrize(("path", "data"), growing(), ids=lambda v: v.stem[:50] if isinstance(v, Path) else "")
def test_a_reading_that_goes_on_agrees_with_a_whole_one(path: Path, data: bytes) -> None:
    lines = data.splitlines(keepends=True)
    for count in range(1, len(lines), max(1, len(lines) // 12)):
        place = f"projects/-x/{path.name}"
        first = FORMAT.read(Source((Stream(place, b"".join(lines[:count])),), hint_id=path.stem))
        if first.ending is None:
            continue
        whole = Source((Stream(place, data),), hint_id=path.stem)
        on, again = FORMAT.read(whole, first.ending), FORMAT.read(whole)
        if on.continues is not None:
            assert on.messages == again.messages[first.ending.messages :]
            assert (on.title, on.cwd, on.version) == (again.title, again.cwd, again.version)


def texts_of(found: Iterable[Message]) -> list[str]:
    return [m.text for m in found if m.role != "tool"]


@needs_faults
@pytest.mark.parametrize("number", ["01", "03", "04", "05", "06", "07", "08", "11", "12", "14", "20", "27", "29", "33"])
def test_faulty_sessions_are_read_as_they_were_meant(number: str) -> None:
    case = FAULTS[number]
    (path,) = case.home.glob(".claude/projects/*/*.jsonl")
    session = open_path(case, path)
    wanted = case.data["expected"]
    got = [
        {
            "role": m.role,
            "text": "\n".join(p.text for p in m.parts if hasattr(p, "text") and type(p).__name__ == "Text"),
            "calls": [(c.id, c.name, normal_arguments(c.arguments)) for c in m.calls],
            "call_id": m.call_id,
            "is_error": m.is_error if m.role == "tool" else None,
            "images": len(m.images),
        }
        for m in session.history
    ]
    want: list[dict[str, Any]] = []
    for m in wanted["messages"]:
        result = (m.get("tool_results") or [{}])[0]
        text = result.get("text", m.get("text", "")).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        want.append(
            {
                "role": m["role"],
                "text": text,
                "calls": [
                    (c["id"], c["name"], normal_arguments(json.dumps(c["arguments"]))) for c in m.get("tool_calls", ())
                ],
                "call_id": result.get("id", ""),
                "is_error": result.get("is_error"),
                "images": result.get("images", m.get("images", 0)),
            }
        )
    assert got == want
    if "effective_context" in wanted:
        assert texts_of(session.messages) == [m["text"] for m in wanted["effective_context"]]
    told = [(d.sort, d.offset, d.line) for d in session.damage]
    for damage in wanted.get("damage", ()):
        assert any(
            sort == damage["sort"] and offset == damage.get("offset", offset) and line == damage.get("line", line)
            for sort, offset, line in told
        )
    assert sum(d.lost for d in session.damage) == wanted.get("lost_records", sum(d.lost for d in session.damage))


@needs_faults
def test_reports_of_faulty_sessions() -> None:
    def told(number: str, session_id: str = "") -> list[tuple[str, int]]:
        found = open_case(FAULTS[number])
        session = found[session_id] if session_id else next(iter(found.values()))
        return [(d.sort, d.record) for d in session.damage]

    assert told("03") == [("broken link", 5), ("broken link", 9)]
    assert told("04") == [("repeated record", n) for n in range(6, 11)]
    assert told("05") == []
    assert told("06") == [("torn tail", 3)]
    assert told("07") == [("fragment", 3), ("missing newline", 5)]
    assert {sort for sort, _ in told("08")} == {"nul run"}
    assert told("18", "fd8781f9-16af-4186-8fde-4e85d1c7e1ab") == [("foreign record", 1), ("foreign record", 3)]


@needs_faults
def test_one_session_a_stranger_and_two_branches_of_one_id() -> None:
    sessions = open_case(FAULTS["18"])
    for session_id, wanted in FAULTS["18"].data["expected"]["sessions"].items():
        assert texts_of(sessions[session_id].messages) == [m["text"] for m in wanted]
    for name, wanted in FAULTS["17"].data["expected"]["branches"].items():
        session = open_path(FAULTS["17"], FAULTS["17"].home.parent / name)
        assert texts_of(session.messages) == [m["text"] for m in wanted]


@needs_faults
def test_folders_times_losses_and_ghosts() -> None:
    found = {s.id: s.cwd for s in open_case(FAULTS["13"]).values()}
    for cwd, session_ids in FAULTS["13"].data["expected"]["sessions_by_workspace"].items():
        assert [i for i, c in found.items() if c == cwd] == session_ids
    assert {s.cwd.lower() for s in open_case(FAULTS["15"]).values()} == {"c:\\work\\shop"}
    for session_id, wanted in FAULTS["28"].data["expected"]["sessions"].items():
        if session_id in (sessions := open_case(FAULTS["28"])):
            assert texts_of(sessions[session_id].messages) == [m["text"] for m in wanted]
    (surrogates,) = open_case(FAULTS["12"]).values()
    assert {loss.what: loss.count for loss in surrogates.losses} == {"lone surrogates": 3}
    assert all(not s.messages for s in open_case(FAULTS["26"]).values())
    home = Home(FAULTS["35"].home)
    assert sorted(f.id for f in FORMAT.locate.find(home)) == sorted(FAULTS["35"].data["expected"]["sessions"])
    assert [g.id for g in FORMAT.locate.ghosts(home)] == ["2beae2fb-0f91-4574-ac8f-7fb69ad30bd3"]  # type: ignore[attr-defined]


@needs_faults
def test_helpers_inline_and_in_files() -> None:
    found = open_case(FAULTS["27"])
    main = next(s for s in found.values() if not s.helper)
    assert [texts_of(b.messages) for b in main.branches] == [["Review app.py", "INLINE HELPER: looks fine."]]
    assert [r.session_id for r in main.references] == ["agent-a1b2c3d4"]
    helper = found["agent-a1b2c3d4"]
    assert texts_of(helper.messages)[-1] == "SEPARATE HELPER: tests are thin."
    assert [(r.relation, r.session_id) for r in helper.references] == [("helper_of", main.id)]


@needs_faults
def test_nothing_of_a_foreign_signature_is_written() -> None:
    (session,) = open_case(FAULTS["20"]).values()
    data = joined(write(session.messages, options()))
    assert b"thinking" not in data
    assert b"signature" not in data
    assert {loss.what: loss.count for loss in write(session.messages, options()).losses} == {"reasoning blocks": 4}


@needs_faults
def test_hostile_ids_are_data() -> None:
    for session in open_case(FAULTS["31"]).values():
        assert session.messages
        written = rebase(session, options())
        assert all(".." not in f.path.split("/") and not f.path.startswith("/") for f in written.files)


@pytest.mark.skipif("22" not in FAULTS, reason="the collection of faults is not here")
def test_a_session_with_one_huge_line(tmp_path: Path) -> None:
    import subprocess
    import sys

    script = FAULTS["22"].home.parent / "make.py"
    done = subprocess.run([sys.executable, script, tmp_path, "12"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    home = Home(tmp_path if (tmp_path / ".claude").is_dir() else tmp_path / "home")
    (found,) = FORMAT.locate.find(home)
    session = FORMAT.read(FORMAT.locate.load(found, home))
    wanted = FAULTS["22"].data["expected"]["messages"]
    assert [len(m.images) for m in session.messages] == [1, 0, 1] or sum(len(m.images) for m in session.messages) == 2
    assert session.messages[0].text == wanted[0]["text"]
    assert session.messages[-1].text == wanted[-1]["text"]
    data = found.path.read_bytes()
    assert hashlib.sha256(data).hexdigest() in done.stdout or len(data) > 12 << 20
