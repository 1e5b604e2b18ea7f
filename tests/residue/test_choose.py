"""Choosing whose bytes: residue spec, sections 6 and 7, and the worked examples 4, 5 and 8 of section 10."""

from __future__ import annotations

from itertools import permutations

import msgspec
import pytest

from clew.conversation.canonical import first_key
from clew.ids import ChainKey, Digest
from clew.residue.choose import Candidate, Choice, NoChoice, choose_source, is_sound
from toysessions import Piece, bot, candidate_of, keys_of_lines, pieces_of, read_lines, row, user

HI, HELLO, MORE, LAST = user("hi"), bot("hello"), user("and more"), bot("last words")


def of_lines(*lines: bytes, session_id: str = "p1", capture: int = 1, known: bool = True) -> Candidate:
    pieces = pieces_of(read_lines(*lines, session_id=session_id))
    return candidate_of(
        pieces, capture=capture, source=f"source {session_id}", session_id=session_id if known else None
    )


def choose(keys: tuple[ChainKey, ...], *candidates: Candidate, own: str = "", carries_id: bool = True) -> object:
    chosen = choose_source(keys, candidates, own_ids=frozenset(own.split()), carries_id=carries_id)
    return (chosen.candidate.capture, chosen.matched, chosen.ends) if isinstance(chosen, Choice) else chosen.reason


KEYS = keys_of_lines(HI, HELLO)
LONG = keys_of_lines(HI, HELLO, MORE, LAST)


def test_nothing_captured() -> None:
    assert choose(KEYS) == "no_candidate"


def test_the_whole_and_a_beginning() -> None:
    one = of_lines(HI, HELLO)
    assert choose(KEYS, one, own="p1") == (1, 2, True)
    assert choose(LONG, one, own="p1") == (1, 2, False)
    assert choose(KEYS[:1], one, own="p1") == (1, 1, False)


def test_a_known_stranger_is_out_and_one_without_an_id_stays() -> None:  # scenario 23
    assert choose(KEYS, of_lines(HI, HELLO, session_id="x"), own="p1") == "other_session_only"
    assert choose(KEYS, of_lines(HI, HELLO, session_id="x", known=False), own="p1") == (1, 2, True)
    assert choose(KEYS, of_lines(HI, HELLO, session_id="x")) == (1, 2, True)


def test_a_format_whose_records_carry_no_id_drops_nobody() -> None:
    assert choose(KEYS, of_lines(HI, HELLO, session_id="x"), own="p1", carries_id=False) == (1, 2, True)


def test_twins() -> None:  # example 5, scenarios 20 to 22
    x, y = of_lines(HI, HELLO, session_id="x"), of_lines(HI, HELLO, session_id="y", capture=2)
    assert choose(KEYS, x, y, own="x") == (1, 2, True)
    assert choose(KEYS, x, y, own="y other") == (2, 2, True)
    assert choose(KEYS, x, y) == "ambiguous_source"
    grown = of_lines(HI, HELLO, MORE, LAST, session_id="y", capture=3)
    assert choose(LONG, x, grown) == (3, 4, True)
    assert choose(LONG, x, y, grown, own="x") == (1, 2, False)


def test_of_equal_length_the_own_one_is_taken_over_one_without_id() -> None:
    nobody = of_lines(HI, HELLO, session_id="n", known=False, capture=7)
    assert choose(KEYS, nobody, of_lines(HI, HELLO, capture=2), own="p1") == (2, 2, True)


def test_a_longer_one_without_id_is_taken_over_the_own() -> None:
    nobody = of_lines(HI, HELLO, MORE, LAST, session_id="n", known=False, capture=7)
    assert choose(LONG, nobody, of_lines(HI, HELLO, capture=2), own="p1") == (7, 4, True)


def test_two_sources_of_the_same_bytes_are_no_question() -> None:
    pieces = pieces_of(read_lines(HI, HELLO))
    one = candidate_of(pieces, capture=1, source="one")
    two = candidate_of(pieces, capture=2, source="two")
    assert choose(KEYS, one, two) == (2, 2, True)
    assert choose(KEYS, two, one) == (2, 2, True)


def test_a_grown_file_is_taken_from_one_capture() -> None:  # example 8
    short = of_lines(HI, HELLO, MORE, capture=1)
    grown = of_lines(HI, HELLO, MORE, row("usage"), LAST, user("bye"), capture=2)
    three, five = keys_of_lines(HI, HELLO, MORE), keys_of_lines(HI, HELLO, MORE, LAST, user("bye"))
    for order in permutations((short, grown)):
        assert choose(five, *order, own="p1") == (2, 5, True)
        assert choose(three, *order, own="p1") == (1, 3, True)
        assert choose(five[:4], *order, own="p1") == (2, 4, False)
        assert choose(five[:2], *order, own="p1") == (2, 2, False)


def test_of_captures_of_one_conversation_the_newest() -> None:
    captures = [of_lines(HI, HELLO, *[row("usage")] * n, capture=n + 1) for n in range(3)]
    for order in permutations(captures):
        assert choose(KEYS, *order, own="p1") == (3, 2, True)


