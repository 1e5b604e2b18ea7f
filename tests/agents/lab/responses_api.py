"""The OpenAI Responses API as far as Codex uses it: reading a request, and answering as events."""

import json
import uuid
from collections.abc import Iterator
from typing import Any

from agents.lab.messages_api import pieces
from agents.lab.script import Call, Part, RawPart, Reasoning, Step, Text

__all__ = ["is_main", "latest_text", "reply", "text_of"]

SPOKEN = ("reasoning", "function_call", "custom_tool_call", "local_shell_call")


def text_of(item: Any) -> str:
    """Returns the text of an input item: of a message's content, or of an output."""
    content = item.get("output") if "output" in item else item.get("content")
    if isinstance(content, str):
        return content
    return "\n".join(part.get("text") or "" for part in content or [] if isinstance(part, dict))


def latest_text(body: Any) -> str:
    """Returns everything said since the model last spoke."""
    items = body.get("input") or []
    if isinstance(items, str):
        return items
    spoke = -1
    for number, item in enumerate(items):
        if item.get("role") == "assistant" or item.get("type") in SPOKEN:
            spoke = number
    return "\n".join(text_of(item) for item in items[spoke + 1 :])


def is_main(body: Any) -> bool:
    """Whether the request belongs to a conversation: here every one does."""
    return isinstance(body, dict)


def _item(part: Part) -> dict[str, Any]:
    made = uuid.uuid4().hex
    match part:
        case Text(text=text, phase=phase):
            content = [{"type": "output_text", "text": text, "annotations": []}]
            item = {"id": f"msg_{made}", "type": "message", "role": "assistant", "status": "completed"}
            return item | {"content": content} | ({"phase": phase} if phase else {})
        case Reasoning(text=text, signature=signature):
            summary = [{"type": "summary_text", "text": text}]
            return {
                "id": f"rs_{made}",
                "type": "reasoning",
                "summary": summary,
                "encrypted_content": signature,
            }
        case Call(name=name, arguments=arguments, id=call_id, namespace=namespace):
            item = {"status": "completed", "name": name, "call_id": call_id or f"call_{made[:24]}"}
            if namespace:
                item["namespace"] = namespace
            if isinstance(arguments, str):
                return {"id": f"ctc_{made}", "type": "custom_tool_call", "input": arguments} | item
            return {"id": f"fc_{made}", "type": "function_call", "arguments": json.dumps(arguments)} | item
        case RawPart(value=value):
            return dict(value)


def reply(body: Any, step: Step, size: int) -> Iterator[dict[str, Any]]:
    """Yields the answer's events; `size` is the request's in bytes."""
    items = [_item(part) for part in step.parts]
    response = {"id": f"resp_{uuid.uuid4().hex}", "object": "response", "model": body.get("model")}
    for number, event in enumerate(_events(response, items, _usage(size, items, step))):
        yield event | {"sequence_number": number}


def _usage(size: int, items: list[dict[str, Any]], step: Step) -> dict[str, Any]:
    asked, spoken = max(1, size // 4), max(1, len(json.dumps(items)) // 4)
    usage: dict[str, Any] = {
        "input_tokens": asked,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": spoken,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": asked + spoken,
    }
    return usage | dict(step.usage or {})


def _events(response: dict[str, Any], items: list[dict[str, Any]], usage: dict[str, Any]) -> Iterator[dict[str, Any]]:
    started = {"status": "in_progress", "output": []}
    yield {"type": "response.created", "response": response | started}
    for index, item in enumerate(items):
        yield from _item_events(index, item)
    done = {"status": "completed", "output": items, "usage": usage}
    yield {"type": "response.completed", "response": response | done}


def _item_events(index: int, item: dict[str, Any]) -> Iterator[dict[str, Any]]:
    at = {"output_index": index}
    kind = item.get("type")
    empty = {"message": {"content": [], "status": "in_progress"}, "reasoning": {"summary": []}}
    empty |= {"function_call": {"arguments": ""}, "custom_tool_call": {"input": ""}}
    yield {"type": "response.output_item.added", "item": item | empty.get(str(kind), {})} | at
    at |= {"item_id": item.get("id")}
    if kind == "message":
        for piece in pieces(item["content"][0]["text"]):
            yield {"type": "response.output_text.delta", "content_index": 0, "delta": piece} | at
    elif kind == "reasoning":
        for number, part in enumerate(item.get("summary", [])):
            where = at | {"summary_index": number}
            opened = {"type": "summary_text", "text": ""}
            yield {"type": "response.reasoning_summary_part.added", "part": opened} | where
            yield {"type": "response.reasoning_summary_text.delta", "delta": part["text"]} | where
    yield {"type": "response.output_item.done", "output_index": index, "item": item}
