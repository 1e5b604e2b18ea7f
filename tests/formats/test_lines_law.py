"""The laws of formats of plain lines: it reads back, a splice keeps its prefix, no bytes make a reader raise."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clew.conversation.model import Message
from clew.formats import droid, pi, vibe
from clew.formats.protocol import Format
from clew.laws.checks import (
    check_cut_anywhere,
    check_rebase,
    check_splice,
    check_total,
    check_written,
    split_conversations,
)
from clew.laws.conversations import conversations
from clew.laws.stored import Stored, stored_sessions

every_one = pytest.mark.parametrize("form", [droid.FORMAT, pi.FORMAT, vibe.FORMAT], ids=lambda form: form.name)


@every_one
@settings(max_examples=150)
@given(conversations())
def test_what_is_written_reads_back(form: Format, messages: tuple[Message, ...]) -> None:
    check_written(form, messages)


@every_one
@settings(max_examples=80)
@given(split_conversations(), st.booleans())
def test_a_splice_keeps_its_prefix(form: Format, split: tuple[tuple[Message, ...], int], newline: bool) -> None:
    check_splice(form, *split, newline=newline)


@every_one
@settings(max_examples=40)
@given(conversations(1))
def test_a_rebased_session_differs_in_its_id_alone(form: Format, messages: tuple[Message, ...]) -> None:
    check_rebase(form, messages)


@every_one
@settings(max_examples=20)
@given(st.data(), st.integers())
def test_cut_anywhere_and_spoiled_it_is_read(form: Format, data: st.DataObject, seed: int) -> None:
    samples = data.draw(st.lists(stored_sessions(form, 1, 6), min_size=1, max_size=4))
    check_cut_anywhere(samples, 60, seed)


@every_one
@given(st.binary(max_size=200))
def test_any_bytes_are_read(form: Format, data: bytes) -> None:
    check_total(Stored(form, data, "x.jsonl").read(), data)
