"""What a session to be written says, record by record, before any agent's own spelling.

For agents that keep one record a message. Every call is answered, ids and names are legal and unique, arguments are
objects, nothing is empty; what was changed for that is in the marks, so that the agent's reader undoes it (design,
section 3). Texts stay undecoded unless they look like a sentence of clew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeAlias

import msgspec

from clew.conversation.groups import group_messages
from clew.conversation.loss import Loss
from clew.conversation.model import Call, Image, Message, Part, Reasoning, Text
from clew.conversation.text import mend_surrogates, size_hint
from clew.formats.marks import CallIds, Mark, Names, guard_text, standin_text, wrap_arguments
from clew.formats.spelling import escape_separators, is_like_ours

Holds: TypeAlias = Callable[[Image], bool]
"""Tells whether the target can hold an image where it stands."""


class CallMark(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a call was before it was made legal: its name, its id, and whether its arguments were no object."""

    name: str | None = None
    id: str | None = None
    text: bool = False


class RecordMark(Mark, frozen=True, omit_defaults=True):
    """The mark of a record that holds a whole message.

    Besides its own, those of its calls, and of its results where one record holds several, by their written ids.
    """

    calls: dict[str, CallMark] = {}  # noqa: RUF012 - a struct copies its defaults
    results: dict[str, Mark] = {}  # noqa: RUF012


class WrittenCall(msgspec.Struct, frozen=True):
    """A call as it is written: `arguments` is a JSON object. `mark` is None where nothing was changed."""

    id: str
    name: str
    arguments: bytes
    mark: CallMark | None = None


class Said(msgspec.Struct, frozen=True):
    """A user message with something in it: texts and images."""

    message: Message
    parts: tuple[Part, ...]


class Replied(msgspec.Struct, frozen=True):
    """An assistant message: texts, images and calls in order, without reasoning."""

    message: Message
    parts: tuple[Text | Image | WrittenCall, ...]

    @property
    def calls(self) -> tuple[WrittenCall, ...]:
        """Returns the calls, in order."""
        return tuple(part for part in self.parts if type(part) is WrittenCall)


class Answered(msgspec.Struct, frozen=True):
    """The result of a written call; None where it has to be made up."""

    call: WrittenCall
    result: Message | None
    parts: tuple[Part, ...] = ()


Entry: TypeAlias = Said | Replied | Answered


def outline(messages: Sequence[Message], ids: CallIds, names: Names) -> Iterator[Entry]:
    """Yields what a conversation in normal form says, in the order in which it is written."""
    for group in group_messages(messages):
        head = group.head
        if head.role == "user":
            parts = heard(head)
            if parts:
                yield Said(head, parts)
        elif head.role == "assistant":
            reply = Replied(head, tuple(_replied(head, ids, names)))
            if reply.parts:
                yield reply
            yield from _answers(head, reply, group.results)


def _replied(message: Message, ids: CallIds, names: Names) -> Iterator[Text | Image | WrittenCall]:
    for part in join_blanks(message.parts):
        if type(part) is Call:
            yield _written(part, ids, names)
        elif type(part) is Text or type(part) is Image:
            yield part


def _written(call: Call, ids: CallIds, names: Names) -> WrittenCall:
    call_id, name = ids.open_call(call.id), names.legal(call.name)
    data, wrapped = wrap_arguments(call.arguments)
    mark = None
    if call_id != call.id or name != call.name or wrapped:
        mark = CallMark(
            name=mend_surrogates(call.name) if name != call.name else None,
            id=mend_surrogates(call.id) if call_id != call.id else None,
            text=wrapped,
        )
    return WrittenCall(call_id, name, escape_separators(data), mark)


def _answers(message: Message, reply: Replied, results: Iterable[Message]) -> Iterator[Answered]:
    waiting: dict[str, list[WrittenCall]] = {}
    for call, written in zip(message.calls, reply.calls, strict=True):
        waiting.setdefault(call.id, []).append(written)
    answered: set[str] = set()
    for result in results:
        row = waiting.get(result.call_id)
        if row:
            written = row.pop(0)
            answered.add(written.id)
            yield Answered(written, result, heard(result))
    for written in reply.calls:
        if written.id not in answered:
            yield Answered(written, None)


