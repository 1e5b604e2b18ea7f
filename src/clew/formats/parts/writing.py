"""From a conversation to contents: parts that the agent takes and sends whole, and that read back as they were.

What the parts cannot say is in the mark of the record around them. Texts are put out one by one, so that a large
session is never held.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec

from clew.conversation.groups import group_messages
from clew.conversation.loss import Loss
from clew.conversation.model import Call, Group, Image, Message, Part, Reasoning, Text
from clew.conversation.text import Lazy, is_empty, mend_surrogates
from clew.formats.marks import INVENTED, CallIds, Mark, Names, guard_text, standin_text, wrap_arguments
from clew.formats.parts.reading import GUARD, NO_MARK, Sorter
from clew.formats.parts.spelling import (
    Pieces,
    around,
    can_hold,
    image_pieces,
    once,
    string_pieces,
)
from clew.formats.parts.values import RecordMark, head_of
from clew.formats.spelling import escape_separators, is_like_ours, spell


class Dialect(msgspec.Struct, frozen=True):
    """What differs between the agents.

    `kinds` are the media types of pictures that the agent's API takes; `nested` whether those of a result stand inside
    of the response; `sort` is the reader's own; `drops` tells whether the agent would leave a message of these parts
    out; `thinks` whether the thoughts of another model may be written.
    """

    kinds: frozenset[str]
    sort: Sorter
    drops: Callable[[Sequence[Part]], bool]
    nested: bool = False


class Content(msgspec.Struct, frozen=True):
    """One content to write: whose it is, the message it is of, its parts as a JSON list, and the record's mark.

    `sort` is user, model or result; of results there may be several in one content, or one each.
    """

    sort: str
    message: Message | None
    parts: Callable[[], Pieces]
    mark: RecordMark | None
    call_id: str = ""
    failed: bool = False


class Writer:
    """One pass of writing; a second pass is a second object with the same outcome."""

    def __init__(self, messages: Sequence[Message], dialect: Dialect, *, taken: Iterable[str] = ()) -> None:
        self.messages, self.dialect = messages, dialect
        self.ids = CallIds("call_", taken=taken)
        self.names = Names()
        self.names.reserve(call.name for message in messages for call in message.calls)

    def contents(self) -> Iterator[Content]:
        """Yields the contents in order."""
        for group in group_messages(self.messages):
            if group.head.role == "assistant":
                yield from self._reply(group)
            elif group.head.role == "user":
                found = self._user(group.head)
                if found is not None:
                    yield found

    # --- user -------------------------------------------------------------------------------------------------

    def _user(self, message: Message) -> Content | None:
        parts = _heard(message.parts)
        if not parts:
            return None
        standins = sum(1 for part in parts if isinstance(part, Image) and not self._holds(part))
        guarded = self.dialect.drops(parts) or _is_guard(parts[0])
        said = guarded or any(isinstance(p, Text) and self.dialect.sort(p.source) != "" for p in parts)
        mark = RecordMark(said=said, standin=standins)
        if message.origin != "user":
            mark = msgspec.structs.replace(mark, origin=message.origin, kind=message.kind)
        own = None if mark == NO_MARK else mark
        return Content("user", message, lambda: self._user_pieces(parts, guarded, standins > 0), own)

    def _user_pieces(self, parts: Sequence[Part], guarded: bool, standins: bool) -> Pieces:
        lead = b"["
        if guarded:
            yield b'[{"text":' + spell(GUARD) + b"}"
            lead = b","
        yield from self._listed(parts, standins, lead)
        yield b"]"

    def _listed(self, parts: Sequence[Part], standins: bool, lead: bytes) -> Pieces:
        number = 0
        for part in parts:
            yield lead
            lead = b","
            if isinstance(part, Text):
                yield from around(b'{"text":', _text_pieces(part, guard=standins), b"}")
            elif isinstance(part, Image):
                number += 1
                if self._holds(part):
                    yield from image_pieces(part)
                else:
                    yield b'{"text":' + spell(_note(part, number)) + b"}"

    def _holds(self, image: Image) -> bool:
        return can_hold(image, self.dialect.kinds)

    # --- model ------------------------------------------------------------------------------------------------

    def _reply(self, group: Group) -> Iterator[Content]:
        message = group.head
        standins = sum(1 for part in message.parts if isinstance(part, Image))
        marks: dict[str, Mark] = {}
        written: list[tuple[Call, str, str]] = []
        spelled: list[Part | bytes] = []
        for part in message.parts:
            if isinstance(part, Call):
                call_id, name, data = self._call(part, marks)
                written.append((part, call_id, name))
                spelled.append(data)
            elif isinstance(part, Image) or (isinstance(part, Text) and not part.is_empty):
                spelled.append(part)
        mark = RecordMark(standin=standins, calls=marks)
        own = None if mark == NO_MARK else mark
        yield Content("model", message, lambda: _reply_pieces(spelled, standins > 0), own)
        waiting = list(written)
        for result in group.results:
            found = next((entry for entry in waiting if entry[0].id == result.call_id), None)
            if found is not None:
                waiting.remove(found)
                yield self._result(result, found[1], found[2])
        for _, call_id, name in waiting:
            yield invented_content(call_id, name)

    def _call(self, call: Call, marks: dict[str, Mark]) -> tuple[str, str, bytes]:
        call_id, name = self.ids.open_call(call.id), self.names.legal(call.name)
        data, wrapped = wrap_arguments(call.arguments)
        if call_id != call.id or name != call.name or wrapped:
            marks[call_id] = Mark(
                id=mend_surrogates(call.id) if call_id != call.id else None,
                name=mend_surrogates(call.name) if name != call.name else None,
                text=wrapped,
            )
        head = b'{"functionCall":{"id":' + spell(call_id) + b',"name":' + spell(name) + b',"args":'
        return call_id, name, head + escape_separators(data) + b"}}"

    # --- results ----------------------------------------------------------------------------------------------

    def _result(self, result: Message, call_id: str, name: str) -> Content:
        texts = [part for part in result.parts if isinstance(part, Text) and not part.is_empty]
        images = [part for part in result.parts if isinstance(part, Image)]
        standins = sum(1 for image in images if not self._holds(image))
        source: Lazy = texts[0].source if len(texts) == 1 else "".join(text.text for text in texts)
        guard = is_like_ours(source)
        mark = RecordMark(standin=standins, calls={call_id: Mark(said=True)} if guard else {})
        failed = result.is_error is True
        return Content(
            "result",
            result,
            lambda: self._result_pieces(call_id, name, Text(source), images, failed=failed, guard=guard),
            None if mark == NO_MARK else mark,
            call_id,
            failed,
        )

    def _result_pieces(
        self, call_id: str, name: str, text: Text, images: Sequence[Image], *, failed: bool, guard: bool
    ) -> Pieces:
        head = b'[{"functionResponse":{"id":' + spell(call_id) + b',"name":' + spell(name) + b',"response":'
        yield head + (b'{"error":' if failed else b'{"output":')
        yield from _text_pieces(text, guard=guard)
        yield b"}"
        if self.dialect.nested and images:
            yield b',"parts":'
            yield from self._listed(images, False, b"[")
            yield b"]"
        yield b"}}"
        if not self.dialect.nested:
            yield from self._listed(images, False, b",")
        yield b"]"


def invented_content(call_id: str, name: str) -> Content:
    """Returns the made-up answer of a call, by the id and name that stand in the file."""
    head = b'[{"functionResponse":{"id":' + spell(call_id) + b',"name":' + spell(name)
    data = head + b',"response":{"error":' + spell(INVENTED) + b"}}}]"
    mark = RecordMark(calls={call_id: Mark(invented=True)})
    return Content("result", None, lambda: once(data), mark, call_id, failed=True)


def _reply_pieces(spelled: Sequence[Part | bytes], standins: bool) -> Pieces:
    number = 0
    for place, part in enumerate(spelled):
        yield b"," if place else b"["
        if isinstance(part, bytes):
            yield part
        elif isinstance(part, Text):
            yield from around(b'{"text":', _text_pieces(part, guard=standins), b"}")
        elif isinstance(part, Image):
            number += 1
            yield b'{"text":' + spell(_note(part, number)) + b"}"
    yield b"]" if spelled else b"[]"


def _note(image: Image, number: int) -> str:
    return standin_text(image.media_type or "image", number)


def _text_pieces(part: Text, *, guard: bool) -> Pieces:
    if guard and is_like_ours(part.source):
        return once(spell(guard_text(part.text)))
    return string_pieces(part.source)


def _heard(parts: Sequence[Part]) -> list[Part]:
    return [p for p in parts if isinstance(p, Image) or (isinstance(p, Text) and not p.is_empty)]


def _is_guard(part: Part) -> bool:
    return isinstance(part, Text) and head_of(part.source) == GUARD


def thoughts_of(message: Message) -> list[Lazy]:
    """Returns what the model thought, as far as it can be read."""
    return [p.source for p in message.parts if isinstance(p, Reasoning) and not is_empty(p.source)]


def count_losses(messages: Iterable[Message], dialect: Dialect, *, thinks: bool) -> tuple[tuple[Loss, ...], int]:
    """Returns what cannot be carried, and how many calls go unanswered; `thinks`: readable thoughts are kept."""
    reasoning = images = invented = 0
    for group in group_messages(messages):
        open_calls = [call.id for call in group.head.calls]
        for result in group.results:
            if result.call_id in open_calls:
                open_calls.remove(result.call_id)
        invented += len(open_calls)
        for message in (group.head, *group.results):
            for part in message.parts:
                if isinstance(part, Reasoning):
                    reasoning += not (thinks and not is_empty(part.source))
                elif isinstance(part, Image):
                    images += message.role == "assistant" or not can_hold(part, dialect.kinds)
    found = (
        Loss("reasoning blocks", reasoning, "thinking of another model" if not thinks else "without readable text"),
        Loss("images", images, "kinds that the API takes not, or whose bytes are elsewhere"),
    )
    return tuple(loss for loss in found if loss.count), invented
