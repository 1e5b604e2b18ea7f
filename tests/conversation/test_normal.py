"""The normal form: rules 2 to 6 of the residue spec, section 2, and scenarios 123 to 127 and 131."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from clew.conversation.builder import make_assistant, make_call, make_result, make_user
from clew.conversation.canonical import keys_of
from clew.conversation.model import Image, Message, Reasoning, Text
from clew.conversation.normal import NormalBuilder, normalise


def build(*pieces: Message) -> NormalBuilder:
    builder = NormalBuilder()
    for record, piece in enumerate(pieces):
        builder.add(piece, record)
    return builder


def shape(messages: tuple[Message, ...]) -> list[tuple[str, str, int]]:
    return [(m.role, m.text, len(m.calls)) for m in messages]


def test_a_result_goes_to_its_call_also_behind_a_user_text() -> None:  # scenario 123
    normal = build(
        make_assistant(make_call("a", "ls")),
        make_user("hurry"),
        make_result("a", "x"),
        make_assistant("done"),
    ).finish()
    assert shape(normal.messages) == [
        ("assistant", "", 1),
        ("tool", "x", 0),
        ("user", "hurry", 0),
        ("assistant", "done", 0),
    ]
    assert normal.created_by == (0, 2, 1, 3)


def test_strays_are_no_messages() -> None:  # scenario 124
    normal = build(
        make_result("q", "?"),
        make_assistant(make_call("a", "ls")),
        make_result("a", "1"),
        make_result("a", "2"),
    ).finish()
    assert shape(normal.messages) == [("assistant", "", 1), ("tool", "1", 0)]
    assert [s.record for s in normal.strays] == [0, 3]


def test_one_id_twice_first_result_to_first_call() -> None:  # scenario 125
    normal = build(
        make_assistant(make_call("a", "x")), make_result("a", "1"), make_user("u"),
        make_assistant(make_call("a", "y")), make_result("a", "2"),
    ).finish()  # fmt: skip
    assert [m.text for m in normal.messages] == ["", "1", "u", "", "2"]


def test_results_between_two_calls_of_one_reply() -> None:  # scenario 126
    normal = build(
        make_assistant(make_call("a", "x"), reply_id="r"), make_result("a", "1"),
        make_assistant(make_call("b", "y"), reply_id="r"), make_result("b", "2"),
    ).finish()  # fmt: skip
    assert shape(normal.messages) == [("assistant", "", 2), ("tool", "1", 0), ("tool", "2", 0)]
    assert normal.created_by == (0, 1, 3)


def test_reasoning_alone_is_no_message_and_users_never_join() -> None:  # scenario 127
    normal = build(make_user("a"), make_assistant(Reasoning("hm")), make_user("b")).finish()
    assert shape(normal.messages) == [("user", "a", 0), ("user", "b", 0)]


def test_neighbours_join_and_what_says_nothing_does_not_count() -> None:
    normal = build(
        make_assistant("a", reply_id="1"), make_user(""), make_assistant(Reasoning("r"), reply_id="2"),
        make_assistant("b", reply_id="3"),
    ).finish()  # fmt: skip
    assert shape(normal.messages) == [("assistant", "ab", 0)]
    assert normal.created_by == (0,)


def test_reasoning_before_the_text_keeps_its_place() -> None:
    normal = build(make_user("u"), make_assistant(Reasoning("r")), make_assistant("b")).finish()
    assert normal.messages[1].parts == (Reasoning("r"), Text("b"))
    assert normal.created_by == (0, 1)


def test_an_image_alone_is_a_message() -> None:
    assert len(normalise((make_user(Image("image/png", "aaaa")),))) == 1


def test_surrogates_join_across_parts() -> None:  # scenario 131
    message = normalise((make_user("a\ud83d", "\ude80b"), make_user("x\ud800y")))
    assert [m.text for m in message] == ["a🚀b", "x\ufffdy"]
    assert list(keys_of(message)) == list(keys_of((make_user("a🚀b"), make_user("x\ufffdy"))))


def test_rollback_drops_the_last_turns() -> None:
    builder = build(make_user("a"), make_assistant("1"), make_user("b"), make_assistant("2"))
    builder.drop_last(1)
    assert [m.text for m in builder.finish().messages] == ["a", "1"]


ids = st.sampled_from(["a", "b", "c", ""])
pieces = st.one_of(
    st.builds(make_user, st.sampled_from(["", "u", "v"])),
    st.builds(lambda t, r: make_assistant(t, reply_id=r), st.sampled_from(["", "t"]), ids),
    st.builds(lambda c, n, r: make_assistant(make_call(c, n), reply_id=r), ids, st.sampled_from("xy"), ids),
    st.builds(lambda r: make_assistant(Reasoning("z"), reply_id=r), ids),
    st.builds(make_result, ids, st.sampled_from(["", "r"])),
)


@given(st.lists(pieces, max_size=14))
def test_the_normal_form_is_a_fixpoint(messages: list[Message]) -> None:
    once = build(*messages).finish()
    assert len(once.messages) == len(once.created_by)
    stripped = tuple(_without_reply(m) for m in once.messages)
    again = normalise(stripped)
    assert list(keys_of(again)) == list(keys_of(once.messages))
    for before, after in zip(once.messages, once.messages[1:], strict=False):
        assert (before.role, after.role) != ("assistant", "assistant")
        assert not (after.role == "tool" and before.role == "user")


def _without_reply(message: Message) -> Message:
    return Message(message.role, message.parts, call_id=message.call_id)


def test_calls_stored_side_by_side_are_one_message_also_without_a_reply_id() -> None:
    normal = build(
        make_assistant("both"),
        make_assistant(make_call("a", "ls")),
        make_user(""),
        make_assistant(make_call("b", "ls")),
        make_result("a", "x"),
        make_result("b", "y"),
        make_assistant(make_call("c", "ls")),
        make_result("c", "z"),
    ).finish()
    assert shape(normal.messages) == [
        ("assistant", "both", 2),
        ("tool", "x", 0),
        ("tool", "y", 0),
        ("assistant", "", 1),
        ("tool", "z", 0),
    ]


def test_results_find_their_calls_by_the_ids_in_the_source_and_get_their_originals() -> None:
    renamed: dict[str, str] = {}
    builder = NormalBuilder(renamed)
    pieces = (
        make_assistant(make_call("a", "x")),
        make_user("never mind"),
        make_assistant(make_call("t1", "y"), make_call("t2", "z")),
        make_result("t2", "second"),
        make_result("t1", "first"),
    )
    for record, piece in enumerate(pieces):
        builder.add(piece, record)
    renamed.update(t1="a", t2="a")
    normal = builder.finish()
    assert [(m.text, m.call_id) for m in normal.messages if m.role == "tool"] == [("first", "a"), ("second", "a")]
    assert [c.id for m in normal.messages for c in m.calls] == ["a", "a", "a"]
    assert [m.role for m in normal.messages] == ["assistant", "user", "assistant", "tool", "tool"]
    assert normal.created_by == (0, 1, 2, 4, 3)
