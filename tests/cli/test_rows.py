from datetime import UTC

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clew.cli.rows import MIN_TITLE, list_lines, tab_line
from clew.cli.style import Look
from clew.cli.width import width_of
from cli_samples import HOSTILE, NOW, make_row, make_rows


def listed(rows, look, **options):
    return "".join(line.rstrip() + "\n" for line in list_lines(rows, look, NOW, UTC, **options))


@pytest.mark.parametrize("width", [140, 80, 50, 40])
def test_the_list_at_every_width(width, golden):
    text = listed(make_rows(), Look(width=width, terminal=True))
    golden(f"ls-{width}.txt", text)
    assert all(width_of(line) <= width for line in text.splitlines())


def test_the_list_in_colour(golden):
    golden("ls-80-color.txt", listed(make_rows(), Look(width=80, color=True, terminal=True)))


def test_the_list_in_ascii(golden):
    text = listed(make_rows(), Look(width=80, encoding="ascii", terminal=True))
    golden("ls-80-ascii.txt", text)
    assert text.isascii()


def test_with_verbose_the_long_words_stand_below():
    assert "  claude no longer has it; clew holds capture 4\n" in listed(make_rows(), Look(width=80), verbose=True)


def test_a_folder_that_is_the_same_for_all_is_left_out():
    assert "shop-api" not in listed([make_row(), make_row(id="2", short="2222")], Look(width=140))


def test_two_folders_of_one_name_can_be_told_apart():
    text = listed([make_row(cwd="/a/one/app"), make_row(cwd="/a/two/app")], Look(width=140))
    assert "one/app" in text
    assert "two/app" in text


def test_headings_come_once():
    lines = listed(make_rows(), Look(width=80)).splitlines()
    assert [line for line in lines if not line.startswith(" ") and len(line) < 20] == [
        "today",
        "yesterday",
        "October",
        "March 2025",
        "no date",
    ]


def test_a_line_of_columns_says_why_a_session_cannot_be_read():
    row = make_row(title="", state="unreadable", detail="/a/opencode.db is damaged")
    assert tab_line(row, Look()).split("\t")[-1] == "cannot be read: /a/opencode.db is damaged"


def test_below_a_session_that_cannot_be_read_stands_why_in_full():
    reason = "/home/dev/.local/share/opencode/opencode.db is damaged: " + "malformed " * 10
    text = listed([make_row(title="", state="unreadable", detail=reason)], Look(width=60, terminal=True))
    assert " ".join(reason.split()) in " ".join(text.split())
    assert all(width_of(line) <= 60 for line in text.splitlines())


def test_lines_of_columns_cut_nothing():
    row = make_row(title="x" * 300 + "\ty\nz")
    assert tab_line(row, Look()).split("\t") == [
        "2026-11-20T13:12:00.000Z",
        "claude",
        "86d7aaaa-0000-4000-8000-000000000001",
        "idle",
        "41",
        "/home/dev/shop-api",
        "x" * 300 + " y z",
    ]


def hostile_row(text):
    return make_row(agent=text, id=text, short=text[:20], title=text, cwd=text, updated=text, model=text, detail=text)


def test_nothing_of_a_hostile_session_acts():
    row = hostile_row(HOSTILE)
    for text in (tab_line(row, Look()), listed([row, make_row()], Look(width=80), verbose=True)):
        assert "\x1b" not in text
        assert not any(0x80 <= ord(char) < 0xA0 for char in text)
        assert "\u202e" not in text
    assert len(tab_line(row, Look()).split("\t")) == 7


@settings(max_examples=60)
@given(st.lists(st.text(max_size=60), min_size=1, max_size=4), st.integers(34, 160))
def test_no_line_is_wider_than_the_terminal(titles, width):
    rows = [make_row(title=title, cwd=f"/x/{title}") for title in titles]
    assert all(width_of(line) <= width for line in list_lines(rows, Look(width=width), NOW, UTC))


@pytest.mark.parametrize("width", [140, 80, 50, 40])
def test_the_title_keeps_its_least_width(width):
    title = "t" * 200
    text = listed([make_row(title=title, state="live"), make_row(cwd="/y", state="gone")], Look(width=width))
    assert text.count("t" * (MIN_TITLE - 1)) >= 1
    assert "86d7" in text


def test_ten_thousand_rows_are_all_there():
    rows = [make_row(id=f"{n:06}", short=f"{n:06}") for n in range(10_000)]
    assert sum(1 for _ in list_lines(rows, Look(width=80), NOW, UTC)) == 10_001
