"""The tree of records: which of them the agent would send, in which order, and what hangs beside that path.

The last record of the file is the leaf; what is sent is the path from it to the root. Where a parent is missing the
path goes on with what stands before in the file, and that is reported. Nothing here decodes a message.
"""

from __future__ import annotations

from typing import Any

import msgspec

USER, ASSISTANT, RESULT, COMPRESSION, COMMAND, OTHER = range(6)


class Node(msgspec.Struct, gc=False):
    """One record with a place in the tree; `parent` is the position of its parent, -1 for none.

    `session` is the number of the session id it carries (-1: none). `content` is its message, or what the agent notes;
    `more` are the messages of further records with the same uuid. `wanted` is a parent that is not in the file.
    """

    record: int
    line: int
    kind: int
    uuid: str
    session: int
    subtype: str
    time: Any
    model: Any
    content: msgspec.Raw
    mark: msgspec.Raw
    parent: int = -1
    wanted: str = ""
    joined: bool = False
    more: tuple[msgspec.Raw, ...] = ()


class Twig(msgspec.Struct, frozen=True):
    """A row of nodes beside the path, in order; it hangs on node `at` (-1: on nothing)."""

    at: int
    nodes: tuple[int, ...]


def link_nodes(nodes: list[Node], own: int) -> list[int]:
    """Joins nodes whose parent is missing to what stands before them; returns those nodes."""
    broken: list[int] = []
    previous = -1
    for number, node in enumerate(nodes):
        if node.session not in (own, -1):
            continue
        if node.wanted:
            node.parent, node.joined = previous, True
            broken.append(number)
        previous = number
    return broken


def choose_leaf(nodes: list[Node], own: int) -> int:
    """Returns the last node that is the session's own, or -1."""
    for number in range(len(nodes) - 1, -1, -1):
        if nodes[number].session in (own, -1):
            return number
    return -1


def walk_up(nodes: list[Node], start: int) -> list[int]:
    """Returns the nodes from the root to `start`; a loop ends where it closes."""
    path: dict[int, None] = {}
    while start >= 0 and start not in path:
        path[start] = None
        start = nodes[start].parent
    return list(reversed(path))


def find_twigs(nodes: list[Node], path: list[int], own: int) -> list[Twig]:
    """Cuts what hangs beside the path into rows, so that every node is in exactly one."""
    taken = set(path)
    off = [n for n, node in enumerate(nodes) if n not in taken and node.session in (own, -1)]
    if not off:
        return []
    inner = {nodes[n].parent for n in off}
    hangs: dict[int, int] = {}
    twigs: list[Twig] = []
    for leaf in sorted((n for n in off if n not in inner), reverse=True) + sorted(off, reverse=True):
        row: dict[int, None] = {}
        at = leaf
        while at >= 0 and at not in taken and at not in hangs and at not in row:
            row[at] = None
            at = nodes[at].parent
        if row:
            root = at if at in taken else hangs.get(at, -1)
            hangs.update(dict.fromkeys(row, root))
            twigs.append(Twig(root, tuple(reversed(row))))
    twigs.sort(key=lambda twig: twig.nodes[0])
    return twigs
