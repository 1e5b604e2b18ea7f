"""How Cline names its files: folders of sessions, folders of tasks, and what lies in them.

The data folder is `$CLINE_DATA_DIR`, else `$CLINE_DIR/data`, else `~/.cline/data`. Streams' paths are relative to the
user's home, since tasks of the extension also lie in the folders of editors.
"""

from __future__ import annotations

import re

from clew.conversation.source import Stream
from clew.ids import is_safe_name

DATA = ".cline/data"
SESSIONS = "sessions"
TASKS = "tasks"
MESSAGES = ".messages.json"
MANIFEST = ".json"
COMPACTION = ".compaction.json"
TASK = "api_conversation_history.json"
HISTORY = "state/taskHistory.json"
EXTENSION = "saoudrizwan.claude-dev"
EDITORS = tuple(
    f"{place}/{program}/User/globalStorage/{EXTENSION}"
    for place in (".config", "Library/Application Support", "AppData/Roaming")
    for program in ("Code", "Code - Insiders", "VSCodium", "Cursor", "Windsurf")
)
"""Folders below a home in which the extension kept its tasks before it had the data folder."""

_LIST = re.compile(rb"(?:\xef\xbb\xbf)?\s*\[")


def is_task(stream: Stream) -> bool:
    """Tells whether a stream is the list of a task rather than the document of a session."""
    return _LIST.match(bytes(memoryview(stream.data)[:256])) is not None


def session_folder(data: str, session_id: str) -> str:
    """Returns a session's folder, with a slash behind it; asserts that the id may be part of a name."""
    assert is_safe_name(session_id), "the caller gives ids of clew's own making"
    return f"{data or DATA}/{SESSIONS}/{session_id}/"
