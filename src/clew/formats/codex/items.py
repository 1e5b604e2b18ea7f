"""From one item of the conversation to the messages that it holds, with our own marks undone.

Promised: texts stay undecoded unless a mark, an old carrier or a tagged block makes looking necessary. Items that are
no part of the conversation (tool lists, snapshots, encrypted compactions) give no message.
"""

from __future__ import annotations

import re

import msgspec

from clew.conversation.model import Call, Image, Kind, Message, Origin, Part, Reasoning, Text
from clew.conversation.text import JsonString, JsonValue, Lazy, text_of
from clew.formats.codex.context import Sort, sort_by_kind, sort_part
from clew.formats.codex.records import (
    Item,
    Piece,
    as_text,
    decode_kinds,
    decode_pieces,
    decode_text,
    is_there,
)
from clew.formats.marks import INVENTED, Mark, is_standin, unguard_text, unwrap_arguments

UNREADABLE = ("compaction", "compaction_summary", "context_compaction")
"""Items that hold an encrypted summary: no other agent can read one."""

CALLS = ("function_call", "custom_tool_call", "local_shell_call", "tool_search_call")
"""Items that wait for an output."""

NO_MARK = Mark()
"""What a line without a mark has; marks are compared with it by identity."""


def read_item(item: Item, mark: Mark, record: int, time_ms: int | None, model: str = "") -> tuple[Message, ...]:
    """Returns the messages of an item: none, one, or a call together with its result.

    `model` is the one that was set when the item was recorded; what our mark says goes before it.
    """
    kind, model = item.type, mark.model or model
    if kind == "message":
        found = _message(item, mark, time_ms, model)
        return () if found is None else (found,)
    if kind == "reasoning":
        parts = _reasoning(item)
        return (Message("assistant", parts, "model", "", time_ms, model),)
    if kind.endswith("_call"):
        return _call(item, mark, record, time_ms, model)
    if kind.endswith("_output"):
        found = _result(item, mark, time_ms)
        return () if found is None else (found,)
    if kind == "agent_message":
        parts = tuple(Text(text) for piece in _pieces(item) if (text := as_text(piece.text)) is not None)
        return (Message("user", parts, "agent", "notice", time_ms),) if parts else ()
    return ()


def _message(item: Item, mark: Mark, time_ms: int | None, model: str) -> Message | None:
    if item.role == "assistant":
        return Message("assistant", _parts(_pieces(item), mark), "model", "", time_ms, model)
    if item.role != "user":
        return None
    pieces = _pieces(item)
    if mark is not NO_MARK:
        origin: Origin = "agent" if mark.origin == "agent" else "user"
        return Message("user", _parts(pieces, mark), origin, _kind_of(mark.kind), time_ms)
    sorts = _sorts(item, pieces)
    kept = [piece for piece, sort in zip(pieces, sorts, strict=True) if sort != "context"]
    if not kept:
        return None
    left = {sort for sort in sorts if sort != "context"}
    if left == {"said"} or len(left) > 1:
        return Message("user", _parts(kept, mark), "user", "", time_ms)
    return Message("user", _parts(kept, mark), "agent", _kind_of(left.pop()), time_ms)


def _kind_of(name: str) -> Kind:
    match name:
        case "summary" | "interruption" | "command" | "notice":
            return name
        case _:
            return ""


def _pieces(item: Item) -> list[Piece]:
    content = item.content
    if content is None or isinstance(content, list):
        return content or []
    return [Piece("input_text", msgspec.Raw(msgspec.json.encode(content)))]


def _sorts(item: Item, pieces: list[Piece]) -> list[Sort]:
    """Returns what each part is: by the agent's own notes where they are complete, else by whole blocks."""
    kinds = decode_kinds(item.internal_chat_message_metadata_passthrough)
    if kinds is not None and len(kinds) == len(pieces):
        return [sort_by_kind(kind) for kind in kinds]
    return [sort_part(piece.text) if as_text(piece.text) is not None else "said" for piece in pieces]


def _parts(pieces: list[Piece], mark: Mark) -> tuple[Part, ...]:
    parts: list[Part] = []
    for piece in pieces:
        text = as_text(piece.text)
        if text is not None:
            if not mark.standin:
                parts.append(Text(text))
            else:
                parts.append(_unmarked(text_of(text)))
        elif (url := as_text(piece.image_url)) is not None:
            parts.append(read_image(url))
    return tuple(parts)


_STANDIN = re.compile(r"\[clew: an image stands here: (.*), number \d+ of", re.DOTALL)


def _unmarked(text: str) -> Part:
    """Returns what a text of a record with stand-ins was: an image whose bytes are elsewhere, or the text itself."""
    found = _STANDIN.match(text) if is_standin(text) else None
    return Text(unguard_text(text)) if found is None else Image(found.group(1), "")


_DATA_URL = re.compile(rb'"data:([^;,"\\]*);base64,')


def read_image(url: Lazy) -> Image:
    """Returns the image behind a data URL, its base64 undecoded, or one that is only an address."""
    if isinstance(url, JsonString):
        view = memoryview(url.raw)
        head = _DATA_URL.match(bytes(view[:200]))
        if head is not None and b"\\" not in bytes(view[head.end() :]):
            body = JsonString(msgspec.Raw(b'"' + bytes(view[head.end() :])))
            return Image(head.group(1).decode("utf-8", "replace"), body)
    return Image("", "", text_of(url))


