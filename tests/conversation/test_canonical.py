"""Canonical form and keys: the vectors and laws of the residue spec, sections 3 and 4."""

from __future__ import annotations

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clew.conversation.builder import make_assistant, make_call, make_result, make_user
from clew.conversation.canonical import canonical_form, ecma_number, first_key, keys_of, normal_arguments
from clew.conversation.groups import group_messages
from clew.conversation.model import Message


def form(*messages: Message) -> str:
    return canonical_form(next(iter(group_messages(messages)))).decode()


def keys(*messages: Message) -> list[str]:
    return list(keys_of(messages))


def test_vectors() -> None:
    assert first_key() == "156aa972d7b4e8da5533e0868b0f271c88c83023afd966341f2b375d6014d9d9"
    assert keys(make_user("hi"), make_assistant("hello")) == [
        "42bafe8dc33cda96687715caca62e652346afd734762751d30807a40eb47164b",
        "e963d5baba60294a5f0f4d878052bacf21980fc9f2e78f3f7322695f7bcf9094",
    ]
    b = (
        make_user("list files"),
        make_assistant(make_call("1", "shell", '{"n": 1.0, "cmd": "ls"}')),
        make_result("1", "a.txt\nb.txt"),
        make_assistant("Two files."),
    )
    assert form(*b[1:3]) == '["assistant","",[["shell",{"cmd":"ls","n":1}]],["a.txt\\nb.txt"]]'
    assert keys(*b) == [
        "8c3d64ff684d97baea4c516223e06f7f6eb83e3b668c85bc46f595a1149ce6e8",
        "3375aecd6440bed4d25de34ecbb3a7f483c434d47218a7fe445020976e2ad71c",
        "dec9ed9eb9229451cd08045a62de27af1bf6115affb2f36f75a5402088e760fc",
    ]
    c = (
        make_user("日本 🚀"),
        make_assistant(make_call("x", "a"), make_call("y", "apply_patch", "*** Begin Patch")),
        make_result("y", "rb"),
        make_result("x", "ra"),
    )
    assert keys(*c) == [
        "284eb5195beb78727ad72da4315cb0feac17a746a6564fce3723caf319744ec1",
        "ba2df038b9425c7e1ee626bdb0147b24a194089825897cf886aa398c87b9a1c6",
    ]


def test_argument_vector() -> None:
    got = normal_arguments('{"b":[1e2,true,null],"a":12345678901234567890,"é":"\\u00e9\\u0007"}')
    assert bytes(got).decode() == '{"a":12345678901234567890,"b":[100,true,null],"é":"é\\u0007"}'  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("", "{}"),
        (" \n", "{}"),
        ('{"a":1,"a":2}', '{"a":2}'),
        ('{"n":-0.0,"m":-0}', '{"m":0,"n":0}'),
        ('{"n":1e16,"m":1e-7,"o":1e21}', '{"m":1e-7,"n":10000000000000000,"o":1e+21}'),
        ('{"n":9007199254740993}', '{"n":9007199254740993}'),
        ('{"b":"\\ud800","a":1}', '{"a":1,"b":"\ufffd"}'),
        ('"a"', '"a"'),
        ("  [1.50]  ", "[1.5]"),
        ('{"\uffff":1,"🚀":2}', '{"\uffff":1,"🚀":2}'),
        ('{"\ufffd":1,"\\ud800":2,"\ufffd":3}', '{"\ufffd":3}'),
        ("[" * 200 + "]" * 200, "[" * 200 + "]" * 200),
        ('["' + "[" * 900 + '\\"",[]]', '["' + "[" * 900 + '\\"",[]]'),
    ],
)
def test_normal_arguments(text: str, normal: str) -> None:
    assert bytes(normal_arguments(text)).decode() == normal  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "text",
    ["*** Begin Patch", "{'a':1}", '{"a":1}x', '{"n":NaN}', '{"n":Infinity}', '{"n":1e400}', "[" * 100_000],
)
def test_what_is_no_json_stays_text(text: str) -> None:
    assert normal_arguments(text) == text


@pytest.mark.parametrize("depth", [150, 200, 201, 400, 2000])
@pytest.mark.parametrize("inner", ["", "1.5", '"x"'])
def test_how_deep_arguments_may_be_does_not_depend_on_the_caller(depth: int, inner: str) -> None:
    text = '{"a":' * depth + (inner or "{}") + "}" * depth
    spelled = normal_arguments(text)

    def deeper(frames: int) -> object:
        return deeper(frames - 1) if frames else normal_arguments(text)

    assert deeper(300) == spelled
    assert (spelled == text) == (depth > (199 if inner == "" else 200))


def test_integers_beyond_the_digit_limit() -> None:
    digits = "7" * 5000
    assert bytes(normal_arguments(f'{{"n":{digits}}}')).decode() == f'{{"n":{digits}}}'  # type: ignore[arg-type]


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_ecma_numbers_name_the_same_double(value: float) -> None:
    text = ecma_number(value)
    assert float(text) == value
    assert "E" not in text
    assert not text.endswith(".0")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(st.text(), json_values, max_size=5), st.randoms(use_true_random=False))
def test_any_spelling_of_one_value_is_one_form(value: dict[str, object], rng: random.Random) -> None:
    items = list(value.items())
    rng.shuffle(items)
    spellings = {
        bytes(normal_arguments(json.dumps(v, ensure_ascii=a, indent=i)))  # type: ignore[arg-type]
        for v in (value, dict(items))
        for a in (True, False)
        for i in (None, 2)
    }
    assert len(spellings) == 1
    assert spellings == {bytes(normal_arguments(next(iter(spellings)).decode()))}  # type: ignore[arg-type]


def test_results_are_sorted_by_call_and_ids_left_out() -> None:
    one = (
        make_assistant(make_call("a", "x"), make_call("b", "x")),
        make_result("a", "1"),
        make_result("b", "2"),
    )
    two = (
        make_assistant(make_call("p", "x"), make_call("q", "x")),
        make_result("q", "2"),
        make_result("p", "1"),
    )
    assert form(*one) == form(*two)
    swapped = (make_assistant(make_call("b", "y"), make_call("a", "x")), *one[1:])
    assert form(*one) != form(*swapped)
