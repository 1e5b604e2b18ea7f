"""Recorded threads: what the reader gives is what was really said; and they come back byte for byte."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import clew_corpus
from clew.conversation.canonical import keys_of, normal_arguments
from clew.conversation.groups import group_messages, head_positions
from clew.conversation.model import Group
from clew.conversation.source import Session, Source, Stream
from clew.errors import UnreadableSource
from clew.formats.codex import FORMAT
from clew.formats.codex.reader import read
from clew.formats.codex.splice import splice
from clew.formats.codex.writer import write
from clew.formats.protocol import Home
from clew_corpus import Case
from codex_samples import joined, options, reread, streams_of

CASES = [case for case in (*clew_corpus.own_cases("codex"), *clew_corpus.shared_cases("codex")) if case.paths]
FAULTS = {case.name[:2]: case for case in clew_corpus.fault_cases() if "codex" in case.agent}
PUBLIC = list(clew_corpus.public_sessions("codex"))


def load(home: Path, session_id: str) -> Source:
    found = next(one for one in FORMAT.locate.find(Home(home)) if one.id == session_id)
    return FORMAT.locate.load(found, Home(home))


def loaded(case: Case) -> Session:
    assert case.session_id is not None
    return read(load(case.home, case.session_id))


def as_measured(group: Group) -> dict[str, Any]:
    calls = [(call.name, plain(call.arguments)) for call in group.head.calls]
    images = len(group.head.images) + sum(len(result.images) for result in group.results)
    return {
        "role": group.head.role,
        "text": group.head.text,
        "tool_calls": calls,
        "results": [result.text for result in group.results],
        "images": images,
    }


def plain(arguments: Any) -> Any:
    """Gives arguments in the form that counts (numbers, order of members, lone surrogates)."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    normal = normal_arguments(text)
    return normal if isinstance(normal, str) else bytes(normal)


def full_name(call: Any) -> str:
    return f"{call['namespace']}.{call['name']}" if call.get("namespace") else call["name"]


def expected(groups: Any) -> list[dict[str, Any]]:
    return [
        {
            "role": one["role"],
            "text": one["text"],
            "tool_calls": [(full_name(call), plain(call["arguments"])) for call in one["tool_calls"]],
            "results": [result["text"] for result in one["tool_results"]],
            "images": len(one["images"]),
        }
        for one in groups
    ]


def measured(messages: Any, *, notices: bool = False) -> list[dict[str, Any]]:
    """Gives the groups; what the recordings leave out (notices, interruption notes) only when asked for."""
    groups = group_messages(messages)
    return [as_measured(g) for g in groups if notices or g.head.kind not in ("notice", "interruption")]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case}-{case.home.parts[-4]}")
def test_a_recorded_thread_says_what_was_said(case: Case) -> None:
    session = loaded(case)
    got = measured(session.messages, notices=any(_is_notice(one) for one in case.expected or ()))
    wanted = expected(case.expected)
    for one, other in zip(got, wanted, strict=True):
        if other["results"] and not one["results"]:
            continue
        if case.name == "codemode":  # the shared recording joins the parts of a result with newlines
            one["results"] = [text.replace("\n", "") for text in one["results"]]
            other["results"] = [text.replace("\n", "") for text in other["results"]]
        if case.name == "interrupted-tool" and not other["results"]:  # recorded by the agent, not seen by the model
            one["results"] = []
        assert one == other
    if case.expected_full is not None:
        at = session.boundaries[0].at if session.boundaries else None
        assert measured(session.history[:at]) == expected(case.expected_full)[: len(measured(session.history[:at]))]
    assert session.cwd == case.cwd
    assert not [found for found in session.damage if found.lost]


def _is_notice(group: Any) -> bool:
    return group["role"] == "user" and group["text"].startswith(("<turn_aborted>", "<subagent_notification>"))


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case}-{case.home.parts[-4]}")
def test_a_recorded_thread_can_be_written_and_gone_on_with(case: Case) -> None:
    session = loaded(case)
    keys = list(keys_of(session.messages))
    assert list(keys_of(reread(write(session.messages, options())).messages)) == keys
    assert case.session_id is not None
    source = load(case.home, case.session_id)
    grown = splice(session, session.messages, options())
    for stream, file in zip(session.records.streams, streams_of(grown), strict=True):
        assert bytes(file.data).startswith(bytes(stream.data))
    again = read(Source(streams_of(grown), resolve=source.resolve))
    assert list(keys_of((*session.messages, *again.messages[len(session.messages) :])))[: len(keys)] == keys
    assert list(keys_of(again.messages[len(session.messages) :])) == keys


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case}-{case.home.parts[-4]}")
def test_a_recorded_thread_is_read_on_from_its_ending(case: Case) -> None:
    assert case.session_id is not None
    source = load(case.home, case.session_id)
    whole = read(source)
    if whole.ending is None:
        assert source.streams[-1].path.endswith(".zst") or len(whole.messages) == 0
        return
    on = read(source, whole.ending)
    start = on.continues.messages if on.continues is not None else 0
    assert list(keys_of((*whole.messages[:start], *on.messages))) == list(keys_of(whole.messages))
    assert (on.updated_ms, on.created_ms, on.model) == (whole.updated_ms, whole.created_ms, whole.model)


