"""How messages become lines of Grok's history and of its stream for display."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from clew.conversation.groups import group_messages
from clew.conversation.model import Call, Group, Image, Message, Text
from clew.conversation.text import JsonString, Lazy, is_empty, mend_surrogates, text_of
from clew.formats.grok import records as rec
from clew.formats.grok.said import CLOSE, OPEN, needs_wrapper, reason_of
from clew.formats.jsonout import Json, encode_line, spell_text
from clew.formats.marks import INVENTED, CallIds, Mark, Names, guard_text, standin_text, wrap_arguments

_ENCODE = msgspec.json.Encoder().encode
_OURS = re.compile(r"\\*\[clew: ")
_OURS_SPELLED = re.compile(rb'"(?:\\\\)*\[clew: ')
_MEDIA = frozenset({"image/png", "image/jpeg", "image/jpg", "image/webp"})


class _Calls:
    """Ids and names as they are written, the same in both files."""

    def __init__(self, messages: Sequence[Message], taken: Iterable[str]) -> None:
        self.names = Names()
        self.names.reserve(call.name for message in messages for call in message.calls)
        self.ids = CallIds(taken=taken)

    def of(self, group: Group) -> tuple[list[tuple[Call, str]], dict[int, Message]]:
        """Returns the calls of a reply with the ids that they get, and the results by the place of their call."""
        given = [(call, self.ids.open_call(call.id)) for call in group.head.calls]
        waiting: dict[str, deque[int]] = {}
        for place, (call, _) in enumerate(given):
            waiting.setdefault(call.id, deque()).append(place)
        answers: dict[int, Message] = {}
        for result in group.results:
            places = waiting.get(result.call_id)
            if places:
                answers[places.popleft()] = result
        return given, answers


class Lines:
    """One pass of writing the history."""

    def __init__(
        self,
        messages: Sequence[Message],
        *,
        origin: str = "",
        model: str = "",
        taken: Iterable[str] = (),
        prompts: int = 0,
    ) -> None:
        self.messages, self.origin, self.model, self.prompts = messages, origin, model, prompts
        self.calls = _Calls(messages, taken)
        self.is_first = True

    def lines(self, left: Sequence[str] = ()) -> Iterator[bytes]:
        """Yields the lines; first made-up answers to the calls that a prefix left open."""
        for call_id in left:
            yield encode_line(_result_line(call_id, INVENTED))
        for group in group_messages(self.messages):
            if group.head.role == "user":
                line = self._user(group.head)
                if line is not None:
                    self.is_first = False
                    yield encode_line(line)
            else:
                yield from self._reply(group)
                self.is_first = False

    def _user(self, message: Message) -> Json | None:
        content = list(_user_content(message))
        if not content:
            return None
        line: Json = {"type": "user", "content": content}
        mark = Mark(from_=self.origin if self.is_first else "")
        if message.origin == "user":
            line["prompt_index"] = self.prompts
            self.prompts += 1
        else:
            line["synthetic_reason"] = reason_of(message.kind)
            mark = msgspec.structs.replace(mark, origin="agent", kind=message.kind)
        if mark != Mark():
            line["clew"] = mark
        return line

    def _reply(self, group: Group) -> Iterator[bytes]:
        message = group.head
        given, answers = self.calls.of(group)
        said, content, standin = _reply_content(message)
        marks: list[rec.CallMark | None] = []
        calls: list[Json] = []
        for place, (call, call_id) in enumerate(given):
            mark, body = self._call(call, call_id, answers.get(place))
            marks.append(mark)
            calls.append(body)
        mark = rec.ReplyMark(from_=self.origin, calls=tuple(marks) if any(marks) else (), said=said, standin=standin)
        self.origin = ""
        line: Json = {"type": "assistant", "content": content}
        if calls:
            line["tool_calls"] = calls
        model = message.model or self.model
        if model:
            line["model_id"] = mend_surrogates(model)
        if mark != rec.ReplyMark():
            line["model_fingerprint"] = rec.FINGERPRINT + _ENCODE(mark).decode()
        yield encode_line(line)
        for place in sorted(answers, key=lambda at: group.results.index(answers[at])):
            yield encode_line(_answer_line(given[place][1], answers[place]))
        for place, (_, call_id) in enumerate(given):
            if place not in answers:
                yield encode_line(_result_line(call_id, INVENTED))

    def _call(self, call: Call, call_id: str, answer: Message | None) -> tuple[rec.CallMark | None, Json]:
        name = self.calls.names.legal(call.name)
        data, wrapped = wrap_arguments(call.arguments)
        mark = rec.CallMark(
            id=mend_surrogates(call.id) if call_id != call.id else None,
            name=mend_surrogates(call.name) if name != call.name else None,
            text=wrapped,
            said=answer is not None and is_guarded(answer),
        )
        body: Json = {"id": call_id, "name": name, "arguments": data.decode()}
        return mark if mark != rec.CallMark() else None, body


class Display:
    """One pass of writing the stream for display: what a person sees of the past, and results whole."""

    def __init__(
        self,
        messages: Sequence[Message],
        session_id: str,
        now_ms: int,
        *,
        taken: Iterable[str] = (),
        prompts: int = 0,
    ) -> None:
        self.messages, self.session_id, self.prompts = messages, session_id, prompts
        self.time_ms = next((m.time_ms for m in messages if m.time_ms is not None), now_ms)
        self.calls = _Calls(messages, taken)
        self.count = 0

    def lines(self, *, plain: bool = False) -> Iterator[bytes]:
        """Yields the lines; with `plain` results stand as they are, for a reader that has no marks."""
        for group in group_messages(self.messages):
            self.time_ms = group.head.time_ms if group.head.time_ms is not None else self.time_ms
            if group.head.role == "user":
                yield from self._user(group.head)
            else:
                yield from self._reply(group, plain)

    def _user(self, message: Message) -> Iterator[bytes]:
        if message.origin != "user":
            return
        meta = {"promptIndex": self.prompts}
        self.prompts += 1
        text = "".join(part.text for part in message.parts if isinstance(part, Text))
        if text:
            content = {"type": "text", "text": mend_surrogates(text)}
            yield self._line({"sessionUpdate": "user_message_chunk", "content": content, "_meta": meta})

    def _reply(self, group: Group, plain: bool) -> Iterator[bytes]:
        given, answers = self.calls.of(group)
        text = "".join(part.text for part in group.head.parts if isinstance(part, Text))
        if text:
            content = {"type": "text", "text": mend_surrogates(text)}
            yield self._line({"sessionUpdate": "agent_message_chunk", "content": content})
        for place, (call, call_id) in enumerate(given):
            name = self.calls.names.legal(call.name)
            data = msgspec.Raw(wrap_arguments(call.arguments)[0])
            yield self._line({"sessionUpdate": "tool_call", "toolCallId": call_id, "title": name, "rawInput": data})
            answer = answers.get(place)
            if answer is None:
                continue
            shown = mend_surrogates(answer.text) if plain else _result_text(answer)
            content = ({"type": "content", "content": {"type": "text", "text": shown}},)
            status = "failed" if answer.is_error else "completed"
            head: Json = {"sessionUpdate": "tool_call_update", "toolCallId": call_id, "status": status}
            yield self._line({**head, "content": content})

    def _line(self, update: Json) -> bytes:
        self.count += 1
        meta = {"eventId": f"{self.session_id}-c{self.count}", "agentTimestampMs": self.time_ms}
        params: Json = {"sessionId": self.session_id, "update": update, "_meta": meta}
        return encode_line({"timestamp": self.time_ms // 1000, "method": "session/update", "params": params})


# --- contents ---------------------------------------------------------------------------------------------------


def _user_content(message: Message) -> Iterator[Json]:
    count = 0
    for part in message.parts:
        if isinstance(part, Image):
            count += 1
            if can_hold(part):
                yield {"type": "image", "url": image_url(part)}
            else:
                media = mend_surrogates(part.media_type) or "unknown"
                yield {"type": "text", "text": standin_text(media, count)}
        elif isinstance(part, Text) and not part.is_empty:
            wrapped = message.origin == "user" or needs_wrapper(part.source)
            yield {"type": "text", "text": _wrapped(part.source) if wrapped else spell_text(part.source)}


def _wrapped(source: Lazy) -> msgspec.Raw | str:
    text = spell_text(source)
    if isinstance(text, msgspec.Raw):
        return msgspec.Raw(b'"<user_query>\\n' + bytes(text)[1:-1] + b'\\n</user_query>"')
    return OPEN + text + CLOSE


def _reply_content(message: Message) -> tuple[bool, msgspec.Raw | str, bool]:
    """Returns whether the text is guarded, the text, and whether it stands for images only."""
    texts = [part for part in message.parts if isinstance(part, Text) and not part.is_empty]
    images = message.images
    if not texts:
        if images and not message.calls:
            return False, standin_text(mend_surrogates(images[0].media_type) or "unknown", 1), True
        return False, "", False
    if len(texts) == 1 and not is_like_ours(texts[0].source):
        return False, spell_text(texts[0].source), False
    text = mend_surrogates("".join(part.text for part in texts))
    guarded = _OURS.match(text) is not None
    return guarded, guard_text(text), False


def is_guarded(result: Message) -> bool:
    """Tells whether a result's text is written with a guard: it begins as a sentence of clew does."""
    texts = [part for part in result.parts if isinstance(part, Text) and not part.is_empty]
    if len(texts) == 1:
        return is_like_ours(texts[0].source)
    return _OURS.match("".join(part.text for part in texts)) is not None


