"""Where a reading of a session can be taken up again, and what must be known there."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from clew.conversation.groups import head_positions
from clew.conversation.source import Ending, Session, Stream, digest_bytes
from clew.formats.claude.scan import Scan
from clew.formats.claude.tree import ASSISTANT, USER, Tree

_PIECE = 16 << 20


class State(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a reading that goes on must know of what lies before.

    `before` is the uuid of the record before the last group, `reply` the reply id there; `leaf` is the last record
    of the whole reading; `has_prompts` tells whether `last-prompt` records are kept. The rest is the session's.
    """

    hint: str = ""
    own: str = ""
    before: str = ""
    reply: str = ""
    leaf: str = ""
    cwd: str = ""
    title: str = ""
    title_rank: int = 0
    model: str = ""
    version: str = ""
    entrypoint: str = ""
    branch: str = ""
    foreign: str = ""
    created_ms: int | None = None
    asked: bool = False
    helper: bool = False
    has_prompts: bool = False


_DECODE = msgspec.json.Decoder(State).decode


def read_state(data: bytes) -> State | None:
    """Returns the state inside an ending, or None where it is none."""
    try:
        return _DECODE(data)
    except msgspec.DecodeError:
        return None


def make_ending(
    tree: Tree, scan: Scan, stream: Stream, session: Session, own: str, hint: str, since: Ending | None
) -> Ending | None:
    """Returns where the last group of a reading begins, or None where what follows could not be read alone."""
    heads = head_positions(session.messages)
    record = session.created_by[heads[-1]] if heads else None
    place = _last_row(tree, record) if record is not None else -1
    if record is None or place < 0:
        return None
    old = (read_state(since.state) if since is not None else None) or State()
    state = State(
        hint=hint,
        own=own,
        before=tree.nodes[tree.history[place - 1]].uuid if place else old.before,
        reply=_reply_before(tree, place) or old.reply,
        leaf=tree.nodes[tree.leaf].uuid,
        cwd=session.cwd,
        title=session.title,
        title_rank=max(scan.title_rank, old.title_rank),
        model=session.model,
        version=session.version,
        entrypoint=scan.entrypoint or old.entrypoint,
        branch=scan.branch or old.branch,
        foreign=session.foreign,
        created_ms=session.created_ms,
        asked=bool(session.provider),
        helper=session.helper,
        has_prompts=scan.has_prompts or old.has_prompts,
    )
    offset = session.records.place(record)[1]
    return Ending(
        path=stream.path,
        offset=offset,
        digest=digest_bytes(_pieces(stream, offset)),
        records=record + (since.records - 1 if since is not None and since.offset else 0),
        messages=heads[-1] + (since.messages if since is not None else 0),
        groups=len(heads) - 1 + (since.groups if since is not None else 0),
        state=msgspec.json.encode(state),
    )


def _last_row(tree: Tree, record: int) -> int:
    """Returns where in the history the last group begins, the one that `record` opens; -1 where it does not stand
    alone.

    It must stand at the file's end in every respect: all of the path before it lies before it in the file, and
    nothing that hangs beside the path lies behind its beginning.
    """
    nodes, history = tree.nodes, tree.history
    row = [n for n in history if nodes[n].record >= record]
    place = len(history) - len(row)
    if not row or history[place:] != row or any(at >= place for at in tree.cuts):
        return -1
    behind = {n for n, node in enumerate(nodes) if node.record >= record}
    if behind - set(row) - _followers(tree, row) or any(not nodes[n].uuid for n in row):
        return -1
    return place


def _followers(tree: Tree, row: list[int]) -> set[int]:
    """Returns nodes of bookkeeping that hang below the row: they say nothing and move nothing."""
    known = set(row)
    found: set[int] = set()
    for number, node in enumerate(tree.nodes):
        silent = node.kind not in (USER, ASSISTANT) and not node.foreign and not node.side
        if silent and number not in known and (node.parent in known or node.parent in found):
            found.add(number)
    return found


def _reply_before(tree: Tree, place: int) -> str:
    for number in reversed(tree.history[:place]):
        if tree.nodes[number].kind == ASSISTANT:
            return tree.nodes[number].reply
    return ""


def _pieces(stream: Stream, end: int) -> Iterator[memoryview]:
    view = memoryview(stream.data)
    for start in range(0, end, _PIECE):
        yield view[start : min(start + _PIECE, end)]
        if stream.release is not None:
            stream.release()
