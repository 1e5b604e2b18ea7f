"""The conversation itself: messages with their parts in order.

This is what every format can say, and no more. What one agent says beyond it stays in that agent's own records
(the residue); it is never bent into this model. All values are frozen; a reader builds them, nobody changes them.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from clew.conversation.text import Lazy, is_empty, text_of

Role: TypeAlias = Literal["user", "assistant", "tool", "system"]
"""Who speaks. `tool` is the result of a call; `system` occurs only in lists that are not in normal form."""

Origin: TypeAlias = Literal["user", "agent", "model"]
"""Who put the message there: a person typed it, the agent program added it, the model said it."""

Kind: TypeAlias = Literal["", "summary", "interruption", "command", "notice"]
"""What sort of agent-made message it is: a compaction summary, an interruption note, an expanded command, a notice."""


class Text(msgspec.Struct, frozen=True, gc=False, eq=False):
    """A run of text. `source` may be undecoded; `text` is always the decoded form. Equal when the texts are."""

    source: Lazy

    @property
    def text(self) -> str:
        return text_of(self.source)

    @property
    def is_empty(self) -> bool:
        return is_empty(self.source)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Text) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)


class Image(msgspec.Struct, frozen=True, gc=False, eq=False):
    """A picture: base64 `source` with its media type, or a `url` alone when the bytes are elsewhere."""

    media_type: str
    source: Lazy = ""
    url: str = ""

    @property
    def data(self) -> str:
        """Returns the base64 text, or nothing when only the address is known."""
        return text_of(self.source)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Image) and (self.media_type, self.data, self.url) == (
            other.media_type,
            other.data,
            other.url,
        )

    def __hash__(self) -> int:
        return hash((self.media_type, self.url, self.data))


class Reasoning(msgspec.Struct, frozen=True, gc=False):
    """What a model thought, as far as it is readable. Signatures and encrypted forms stay in the records."""

    source: Lazy = ""

    @property
    def text(self) -> str:
        return text_of(self.source)


class Call(msgspec.Struct, frozen=True, gc=False, eq=False):
    """A tool call. `source` names its arguments: JSON text where the tool takes JSON, else free text."""

    id: str
    name: str
    source: Lazy = ""

    @property
    def arguments(self) -> str:
        return text_of(self.source)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Call) and (self.id, self.name, self.arguments) == (
            other.id,
            other.name,
            other.arguments,
        )

    def __hash__(self) -> int:
        return hash((self.id, self.name))


Part: TypeAlias = Text | Image | Reasoning | Call


class Message(msgspec.Struct, frozen=True, gc=False):
    """One message. For a tool result `role` is `tool` and `call_id` names the call it answers.

    `time_ms` is milliseconds since 1970 UTC, or None when the session does not say. `reply_id` is the agent's own
    id of the reply that an assistant piece belongs to; the normal form uses it to join pieces. `is_error` is None
    when the format does not tell. An answer that clew had to make up is in no message: readers never deliver one.
    """

    role: Role
    parts: tuple[Part, ...] = ()
    origin: Origin = "user"
    kind: Kind = ""
    time_ms: int | None = None
    model: str = ""
    reply_id: str = ""
    call_id: str = ""
    is_error: bool | None = None

    @property
    def text(self) -> str:
        """Returns the concatenation of the text parts, without separator."""
        parts = [p.text for p in self.parts if type(p) is Text]
        return parts[0] if len(parts) == 1 else "".join(parts)

    @property
    def calls(self) -> tuple[Call, ...]:
        return tuple(p for p in self.parts if type(p) is Call)

    @property
    def images(self) -> tuple[Image, ...]:
        return tuple(p for p in self.parts if type(p) is Image)

    @property
    def says_something(self) -> bool:
        """Tells whether there is text, a call or an image in it (docs/residue.md, 2)."""
        for part in self.parts:
            kind = type(part)
            if kind is Call or kind is Image or (kind is Text and not part.is_empty):  # type: ignore[union-attr]
                return True
        return False


class Group(msgspec.Struct, frozen=True, gc=False):
    """A message that is no result, together with the results that answer it."""

    head: Message
    results: tuple[Message, ...] = ()
