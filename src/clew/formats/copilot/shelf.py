"""Where Copilot's sessions lie: the command line's events and VS Code's chats below the home.

Visual Studio's traces are read where somebody names one. VS Code's newer chats (`.jsonl`) are known too little.
"""

from __future__ import annotations

import re
from pathlib import Path

from clew.formats.copilot.reader import AGENT, TRACE
from clew.formats.shelf import Shelf

_START = re.compile(rb'\{"type"\s*:\s*"session\.start"\s*,\s*"data"\s*:\s*\{[^}]*"producer"\s*:\s*"copilot-agent"')
_EVENT = re.compile(rb'\{"type"\s*:\s*"[a-z]+\.[a-z_]+"\s*,\s*"data"\s*:')
_CHAT = re.compile(rb'"requesterUsername"|"responderUsername"|"initialLocation"|"requests"\s*:\s*\[')
_USERS = (".config", "Library/Application Support", "AppData/Roaming")
_PROGRAMS = ("Code", "Code - Insiders", "VSCodium")
_PATTERNS = (
    ".copilot/session-state/*/events.jsonl",
    ".copilot/session-state/*.jsonl",
    *(
        f"{user}/{program}/User/workspaceStorage/*/chatSessions/*.json{more}"
        for user in _USERS
        for program in _PROGRAMS
        for more in ("", "l")
    ),
)


def _name(path: Path) -> str:
    return path.parent.name if path.name == "events.jsonl" else path.stem


def _refuse(path: Path) -> str:
    if path.suffix == ".jsonl" and path.parent.name == "chatSessions":
        return "a chat of a newer VS Code, kept as changes in lines, whose form clew does not know"
    return ""


def _knows(path: Path, head: bytes) -> bool:
    head = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if path.parent.name == "chatSessions" or _START.match(head) is not None or TRACE.match(head) is not None:
        return True
    if path.suffix == ".json" and head.startswith(b"{") and b'"sessionId"' in head:
        return _CHAT.search(head) is not None and b'"messages"' not in head[:4096]
    return _EVENT.match(head) is not None and b'"parentId":' in head


SHELF = Shelf(AGENT, lambda home: home.root, _PATTERNS, _knows, name=_name, refuse=_refuse)
