"""The list of sessions as lines: headings, columns that drop out by width, or columns separated by tabs.

Rows are formatted here and not by a table widget: ten thousand of them take milliseconds. Columns leave in a fixed
order (folder where all are equal, messages, the words of the state, folder, agent's and time's blanks); title and
id stay. Pure: rows, look, moment and zone in, lines out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, tzinfo
from typing import Final

import msgspec

from clew.cli import dates, words
from clew.cli.style import Look
from clew.cli.width import cut, pad, width_of, wrap
from clew.verbs.ls import Listed

MIN_TITLE: Final = 24
_MAX_FOLDER: Final = 20


class Cells(msgspec.Struct, frozen=True):
    """One session as safe texts, not painted; `sign` and `state` are the sign alone and with its words."""

    heading: str
    time: str
    agent: str
    title: str
    sign: str
    state: str
    role: words.Role
    messages: str
    folder: str
    id: str


class Columns(msgspec.Struct, frozen=True):
    """Widths in cells of one list; 0 where a column is left out. `words` tells whether states show their words."""

    time: int
    agent: int
    title: int
    state: int
    messages: int
    folder: int
    id: int
    words: bool
    gap: int


def tab_line(row: Listed, look: Look) -> str:
    """Returns a session as columns separated by tabs, nothing cut: time, agent, id, state, messages, folder, title."""
    title = f"cannot be read: {row.detail}" if row.state == "unreadable" and not row.title else row.title
    texts = (row.updated or row.created, row.agent, row.id, row.state, str(row.messages), row.cwd, title)
    return "\t".join(look.safe(text, line=True) for text in texts)


def list_lines(
    rows: Sequence[Listed], look: Look, now: datetime, zone: tzinfo | None = None, *, verbose: bool = False
) -> Iterator[str]:
    """Yields headings and rows, cut to the width of `look`; below one that cannot be read stands why.

    With `verbose` the long words of every state stand below their rows.
    """
    now = now.astimezone(zone)
    folders = _folder_names(rows)
    cells = [_make_cells(row, look, now, zone, folders[row.cwd]) for row in rows]
    columns = plan_columns(cells, look.width)
    heading = ""
    for row, cell in zip(rows, cells, strict=True):
        if cell.heading != heading:
            heading = cell.heading
            yield look.paint("heading", heading)
        yield _row_line(cell, columns, look)
        if row.detail and (verbose or row.state == "unreadable"):
            for line in wrap("  " + look.safe(row.detail, line=True), look.width):
                yield look.paint("muted", line)


def plan_columns(cells: Sequence[Cells], width: int) -> Columns:
    """Returns the first plan, from everything down, that leaves the title its least width."""
    several = len({cell.folder for cell in cells}) > 1
    time, agent = _widest(cells, "time"), _widest(cells, "agent")
    state, sign = _widest(cells, "state"), _widest(cells, "sign")
    messages, identity = _widest(cells, "messages"), _widest(cells, "id")
    folder = min(_widest(cells, "folder"), _MAX_FOLDER) if several else 0
    plans = (
        Columns(time, agent, 0, state, messages, folder, identity, True, 2),
        Columns(time, agent, 0, state, 0, folder, identity, True, 2),
        Columns(time, agent, 0, sign, 0, folder, identity, False, 2),
        Columns(time, agent, 0, sign, 0, 0, identity, False, 2),
        Columns(0, agent, 0, sign, 0, 0, identity, False, 1),
        Columns(0, 0, 0, sign, 0, 0, identity, False, 1),
        Columns(0, 0, 0, 0, 0, 0, identity, False, 1),
    )
    plan = next((plan for plan in plans if _room(plan, width) >= MIN_TITLE), plans[-1])
    return msgspec.structs.replace(plan, title=max(_room(plan, width), 1))


def _room(plan: Columns, width: int) -> int:
    """Returns how many cells a plan leaves for the title."""
    taken = (plan.time, plan.agent, plan.state, plan.messages, plan.folder, plan.id)
    return width - sum(cells + plan.gap for cells in taken if cells)


def _widest(cells: Sequence[Cells], name: str) -> int:
    return max(map(width_of, {getattr(cell, name) for cell in cells}), default=0)


def _row_line(cell: Cells, columns: Columns, look: Look) -> str:
    ellipsis = "…" if look.utf8 else "~"
    parts: list[str] = []
    if columns.time:
        parts.append(look.paint("muted", pad(cell.time, columns.time, right=True)))
    if columns.agent:
        parts.append(look.paint("agent", pad(cell.agent, columns.agent)))
    parts.append(pad(cut(cell.title, columns.title, ellipsis), columns.title))
    if columns.state:
        parts.append(look.paint(cell.role, pad(cell.state if columns.words else cell.sign, columns.state)))
    if columns.messages:
        parts.append(look.paint("muted", pad(cell.messages, columns.messages, right=True)))
    if columns.folder:
        parts.append(look.paint("muted", pad(cut(cell.folder, columns.folder, ellipsis), columns.folder)))
    parts.append(cell.id)
    return (" " * columns.gap).join(parts)


def _make_cells(row: Listed, look: Look, now: datetime, zone: tzinfo | None, folder: str) -> Cells:
    moment = dates.read_time(row.updated or row.created, zone)
    word = words.word(row.state)
    sign = word.sign if look.utf8 else word.ascii
    empty = "(cannot be read)" if row.state == "unreadable" else "(no title)" if row.messages else "(nothing said)"
    title = look.safe(row.title, line=True) or empty
    return Cells(
        dates.heading(moment, now),
        dates.age(moment, now),
        look.safe(row.agent, line=True),
        title,
        sign,
        look.safe(f"{sign} {word.short}", line=True),
        word.role,
        f"{row.messages:,}",
        look.safe(folder, line=True),
        look.safe(row.short or row.id, line=True),
    )


def _folder_names(rows: Sequence[Listed]) -> dict[str, str]:
    """Gives each folder its last component, with the one before it where two would look alike."""
    names = {cwd: _components(cwd)[-1:] for cwd in {row.cwd for row in rows}}
    seen: dict[str, list[str]] = {}
    for cwd, name in names.items():
        seen.setdefault("/".join(name), []).append(cwd)
    return {
        cwd: "/".join(_components(cwd)[-2:] if len(seen["/".join(name)]) > 1 else name) for cwd, name in names.items()
    }


def _components(cwd: str) -> list[str]:
    return [part for part in cwd.replace("\\", "/").split("/") if part]
