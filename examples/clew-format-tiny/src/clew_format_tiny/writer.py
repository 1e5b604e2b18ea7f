"""From a conversation to a document, and behind a document that is there; what it cannot say is marked or counted."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Sequence

import msgspec
from blake3 import blake3

from clew.conversation.groups import group_messages
from clew.conversation.loss import Loss
from clew.conversation.model import Call, Group, Image, Message, Reasoning
from clew.conversation.source import Session
from clew.conversation.text import mend_surrogates
from clew.errors import UnwritableContent
from clew.formats.marks import INVENTED, CallIds, Mark, Names, guard_text, standin_text, wrap_arguments
from clew.formats.protocol import WriteOptions, Written, WrittenFile
from clew_format_tiny.reader import looks_like_context
from clew_format_tiny.records import Card, Does, Element, Frame, Head, Pic, Tail, decode_leniently, frame_document

CARD = "card.json"

LONG = 200
"""Results of more characters than this lie in a side file."""

_ENCODE = msgspec.json.Encoder().encode


def write(messages: Sequence[Message], options: WriteOptions) -> Written:
    """Writes a new document."""
    work = _Work(options, messages)
    elements = work.elements(messages)
    mark = Mark(from_=options.origin) if options.origin else None
    head = Head(1, id=options.session_id, cwd=mend_surrogates(options.cwd), model=options.model, clew=mark)
    data = _ENCODE(head)[:-1] + b',"messages":[' + b",".join(elements) + b"]" + _close(options)
    written = work.written(options.session_id, f"{options.session_id}/doc.json", [data])
    return msgspec.structs.replace(written, files=(*written.files, _card(options, mend_surrogates(options.title))))


def splice(prefix: Session, messages: Sequence[Message], options: WriteOptions) -> Written:
    """Puts elements in front of a document's tail; a document that was cut before its tail gets a new one."""
    stream = prefix.records.streams[0]
    data = bytes(stream.data)
    frame = frame_document(data)
    if not frame.opened or not (frame.ends or not data[frame.closed :].strip()):
        raise UnwritableContent(
            f"{stream.path} is cut off in the middle of an element; nothing can be put behind it",
            hint="`clew repair` makes a sound copy of it.",
            path=stream.path,
        )
    there = _decode_elements(data, frame)
    work = _Work(options, messages, taken=[does.id for e in there for does in e.does])
    added = [*work.answers(_open_calls(there)), *work.elements(messages)]
    glue = b"," if frame.elements and added else b""
    tail = data[frame.closed :] if frame.ends else b"]" + _close(options)
    return work.written(prefix.id, stream.path, [data[: frame.closed], glue + b",".join(added), tail])


def rebase(session: Session, options: WriteOptions) -> Written:
    """Writes the document's bytes with another session id, and its side files beside it."""
    stream = session.records.streams[0]
    data = bytes(stream.data)
    place = frame_document(data).facts.get("id")
    if place is None:
        raise UnwritableContent(f"{stream.path} names no session id", path=stream.path)
    pieces = [data[: place[0]], _ENCODE(options.session_id), data[place[1] :]]
    side = [
        WrittenFile(
            f"{options.session_id}/files/{file.path.rpartition('/')[2]}", lambda f=file: [f.load()], role="side"
        )
        for file in session.side
        if "/files/" in file.path
    ]
    main = WrittenFile(f"{options.session_id}/doc.json", lambda: pieces, stream.mode)
    return Written(options.session_id, (main, *side, _card(options, session.title)))


def _card(options: WriteOptions, title: str) -> WrittenFile:
    """Returns the card, without which the agent does not list the session; clew places it last."""
    data = _ENCODE(Card(options.session_id, title, mend_surrogates(options.cwd)))
    return WrittenFile(f"{options.session_id}/{CARD}", lambda: [data], role="index")


def _close(options: WriteOptions) -> bytes:
    return b"," + _ENCODE(Tail(mend_surrogates(options.title), options.now_ms))[1:]


def _decode_elements(data: bytes, frame: Frame) -> list[Element]:
    found = [decode_leniently(data[begin:end], Element) for begin, end in frame.elements]
    return [element for element in found if element is not None]


def _open_calls(elements: Sequence[Element]) -> list[str]:
    """Returns the ids of calls that have no result in the document, invented ones counted."""
    waiting = Counter[str]()
    for element in elements:
        if element.who == "cut":
            waiting.clear()
        waiting.update(does.id for does in element.does)
        if element.who == "tool" and waiting[element.answers] > 0:
            waiting[element.answers] -= 1
    return list(waiting.elements())


