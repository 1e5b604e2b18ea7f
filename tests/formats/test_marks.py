"""Marks: spellings that any reader takes off again, whatever the text, the name or the id was."""

from __future__ import annotations

import re

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clew.conversation.canonical import normal_arguments
from clew.formats.marks import (
    INVENTED,
    STANDIN_HEAD,
    WRAPPER,
    CallIds,
    Mark,
    Names,
    guard_text,
    is_invented,
    is_standin,
    standin_text,
    unguard_text,
    unwrap_arguments,
    wrap_arguments,
)

LEGAL = re.compile(r"[A-Za-z0-9_-]{1,64}")

lookalikes = st.builds(
    lambda slashes, head, rest: "\\" * slashes + head + rest,
    st.integers(0, 4),
    st.sampled_from(
        ["", "[clew: ", "[clew:", "[clew", INVENTED, STANDIN_HEAD, standin_text("image/png", 1), " [clew: "]
    ),
    st.text(max_size=10),
)
texts = st.text(max_size=30) | lookalikes


@given(texts)
def test_guarding_is_undone_by_unguarding(text: str) -> None:
    assert unguard_text(guard_text(text)) == text


@given(texts)
def test_a_guarded_text_is_none_of_clews_sentences(text: str) -> None:
    assert not is_invented(guard_text(text))
    assert not is_standin(guard_text(text))


@given(texts, texts)
def test_two_texts_never_share_a_guarded_form(one: str, other: str) -> None:
    assert (guard_text(one) == guard_text(other)) == (one == other)


@given(st.text(max_size=30).filter(lambda text: "[clew: " not in text))
def test_an_ordinary_text_is_not_touched(text: str) -> None:
    assert guard_text(text) == text
    assert unguard_text(text) == text


def test_clews_own_sentences_are_known() -> None:
    assert is_invented(INVENTED)
    assert is_standin(standin_text("image/png", 3))
    assert not is_invented(INVENTED + " ")
    assert not is_standin("an image stands here")
    assert guard_text(INVENTED) == "\\" + INVENTED
    assert unguard_text("\\" * 3 + INVENTED) == "\\" * 2 + INVENTED


names = (
    st.text(max_size=80)
    | st.sampled_from(["", "a b", "a_b", "a.b", "a/b", "日本", "mcp__x__y", "x" * 64, "x" * 65, "Ä" * 70])
    | st.text(st.sampled_from("ab_-. "), min_size=1, max_size=4)
)


@given(st.lists(names, max_size=20))
def test_names_become_legal_and_stay_distinct(originals: list[str]) -> None:
    table = Names()
    table.reserve(originals)
    given_names = {name: table.legal(name) for name in originals}
    assert all(LEGAL.fullmatch(legal) for legal in given_names.values())
    assert len(set(given_names.values())) == len(given_names)
    assert all(given_names[name] == name for name in originals if LEGAL.fullmatch(name))
    assert {name: table.legal(name) for name in originals} == given_names


def test_a_name_that_is_made_gives_way_to_one_that_is_there() -> None:
    made = Names().legal("a b")
    table = Names()
    table.reserve([made, "a b"])
    assert table.legal(made) == made
    assert table.legal("a b") != made


@given(st.lists(names, min_size=1, max_size=8))
def test_short_limits_hold(originals: list[str]) -> None:
    table = Names(r"[A-Za-z0-9_-]{1,30}", limit=30)
    table.reserve(originals)
    made = [table.legal(name) for name in originals]
    assert all(1 <= len(legal) <= 30 for legal in made)


ids = st.sampled_from(["", "a", "a", "call_1", "toolu_01", "x y", "ü", "z" * 70]) | st.text(max_size=70)


@given(st.lists(ids, max_size=30), st.sets(ids, max_size=5))
def test_ids_become_legal_and_unique(originals: list[str], taken: set[str]) -> None:
    table = CallIds(taken=taken)
    given_ids = [table.open_call(original) for original in originals]
    assert all(LEGAL.fullmatch(given) for given in given_ids)
    assert len(set(given_ids)) == len(given_ids)
    assert not taken & set(given_ids)
    again = CallIds(taken=taken)
    assert [again.open_call(original) for original in originals] == given_ids


def test_a_legal_id_stays_the_first_time() -> None:
    table = CallIds(prefix="toolu_")
    assert table.open_call("a") == "a"
    second = table.open_call("a")
    assert second.startswith("toolu_")
    assert table.open_call(second) != second


arguments = (
    st.text(max_size=20)
    | st.sampled_from(
        [
            "",
            " \n",
            "{}",
            '{"a": 1.0, "b": [1e2]}',
            "[1,2]",
            '"text"',
            "null",
            "12",
            '{"n":1e400}',
            '{"n":NaN}',
            '{"a":1}x',
            '{"clew_text":"x"}',
            '{"clew_text":{"clew_text":"x"}}',
            '{"clew_text":1,"z":2}',
            '{"a":0,"clew_text":"x"}',
            "*** Begin Patch",
            '{"a":"\\ud800"}',
            "[" * 5000,
        ]
    )
    | st.dictionaries(st.text(max_size=5), st.integers() | st.floats(allow_nan=False) | st.text(max_size=5)).map(
        lambda value: msgspec.json.encode(value).decode()
    )
)


def form_of(text: str) -> bytes:
    normal = normal_arguments(text)
    return bytes(normal) if isinstance(normal, msgspec.Raw) else b"text:" + normal.encode()


@given(arguments)
def test_wrapped_arguments_come_back(text: str) -> None:
    data, wrapped = wrap_arguments(text)
    value = msgspec.json.decode(data)
    assert isinstance(value, dict)
    if wrapped:
        assert unwrap_arguments(data) == text
    else:
        assert form_of(data.decode()) == form_of(text)
        assert unwrap_arguments(data) is None


def test_a_genuine_wrapper_is_wrapped_again() -> None:  # scenario 130
    text = '{"' + WRAPPER + '": "x"}'
    data, wrapped = wrap_arguments(text)
    assert wrapped
    assert unwrap_arguments(data) == text


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"clew_text":1}', b'{"clew_text":"x","y":1}', b"[" * 9000])
def test_what_is_no_wrapper_gives_nothing(data: bytes) -> None:
    assert unwrap_arguments(data) is None


def test_a_mark_says_only_what_it_must() -> None:
    assert msgspec.json.encode(Mark()) == b"{}"
    mark = Mark(from_="claude:x", name="", id="", at=0, error=False)
    data = msgspec.json.encode(mark)
    assert msgspec.json.decode(data) == {"from": "claude:x", "name": "", "id": "", "at": 0, "error": False}
    assert msgspec.json.decode(data, type=Mark) == mark
