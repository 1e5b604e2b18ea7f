"""The tree of entries: which of them pi would send, in which order, and what hangs beside that path.

Rules of pi 1.6.0: the last line is the leaf; the path from it to the root is the conversation; of entries with one id
the last counts; the last compaction on the path stands for everything before the entry that it kept first. Where an
entry names a parent that is not in the file (pi would silently begin there), it is joined to the line before it, and
that is reported.
"""

from __future__ import annotations

from typing import Any

import msgspec

from clew.formats.pi import records as rec


class Twig(msgspec.Struct, frozen=True):
    """A row of entries beside the path, in order; it hangs on entry `at` (-1: on nothing)."""

    at: int
    entries: tuple[int, ...]


class Tree(msgspec.Struct):
    """The entries of one file, linked: parents by position, the path to the leaf, what a resume sends, the rest."""

    entries: list[rec.Entry]
    parents: list[int]
    broken: list[int] = []
    repeated: list[int] = []
    path: list[int] = []
    cuts: list[int] = []
    context: list[int] = []
    twigs: list[Twig] = []


def grow_tree(entries: list[rec.Entry], layout: int) -> Tree:
    """Returns the tree of entries in file order; `layout` is the version that the header names."""
    by_id = {entry.id: at for at, entry in enumerate(entries) if isinstance(entry.id, str)} if layout >= 2 else {}
    tree = Tree(entries, _parents(entries, by_id, layout))
    if layout >= 2:
        tree.broken = [at for at, entry in enumerate(entries) if at and _is_broken(entry, by_id)]
        tree.repeated = [at for at, e in enumerate(entries) if isinstance(e.id, str) and by_id[e.id] != at]
    tree.path = _walk_up(tree.parents, len(entries) - 1)
    tree.cuts = [place for place, at in enumerate(tree.path) if entries[at].type == "compaction"]
    tree.context = _context(tree, layout)
    taken = set(tree.path).union(tree.repeated)
    off = [at for at in range(len(entries)) if at not in taken] if len(taken) < len(entries) else []
    tree.twigs = _twigs(tree.parents, set(tree.path), off)
    return tree


def _parents(entries: list[rec.Entry], by_id: dict[str, int], layout: int) -> list[int]:
    if layout < 2:
        return list(range(-1, len(entries) - 1))
    parents: list[int] = []
    for at, entry in enumerate(entries):
        named = entry.parent_id
        if named is None:
            parents.append(-1)
        else:
            found = by_id.get(named, -1) if isinstance(named, str) else -1
            parents.append(at - 1 if found < 0 or found == at else found)
    return parents


def _is_broken(entry: rec.Entry, by_id: dict[str, int]) -> bool:
    named: Any = entry.parent_id
    return named is not None and (not isinstance(named, str) or named not in by_id or named == entry.id)


def _walk_up(parents: list[int], start: int) -> list[int]:
    """Returns the entries from the root to `start`; a loop ends where it closes."""
    seen: dict[int, None] = {}
    while start >= 0 and start not in seen:
        seen[start] = None
        start = parents[start]
    path = list(seen)
    path.reverse()
    return path


def _context(tree: Tree, layout: int) -> list[int]:
    """Returns the entries that a resume sends: the last compaction, what it kept, what came behind it."""
    if not tree.cuts:
        return tree.path
    cut = tree.cuts[-1]
    entry = tree.entries[tree.path[cut]]
    first = len(tree.path)
    if layout < 2 and isinstance(entry.first_kept_entry_index, int):
        first = max(entry.first_kept_entry_index - 1, 0)  # it counts the header
    elif isinstance(entry.first_kept_entry_id, str):
        kept = entry.first_kept_entry_id
        first = next((place for place, at in enumerate(tree.path[:cut]) if tree.entries[at].id == kept), first)
    return [tree.path[cut], *tree.path[first:cut], *tree.path[cut + 1 :]]


def _twigs(parents: list[int], taken: set[int], off: list[int]) -> list[Twig]:
    """Cuts everything beside the path into rows, newest leaf first, so that every entry is in exactly one."""
    inner = {parents[at] for at in off}
    wanted = set(off)
    hangs: dict[int, int] = {}
    twigs: list[Twig] = []
    for leaf in sorted((at for at in off if at not in inner), reverse=True) + sorted(off, reverse=True):
        row: dict[int, None] = {}
        at = leaf
        while at in wanted and at not in hangs and at not in row:
            row[at] = None
            at = parents[at]
        if row:
            root = at if at in taken else hangs.get(at, -1)
            hangs.update(dict.fromkeys(row, root))
            twigs.append(Twig(root, tuple(reversed(row))))
    twigs.sort(key=lambda twig: twig.entries[0])
    return twigs
