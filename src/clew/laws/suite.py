"""The laws that every format keeps, alone and beside others: test functions, parametrised by `laws_of`.

    1   identity          test_segments_laid_end_to_end_are_the_session
    2   return            test_there_and_back_is_byte_for_byte
    3   keys agree        test_every_writer_says_what_it_was_given, test_keys_agree_between_formats
    4   prefix            test_later_turns_stand_behind_the_original_bytes
    5   suffix            test_later_turns_stand_behind_the_original_bytes
    6   chain of formats  test_any_way_through_the_formats_leads_home
    7   locality          test_damage_costs_the_damaged_group_and_what_follows
    8   no strangers      test_no_byte_comes_from_another_session
    9   ambiguity         test_between_two_equal_sources_none_is_taken
    11  order             test_the_order_of_results_does_not_count
    12  determinism       test_the_choice_does_not_depend_on_any_order
    13  idempotence       test_a_second_time_changes_nothing
    14  totality          test_any_bytes_are_read_and_cut, test_no_damage_in_the_store_raises
    15  purity            test_where_a_message_came_from_shows_nowhere
    16  old store         test_segments_of_another_domain_are_not_found
    17  reversibility     test_a_spliced_session_is_cut_as_before

and two more: every capture gives its own bytes, whatever was captured before and behind it; and a reading that goes on
from where an earlier one ended says the same as a whole one. The numbers are those of docs/residue.md; what they say
of keys alone (10, 11, 12) concerns no format and is tested with clew itself.

A test takes `form` (one format), `pair` (home and abroad), or `forms` (all that a conversation may pass through).
"""

from __future__ import annotations

from itertools import permutations

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from clew.conversation import canonical
from clew.conversation.canonical import keys_of
from clew.conversation.groups import group_messages
from clew.conversation.model import Message
from clew.conversation.source import Source, Stream
from clew.errors import FormatError
from clew.formats.protocol import Format
from clew.laws.conversations import conversations, suffixes
from clew.laws.desk import Desk, complete, end_of_body, examples, text_of, with_junk
from clew.laws.stored import (
    Stored,
    group_keys,
    make_id,
    store_conversation,
    store_written,
    stored_sessions,
    write_options,
)
from clew.residue.choose import NoChoice, choose_source
from clew.residue.restore import Restored, RestoreReport
from clew.residue.segments import cut_session, slice_segments
from clew.verbs.capture import candidates_for, captured_bytes


