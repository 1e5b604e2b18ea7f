"""The scenarios of the residue, of translation and of the normal form, by their numbers (1-32, 123-136).

P is the format of lines where a scenario does not need another; every format takes part where it says "in every
format". Those about placing run the verbs on a temporary home.
"""

from __future__ import annotations

import json
import re

import msgspec
import pytest

from carrying import Desk, formats_to_test, text_of
from clew.conversation.builder import make_assistant, make_call, make_result, make_user
from clew.conversation.canonical import canonical_form, first_key
from clew.conversation.groups import group_messages
from clew.conversation.model import Image, Message
from clew.conversation.source import Source, Stream
from clew.formats.marks import INVENTED
from clew.formats.protocol import Format
from clew.laws.stored import Stored, group_keys, make_id, store_conversation
from clew.residue.choose import NoChoice
from clew.residue.restore import Restored
from clew.residue.segments import cut_session
from clew_format_tiny import FORMAT as TINY
from lineformat import FORMAT as LINES
from scenes import FILE, HELLO, HI, MORE, TALK, compacted
from toysessions import bot, call, out, read_lines, row, session_of, user

FORMATS = formats_to_test()
every_format = pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)
every_other = pytest.mark.parametrize("abroad", [f for f in FORMATS if f is not LINES], ids=lambda form: form.name)
line_formats = pytest.mark.parametrize(
    "form", [f for f in FORMATS if f.traits.record_kind == "line"], ids=lambda form: form.name
)


def abroad_and_back(stored: Stored, abroad: Format, *more: Message) -> Restored:
    """Captures a session, carries it through a format, says more there, and brings it home."""
    session = stored.read()
    desk = Desk()
    desk.capture(stored)
    there = store_conversation(abroad, (*session.messages, *more), make_id("abroad"))
    back = desk.bring_home(stored.form, there.read().messages, [session.id])
    assert isinstance(back, Restored)
    return back


def with_line_ends(stored: Stored, end: bytes) -> Stored:
    return msgspec.structs.replace(stored, data=stored.data.replace(b"\n", end))


# --- cutting, returning, appending: 1 to 6 -----------------------------------------------------------------------


def test_s1_a_file_is_two_segments() -> None:
    session = FILE.read()
    assert [(c.first, c.last, c.end_of_source) for c in cut_session(session)] == [(0, 3, False), (3, 5, True)]


@every_other
def test_s2_untouched_it_returns_byte_for_byte(abroad: Format) -> None:
    back = abroad_and_back(FILE, abroad)
    assert text_of(back) == FILE.data
    assert (back.report.restored_messages, back.report.rendered_messages) == (2, 0)


@every_other
def test_s3_with_two_messages_more_they_stand_behind_it(abroad: Format) -> None:
    back = abroad_and_back(FILE, abroad, *MORE)
    assert text_of(back).startswith(FILE.data)
    added = [json.loads(line) for line in text_of(back).removeprefix(FILE.data).splitlines()]
    assert [(line["t"], line.get("x")) for line in added] == [("user", "more"), ("bot", None)]
    assert (back.report.restored_messages, back.report.rendered_messages) == (2, 2)


@line_formats
def test_s4_a_missing_last_newline_stays_missing(form: Format) -> None:
    stored = store_conversation(form, TALK)
    bare = msgspec.structs.replace(stored, data=stored.data.rstrip(b"\n"))
    assert text_of(abroad_and_back(bare, TINY)) == bare.data


@line_formats
def test_s5_one_newline_is_added_before_what_is_appended(form: Format) -> None:
    stored = store_conversation(form, TALK)
    bare = msgspec.structs.replace(stored, data=stored.data.rstrip(b"\n"))
    added = text_of(abroad_and_back(bare, TINY, *MORE)).removeprefix(bare.data)
    assert re.match(rb"\n\{", added)


ODD_BYTES = {
    "crlf": lambda data: data.replace(b"\n", b"\r\n"),
    "blank lines": lambda data: data.replace(b"\n", b"\n\n \n"),
    "byte-order mark": lambda data: b"\xef\xbb\xbf" + data,
    "bad utf-8": lambda data: data.replace(b"Two files", b"Two\xfffiles"),
}


