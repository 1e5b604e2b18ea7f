"""Who put a user line into Grok's history, and what of it is said.

What a person typed is stored inside `<user_query>`; what the agent put there names a reason. Both decide before any
text does. Reader and writer ask here, so that the writer knows which texts need the wrapper to come back whole.
"""

from __future__ import annotations

import re

import msgspec

from clew.conversation.model import Kind, Origin
from clew.conversation.text import JsonString, Lazy, size_hint, text_of
from clew.formats.marks import is_standin

OPEN, CLOSE = "<user_query>\n", "\n</user_query>"

_CONTEXT = frozenset(
    {
        "system_reminder",
        "project_instructions",
        "session_prefix",
        "working_directory_switch",
        "auto_continue",
        "auto_recovery",
        "length_continue",
    }
)
_PERSON = frozenset({"", "human", "interjection", "parent_human_message"})
_KINDS: dict[str, Kind] = {"compaction_meta": "summary", "direct_bash": "command", "unknown": ""}
_REASONS: dict[Kind, str] = {
    "summary": "compaction_meta",
    "command": "direct_bash",
    "notice": "notification_drain",
    "interruption": "unknown",
    "": "unknown",
}

_BLOCK = re.compile(
    r"\s*<(user_info|system-reminder|system_reminder|project_layout|git_status|rules)>.*</(user_info|system-reminder|"
    r"system_reminder|project_layout|git_status|rules)>\s*\Z",
    re.DOTALL,
)
_REMINDERS = re.compile(r"\s*<system-reminder>.*</system-reminder>\s*\Z", re.DOTALL)
_GONE = "[image removed — "
_LOOK = 1 << 20
"""No block that the agent makes by itself is longer than this; longer texts are not looked at."""


def sort_reason(reason: str) -> tuple[bool, Origin, Kind]:
    """Returns whether a line is context, who said it and of what kind it is, by the reason that it names."""
    if reason in _PERSON:
        return False, "user", ""
    if reason in _CONTEXT:
        return True, "agent", ""
    return False, "agent", _KINDS.get(reason, "notice")


def reason_of(kind: Kind) -> str:
    """Returns the agent's own reason for a line that no person typed."""
    return _REASONS[kind]


def is_context(source: Lazy) -> bool:
    """Tells whether a whole text is a block of what the agent makes anew at every start."""
    return _begins(source, "<") and size_hint(source) <= _LOOK and _BLOCK.match(text_of(source)) is not None


def is_image_note(source: Lazy) -> bool:
    """Tells whether a whole text stands for an image: clew's own sentence, or the agent's."""
    if not _begins(source, "[") or size_hint(source) > 1024:
        return False
    text = text_of(source)
    return is_standin(text) or (text.startswith(_GONE) and text.endswith("]") and "\n" not in text)


def unwrap(source: Lazy) -> Lazy | None:
    """Returns the text inside the wrapper, None where there is none.

    The places of images before it and reminders behind it are left out. A text in plain spelling is not decoded.
    """
    if not _begins(source, "<"):
        return None
    if isinstance(source, JsonString):
        data = bytes(source.raw)
        if data.startswith(_RAW_OPEN) and data.endswith(_RAW_CLOSE) and len(data) >= len(_RAW_OPEN) + len(_RAW_CLOSE):
            return JsonString(msgspec.Raw(b'"' + data[len(_RAW_OPEN) : -len(_RAW_CLOSE)] + b'"'))
    text = text_of(source)
    start = 0
    if text.startswith(_IMAGES_OPEN):
        found = text.find(_IMAGES_CLOSE + OPEN)
        start = found + len(_IMAGES_CLOSE) if found > 0 else 0
    if not text.startswith(OPEN, start):
        return None
    start += len(OPEN)
    at = text.rfind(CLOSE)
    if at >= start and (at + len(CLOSE) == len(text) or _REMINDERS.match(text, at + len(CLOSE))):
        return text[start:at]
    return None


_IMAGES_OPEN, _IMAGES_CLOSE = "<image_files>\n", "</image_files>\n\n"
"""What the agent says of a prompt's images, before the wrapper: where it has put them."""

_RAW_OPEN, _RAW_CLOSE = b'"<user_query>\\n', b'\\n</user_query>"'


def needs_wrapper(source: Lazy) -> bool:
    """Tells whether a text of the agent's would come back as something else if it stood there by itself."""
    return is_context(source) or is_image_note(source) or unwrap(source) is not None


def _begins(source: Lazy, sign: str) -> bool:
    """Tells whether a text may begin with a sign, blank space left aside, without decoding it."""
    if isinstance(source, JsonString):
        head = bytes(memoryview(source.raw)[1:2]).decode("ascii", "replace")
        return head == sign or head in (" ", "\\", "\ufffd")
    return text_of(source)[:64].lstrip()[:1] == sign
