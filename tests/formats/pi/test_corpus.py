"""Recorded sessions of pi say what was said, can be written, and are gone on with."""

from __future__ import annotations

from typing import Any

import pytest

import clew_corpus
from clew.formats.pi import FORMAT
from clew.formats.protocol import Home
from clew.laws.stored import group_keys, store_written, write_options
from clew_corpus import Case
from corpuscheck import find_in_case, read_case, said_in, wanted_of

CASES = [*clew_corpus.own_cases("pi"), *clew_corpus.shared_cases("pi")]
TYPED = '<file name="/home/dev2p/projects/app/dot.png"></file>\n'


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case}-{case.home.parts[-4]}")
def test_a_recorded_session_says_what_was_said(case: Case) -> None:
    session = read_case(FORMAT, case)
    wanted = wanted_of(case.expected or ())
    got = said_in(session.messages)
    if case.name == "compacted":
        got = [unwrapped(one) for one in got]
        if "corpus" in case.home.parts:  # there everything that was said is expected, without the summary
            got = [one for one in said_in(session.history) if "compacted into the following summary" not in one[1]]
    elif case.name == "image":  # pi itself puts the name of an attached file before what was typed
        got = [(role, text.removeprefix(TYPED), calls, results) for role, text, calls, results in got]
    assert got == wanted
    assert session.cwd == case.cwd
    assert not session.damage
    if case.expected_full is not None:
        assert [unwrapped(one) for one in said_in(session.history)] == wanted_of(case.expected_full)


def unwrapped(group: Any) -> Any:
    """What pi says around a summary is not in the fixtures."""
    role, text, calls, results = group
    inner = text.partition("<summary>\n")[2].removesuffix("\n</summary>")
    return (role, inner if "compacted into the following summary" in text else text, calls, results)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case}-{case.home.parts[-4]}")
def test_a_recorded_session_can_be_written_and_gone_on_with(case: Case) -> None:
    session = read_case(FORMAT, case)
    written = store_written(FORMAT, FORMAT.write(session.messages, write_options()))  # type: ignore[misc]
    assert group_keys(written.read().messages) == group_keys(session.messages)
    grown = store_written(FORMAT, FORMAT.splice(session, session.messages, write_options()))  # type: ignore[misc]
    assert grown.data.startswith(bytes(session.records.streams[0].data))
    again = grown.read()
    count = len(session.messages)
    assert group_keys(again.messages[:count]) == group_keys(session.messages)
    assert group_keys(again.messages[count:]) == group_keys(session.messages)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case}-{case.home.parts[-4]}")
def test_a_recorded_session_is_read_on_from_its_ending(case: Case) -> None:
    source = FORMAT.locate.load(find_in_case(FORMAT, case), Home(case.home))
    whole = FORMAT.read(source)
    assert whole.ending is not None
    on = FORMAT.read(source, whole.ending)
    assert on.continues is not None
    assert on.messages == whole.messages[on.continues.messages :]
    assert (on.updated_ms, on.created_ms, on.model) == (whole.updated_ms, whole.created_ms, whole.model)