@line_formats
@pytest.mark.parametrize("odd", ODD_BYTES)
def test_s6_odd_bytes_return_as_they_are(form: Format, odd: str) -> None:
    stored = store_conversation(form, TALK)
    stored = msgspec.structs.replace(stored, data=ODD_BYTES[odd](stored.data))
    assert [m.role for m in stored.read().messages] == [m.role for m in TALK]
    assert text_of(abroad_and_back(stored, TINY)) == stored.data


# --- equal keys and others: 7 to 16 ------------------------------------------------------------------------------


def both(*messages: Message) -> tuple[Message, ...]:
    return (make_user("go"), *messages, make_user("thanks"))


@every_format
def test_s7_the_order_of_parallel_results_makes_one_key(form: Format) -> None:
    reply = make_assistant(make_call("a", "x"), make_call("b", "y"))
    one = both(reply, make_result("a", "ra"), make_result("b", "rb"))
    other = both(reply, make_result("b", "rb"), make_result("a", "ra"))
    assert group_keys(store_conversation(form, one).read().messages) == group_keys(other) == group_keys(one)


def test_s8_the_order_of_calls_makes_others_from_there_on() -> None:
    one = group_keys(both(make_assistant(make_call("a", "x"), make_call("b", "y"))))
    other = group_keys(both(make_assistant(make_call("b", "y"), make_call("a", "x"))))
    assert [a == b for a, b in zip(one, other, strict=True)] == [True, False, False]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ('{"b":1,"a":2}', '{ "a": 2, "b": 1 }'),  # scenario 9
        ("", "{}"),  # scenario 11
        ('{"n":1.0}', '{"n":1}'),  # scenario 12
    ],
)
@every_format
def test_s9_s11_s12_spellings_of_one_value(form: Format, one: str, other: str) -> None:
    stored = store_conversation(form, both(make_assistant(make_call("a", "x", one))))
    assert group_keys(stored.read().messages) == group_keys(both(make_assistant(make_call("q", "x", other))))


@every_format
def test_s10_arguments_that_are_no_json_are_that_text(form: Format) -> None:
    patch = "*** Begin Patch\n*** Add File: x\n+1\n*** End Patch"
    stored = store_conversation(form, both(make_assistant(make_call("a", "apply_patch", patch))))
    group = list(group_messages(stored.read().messages))[1]
    assert json.loads(canonical_form(group)) == ["assistant", "", [["apply_patch", patch]], []]


@every_format
def test_s13_ids_do_not_count(form: Format) -> None:
    messages = both(
        make_assistant(make_call("an id that no API takes", "x")), make_result("an id that no API takes", "r")
    )
    assert group_keys(store_conversation(form, messages).read().messages) == group_keys(
        both(make_assistant(make_call("1", "x")), make_result("1", "r"))
    )


@every_format
def test_s14_three_parts_are_one_text(form: Format) -> None:
    stored = store_conversation(form, (make_user("a", "b\n", "c"), make_assistant("d", "", "e")))
    assert group_keys(stored.read().messages) == group_keys((make_user("ab\nc"), make_assistant("de")))


@every_format
def test_s15_a_trailing_blank_counts(form: Format) -> None:
    one = group_keys(store_conversation(form, (make_user("a"), make_user("b "), make_user("c"))).read().messages)
    other = group_keys((make_user("a"), make_user("b"), make_user("c")))
    assert [a == b for a, b in zip(one, other, strict=True)] == [True, False, False]


def test_s16_the_vectors() -> None:
    assert first_key() == "156aa972d7b4e8da5533e0868b0f271c88c83023afd966341f2b375d6014d9d9"
    assert group_keys(TALK)[0] == group_keys(TALK[:1])[0]
    b = (make_user("list files"), make_assistant(make_call("1", "shell", '{"n": 1.0, "cmd": "ls"}')))
    c = (make_user("日本 🚀"), make_assistant(make_call("x", "a"), make_call("y", "apply_patch", "*** Begin Patch")))
    assert group_keys((*b, make_result("1", "a.txt\nb.txt"), make_assistant("Two files."))) == (
        "8c3d64ff684d97baea4c516223e06f7f6eb83e3b668c85bc46f595a1149ce6e8",
        "3375aecd6440bed4d25de34ecbb3a7f483c434d47218a7fe445020976e2ad71c",
        "dec9ed9eb9229451cd08045a62de27af1bf6115affb2f36f75a5402088e760fc",
    )
    assert group_keys((*c, make_result("y", "rb"), make_result("x", "ra"))) == (
        "284eb5195beb78727ad72da4315cb0feac17a746a6564fce3723caf319744ec1",
        "ba2df038b9425c7e1ee626bdb0147b24a194089825897cf886aa398c87b9a1c6",
    )


