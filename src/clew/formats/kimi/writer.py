"""Writes a conversation as a session of Kimi Code, and goes on behind restored records.

Every message is one `context.append_message`, which the agent takes for all roles; arguments stay the text that they
are. No profile is bound: the system prompt and the tools are the agent's own, and it binds them anew when it is
started, in its interface under its default model, without one only where `-m` names a model. The session's own
description is written last, because the agent lists a session by it.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec

from clew.conversation.groups import group_messages
from clew.conversation.loss import Loss
from clew.conversation.model import Call, Image, Message, Part, Reasoning, Text
from clew.conversation.source import Buffer, Session, Stream
from clew.conversation.text import JsonString, Lazy, is_empty, mend_surrogates, text_of
from clew.formats.jsonl import line_ends
from clew.formats.jsonout import Json, encode_line, spell_text, whole_lines
from clew.formats.kimi import records as rec
from clew.formats.kimi.folder import session_path
from clew.formats.kimi.reader import MAIN, STATE, Marks, helper_name, session_folder
from clew.formats.kimi.said import origin_of
from clew.formats.marks import INVENTED, CallIds, Mark, Names, guard_text, standin_text, wrap_arguments
from clew.formats.protocol import WriteOptions, Written, WrittenFile

VERSION = "2.1.0"
"""The version of the agent that resumed what is written here."""

_PROTOCOL = "1.5"
_PROMPT_SIGNS = 200
_OURS = re.compile(r"\\*\[clew: ")
_OURS_SPELLED = re.compile(rb'"(?:\\\\)*\[clew: ')


def write(messages: Sequence[Message], options: WriteOptions) -> Written:
    """Writes a conversation in normal form as a new session of the folder `options.cwd`."""
    folder = session_path(options.cwd, options.session_id)

    def chunks() -> Iterator[bytes]:
        model = options.model or next((m.model for m in reversed(messages) if m.model), "")
        head: Json = {"type": "metadata", "protocol_version": _PROTOCOL, "created_at": options.now_ms}
        yield encode_line({**head, "clew": Mark(from_=options.origin, model=model)})
        yield from Writing(messages, options.now_ms, model=model).lines()

    state: Json = {"id": options.session_id, "version": 2, "cwd": options.cwd, "archived": False, "custom": {}}
    times = [m.time_ms for m in messages if m.time_ms is not None]
    state |= {"createdAt": times[0] if times else options.now_ms, "updatedAt": options.now_ms}
    if options.title:
        state |= {"title": mend_surrogates(options.title), "isCustomTitle": True}
    prompt = _last_prompt(messages)
    if prompt:
        state["lastPrompt"] = prompt
    losses, invented = count_losses(messages)
    return Written(
        options.session_id,
        (WrittenFile(folder + MAIN, chunks), _description(folder, state)),
        losses,
        invented,
    )


def _description(folder: str, state: object) -> WrittenFile:
    data = msgspec.json.encode(state)
    return WrittenFile(folder + STATE, lambda: (data,), role="index")


def _last_prompt(messages: Sequence[Message]) -> str:
    said = next((m for m in reversed(messages) if m.role == "user" and m.origin == "user" and m.text.strip()), None)
    return mend_surrogates(" ".join(said.text[: 4 * _PROMPT_SIGNS].split())[:_PROMPT_SIGNS]) if said else ""


# --- going on ---------------------------------------------------------------------------------------------------


def splice(prefix: Session, messages: Sequence[Message], options: WriteOptions) -> Written:
    """Appends messages in normal form to a session's restored records."""
    streams = prefix.records.streams
    path = streams[-1].path if streams else session_path(options.cwd, options.session_id) + MAIN
    taken, left = _written_calls(prefix)

    def chunks() -> Iterator[Buffer]:
        if streams:
            yield from whole_lines(streams[-1])
        yield from Writing(messages, options.now_ms, model=prefix.model, taken=taken).lines(left)

    losses, invented = count_losses(messages)
    mode = streams[-1].mode if streams else 0o600
    files = [WrittenFile(path, chunks, mode)]
    if not helper_name(path):
        state = _stored_state(prefix, session_folder(path)) or _plain_state(prefix, options)
        prompt = _last_prompt(messages)
        changed = {"updatedAt": options.now_ms, **({"lastPrompt": prompt} if prompt else {})}
        files.append(_description(session_folder(path), {**state, **changed}))
    return Written(prefix.id or options.session_id, tuple(files), losses, invented + len(left))


