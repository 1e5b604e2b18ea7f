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
    """Returns where the last group of a reading begins, or None where what follows could not be read alone.

    The last group must stand at the file's end in every respect: all of the path before it lies before it in the
    file, and nothing that hangs beside the path lies behind its beginning.
    """
    heads = head_positions(session.messages)
    record = session.created_by[heads[-1]] if heads else None
    if record is None or not session.records:
        return None
    row = [n for n in tree.history if tree.nodes[n].record >= record]
    place = len(tree.history) - len(row)
    if tree.history[place:] != row or any(tree.nodes[n].record >= record for n in tree.history[:place]):
        return None
    behind = {n for n, node in enumerate(tree.nodes) if node.record >= record}
    if behind - set(row) - _followers(tree, row) or any(not tree.nodes[n].uuid for n in row):
        return None
    if any(at >= place for at in tree.cuts) or not row:
        return None
    before = tree.nodes[tree.history[place - 1]] if place else None
    offset = session.records.place(record)[1]
    earlier = since.records - 1 if since is not None and since.offset else 0
    old = read_state(since.state) if since is not None else None
    state = State(
        hint=hint,
        own=own,
        before=before.uuid if before is not None else (old.before if old else ""),
        reply=_reply_before(tree, place) or (old.reply if old else ""),
        leaf=tree.nodes[tree.leaf].uuid,
        cwd=session.cwd,
        title=session.title,
        model=session.model,
        version=session.version,
        entrypoint=scan.entrypoint or (old.entrypoint if old else ""),
        branch=scan.branch or (old.branch if old else ""),
        foreign=session.foreign,
        created_ms=session.created_ms,
        asked=bool(session.provider),
        helper=session.helper,
        has_prompts=scan.has_prompts or bool(old and old.has_prompts),
    )
    return Ending(
        path=stream.path,
        offset=offset,
        digest=digest_bytes(_pieces(stream, offset)),
        records=record + earlier,
        messages=heads[-1] + (since.messages if since is not None else 0),
        groups=len(heads) - 1 + (since.groups if since is not None else 0),
        state=msgspec.json.encode(state),
    )


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
