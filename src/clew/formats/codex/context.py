"""What of Codex's stored user messages is context, and what the agent itself had to say.

Codex puts its environment, instructions and notices into user messages. Newer versions note the kind of every part
(`content_item_kinds`): that decides. Where no kinds are noted, a whole part that opens and closes with one of the
agent's own tags is taken for what the tag says. A piece of a text never decides.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from clew.conversation.model import Kind
from clew.conversation.text import JsonString, text_of

Sort: TypeAlias = Literal["said", "context"] | Kind
"""What a part is: said by a person, context, or a text of the agent of that kind."""

_KINDS: dict[str, Sort] = {
    "": "said",
    "unknown": "said",
    "images.preparation_error": "said",
    "images.unsupported": "said",
    "audio.unsupported": "said",
    "generic.turn_aborted": "interruption",
    "shell.user_command": "command",
    "multi_agent.subagent_notification": "notice",
    "multi_agent.inter_agent_message": "notice",
    "multi_agent.inter_agent_completion_message": "notice",
    "agent_message_board.notification": "notice",
    "goal.internal_context": "notice",
    "hooks.additional_context": "notice",
    "compaction.summary": "summary",
}

_TAGS: tuple[tuple[str, str, Sort], ...] = (
    ("<environment_context>", "</environment_context>", "context"),
    ("# agents.md instructions", "</instructions>", "context"),
    ("<user_instructions>", "</user_instructions>", "context"),
    ("<permissions instructions>", "</permissions instructions>", "context"),
    ("<skill>", "</skill>", "context"),
    ("<skills_instructions>", "</skills_instructions>", "context"),
    ("<apps_instructions>", "</apps_instructions>", "context"),
    ("<plugins_instructions>", "</plugins_instructions>", "context"),
    ("<recommended_plugins>", "</recommended_plugins>", "context"),
    ("<collaboration_mode>", "</collaboration_mode>", "context"),
    ("<model_switch>", "</model_switch>", "context"),
    ("<personality_spec>", "</personality_spec>", "context"),
    ("<turn_aborted>", "</turn_aborted>", "interruption"),
    ("<user_shell_command>", "</user_shell_command>", "command"),
    ("<subagent_notification>", "</subagent_notification>", "notice"),
    ("<hook_prompt", "</hook_prompt>", "notice"),
    ("<goal_context>", "</goal_context>", "notice"),
    ("<codex_internal_context", "</codex_internal_context>", "notice"),
)

_HEAD = 48


def sort_by_kind(kind: str) -> Sort:
    """Returns what a part is by the kind that the agent noted for it."""
    known = _KINDS.get(kind)
    if known is not None:
        return known
    return "said" if kind.startswith("user.") else "context"


def sort_by_text(text: str) -> Sort:
    """Returns what a whole part is by its own opening and closing tag."""
    body = text.strip()
    if not body.startswith(("<", "#")):
        return "said"
    head, tail = body[:_HEAD].lower(), body[-_HEAD:].lower()
    for opening, closing, sort in _TAGS:
        if head.startswith(opening) and tail.endswith(closing):
            return sort
    return "said"


def may_be_tagged(raw: msgspec.Raw) -> bool:
    """Tells from the raw bytes alone whether `sort_by_text` could say anything but "said"."""
    view = memoryview(raw)
    for at in range(1, min(len(view), 64)):
        sign = view[at]
        if sign in b"<#\\\xc2\xe2\xe3\xe1":  # a tag, an escape, or the first byte of a wide blank
            return True
        if sign not in b" \t":
            return False
    return len(view) > 64


def sort_part(raw: msgspec.Raw) -> Sort:
    """Returns what a text part without a noted kind is; decodes it only where it could be a tagged block."""
    return sort_by_text(text_of(JsonString(raw))) if may_be_tagged(raw) else "said"