def _result_text(result: Message) -> msgspec.Raw | str:
    if is_guarded(result):
        return mend_surrogates(guard_text(result.text))
    texts = [part for part in result.parts if isinstance(part, Text) and not part.is_empty]
    return spell_text(texts[0].source) if len(texts) == 1 else mend_surrogates(result.text)


def _answer_line(call_id: str, result: Message) -> Json:
    line = _result_line(call_id, _result_text(result))
    images = [{"type": "image", "url": image_url(image)} for image in result.images if can_hold(image)]
    return line | ({"images": images} if images else {})


def _result_line(call_id: str, text: msgspec.Raw | str) -> Json:
    return {"type": "tool_result", "tool_call_id": call_id, "content": text}


def is_like_ours(source: Lazy) -> bool:
    """Tells whether a text begins as a sentence of clew does, guarded or not; looks only at its beginning."""
    if isinstance(source, JsonString):
        head = bytes(memoryview(source.raw)[:256])
        if b"\\u" not in head and len(head.lstrip(b'"\\')) > 8:
            return _OURS_SPELLED.match(head) is not None
    return _OURS.match(text_of(source)) is not None


def can_hold(image: Image) -> bool:
    """Tells whether the agent keeps an image: a kind that its API takes with its bytes, or a web address."""
    if is_empty(image.source):
        return image.url.startswith(("https://", "http://"))
    return image.media_type in _MEDIA


def image_url(image: Image) -> msgspec.Raw | str:
    """Returns an image as an address, its bytes inside; plain base64 is copied undecoded."""
    if is_empty(image.source):
        return mend_surrogates(image.url)
    head = f"data:{image.media_type};base64,"
    body = spell_text(image.source)
    if isinstance(body, msgspec.Raw):
        return msgspec.Raw(b'"' + head.encode() + bytes(body)[1:])
    return head + body