def _stored_state(prefix: Session, folder: str) -> dict[str, object]:
    """Returns the members of the session's description, undecoded."""
    for file in prefix.side:
        if file.path == folder + STATE:
            try:
                return dict(msgspec.json.decode(bytes(file.load()), type=dict[str, msgspec.Raw]))
            except (msgspec.DecodeError, RecursionError):
                return {}
    return {}


def _plain_state(prefix: Session, options: WriteOptions) -> Json:
    created = prefix.created_ms if prefix.created_ms is not None else options.now_ms
    state: Json = {"id": prefix.id or options.session_id, "version": 2, "cwd": prefix.cwd or options.cwd}
    state |= {"archived": False, "custom": {}, "createdAt": created}
    return state | ({"title": prefix.title} if prefix.title else {})


def _written_calls(prefix: Session) -> tuple[frozenset[str], tuple[str, ...]]:
    """Returns the call ids as they stand in the prefix, and those of the last message that have no result."""
    taken: list[str] = []
    waiting: list[str] = []
    for number in range(len(prefix.records)):
        line = rec.decode(prefix.records[number], rec.Line)
        if line.type == rec.APPEND:
            message = rec.decode(line.message, rec.Message)
            calls = [rec.text(call.id) for call in rec.decode_calls(message.calls)]
            taken += calls
            waiting = [*calls] if calls else waiting
            answered = rec.text(message.call_id) if message.role == "tool" else None
        elif line.type == rec.LOOP:
            event = rec.decode(line.event, rec.Event)
            called = rec.text(event.call_id)
            answered = called if event.type == "tool.result" else None
            if event.type == "step.begin":
                waiting = []
            elif event.type == "tool.call":
                taken.append(called)
                waiting.append(called)
        else:
            if line.type in (rec.COMPACT, rec.CLEAR, rec.UNDO):
                waiting = []
            continue
        if answered in waiting:
            waiting.remove(answered)
    open_calls = _open_calls(prefix)
    return frozenset(taken), tuple(waiting[-open_calls:]) if open_calls else ()


def _open_calls(prefix: Session) -> int:
    """Returns how many calls of the last message have no result."""
    group = next(iter(deque(group_messages(prefix.messages), maxlen=1)), None)
    return len(group.head.calls) - len(group.results) if group is not None else 0


# --- the lines --------------------------------------------------------------------------------------------------


