"""Grok's stream for display (`updates.jsonl`): what the history has lost is still there.

The agent replaces results of long ago in its history by a note, and its whole history by a summary when it compacts;
the stream for display keeps both. Where there is no history at all the agent rebuilds it from here, and so does clew.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

import msgspec

from clew.conversation.loss import Damage
from clew.conversation.model import Call, Image, Message, Part, Reasoning, Text
from clew.conversation.source import Records, Stream
from clew.conversation.text import JsonString, Lazy, text_of
from clew.formats.grok import records as rec
from clew.formats.jsonl import JsonLines

COMPACTED = "compaction_checkpoint"
_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])
_FOR_PROMPT = "output_for_prompt"
_DEPTH = 3


def read_shown(
    records: Records, stream: Stream, damage: list[Damage], *, growing: bool = False
) -> Iterator[tuple[int, rec.Shown, int | None]]:
    """Yields record number, piece and time (ms) of every line for display."""
    for number, line in JsonLines(records, stream, rec.UPDATE, damage, growing=growing):
        if line is None or line.params is rec.NONE:
            continue
        params = rec.decode(line.params, rec.Params)
        shown = rec.decode(params.update, rec.Shown)
        yield number, shown, rec.number(rec.decode(params.meta, rec.ShownMeta).time)


class Kept:
    """The texts of results by call id; the stream is opened when one is first asked for."""

    def __init__(self, stream: Callable[[], Stream | None]) -> None:
        self._open = stream
        self._texts: dict[str, deque[Lazy]] | None = None

    def __call__(self, call_id: str) -> Lazy | None:
        """Returns the text of the next result of this call, None where it is not there."""
        if self._texts is None:
            self._texts, stream = {}, self._open()
            for _, shown, _ in read_shown(Records(), stream, []) if stream is not None else ():
                if shown.type == "tool_call_update" and shown.status in ("completed", "failed"):
                    self._texts.setdefault(rec.text(shown.call_id), deque()).append(result_text(shown))
        found = self._texts.get(call_id)
        if not found:
            return None
        return found.popleft() if len(found) > 1 else found[0]


def result_text(shown: rec.Shown) -> Lazy:
    """Returns what the model was given: the tool's own text for it, else what was shown."""
    prompt = _for_prompt(shown.raw_output, _DEPTH)
    if prompt is not None:
        return prompt
    texts = [JsonString(inner.text) for inner in _contents(shown.content) if rec.first_byte(inner.text) == 0x22]
    return texts[0] if len(texts) == 1 else "".join(map(text_of, texts))


def _for_prompt(raw: msgspec.Raw, depth: int) -> JsonString | None:
    if depth == 0 or rec.first_byte(raw) != 0x7B:
        return None
    try:
        members = _OBJECT.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return None
    for name, value in members.items():
        if name.endswith(_FOR_PROMPT) and rec.first_byte(value) == 0x22:
            return JsonString(value)
    found = (_for_prompt(value, depth - 1) for value in members.values())
    return next((text for text in found if text is not None), None)


def _contents(raw: msgspec.Raw) -> Iterator[rec.ShownContent]:
    for outer in rec.decode_list(raw, rec.ShownContent):
        yield rec.decode(outer.content, rec.ShownContent) if outer.content is not rec.NONE else outer


def message_of(shown: rec.Shown, time_ms: int | None) -> Message | None:
    """Returns the message, or the piece of one, that a line for display is of."""
    match shown.type:
        case "user_message_chunk":
            if rec.decode(shown.meta, rec.ShownMeta).host_turn is True:
                return None
            part = _part(shown.content)
            return None if part is None else Message("user", (part,), "user", "", time_ms)
        case "agent_message_chunk":
            part = _part(shown.content)
            return None if part is None else Message("assistant", (part,), "model", "", time_ms)
        case "agent_thought_chunk":
            text = rec.as_text(rec.decode(shown.content, rec.ShownContent).text)
            return Message("assistant", (Reasoning(text if text is not None else ""),), "model", "", time_ms)
        case "tool_call":
            call = Call(rec.text(shown.call_id), rec.text(shown.title), rec.as_arguments(shown.raw_input))
            return Message("assistant", (call,), "model", "", time_ms)
        case "tool_call_update" if shown.status in ("completed", "failed"):
            text = Text(result_text(shown))
            return Message("tool", (text,), "agent", "", time_ms, "", "", rec.text(shown.call_id))
        case _:
            return None


def _part(raw: msgspec.Raw) -> Part | None:
    content = rec.decode(raw, rec.ShownContent)
    if content.type == "image":
        return Image("")
    text = rec.as_text(content.text)
    return None if text is None else Text(text)