def heard(message: Message) -> tuple[Part, ...]:
    """Returns the parts of a message that are texts with a sign in them, or images."""
    return tuple(p for p in message.parts if type(p) is Image or (type(p) is Text and not p.is_empty))


def joined_text(parts: Sequence[Part]) -> tuple[Part, ...]:
    """Returns the parts with neighbouring texts made one, for agents that put a line end between texts they send."""
    out: list[Part] = []
    for part in parts:
        last = out[-1] if out else None
        if type(part) is Text and type(last) is Text:
            out[-1] = Text(last.text + part.text)
        else:
            out.append(part)
    return tuple(out)


def join_blanks(parts: Sequence[Part]) -> Iterator[Part]:
    """Yields the parts of a reply without reasoning, blank texts joined to a neighbour: APIs refuse them alone."""
    held: Text | None = None
    for part in parts:
        if type(part) is Reasoning or (type(part) is Text and part.is_empty):
            continue
        if type(part) is not Text:
            if held is not None:
                yield held
            held = None
            yield part
        elif held is None:
            held = part
        elif _is_blank(held) or _is_blank(part):
            held = Text(held.text + part.text)
        else:
            yield held
            held = part
    if held is not None:
        yield held


def _is_blank(part: Text) -> bool:
    return size_hint(part.source) <= 4096 and not part.text.strip()


class Cover(msgspec.Struct, frozen=True):
    """Parts as they are written: guarded texts, stand-ins for images that the target cannot hold.

    In a record with a mark every text that begins like one of clew's sentences carries a guard; a record without a
    mark is taken literally. `needed` tells that there must be one.
    """

    parts: tuple[Part | WrittenCall, ...]
    standins: int = 0
    needed: bool = False


def cover(parts: Sequence[Part | WrittenCall], holds: Holds) -> Cover:
    """Returns the parts as they are written in one record."""
    out: list[Part | WrittenCall] = []
    images = standins = 0
    needed = False
    for part in parts:
        if type(part) is Image:
            images += 1
            if not holds(part):
                standins += 1
                part = Text(standin_text(part.media_type or "unknown", images))
        elif type(part) is Text and is_like_ours(part.source):
            needed = True
            part = Text(guard_text(part.text))
        out.append(part)
    return Cover(tuple(out), standins, needed or bool(standins))


def record_mark(covered: Cover, mark: RecordMark | None = None) -> RecordMark | None:
    """Returns the mark of a record with these parts: the given one, or a new one, or None where none is needed."""
    calls = {p.id: p.mark for p in covered.parts if type(p) is WrittenCall and p.mark is not None}
    if mark is None and not covered.needed and not calls:
        return None
    return msgspec.structs.replace(mark or RecordMark(), standin=covered.standins, calls=calls)


def call_names(messages: Sequence[Message]) -> tuple[str, ...]:
    """Returns the names of all calls, each once."""
    return tuple(dict.fromkeys(call.name for message in messages for call in message.calls))


def count_losses(
    messages: Sequence[Message], holds: Holds, replies_hold: Holds, results_hold: Holds | None = None
) -> tuple[tuple[Loss, ...], int]:
    """Returns what a target cannot carry of a conversation, and how many calls go unanswered in it.

    Where nothing is said of results, they hold what a user's message holds.
    """
    held = {"assistant": replies_hold, "tool": results_hold or holds}
    reasoning = images = invented = 0
    for group in group_messages(messages):
        open_calls = [call.id for call in group.head.calls]
        for result in group.results:
            if result.call_id in open_calls:
                open_calls.remove(result.call_id)
        invented += len(open_calls)
        for message in (group.head, *group.results):
            keeps = held.get(message.role, holds)
            for part in message.parts:
                reasoning += type(part) is Reasoning
                images += type(part) is Image and not keeps(part)
    found = (
        Loss("reasoning blocks", reasoning, "thinking of another model, or without its signature"),
        Loss("images", images, "kinds that the target takes not, or whose bytes are elsewhere"),
    )
    return tuple(loss for loss in found if loss.count), invented