class Writing:
    """One pass over a conversation; keeps names, call ids and the time."""

    def __init__(self, messages: Sequence[Message], now_ms: int, *, model: str, taken: Iterable[str] = ()) -> None:
        self.messages, self.model = messages, model
        self.time_ms = next((m.time_ms for m in messages if m.time_ms is not None), now_ms)
        self.names = Names()
        self.names.reserve(call.name for message in messages for call in message.calls)
        self.ids = CallIds(taken=taken)

    def lines(self, left: Sequence[str] = ()) -> Iterator[bytes]:
        """Yields the records; first made-up answers to the calls that a prefix left open."""
        for call_id in left:
            yield self._invented(call_id)
        for group in group_messages(self.messages):
            if group.head.role == "user":
                line = self._user(group.head)
                if line:
                    yield line
                continue
            waiting: dict[str, deque[str]] = {}
            yield self._reply(group.head, waiting)
            for result in group.results:
                given = waiting.get(result.call_id)
                if given:
                    yield self._result(result, given.popleft())
            for call_id in [given for queue in waiting.values() for given in queue]:
                yield self._invented(call_id)

    def _line(self, message: Json, mark: object, time_ms: int | None) -> bytes:
        self.time_ms = time_ms if time_ms is not None else self.time_ms
        head: Json = {"type": rec.APPEND, "agentId": "main", "message": message, "time": self.time_ms}
        return encode_line({**head, "clew": mark})

    def _user(self, message: Message) -> bytes:
        content, mark = _content(message.parts)
        if not content:
            return b""
        if message.origin == "agent":
            mark = msgspec.structs.replace(mark, origin="agent", kind=message.kind)
        origin = origin_of(message.origin, message.kind)
        body: Json = {"role": "user", "content": content, "toolCalls": (), "origin": origin}
        return self._line(body, mark, message.time_ms)

    def _reply(self, message: Message, waiting: dict[str, deque[str]]) -> bytes:
        content, mark = _content(message.parts, images=False)
        if message.model != self.model and message.model:
            mark = msgspec.structs.replace(mark, model=message.model)
        calls: list[Json] = []
        marks: list[Mark | None] = []
        for call in message.calls:
            given, one, body = self._call(call)
            waiting.setdefault(call.id, deque()).append(given)
            calls.append(body)
            marks.append(one)
        member = msgspec.to_builtins(mark)
        if any(marks):
            member |= msgspec.to_builtins(Marks(tuple(marks)))
        return self._line({"role": "assistant", "content": content, "toolCalls": calls}, member, message.time_ms)

    def _call(self, call: Call) -> tuple[str, Mark | None, Json]:
        given, name = self.ids.open_call(call.id), self.names.legal(call.name)
        data, wrapped = wrap_arguments(call.arguments)
        mark = Mark(
            id=mend_surrogates(call.id) if given != call.id else None,
            name=mend_surrogates(call.name) if name != call.name else None,
            text=wrapped,
        )
        body: Json = {"type": "function", "id": given, "name": name, "arguments": data.decode()}
        return given, mark if mark != Mark() else None, body

    def _result(self, result: Message, call_id: str) -> bytes:
        content, mark = _content(result.parts)
        if result.is_error is not None:
            mark = msgspec.structs.replace(mark, error=result.is_error)
        body: Json = {"role": "tool", "content": content, "toolCalls": (), "toolCallId": call_id}
        if result.is_error:
            body["isError"] = True
        return self._line(body, mark, result.time_ms)

    def _invented(self, call_id: str) -> bytes:
        content = ({"type": "text", "text": INVENTED},)
        body: Json = {"role": "tool", "content": content, "toolCalls": (), "toolCallId": call_id, "isError": True}
        return self._line(body, Mark(invented=True), None)


def _content(parts: Sequence[Part], *, images: bool = True) -> tuple[list[Json], Mark]:
    """Returns the parts as the agent stores them, and the mark that they need."""
    content: list[Json] = []
    standins = sum(isinstance(part, Image) and not (images and can_hold(part)) for part in parts)
    guarded = standins > 0 or any(isinstance(part, Text) and is_like_ours(part.source) for part in parts)
    count = 0
    for part in parts:
        if isinstance(part, Text):
            if not part.is_empty:
                ours = guarded and is_like_ours(part.source)
                text = mend_surrogates(guard_text(part.text)) if ours else spell_text(part.source)
                content.append({"type": "text", "text": text})
        elif isinstance(part, Image):
            count += 1
            if images and can_hold(part):
                content.append({"type": "image_url", "imageUrl": {"url": image_url(part)}})
            else:
                media = mend_surrogates(part.media_type) or "unknown"
                content.append({"type": "text", "text": standin_text(media, count)})
    return content, Mark(standin=standins, said=guarded and not standins)


def can_hold(image: Image) -> bool:
    """Tells whether an image can be sent: its bytes are there under a media type, or it lies on the web."""
    if is_empty(image.source):
        return image.url.startswith(("https://", "http://"))
    return bool(_MEDIA.fullmatch(image.media_type))


_MEDIA = re.compile(r"image/[A-Za-z0-9.+-]{1,64}")


