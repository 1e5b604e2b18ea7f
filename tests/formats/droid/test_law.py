"""The laws of this format: what is written reads back, a splice keeps its prefix, no bytes make the reader raise."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from clew.conversation.model import Message
from clew.formats.droid import FORMAT
from conversations import Stored, conversations, stored_sessions
from formatlaw import check_cut_anywhere, check_rebase, check_splice, check_total, check_written, split_conversations


@settings(max_examples=150)
@given(conversations())
def test_what_is_written_reads_back(messages: tuple[Message, ...]) -> None:
    check_written(FORMAT, messages)


@settings(max_examples=80)
@given(split_conversations(), st.booleans())
def test_a_splice_keeps_its_prefix(split: tuple[tuple[Message, ...], int], newline: bool) -> None:
    check_splice(FORMAT, *split, newline=newline)


@settings(max_examples=40)
@given(conversations(1))
def test_a_rebased_session_differs_in_its_id_alone(messages: tuple[Message, ...]) -> None:
    check_rebase(FORMAT, messages)


@settings(max_examples=20)
@given(st.lists(stored_sessions(FORMAT, 1, 6), min_size=1, max_size=4), st.integers())
def test_cut_anywhere_and_spoiled_it_is_read(samples: list[Stored], seed: int) -> None:
    check_cut_anywhere(samples, 60, seed)


@given(st.binary(max_size=200))
def test_any_bytes_are_read(data: bytes) -> None:
    check_total(Stored(FORMAT, data, "x.jsonl").read(), data)
