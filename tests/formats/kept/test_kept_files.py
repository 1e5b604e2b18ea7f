"""Agents whose files are read, kept and restored: what the samples say, where they lie, and any bytes at all."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from clew.conversation.model import Message
from clew.conversation.source import Session, Source, Stream
from clew.errors import UnsupportedVersion
from clew.formats.protocol import Found, Home
from clew.formats.registry import all_formats, get_format
from clew.residue.segments import cut_session, slice_segments
from clew_corpus import Case, public_sessions, shared_cases
from kept_samples import SAMPLES, Sample

AGENTS = ("aider", "mini-swe-agent", "copilot", "amp", "cursor", "goose", "kiro", "crush", "openclaw")

every_sample = pytest.mark.parametrize("sample", SAMPLES, ids=str)


def read(agent: str, data: bytes, path: str) -> Session:
    return get_format(agent).read(Source((Stream(path, data),), hint_id="hint"))


def name_of(sample: Sample) -> str:
    return sample.path or {"copilot": "VSGitHubCopilot_traces.jsonl", "kiro": "payload.json"}[sample.agent]


def told(message: Message) -> tuple[str, str, tuple[str, ...]]:
    return message.role, message.text, tuple(call.name for call in message.calls)


def check_cut(session: Session, data: bytes) -> None:
    assert b"".join(bytes(session.records[n]) for n in range(len(session.records))) == data
    cuts = cut_session(session)
    assert b"".join(bytes(part.data) for part in slice_segments(session.records, cuts)) == data


@every_sample
def test_a_sample_says_what_it_says(sample: Sample, tmp_path: Path) -> None:
    form = get_format(sample.agent)
    path = tmp_path / name_of(sample)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(sample.data)
    places = {found.path: found for found in form.locate.find(Home(tmp_path))}
    if sample.path:
        assert set(places) == {path}
        session = form.read(form.locate.load(places[path], Home(tmp_path)))
    else:
        assert not places
        session = read(sample.agent, sample.data, name_of(sample))
    assert tuple(map(told, session.messages)) == sample.said
    assert {name: getattr(session, name) for name in sample.facts} == sample.facts
    assert not session.damage
    check_cut(session, sample.data)


@every_sample
def test_one_format_alone_claims_a_sample(sample: Sample, tmp_path: Path) -> None:
    path = tmp_path / name_of(sample)
    claims = [form.name for form in all_formats() if form.locate.claims(path, sample.data[: 1 << 16])]
    if sample.agent == "openclaw":
        claims.remove("pi")  # it reads the older layout of such lines; what is asked first decides
    assert claims == [sample.agent]


@every_sample
def test_any_bytes_are_read_and_cut(sample: Sample) -> None:
    rng = random.Random(11)
    for _ in range(300):
        broken = bytearray(sample.data[: rng.randrange(len(sample.data) + 1)])
        for _ in range(rng.randrange(4)):
            if broken:
                broken[rng.randrange(len(broken))] = rng.choice((0, 10, 34, 92, 123, 125, 255, rng.randrange(256)))
        session = read(sample.agent, bytes(broken), name_of(sample))
        check_cut(session, bytes(broken))
        for message in session.messages:
            message.text.encode()


@every_sample
def test_what_is_lost_is_told(sample: Sample) -> None:
    if sample.agent == "aider":
        return  # every text is a history
    assert read(sample.agent, sample.data[: len(sample.data) - 30], name_of(sample)).damage


def test_nothing_is_written_for_these_agents() -> None:
    for name in AGENTS:
        form = get_format(name)
        assert (form.write, form.traits.writes) == (None, False)
        assert form.resume.argv("any") == ()


@pytest.mark.parametrize(
    ("agent", "path"),
    [
        ("cursor", ".cursor/projects/x/agent-transcripts/c.txt"),
        ("copilot", ".config/Code/User/workspaceStorage/x/chatSessions/c.jsonl"),
    ],
)
def test_what_is_not_known_well_enough_is_refused_by_name(agent: str, path: str, tmp_path: Path) -> None:
    (tmp_path / path).parent.mkdir(parents=True)
    (tmp_path / path).write_bytes(b"anything")
    form = get_format(agent)
    (found,) = form.locate.find(Home(tmp_path))
    with pytest.raises(UnsupportedVersion, match="form clew does not know"):
        form.locate.load(found, Home(tmp_path))


def test_a_store_of_cursor_is_refused_by_its_path(tmp_path: Path) -> None:
    path = tmp_path / ".cursor/chats/x/y/store.db"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"SQLite format 3\0" + b"\0" * 100)
    form = get_format("cursor")
    assert not list(form.locate.find(Home(tmp_path)))
    assert form.locate.claims(path, path.read_bytes())
    with pytest.raises(UnsupportedVersion, match="store of Cursor"):
        form.locate.load(Found("cursor", "store", path), Home(tmp_path))


@pytest.mark.parametrize("agent", AGENTS)
def test_an_empty_home_has_no_place_of_such_an_agent(agent: str, tmp_path: Path) -> None:
    form = get_format(agent)
    places = form.locate.places(Home(tmp_path))
    assert places
    assert not any(place.exists() for place in places)
    assert not list(form.locate.find(Home(tmp_path)))


def test_a_link_is_listed_and_not_followed(tmp_path: Path) -> None:
    (tmp_path / "there").write_bytes(b"x")
    folder = tmp_path / ".local/share/amp/threads"
    folder.mkdir(parents=True)
    (folder / "T-1.json").symlink_to(tmp_path / "there")
    (found,) = get_format("amp").locate.find(Home(tmp_path))
    assert "symbolic link" in found.problem


def test_the_document_beside_a_session_of_kiro_tells_of_it(tmp_path: Path) -> None:
    sample = next(one for one in SAMPLES if str(one) == "kiro-lines")
    path = tmp_path / sample.path
    path.parent.mkdir(parents=True)
    path.write_bytes(sample.data)
    path.with_suffix(".json").write_text('{"session_id":"k-9","cwd":"/w","title":"A count","created_at":"2026-02-03"}')
    form = get_format("kiro")
    (found,) = form.locate.find(Home(tmp_path))
    session = form.read(form.locate.load(found, Home(tmp_path)))
    assert (session.id, session.cwd, session.title) == ("k-9", "/w", "A count")
    assert [side.path for side in session.side] == [sample.path.replace(".jsonl", ".json")]
    path.with_suffix(".json").write_bytes(b"\xff{")
    assert form.read(form.locate.load(found, Home(tmp_path))).id == "k-1"


def test_what_stands_around_the_typed_text_of_cursor_is_context() -> None:
    line = {
        "role": "user",
        "message": {"content": "<a>x</a><user_query>\none\n</user_query>\n<user_query>two</user_query>"},
    }
    texts = [m.text for m in read("cursor", json.dumps(line).encode(), "c.jsonl").messages]
    assert texts == ["one\ntwo"]
    open_ended = {"role": "user", "message": {"content": "what is <user_query>?"}}
    texts = [m.text for m in read("cursor", json.dumps(open_ended).encode(), "c.jsonl").messages]
    assert texts == ["what is <user_query>?"]


def test_the_task_alone_was_said_only_where_the_template_fits() -> None:
    sample = next(one for one in SAMPLES if one.agent == "mini-swe-agent")
    other = sample.data.replace(b"Solve this: Count", b"Something else: Count")
    assert read(sample.agent, other, "x.traj.json").messages[0].text.startswith("Something else: Count to two.")


FILES = [case for case in shared_cases() if case.agent in ("aider", "mini-swe-agent") and case.expected]


@pytest.mark.parametrize("case", FILES, ids=str)
def test_the_larger_collection_is_read_as_it_was_said(case: Case) -> None:
    (path,) = [*case.home.rglob("*.traj.json"), *case.home.rglob(".aider.chat.history.md")]
    data = path.read_bytes()
    session = read(case.agent, data, path.name)
    check_cut(session, data)
    heads = [message for message in session.messages if message.role != "tool"]
    assert case.expected is not None
    if case.agent == "aider":  # lossy by nature: what begins like a note or a prompt is told apart by nobody
        found = [(m.role, m.text.strip()) for m in heads]
        wanted = [(str(entry["role"]), str(entry["text"]).strip()) for entry in case.expected]
        assert found[:3] == wanted[:3]
        assert found == wanted or case.name == "edit"
        return
    said = [(m.role, m.text) for m in heads if m.kind != "notice"]  # the agent's own demands are not in the scripts
    wanted = [(str(e["role"]), str(e["text"] or "")) for e in case.expected]
    refused = sum(loss.count for loss in session.losses if "refused" in loss.what)
    assert len(wanted) - len(said) == refused
    assert [entry for entry in wanted if entry in said] == said


@pytest.mark.parametrize("case", [c for c in public_sessions() if "copilot" in c.agent], ids=str)
def test_public_sessions_of_copilot_are_read(case: Case) -> None:
    data = case.paths[0].read_bytes()
    session = read("copilot", data, case.paths[0].name)
    assert session.messages
    assert not session.damage
    check_cut(session, data)


@pytest.mark.parametrize("case", [c for c in shared_cases() if c.agent == "copilot-visualstudio"], ids=str)
def test_public_traces_are_read(case: Case) -> None:
    for path in case.home.rglob("*.jsonl"):
        session = read("copilot", path.read_bytes(), path.name)
        assert session.messages
        assert not session.damage
        check_cut(session, path.read_bytes())