def _reasoning(item: Item) -> tuple[Part, ...]:
    parts = [Reasoning(text) for piece in decode_pieces(item.summary) if (text := as_text(piece.text)) is not None]
    if not parts:
        parts = [Reasoning(text) for piece in _pieces(item) if (text := as_text(piece.text)) is not None]
    return tuple(parts) or (Reasoning(),)


# --- calls ------------------------------------------------------------------------------------------------


def _call(item: Item, mark: Mark, record: int, time_ms: int | None, model: str) -> tuple[Message, ...]:
    name, id_ = item.name or "", item.call_id or decode_text(item.id) or f"{item.type}_{record}"
    if item.namespace:
        name = f"{item.namespace}.{name}"
    match item.type:
        case "function_call":
            arguments = _as_arguments(item.arguments)
        case "custom_tool_call":
            arguments = _as_arguments(item.input)
        case "tool_search_call":
            name, arguments = name or item.type, _as_arguments(item.arguments)
        case "image_generation_call":
            return _image_generation(item, id_, time_ms)
        case _:  # local_shell_call, web_search_call and their kind: the action is what was asked for
            name, arguments = name or item.type, _as_arguments(item.action)
    if mark is not NO_MARK:
        name = mark.name if mark.name is not None else name
        if mark.text:
            arguments = _unwrapped(arguments)
    return (Message("assistant", (Call(id_, name, arguments),), "model", "", time_ms, model),)


def _as_arguments(raw: msgspec.Raw) -> Lazy:
    text = as_text(raw)
    if text is not None:
        return text
    return JsonValue(raw) if is_there(raw) else ""


def _unwrapped(arguments: Lazy) -> Lazy:
    found = unwrap_arguments(text_of(arguments).encode())
    return arguments if found is None else found


def _image_generation(item: Item, id_: str, time_ms: int | None) -> tuple[Message, ...]:
    """The provider makes an image by itself: the picture stands in the call's own item."""
    call = Message("assistant", (Call(id_, item.type),), "model", "", time_ms)
    body = as_text(item.result)
    if body is None:
        return (call,)
    return call, Message("tool", (Image("image/png", body),), "agent", "", time_ms, "", "", id_)


# --- results ----------------------------------------------------------------------------------------------

_EXIT = re.compile(
    rb'"(?:Chunk ID: \w{1,40}\\nWall time: [^\\"]{0,80}\\nProcess exited with code|Exit code:) (-?\d{1,20})\\n'
)
_EXIT_TEXT = re.compile(
    r'(?:Chunk ID: \w{1,40}\nWall time: [^\\"\n]{0,80}\nProcess exited with code|Exit code:) (-?\d{1,20})\n', re.ASCII
)
_CARRIER = re.compile(rb'"\{\s*\\"output\\":')


class _Metadata(msgspec.Struct, frozen=True):
    exit_code: int | None = None


class _Carrier(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What versions of 2025 put around the output of a shell command."""

    output: str
    metadata: _Metadata


_DECODE_CARRIER = msgspec.json.Decoder(_Carrier)


def _result(item: Item, mark: Mark, time_ms: int | None) -> Message | None:
    if mark.invented or is_invented_result(item.output):
        return None
    parts, is_error = _output(item, mark)
    if mark.error is not None:
        is_error = mark.error
    id_ = item.call_id or decode_text(item.id)
    return Message("tool", parts, "agent", "", time_ms, "", "", id_, is_error)


def is_invented_result(raw: msgspec.Raw) -> bool:
    """Tells whether an output is the sentence of an invented answer, also where its mark is gone."""
    view = memoryview(raw)
    return len(view) == len(INVENTED) + 2 and bytes(view[1:-1]) == INVENTED.encode()


def _output(item: Item, mark: Mark) -> tuple[tuple[Part, ...], bool | None]:
    raw = item.output if is_there(item.output) else item.tools
    text = as_text(raw)
    if text is None:
        if is_there(raw) and memoryview(raw)[0] == 0x5B and item.type != "tool_search_output":
            return _parts(decode_pieces(raw), mark), _exit_code_says(raw)
        return ((Text(JsonValue(raw)),) if is_there(raw) else ()), None
    if mark.said:
        return (Text(unguard_text(text_of(text))),), None
    if _CARRIER.match(bytes(memoryview(raw)[:32])):
        try:
            carrier = _DECODE_CARRIER.decode(text_of(text))
        except (msgspec.DecodeError, RecursionError):
            pass
        else:
            code = carrier.metadata.exit_code
            return (Text(carrier.output),), None if code is None else code != 0
    return (Text(text),), _exit_code_says(raw)


def exit_code_says(text: str) -> bool | None:
    """Returns whether a command failed, by the agent's own head line; Codex has no flag for it."""
    found = _EXIT_TEXT.match(text)
    return None if found is None else found.group(1) != "0"


def _exit_code_says(raw: msgspec.Raw) -> bool | None:
    """Returns the same from the undecoded text."""
    found = _EXIT.match(bytes(memoryview(raw)[:256]))
    return None if found is None else found.group(1) != b"0"
