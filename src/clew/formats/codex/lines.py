"""How one message becomes lines of a rollout: items of the Responses API, with marks where the original is another.

Promised: every line is what the agent's own loader takes (it drops silently what has another shape), names and call
ids are what the API takes, every call has an output, and the reader gives the original of all of it back. Texts are
encoded one message at a time.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache

import msgspec

from clew.conversation.canonical import normal_arguments
from clew.conversation.loss import Loss
from clew.conversation.model import Call, Image, Message, Part, Reasoning, Text
from clew.conversation.text import is_empty, mend_surrogates
from clew.formats.codex.context import sort_by_text
from clew.formats.codex.items import exit_code_says
from clew.formats.marks import (
    INVENTED,
    CallIds,
    Mark,
    Names,
    guard_text,
    is_invented,
    standin_text,
)

Json = dict[str, object]

_encode = msgspec.json.Encoder().encode
_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])
_HELD = ("image/png", "image/jpeg", "image/jpg", "image/gif", "image/webp")
_QUALIFIED = re.compile(r"([A-Za-z0-9_-]{1,64})\.([A-Za-z0-9_-]{1,64})")
_CARRIER = re.compile(r'\{\s*"output":')
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_MS = 253_402_300_799_000  # the end of the year 9999


@lru_cache(8)  # the lines of one message have one time
def time_text(ms: int) -> str:
    """Returns the time as RFC 3339 in UTC with milliseconds, as the agent writes it."""
    minute, rest = divmod(ms, 60_000)
    return f"{_minute_text(minute)}{rest // 1000:02d}.{rest % 1000:03d}Z"


@lru_cache(8)
def _minute_text(minute: int) -> str:
    return (_EPOCH + timedelta(minutes=minute)).strftime("%Y-%m-%dT%H:%M:")


def is_held(image: Image) -> bool:
    """Tells whether the API takes an image: a type that it knows, or an address on the web."""
    if image.url:
        return image.url.startswith(("https://", "http://"))
    return image.media_type.lower() in _HELD and not is_empty(image.source)


class Line(msgspec.Struct, frozen=True):
    """One line before it has its time and its place in the file."""

    type: str
    payload: Json
    mark: Mark | None = None
    time_ms: int | None = None


class Rows:
    """Makes lines of messages, one after the other; keeps names, call ids and open calls."""

    def __init__(self, messages: Sequence[Message], *, model: str = "", taken: Iterable[str] = ()) -> None:
        self.model = model
        self.names = Names()
        self.names.reserve(call.name for message in messages for call in message.calls)
        self.ids = CallIds(taken=taken)
        self._open: dict[str, deque[tuple[str, bool]]] = {}

    def of_user(self, message: Message) -> Line:
        """Returns the item of a user message."""
        content, standins = _content(message.parts, "input_text")
        mark: Mark | None = None
        if message.origin == "agent":
            mark = Mark(origin="agent", kind=message.kind, standin=standins)
        elif standins or any(sort_by_text(str(entry.get("text", ""))) != "said" for entry in content):
            mark = Mark(standin=standins, said=True)
        payload: Json = {"type": "message", "role": "user", "content": content}
        return Line("response_item", payload, mark, message.time_ms)

    def of_assistant(self, message: Message) -> Iterator[Line]:
        """Yields the items of an assistant message in the order of its parts; texts side by side are one item."""
        model = message.model if message.model != self.model else ""
        texts: list[Part] = []
        for part in message.parts:
            if not isinstance(part, Call):
                texts.append(part)
                continue
            yield from _said(texts, model, message.time_ms)
            texts = []
            yield self._call(part, model, message.time_ms)
        yield from _said(texts, model, message.time_ms)

    def _call(self, call: Call, model: str, time_ms: int | None) -> Line:
        arguments = call.arguments
        if not arguments or arguments.isspace():
            arguments = "{}"
        is_object = _is_object(arguments)
        given = self.ids.open_call(call.id)
        self._open.setdefault(call.id, deque()).append((given, is_object))
        payload: Json = {"type": "function_call" if is_object else "custom_tool_call"}
        qualified = _QUALIFIED.fullmatch(call.name) if is_object else None
        if qualified is not None:
            payload["name"], payload["namespace"] = qualified.group(2), qualified.group(1)
            name = call.name
        else:
            payload["name"] = name = self.names.legal(call.name)
        if is_object:
            payload["arguments"] = arguments
        else:
            payload["input"] = arguments
        payload["call_id"] = given
        mark: Mark | None = None
        if name != call.name or given != call.id or model:
            mark = Mark(
                name=call.name if name != call.name else None, id=call.id if given != call.id else None, model=model
            )
        return Line("response_item", payload, mark, time_ms)

    def of_result(self, result: Message) -> Line | None:
        """Returns the item of a result; None where it answers no call (no normal form has such a one)."""
        waiting = self._open.get(result.call_id)
        if not waiting:
            return None
        given, is_object = waiting.popleft()
        output, standins, said = _output(result)
        error = result.is_error
        if error is not None and isinstance(output, str) and error == exit_code_says(output):
            error = None
        mark: Mark | None = None
        if given != result.call_id or error is not None or standins or said:
            mark = Mark(
                id=result.call_id if given != result.call_id else None, error=error, standin=standins, said=said
            )
        return Line("response_item", _answer(given, is_object, output), mark, result.time_ms)

    def invented(self, time_ms: int | None) -> Iterator[Line]:
        """Yields made-up outputs for all calls that are still open, and closes them."""
        for waiting in self._open.values():
            for given, is_object in waiting:
                yield Line("response_item", _answer(given, is_object, INVENTED), Mark(invented=True), time_ms)
        self._open.clear()


def _said(parts: Sequence[Part], model: str, time_ms: int | None) -> Iterator[Line]:
    content, standins = _content(parts, "output_text")
    if content:
        payload: Json = {"type": "message", "role": "assistant", "content": content}
        mark = Mark(standin=standins, model=model) if standins or model else None
        yield Line("response_item", payload, mark, time_ms)


def _is_object(text: str) -> bool:
    """Tells whether arguments are a JSON object, which is what a `function_call` takes."""
    if not text.lstrip().startswith("{"):
        return False
    try:
        _OBJECT.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        normal = normal_arguments(text)  # escaped halves of surrogate pairs are JSON as well
        return isinstance(normal, msgspec.Raw)
    return True


def _content(parts: Sequence[Part], kind: str) -> tuple[list[Json], int]:
    """Returns the content list for texts and images, and how many of its parts stand for images.

    Where there is one, texts that begin like clew's own sentences are guarded, so that only it is taken off again.
    """
    entries: list[Json] = []
    standins = sum(1 for part in parts if isinstance(part, Image) and not _is_kept(part, kind))
    for part in parts:
        if isinstance(part, Text):
            if not part.is_empty:
                entries.append({"type": kind, "text": guard_text(part.text) if standins else part.text})
        elif isinstance(part, Image):
            if _is_kept(part, kind):
                url = part.url or f"data:{part.media_type};base64,{part.data}"
                entries.append({"type": "input_image", "image_url": url})
            else:
                text = standin_text(part.media_type or "image", len(entries) + 1)
                entries.append({"type": kind, "text": text})
    return entries, standins


def _is_kept(image: Image, kind: str) -> bool:
    return kind == "input_text" and is_held(image)


def _output(result: Message) -> tuple[str | list[Json], int, bool]:
    """Returns an output, how many parts of it are stand-ins, and whether it is to be taken as it stands."""
    parts = [part for part in result.parts if not (isinstance(part, Text) and part.is_empty)]
    if not parts:
        return "", 0, False
    if len(parts) == 1 and isinstance(parts[0], Text):
        text = parts[0].text
        if is_invented(text):
            return guard_text(text), 0, True
        return text, 0, _CARRIER.match(text) is not None
    content, standins = _content(parts, "input_text")
    return content, standins, False


def answer_line(call_id: str, call_type: str, time_ms: int | None = None) -> Line:
    """Returns the made-up output of a call of this type."""
    if call_type == "tool_search_call":
        payload: Json = {"type": call_type.removesuffix("call") + "output", "call_id": call_id, "tools": ()}
        payload |= {"status": "completed", "execution": "client"}
        return Line("response_item", payload, Mark(invented=True), time_ms)
    output = _answer(call_id, call_type != "custom_tool_call", INVENTED)
    return Line("response_item", output, Mark(invented=True), time_ms)


def _answer(call_id: str, is_object: bool, output: str | list[Json]) -> Json:
    kind = "function_call_output" if is_object else "custom_tool_call_output"
    return {"type": kind, "call_id": call_id, "output": output}


def spoken(line: Line) -> str:
    """Returns the text of an assistant's message item, for display."""
    content = line.payload.get("content")
    if not isinstance(content, list):
        return ""
    return "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))  # type: ignore[union-attr]


