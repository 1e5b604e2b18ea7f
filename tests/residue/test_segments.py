"""Cutting: residue spec, sections 1.1 and 5, and the worked examples 1, 7 and 9 of section 10."""

from __future__ import annotations

from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clew.conversation.builder import make_assistant, make_result, make_user
from clew.conversation.canonical import first_key, keys_of
from clew.conversation.digest import segment_digest
from clew.conversation.model import Message
from clew.conversation.source import Records, Session, Stream
from clew.residue.segments import Cut, cut_session, slice_segments
from toysessions import bot, call, out, read_lines, read_streams, row, session_of, user


def cuts(session: Session) -> list[tuple[int, int, bool]]:
    return [(cut.first, cut.last, cut.end_of_source) for cut in cut_session(session)]


def numbered(count: int, *created_by: int | None, roles: str = "") -> Session:
    """Returns a session of `count` one-byte records; roles are u, a and t, user messages where left out."""
    records = Records()
    records.add_stream(Stream("s", b"x" * count)).extend(range(count))
    make = {"u": lambda: make_user("u"), "a": lambda: make_assistant("a"), "t": lambda: make_result("c", "r")}
    messages: tuple[Message, ...] = tuple(make[r]() for r in (roles or "u" * len(created_by)))
    return Session("toy", "id", messages, created_by, records)


def test_there_and_back_example() -> None:  # section 10, example 1
    session = read_lines(user("hi"), row("usage"), bot("hello"))
    found = cut_session(session)
    keys = tuple(keys_of(session.messages))
    assert found == (Cut(keys[0], 0, 3), Cut(keys[1], 3, 4, end_of_source=True))
    assert keys == (
        "42bafe8dc33cda96687715caca62e652346afd734762751d30807a40eb47164b",
        "e963d5baba60294a5f0f4d878052bacf21980fc9f2e78f3f7322695f7bcf9094",
    )


def test_no_records_no_segments() -> None:
    assert cut_session(numbered(0)) == ()


def test_records_without_messages_are_one_segment_under_the_first_key() -> None:  # example 9
    assert cut_session(read_lines(row("usage"))) == (Cut(first_key(), 0, 2, end_of_source=True),)


def test_what_is_not_verbatim_is_not_cut() -> None:
    session = msgspec.structs.replace(numbered(3, 0, 1), verbatim=False)
    assert cut_session(session) == ()


def test_without_one_record_a_message_nothing_is_cut() -> None:
    session = msgspec.structs.replace(numbered(3, 0, 1), created_by=(0,))
    assert cut_session(session) == ()


def test_the_first_segment_begins_at_the_first_record() -> None:
    assert cuts(numbered(6, 2, 4)) == [(0, 4, False), (4, 6, True)]


def test_results_lie_in_the_segment_of_their_call() -> None:
    assert cuts(numbered(6, 0, 1, 3, 4, roles="uatu")) == [(0, 1, False), (1, 4, False), (4, 6, True)]


def test_a_message_made_up_at_the_end_leaves_the_last_segment_open() -> None:
    # Rule 4: its records, if any, are none of the uncut messages'; so it runs to the end, but is not the end.
    assert cuts(numbered(5, 0, 2, None)) == [(0, 2, False), (2, 5, False)]


def test_a_message_of_unknown_record_in_the_middle_ends_the_cutting() -> None:
    found = cut_session(numbered(6, 0, 2, None, 4))
    assert [(c.first, c.last, c.key is None) for c in found] == [(0, 2, False), (2, 6, True)]
    assert not any(c.end_of_source for c in found)


def test_results_with_records_count_as_what_would_be_swallowed() -> None:
    found = cut_session(numbered(6, 0, 2, None, 4, roles="uuat"))
    assert [(c.first, c.last, c.key is None) for c in found] == [(0, 2, False), (2, 6, True)]


@pytest.mark.parametrize("created_by", [(None, 2), (None, None), (9, 1)])
def test_without_a_first_group_all_records_are_the_unkeyed_rest(created_by: tuple[int | None, ...]) -> None:
    assert cut_session(numbered(3, *created_by)) == (Cut(None, 0, 3),)


def test_a_lone_first_group_before_an_unknown_one_is_left_out_too() -> None:
    assert cut_session(numbered(4, 0, None, 2)) == (Cut(None, 0, 4),)


def test_a_start_before_the_one_before_it_counts_as_that_one() -> None:  # scenario 133
    assert cuts(numbered(9, 1, 6, 3, 4, 8)) == [
        (0, 6, False),
        (6, 6, False),
        (6, 6, False),
        (6, 8, False),
        (8, 9, True),
    ]


