"""What is left of a context after a compaction, as Kimi Code itself works it out from its journal at every start.

The record of a compaction holds the summary, not what was kept: the agent chooses among the user's messages anew, by an
estimate of their size, and cuts the two at the edges. What it sends can only be told by choosing as it does.
"""

from __future__ import annotations

from collections.abc import Sequence

from clew.conversation.model import Image, Message, Text

KEPT_TOKENS = 20_000
HEAD_TOKENS = 2_000
_MEDIA_TOKENS = 2_000


def choose_kept(messages: Sequence[Message]) -> list[Message]:
    """Returns the user's messages that stay: all while they are few, else the first and the last ones."""
    if sum(map(estimate_message, messages)) <= KEPT_TOKENS:
        return list(messages)
    left, end = KEPT_TOKENS - HEAD_TOKENS, len(messages)
    tail: list[Message] = []
    cut: Message | None = None
    for place in range(len(messages) - 1, -1, -1):
        if left <= 0:
            break
        message, end = messages[place], place
        size = estimate_message(message)
        if size <= left:
            tail.append(message)
            left -= size
            continue
        whole = message.text
        kept = _last(whole, left)
        tail.append(_with_text(message, kept))
        if len(kept) < len(whole):
            cut = _with_text(message, whole[: len(whole) - len(kept)])
        break
    candidates = [*messages[:end], *([cut] if cut is not None else [])]
    return [*_head(candidates), *reversed(tail)]


def _head(candidates: Sequence[Message]) -> list[Message]:
    left = HEAD_TOKENS
    head: list[Message] = []
    for message in candidates:
        if left <= 0:
            break
        size = estimate_message(message)
        if size > left:
            head.append(_with_text(message, _first(message.text, left)))
            break
        head.append(message)
        left -= size
    return head


def estimate_message(message: Message) -> int:
    """Returns the agent's estimate of a user message in tokens."""
    total = 1  # the role
    for part in message.parts:
        if isinstance(part, Text):
            total += estimate_text(part.text)
        elif isinstance(part, Image):
            total += _MEDIA_TOKENS
    return total


def estimate_text(text: str) -> int:
    """Returns the agent's estimate of a text: four ASCII signs are a token, every other sign is one."""
    plain = len(text) if text.isascii() else sum(sign < "\x80" for sign in text)
    return -(-plain // 4) + len(text) - plain


def _first(text: str, tokens: int) -> str:
    return text[: _fitting(text, tokens)] if tokens > 0 else ""


def _last(text: str, tokens: int) -> str:
    fits = _fitting(text[::-1], tokens) if tokens > 0 else 0
    return text[len(text) - fits :]


def _fitting(text: str, tokens: int) -> int:
    """Returns how many signs from the beginning fit into that many tokens."""
    plain = other = 0
    for place, sign in enumerate(text):
        if sign < "\x80":
            plain += 1
        else:
            other += 1
        if -(-plain // 4) + other > tokens:
            return place
    return len(text)


def _with_text(message: Message, text: str) -> Message:
    m = message
    return Message(m.role, (Text(text),), m.origin, m.kind, m.time_ms)
