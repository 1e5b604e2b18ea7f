"""Rows: their stored form and what a reader has not seen."""

from __future__ import annotations

import json

import pytest

from clew.journal.rows import (
    Checkpoint,
    Cursor,
    Dispatch,
    Epoch,
    Item,
    Lifecycle,
    Malformed,
    Newer,
    Row,
    Submission,
    is_plain_text,
    load_row,
    rows_after,
    store_row,
    text_fingerprint,
)
from journal_cases import NOW, item, journal, said, sent

BODIES = (
    Epoch("created"),
    Submission("c1", "f", b"nul \x00 and \xff", plain_text=True),
    Dispatch("c1", "unknown", "host_restarted", recovered=True),
    Dispatch("c1", "accepted", None, False, "key", "receipt"),
    Item("key", b"\x00", "c1", "f"),
    Lifecycle("exited", "by\x00itself"),
    Checkpoint(None),
    Checkpoint("key"),
)


@pytest.mark.parametrize("body", BODIES)
def test_a_row_comes_back(body: object) -> None:
    row = Row(3, 7, NOW, 2, body)  # type: ignore[arg-type]
    data = store_row(row)
    assert load_row(data) == row
    assert store_row(load_row(data)) == data
    assert json.loads(data)["schema"] == 1


@pytest.mark.parametrize(
    "change",
    [
        {"sequence": 0},
        {"epoch": 0},
        {"fence": -1},
        {"sequence": "7"},
        {"time": None},
        {"schema": 0},
        {"body": {"kind": "weather"}},
        {"body": {"kind": "epoch"}},
    ],
)
def test_a_malformed_row(change: dict[str, object]) -> None:
    told = json.loads(store_row(Row(3, 7, NOW, 2, Epoch("x"))))
    with pytest.raises(Malformed) as raised:
        load_row(json.dumps({**told, **change}).encode())
    assert not isinstance(raised.value, Newer)


def test_a_newer_row_says_its_schema_whatever_else_it_is() -> None:
    with pytest.raises(Newer) as raised:
        load_row(b'{"schema":3,"moon":"full"}')
    assert raised.value.schema == 3


@pytest.mark.parametrize("data", [b"", b"[]", b"\xff", b'{"schema":"1"}'])
def test_bytes_that_are_no_row(data: bytes) -> None:
    with pytest.raises(Malformed):
        load_row(data)


def test_a_row_knows_its_kind() -> None:
    assert [row.kind for row in journal(said("c1"), sent("c1"), item("k"))] == [
        "epoch",
        "submission",
        "dispatch",
        "item",
    ]


def test_a_cursor_of_another_epoch_means_reload() -> None:
    rows = journal(said("c1"), sent("c1"), epoch=2)
    assert rows_after(rows, None) == rows
    assert rows_after(rows, Cursor(2, 1)) == rows[1:]
    assert rows_after(rows, Cursor(2, 3)) == ()
    assert rows_after(rows, Cursor(1, 3)) is None
    assert rows_after(rows, Cursor(2, 9)) is None
    assert rows_after((), Cursor(1, 1)) == ()


def test_what_is_plain_text() -> None:
    assert is_plain_text(["hi"])
    for blocks in ([], [" \n"], [None], ["a", "b"], ["a", None]):
        assert not is_plain_text(blocks)
    assert text_fingerprint("a") != text_fingerprint("a ")