def test_a_record_past_the_end_stops_the_cutting() -> None:
    found = cut_session(numbered(4, 0, 2, 7))
    assert [(c.first, c.last, c.key is None) for c in found] == [(0, 2, False), (2, 4, True)]


def test_a_record_that_replaces_history_lies_in_one_segment_only() -> None:  # scenario 25
    session = read_lines(
        user("old"), bot("gone"), row("compact", replaces=[{"t": "user", "x": "summary"}, {"t": "user", "x": "kept"}]),
        bot("on"),
    )  # fmt: skip
    assert session.created_by == (3, 3, 4)
    assert cuts(session) == [(0, 3, False), (3, 4, False), (4, 5, True)]


def test_parallel_results_in_the_order_of_completion() -> None:  # example 6
    lines = (user("go"), bot(call("a"), call("b")), out("b", "rb"), row("usage"), out("a", "ra"), user("thanks"))
    assert cuts(read_lines(*lines)) == [(0, 2, False), (2, 6, False), (6, 7, True)]


def test_several_streams_are_cut_through() -> None:
    session = read_streams(row("meta", id="p") + user("a"), user("b") + row("usage"), b"", bot("c"))
    assert session.created_by == (1, 2, 4)
    found = cut_session(session)
    assert [(c.first, c.last) for c in found] == [(0, 2), (2, 4), (4, 5)]
    slices = list(slice_segments(session.records, found))
    assert [bytes(s.data) for s in slices] == [row("meta", id="p") + user("a"), user("b") + row("usage"), bot("c")]


def test_a_segment_across_streams_is_one_piece() -> None:
    session = read_streams(row("meta", id="p"), user("a") + row("usage"), row("usage"))
    (part,) = slice_segments(session.records, cut_session(session))
    assert bytes(part.data) == row("meta", id="p") + user("a") + row("usage") + row("usage")
    assert part.lengths == tuple(map(len, (row("meta", id="p"), user("a"), row("usage"), row("usage"))))
    assert part.digest == segment_digest([row("meta", id="p"), user("a"), row("usage"), row("usage")])


def test_a_segment_in_one_stream_is_a_view() -> None:
    stored = session_of(user("hi"))
    session = stored.read()
    (part,) = slice_segments(session.records, cut_session(session))
    assert isinstance(part.data, memoryview)
    assert part.data.obj is stored.data


def test_the_digest_vector() -> None:  # section 5.1
    records = [b'{"t":"meta"}\n', b'{"t":"u","x":"hi"}\n']
    assert segment_digest(records) == "020dc9c82170a016f882590be5acd9daeb5e2e176a92a1fafdc026580f454f4a"
    assert segment_digest([b"".join(records)]) != segment_digest(records)


@given(st.data())
def test_whatever_the_provenance_every_record_lies_in_one_segment(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 12))
    numbers = st.one_of(st.integers(0, count + 1), st.integers(0, count - 1), st.none())
    made = data.draw(st.lists(numbers, max_size=8))
    roles = "".join(data.draw(st.sampled_from("uuat")) for _ in made)
    session = numbered(count, *made, roles=roles)
    found = cut_session(session)
    edges = [0, *(cut.last for cut in found)]
    assert [cut.first for cut in found] == edges[:-1]
    assert edges[-1] == count
    assert all(cut.first <= cut.last for cut in found)
    assert all(cut.key is not None for cut in found[:-1])
    keys = tuple(keys_of(session.messages))
    if session.messages:
        keyed = [cut.key for cut in found if cut.key is not None]
        assert keyed == list(keys[: len(keyed)])
    assert sum(cut.end_of_source for cut in found) == (found[-1].end_of_source)
    if found[-1].end_of_source and session.messages:
        assert len(found) == len(keys)


@given(st.lists(st.integers(0, 5), min_size=1, max_size=6), st.data())
def test_slices_are_the_records_whatever_the_streams(counts: list[int], data: st.DataObject) -> None:
    records = Records()
    whole: list[bytes] = []
    for number, count in enumerate(counts):
        rows = [bytes([65 + number]) * data.draw(st.integers(1, 3)) for _ in range(count)]
        starts = [sum(map(len, rows[:i])) for i in range(count)]
        records.add_stream(Stream(str(number), b"".join(rows))).extend(starts)
        whole += rows
    edges = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=4)))
    edges = [0, *edges, len(whole)]
    parts = list(slice_segments(records, [Cut(None, a, b) for a, b in pairwise(edges)]))
    for part, first, last in zip(parts, edges[:-1], edges[1:], strict=True):
        assert bytes(part.data) == b"".join(whole[first:last])
        assert part.lengths == tuple(map(len, whole[first:last]))
        assert part.digest == segment_digest(whole[first:last])
