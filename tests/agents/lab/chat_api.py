"""The OpenAI Chat Completions API as far as agents use it: reading a request, and answering as chunks."""

import json
import uuid
from collections.abc import Iterator
from typing import Any

from agents.lab.messages_api import pieces
from agents.lab.script import Call, Reasoning, Step, Text

__all__ = ["is_main", "latest_text", "reply", "text_of", "whole"]


def text_of(message: Any) -> str:
    """Returns the text of a message: its content, or that of its text parts."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    return "\n".join(part.get("text") or "" for part in content or [] if isinstance(part, dict))


def latest_text(body: Any) -> str:
    """Returns everything said since the model last spoke."""
    messages = (body or {}).get("messages") or []
    spoke = max((n for n, one in enumerate(messages) if one.get("role") == "assistant"), default=-1)
    return "\n".join(text_of(one) for one in messages[spoke + 1 :] if one.get("role") != "system")


def is_main(body: Any) -> bool:
    """Whether the request belongs to the conversation: a request for a title or the like brings no tools."""
    return isinstance(body, dict) and bool(body.get("tools"))


def _usage(size: int, step: Step) -> dict[str, int]:
    asked, spoken = max(1, size // 4), 20
    usage = {"prompt_tokens": asked, "completion_tokens": spoken, "total_tokens": asked + spoken}
    return usage | dict(step.usage or {})


def _calls(step: Step) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for part in step.parts:
        if isinstance(part, Call):
            arguments = part.arguments if isinstance(part.arguments, str) else json.dumps(dict(part.arguments))
            function = {"name": part.name, "arguments": arguments}
            call_id = part.id or f"call_{uuid.uuid4().hex[:24]}"
            found.append({"index": len(found), "id": call_id, "type": "function", "function": function})
    return found


def reply(body: Any, step: Step, size: int) -> Iterator[dict[str, Any]]:
    """Yields the answer's chunks; `size` is the request's in bytes."""
    base = {"id": f"chatcmpl-{uuid.uuid4().hex}", "object": "chat.completion.chunk", "created": 1_760_000_000}
    base["model"] = body.get("model")

    def chunk(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
        return base | {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}

    yield chunk({"role": "assistant", "content": ""})
    for part in step.parts:
        if isinstance(part, Text):
            for piece in pieces(part.text):
                yield chunk({"content": piece})
        elif isinstance(part, Reasoning):
            yield chunk({"reasoning_content": part.text})
    calls = _calls(step)
    for call in calls:
        yield chunk({"tool_calls": [call]})
    yield chunk({}, step.stop or ("tool_calls" if calls else "stop"))
    yield base | {"choices": [], "usage": _usage(size, step)}


def whole(body: Any, step: Step, size: int) -> dict[str, Any]:
    """Returns the answer in one piece."""
    message: dict[str, Any] = {
        "role": "assistant",
        "content": "".join(part.text for part in step.parts if isinstance(part, Text)),
    }
    calls = _calls(step)
    if calls:
        message["tool_calls"] = [{name: value for name, value in call.items() if name != "index"} for call in calls]
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if calls else "stop"}
    return {
        "id": f"chatcmpl-{uuid.uuid4().hex}",
        "object": "chat.completion",
        "created": 1_760_000_000,
        "model": body.get("model"),
        "choices": [choice],
        "usage": _usage(size, step),
    }