def encode_line(line: Line, time_ms: int, ordinal: int | None = None) -> bytes:
    """Returns a line as bytes, with its newline; `time_ms` is used where the line has no time of its own."""
    ms = line.time_ms if line.time_ms is not None and 0 <= line.time_ms <= _LAST_MS else time_ms
    whole: Json = {"timestamp": time_text(ms)}
    if ordinal is not None:
        whole["ordinal"] = ordinal
    whole["type"] = line.type
    whole["payload"] = line.payload
    if line.mark is not None:
        whole["clew"] = line.mark
    try:
        return _encode(whole) + b"\n"
    except UnicodeEncodeError:  # a lone surrogate in a name, an id, arguments, a folder: no file can hold it
        text = json.dumps(msgspec.to_builtins(whole), ensure_ascii=False, separators=(",", ":"))
        return mend_surrogates(text).encode() + b"\n"


def count_losses(messages: Iterable[Message]) -> tuple[Loss, ...]:
    """Returns what a rollout cannot say of these messages, without decoding a text."""
    reasoning = images = flags = 0
    for message in messages:
        flags += message.is_error is True
        for part in message.parts:
            reasoning += isinstance(part, Reasoning)
            if isinstance(part, Image):
                images += message.role == "assistant" or not is_held(part)
    found = (("reasoning blocks", reasoning), ("images", images), ("error flags", flags))
    return tuple(Loss(what, count) for what, count in found if count)


def count_unanswered(messages: Iterable[Message]) -> int:
    """Returns how many calls have no result."""
    waiting: dict[str, int] = {}
    for message in messages:
        if message.role == "tool":
            waiting[message.call_id] = waiting.get(message.call_id, 0) - 1
        for call in message.calls:
            waiting[call.id] = waiting.get(call.id, 0) + 1
    return sum(count for count in waiting.values() if count > 0)
