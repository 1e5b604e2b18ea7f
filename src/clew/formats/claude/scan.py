"""The first pass over a session: every line once, what has a place in the tree becomes a node, the rest is noted."""

from __future__ import annotations

import msgspec

from clew.conversation.loss import Damage
from clew.conversation.source import Records, Stream
from clew.formats.claude import records as rec
from clew.formats.claude.said import COMPACT, META, TASK, TRANSCRIPT, TYPED
from clew.formats.claude.tree import ASSISTANT, BOUNDARY, OTHER, USER, Node
from clew.formats.jsonl import JsonLines

API_ERROR = 1 << 8
QUEUED = 1 << 9

_ALWAYS_FRESH = ("task-notification",)


class Scan(msgspec.Struct):
    """What one pass over a file gave: nodes in file order, and what the bookkeeping records say."""

    nodes: list[Node] = []
    by_uuid: dict[str, int] = {}
    sessions: list[str] = []
    repeated: list[tuple[int, int]] = []
    cwds: dict[str, None] = {}
    version: str = ""
    entrypoint: str = ""
    branch: str = ""
    title: str = ""
    made_title: str = ""
    summaries: list[tuple[str, str]] = []
    named_leaf: str = ""
    has_prompts: bool = False
    asked_in: str = ""
    asked: bool = False


def scan_stream(
    records: Records, stream: Stream, damage: list[Damage], *, growing: bool, helper: bool, start: int = 0
) -> Scan:
    """Cuts a stream from byte `start` on into records and returns its nodes; `helper`: inline helpers are the main."""
    scan = Scan()
    numbers: dict[str, int] = {}
    nodes, by_uuid, cwds = scan.nodes, scan.by_uuid, scan.cwds
    lines = JsonLines(records, stream, rec.RECORDS, damage, growing=growing, start=start)
    for number, r in lines:
        if r is None:
            continue
        uuid, sort = r.uuid, r.type
        speaks = sort in rec.CONVERSATION
        if not (type(uuid) is str and uuid):
            if not speaks:
                _note(scan, r)
                continue
            uuid = ""
        elif uuid in by_uuid:
            scan.repeated.append((number, lines.line))
            continue
        session = r.session_id
        at = -1
        if type(session) is str and session:
            at = numbers.setdefault(session, len(numbers))
        node = _make_node(r, number, lines.line, uuid, at, helper)
        parent = r.parent_uuid
        if type(parent) is str and parent:
            node.parent = by_uuid.get(parent, -1)
            if node.parent < 0:
                node.wanted = parent
        elif (parent is msgspec.UNSET or not uuid) and speaks:
            node.broken = True  # it does not say where it belongs: it goes on from what stands before it
        if uuid:
            by_uuid[uuid] = len(nodes)
        nodes.append(node)
        if type(r.cwd) is str and r.cwd and r.cwd not in cwds:
            cwds[r.cwd] = None
        if type(r.version) is str and r.version:
            scan.version = r.version
        if speaks:
            _note_asked(scan, r)
    scan.sessions = list(numbers)
    _join_unlinked(nodes)
    return scan


def _make_node(r: rec.Record, number: int, line: int, uuid: str, session: int, helper: bool) -> Node:
    sort, kind, flags, message, logical = r.type, OTHER, 0, rec.NONE, ""
    if sort == "assistant":
        kind, message = ASSISTANT, r.message
        if r.is_api_error_message is True:
            flags = API_ERROR
    elif sort == "user":
        kind, message, flags = USER, r.message, _flags(r)
    elif sort == "attachment":
        if rec.read_queued(r.attachment) is not None:
            kind, message, flags = USER, r.attachment, QUEUED
    elif sort == "system" and r.subtype == "compact_boundary":
        kind, message = BOUNDARY, r.compact_metadata
        logical = r.logical_parent_uuid if isinstance(r.logical_parent_uuid, str) else ""
    side = r.is_sidechain is True and not helper
    time = rec.read_time(r.timestamp)
    return Node(number, line, kind, uuid, None, logical, session, side, flags, time, message, r.clew)


def _flags(r: rec.Record) -> int:
    flags = META if r.is_meta is True else 0
    if r.is_compact_summary is True:
        flags |= COMPACT
    if r.is_visible_in_transcript_only is True:
        flags |= TRANSCRIPT
    if type(r.prompt_source) is str or type(r.permission_mode) is str:
        flags |= TYPED
    if memoryview(r.origin) and rec.read_origin_kind(r.origin) in _ALWAYS_FRESH:
        flags |= TASK
    return flags


def _note(scan: Scan, r: rec.Record) -> None:
    """Notes what a record without a place in the tree says of the session."""
    sort = r.type
    if sort == "last-prompt":
        scan.has_prompts = True
        if type(r.leaf_uuid) is str:
            scan.named_leaf = r.leaf_uuid
    elif sort == "custom-title":
        scan.title = rec.read_text(r.custom_title)
    elif sort == "ai-title":
        scan.made_title = rec.read_text(r.ai_title)
    elif sort == "summary" and type(r.leaf_uuid) is str:
        scan.summaries.append((r.leaf_uuid, rec.read_text(r.summary)))


def _note_asked(scan: Scan, r: rec.Record) -> None:
    if type(r.entrypoint) is str and r.entrypoint:
        scan.entrypoint = r.entrypoint
    if type(r.git_branch) is str:
        scan.branch = r.git_branch
    if r.type == "assistant":
        scan.asked = scan.asked or type(r.request_id) is str
        if type(r.request_session_id) is str and r.request_session_id and not scan.asked_in:
            scan.asked_in = r.request_session_id


def _join_unlinked(nodes: list[Node]) -> None:
    """Where no record of a file names a parent, they follow each other as they stand."""
    if any(node.parent >= 0 or node.wanted is not None or node.logical for node in nodes):
        return
    for node in nodes[1:]:
        node.broken = True