# --- what the target cannot say, damage, and whose bytes: 17 to 29 -----------------------------------------------


@every_other
def test_s17_a_signature_is_there_again(abroad: Format) -> None:
    stored = session_of(HI, bot({"k": "think", "x": "hm", "sig": "U0lHTkFUVVJF"}, "hello"))
    there = store_conversation(abroad, stored.read().messages)
    assert b"U0lHTkFUVVJF" not in there.data
    assert text_of(abroad_and_back(stored, abroad)) == stored.data


@every_format
def test_s18_damage_in_the_third_of_five_segments(form: Format) -> None:
    said = tuple(make_user(f"turn {n}") for n in range(5))
    stored = store_conversation(form, said)
    desk = Desk()
    capture = desk.capture(stored)
    whole = desk.segments(capture)
    desk.damage(capture, 2, whole[2][:-2] + b"?" + whole[2][-1:])
    back = desk.bring_home(form, said, [stored.read().id])
    assert isinstance(back, Restored)
    kept = whole[0] + whole[1]
    assert text_of(back).startswith(kept)
    assert group_keys(back.session.messages) == group_keys(said)
    assert (back.report.restored_messages, back.report.rendered_messages) == (2, 3)


def test_s19_damage_in_the_first_segment_leaves_nothing() -> None:
    desk = Desk()
    desk.damage(desk.capture(FILE), 0, None)
    assert desk.bring_home(LINES, FILE.read().messages, ["p1"]) == NoChoice("no_candidate")


def test_s20_two_that_begin_alike_keep_their_own_records() -> None:
    one = session_of(HI, row("usage", of="one"), HELLO, user("left"), session_id="one")
    other = session_of(HI, row("usage", of="other"), HELLO, user("right"), session_id="other")
    desk = Desk()
    desk.capture(one)
    desk.capture(other)
    for own in ([], ["one"]):
        back = desk.bring_home(LINES, one.read().messages, own)
        assert isinstance(back, Restored)
        assert text_of(back) == one.data


def twins() -> tuple[Desk, Stored, Stored]:
    one, other = session_of(HI, HELLO, session_id="one"), session_of(HI, HELLO, session_id="other")
    desk = Desk()
    desk.capture(one)
    desk.capture(other)
    return desk, one, other


def test_s21_twins_and_no_own_id() -> None:
    desk, one, _ = twins()
    assert desk.bring_home(LINES, one.read().messages) == NoChoice("ambiguous_source")


def test_s22_twins_and_the_id_of_one() -> None:
    desk, one, other = twins()
    for twin in (one, other):
        back = desk.bring_home(LINES, one.read().messages, [twin.read().id])
        assert isinstance(back, Restored)
        assert text_of(back) == twin.data


def test_s23_only_a_stranger() -> None:
    desk = Desk()
    desk.capture(FILE)
    assert desk.bring_home(LINES, FILE.read().messages, ["mine"]) == NoChoice("other_session_only")


def test_s24_history_replaced_elsewhere_finds_nothing() -> None:
    desk = Desk()
    desk.capture(FILE)
    session = compacted(store_conversation(TINY, FILE.read().messages)).read()
    assert [(m.text, m.kind) for m in session.messages] == [("We greeted each other.", "summary"), ("So?", "")]
    assert desk.bring_home(LINES, session.messages, ["p1"]) == NoChoice("no_candidate")


def test_s25_a_record_that_replaces_history_is_in_one_segment() -> None:
    new = [{"t": "user", "x": "summary"}, {"t": "user", "x": "kept"}]
    session = read_lines(HI, HELLO, row("compact", replaces=new), user("on"))
    assert session.created_by == (3, 3, 4)
    assert [(c.first, c.last) for c in cut_session(session)] == [(0, 3), (3, 4), (4, 5)]


def test_s26_a_message_that_the_reader_made_up_ends_the_cutting() -> None:
    session = read_lines(HI, HELLO, row("invent", x="?"))
    assert [(c.first, c.last, c.end_of_source) for c in cut_session(session)] == [(0, 2, False), (2, 4, False)]


