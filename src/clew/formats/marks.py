"""Marks: what a writer leaves in a target so that the target's own reader gives the original back (docs/residue.md, 9).

A mark is one reserved member `clew` on a record where the agent keeps unknown members, else a spelling inside the
value. The spellings live here, once for all formats: names made legal, call ids made legal and unique, arguments
wrapped into an object, invented answers, stand-ins for images. Whatever looks like a mark by itself is escaped by
the writer, so that a genuine text of that shape survives.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec
from blake3 import blake3

from clew.conversation.canonical import normal_arguments

MEMBER = "clew"

INVENTED = "[clew: no result of this call was recorded; its outcome is unknown. Do not assume that it ran or failed.]"
STANDIN_HEAD = "[clew: an image stands here"
_GUARDED = re.compile(r"\\*\[clew: ")
_ESCAPED = re.compile(r"\\+\[clew: ")
WRAPPER = "clew_text"


class Mark(msgspec.Struct, frozen=True, omit_defaults=True, rename={"from_": "from"}):
    """The reserved member. Every field is optional; a reader undoes what it finds.

    `from_` (`from` in JSON) agent:id of the source, on the first record; `name`, `id`: originals of a call (either
    may be empty); `text`: arguments are a wrapped text; `invented`: the answer is made up; `said`: the text is a
    person's although it looks like context; `origin`, `kind`: what the message is where the target cannot say so;
    `standin`: how many parts of the record stand for images; `glued`: number of the message that this piece belongs
    to.
    """

    from_: str = ""
    name: str | None = None
    id: str | None = None
    text: bool = False
    invented: bool = False
    said: bool = False
    origin: str = ""
    kind: str = ""
    standin: int = 0
    error: bool | None = None
    model: str = ""
    at: int | None = None


def guard_text(text: str) -> str:
    """Returns `text` with one backslash more in front where it begins like one of clew's own sentences."""
    return "\\" + text if _GUARDED.match(text) else text


def unguard_text(text: str) -> str:
    """Undoes `guard_text`."""
    return text[1:] if _ESCAPED.match(text) else text


def is_invented(text: str) -> bool:
    """Tells whether a result's text is the sentence of an invented answer."""
    return text == INVENTED


def standin_text(media_type: str, number: int) -> str:
    """Returns the sentence that stands for image `number` (from 1) of a message."""
    return f"{STANDIN_HEAD}: {media_type}, number {number} of this message; this agent cannot hold it.]"


def is_standin(text: str) -> bool:
    """Tells whether a text part is a stand-in for an image."""
    return text.startswith(STANDIN_HEAD) and text.endswith("]")


class Names:
    """Makes tool names legal for a target, distinct where the originals are distinct, and remembers which changed.

    The grammar is that of the model APIs: letters, digits, `_`, `-`, at most 64 characters.
    """

    def __init__(self, pattern: str = r"[A-Za-z0-9_-]{1,64}", limit: int = 64) -> None:
        self._legal = re.compile(pattern)
        self._limit = limit
        self._given: dict[str, str] = {}
        self._taken: set[str] = set()

    def reserve(self, names: Iterable[str]) -> None:
        """Keeps the names that are legal by themselves from being given to others."""
        self._taken.update(n for n in names if self._legal.fullmatch(n))

    def legal(self, name: str) -> str:
        """Returns the legal name for `name`: itself where it is legal, else a readable form with a hash behind it."""
        if self._legal.fullmatch(name):
            return name
        given = self._given.get(name)
        if given is None:
            tail = blake3(name.encode("utf-8", "surrogatepass")).hexdigest()[:8]
            stem = re.sub(r"[^A-Za-z0-9_-]", "_", name)[: self._limit - 9] or "tool"
            given = f"{stem}_{tail}"
            while given in self._taken:
                given = f"{stem[: self._limit - 17]}_{blake3(given.encode()).hexdigest()[:16]}"
            self._taken.add(given)
            self._given[name] = given
        return given


class CallIds:
    """Makes call ids legal and unique in one target; gives the same id again for the same call.

    `open_call` is asked once for each call in order, `answer` for the result of a call.
    """

    def __init__(self, prefix: str = "call_", limit: int = 64, taken: Iterable[str] = ()) -> None:
        self._legal = re.compile(rf"[A-Za-z0-9_-]{{1,{limit}}}")
        self._prefix = prefix
        self._taken = set(taken)
        self._count = 0

    def open_call(self, original: str) -> str:
        """Returns the id to write for a call whose original id is `original`."""
        given = original
        while not self._legal.fullmatch(given) or given in self._taken:
            self._count += 1
            seed = f"{original}\x00{self._count}".encode("utf-8", "surrogatepass")
            given = self._prefix + blake3(seed).hexdigest()[:24]
        self._taken.add(given)
        return given


def wrap_arguments(text: str) -> tuple[bytes, bool]:
    """Returns the JSON object to write for arguments that a target wants as an object, and whether it is a wrapper.

    Arguments that are a JSON object stay as they are spelled; anything else, and an object that has the wrapper's
    own shape, becomes `{"clew_text": text}`. An empty text is `{}` (it is the same in the canonical form).
    """
    normal = normal_arguments(text)
    if isinstance(normal, msgspec.Raw):
        data = bytes(normal)
        if data.startswith(b"{") and not data.startswith(b'{"' + WRAPPER.encode() + b'":'):
            return data, False
    return msgspec.json.encode({WRAPPER: text}), True


def unwrap_arguments(data: bytes) -> str | None:
    """Returns the text inside a wrapper, or None when `data` is no wrapper."""
    try:
        value = msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError):
        return None
    if isinstance(value, dict) and len(value) == 1:  # type: ignore[arg-type]
        text = value.get(WRAPPER)  # type: ignore[union-attr]
        return text if isinstance(text, str) else None
    return None
