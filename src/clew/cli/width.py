"""Widths of text in terminal cells: measuring, cutting, padding and wrapping.

Promises right answers for wide (CJK, emoji) and combining characters. ASCII is measured without loading any table,
so that a list of ten thousand sessions costs milliseconds; the table is rich's, loaded when first needed.
Expects text that went through `safe.make_safe`: it knows nothing of control sequences.
"""

from __future__ import annotations

import re

_WORD = re.compile(r"\S+\s*")


def width_of(text: str) -> int:
    """Returns how many terminal cells one line of text takes."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def cut(text: str, width: int, ellipsis: str = "…") -> str:
    """Returns `text` in at most `width` cells, with an ellipsis where something was left out."""
    if width_of(text) <= width:
        return text
    if width <= width_of(ellipsis):
        return ellipsis[:width]
    room = width - width_of(ellipsis)
    if text.isascii():
        return text[:room].rstrip() + ellipsis
    from rich.cells import set_cell_size

    return set_cell_size(text, room).rstrip() + ellipsis


def pad(text: str, width: int, *, right: bool = False) -> str:
    """Returns `text` filled with blanks to `width` cells; with `right` it stands at the right edge."""
    blanks = " " * (width - width_of(text))
    return blanks + text if right else text + blanks


def wrap(text: str, width: int) -> list[str]:
    """Returns one line of text as lines of at most `width` cells, broken at blanks, its indent repeated.

    A word that does not fit stays whole (an address must be copied whole), unless it has wide characters: such
    scripts have no blanks. `width` of 0 means no limit.
    """
    if width <= 0 or width_of(text) <= width:
        return [text]
    indent = text[: len(text) - len(text.lstrip(" "))][: width // 2]
    lines: list[str] = []
    line, used = indent, len(indent)
    for word in _words(text.lstrip(" "), width - len(indent)):
        size = width_of(word.rstrip())
        if used + size > width and line.strip():
            lines.append(line.rstrip())
            line, used = indent, len(indent)
        line += word
        used += width_of(word)
    lines.append(line.rstrip())
    return lines


def _words(text: str, width: int) -> list[str]:
    words: list[str] = []
    for word in _WORD.findall(text):
        if not word.isascii() and width_of(word.rstrip()) > len(word.rstrip()) and width_of(word.rstrip()) > width:
            from rich.cells import chop_cells

            words.extend(chop_cells(word, max(width, 2)))
        else:
            words.append(word)
    return words
