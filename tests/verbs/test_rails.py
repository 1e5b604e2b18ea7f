"""The drawing of a thread: lanes, corners, crossings, and what does not fit."""

from clew.verbs.rails import Step, lay_out


def drawn(*steps, lanes=6):
    rows = lay_out([Step(*step) if isinstance(step, tuple) else Step(step, "○") for step in steps], lanes)
    lines = []
    for row in rows:
        text = "".join(cell + join for cell, join in zip(row.cells, row.joins, strict=True)).rstrip()
        lines.append(text + (f" …+{row.hidden}" if row.hidden else ""))
    return "\n".join(lines)


def test_one_strand_is_a_column():
    assert drawn("a", "a") == "○\n○"


def test_there_and_back_again():
    assert drawn("a", ("b", "○", "a"), "b", ("a", "○", "b"), ("c", "◌", "a", True), ("a", "●")) == (
        "○\n├─╮\n│ ○\n│ ○\n├─╯\n○\n├┄╮\n│ ◌\n●"
    )


def test_a_source_that_ends_hands_its_rail_over():
    assert drawn("a", ("b", "○", "a")) == "○\n╰─╮\n  ○"


def test_a_target_that_goes_on_beside_its_source():
    assert drawn("a", ("b", "○", "a"), ("a", "○", "b"), "b") == "○\n├─╮\n│ ○\n├─┤\n○ │\n  ○"


def test_lines_cross_lanes_between():
    assert drawn("a", ("b", "○", "a"), ("c", "○", "a"), "b", "a", "c") == (
        "○\n├─╮\n│ ○\n├─┼─╮\n│ │ ○\n│ ○ │\n○   │\n    ○"
    )


def test_a_lane_that_is_free_again_is_taken():
    assert drawn("a", ("b", "○", "a"), ("a", "○", "b"), ("c", "○", "a"), "a") == "○\n├─╮\n│ ○\n├─╯\n○\n├─╮\n│ ○\n○"


def test_lanes_beyond_the_limit_are_counted():
    steps = ["a", *[(name, "○", "a") for name in "bcd"], *"bcd", "a"]
    rows = lay_out([Step(*s) if isinstance(s, tuple) else Step(s, "○") for s in steps], 2)
    assert all(len(row.cells) <= 2 for row in rows)
    assert max(row.hidden for row in rows) == 2
    assert [row.node_hidden for row in rows if row.step is not None] == [
        False,
        False,
        True,
        True,
        False,
        True,
        True,
        False,
    ]


def test_two_beginnings_stand_side_by_side():
    assert drawn("a", "b", "a") == "○\n│ ○\n○"


def test_nothing_is_nothing():
    assert lay_out([]) == ()
