"""The laws of the formats that keep contents of the Gemini API: what is written reads back, nothing raises."""

from __future__ import annotations

import os
import random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clew.conversation.canonical import keys_of
from clew.conversation.groups import group_messages, head_positions
from clew.conversation.model import Image, Message
from clew.conversation.source import Session, Source, Stream
from clew.formats.gemini import FORMAT as GEMINI
from clew.formats.protocol import Format
from clew.formats.qwen import FORMAT as QWEN
from clew.laws.conversations import conversations
from clew.laws.stored import Stored, group_keys, make_id, store_conversation, store_written, write_options

FORMATS = pytest.mark.parametrize("form", [GEMINI, QWEN], ids=lambda form: form.name)
ROUNDS = 40 if os.environ.get("CLEW_LAW") else 1
Messages = tuple[Message, ...]


def read_bytes(form: Format, data: bytes, path: str = "", *, growing: bool = False) -> Session:
    return form.read(Source((Stream(path or f"x/{make_id('one')}.jsonl", data),), growing=growing))


def assert_total(session: Session, data: bytes) -> None:
    records = session.records
    assert b"".join(bytes(records[number]) for number in range(len(records))) == data
    assert len(session.created_by) == len(session.messages)
    assert all(record is not None and 0 <= record < len(records) for record in session.created_by)
    list(keys_of(session.messages))
    for branch in session.branches:
        assert 0 <= branch.at <= len(session.history)
    assert all(0 <= boundary.at <= len(session.history) for boundary in session.boundaries)


@FORMATS
@settings(max_examples=100 * ROUNDS)
@given(messages=conversations())
def test_what_is_written_reads_back(form: Format, messages: Messages) -> None:
    assert form.write is not None
    written = form.write(messages, write_options(origin="codex:1"))
    stored = store_written(form, written)
    session = stored.read()
    assert group_keys(session.messages) == group_keys(messages)
    assert not session.damage
    for was, now in zip(group_messages(messages), group_messages(session.messages), strict=True):
        assert (was.head.role, was.head.origin, was.head.kind) == (now.head.role, now.head.origin, now.head.kind)
        assert [call.id.encode("utf-16", "surrogatepass").decode("utf-16", "replace") for call in was.head.calls] == [
            call.id for call in now.head.calls
        ]
        assert len(was.head.images) == len(now.head.images)
        assert sum(len(r.images) for r in was.results) == sum(len(r.images) for r in now.results)
    assert session.foreign == ("codex:1" if messages or form is GEMINI else "")
    assert_total(session, stored.data)
    assert stored.data == store_written(form, written).data
    stored.data.decode("utf-8")
    assert b"\xe2\x80\xa8" not in stored.data


@FORMATS
@settings(max_examples=60 * ROUNDS)
@given(messages=conversations())
def test_losses_and_made_up_answers_are_counted(form: Format, messages: Messages) -> None:
    assert form.write is not None
    written = form.write(messages, write_options())
    unanswered = sum(len(group.head.calls) - len(group.results) for group in group_messages(messages))
    data = store_written(form, written).data
    assert written.invented == unanswered == data.count(b'"invented":true')
    counted = {loss.what: loss.count for loss in written.losses}
    held = [image for message in store_written(form, written).read().messages for image in message.images if image.data]
    images = [part for message in messages for part in message.parts if isinstance(part, Image)]
    assert counted.get("images", 0) == len(images) - len(held)


@FORMATS
@settings(max_examples=60 * ROUNDS)
@given(messages=conversations(), data=st.data(), ends_with_newline=st.booleans())
def test_a_splice_keeps_its_prefix(
    form: Format, messages: Messages, data: st.DataObject, ends_with_newline: bool
) -> None:
    assert form.splice is not None
    cut = data.draw(st.sampled_from([*head_positions(messages), len(messages)]))
    before = store_conversation(form, messages[:cut])
    if not ends_with_newline:
        before = msgspec.structs.replace(before, data=before.data[:-1])
    after = store_written(form, form.splice(before.read(), messages[cut:], write_options(path=before.path)))
    assert after.data.startswith(before.data)
    session = after.read()
    assert group_keys(session.messages) == group_keys(messages)
    assert not session.damage
    assert_total(session, after.data)


