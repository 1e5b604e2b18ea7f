"""What a real agent sent to its model, in one shape for all agents.

`Seen.messages` is a list of plain dicts, one a message of the request: {role, text, texts, tool_calls,
tool_results, images, reasoning}. `role` is user, assistant or tool; `text` is the concatenation of `texts`
(one entry a text block); a call is {id, name, arguments}; a result {call_id, text, is_error}, is_error None
where the agent does not say; an image is its data URL. Results come as a message of their own (role tool),
also where the API puts them in a user message. What the harness adds by itself (system reminders, developer
messages, environment) is in `Seen.injected`, never in `messages`.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = ["PROBE", "Seen", "from_chat_api", "from_gemini_api", "from_messages_api", "from_responses_api"]

PROBE = "Probe: go on from here, please."
"""The prompt that a resumed session is given, where the caller names none."""

REMINDER = re.compile(r"\s*<system-reminder>.*</system-reminder>\s*", re.DOTALL)

CODEX_CONTEXT = (
    "<environment_context>",
    "# AGENTS.md instructions",
    "<user_instructions>",
    "<permissions instructions>",
    "<skill>",
    "<skills_instructions>",
    "<collaboration_mode>",
    "<model_switch>",
    "<turn_aborted>",
)
"""How Codex opens the user messages that it writes itself and that carry nothing of the conversation."""

Message = dict[str, Any]


@dataclass(frozen=True)
class Seen:
    """One run of a real agent.

    exit: its exit status; None when it was ended by us. refusal: what it said when it would not go on.
    messages: the conversation of the first request that holds the prompt, the prompt included.
    history: the same without the prompt. request: that request's body; requests: all bodies of the run.
    """

    exit: int | None
    refusal: str = ""
    session_id: str | None = None
    messages: tuple[Message, ...] = ()
    injected: tuple[dict[str, str], ...] = ()
    request: Any = None
    requests: tuple[Any, ...] = ()
    reply: str = ""
    events: tuple[Any, ...] = field(default=(), repr=False)
    prompt: str = ""

    @property
    def resumed(self) -> bool:
        """Whether the agent ended well and its model was asked with the prompt."""
        return self.exit == 0 and self.request is not None

    @property
    def history(self) -> tuple[Message, ...]:
        """What was sent before the prompt."""
        for number in range(len(self.messages) - 1, -1, -1):
            message = self.messages[number]
            if message["role"] == "user" and self.prompt in message["texts"]:
                at = message["texts"].index(self.prompt)
                rest = message["texts"][:at]
                kept = self.messages[:number]
                if not rest and not message["images"]:
                    return kept
                return (*kept, message | {"texts": rest, "text": "".join(rest)})
        return self.messages


def message(role: str) -> Message:
    """Makes an empty message."""
    return {
        "role": role,
        "text": "",
        "texts": [],
        "tool_calls": [],
        "tool_results": [],
        "images": [],
        "reasoning": [],
    }


def _add_text(target: Message, text: str) -> None:
    target["texts"].append(text)
    target["text"] += text


def _is_empty(found: Message) -> bool:
    return not any(found[name] for name in ("texts", "tool_calls", "tool_results", "images", "reasoning"))


def from_messages_api(body: Any) -> tuple[list[Message], list[dict[str, str]]]:
    """Reads the messages of a request of the Messages API, and what the harness injected."""
    out: list[Message] = []
    injected: list[dict[str, str]] = []
    for source in body.get("messages") or []:
        role = source["role"]
        content = source.get("content")
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content or []
        results, said = message("tool"), message("assistant" if role == "assistant" else "user")
        for block, following in zip(blocks, [*blocks[1:], {}], strict=False):
            kind = block.get("type")
            if kind == "text":
                text = block.get("text", "")
                if role == "user" and following.get("type") == "text":
                    text = text.removesuffix("\n")  # Claude Code ends a text so, where it joins two messages
                if role == "system" or (role == "user" and REMINDER.fullmatch(text)):
                    injected.append({"role": role, "text": text})
                else:
                    _add_text(said, text)
            elif kind == "tool_result":
                _read_result(results, block)
            else:
                _read_block(said, block)
        out.extend(found for found in (results, said) if not _is_empty(found))
    return out, injected


def _read_result(target: Message, block: Any) -> None:
    content = block.get("content")
    if isinstance(content, list):
        texts = [part.get("text", "") for part in content if part.get("type") == "text"]
        target["images"].extend(_data_url(part) for part in content if part.get("type") == "image")
        content = "".join(texts)
    failed = block.get("is_error")
    target["tool_results"].append(
        {"call_id": block.get("tool_use_id"), "text": content or "", "is_error": bool(failed)}
    )


def _read_block(target: Message, block: Any) -> None:
    kind = block.get("type")
    if kind == "tool_use":
        call = {"id": block.get("id"), "name": block.get("name"), "arguments": block.get("input")}
        target["tool_calls"].append(call)
    elif kind == "image":
        target["images"].append(_data_url(block))
    elif kind == "thinking":
        target["reasoning"].append({"text": block.get("thinking", ""), "signature": block.get("signature", "")})
    elif kind == "redacted_thinking":
        target["reasoning"].append({"text": "", "signature": block.get("data", "")})
    else:
        target.setdefault("other", []).append(block)


def _data_url(block: Any) -> str:
    source = block.get("source") or {}
    return f"data:{source.get('media_type')};base64,{source.get('data')}"


def from_responses_api(body: Any) -> tuple[list[Message], list[dict[str, str]]]:
    """Reads the messages of a request of the Responses API, and what the harness injected."""
    out: list[Message] = []
    injected: list[dict[str, str]] = []

    def current(role: str) -> Message:
        if role == "user" or not out or out[-1]["role"] != role:
            out.append(message(role))
        return out[-1]

    for item in body.get("input") or []:
        kind = item.get("type", "message")
        if kind == "message":
            texts, images = _parts(item.get("content"))
            role = item.get("role", "user")
            opening = texts[0].lstrip() if texts else ""
            if role in ("developer", "system") or (role == "user" and opening.startswith(CODEX_CONTEXT)):
                injected.append({"role": role, "text": "".join(texts)})
                continue
            target = current(role)
            for text in texts:
                _add_text(target, text)
            target["images"].extend(images)
        elif kind == "additional_tools":
            injected.append({"role": "tools", "text": json.dumps(item)})
        elif kind == "reasoning":
            said = "".join(part.get("text", "") for part in item.get("summary") or [])
            current("assistant")["reasoning"].append({"text": said, "signature": item.get("encrypted_content") or ""})
        elif kind.endswith("_output"):
            _read_output(current("tool"), item)
        elif kind.endswith("_call"):
            current("assistant")["tool_calls"].append(_call(item))
        else:
            current("assistant").setdefault("other", []).append(item)
    return out, injected


def _parts(content: Any) -> tuple[list[str], list[str]]:
    if isinstance(content, str):
        return [content], []
    texts: list[str] = []
    images: list[str] = []
    for part in content or []:
        if part.get("type") == "input_image":
            images.append(part.get("image_url") or "")
        else:
            texts.append(part.get("text", ""))
    return texts, images


def _call(item: Any) -> dict[str, Any]:
    arguments = item.get("arguments", item.get("input", item.get("action")))
    if item.get("type") == "function_call":
        try:
            arguments = json.loads(arguments)
        except ValueError:
            pass  # not JSON: Codex sends such arguments as they are
    found = {"id": item.get("call_id"), "name": item.get("name") or item["type"], "arguments": arguments}
    return found | ({"namespace": item["namespace"]} if item.get("namespace") else {})


def from_chat_api(body: Any) -> tuple[list[Message], list[dict[str, str]]]:
    """Reads the messages of a request of the Chat Completions API, and what the harness injected."""
    out: list[Message] = []
    injected: list[dict[str, str]] = []
    for source in body.get("messages") or []:
        role = source.get("role", "user")
        content = source.get("content")
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else content or []
        texts = [part.get("text") or "" for part in parts if part.get("type") == "text"]
        images = [(part.get("image_url") or {}).get("url", "") for part in parts if part.get("type") == "image_url"]
        if role in ("system", "developer") or (role == "user" and texts and REMINDER.fullmatch("".join(texts))):
            injected.append({"role": role, "text": "".join(texts)})
            continue
        if role == "tool":
            if not out or out[-1]["role"] != "tool":
                out.append(message("tool"))
            found = {"call_id": source.get("tool_call_id"), "text": "".join(texts), "is_error": None}
            out[-1]["tool_results"].append(found)
            out[-1]["images"].extend(images)
            continue
        target = message("assistant" if role == "assistant" else "user")
        for text in texts:
            if text:
                _add_text(target, text)
        target["images"].extend(images)
        if source.get("reasoning_content"):
            target["reasoning"].append({"text": source["reasoning_content"], "signature": ""})
        for call in source.get("tool_calls") or []:
            target["tool_calls"].append(_chat_call(call))
        if not _is_empty(target):
            out.append(target)
    return out, injected


def _chat_call(call: Any) -> dict[str, Any]:
    function = call.get("function") or {}
    arguments = function.get("arguments")
    try:
        arguments = json.loads(arguments)
    except (TypeError, ValueError):
        pass  # not JSON: sent as it is
    return {"id": call.get("id"), "name": function.get("name"), "arguments": arguments}


GEMINI_FILLERS = (
    "[The previous response was interrupted before it completed.]",
    "[Continuing from previous AI thoughts...]",
    "\u200b",
)
"""Texts that Gemini CLI puts in where its API wants a turn, and the sign with which clew guards a text."""


def from_gemini_api(body: Any) -> tuple[list[Message], list[dict[str, str]]]:
    """Reads the contents of a request of the Gemini API, and what the harness injected.

    A picture behind a response belongs to the result; the agent's own context is a text that comes first of all.
    """
    out: list[Message] = []
    injected: list[dict[str, str]] = []
    for number, content in enumerate(body.get("contents") or []):
        role = "assistant" if content.get("role") == "model" else "user"
        results, said = message("tool"), message(role)
        for place, part in enumerate(content.get("parts") or []):
            text = part.get("text")
            response = part.get("functionResponse")
            if response is not None:
                results["tool_results"].append(_gemini_result(response))
            elif "functionCall" in part:
                call = part["functionCall"]
                said["tool_calls"].append({"id": call.get("id"), "name": call["name"], "arguments": call.get("args")})
            elif "inlineData" in part:
                data = part["inlineData"]
                target = results if results["tool_results"] and not said["texts"] else said
                target["images"].append(f"data:{data.get('mimeType')};base64,{data.get('data')}")
            elif text in GEMINI_FILLERS or (number == place == 0 and str(text).startswith("<session_context>")):
                injected.append({"role": role, "text": text})
            elif isinstance(text, str) and not part.get("thought"):
                _add_text(said, text)
        out.extend(found for found in (results, said) if not _is_empty(found))
    return out, injected


def _gemini_result(response: Any) -> dict[str, Any]:
    given = response.get("response") or {}
    failed = "output" not in given and isinstance(given.get("error"), str)
    text = given.get("error" if failed else "output")
    return {
        "call_id": response.get("id"),
        "text": text if isinstance(text, str) else json.dumps(given),
        "is_error": failed,
    }


EXIT = re.compile(r"(?:exited with code|Exit code:) (-?\d+)")


def _read_output(target: Message, item: Any) -> None:
    texts, images = _parts(item.get("output"))
    text = "".join(texts)
    code = EXIT.search(text)
    failed = None if code is None else code.group(1) != "0"
    target["tool_results"].append({"call_id": item.get("call_id"), "text": text, "is_error": failed})
    target["images"].extend(images)


def find_prompt(bodies: Sequence[Any], read: Any, prompt: str) -> tuple[Any, list[Message], list[dict[str, str]]]:
    """Returns the first request whose conversation holds the prompt as a text of the user, read."""
    for body in bodies:
        found, injected = read(body)
        if any(one["role"] == "user" and prompt in one["texts"] for one in found):
            return body, found, injected
    return None, [], []