def carried_through(form: Format, messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """Returns the conversation as it is after a stay in a format."""
    return store_conversation(form, messages, make_id("abroad")).read().messages


# --- 1: identity -------------------------------------------------------------------------------------------------


@examples(12)
@given(data=st.data())
def test_segments_laid_end_to_end_are_the_session(form: Format, data: st.DataObject) -> None:
    stored = data.draw(stored_sessions(form))
    session = stored.read()
    cuts = cut_session(session)
    assert b"".join(bytes(part.data) for part in slice_segments(session.records, cuts)) == stored.data
    edges = [0, *(cut.last for cut in cuts)]
    assert [cut.first for cut in cuts] == edges[:-1]
    assert edges[-1] == len(session.records)
    if complete(session) and session.messages:
        assert tuple(cut.key for cut in cuts) == group_keys(session.messages)
        assert [cut.end_of_source for cut in cuts] == [False] * (len(cuts) - 1) + [True]


# --- 2 to 6: there and back --------------------------------------------------------------------------------------


@examples(5)
@given(data=st.data())
def test_there_and_back_is_byte_for_byte(pair: tuple[Format, Format], data: st.DataObject) -> None:
    home, abroad = pair
    stored = data.draw(stored_sessions(home, 1))
    session = stored.read()
    assume(session.messages and complete(session))
    desk = Desk()
    desk.capture(stored)
    messages = carried_through(abroad, session.messages)
    back = desk.bring_home(home, messages, [session.id])
    assert isinstance(back, Restored)
    assert text_of(back) == stored.data
    assert (back.report.mode, back.report.rendered_messages) == ("whole", 0)
    assert back.report.restored_messages == len(session.messages)


@examples(25)
@given(data=st.data())
def test_every_writer_says_what_it_was_given(form: Format, data: st.DataObject) -> None:
    messages = data.draw(conversations())
    stored = store_conversation(form, messages)
    assert group_keys(stored.read().messages) == group_keys(messages)
    stored.data.decode("utf-8")


@examples(5)
@given(data=st.data())
def test_keys_agree_between_formats(pair: tuple[Format, Format], data: st.DataObject) -> None:
    one, other = pair
    messages = data.draw(stored_sessions(one)).read().messages
    assert group_keys(carried_through(other, messages)) == group_keys(messages)


@examples(5)
@given(data=st.data())
def test_later_turns_stand_behind_the_original_bytes(pair: tuple[Format, Format], data: st.DataObject) -> None:
    home, abroad = pair
    stored = data.draw(stored_sessions(home, 1, 3))
    session = stored.read()
    assume(session.messages and complete(session))
    longer = (*session.messages, *data.draw(suffixes(session.messages, 2)))
    desk = Desk()
    desk.capture(stored)
    back = desk.bring_home(home, carried_through(abroad, longer), [session.id])
    assert isinstance(back, Restored)
    text, body = text_of(back), end_of_body(stored)
    assert text[:body] == stored.data[:body]
    assert text.endswith(stored.data[body:])
    if home.traits.record_kind == "line" and not stored.data.endswith(b"\n"):
        assert text[body : body + 1] == b"\n"
        assert text[body + 1 : body + 2] not in (b"\n", b"\r", b"")
    assert group_keys(back.session.messages) == group_keys(longer)
    assert back.report.restored_messages == len(session.messages)


@examples(30)
@given(data=st.data())
def test_any_way_through_the_formats_leads_home(forms: tuple[Format, ...], data: st.DataObject) -> None:
    home = data.draw(st.sampled_from(forms))
    way = data.draw(st.lists(st.sampled_from(forms), min_size=1, max_size=5))
    stored = data.draw(stored_sessions(home, 1, 3))
    session = stored.read()
    assume(session.messages and complete(session))
    desk = Desk()
    desk.capture(stored)
    own: dict[str, list[str]] = {home.name: [session.id]}
    messages, said = session.messages, False
    for number, form in enumerate(way):
        if data.draw(st.integers(0, 2)) == 0:
            messages, said = (*messages, *data.draw(suffixes(messages, 1))), True
        fresh = make_id(f"hop {number}")
        there = desk.carry(form, messages, fresh, own.get(form.name, ()))
        own.setdefault(form.name, []).append(there.read().id)
        assert group_keys(there.read().messages) == group_keys(messages)
        messages = there.read().messages
    back = desk.bring_home(home, messages, [session.id])
    assert isinstance(back, Restored)
    body = end_of_body(stored)
    assert text_of(back)[:body] == stored.data[:body]
    assert group_keys(back.session.messages) == group_keys(messages)
    if not said:
        assert text_of(back) == stored.data


# --- 7: damage ---------------------------------------------------------------------------------------------------


@examples(15)
@given(data=st.data())
def test_damage_costs_the_damaged_group_and_what_follows(form: Format, data: st.DataObject) -> None:
    stored = store_conversation(form, data.draw(conversations(2)))
    session = stored.read()
    desk = Desk()
    capture = desk.capture(stored)
    whole = desk.segments(capture)
    number = data.draw(st.integers(0, len(whole) - 1))
    at = data.draw(st.integers(0, max(len(whole[number]) - 1, 0)))
    spoiled = whole[number][:at] + bytes([whole[number][at] ^ 1]) + whole[number][at + 1 :] if whole[number] else None
    number = desk.damage(capture, number, data.draw(st.sampled_from([None, spoiled, b""])) if whole[number] else None)
    back = desk.bring_home(form, session.messages, [session.id])
    if number == 0:
        assert back == NoChoice("no_candidate")
        return
    assert isinstance(back, Restored)
    kept = sum(map(len, whole[:number]))
    assert text_of(back)[:kept] == stored.data[:kept]
    assert group_keys(back.session.messages) == group_keys(session.messages)
    groups = list(group_messages(session.messages))[:number]
    assert back.report.restored_messages == sum(1 + len(group.results) for group in groups)


# --- 8 and 9: whose bytes ----------------------------------------------------------------------------------------


@examples(10)
@given(data=st.data())
def test_no_byte_comes_from_another_session(form: Format, data: st.DataObject) -> None:
    messages = data.draw(conversations(1, 3))
    names = data.draw(st.lists(st.sampled_from(["a", "b", "c", "d"]), min_size=1, max_size=4, unique=True))
    desk = Desk()
    stored = {name: store_conversation(form, messages, make_id(name)) for name in names}
    for one in stored.values():
        desk.capture(one)
    for one in stored.values():
        back = desk.bring_home(form, messages, [one.read().id])
        assert isinstance(back, Restored)
        assert text_of(back) == one.data
    stranger = desk.bring_home(form, messages, ["somebody else"])
    if form.traits.carries_id:
        assert stranger == NoChoice("other_session_only")
    elif len({one.data for one in stored.values()}) > 1:
        assert stranger == NoChoice("ambiguous_source")


@examples(10)
@given(data=st.data())
def test_between_two_equal_sources_none_is_taken(form: Format, data: st.DataObject) -> None:
    messages = data.draw(conversations(1, 3))
    one, other = (store_conversation(form, messages, make_id(name)) for name in "xy")
    if one.data == other.data:
        return  # its records carry no id, so there is nothing to confuse
    desk = Desk()
    desk.capture(one)
    assert isinstance(desk.bring_home(form, messages), Restored)
    desk.capture(other)
    assert desk.bring_home(form, messages) == NoChoice("ambiguous_source")
    longer = (*messages, *data.draw(suffixes(messages, 1)))
    desk.capture(desk_spliced(desk, other, longer))
    best = desk.bring_home(form, longer)
    assert isinstance(best, Restored)
    assert best.session.id == other.read().id


def desk_spliced(desk: Desk, stored: Stored, messages: tuple[Message, ...]) -> Stored:
    """Returns the session with later turns spliced behind it."""
    session = stored.read()
    assert stored.form.splice is not None
    options = write_options(session.id, path=stored.path)
    written = stored.form.splice(session, messages[len(session.messages) :], options)
    spliced = store_written(stored.form, written)
    return msgspec.structs.replace(spliced, side=(*stored.side, *spliced.side))


# --- 11: what a key sees     ----------------------------------------------------------------------------------


@examples(10)
@given(data=st.data())
def test_the_order_of_results_does_not_count(form: Format, data: st.DataObject) -> None:
    messages = data.draw(conversations(1))
    shuffled: list[Message] = []
    for group in group_messages(messages):
        several = len({result.call_id for result in group.results}) == len(group.results)
        results = data.draw(st.permutations(group.results)) if several else group.results
        shuffled += [group.head, *results]
    assert group_keys(shuffled) == group_keys(messages)
    assert group_keys(carried_through(form, tuple(shuffled))) == group_keys(messages)


# --- 12 and 13: the same again -----------------------------------------------------------------------------------


@examples(5)
@given(data=st.data())
def test_the_choice_does_not_depend_on_any_order(form: Format, data: st.DataObject) -> None:
    messages = data.draw(conversations(1, 3))
    longer = (*messages, *data.draw(suffixes(messages, 1)))
    sessions = [store_conversation(form, m, make_id(n)) for n, m in (("x", messages), ("y", messages), ("z", longer))]
    outcomes: set[object] = set()
    for order in permutations(sessions):
        desk = Desk()
        for stored in order:
            desk.capture(stored)
        for own in ((), (make_id("x"),), (make_id("y"), make_id("z"))):
            back = desk.bring_home(form, messages, own)
            outcomes.add((own, text_of(back) if isinstance(back, Restored) else back))
        keys = tuple(keys_of(messages))
        candidates = candidates_for(desk.context, form.name, keys[0])
        chosen = {str(choose_source(keys, list(some), own_ids=frozenset())) for some in permutations(candidates)}
        assert len(chosen) == 1
    assert len(outcomes) == 3


@examples(10)
@given(data=st.data())
def test_a_second_time_changes_nothing(form: Format, data: st.DataObject) -> None:
    stored = data.draw(stored_sessions(form, 1, 3))
    session = stored.read()
    assume(session.messages and complete(session))
    desk = Desk()
    capture = desk.capture(stored)
    before = desk.store.stats()
    assert desk.capture(stored) == capture
    assert desk.store.stats() == before
    longer = (*session.messages, *data.draw(suffixes(session.messages, 1)))
    for messages in (session.messages, longer):
        one, two = (desk.bring_home(form, messages, [session.id]) for _ in range(2))
        assert isinstance(one, Restored)
        assert isinstance(two, Restored)
        assert text_of(one) == text_of(two)
        assert one.report == two.report
    assert desk.store.stats() == before


@examples(10)
@given(data=st.data())
def test_every_capture_gives_its_own_bytes(form: Format, data: st.DataObject) -> None:
    stored = data.draw(stored_sessions(form, 1, 2))
    desk = Desk()
    captured = {desk.capture(stored): stored.data}
    for _ in range(data.draw(st.integers(1, 3))):
        session = stored.read()
        what = data.draw(st.sampled_from(["grown", "cut", "back"]))
        if what == "grown":
            try:
                stored = desk_spliced(desk, stored, (*session.messages, *data.draw(suffixes(session.messages, 1))))
            except FormatError:
                continue
        elif what == "cut":
            stored = msgspec.structs.replace(stored, data=stored.data[: data.draw(st.integers(1, len(stored.data)))])
        else:
            stored = msgspec.structs.replace(stored, data=data.draw(st.sampled_from(sorted(captured.values()))))
        captured[desk.capture(stored)] = stored.data
    for capture, whole in captured.items():
        assert b"".join(bytes(s.data) for s in captured_bytes(desk.context, desk.store.capture(capture))) == whole


# --- 14: totality ------------------------------------------------------------------------------------------------


@st.composite
def _any_bytes(draw: st.DrawFn, form: Format) -> bytes:
    if draw(st.integers(0, 4)) == 0:
        return draw(st.binary(max_size=60))
    data = bytearray(draw(stored_sessions(form)).data)
    for _ in range(draw(st.integers(0, 4))):
        if data:
            data[draw(st.integers(0, len(data) - 1))] = draw(
                st.sampled_from([0, 10, 13, 34, 44, 58, 92, 91, 123, 125, 255])
            )
    return bytes(data[: draw(st.integers(0, len(data)))]) if draw(st.booleans()) else bytes(data)


@examples(20)
@given(data=st.data())
def test_any_bytes_are_read_and_cut(form: Format, data: st.DataObject) -> None:
    some = data.draw(_any_bytes(form))
    session = form.read(Source((Stream("some", some),), growing=data.draw(st.booleans())))
    records = session.records
    assert b"".join(bytes(records[i]) for i in range(len(records))) == some
    assert len(session.created_by) == len(session.messages)
    assert all(record is None or 0 <= record < len(records) for record in session.created_by)
    assert b"".join(bytes(part.data) for part in slice_segments(records, cut_session(session))) == some
    assert all(0 <= harm.record < len(records) or harm.record == -1 for harm in session.damage)
    assert all(message.says_something for message in session.messages if message.role != "tool")
    if session.messages and form.write is not None:
        written = store_conversation(form, session.messages)
        assert group_keys(written.read().messages) == group_keys(session.messages)


@examples(15)
@given(data=st.data())
def test_no_damage_in_the_store_raises(form: Format, data: st.DataObject) -> None:
    stored = data.draw(stored_sessions(form, 1, 3))
    session = stored.read()
    desk = Desk()
    desk.capture(stored)
    for digest, (lengths, _) in list(desk.store.segment_data.items()):
        if data.draw(st.booleans()):
            other = data.draw(st.one_of(st.none(), st.binary(max_size=20)))
            lengths = data.draw(st.sampled_from([lengths, (), (1, 2), (-1, 4), (2**70,)]))
            desk.store.segment_data[digest] = (lengths, other)
    messages = data.draw(st.sampled_from([session.messages, session.messages[:1], ()]))
    back = desk.bring_home(form, messages, data.draw(st.sampled_from([(), (session.id,), ("other",)])))
    assert isinstance(back, Restored | RestoreReport | NoChoice)
    if isinstance(back, Restored):
        assert group_keys(back.session.messages) == group_keys(messages)


# --- 15 to 17 ----------------------------------------------------------------------------------------------------


@examples(10)
@given(data=st.data())
def test_where_a_message_came_from_shows_nowhere(form: Format, forms: tuple[Format, ...], data: st.DataObject) -> None:
    stored = store_conversation(form, data.draw(conversations(1, 3)))
    one, two = stored.read(), with_junk(stored).read()
    assert len(two.records) == len(one.records) + 1
    assert one.messages == two.messages
    assert one.created_by != two.created_by or one.created_by[-1] == 0
    for other in forms:
        assert store_conversation(other, one.messages).data == store_conversation(other, two.messages).data


def test_segments_of_another_domain_are_not_found(form: Format, monkeypatch: pytest.MonkeyPatch) -> None:
    from clew.conversation.builder import make_user

    messages = (make_user("hi"),)
    stored = store_conversation(form, messages)
    desk = Desk()
    with monkeypatch.context() as patch:
        patch.setattr(canonical, "DOMAIN", b"clew-residue-v0")
        desk.capture(stored)
    assert desk.bring_home(form, messages, [stored.read().id]) == NoChoice("no_candidate")
    desk.capture(stored)
    assert isinstance(desk.bring_home(form, messages, [stored.read().id]), Restored)


@examples(12)
@given(data=st.data())
def test_a_spliced_session_is_cut_as_before(form: Format, data: st.DataObject) -> None:
    stored = data.draw(stored_sessions(form, 1, 3))
    session = stored.read()
    assume(session.messages and complete(session))
    desk = Desk()
    longer = (*session.messages, *data.draw(suffixes(session.messages, 1)))
    before = desk.segments(desk.capture(stored))
    after = desk.segments(desk.capture(desk_spliced(desk, stored, longer)))
    assert after[: len(before) - 1] == before[:-1]
    body = end_of_body(stored) - sum(map(len, before[:-1]))
    assert after[len(before) - 1][:body] == before[-1][:body]


# --- and where a reading ended -----------------------------------------------------------------------------------


@examples(10)
@given(data=st.data())
def test_a_reading_that_goes_on_says_the_same_as_a_whole_one(form: Format, data: st.DataObject) -> None:
    stored = data.draw(stored_sessions(form, 1, 3))
    session = stored.read()
    ending = session.ending
    if ending is None:
        return
    longer = (*session.messages, *data.draw(suffixes(session.messages, 2)))
    try:
        grown = desk_spliced(Desk(), stored, longer)
    except FormatError:
        assume(False)
        return
    whole, on = grown.read(), form.read(grown.source, ending)
    if on.continues is None:
        assert on.messages == whole.messages
        return
    assert on.continues == ending
    assert on.messages == whole.messages[ending.messages :]
    # What an earlier reading had settled counts as one record.
    behind = [None if record is None else record - ending.records + 1 for record in whole.created_by[ending.messages :]]
    assert list(on.created_by) == behind
    assert len(on.records) == len(whole.records) - ending.records + 1