@FORMATS
@settings(max_examples=40 * ROUNDS)
@given(messages=conversations(), data=st.data())
def test_two_splices_in_one_moment_do_not_meet(form: Format, messages: Messages, data: st.DataObject) -> None:
    assert form.splice is not None
    heads = [*head_positions(messages), len(messages)]
    first, second = sorted((data.draw(st.sampled_from(heads)), data.draw(st.sampled_from(heads))))
    stored = store_conversation(form, messages[:first])
    for part in (messages[first:second], messages[second:]):
        stored = store_written(form, form.splice(stored.read(), part, write_options(path=stored.path)))
    session = stored.read()
    assert group_keys(session.messages) == group_keys(messages)
    assert not session.damage


@FORMATS
@settings(max_examples=40 * ROUNDS)
@given(messages=conversations(min_groups=1))
def test_a_rebased_session_differs_in_its_id_alone(form: Format, messages: Messages) -> None:
    assert form.rebase is not None
    stored = store_conversation(form, messages)
    session, other = stored.read(), make_id("other")
    again = store_written(form, form.rebase(session, write_options(other)))
    assert again.path != stored.path
    assert again.data == stored.data.replace(session.id.encode(), other.encode())
    assert group_keys(again.read().messages) == group_keys(messages)
    assert not again.read().damage


@FORMATS
@settings(max_examples=60 * ROUNDS)
@given(messages=conversations(), data=st.data())
def test_a_reading_that_goes_on_says_what_a_whole_one_says(
    form: Format, messages: Messages, data: st.DataObject
) -> None:
    assert form.splice is not None
    cut = data.draw(st.sampled_from([*head_positions(messages), len(messages)]))
    stored = store_conversation(form, messages[:cut])
    since = stored.read().ending
    grown = store_written(form, form.splice(stored.read(), messages[cut:], write_options(path=stored.path)))
    whole = grown.read()
    on = form.read(grown.source, since)
    if on.continues is None:
        assert on.messages == whole.messages
        return
    assert since is not None
    assert on.messages == whole.messages[since.messages :]
    assert (on.title, on.cwd, on.model, on.foreign) == (whole.title, whole.cwd, whole.model, whole.foreign)
    assert (on.created_ms, on.ending) == (whole.created_ms, whole.ending)


@FORMATS
def test_a_grown_session_is_gone_on_with(form: Format) -> None:
    from clew.conversation.builder import make_assistant, make_user

    messages = (make_user("one"), make_assistant("two"), make_user("three"), make_assistant("four"))
    stored = store_conversation(form, messages[:2])
    assert form.splice is not None
    grown = store_written(form, form.splice(stored.read(), messages[2:], write_options(path=stored.path)))
    on = form.read(grown.source, stored.read().ending)
    assert on.continues is not None
    assert [message.text for message in on.messages] == ["two", "three", "four"]


def rich(form: Format) -> Stored:
    """Returns a session with calls, pictures, marks and several turns."""
    from clew.conversation.builder import make_assistant, make_call, make_result, make_user

    messages = (
        make_user("/one é \u2028 🚀"),
        make_assistant("a", make_call("x", "n m", "[1]"), make_call("x", "ls", '{"a":"\\u00e9"}')),
        make_result("x", "r1", Image("image/png", "iVBORw0KGgo=")),
        make_user("<system-reminder>x</system-reminder>"),
        make_assistant(Image("image/png", "iVBORw0KGgo=")),
        make_user("end"),
    )
    return store_conversation(form, messages)


@FORMATS
def test_a_session_cut_or_spoiled_anywhere_is_read(form: Format) -> None:
    stored = rich(form)
    chance = random.Random(20)
    for number in range(400 * ROUNDS):
        data = bytearray(stored.data)
        if number % 2:
            del data[chance.randrange(len(data) + 1) :]
        for _ in range(chance.choice((0, 1, 1, 3))):
            if data:
                data[chance.randrange(len(data))] = chance.choice((0x22, 0x7B, 0x0A, 0xFF, 0x00, chance.randrange(256)))
        session = read_bytes(form, bytes(data), stored.path, growing=bool(number % 3))
        assert_total(session, bytes(data))


@FORMATS
@settings(max_examples=100 * ROUNDS)
@given(data=st.data())
def test_any_bytes_are_read(form: Format, data: st.DataObject) -> None:
    lines = rich(form).data.splitlines(keepends=True)
    found = data.draw(st.binary(max_size=200) | st.lists(st.sampled_from(lines)).map(b"".join))
    assert_total(read_bytes(form, found), found)
    assert_total(read_bytes(form, found, "x/session-1.json"), found)
