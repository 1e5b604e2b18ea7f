"""Recorded sessions of Cline say what was said, can be written, and are gone on with."""

from __future__ import annotations

import pytest

import clew_corpus
from clew.formats.cline import FORMAT
from clew.formats.cline.splice import LIST
from clew.formats.framing import frame_document
from clew.laws.stored import group_keys, store_written, write_options
from clew_corpus import Case
from corpuscheck import read_case, said_in, wanted_of

CASES = [*clew_corpus.own_cases("cline"), *clew_corpus.shared_cases("cline")]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case}-{case.home.parts[-4]}")
def test_a_recorded_session_says_what_was_said(case: Case) -> None:
    session = read_case(FORMAT, case)
    assert said_in(session.messages) == wanted_of(case.expected or ())
    assert (session.cwd, session.title) == (case.cwd, "")
    assert not session.damage


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case}-{case.home.parts[-4]}")
def test_a_recorded_session_can_be_written_and_gone_on_with(case: Case) -> None:
    session = read_case(FORMAT, case)
    written = store_written(FORMAT, FORMAT.write(session.messages, write_options()))  # type: ignore[misc]
    assert group_keys(written.read().messages) == group_keys(session.messages)
    grown = store_written(FORMAT, FORMAT.splice(session, session.messages, write_options()))  # type: ignore[misc]
    data = bytes(session.records.streams[0].data)
    frame = frame_document(data, LIST)
    assert frame is not None
    assert grown.data.startswith(data[: frame.closed])
    assert grown.data.endswith(data[frame.closed :])
    again = grown.read()
    count = len(session.messages)
    assert group_keys(again.messages[:count]) == group_keys(session.messages)
    assert group_keys(again.messages[count:]) == group_keys(session.messages)
