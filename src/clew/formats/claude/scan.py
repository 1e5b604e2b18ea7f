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
OWN_NOTE = 1 << 10
"""Flags of nodes besides those of `said`: a note of a failed request, what was said while the model was busy, a note
of the agent to itself that it never sends again."""

MADE, CHOSEN = 1, 2
"""Ranks of titles: made by the agent, chosen by a person."""


class Scan(msgspec.Struct):
    """What one pass over a file gave: nodes in file order, and what the bookkeeping records say."""

    nodes: list[Node] = []
    by_uuid: dict[str, int] = {}
    sessions: list[str] = []
    repeated: list[tuple[int, int]] = []
    mended: list[int] = []
    cwds: dict[str, None] = {}
    version: str = ""
    entrypoint: str = ""
    branch: str = ""
    title: str = ""
    title_rank: int = 0
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
    lines = JsonLines(records, stream, rec.RECORDS, damage, growing=growing, start=start, slow=rec.ODD_RECORDS)
    last: rec.Record | None = None
    for number, r in lines:
        if r is None:
            continue
        uuid, speaks = r.uuid, r.type in rec.CONVERSATION
        if type(uuid) is not str or not uuid:
            if not speaks:
                _note(scan, r)
                continue
            uuid = ""
        elif uuid in by_uuid:
            scan.repeated.append((number, lines.line))
            continue
        session, parent = r.session_id, r.parent_uuid
        at = numbers.setdefault(session, len(numbers)) if type(session) is str and session else -1
        node = _make_node(r, number, lines.line, uuid, at)
        if r.is_sidechain is True and not helper:
            node.side = True
        if type(parent) is str and parent:
            node.parent = by_uuid.get(parent, -1)
            if node.parent < 0:
                node.wanted = parent
        elif speaks and (parent is msgspec.UNSET or not uuid):
            node.broken = True  # it does not say where it belongs: it goes on from what stands before it
        if uuid:
            by_uuid[uuid] = len(nodes)
        nodes.append(node)
        if type(r.cwd) is str and r.cwd not in cwds:
            cwds[r.cwd] = None
        if speaks:
            last = r
            if r.request_id is not None or r.request_session_id is not None:
                _note_asked(scan, r)
    scan.sessions, scan.mended = list(numbers), lines.mended
    _finish(scan, last)
    return scan


def _finish(scan: Scan, last: rec.Record | None) -> None:
    """Notes what only the whole file tells: the dialect of its last record, and whether any record names a parent."""
    scan.cwds.pop("", None)
    if last is not None:
        scan.version = last.version if type(last.version) is str else ""
        scan.entrypoint = last.entrypoint if type(last.entrypoint) is str else ""
        scan.branch = last.git_branch if type(last.git_branch) is str else ""
    nodes = scan.nodes
    if not any(n.parent >= 0 or n.wanted is not None or (n.kind == BOUNDARY and n.reply) for n in nodes):
        for node in nodes[1:]:
            node.broken = True  # no record names a parent: they follow each other as they stand


def _make_node(r: rec.Record, number: int, line: int, uuid: str, session: int) -> Node:
    sort, message = r.type, r.message
    mark = None if r.clew is rec.NONE else r.clew
    if message is None or sort not in rec.CONVERSATION:
        return _make_other(r, number, line, uuid, session)
    if sort == "user":
        return Node(number, line, USER, uuid, session, _flags(r), r.timestamp, "", "", message.content, mark)
    flags = API_ERROR if r.is_api_error_message is True else 0
    reply = message.id if type(message.id) is str else ""
    return Node(number, line, ASSISTANT, uuid, session, flags, r.timestamp, reply, message.model, message.content, mark)


def _make_other(r: rec.Record, number: int, line: int, uuid: str, session: int) -> Node:
    """Returns the node of a record that says nothing, of what was said while the model was busy, of a boundary."""
    kind, flags, reply, content = OTHER, 0, "", rec.NONE
    if r.type == "attachment":
        if r.attachment is not None and r.attachment.type == "queued_command":
            kind, content, flags = USER, r.attachment.prompt, _queued_flags(r.attachment)
    elif r.type == "system" and r.subtype == "compact_boundary":
        kind, content = BOUNDARY, r.compact_metadata
        reply = r.logical_parent_uuid if isinstance(r.logical_parent_uuid, str) else ""
    return Node(number, line, kind, uuid, session, flags, r.timestamp, reply, "", content, None)


def _flags(r: rec.Record) -> int:
    flags = 0
    if r.is_meta is True:
        flags |= META | OWN_NOTE if r.own_note is True else META
    if r.is_compact_summary is True:
        flags |= COMPACT
    if r.is_visible_in_transcript_only is True:
        flags |= TRANSCRIPT
    if type(r.prompt_source) is str or type(r.permission_mode) is str:
        flags |= TYPED
    if r.origin is not rec.NONE and rec.read_origin_kind(r.origin) == "task-notification":
        flags |= TASK
    return flags


def _queued_flags(attachment: rec.Attachment) -> int:
    kind = rec.read_origin_kind(attachment.origin)
    typed = attachment.command_mode in (None, "prompt", "bash") and kind in ("", "human", "user")
    return QUEUED | (TYPED if typed else TASK)


def _note(scan: Scan, r: rec.Record) -> None:
    """Notes what a record without a place in the tree says of the session."""
    sort = r.type
    if sort == "last-prompt":
        scan.has_prompts = True
        if type(r.leaf_uuid) is str:
            scan.named_leaf = r.leaf_uuid
    elif sort == "custom-title":
        scan.title, scan.title_rank = rec.read_text(r.custom_title), CHOSEN
    elif sort == "ai-title" and scan.title_rank < CHOSEN:
        scan.title, scan.title_rank = rec.read_text(r.ai_title), MADE
    elif sort == "summary" and type(r.leaf_uuid) is str:
        scan.summaries.append((r.leaf_uuid, rec.read_text(r.summary)))


def _note_asked(scan: Scan, r: rec.Record) -> None:
    scan.asked = scan.asked or type(r.request_id) is str
    if r.request_session_id is not None and not scan.asked_in and type(r.request_session_id) is str:
        scan.asked_in = r.request_session_id
