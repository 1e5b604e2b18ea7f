"""The first pass over a session: every line once, what has a place in the tree becomes a node, the rest is noted."""

from __future__ import annotations

import re

import msgspec

from clew.conversation.loss import Damage
from clew.conversation.source import Records, Stream
from clew.formats.jsonl import JsonLines
from clew.formats.parts.values import as_text, read_mark
from clew.formats.qwen.records import NOT_IN_TREE, ODD_RECORDS, RECORDS, Record, read_fork, read_title
from clew.formats.qwen.tree import ASSISTANT, COMMAND, COMPRESSION, OTHER, RESULT, USER, Node

_KINDS = {"user": USER, "assistant": ASSISTANT, "tool_result": RESULT, "system": OTHER}
_AUTH = re.compile(rb'"auth_type"\s*:\s*"([A-Za-z0-9_-]{1,40})"')


_AROUND = b"\xef\xbb\xbf \t\r\n"


class Scan(msgspec.Struct):
    """What one pass over a file gave: nodes in file order, and what the records say of the session."""

    nodes: list[Node] = []
    by_uuid: dict[str, int] = {}
    sessions: list[str] = []
    repeated: list[tuple[int, int]] = []
    unlinked: list[tuple[int, int]] = []
    fragments: bool = False
    cwd: str = ""
    version: str = ""
    title: str = ""
    provider: str = ""
    foreign: str = ""
    forked_from: str = ""
    sided: bool = False


def scan_stream(records: Records, stream: Stream, damage: list[Damage], *, growing: bool, start: int = 0) -> Scan:
    """Cuts a stream from byte `start` on into records and returns its nodes."""
    scan = Scan()
    numbers: dict[str, int] = {}
    again: list[tuple[int, int, int, msgspec.Raw]] = []
    lines = JsonLines(records, stream, RECORDS, damage, growing=growing, start=start, slow=ODD_RECORDS)
    for number, record in lines:
        if record is None:
            continue
        uuid = as_text(record.uuid)
        kind = _KINDS.get(record.type) if isinstance(record.type, str) else None
        if not uuid or kind is None:
            if kind is not None and kind != OTHER:
                scan.unlinked.append((number, lines.line))
            continue
        _note(scan, record)
        if kind == OTHER:
            if record.subtype in NOT_IN_TREE:
                continue
            kind = _system_kind(record)
        known = scan.by_uuid.get(uuid)
        if known is not None:
            again.append((known, number, lines.line, record.message))
            continue
        session = as_text(record.session_id)
        at = numbers.setdefault(session, len(numbers)) if session else -1
        node = _make_node(record, number, lines.line, kind, at)
        parent = record.parent_uuid
        if isinstance(parent, str) and parent:
            node.parent = scan.by_uuid.get(parent, -1)
            node.wanted = parent if node.parent < 0 else ""
        elif parent is msgspec.UNSET:
            node.wanted = "(not named)"
        scan.by_uuid[uuid] = len(scan.nodes)
        scan.nodes.append(node)
    scan.sessions = list(numbers)
    for known, number, line, message in again:  # the end of a record is known when the next one has begun
        _add_fragment(scan, records, message, known, number, line)
    for node in scan.nodes:  # a parent may stand behind its child
        if node.wanted and node.wanted in scan.by_uuid:
            node.parent, node.wanted = scan.by_uuid[node.wanted], ""
    return scan


def _system_kind(record: Record) -> int:
    if record.subtype == "chat_compression":
        return COMPRESSION
    return COMMAND if record.subtype == "slash_command" else OTHER


def _make_node(record: Record, number: int, line: int, kind: int, session: int) -> Node:
    return Node(
        record=number,
        line=line,
        kind=kind,
        uuid=as_text(record.uuid),
        session=session,
        subtype=as_text(record.subtype),
        time=record.timestamp,
        model=record.model,
        content=record.payload if kind in (COMPRESSION, COMMAND) else record.message,
        mark=record.clew,
    )


def _add_fragment(scan: Scan, records: Records, message: msgspec.Raw, known: int, number: int, line: int) -> None:
    """Takes a record whose uuid is known: a further piece of that message, or the same once more."""
    node = scan.nodes[known]
    if bytes(records[node.record]).strip(_AROUND) == bytes(records[number]).strip(_AROUND):
        scan.repeated.append((number, line))
        return
    scan.fragments = True
    node.more = (*node.more, message)


def _note(scan: Scan, record: Record) -> None:
    """Notes what a record says of the session."""
    if not scan.cwd:
        scan.cwd = as_text(record.cwd)
    if isinstance(record.version, str):
        scan.version = record.version
    if record.is_side is True:
        scan.sided = True
    if not scan.foreign and len(memoryview(record.clew)):
        mark = read_mark(record.clew)
        scan.foreign = mark.from_ if mark is not None else ""
    if not scan.forked_from and len(memoryview(record.forked_from)):
        scan.forked_from = read_fork(record.forked_from)
    if record.subtype == "custom_title":
        scan.title = read_title(record.payload) or scan.title
    elif record.subtype == "ui_telemetry" and not scan.provider:
        found = _AUTH.search(bytes(record.payload))
        scan.provider = found.group(1).decode() if found is not None else ""
