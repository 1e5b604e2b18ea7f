"""What every format of one file a session promises, as functions that its tests call with it.

What is written reads back by keys and by who said it; a splice keeps its prefix; a rebase changes the id; a reading
that goes on says what a whole one says; no bytes make the reader raise or lose a byte.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import msgspec
from hypothesis import strategies as st

from clew.conversation.groups import head_positions
from clew.conversation.model import Message
from clew.conversation.source import Ending, Session
from clew.formats.protocol import Format
from clew.laws.conversations import conversations
from clew.laws.stored import Stored, group_keys, make_id, store_written, write_options

__all__ = [
    "check_cut_anywhere",
    "check_rebase",
    "check_splice",
    "check_total",
    "check_written",
    "reread",
    "split_conversations",
    "with_data",
    "write_stored",
]


def write_stored(form: Format, messages: Sequence[Message], origin: str = "") -> Stored:
    """Returns a session of the format that holds the conversation."""
    assert form.write is not None
    return store_written(form, form.write(messages, write_options(origin=origin)))


def with_data(stored: Stored, data: bytes) -> Stored:
    """Returns the session with other bytes in its stream."""
    return msgspec.structs.replace(stored, data=data)


def reread(stored: Stored, since: Ending | None = None) -> Session:
    """Returns what the reader makes of it."""
    return stored.form.read(stored.source, since)


def check_total(session: Session, data: bytes) -> None:
    """Every byte lies in exactly one record, in order, and every message has a record."""
    records = session.records
    assert b"".join(bytes(records[number]) for number in range(len(records))) == data
    assert len(session.created_by) == len(session.messages)
    assert all(0 <= record < len(records) for record in session.created_by if record is not None)
    group_keys(session.messages)
    group_keys(session.history)
    for branch in session.branches:
        group_keys(branch.messages)
        assert 0 <= branch.at <= len(session.history)


def check_written(form: Format, messages: tuple[Message, ...]) -> Session:
    """What is written reads back: keys, who said it, ids of calls, images, error flags; and says where it is from."""
    stored = write_stored(form, messages, "codex:1")
    session = stored.read()
    assert group_keys(session.messages) == group_keys(messages)
    assert not session.damage
    assert [(m.role, m.origin, m.kind) for m in session.messages] == [(m.role, m.origin, m.kind) for m in messages]
    assert [[c.id for c in m.calls] for m in session.messages] == [[c.id for c in m.calls] for m in messages]
    assert [len(m.images) for m in session.messages] == [len(m.images) for m in messages]
    failed = [bool(m.is_error) for m in messages if m.role == "tool"]
    assert [m.is_error for m in session.messages if m.role == "tool"] == failed
    assert session.foreign == ("codex:1" if messages else "")
    check_total(session, stored.data)
    stored.data.decode("utf-8")
    for sign in ("\u2028", "\u2029", "\u0085"):
        assert sign.encode() not in stored.data
    return session


def check_splice(form: Format, messages: tuple[Message, ...], cut: int, *, newline: bool) -> None:
    """A splice keeps its prefix and says what it was given; a reading that goes on from the prefix agrees."""
    assert form.splice is not None
    before = write_stored(form, messages[:cut], "codex:1")
    prefix = reread(with_data(before, before.data if newline else before.data[:-1]))
    grown = store_written(form, form.splice(prefix, messages[cut:], write_options()))
    grown = msgspec.structs.replace(grown, side=grown.side or before.side)
    assert grown.data.startswith(before.data if len(grown.data) >= len(before.data) else before.data[:-1])
    session = grown.read()
    assert group_keys(session.messages) == group_keys(messages)
    assert not session.damage
    check_total(session, grown.data)
    if prefix.ending is not None:
        on = reread(grown, prefix.ending)
        start = prefix.ending.messages if on.continues is not None else 0
        assert group_keys(on.messages) == group_keys(session.messages[start:]) or start
        assert on.messages == session.messages[start:]
        assert (on.title, on.cwd, on.model, on.foreign) == (session.title, session.cwd, session.model, session.foreign)
        if on.continues is not None:
            assert on.ending == session.ending


def check_rebase(form: Format, messages: tuple[Message, ...]) -> None:
    """A rebased session is another one with the same records, apart from its id."""
    assert form.rebase is not None
    stored = write_stored(form, messages)
    other = make_id("another")
    again = store_written(form, form.rebase(stored.read(), write_options(other)))
    assert again.data == stored.data.replace(make_id("one").encode(), other.encode())
    session = again.read()
    assert session.id in (other, "")
    assert group_keys(session.messages) == group_keys(messages)
    assert not session.damage


def check_cut_anywhere(samples: Sequence[Stored], count: int, seed: int = 1) -> None:
    """Cuts sessions anywhere and flips bytes in them, `count` times; nothing raises, no byte is lost."""
    chance = random.Random(seed)  # noqa: S311 - the same every time
    for number in range(count):
        stored = samples[number % len(samples)]
        data = bytearray(stored.data)
        if chance.random() < 0.4:
            data = data[: chance.randrange(len(data) + 1)]
        for _ in range(chance.randrange(5) if data else 0):
            data[chance.randrange(len(data))] = chance.randrange(256)
        check_total(reread(with_data(stored, bytes(data))), bytes(data))


@st.composite
def split_conversations(draw: st.DrawFn) -> tuple[tuple[Message, ...], int]:
    """Gives conversations and a place between two groups of each."""
    messages = draw(conversations())
    return messages, draw(st.sampled_from([*head_positions(messages), len(messages)]))
