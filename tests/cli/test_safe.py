import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clew.cli.safe import make_safe, write_json
from clew.conversation.text import mend_surrogates
from cli_samples import HOSTILE

OUR_SGR = re.compile(
    r"\x1b\[(?:0|(?:(?:1|2|3|4|7|9|3[0-7]|9[0-7]|4[0-7]|10[0-7]|[34]8;5;\d{1,3}|[34]8;2;\d{1,3};\d{1,3};\d{1,3})"
    r"(?:;(?!m)|(?=m)))+)m"
)
FORBIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\U000e0000-\U000e007f\ud800-\udfff]"
)


def test_controls_become_pictures():
    assert make_safe("a\x1b[2Jb") == "a␛[2Jb"
    assert make_safe("\x07\x7f\x00") == "␇␡␀"
    assert make_safe("\x9b31m") == "⟨009B⟩31m"


def test_osc_52_and_clear_screen_do_nothing():
    assert make_safe("\x1b]52;c;cm0gLXJm\x07") == "␛]52;c;cm0gLXJm␇"
    assert "\x1b" not in make_safe("\x1bc\x1b[H\x1b[2J\x1b[3J")


def test_direction_controls_become_numbers():
    assert make_safe("\u202eabc\u202c") == "⟨202E⟩abc⟨202C⟩"
    assert make_safe("\u2066\u2069\u200f") == "⟨2066⟩⟨2069⟩⟨200F⟩"


def test_what_cannot_be_seen_is_shown():
    assert make_safe("pass\u200bword\ufeff") == "pass⟨200B⟩word⟨FEFF⟩"
    assert make_safe("x\U000e0041") == "x⟨E0041⟩"
    assert make_safe("a\u200db") == "a⟨200D⟩b"


def test_joiners_of_emoji_and_scripts_stay():
    family = "👩\u200d👩\u200d👧"
    persian = "می\u200cخواهم"
    assert make_safe(family) == family
    assert make_safe(persian) == persian
    assert make_safe("é\u200d\u200d\u200dé") == "é⟨200D⟩⟨200D⟩⟨200D⟩é"


def test_line_feeds_tabs_and_letters_stay():
    text = "a\n\tb — ünïcödé 解析 🚀"
    assert make_safe(text) == text


def test_windows_line_ends_are_line_ends_and_a_lone_return_is_shown():
    assert make_safe("a\r\nb\rc") == "a\nb␍c"


def test_a_lone_surrogate_can_be_written():
    assert make_safe("a\ud800b") == "a\ufffdb"


def test_one_line():
    assert make_safe("Fix\n the\t\tparser \x85 now", line=True) == "Fix the parser ⟨0085⟩ now"


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252"])
def test_other_encodings_get_ascii_signs(encoding):
    text = make_safe("\x1b[2J \u202e 解 \x9b", encoding=encoding)
    assert text == "^[[2J <202E> \\u89e3 <009B>"
    text.encode(encoding)


def test_colours_of_a_result_are_kept_line_by_line():
    text = make_safe("\x1b[1;31mred\nstill\x1b[0m plain", sgr="keep")
    assert text == "\x1b[1;31mred\x1b[0m\n\x1b[1;31mstill\x1b[0m plain"


def test_colours_can_be_taken_out():
    assert make_safe("\x1b[31mred\x1b[m \x1b[2J", sgr="drop") == "red ␛[2J"


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("\x1b[38;5;208mx", "\x1b[38;5;208mx\x1b[0m"),
        ("\x1b[48;2;1;2;3mx", "\x1b[48;2;1;2;3mx\x1b[0m"),
        ("\x1b[38;5;999mx", "x"),
        ("\x1b[38mx", "x"),
        ("\x1b[8mhidden", "hidden"),
        ("\x1b[5mblink", "blink"),
        ("\x1b[31;8;4mx", "\x1b[31;4mx\x1b[0m"),
        ("\x1b[31m\x1b[39mx", "x"),
        ("\x1b[1;2;3m\x1b[22;23mx", "x"),
        ("\x1b[>4;2mx", "␛[>4;2mx"),
        ("\x1b[31", "␛[31"),
        ("\x1b[3\x1b[31m1mx", "␛[3\x1b[31m1mx\x1b[0m"),
    ],
)
def test_only_what_is_on_the_list(given, kept):
    assert make_safe(given, sgr="keep") == kept


def test_an_endless_sequence_is_text():
    assert "\x1b" not in make_safe("\x1b[" + "1;" * 1000 + "m", sgr="keep")


HOSTILE_TEXT = st.lists(
    st.one_of(
        st.sampled_from([*HOSTILE, HOSTILE, "\x1b[", "\x1b[31m", "\x1b]52;c;", "\x9b", "m", ";", "8", "\u200d", "é"]),
        st.text(),
        st.characters(categories=["Cc", "Cf", "Cs", "Zl", "Zp"]),
    )
).map("".join)


@settings(max_examples=100)
@given(HOSTILE_TEXT)
def test_no_control_leaves(text):
    assert not FORBIDDEN.search(make_safe(text))
    assert not FORBIDDEN.search(make_safe(text, sgr="drop"))


@settings(max_examples=100)
@given(HOSTILE_TEXT)
def test_no_escape_leaves_but_our_colours(text):
    out = make_safe(text, sgr="keep")
    assert not FORBIDDEN.search(OUR_SGR.sub("", out))
    for line in out.split("\n"):
        assert "\x1b" not in line or line.rindex("\x1b[0m") == line.rindex("\x1b")


@settings(max_examples=100)
@given(HOSTILE_TEXT, st.sampled_from(["ascii", "latin-1", "cp1252", "koi8-r"]))
def test_no_control_byte_leaves_in_any_encoding(text, encoding):
    data = make_safe(text, encoding=encoding).encode(encoding)
    assert not re.search(rb"[\x00-\x08\x0b-\x1f\x7f]", data)


@settings(max_examples=100)
@given(HOSTILE_TEXT)
def test_safe_text_stays_as_it_is(text):
    once = make_safe(text)
    assert make_safe(once) == once


@settings(max_examples=100)
@given(HOSTILE_TEXT)
def test_json_is_the_same_value_without_controls(text):
    written = write_json({"a": [text], text: 1})
    mended = mend_surrogates(text)
    assert json.loads(written) == ({"a": [mended], mended: 1} if mended != "a" else {"a": 1})
    assert not FORBIDDEN.search(written)
    written.encode()


def test_json_of_what_json_does_not_know():
    assert write_json({"a": Exception("x")}) == '{"a":"x"}'
