"""The tree of records: which of them the agent would send, in which order, and what hangs beside that path.

A session file is a tree of records by `uuid` and `parentUuid`. The agent sends the path from one leaf to the root,
cut at the last compaction boundary, with the results of parallel calls joined in. The rules are those of the format
page ("Tree, branches, forks"); where a file is damaged, its islands are joined in file order and that is reported.
Nothing here decodes a message, except where parallel results must be told from another branch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

OTHER, USER, ASSISTANT, BOUNDARY = 0, 1, 2, 3


class Node(msgspec.Struct, gc=False):
    """One record with a place in the tree. `parent` is the position of its parent node, -1 for none.

    `session` is the number of the session id it carries (-1: none); `flags` are the reader's own. `reply` is the
    reply id of an assistant record, and of a boundary the uuid of what came before it. `content` is what it says,
    undecoded; of a boundary what it tells of itself. `wanted` is the parent's uuid while it is not resolved; `side`
    tells that a helper said it, inline.
    """

    record: int
    line: int
    kind: int
    uuid: str
    session: int
    flags: int
    time: Any
    reply: str
    model: Any
    content: msgspec.Raw
    mark: msgspec.Raw | None
    parent: int = -1
    wanted: str | None = None
    side: bool = False
    broken: bool = False
    foreign: bool = False


class Break(msgspec.Struct, frozen=True, gc=False):
    """A node whose parent is not in the file, and what it was joined to (-1: nothing)."""

    node: int
    joined: int


class Twig(msgspec.Struct, frozen=True):
    """A row of nodes beside the path, in order; it hangs on node `at` (-1: on nothing)."""

    at: int
    nodes: tuple[int, ...]
    side: bool


class Tree(msgspec.Struct):
    """The nodes of one file, linked.

    `context` are the nodes whose messages a resume sends, in order; `history` those from the very first on, with the
    positions in it at which a compaction boundary stands; `twigs` everything that was said beside it.
    """

    nodes: list[Node]
    by_uuid: dict[str, int]
    leaf: int = -1
    context: list[int] = []
    history: list[int] = []
    cuts: list[int] = []
    twigs: list[Twig] = []
    breaks: list[Break] = []


AnswersOf = Callable[[int], tuple[str, ...] | None]
"""Gives the ids of the calls that a user node answers; None where the node says anything else as well."""

PreservedOf = Callable[[int], tuple[str, tuple[str, ...], str, str]]
"""Gives for a boundary node: the anchor's uuid, the preserved uuids, head and tail of a preserved segment."""


def link_nodes(nodes: list[Node], by_uuid: dict[str, int], own: int) -> list[Break]:
    """Resolves every parent, tells foreign records, joins broken links in file order; returns the broken ones.

    `own` is the number of the session's own id (-1: none is known).
    """
    for number, node in enumerate(nodes):
        if node.parent < 0 and node.wanted is not None:
            node.parent = by_uuid.get(node.wanted, -1)
            node.broken = node.parent < 0 or node.parent == number
            if node.broken:
                node.parent = -1
    _find_foreign(nodes, by_uuid, own)
    breaks: list[Break] = []
    previous = {False: -1, True: -1}
    for number, node in enumerate(nodes):
        if node.foreign:
            continue
        if node.broken:
            node.parent = previous[node.side]
            breaks.append(Break(number, node.parent))
        previous[node.side] = number
    return breaks


def _find_foreign(nodes: list[Node], by_uuid: dict[str, int], own: int) -> None:
    """Marks the records of other sessions: those in no way linked to a record that is the session's own.

    A copied history may carry the id of the session it was copied from; it is linked, so it is no stranger.
    """
    if own < 0 or all(node.session in (own, -1) for node in nodes):
        return
    group = list(range(len(nodes)))

    def find(at: int) -> int:
        while group[at] != at:
            group[at] = group[group[at]]
            at = group[at]
        return at

    for number, node in enumerate(nodes):
        for other in (node.parent, by_uuid.get(node.reply, -1) if node.kind == BOUNDARY else -1):
            if other >= 0:
                group[find(number)] = find(other)
    ours = {find(number) for number, node in enumerate(nodes) if node.session == own}
    for number, node in enumerate(nodes):
        node.foreign = node.session not in (own, -1) and find(number) not in ours


def choose_leaf(nodes: list[Node], named: int) -> int:
    """Returns the leaf whose path is sent; `named` is the node that the last `last-prompt` names, -1 for none.

    It is the last user or assistant record of the file if that descends from the named one (or none is named), else
    exactly the named one, even when a newer branch stands behind it.
    """
    last = -1
    for number in range(len(nodes) - 1, -1, -1):
        node = nodes[number]
        if node.kind in (USER, ASSISTANT) and not node.side and not node.foreign:
            last = number
            break
    if named < 0 or nodes[named].side or nodes[named].foreign:
        return last
    at, steps = last, len(nodes)
    while at >= 0 and steps >= 0:
        if at == named:
            return last
        at, steps = nodes[at].parent, steps - 1
    return named


def walk_up(nodes: list[Node], start: int) -> dict[int, None]:
    """Returns the nodes from `start` to the root, that order; a loop ends where it closes."""
    path: dict[int, None] = {}
    while start >= 0 and start not in path:
        path[start] = None
        start = nodes[start].parent
    return path


def grow_tree(tree: Tree, named: int, answers_of: AnswersOf, preserved_of: PreservedOf) -> None:
    """Fills in leaf, context, history, cuts and twigs of linked nodes."""
    nodes = tree.nodes
    tree.leaf = choose_leaf(nodes, named)
    path = _history_path(tree)
    taken = set(path)
    off = [n for n, node in enumerate(nodes) if n not in taken and not node.foreign]
    if off:
        path = _join_results(nodes, path, off, answers_of)
        taken = set(path)
    tree.history = path
    tree.cuts = [at for at, number in enumerate(path) if nodes[number].kind == BOUNDARY]
    tree.context = _context(tree, preserved_of)
    tree.twigs = _twigs(nodes, taken, [n for n in off if n not in taken])


