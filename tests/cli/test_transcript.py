import re
from datetime import UTC

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clew.cli.style import Look
from clew.cli.transcript import Transcript
from clew.cli.width import width_of
from clew.verbs.show import ShownBranch, ShownCall, ShownResult
from cli_samples import HOSTILE, NOW, make_full, make_group, make_shown

TERMINAL = Look(width=80, terminal=True)


def text_of(shown, look=TERMINAL, detail="short", now=NOW):
    return "".join(line + "\n" for line in Transcript(shown, look, detail, now, UTC).lines())


@pytest.mark.parametrize("width", [140, 80, 50, 40])
def test_a_conversation_at_every_width(width, golden):
    golden(f"show-{width}.txt", text_of(make_shown(), Look(width=width, terminal=True)))


def test_in_colour(golden):
    golden("show-80-color.txt", text_of(make_shown(), Look(width=80, color=True, terminal=True)))


def test_in_ascii(golden):
    text = text_of(make_full(), Look(width=80, encoding="ascii", terminal=True), "full")
    golden("show-80-ascii.txt", Look(encoding="ascii").own(text))


def test_the_full_history_opens_results(golden):
    golden("show-80-full.txt", text_of(make_full(), detail="full"))


def test_only_the_calls(golden):
    golden("show-80-tools.txt", text_of(make_shown(), detail="tools"))


def test_outside_of_a_terminal_nothing_is_wrapped_or_cut(golden):
    text = text_of(make_shown(), Look(width=0), now=None)
    golden("show-plain.txt", text)
    assert "since no terminal is as wide as that.\n" in text


def test_prompts_can_be_found_in_a_pager():
    rules = [line for line in text_of(make_shown()).splitlines() if re.match("──", line)]
    assert [" you " in rule for rule in rules] == [True, True]


def test_a_failed_call_shows_its_last_line():
    assert "✗ exit 1: 1 failed, 41 passed" in text_of(make_shown())


def test_a_call_without_an_answer_says_so():
    assert "▸ Task Find callers ? no answer" in text_of(make_shown())


def test_a_notice_of_the_agent_is_one_line_that_is_cut_and_counted():
    shown = make_shown(messages=(make_group("user", "\n".join(["word " * 9] * 8), origin="agent", kind="notice"),))
    line = next(line for line in text_of(shown).splitlines() if line.startswith("┄┄"))
    assert line.startswith("┄┄ 1 ─ notice: word word")
    assert line.endswith("… (8 lines)")
    assert width_of(line) <= 80
    assert text_of(shown, detail="full").count("word") == 72


def test_the_agent_is_named_once_in_an_answer_where_it_first_says_something():
    call = make_group("assistant", "", tool_calls=(ShownCall("1", "Read", ""),))
    said = make_group("assistant", "Here it is.")
    text = text_of(make_shown(messages=(make_group("user", "go"), call, said, call, said)))
    assert text.count("   claude  Here it is.") == 1
    assert text.count("           Here it is.") == 1


def test_the_effective_context_says_that_there_is_more():
    shown = msgspec.structs.replace(make_full(), full=False)
    text = text_of(shown)
    assert "compacted: 4 earlier messages not in the model's context (--full shows them)" in text
    assert "rewound after message 5: 6 messages not on the active branch (--branch 2)" in text


def test_colours_of_a_result_stay_where_there_is_colour():
    shown = make_full()
    assert "\x1b[31m1 failed\x1b[0m" in text_of(shown, Look(width=80, color=True), "full")
    assert "│ 1 failed" in text_of(shown, Look(width=80), "full")


def everything(shown):
    for group in shown.messages:
        yield from (group.text, *(c.name for c in group.tool_calls), *(r.text for r in group.tool_results))
        yield from (c.arguments for c in group.tool_calls)


def letters(text):
    return "".join(re.findall(r"\w", text))


def test_nothing_that_was_said_is_missing_from_the_full_form():
    shown = make_full()
    text = letters(re.sub("\x1b\\[[0-9;]*m|│", "", text_of(shown, Look(width=60), "full")))
    for group in shown.messages:
        assert letters(group.text) in text
        for result in group.tool_results:
            assert letters(re.sub("\x1b\\[[0-9;]*m", "", result.text)) in text
    assert letters("Who calls load()?") in text


def hostile_shown():
    group = make_group(
        "assistant",
        HOSTILE,
        kind=HOSTILE,
        tool_calls=(ShownCall(HOSTILE, HOSTILE, HOSTILE), ShownCall("1", "Edit", '{"path": "\\u001b[2J"}')),
        tool_results=(ShownResult(HOSTILE, HOSTILE, True), ShownResult("1", HOSTILE, None)),
    )
    user = make_group("user", HOSTILE, origin="agent", kind=HOSTILE)
    return make_full().__class__(
        HOSTILE,
        HOSTILE,
        HOSTILE,
        HOSTILE,
        HOSTILE,
        HOSTILE,
        (make_group("user", HOSTILE), user, group),
        make_shown().damage,
        (),
        thread=HOSTILE,
        state=HOSTILE,
        branches=(ShownBranch(1, 1, ()),),
    )


OUR_SGR = re.compile("\x1b\\[[0-9;]*m")


@pytest.mark.parametrize("detail", ["short", "full", "tools"])
@pytest.mark.parametrize("color", [False, True])
def test_nothing_of_a_hostile_session_acts(detail, color):
    text = text_of(hostile_shown(), Look(width=80, color=color), detail)
    rest = OUR_SGR.sub("", text) if color else text
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e\u2066\u200b\ufeff\U000e0041\ud800]", rest)
    assert "\x1b[8m" not in text


@settings(max_examples=60)
@given(st.text(max_size=200), st.integers(40, 120))
def test_prose_fits_unless_a_word_does_not(text, width):
    shown = make_shown(messages=(make_group("assistant", text),), damage=())
    body = text_of(shown, Look(width=width, terminal=True)).splitlines()[3:]
    assert all(width_of(line) <= width or " " not in line.strip().removeprefix("claude  ") for line in body)
