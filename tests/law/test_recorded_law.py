"""Real sessions there and back: every recorded session of this repository, and of the larger collection where it is.

What generated sessions cannot show: side files, several streams, references, compaction, branches, and whatever
real agents put into their files.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import msgspec
import pytest

from carrying import LONG, NOWHERE, Desk, complete, formats_to_test
from clew.conversation.builder import make_assistant, make_user
from clew.conversation.canonical import keys_of
from clew.conversation.source import Session, Source
from clew.formats.protocol import Format, Found, Home
from clew.ids import CaptureId
from clew.laws.stored import group_keys, make_id, store_conversation, write_options
from clew.residue.choose import Choice
from clew.residue.restore import Restored, restore_conversation
from clew.verbs.capture import capture_session
from clew.verbs.reading import Opened
from clew.verbs.workshop import Workshop
from clew_corpus import Case, fault_cases, own_cases, shared_cases

FORMATS = {form.name: form for form in formats_to_test()}
CASES = [case for case in (*own_cases(), *shared_cases(), *fault_cases()) if case.agent in FORMATS and case.session_id]
MORE = (make_user("One more thing."), make_assistant("Yes?"))


@cache
def _found(agent: str, home: Path) -> tuple[Found, ...]:
    return tuple(found for found in FORMATS[agent].locate.find(Home(home)) if not found.problem)


@cache
def _load(agent: str, home: Path, session_id: str | None) -> tuple[Source, Session] | None:
    form = FORMATS[agent]
    for found in _found(agent, home):
        if found.id == session_id:
            source = form.locate.load(found, Home(home))
            return source, form.read(source)
    return None


def _opened(case: Case) -> Opened:
    loaded = _load(case.agent, case.home, case.session_id)
    if loaded is None:
        pytest.skip("this session is not found by its id")
    source, session = loaded
    if not session.messages:
        pytest.skip("nothing was said in it")
    return Opened(FORMATS[case.agent], None, source, session, tuple(keys_of(session.messages)))


def _bring_home(desk: Desk, opened: Opened, capture: int, messages: tuple[object, ...]) -> Restored:
    form, keys = opened.format, tuple(keys_of(messages))  # type: ignore[arg-type]
    choice = desk.choose(form, messages, [opened.session.id])  # type: ignore[arg-type]
    assert isinstance(choice, Choice)
    assert choice.candidate.capture == capture
    kept = desk.store.capture(CaptureId(capture))
    options = write_options(opened.session.id, path=kept.streams[-1].path)
    side = desk.side(kept.id)
    workshop = Workshop(form, options, NOWHERE, side=side, resolve=opened.source.resolve)
    restored = restore_conversation(messages, keys, choice, kept.streams, workshop)  # type: ignore[arg-type]
    assert isinstance(restored, Restored), restored
    return restored


def _capture(desk: Desk, opened: Opened) -> int:
    return capture_session(desk.context, msgspec.structs.replace(opened, source=_alone(opened.source)))


def _alone(source: Source) -> Source:
    return msgspec.structs.replace(source, resolve=None)  # parents are other cases


def _ways() -> list[tuple[Case, Format]]:
    """Returns each session with the formats to carry it through: all for our own, two in turn for the others."""
    forms, own = tuple(FORMATS.values()), len(own_cases())
    ways: list[tuple[Case, Format]] = []
    for number, case in enumerate(CASES):
        some = forms if LONG or number < own else (forms[number % len(forms)], forms[(number + 1) % len(forms)])
        ways += [(case, form) for form in some]
    return ways


@pytest.mark.parametrize(("case", "abroad"), _ways(), ids=lambda v: v.name if isinstance(v, Format) else str(v))
def test_a_recorded_session_returns_byte_for_byte(case: Case, abroad: Format) -> None:
    opened = _opened(case)
    session = opened.session
    there = store_conversation(abroad, session.messages, make_id("abroad")).read()
    assert group_keys(there.messages) == opened.keys
    if not complete(session):
        pytest.skip("not every message has its record")
    desk = Desk()
    capture = _capture(desk, opened)
    back = _bring_home(desk, opened, capture, there.messages)
    assert [bytes(s.data) for s in back.streams] == [bytes(s.data) for s in session.records.streams]
    assert back.report.mode == "whole"


@pytest.mark.parametrize("case", CASES, ids=str)
def test_later_turns_stand_behind_a_recorded_session(case: Case) -> None:
    opened = _opened(case)
    session = opened.session
    if case.agent == "vibe" and any("/unified/" in stream.path for stream in session.records.streams):
        pytest.skip("Vibe's own store is gone on with by a further generation beside the old ones: test_store")
    if not complete(session):
        pytest.skip("not every message has its record")
    desk = Desk()
    capture = _capture(desk, opened)
    longer = (*session.messages, *MORE)
    back = _bring_home(desk, opened, capture, longer)
    assert group_keys(back.session.messages) == group_keys(longer)
    old = b"".join(bytes(s.data) for s in session.records.streams)
    if opened.format.traits.record_kind == "line":
        assert b"".join(bytes(s.data) for s in back.streams).startswith(old)
    assert back.report.restored_messages == len(session.messages)
