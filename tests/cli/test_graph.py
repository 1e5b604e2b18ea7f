"""The thread in the terminal: golden texts at four widths, colour off and on, ASCII, and graphviz."""

from datetime import UTC, datetime

import msgspec
import pytest

from clew.cli.graph import dot_lines, graph_lines
from clew.cli.style import Look
from clew.conversation.loss import Loss
from clew.verbs.log import Entry, LogStrand, Parting, ThreadLog

NOW = datetime(2026, 10, 13, 12, 0, tzinfo=UTC)
CLAUDE, CODEX, FORK = "s-claude", "s-codex", "s-fork"


def make_log(**fields):
    """There and back, a fork, and a live process: the drawing of the design."""
    strands = (
        LogStrand(CLAUDE, "claude", "86d7aaaa", "86d7", "live", 58, pid=4711),
        LogStrand(CODEX, "codex", "01a2bbbb", "01a2", "there", 55),
        LogStrand(FORK, "claude", "9c1edddd", "9c1e", "kept", 52),
    )
    entries = (
        Entry(CLAUDE, "created", "2026-10-12T09:01:00Z", messages=41),
        Entry(CODEX, "translated", "2026-10-12T15:43:00Z", CLAUDE, 41, 0, 41),
        Entry(CODEX, "grown", "2026-10-12T17:10:00Z", messages=14),
        Entry(CLAUDE, "translated", "2026-10-13T08:02:00Z", CODEX, 55, 41, 14),
        Entry(FORK, "forked", "2026-10-13T09:30:00Z", CLAUDE, 48),
        Entry(CLAUDE, "resumed", "2026-10-13T10:00:00Z", count=5),
        Entry(CLAUDE, "now", "2026-10-13T12:00:00Z", detail="process 4711"),
    )
    partings = (Parting(CLAUDE, FORK, "diverged", 48, 10, 4), Parting(CODEX, CLAUDE, "first_behind", 55, 0, 3))
    values = {"start": CLAUDE, "present": CLAUDE, "newest": CLAUDE, "partings": partings, **fields}
    return ThreadLog("t0123456789abcdef", values.pop("strands", strands), values.pop("entries", entries), **values)


def text(log, **look):
    return "\n".join(graph_lines(log, Look(**look), NOW, UTC)) + "\n"


@pytest.mark.parametrize("width", [140, 80, 50, 40])
def test_the_drawing(golden, width):
    golden(f"log-{width}.txt", text(make_log(), width=width))


def test_the_drawing_in_colour(golden):
    golden("log-colour.txt", text(make_log(), width=80, color=True))


def test_the_drawing_in_ascii(golden):
    made = text(make_log(), width=80, encoding="ascii")
    assert made.isascii()
    golden("log-ascii.txt", made)


def test_nothing_is_cut_where_there_is_no_terminal(golden):
    made = text(make_log(), width=0)
    assert "14 written" in made
    golden("log-plain.txt", made)


def test_no_line_is_wider_than_the_terminal():
    for width in (40, 50, 80):
        lines = text(make_log(partings=()), width=width).splitlines()[:-1]
        assert max(len(line) for line in lines) <= width


def test_many_strands_are_counted():
    strands = tuple(LogStrand(f"s{n}", "codex", f"id{n}xx", f"id{n}x", "there", 1) for n in range(10))
    entries = [Entry("s0", "created", "2026-10-12T09:01:00Z", messages=1)]
    entries += [Entry(f"s{n}", "forked", "2026-10-12T09:02:00Z", "s0", 1) for n in range(1, 10)]
    entries += [Entry(f"s{n}", "grown", "2026-10-12T09:03:00Z", messages=1) for n in range(10)]
    made = text(make_log(strands=strands, entries=tuple(entries), partings=(), start="s0", present="s0", newest="s0"))
    assert "…+4 lanes" in made


def test_what_a_session_says_cannot_act_on_the_terminal():
    hostile = LogStrand(CLAUDE, "claude", "x\x1b[2J", "x\x1b[2J", "there", 1)
    made = text(make_log(strands=(hostile,), entries=(Entry(CLAUDE, "created", "", messages=1),), partings=()))
    assert "\x1b" not in made
    assert "\x1b" not in "".join(dot_lines(make_log(strands=(hostile,))))


def test_what_a_translation_could_not_say_is_told(golden):
    lost = (Loss("reasoning blocks", 1200), Loss("images", 1), Loss("error flags", 2, kept=""))
    entries = list(make_log().entries)
    for at in (1, 4):
        entries[at] = msgspec.structs.replace(entries[at], losses=lost[:at])
    entries[3] = msgspec.structs.replace(entries[3], losses=lost[2:])
    made = make_log(entries=tuple(entries))
    golden("log-losses.txt", text(made, width=0) + "\n".join(dot_lines(made)) + "\n")


def test_graphviz(golden):
    golden("log.dot", "\n".join(dot_lines(make_log())) + "\n")
