"""The drawing of a thread as rails: which strand runs in which lane, and what stands in each cell of each row.

Pure: steps in, rows out; used by every face. Newest below. A strand keeps its lane from its first row to its last one;
a lane that is free again is taken by the next strand. A cell is one sign: a node, a rail, a corner, a crossing or a
blank; `joins` says what fills the way to the next cell.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

MAX_LANES: Final = 6
"""More lanes than these are counted, not drawn."""

_BLANK: Final = " "
_SHAPES: Final = {
    # (left end, above, below): the sign at an end of a crossing line
    (True, True, True): "├",
    (True, True, False): "╰",
    (True, False, True): "╭",
    (True, False, False): "─",
    (False, True, True): "┤",
    (False, True, False): "╯",
    (False, False, True): "╮",
    (False, False, False): "─",
}


class Step(msgspec.Struct, frozen=True):
    """One event: on which strand, with which sign, and the strand it came from. `dotted` for a fork."""

    strand: str
    sign: str
    source: str | None = None
    dotted: bool = False


class RailRow(msgspec.Struct, frozen=True):
    """One row of the drawing. `step` is the number of its event, None for a row that only connects.

    `hidden` counts the lanes that are not drawn and pass here; `node_hidden`: the event itself lies in one of them.
    """

    cells: tuple[str, ...]
    joins: tuple[str, ...]
    step: int | None = None
    hidden: int = 0
    node_hidden: bool = False


def lay_out(steps: Sequence[Step], max_lanes: int = MAX_LANES) -> tuple[RailRow, ...]:
    """Returns the rows of a drawing; one for each step, and one before it where it came from another strand."""
    return tuple(_Drawing(steps, max_lanes).rows())


class _Drawing:
    """Lanes while the rows are made."""

    def __init__(self, steps: Sequence[Step], max_lanes: int) -> None:
        self.steps, self.max = steps, max_lanes
        self.last: dict[str, int] = {}
        for number, step in enumerate(steps):
            self.last[step.strand] = number
            if step.source is not None:
                # A connector stands above its node's row: the source's rail ends there.
                self.last[step.source] = max(self.last.get(step.source, -1), number)
        self.lanes: list[str | None] = []

    def rows(self) -> list[RailRow]:
        rows: list[RailRow] = []
        for number, step in enumerate(self.steps):
            source = step.source
            if source is not None and source != step.strand and source in self.lanes:
                rows.append(self._connect(number, step, source))
            elif step.strand not in self.lanes:
                self._take_lane(step.strand)
            rows.append(self._node(number, step))
            if self.last[step.strand] == number:
                self.lanes[self.lanes.index(step.strand)] = None
        return rows

    def _take_lane(self, strand: str) -> int:
        lane = self.lanes.index(None) if None in self.lanes else len(self.lanes)
        if lane == len(self.lanes):
            self.lanes.append(strand)
        else:
            self.lanes[lane] = strand
        return lane

    def _connect(self, number: int, step: Step, source: str) -> RailRow:
        above = list(self.lanes)
        start = self.lanes.index(source)
        end = self.lanes.index(step.strand) if step.strand in self.lanes else self._take_lane(step.strand)
        if self.last[source] == number:
            self.lanes[start] = None
        left, right = min(start, end), max(start, end)
        fill = "┄" if step.dotted else "─"
        cells: list[str] = []
        for lane in range(len(self.lanes)):
            is_above = lane < len(above) and above[lane] is not None
            is_below = self.lanes[lane] is not None
            if lane in (left, right):
                cells.append(_SHAPES[lane == left, is_above, is_below])
            elif left < lane < right:
                cells.append("┼" if is_above and is_below else fill)
            else:
                cells.append("│" if is_above and is_below else _BLANK)
        joins = tuple(fill if left <= lane < right else _BLANK for lane in range(len(cells)))
        return self._cut(cells, joins)

    def _node(self, number: int, step: Step) -> RailRow:
        cells = [step.sign if strand == step.strand else _BLANK if strand is None else "│" for strand in self.lanes]
        row = self._cut(cells, tuple(_BLANK for _ in cells))
        hidden = self.lanes.index(step.strand) >= self.max
        return msgspec.structs.replace(row, step=number, node_hidden=hidden)

    def _cut(self, cells: Sequence[str], joins: tuple[str, ...]) -> RailRow:
        hidden = sum(strand is not None for strand in self.lanes[self.max :])
        return RailRow(tuple(cells[: self.max]), joins[: self.max], None, hidden)
