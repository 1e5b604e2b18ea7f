"""Qwen Code's records, as far as a conversation needs them; everything else stays in the bytes.

Small members become values, the message and what the agent notes for itself stay slices of the file. Members whose
type other versions vary are checked where they are used, so that an odd one never costs the record.
"""

from __future__ import annotations

from typing import Any

import msgspec

from clew.conversation.model import Kind
from clew.conversation.text import Lazy, text_of
from clew.formats.parts.values import ERRORS, NONE, as_text, head_of, is_object, may_begin, read_items, read_text

VERSION = "0.24.4"
"""The version whose dialect is written, and whose program read it back."""


class Record(
    msgspec.Struct,
    gc=False,
    rename={
        "parent_uuid": "parentUuid",
        "session_id": "sessionId",
        "payload": "systemPayload",
        "forked_from": "forkedFrom",
        "is_side": "isSidechain",
    },
):
    """One line. `parent_uuid` is None where the record says that there is none, UNSET where it says nothing."""

    uuid: Any = None
    parent_uuid: Any = msgspec.UNSET
    session_id: Any = None
    type: Any = ""
    subtype: Any = None
    provenance: Any = None
    timestamp: Any = None
    cwd: Any = None
    version: Any = None
    model: Any = None
    is_side: Any = None
    message: msgspec.Raw = NONE
    payload: msgspec.Raw = NONE
    forked_from: msgspec.Raw = NONE
    clew: msgspec.Raw = NONE


class Message(msgspec.Struct, gc=False):
    """A content of the API."""

    role: Any = None
    parts: msgspec.Raw = NONE


class Compression(msgspec.Struct, gc=False, rename="camel"):
    """What a compaction says about itself."""

    compressed_history: msgspec.Raw = NONE


class SlashCommand(msgspec.Struct, gc=False, rename="camel"):
    """A command of the user, and what came of it."""

    phase: Any = None
    raw_command: Any = None
    sent_to_model: Any = None
    output_history_items: msgspec.Raw = NONE


class _Title(msgspec.Struct, gc=False, rename="camel"):
    custom_title: msgspec.Raw = NONE


class _Fork(msgspec.Struct, gc=False, rename="camel"):
    session_id: Any = None


class _Item(msgspec.Struct, gc=False):
    type: Any = None


RECORDS = msgspec.json.Decoder(Record)
_MESSAGE = msgspec.json.Decoder(Message).decode
_COMPRESSION = msgspec.json.Decoder(Compression).decode
_SLASH = msgspec.json.Decoder(SlashCommand).decode
_TITLE = msgspec.json.Decoder(_Title).decode
_FORK = msgspec.json.Decoder(_Fork).decode
_ITEMS = msgspec.json.Decoder(list[_Item]).decode
_MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_ANYTHING = msgspec.json.Decoder().decode

NOT_IN_TREE = frozenset(
    {
        "session_artifact_event",
        "session_artifact_snapshot",
        "session_sources_snapshot",
        "managed_session_header_v1",
        "managed_session_event_v1",
        "managed_session_commit_v1",
    }
)
"""Records of the agent's own that are no links of the chain."""

NOTICES = frozenset({"notification", "cron", "goal_runtime"})
"""User records that nobody typed; they are sent."""

NOT_SENT = "realtime_message"


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


def read_message(raw: msgspec.Raw) -> Message | None:
    """Returns a content, or None."""
    try:
        return _MESSAGE(raw) if is_object(raw) else None
    except ERRORS:
        return None


def read_compressed(raw: msgspec.Raw) -> list[Message] | None:
    """Returns the contents that a compaction leaves, or None where the record says none."""
    try:
        found = _COMPRESSION(raw) if is_object(raw) else Compression()
    except ERRORS:
        return None
    if not len(memoryview(found.compressed_history)) or memoryview(found.compressed_history)[0] != 0x5B:
        return None
    return [message for item in read_items(found.compressed_history) if (message := read_message(item)) is not None]


def read_dead_command(raw: msgspec.Raw) -> str:
    """Returns the command that a record says was answered without the model, or nothing."""
    try:
        found = _SLASH(raw) if is_object(raw) else SlashCommand()
        items = _ITEMS(found.output_history_items) if len(memoryview(found.output_history_items)) else []
    except ERRORS:
        return ""
    if found.phase != "result" or found.sent_to_model is True or not items:
        return ""
    return as_text(found.raw_command) if all(item.type == "assistant" for item in items) else ""


def read_title(raw: msgspec.Raw) -> str:
    """Returns the title that a record gives, or nothing."""
    try:
        return read_text(_TITLE(raw).custom_title) if is_object(raw) else ""
    except ERRORS:
        return ""


def read_fork(raw: msgspec.Raw) -> str:
    """Returns the session that a record was copied from, or nothing."""
    try:
        return as_text(_FORK(raw).session_id) if is_object(raw) else ""
    except ERRORS:
        return ""


# --- what the agent itself puts into the user's messages ----------------------------------------------------------

REMINDER = "<system-reminder>"
_CONTEXT = (
    (REMINDER, "</system-reminder>"),
    ("<qwen:user-prompt-submit-context>", "</qwen:user-prompt-submit-context>"),
)
_NOTICE = ("<task-notification>", "</task-notification>")


def sort_text(source: Lazy) -> Kind | None:
    """Returns what a text of a user's message is; None for a context that the agent makes anew."""
    if not may_begin(source, b"<"):
        return ""
    head = head_of(source).lstrip()
    for opening, closing in _CONTEXT:
        if head.startswith(opening) and text_of(source).rstrip().endswith(closing):
            return None
    opening, closing = _NOTICE
    return "notice" if head.startswith(opening) and text_of(source).rstrip().endswith(closing) else ""
