"""The export form of rows: exact for every value that SQLite holds, and one line a row."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clew.formats.rows import (
    BadText,
    NoRow,
    Value,
    changed_columns,
    database_of,
    decode_row,
    decode_rows,
    encode_row,
    encode_value,
    name_rows,
    own_lines,
    session_of,
)

JSON_TEXTS = st.sampled_from(
    [
        "{}",
        "[]",
        '{"a":1}',
        '{ "a" : [1.0e2, "\\u00e9"] }',
        '{"a":1',
        "[1,]",
        '{"a":\n1}',
        '{"a":1} ',
        '{"a":"\\ud800"}',
    ]
)
VALUES: st.SearchStrategy[Value] = st.one_of(
    st.none(),
    st.integers(-(1 << 63), (1 << 63) - 1),
    st.floats(allow_nan=False),
    st.text(),
    JSON_TEXTS,
    st.binary(),
    st.binary(min_size=1).map(lambda data: BadText(b"\xff" + data)),
)


@given(st.dictionaries(st.text(max_size=5), VALUES, max_size=5), st.text(max_size=8), st.booleans())
def test_any_row_comes_back_exactly(row: dict[str, Value], table: str, shared: bool) -> None:
    line = encode_row(table, list(row), list(row.values()), shared=shared)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    found = decode_row(line)
    assert (found.table, found.shared, list(found.values)) == (table, shared, list(row))
    assert changed_columns(row, found.values) == {}
    assert encode_row(table, list(row), list(found.values.values()), shared=shared) == line


def test_each_sort_of_value_has_its_own_form() -> None:
    assert encode_value(None) == b"null"
    assert encode_value(1) == b"1"
    assert encode_value(1.0) == b"1.0"
    assert encode_value("a") == b'"a"'
    assert encode_value('{ "a": 1 }') == b'{"json":{ "a": 1 }}'
    assert encode_value('{"a":\n1}') == b'"{\\"a\\":\\n1}"'
    assert encode_value(b"\x00") == b'{"blob":"AA=="}'
    assert encode_value(BadText(b"\xff")) == b'{"text":"/w=="}'
    assert encode_value(float("-inf")) == b'{"real":"-inf"}'


def test_one_and_one_point_nought_are_two_values() -> None:
    assert changed_columns({"a": 1}, {"a": 1.0}) == {"a": 1.0}
    assert changed_columns({"a": 1}, {"a": 1}) == {}


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{}",
        b"[]\n",
        b'{"table":"a","row":[]}',
        b'{"table":"a","row":{"x":[1]}}',
        b'{"table":"a","row":{"x":{"blob":"!"}}}',
        b'{"table":"a","row":{"x":99999999999999999999}}',
    ],
)
def test_what_is_no_row_is_refused(line: bytes) -> None:
    with pytest.raises(NoRow):
        decode_row(line)


def test_rows_that_are_shared_do_not_count() -> None:
    shared = encode_row("project", ["id"], ["p"], shared=True)
    own = encode_row("session", ["id"], ["s"])
    assert own_lines(shared + own) == own
    assert [row.table for row in decode_rows(shared + b"\n" + own)] == ["project", "session"]


@pytest.mark.parametrize("id_", ["ses_1", "a/../b", "x y", "é", "🧵", "a#b", "%00002f", ""])
def test_a_path_names_database_and_session(id_: str) -> None:
    path = name_rows("opencode.db", id_)
    assert database_of(path) == "opencode.db"
    assert session_of(path) == id_
    assert "/" not in path
    assert path.isascii()


def test_a_line_is_json_for_everybody() -> None:
    line = encode_row("part", ["id", "data"], ["prt_1", '{"type":"text","text":"x"}'])
    assert json.loads(line) == {
        "table": "part",
        "row": {"id": "prt_1", "data": {"json": {"type": "text", "text": "x"}}},
    }


def test_a_column_that_speaks_of_sharing_is_the_sessions_own() -> None:
    mine = encode_row("messages", ("id", "content"), (1, '{"shared":true}'))
    theirs = encode_row("project", ("id",), ("p",), shared=True)
    assert own_lines(theirs + mine) == mine
