"""Handles: what is one, and that roots and keys cannot be forged."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clew.errors import LeaseError
from clew.lineage.handle import Handle, Namespace, load_handle, parse_key, root_of_key, store_handle
from clew.lineage.stored import Malformed

TREE = Namespace("claude-jsonl", "claude", cursor_in_key=True)
FLAT = Namespace("codex-rollout", "codex")
NAMESPACES = (
    TREE,
    FLAT,
    Namespace("acp", "grok"),
    Namespace("acp", "grok2"),
    Namespace("acp2", "grok"),
    Namespace("pi-jsonl", "pi", cursor_in_key=True),
)


def is_part(text: str) -> bool:
    return not (text[0].isspace() or text[-1].isspace() or "\ufeff" in (text[0], text[-1]))


texts = st.one_of(
    st.text(alphabet='ab#"\\/:[],\x00\n é😀nul', min_size=1, max_size=8),
    st.text(alphabet=st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20),
).filter(is_part)
handles = st.builds(Handle, st.sampled_from(NAMESPACES), texts, st.none() | texts)


def test_s33_leaves_of_one_session_have_other_keys_and_one_root() -> None:
    one, two = Handle(TREE, "S", "1"), Handle(TREE, "S", "2")
    assert one.key != two.key
    assert one.root == two.root
    assert one != two


def test_s34_without_cursor_in_key_the_key_is_the_root() -> None:
    handle = Handle(FLAT, "T", "rollout-7")
    assert handle.key == handle.root == 'codex-rollout/codex:"T"'
    assert handle != Handle(FLAT, "T2", "rollout-7")


def test_s35_no_id_forges_the_form_of_another() -> None:
    assert Handle(TREE, "a#b", "c").key != Handle(TREE, "a", "b#c").key
    assert Handle(TREE, 'a","b', None).key != Handle(TREE, "a", "b").key


def test_forms_are_fixed() -> None:
    assert Handle(TREE, 'S"é\x00\nZ', "L").key == 'claude-jsonl/claude:["S\\"é\\u0000\\nZ","L"]'
    assert Handle(TREE, "S").key == 'claude-jsonl/claude:["S",null]'
    assert Handle(TREE, "S", "L").root == 'claude-jsonl/claude:"S"'


@pytest.mark.parametrize(
    ("native_id", "cursor"),
    [
        ("", None),
        (" S", None),
        ("S\n", None),
        ("\ufeffS", None),
        ("S" * 513, None),
        ("S", ""),
        ("S", "c" * 513),
        ("S", " c"),
        ("S\ud800", None),
    ],
)
def test_s36_what_is_no_handle(native_id: str, cursor: str | None) -> None:
    with pytest.raises(LeaseError) as refused:
        Handle(TREE, native_id, cursor)
    assert refused.value.code == "handle_invalid"


def test_s36_no_cursor_is_valid_and_a_cursor_outside_the_key_may_be_long() -> None:
    assert Handle(TREE, "S").cursor is None
    assert Handle(FLAT, "S", " " + "c" * 4095).cursor is not None
    with pytest.raises(LeaseError):
        Handle(FLAT, "S", "c" * 4097)


@pytest.mark.parametrize("part", ["", "1a", "a/b", "a:b", "a" * 65, "a b", "ä"])
def test_namespace_parts(part: str) -> None:
    with pytest.raises(LeaseError):
        Namespace(part, "claude")
    with pytest.raises(LeaseError):
        Namespace("claude", part)


def test_s54_a_stored_handle_has_a_closed_field_set() -> None:
    stored = json.loads(store_handle(Handle(TREE, "S", "L")))
    stored["colour"] = "green"
    again = load_handle(json.dumps(stored).encode(), TREE)
    assert json.loads(store_handle(again)) == {
        "transport": "claude-jsonl",
        "agent": "claude",
        "native_id": "S",
        "cursor": "L",
    }


@pytest.mark.parametrize(
    "stored",
    [
        b'{"transport":"claude-jsonl","agent":"claude","native_id":"S","cursor":null,"sessionId":"S"}',
        b'{"provider":"claude","sessionId":"S","leafUuid":null}',
        b'{"transport":"claude-jsonl","agent":"claude","native_id":"S"}',
        b'{"transport":"claude-jsonl","agent":"claude","native_id":"S","cursor":""}',
        b'{"transport":"claude-jsonl","agent":"claude","native_id":7,"cursor":null}',
        b'{"transport":"claude-jsonl","agent":"codex","native_id":"S","cursor":null}',
        b"[]",
        b"\xff",
    ],
)
def test_s36_stored_shapes_that_are_no_handle(stored: bytes) -> None:
    with pytest.raises(Malformed):
        load_handle(stored, TREE)


@pytest.mark.parametrize(
    "key",
    [
        'claude-jsonl/claude:["S", null]',
        'claude-jsonl/claude:["S"]',
        'claude-jsonl/claude:"S"',
        'claude-jsonl/claude:["S",""]',
        'claude-jsonl/claude:["\\u0053",null]',
        'claude-jsonl/claude2:["S",null]',
        'claude-jsonl/claude:["S",null] ',
        "",
    ],
)
def test_only_the_one_form_is_a_key(key: str) -> None:
    assert parse_key(key, TREE) is None


@given(handles)
def test_law_a_key_parses_back(handle: Handle) -> None:
    parsed = parse_key(handle.key, handle.namespace)
    assert parsed is not None
    assert parsed.key == handle.key
    assert root_of_key(handle.key, handle.namespace) == handle.root
    assert len(handle.key) <= 8192


@given(handles)
def test_law_a_stored_handle_comes_back(handle: Handle) -> None:
    assert load_handle(store_handle(handle), handle.namespace) == handle


@given(handles, handles)
def test_law_roots_and_keys_are_injective(one: Handle, other: Handle) -> None:
    assert (one.root == other.root) == ((one.namespace, one.native_id) == (other.namespace, other.native_id))
    if one.key == other.key:
        assert one.root == other.root
    same = one.root == other.root and (one.cursor == other.cursor or not one.namespace.cursor_in_key)
    assert (one.key == other.key) == same


def test_the_longest_key_is_within_the_bound() -> None:
    longest = Handle(Namespace("a" * 64, "b" * 64, cursor_in_key=True), "\x01" * 512, "\x01" * 512)
    assert len(longest.key) <= 8192
