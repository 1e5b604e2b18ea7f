"""Recorded sessions of Mistral Vibe, of both layouts, say what was said; a store at rest is gone on with."""

from __future__ import annotations

import hashlib
import json

import pytest

import clew_corpus
from clew.conversation.builder import make_assistant, make_call, make_result, make_user
from clew.conversation.model import Image, Text
from clew.conversation.source import SideFile, Source, Stream
from clew.errors import UnwritableContent
from clew.formats.protocol import Home, Written
from clew.formats.vibe import FORMAT
from clew.laws.stored import group_keys, store_written, write_options
from clew_corpus import Case
from corpuscheck import find_in_case, read_case, said_in, wanted_of

CASES = [*clew_corpus.own_cases("vibe"), *clew_corpus.shared_cases("vibe")]
RESTING = [case for case in CASES if case.expected and "interrupted" not in case.name]
MORE = (
    make_user("And then?", Image("image/png", "iVBORw0KGgo=")),
    make_assistant("I look.", make_call("c 1", "a b", "free text"), make_call("c2", "Bash", '{"command":"ls"}')),
    make_result("c 1", "[clew: not ours]", is_error=True),
    make_user("A summary.", origin="agent", kind="summary"),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case}-{case.home.parts[-4]}")
def test_a_recorded_session_says_what_was_said(case: Case) -> None:
    session = read_case(FORMAT, case)
    if case.expected is not None:
        assert said_in(session.messages) == wanted_of(case.expected)
        assert session.cwd == case.cwd
        assert session.created_ms is not None
    assert not session.damage
    written = store_written(FORMAT, FORMAT.write(session.messages, write_options()))  # type: ignore[misc]
    assert group_keys(written.read().messages) == group_keys(session.messages)


def as_source(written: Written, side: tuple[SideFile, ...], session_id: str) -> Source:
    """Returns what a splice made as it would lie on a disk, with the files that were there."""

    def data(file: object) -> bytes:
        return b"".join(map(bytes, file.chunks()))  # type: ignore[attr-defined]

    streams = tuple(Stream(file.path, data(file)) for file in written.files if file.role == "stream")
    made = {f.path: SideFile(f.path, f.mode, 0, lambda f=f: data(f)) for f in written.files if f.role != "stream"}
    return Source(streams, (*(f for f in side if f.path not in made), *made.values()), hint_id=session_id)


@pytest.mark.parametrize("case", RESTING, ids=lambda case: f"{case}-{case.home.parts[-4]}")
def test_a_store_at_rest_is_gone_on_with(case: Case) -> None:
    source = FORMAT.locate.load(find_in_case(FORMAT, case), Home(case.home))
    session = FORMAT.read(source)
    written = FORMAT.splice(session, MORE, write_options())  # type: ignore[misc]
    grown = as_source(written, source.side, session.id)
    again = FORMAT.read(grown)
    assert again.messages[: len(session.messages)] == session.messages
    added = again.messages[len(session.messages) :]
    assert group_keys(added) == group_keys(MORE)
    assert [(m.role, m.origin, m.kind) for m in added] == [(m.role, m.origin, m.kind) for m in MORE]
    assert [c.id for c in added[1].calls] == ["c 1", "c2"]
    assert [len(m.images) for m in added] == [1, 0, 0, 0]
    assert written.invented == 1
    files = {file.path: b"".join(map(bytes, file.chunks())) for file in written.files}
    folder = next(path for path in files if path.endswith("/CURRENT")).removesuffix("/CURRENT")
    current = json.loads(files[f"{folder}/CURRENT"])
    manifest = files[f"{folder}/generations/{current['generation']}/manifest.json"]
    assert hashlib.sha256(manifest.rstrip(b"\n")).hexdigest() == current["manifest_sha256"]
    for name in json.loads(manifest)["checkpoint"]["chunks"]:
        assert hashlib.sha256(files[f"{folder}/chunks/{name}.json"].rstrip(b"\n")).hexdigest() == name
    assert next(file.path for file in reversed(written.files)) == f"{folder}/CURRENT"
    for stream in source.streams:
        assert stream.path not in files or files[stream.path] == bytes(stream.data)
    twice = FORMAT.splice(again, (make_user("More."),), write_options())  # type: ignore[misc]
    assert FORMAT.read(as_source(twice, grown.side, session.id)).messages[-1].parts == (Text("More."),)


@pytest.mark.parametrize("case", [c for c in CASES if c.name == "interrupted-tool"], ids=str)
def test_a_store_in_the_middle_of_a_turn_is_left_alone(case: Case) -> None:
    session = read_case(FORMAT, case)
    with pytest.raises(UnwritableContent, match="middle of a turn"):
        FORMAT.splice(session, MORE, write_options())  # type: ignore[misc]
