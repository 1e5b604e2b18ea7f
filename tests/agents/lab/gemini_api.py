"""The Gemini API as far as agents use it: reading a request, and answering as chunks."""

import json
import uuid
from collections.abc import Iterator
from typing import Any

from agents.lab.messages_api import pieces
from agents.lab.script import Call, Reasoning, Step, Text

__all__ = ["STREAM", "WHOLE", "is_main", "latest_text", "reply", "text_of", "whole"]

STREAM, WHOLE = ":streamGenerateContent", ":generateContent"
"""How the paths of requests end."""


def text_of(content: Any) -> str:
    """Returns the texts of a content, one below the other."""
    return "\n".join(part["text"] for part in content.get("parts") or [] if isinstance(part.get("text"), str))


def latest_text(body: Any) -> str:
    """Returns everything said since the model last spoke, what tools answered included."""
    contents = (body or {}).get("contents") or []
    spoke = max((n for n, one in enumerate(contents) if one.get("role") == "model"), default=-1)
    answers = [part["functionResponse"] for one in contents[spoke + 1 :] for part in one["parts"] if _is_answer(part)]
    said = [text_of(one) for one in contents[spoke + 1 :]]
    return "\n".join(said + [str((answer.get("response") or {}).get("output")) for answer in answers])


def _is_answer(part: Any) -> bool:
    return isinstance(part.get("functionResponse"), dict)


def is_main(body: Any) -> bool:
    """Whether the request belongs to the conversation: one for a title or the like brings no tools."""
    return isinstance(body, dict) and bool(body.get("tools"))


def _parts(step: Step) -> Iterator[dict[str, Any]]:
    for part in step.parts:
        if isinstance(part, Reasoning):
            yield {"text": f"**Thought** {part.text}", "thought": True}
        elif isinstance(part, Text):
            for piece in pieces(part.text):
                yield {"text": piece}
        elif isinstance(part, Call):
            call: dict[str, Any] = {"name": part.name, "args": dict(part.arguments)}  # type: ignore[call-overload]
            yield {"functionCall": call | ({"id": part.id} if part.id else {})}


def _answer(parts: list[dict[str, Any]], finish: str | None, size: int) -> dict[str, Any]:
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": parts}, "index": 0}
    if finish:
        candidate["finishReason"] = finish
    asked = max(1, size // 4)
    usage = {"promptTokenCount": asked, "candidatesTokenCount": 20, "totalTokenCount": asked + 20}
    found = {"candidates": [candidate], "usageMetadata": usage, "modelVersion": "lab-model"}
    return found | {"responseId": uuid.uuid4().hex}


def reply(body: Any, step: Step, size: int) -> Iterator[dict[str, Any]]:
    """Yields the answer's chunks; `size` is the request's in bytes."""
    parts = list(_parts(step))
    for number, part in enumerate(parts):
        yield _answer([part], "STOP" if number + 1 == len(parts) else None, size)


def whole(body: Any, step: Step, size: int) -> dict[str, Any]:
    """Returns the answer in one piece; where a form is asked for, an empty one."""
    parts = list(_parts(step))
    asked = (body.get("generationConfig") or {}) if isinstance(body, dict) else {}
    if "json" in str(asked.get("responseMimeType")):
        parts = [{"text": json.dumps({})}]
    return _answer(parts, "STOP", size)
