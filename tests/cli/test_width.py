from hypothesis import given, settings
from hypothesis import strategies as st

from clew.cli.width import cut, pad, width_of, wrap


def test_widths():
    assert width_of("abc") == 3
    assert width_of("解析") == 4
    assert width_of("🚀") == 2
    assert width_of("e\u0301") == 1


def test_cut_leaves_an_ellipsis():
    assert cut("abcdef", 6) == "abcdef"
    assert cut("abcdefg", 6) == "abcde…"
    assert cut("abc defg", 5) == "abc…"
    assert cut("abcdefg", 1) == "…"
    assert cut("abcdefg", 0) == ""
    assert cut("abcdefg", 6, "~") == "abcde~"


def test_a_wide_character_is_never_cut_in_two():
    assert cut("解析器を直す", 6) == "解析…"
    assert width_of(cut("解析器を直す", 6)) <= 6


def test_pad():
    assert pad("解", 4) == "解  "
    assert pad("7", 3, right=True) == "  7"


def test_wrap_keeps_the_indent_and_whole_words():
    assert wrap("  one two three", 9) == ["  one two", "  three"]
    assert wrap("see https://example.org/a/very/long/address now", 10) == [
        "see",
        "https://example.org/a/very/long/address",
        "now",
    ]
    assert wrap("anything at all", 0) == ["anything at all"]
    assert wrap("", 10) == [""]


def test_scripts_without_blanks_are_wrapped():
    assert wrap("解析器を直すのは簡単だ", 8) == ["解析器を", "直すのは", "簡単だ"]


@settings(max_examples=100)
@given(st.text(st.characters(categories=["L", "N", "P", "Zs", "So"])), st.integers(1, 40))
def test_cut_fits(text, width):
    assert width_of(cut(text, width)) <= width


@settings(max_examples=100)
@given(st.text(st.characters(categories=["L", "N", "P"])).map(lambda t: t.replace("\u3000", "")), st.integers(4, 40))
def test_wrap_says_everything(text, width):
    assert "".join("".join(wrap(text, width)).split()) == "".join(text.split())