def test_s27_an_empty_session() -> None:
    stored = session_of(row("usage"))
    desk = Desk()
    desk.capture(stored)
    back = desk.bring_home(LINES, (), ["p1"])
    assert isinstance(back, Restored)
    assert text_of(back) == stored.data
    assert (back.report.restored_messages, back.report.rendered_messages) == (0, 0)


def test_s28_two_empty_sessions_and_neither_id() -> None:
    desk = Desk()
    for name in ("one", "other"):
        desk.capture(session_of(row("usage"), session_id=name))
    assert desk.bring_home(LINES, (), ["mine"]) == NoChoice("other_session_only")
    assert desk.bring_home(LINES, ()) == NoChoice("ambiguous_source")


# (29, a splice that does not read back, is in test_restore.py: it needs a writer that fails.)


# --- the verbs: 24, 30, 31, 32, 134, 136 -------------------------------------------------------------------------


# --- the normal form: 123 to 133, 135 ----------------------------------------------------------------------------


@every_format
def test_s123_a_message_sent_while_a_tool_ran(form: Format) -> None:
    session = read_lines(user("go"), bot(call("a")), user("hurry"), out("a", "done"), bot("ok"))
    there = store_conversation(form, session.messages).read()
    assert [(m.role, m.text) for m in there.messages] == [
        ("user", "go"), ("assistant", ""), ("tool", "done"), ("user", "hurry"), ("assistant", "ok"),
    ]  # fmt: skip


@every_other
def test_s124_strays_are_records_and_no_messages(abroad: Format) -> None:
    stored = session_of(out("q", "to nothing"), user("go"), bot(call("a")), out("a", "1"), out("a", "2"))
    session = stored.read()
    assert [m.text for m in session.messages] == ["go", "", "1"]
    assert [harm.sort for harm in session.damage] == ["stray result", "stray result"]
    assert text_of(abroad_and_back(stored, abroad)) == stored.data


@every_format
def test_s125_one_id_in_two_turns(form: Format) -> None:
    session = read_lines(
        user("go"), bot(call("a", "x")), out("a", "1"), user("again"), bot(call("a", "y")), out("a", "2")
    )
    assert [m.text for m in session.messages] == ["go", "", "1", "again", "", "2"]
    stored = store_conversation(form, session.messages)
    assert group_keys(stored.read().messages) == group_keys(session.messages)
    assert [c.id for m in stored.read().messages for c in m.calls] == ["a", "a"]


@every_format
def test_s125_one_id_again_while_it_is_open(form: Format) -> None:
    # So it is read from an agent whose own ids differ, where a mark gives the original ones.
    messages = (
        make_user("go"),
        make_assistant(make_call("a", "x"), make_call("a", "x")),
        make_result("a", "1"),
        make_user("again"),
        make_assistant(make_call("a", "y")),
        make_result("a", "2"),
        make_user("end"),
    )
    there = store_conversation(form, messages).read().messages
    assert [m.text for m in there] == ["go", "", "1", "again", "", "2", "end"]
    assert [c.id for m in there for c in m.calls] == ["a", "a", "a"]


@every_format
def test_s126_results_between_two_calls_of_one_reply(form: Format) -> None:
    messages = both(
        make_assistant("one", make_call("a", "x"), "two", make_call("b", "y")),
        make_result("a", "1"),
        make_result("b", "2"),
    )
    there = store_conversation(form, messages).read().messages
    assert [(m.role, len(m.calls)) for m in there] == [
        ("user", 0), ("assistant", 2), ("tool", 0), ("tool", 0), ("user", 0),
    ]  # fmt: skip
    assert group_keys(there) == group_keys(messages)


@every_other
def test_s127_a_reply_of_reasoning_alone(abroad: Format) -> None:
    stored = session_of(user("a"), bot({"k": "think", "x": "hm", "sig": "s"}), user("b"))
    assert [m.role for m in stored.read().messages] == ["user", "user"]
    assert text_of(abroad_and_back(stored, abroad)) == stored.data


