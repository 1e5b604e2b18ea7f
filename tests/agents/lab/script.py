"""What the fake model is told to say: steps, each a list of parts.

A step is the answer to one request. It is neutral: the same parts become content blocks of the Messages API
or output items of the Responses API. A script is a list of steps, or of functions from the request to a step
(for answers that need something of what the agent has just sent). Every step is used once.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["Call", "Part", "RawPart", "Reasoning", "Script", "Step", "Text", "calls", "say"]

SIGNATURE = "Y2xldy1sYWItc2lnbmF0dXJl"
"""Stands for a signature or an encrypted blob; it only looks like one."""


@dataclass(frozen=True)
class Text:
    """A text of the assistant. `phase` is Codex's own (commentary, final_answer)."""

    text: str
    phase: str | None = None


@dataclass(frozen=True)
class Reasoning:
    """Thinking with its signature (Messages API), or a summary with encrypted content (Responses API)."""

    text: str
    signature: str = SIGNATURE


@dataclass(frozen=True)
class Call:
    """A tool call. Arguments that are a string become a custom tool's free text in the Responses API."""

    name: str
    arguments: Mapping[str, Any] | str
    id: str | None = None
    namespace: str | None = None


@dataclass(frozen=True)
class RawPart:
    """A content block or an output item, sent as it is."""

    value: Mapping[str, Any]


Part = Text | Reasoning | Call | RawPart


@dataclass(frozen=True)
class Step:
    """One answer, whole or broken off.

    when: a regular expression over what came since the model last spoke; the step waits for a request that it
        fits, and is preferred to those without. Steps without it serve the main conversation, in order.
    hang_after: after so many deltas nothing more is sent and the line stays open (`FakeModel.hanging` is then
        set).
    cut_after: after so many deltas the connection is closed.
    status: an HTTP error instead of an answer.
    """

    parts: Sequence[Part] = ()
    when: str | None = None
    stop: str | None = None
    usage: Mapping[str, int] | None = None
    hang_after: int | None = None
    cut_after: int | None = None
    status: int | None = None
    repeat: bool = False


Script = Sequence[Step | Callable[[Any], Step]]


def say(text: str, **options: Any) -> Step:
    """Makes a step that says one text."""
    return Step([Text(text)], **options)


def calls(*found: Call, text: str = "", reasoning: str = "", **options: Any) -> Step:
    """Makes a step that calls tools, after an optional reasoning and an optional text."""
    parts: list[Part] = []
    if reasoning:
        parts.append(Reasoning(reasoning))
    if text:
        parts.append(Text(text))
    return Step([*parts, *found], **options)