def image_url(image: Image) -> msgspec.Raw | str:
    """Returns an image as an address, its bytes inside; plain base64 is copied undecoded."""
    if is_empty(image.source):
        return mend_surrogates(image.url)
    head = f"data:{image.media_type};base64,"
    body = spell_text(image.source)
    if isinstance(body, msgspec.Raw):
        return msgspec.Raw(b'"' + head.encode() + bytes(body)[1:])
    return head + body


def is_like_ours(source: Lazy) -> bool:
    """Tells whether a text begins as a sentence of clew does, guarded or not; looks only at its beginning."""
    if isinstance(source, JsonString):
        head = bytes(memoryview(source.raw)[:256])
        if b"\\u" not in head and len(head.lstrip(b'"\\')) > 8:
            return _OURS_SPELLED.match(head) is not None
    return _OURS.match(text_of(source)) is not None


def count_losses(messages: Sequence[Message]) -> tuple[tuple[Loss, ...], int]:
    """Returns what this format cannot carry of a conversation, and how many calls go unanswered in it."""
    reasoning = images = invented = 0
    for group in group_messages(messages):
        left = [call.id for call in group.head.calls]
        for result in group.results:
            if result.call_id in left:
                left.remove(result.call_id)
        invented += len(left)
        for message in (group.head, *group.results):
            for part in message.parts:
                reasoning += isinstance(part, Reasoning)
                held = isinstance(part, Image) and message.role != "assistant" and can_hold(part)
                images += isinstance(part, Image) and not held
    found = (
        Loss("reasoning blocks", reasoning, "thinking of another model"),
        Loss("images", images, "said by the model, or their bytes are elsewhere"),
    )
    return tuple(loss for loss in found if loss.count), invented


# --- another id -------------------------------------------------------------------------------------------------


def rebase(session: Session, options: WriteOptions) -> Written:
    """Returns the session's records as a session of another id; the journal itself does not name it.

    The description does, and the paths in it; side files go with the session. In another folder the place of the
    folder changes too, which the journal names: the agent refuses a session that is bound to another one.
    """
    streams = session.records.streams
    old = session_folder(streams[-1].path) if streams else ""
    new = session_path(options.cwd or session.cwd, options.session_id)
    name = session.id or options.session_id
    places = (_place_of(old), _place_of(new))
    files = [
        WrittenFile(new + stream.path.removeprefix(old), lambda stream=stream: _bound(stream, *places), stream.mode)
        for stream in streams
    ]
    for file in session.side:
        if old and file.path.startswith(old) and file.path != old + STATE:
            load: Callable[[], Iterable[Buffer]] = lambda file=file: (file.load(),)  # noqa: E731
            files.append(WrittenFile(new + file.path.removeprefix(old), load, file.mode, "side"))
    state = _stored_state(session, old) or _plain_state(session, options)
    here, there = b"/%s/%s/" % (places[0], name.encode()), b"/%s/%s/" % (places[1], options.session_id.encode())
    state = {member: _renamed(value, here, there) for member, value in state.items()}
    state |= {"id": options.session_id} | ({"cwd": options.cwd} if options.cwd else {})
    files.append(_description(new, state))
    return Written(options.session_id, tuple(files))


def _place_of(folder: str) -> bytes:
    parts = folder.split("/")
    return parts[-3].encode() if len(parts) > 2 else b""


def _bound(stream: Stream, old: bytes, new: bytes) -> Iterator[Buffer]:
    """Yields a journal's bytes with the place that its bindings name."""
    if old == new:
        yield stream.data
        return
    start, view = 0, memoryview(stream.data)
    for end in line_ends(view):
        line = bytes(view[start:end])
        if b'"runtime.set_binding"' in line[:4096]:
            line = line.replace(b'"workspaceId":"' + old + b'"', b'"workspaceId":"' + new + b'"')
        yield line
        start = end


def _renamed(value: object, old: bytes, new: bytes) -> object:
    """Gives the paths of a session's agents with its new folder in them."""
    if not isinstance(value, msgspec.Raw) or b'"homedir"' not in bytes(value):
        return value
    return msgspec.Raw(bytes(value).replace(old, new))