@every_format
@pytest.mark.parametrize(
    "text",
    [
        "<system-reminder>be kind</system-reminder>",
        "what does <system-reminder>x</system-reminder> mean?",
        "<environment_context>\n  <cwd>/x</cwd>\n</environment_context>",
        "/clear",
        "<command-name>/model</command-name>",
        "<tiny-note>x</tiny-note>",
        "# AGENTS.md instructions for /x\n\n<INSTRUCTIONS>\nx\n</INSTRUCTIONS>",
    ],
)
def test_s128_what_a_user_quotes_is_sent_whole(form: Format, text: str) -> None:
    there = store_conversation(form, (make_user(text), make_assistant("ok"))).read().messages
    assert [(m.role, m.text, m.origin) for m in there] == [("user", text, "user"), ("assistant", "ok", "model")]


@pytest.mark.parametrize(
    "form",
    formats_to_test(),
    ids=lambda form: form.name,
)
@pytest.mark.parametrize("text", [INVENTED, INVENTED + " It did run.", "\\" + INVENTED])
def test_s129_a_result_that_begins_like_an_invented_one(form: Format, text: str) -> None:
    messages = both(make_assistant(make_call("a", "x")), make_result("a", text))
    there = store_conversation(form, messages).read().messages
    assert [m.text for m in there if m.role == "tool"] == [text]


@every_format
@pytest.mark.parametrize("arguments", ['{"clew_text":"x"}', '{"input":"x"}', '{"clew":{"text":true}}'])
def test_s130_an_object_of_the_wrappers_own_shape(form: Format, arguments: str) -> None:
    messages = both(make_assistant(make_call("a", "x", arguments)))
    there = store_conversation(form, messages).read().messages
    assert [json.loads(c.arguments) for m in there for c in m.calls] == [json.loads(arguments)]


@every_other
def test_s131_a_lone_surrogate(abroad: Format) -> None:
    stored = session_of(b'{"t":"user","x":"a \\ud800 b"}\n')
    there = store_conversation(abroad, stored.read().messages)
    assert [m.text for m in there.read().messages] == ["a \ufffd b"]
    assert b"\\ud800" not in there.data
    assert group_keys(there.read().messages) == group_keys(stored.read().messages)
    assert text_of(abroad_and_back(stored, abroad)) == stored.data


def test_s132_a_picture_alone() -> None:
    picture = {"k": "img", "name": "image/png", "x": "iVBORw0KGgo="}
    stored = session_of(user("draw"), bot(picture), user("nice"))
    there = store_conversation(TINY, stored.read().messages)
    assert b"[clew: an image stands here" in there.data
    assert [(m.role, m.text) for m in there.read().messages] == [("user", "draw"), ("assistant", ""), ("user", "nice")]
    assert isinstance(there.read().messages[1].parts[0], Image)
    assert text_of(abroad_and_back(stored, TINY)) == stored.data


@every_other
def test_s133_kept_records_behind_a_summary(abroad: Format) -> None:
    kept = {"t": "user", "x": "kept"}
    stored = session_of(HI, user("kept"), HELLO, row("compact", replaces=[{"t": "user", "x": "sum"}, kept]), user("on"))
    assert [m.text for m in stored.read().messages] == ["sum", "kept", "on"]
    assert text_of(abroad_and_back(stored, abroad)) == stored.data


@every_format
def test_s135_an_open_call_is_answered_before_later_turns(form: Format) -> None:
    messages = (make_user("go"), make_assistant("now", make_call("a", "sh", "{}")))
    stored = store_conversation(form, messages)
    back = abroad_and_back(stored, TINY if form is not TINY else LINES, *MORE)
    assert group_keys(back.session.messages) == group_keys((*messages, *MORE))
    answers = text_of(back).count(INVENTED.encode())
    assert answers <= 1  # none where the agent takes a call without an answer; never two for one call
    if answers:
        assert text_of(back).index(INVENTED.encode()) < text_of(back).index(b"and more")
    assert answers == 1 or form.name not in ("claude", "codex", "tiny")


def test_s135_a_native_open_call_is_answered_once() -> None:
    data = b'{"tiny":1,"id":"n","messages":[{"who":"user","say":"go"},{"who":"bot","does":[{"id":"a","tool":"sh"}]}]}'
    stored = Stored(TINY, data, "n/doc.json")
    back = abroad_and_back(stored, LINES, *MORE)
    elements = json.loads(text_of(back))["messages"]
    assert [e.get("say") for e in elements] == ["go", None, INVENTED, "more", "and more"]
    assert elements[2]["clew"] == {"invented": True}
    assert TINY.read(Source((Stream("x", text_of(back)),))).messages == back.session.messages
