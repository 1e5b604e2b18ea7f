"""Messages in the order of the lines that hold them, before they are brought into normal form."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from clew.conversation.model import Message, Text
from clew.conversation.normal import Normal, NormalBuilder
from clew.conversation.text import Lazy, text_of


class Track:
    """Messages as the lines give them, each with its record; `renamed` has the original ids of calls."""

    __slots__ = ("messages", "records", "renamed")

    def __init__(self, renamed: Mapping[str, str]) -> None:
        self.renamed = renamed
        self.messages: list[Message] = []
        self.records: list[int | None] = []

    def add(self, message: Message, record: int | None) -> None:
        self.messages.append(message)
        self.records.append(record)

    def copy(self) -> Track:
        other = Track(self.renamed)
        other.messages, other.records = list(self.messages), list(self.records)
        return other

    def cut(self, at: int) -> tuple[Message, ...]:
        """Takes off what lies behind `at` and returns it."""
        gone = tuple(self.messages[at:])
        del self.messages[at:], self.records[at:]
        return gone

    def turn_start(self, count: int) -> int:
        """Returns where the last `count` turns of the user begin."""
        at = len(self.messages)
        while at and count > 0:
            at -= 1
            message = self.messages[at]
            if message.role == "user" and message.origin == "user":
                count -= 1
        return at

    def normal(self, upto: int | None = None) -> Normal:
        builder = NormalBuilder(self.renamed)
        for message, record in zip(self.messages[:upto], self.records[:upto], strict=True):
            builder.add(message, record)
        return builder.finish()


def make_summary(text: Lazy, time_ms: int | None) -> Message:
    return Message("user", (Text(text),), "agent", "summary", time_ms)


def is_text(message: Message, text: Lazy) -> bool:
    parts = message.parts
    return len(parts) == 1 and isinstance(parts[0], Text) and parts[0].text == text_of(text)


def normal_messages(messages: Iterable[Message], renamed: Mapping[str, str]) -> tuple[Message, ...]:
    builder = NormalBuilder(renamed)
    for message in messages:
        builder.add(message, None)
    return builder.finish().messages