class _Work:
    """One piece of writing: what was given to whom, the side files, and what was lost."""

    def __init__(self, options: WriteOptions, messages: Sequence[Message], taken: Iterable[str] = ()) -> None:
        self.options = options
        self.names, self.ids = Names(), CallIds("tiny_", taken=taken)
        self.names.reserve(call.name for message in messages for call in message.calls)
        self.side: dict[str, bytes] = {}
        self.losses = Counter[str]()
        self.invented = 0

    def written(self, session_id: str, path: str, pieces: list[bytes]) -> Written:
        folder = path.rpartition("/")[0]
        side = [
            WrittenFile(f"{folder}/files/{name}", lambda d=data: [d], role="side") for name, data in self.side.items()
        ]
        losses = tuple(Loss(what, count) for what, count in sorted(self.losses.items()))
        return Written(session_id, (WrittenFile(path, lambda: pieces), *side), losses, self.invented)

    def elements(self, messages: Sequence[Message]) -> list[bytes]:
        made: list[Element] = []
        for group in group_messages(messages):
            if group.head.role == "user":
                made.append(self._user(group.head))
            else:
                made += self._reply(group)
        return [_ENCODE(element) for element in made]

    def answers(self, ids: Iterable[str]) -> list[bytes]:
        return [_ENCODE(self._answer(call_id)) for call_id in ids]

    def _answer(self, call_id: str) -> Element:
        self.invented += 1
        return Element("tool", INVENTED, answers=call_id, status="failed", clew=Mark(invented=True))

    def _user(self, message: Message) -> Element:
        text = mend_surrogates(message.text)
        pics = tuple(self._pic(image) for image in message.images)
        mark = Mark(
            said=looks_like_context(guard_text(text)),
            origin=message.origin if message.origin != "user" else "",
            kind=message.kind,
        )
        self._count(message, images=False)
        return Element("user", guard_text(text), pics=pics, at=message.time_ms, clew=mark if mark != Mark() else None)

    def _pic(self, image: Image) -> Pic:
        name = self._keep(image.data.encode(), "pic") if image.data else ""
        return Pic(image.media_type, name, image.url)

    def _keep(self, data: bytes, end: str) -> str:
        name = f"{blake3(data).hexdigest()[:20]}.{end}"
        self.side[name] = data
        return f"files/{name}"

    def _reply(self, group: Group) -> list[Element]:
        message = group.head
        waiting: dict[str, deque[str]] = {}
        does = [self._call(call, waiting) for call in message.calls]
        say, mark = guard_text(mend_surrogates(message.text)), None
        if not say and not does and message.images:
            say, mark = standin_text(message.images[0].media_type, 1), Mark(standin=len(message.images))
        self._count(message)
        made = [Element("bot", say, does=tuple(does), at=message.time_ms, model=message.model, clew=mark)]
        made += [self._result(result, waiting) for result in group.results]
        return made + [self._answer(given) for queue in waiting.values() for given in queue]

    def _call(self, call: Call, waiting: dict[str, deque[str]]) -> Does:
        given, name = self.ids.open_call(call.id), self.names.legal(call.name)
        waiting.setdefault(call.id, deque()).append(given)
        args, wrapped = wrap_arguments(mend_surrogates(call.arguments))
        mark = Mark(
            name=call.name if name != call.name else None, id=call.id if given != call.id else None, text=wrapped
        )
        return Does(given, name, msgspec.Raw(args), mark if mark != Mark() else None)

    def _result(self, result: Message, waiting: dict[str, deque[str]]) -> Element:
        text = guard_text(mend_surrogates(result.text))
        self._count(result)
        element = Element(
            "tool",
            text,
            answers=waiting[result.call_id].popleft(),
            status="failed" if result.is_error else "ok",
            at=result.time_ms,
        )
        if len(text) > LONG:
            element = msgspec.structs.replace(element, say="", file=self._keep(text.encode(), "txt"))
        return element

    def _count(self, message: Message, *, images: bool = True) -> None:
        for part in message.parts:
            if isinstance(part, Reasoning):
                self.losses["reasoning blocks"] += 1
            elif isinstance(part, Image) and images:
                self.losses["images"] += 1
