"""Gemini CLI's records, as far as a conversation needs them; everything else stays in the bytes.

A record is a line, or an element of `messages` in an older document; both have the same shape. Small members become
values, what may be large stays a slice of the file. Members whose type other versions vary are checked where they are
used, so that an odd one never costs the record.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

import msgspec

from clew.conversation.text import Lazy, mend_surrogates, text_of
from clew.formats.parts.values import ERRORS, NONE, head_of, is_object, is_text, read_text, read_texts

VERSION = "0.61.0"
"""The version whose dialect is written, and whose program read it back."""


class ToolCall(msgspec.Struct, gc=False):
    """A call with what came of it, as the agent keeps them for display and for its next start."""

    id: Any = None
    name: Any = None
    args: msgspec.Raw = NONE
    result: msgspec.Raw = NONE
    status: Any = None


class Record(
    msgspec.Struct,
    gc=False,
    rename={
        "tool_calls": "toolCalls",
        "session_id": "sessionId",
        "project_hash": "projectHash",
        "set_": "$set",
        "rewind_to": "$rewindTo",
    },
):
    """One line: a message, the header, a change of the session's facts, or a step back."""

    id: Any = None
    type: Any = None
    timestamp: Any = None
    content: msgspec.Raw = NONE
    thoughts: msgspec.Raw = NONE
    tool_calls: msgspec.Raw = NONE
    tokens: msgspec.Raw = NONE
    model: Any = None
    session_id: Any = None
    project_hash: Any = None
    kind: Any = None
    summary: msgspec.Raw = NONE
    directories: msgspec.Raw = NONE
    messages: msgspec.Raw = NONE
    set_: msgspec.Raw = NONE
    rewind_to: Any = None
    clew: msgspec.Raw = NONE


class Thought(msgspec.Struct, gc=False):
    """One thought: a subject in bold type and what follows it."""

    subject: msgspec.Raw = NONE
    description: msgspec.Raw = NONE


RECORDS = msgspec.json.Decoder(Record)
_TOOL_CALLS = msgspec.json.Decoder(list[ToolCall]).decode
_THOUGHTS = msgspec.json.Decoder(list[Thought]).decode
_MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_ANYTHING = msgspec.json.Decoder().decode


class OddRecords:
    """Decodes what the decoder of records refuses because one member is beyond it."""

    def decode(self, data: bytes, /) -> Record:
        """Returns the record; raises msgspec.DecodeError for what is no JSON object."""
        try:
            return RECORDS.decode(data)
        except msgspec.ValidationError:
            members = _MEMBERS(data)
            for name, value in list(members.items()):
                try:
                    _ANYTHING(value)
                except ERRORS:  # such as a number beyond every double
                    del members[name]
            return RECORDS.decode(msgspec.json.encode(members))


ODD_RECORDS = OddRecords()


def decode_record(data: bytes | memoryview) -> Record | None:
    """Returns the record of an element; bad UTF-8 and lone surrogates are U+FFFD. None for what is no object."""
    try:
        return RECORDS.decode(data)
    except ERRORS:
        pass
    try:
        return ODD_RECORDS.decode(bytes(data))
    except ERRORS:
        pass
    try:
        value = json.loads(bytes(data).decode("utf-8", "replace"), strict=False)
        return ODD_RECORDS.decode(mend_surrogates(json.dumps(value, ensure_ascii=False)).encode())
    except (*ERRORS, ValueError):
        return None


def read_tool_calls(raw: msgspec.Raw) -> list[ToolCall]:
    """Returns the calls of a message; nothing where there are none."""
    try:
        return _TOOL_CALLS(raw) if len(memoryview(raw)) else []
    except ERRORS:
        return []


def read_thoughts(raw: msgspec.Raw) -> list[Lazy]:
    """Returns the thoughts of a message as texts, the subject in bold as the agent writes it."""
    try:
        found = _THOUGHTS(raw) if len(memoryview(raw)) else []
    except ERRORS:
        return []
    texts: list[Lazy] = []
    for thought in found:
        subject = read_text(thought.subject)
        text = read_text(thought.description) if is_text(thought.description) else ""
        texts.append(f"**{subject}** {text}" if subject else text)
    return texts


def read_facts(raw: msgspec.Raw) -> Record | None:
    """Returns what a `$set` changes, or None."""
    return decode_record(memoryview(raw)) if is_object(raw) else None


# --- what the agent itself puts into the user's messages ----------------------------------------------------------

BLANK = " \t\n\v\f\r\u00a0\u1680\u2028\u2029\u202f\u205f\u3000\ufeff" + "".join(map(chr, range(0x2000, 0x200B)))
"""What JavaScript trims."""

_CONTEXT = (("<session_context>", "</session_context>"), ("<hook_context>", "</hook_context>"))
DROPPED = ("/", "?", "<session_context>", "<hook_context>")
"""Beginnings of user messages that the agent leaves out when it resumes."""

_LOOP = "System: Potential loop detected. Details: "
_CONTINUE = "System: Please continue."
_SNAPSHOT = re.compile(r"\s*<(?:state_snapshot|scratchpad)>.*</state_snapshot>\s*\Z", re.DOTALL)
_FOLDERS = re.compile(r"^- \*\*Workspace Directories:\*\*\n +- (/.*)$", re.MULTILINE)


def is_context(source: Lazy) -> bool:
    """Tells whether a text is nothing but a context that the agent makes anew, from its first sign to its last."""
    head = head_of(source).lstrip(BLANK)
    for opening, closing in _CONTEXT:
        if head.startswith(opening):
            return text_of(source).rstrip(BLANK).endswith(closing)
    return False


def workspace_in(source: Lazy) -> str:
    """Returns the first folder that the agent's own context names, or nothing."""
    found = _FOLDERS.search(text_of(source))
    return found.group(1) if found is not None else ""


def is_notice(source: Lazy) -> bool:
    """Tells whether a text is one that the agent said to its model in the user's place."""
    head = head_of(source)
    return head.startswith(_LOOP) or head == _CONTINUE


def is_snapshot(source: Lazy) -> bool:
    """Tells whether a text is the summary that a compaction leaves."""
    return head_of(source).lstrip().startswith(("<state_snapshot>", "<scratchpad>")) and (
        _SNAPSHOT.match(text_of(source)) is not None
    )


def project_hash(cwd: str) -> str:
    """Returns what stands in `projectHash`: SHA-256 over the folder's path."""
    return hashlib.sha256(cwd.encode("utf-8", "surrogatepass")).hexdigest()


def first_text(raw: msgspec.Raw) -> str:
    """Returns the first text of a list of texts."""
    return next(iter(read_texts(raw)), "")
