"""Journals that the tests share: built row by row, at one time and one fence."""

from __future__ import annotations

from clew.journal.rows import Body, Cursor, Dispatch, Item, Row, Submission, begin, next_rows, text_fingerprint
from clew.journal.rows import store_row as store_row
from clew.journal.submissions import Standing, fold, known_items

NOW = 1_700_000_000_000


def said(client_id: str, text: str = "hello") -> Submission:
    return Submission(client_id, text_fingerprint(text), text.encode(), plain_text=bool(text.strip()))


def item(key: str, text: str = "hello", client_id: str | None = None) -> Item:
    return Item(key, text.encode(), client_id, text_fingerprint(text))


def sent(client_id: str) -> Dispatch:
    return Dispatch(client_id, "pending")


def journal(*bodies: Body, epoch: int = 1) -> tuple[Row, ...]:
    first = begin(epoch, "created", NOW, 1)
    return (first, *next_rows(first.cursor, bodies, NOW, 1))


def more(rows: tuple[Row, ...], *bodies: Body) -> tuple[Row, ...]:
    last: Cursor = rows[-1].cursor
    return (*rows, *next_rows(last, bodies, NOW, 1))


def stored(rows: tuple[Row, ...]) -> list[bytes]:
    return [store_row(row) for row in rows]


def states(rows: tuple[Row, ...]) -> dict[str, tuple[str, str | None]]:
    return {s.client_id: (s.state, s.reason) for s in fold(rows)}


def folded(rows: tuple[Row, ...]) -> tuple[tuple[Standing, ...], frozenset[str]]:
    return fold(rows), known_items(rows)