def test_history_rewritten_elsewhere_finds_nothing() -> None:  # example 3
    assert choose(keys_of_lines(user("summary"), HELLO), of_lines(HI, HELLO), own="p1") == "no_candidate"


def test_a_damaged_segment_counts_as_missing() -> None:  # example 4, scenarios 18 and 19
    pieces = pieces_of(read_lines(HI, HELLO, MORE, LAST))
    for number in range(4):
        for bad in (pieces[number].spoiled(), msgspec.structs.replace(pieces[number], data=None, lengths=())):
            broken = candidate_of([*pieces[:number], bad, *pieces[number + 1 :]])
            assert choose(LONG, broken) == ((1, number, False) if number else "no_candidate")


def test_an_older_capture_that_is_whole_wins_over_a_damaged_newer_one() -> None:
    pieces = pieces_of(read_lines(HI, HELLO, MORE, LAST))
    whole = candidate_of(pieces, capture=1, source="s")
    broken = candidate_of([*pieces[:2], pieces[2].spoiled(), pieces[3]], capture=2, source="s")
    for order in permutations((whole, broken)):
        assert choose(LONG, *order) == (1, 4, True)
    assert choose(LONG, broken) == (2, 2, False)


def test_damage_behind_the_conversation_does_not_count() -> None:
    pieces = pieces_of(read_lines(HI, HELLO, MORE, LAST))
    assert choose(KEYS, candidate_of([*pieces[:3], pieces[3].spoiled()])) == (1, 2, False)


def test_nothing_counts_behind_a_segment_that_is_marked_as_the_end() -> None:
    pieces = pieces_of(read_lines(HI, HELLO, MORE, LAST))
    early = msgspec.structs.replace(pieces[1], end_of_source=True)
    assert choose(LONG, candidate_of([pieces[0], early, *pieces[2:]])) == (1, 2, False)


def test_a_segment_under_another_key_than_the_list_says_counts_as_missing() -> None:
    pieces = pieces_of(read_lines(HI, HELLO))
    swapped = msgspec.structs.replace(pieces[1], key=ChainKey("f" * 64))
    listed = Candidate(1, "s", None, KEYS, lambda a, b: iter([pieces[0], swapped][a:b]))
    assert choose(KEYS, listed) == (1, 1, False)


def test_a_store_that_delivers_fewer_segments_than_it_lists() -> None:
    pieces = pieces_of(read_lines(HI, HELLO))
    listed = Candidate(1, "s", None, KEYS, lambda a, b: iter(pieces[:1][a:b]))
    assert choose(KEYS, listed) == (1, 1, False)
    empty = Candidate(1, "s", None, KEYS, lambda a, b: iter(()))
    assert choose(KEYS, empty) == "no_candidate"


def test_an_unkeyed_rest_is_not_the_end() -> None:
    session = read_lines(HI, HELLO, row("invent", x="made up"), user("later"))
    pieces = pieces_of(session)
    assert len(pieces) == 1
    assert choose(KEYS[:1], candidate_of(pieces)) == (1, 1, False)


# --- no messages at all ------------------------------------------------------------------------------------------

EMPTY = (first_key(),)


def empty(session_id: str, capture: int = 1, *, known: bool = True, more: tuple[bytes, ...] = ()) -> Candidate:
    return of_lines(row("usage"), *more, session_id=session_id, capture=capture, known=known)


def test_an_empty_session_comes_back() -> None:  # example 9, scenario 27
    assert choose(EMPTY, empty("e"), own="e") == (1, 1, True)
    assert choose(EMPTY, empty("e")) == (1, 1, True)


def test_between_empty_sessions_only_the_own_one() -> None:  # scenario 28
    assert choose(EMPTY, empty("e"), empty("f", 2), own="f") == (2, 1, True)
    assert choose(EMPTY, empty("e"), empty("f", 2), own="g") == "other_session_only"
    assert choose(EMPTY, empty("e"), empty("f", 2)) == "ambiguous_source"
    assert choose(EMPTY, empty("e"), own="g") == "other_session_only"


def test_of_two_captures_of_an_empty_session_the_newest() -> None:
    assert choose(EMPTY, empty("e"), empty("e", 2, more=(row("usage"),)), own="e") == (2, 1, True)


# --- soundness of one segment ------------------------------------------------------------------------------------

SOUND = Piece.of(ChainKey("0"), [b"ab", b"", b"c"])


def test_a_sound_segment() -> None:
    assert is_sound(SOUND)
    assert is_sound(Piece.of(ChainKey("0"), []))


@pytest.mark.parametrize(
    "changes",
    [
        {"data": None},
        {"data": b"abd"},
        {"data": b"abcd"},
        {"data": b""},
        {"lengths": (2, 1)},
        {"lengths": (1, 1, 1)},
        {"lengths": ()},
        {"lengths": (-1, 4)},
        {"lengths": (2**64, 3)},
        {"lengths": (9,), "digest": Digest("")},
        {"digest": Digest("")},
        {"digest": Digest("0" * 64)},
    ],
)
def test_an_unsound_one(changes: dict[str, object]) -> None:
    assert not is_sound(msgspec.structs.replace(SOUND, **changes))


def test_reasons_are_words() -> None:
    assert choose_source(KEYS, [], own_ids=frozenset()) == NoChoice("no_candidate")