def _history_path(tree: Tree) -> list[int]:
    """Returns the path from the first record to the leaf, through compaction boundaries."""
    nodes, path, seen = tree.nodes, list[int](), set[int]()
    at, before = tree.leaf, list[int]()
    while at >= 0 and at not in seen:
        seen.add(at)
        path.append(at)
        node = nodes[at]
        if node.kind != BOUNDARY:
            at = node.parent
            continue
        named = tree.by_uuid.get(node.reply, -1) if node.reply else node.parent
        if named < 0:  # a boundary that does not tell what came before it: what stands before it in the file
            before = before or _conversation_before(nodes)
            named = before[at]
        at = named
    path.reverse()
    return path


def _conversation_before(nodes: list[Node]) -> list[int]:
    """Returns for each node the last one before it in the file that says something, -1 for none."""
    found: list[int] = []
    last = -1
    for number, node in enumerate(nodes):
        found.append(last)
        if node.kind in (USER, ASSISTANT) and not node.side and not node.foreign:
            last = number
    return found


def _join_results(nodes: list[Node], path: list[int], off: Iterable[int], answers_of: AnswersOf) -> list[int]:
    """Returns the path with what belongs to its messages but hangs beside it: parallel calls and their results."""
    children: dict[int, list[int]] = {}
    for number in off:
        if nodes[number].parent >= 0:
            children.setdefault(nodes[number].parent, []).append(number)
    if not children:
        return path
    joined: list[int] = []
    answered: set[str] = set()
    reply, upto = "", -1
    for place, number in enumerate(path):
        node = nodes[number]
        joined.append(number)
        if node.kind == ASSISTANT:
            reply = node.reply
        if number in children:
            if place > upto:
                answered, upto = _answered_behind(nodes, path, place, reply, answers_of)
            _join_below(nodes, children, number, reply, answers_of, answered, joined)
    return joined


def _answered_behind(
    nodes: list[Node], path: list[int], place: int, reply: str, answers_of: AnswersOf
) -> tuple[set[str], int]:
    """Returns the calls that the path itself answers from `place` to where its message ends, and that place."""
    answered: set[str] = set()
    for at in range(place + 1, len(path)):
        node = nodes[path[at]]
        ids = answers_of(path[at]) if node.kind == USER else ()
        if ids is None or (node.kind == ASSISTANT and node.reply != reply) or node.kind == BOUNDARY:
            return answered, at - 1
        answered.update(ids)
    return answered, len(path)


def _join_below(
    nodes: list[Node],
    children: dict[int, list[int]],
    start: int,
    reply: str,
    answers_of: AnswersOf,
    answered: set[str],
    joined: list[int],
) -> None:
    waiting = list(reversed(children[start]))
    while waiting:
        number = waiting.pop()
        node = nodes[number]
        if node.kind == ASSISTANT:
            if not reply or node.reply != reply:
                continue
            joined.append(number)
        elif node.kind == USER:
            ids = answers_of(number)
            if not ids or answered.issuperset(ids):
                continue
            answered.update(ids)
            joined.append(number)
        elif node.kind == BOUNDARY:
            continue
        waiting.extend(reversed(children.get(number, ())))


def _context(tree: Tree, preserved_of: PreservedOf) -> list[int]:
    """Returns what follows the last boundary, with the records that the boundary kept from before it."""
    if not tree.cuts:
        return tree.history
    cut = tree.cuts[-1]
    after = tree.history[cut + 1 :]
    kept = _preserved(tree, tree.history[cut], set(after), preserved_of)
    if not kept[1]:
        return after
    anchor, numbers = kept
    place = after.index(anchor) + 1 if anchor in after else min(1, len(after))
    return after[:place] + numbers + after[place:]


def _preserved(tree: Tree, boundary: int, after: set[int], preserved_of: PreservedOf) -> tuple[int, list[int]]:
    anchor, uuids, head, tail = preserved_of(boundary)
    by_uuid, nodes = tree.by_uuid, tree.nodes
    numbers = [by_uuid[u] for u in uuids if u in by_uuid]
    if not numbers and head in by_uuid and tail in by_uuid:
        row = list(walk_up(nodes, by_uuid[tail]))
        if by_uuid[head] in row:
            numbers = list(reversed(row[: row.index(by_uuid[head]) + 1]))
    kept = [n for n in dict.fromkeys(numbers) if n not in after and not nodes[n].side and not nodes[n].foreign]
    return by_uuid.get(anchor, -1), kept


def _twigs(nodes: list[Node], taken: set[int], off: list[int]) -> list[Twig]:
    """Cuts everything beside the path into rows, newest leaf first, so that every node is in exactly one."""
    inner = {nodes[n].parent for n in off}
    hangs: dict[int, int] = {}
    twigs: list[Twig] = []
    for leaf in sorted((n for n in off if n not in inner), reverse=True) + sorted(off, reverse=True):
        row: dict[int, None] = {}
        at = leaf
        while at >= 0 and at not in taken and at not in hangs and at not in row and not nodes[at].foreign:
            row[at] = None
            at = nodes[at].parent
        if row:
            root = at if at in taken else hangs.get(at, -1)
            hangs.update(dict.fromkeys(row, root))
            order = tuple(reversed(row))
            twigs.append(Twig(root, order, nodes[order[0]].side))
    twigs.sort(key=lambda twig: twig.nodes[0])
    return twigs
