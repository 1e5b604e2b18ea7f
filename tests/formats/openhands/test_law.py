"""The laws of this format: what is written reads back, a splice keeps its prefix, no bytes make the reader raise."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from clew.conversation.model import Message
from clew.formats.openhands import FORMAT
from clew.laws.checks import (
    check_cut_anywhere,
    check_rebase,
    check_splice,
    check_total,
    check_written,
    split_conversations,
)
from clew.laws.conversations import conversations
from clew.laws.stored import Stored, stored_sessions, write_options


@settings(max_examples=120)
@given(conversations())
def test_what_is_written_reads_back(messages: tuple[Message, ...]) -> None:
    check_written(FORMAT, messages)


@settings(max_examples=60)
@given(split_conversations())
def test_a_splice_keeps_its_prefix(split: tuple[tuple[Message, ...], int]) -> None:
    check_splice(FORMAT, *split, newline=True)


@settings(max_examples=40)
@given(split_conversations())
def test_a_splice_changes_no_file_and_leaves_no_gap(split: tuple[tuple[Message, ...], int]) -> None:
    messages, cut = split
    assert FORMAT.write is not None
    assert FORMAT.splice is not None
    prefix = FORMAT.write(messages[:cut], write_options())
    old = {f.path: b"".join(map(bytes, f.chunks())) for f in prefix.files if f.role == "stream"}
    before = Stored(FORMAT, b"".join(old.values()), [*old][-1], (), tuple((p, len(d)) for p, d in old.items())[:-1])
    files = FORMAT.splice(before.read(), messages[cut:], write_options()).files
    made = {f.path: b"".join(map(bytes, f.chunks())) for f in files}
    assert {path: made[path] for path in old} == old
    assert [path.rpartition("/")[2][:12] for path in made] == [f"event-{n:05d}-" for n in range(len(made))]
    assert all(file.role == "stream" for file in files)


@settings(max_examples=30)
@given(conversations(1))
def test_a_rebased_session_differs_in_its_id_alone(messages: tuple[Message, ...]) -> None:
    check_rebase(FORMAT, messages)


@settings(max_examples=20)
@given(st.lists(stored_sessions(FORMAT, 1, 6), min_size=1, max_size=4), st.integers())
def test_cut_anywhere_and_spoiled_it_is_read(samples: list[Stored], seed: int) -> None:
    check_cut_anywhere(samples, 60, seed)


@given(st.binary(max_size=200))
def test_any_bytes_are_read(data: bytes) -> None:
    check_total(Stored(FORMAT, data, "x.json").read(), data)
