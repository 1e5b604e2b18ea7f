"""The Anthropic Messages API as far as Claude Code uses it: reading a request, and answering as events."""

import json
import uuid
from collections.abc import Iterator
from typing import Any

from agents.lab.script import Call, Part, RawPart, Reasoning, Step, Text

__all__ = ["is_main", "latest_text", "reply", "whole"]

CHUNK = 40
BIG_CHUNK = 8000


def text_of(content: Any) -> str:
    """Returns the text of a message's content or of a result's, tool results included."""
    if isinstance(content, str):
        return content
    texts: list[str] = []
    for block in content or []:
        if block.get("type") == "text":
            texts.append(block.get("text", ""))
        elif block.get("type") == "tool_result":
            texts.append(text_of(block.get("content")))
    return "\n".join(texts)


def latest_text(body: Any) -> str:
    """Returns everything said since the model last spoke."""
    messages = body.get("messages") or []
    spoke = max((n for n, message in enumerate(messages) if message.get("role") == "assistant"), default=-1)
    return "\n".join(text_of(message.get("content")) for message in messages[spoke + 1 :])


def is_main(body: Any) -> bool:
    """Whether the request belongs to a conversation with tools (titles and the like are asked for without)."""
    return bool(body.get("tools"))


def _block(part: Part) -> dict[str, Any]:
    match part:
        case Text(text=text):
            return {"type": "text", "text": text}
        case Reasoning(text=text, signature=signature):
            return {"type": "thinking", "thinking": text, "signature": signature}
        case Call(name=name, arguments=arguments, id=call_id):
            made = call_id or f"toolu_01{uuid.uuid4().hex[:22]}"
            return {"type": "tool_use", "id": made, "name": name, "input": arguments}
        case RawPart(value=value):
            return dict(value)


def _usage(size: int, step: Step) -> dict[str, Any]:
    usage: dict[str, Any] = {
        "input_tokens": max(1, size // 4),
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
        "output_tokens": 1,
        "service_tier": "standard",
    }
    return usage | dict(step.usage or {})


def _stop(step: Step) -> str:
    if step.stop:
        return step.stop
    return "tool_use" if any(isinstance(part, Call) for part in step.parts) else "end_turn"


def whole(body: Any, step: Step, size: int) -> dict[str, Any]:
    """Returns the answer as one JSON object, for a request that does not stream."""
    return {
        "id": f"msg_01{uuid.uuid4().hex[:22]}",
        "type": "message",
        "role": "assistant",
        "model": body.get("model"),
        "content": [_block(part) for part in step.parts],
        "stop_reason": _stop(step),
        "stop_sequence": None,
        "usage": _usage(size, step),
    }


def reply(body: Any, step: Step, size: int) -> Iterator[dict[str, Any]]:
    """Yields the answer's events; `size` is the request's in bytes."""
    message = whole(body, step, size)
    blocks = message["content"]
    opened = message | {"content": [], "stop_reason": None}
    yield {"type": "message_start", "message": opened}
    for index, block in enumerate(blocks):
        yield from _block_events(index, block)
    # A few tokens more than none: some agents read the numbers.
    spoken = max(1, len(json.dumps(blocks)) // 4)
    usage = {"output_tokens": spoken} | dict(step.usage or {})
    delta = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    yield {"type": "message_delta", "delta": delta, "usage": message["usage"] | usage}
    yield {"type": "message_stop"}


def _block_events(index: int, block: dict[str, Any]) -> Iterator[dict[str, Any]]:
    def delta(**value: Any) -> dict[str, Any]:
        return {"type": "content_block_delta", "index": index, "delta": value}

    def start(value: dict[str, Any]) -> dict[str, Any]:
        return {"type": "content_block_start", "index": index, "content_block": value}

    kind = block["type"]
    if kind == "text":
        yield start({"type": "text", "text": ""})
        for piece in pieces(block["text"]):
            yield delta(type="text_delta", text=piece)
    elif kind == "thinking":
        yield start({"type": "thinking", "thinking": "", "signature": ""})
        for piece in pieces(block["thinking"]):
            yield delta(type="thinking_delta", thinking=piece)
        yield delta(type="signature_delta", signature=block["signature"])
    elif kind == "tool_use":
        yield start({"type": "tool_use", "id": block["id"], "name": block["name"], "input": {}})
        for piece in pieces(json.dumps(block["input"])):
            yield delta(type="input_json_delta", partial_json=piece)
    else:
        yield start(block)
    yield {"type": "content_block_stop", "index": index}


def pieces(text: str) -> Iterator[str]:
    """Cuts a text as a model streams it: small pieces, larger ones where it is long."""
    size = CHUNK if len(text) < 5000 else BIG_CHUNK
    for start in range(0, len(text), size):
        yield text[start : start + size]