@pytest.mark.parametrize("case", PUBLIC, ids=str)
def test_a_public_thread_is_read(case: Case) -> None:
    data = case.paths[0].read_bytes()
    session = read(Source((Stream("sessions/x.jsonl", data),)))
    assert len(session.messages) > 5
    assert session.model
    assert not [one for one in session.damage if one.lost and one.sort != "torn tail"]
    written = write(session.messages, options())
    assert list(keys_of(reread(written).messages)) == list(keys_of(session.messages))
    heads = head_positions(session.messages)
    assert heads[0] == 0
    assert b"encrypted_content" not in joined(written)


def fault(number: str) -> Case:
    if number not in FAULTS:
        pytest.skip("the shared fault cases are not there")
    return FAULTS[number]


def test_faults_are_read_as_their_cases_say() -> None:
    for number, case in FAULTS.items():
        sessions = case.data["expected"].get("sessions")
        wanted = sessions or {None: case.data["expected"].get("messages")}
        for found in FORMAT.locate.find(Home(case.home)):
            messages = wanted.get(found.id, wanted.get(None))
            if messages is None or number in ("19",):
                continue
            session = read(FORMAT.locate.load(found, Home(case.home)))
            said = "".join(one.get("text", "") for one in messages if one["role"] != "tool")
            assert "".join(m.text for m in session.messages if m.role != "tool") == said, case.name


def test_a_compaction_keeps_the_full_history() -> None:
    case = fault("19")
    found = next(iter(FORMAT.locate.find(Home(case.home))))
    session = read(FORMAT.locate.load(found, Home(case.home)))
    users = [m.text for m in session.messages if m.role == "user"]
    assert users == case.data["expected"]["effective_context_user_texts"]
    assert [m.text for m in session.history] == [m["text"] for m in case.data["expected"]["messages"]]
    assert [(loss.what, loss.count) for loss in session.losses] == [("unreadable summaries", 1)]
    assert session.boundaries[0].note == "the summary is encrypted"


def test_bad_bytes_are_one_damage() -> None:
    case = fault("09")
    session = read(FORMAT.locate.load(next(iter(FORMAT.locate.find(Home(case.home)))), Home(case.home)))
    assert len(session.damage) == case.data["expected"]["damage_records"]


def test_a_fork_that_copies_has_its_own_id() -> None:
    case = fault("16")
    sessions = {
        found.id: read(FORMAT.locate.load(found, Home(case.home))) for found in FORMAT.locate.find(Home(case.home))
    }
    assert all(session.id == id_ for id_, session in sessions.items())
    child, parent = (sessions[case.data["expected"]["lineage"][0][name]] for name in ("child", "parent"))
    shared = list(keys_of(parent.messages))
    assert list(keys_of(child.messages))[: len(shared)] == shared
    assert [(one.relation, one.session_id) for one in child.references] == [("forked", parent.id)]


def test_compressed_threads_are_two_not_three() -> None:
    case = fault("23")
    founds = list(FORMAT.locate.find(Home(case.home)))
    assert sorted(found.id for found in founds) == sorted(case.data["expected"]["sessions"])
    assert sorted(found.path.suffix for found in founds) == [".jsonl", ".zst"]


def test_numbers_are_times_and_what_tells_no_time_is_unknown() -> None:
    case = fault("28")
    session = read(FORMAT.locate.load(next(iter(FORMAT.locate.find(Home(case.home)))), Home(case.home)))
    days = {datetime.fromtimestamp(m.time_ms / 1000, UTC).date().isoformat() for m in session.messages if m.time_ms}
    assert days == {"2026-09-10"}


def test_a_symbolic_link_is_named_and_not_followed(tmp_path: Path) -> None:
    folder = tmp_path / ".codex" / "sessions"
    folder.mkdir(parents=True)
    (tmp_path / "victim.jsonl").write_text("{}")
    (folder / "rollout-01a22df5-7ada-8893-8deb-9be09a8006e1.jsonl").symlink_to(tmp_path / "victim.jsonl")
    (found,) = FORMAT.locate.find(Home(tmp_path))
    assert "symbolic link" in found.problem
    with pytest.raises(UnreadableSource):
        FORMAT.locate.load(found, Home(tmp_path))
