"""The document and its elements; and where in the bytes each of them lies.

The document is never parsed as a whole: a scan goes over it member by member, so that every byte has its place also
in a document that is cut off, and nothing is read twice.
"""

from __future__ import annotations

import json
from typing import TypeVar

import msgspec

from clew.conversation.text import mend_surrogates
from clew.formats.marks import Mark

T = TypeVar("T")

_SCAN = json.JSONDecoder(strict=False, parse_int=str, parse_float=str, parse_constant=str).raw_decode
_BLANK = " \t\r\n"


class Pic(msgspec.Struct, frozen=True, omit_defaults=True):
    """A picture: a side file that holds its base64 text, or an address, or nothing where only the fact is known."""

    type: str
    file: str = ""
    url: str = ""


class Does(msgspec.Struct, frozen=True, omit_defaults=True):
    """A call: its arguments are always an object."""

    id: str
    tool: str
    args: msgspec.Raw = msgspec.Raw(b"{}")
    clew: Mark | None = None


class Element(msgspec.Struct, frozen=True, omit_defaults=True):
    """One element of `messages`. `who` is user, bot, tool, sys (context) or cut (a summary that replaces all)."""

    who: str
    say: str = ""
    file: str = ""
    """Where the text lies instead of in `say`."""
    pics: tuple[Pic, ...] = ()
    does: tuple[Does, ...] = ()
    answers: str = ""
    status: str = ""
    mull: str = ""
    """What the model thought, with `seal` as its signature."""
    seal: str = ""
    at: int | None = None
    model: str = ""
    clew: Mark | None = None


class Parent(msgspec.Struct, frozen=True):
    """A session whose first `take` groups come before the own ones, by reference."""

    id: str
    take: int


class Head(msgspec.Struct, frozen=True, omit_defaults=True):
    """What stands before the messages."""

    tiny: int = 0
    id: str = ""
    cwd: str = ""
    model: str = ""
    version: str = ""
    parent: Parent | None = None
    clew: Mark | None = None


class Tail(msgspec.Struct, frozen=True, omit_defaults=True):
    """What stands behind the messages; the agent rewrites it with each turn."""

    title: str = ""
    updated: int | None = None


class Frame(msgspec.Struct, frozen=True):
    """Where things lie in a document, as offsets in bytes.

    `opened` is behind the bracket that opens `messages`, 0 where there is none; `elements` are the values without
    commas and blanks; `closed` is behind the last of them; `ends` whether the closing bracket follows; `sound`
    whether the document goes on and ends as JSON; `id_at` is the value of the head's member `id`.
    """

    opened: int
    elements: tuple[tuple[int, int], ...]
    closed: int
    ends: bool
    sound: bool
    id_at: tuple[int, int] | None

    def starts(self, size: int) -> list[int]:
        """Returns where each record begins: head, elements with what stands before them, and the rest."""
        starts = [0] if size else []
        edge = self.opened
        for _, end in self.elements:
            starts.append(edge)
            edge = end
        if self.opened and edge < size:
            starts.append(edge)
        return starts


def frame_document(data: bytes) -> Frame:
    """Returns where things lie in any bytes; what is no document has no elements."""
    text = data.decode("latin-1")  # one character a byte, and none from 0x80 on is structure
    try:
        opened, id_at = _open(text, 3 if data.startswith(b"\xef\xbb\xbf") else 0)
    except (ValueError, RecursionError, IndexError):
        return Frame(0, (), 0, ends=False, sound=False, id_at=None)
    elements: list[tuple[int, int]] = []
    at = closed = opened
    try:
        at = _blank(text, at)
        while text[at] != "]":
            at = _comma(text, at) if elements else at
            _, end = _SCAN(text, at)
            elements.append((at, end))
            closed = end
            at = _blank(text, end)
    except (ValueError, RecursionError, IndexError):
        return Frame(opened, tuple(elements), closed, ends=False, sound=False, id_at=id_at)
    return Frame(opened, tuple(elements), closed, ends=True, sound=_closes(text, at + 1), id_at=id_at)


def _open(text: str, at: int) -> tuple[int, tuple[int, int] | None]:
    at = _blank(text, at)
    if text[at] != "{":
        raise ValueError(at)
    at = _blank(text, at + 1)
    id_at: tuple[int, int] | None = None
    while True:
        name, at = _member(text, at)
        if name == "messages" and text[at] == "[":
            return at + 1, id_at
        _, end = _SCAN(text, at)
        if name == "id":
            id_at = (at, end)
        at = _comma(text, _blank(text, end))


def _member(text: str, at: int) -> tuple[str, int]:
    if text[at] != '"':
        raise ValueError(at)
    name, at = _SCAN(text, at)
    at = _blank(text, at)
    if text[at] != ":":
        raise ValueError(at)
    return name, _blank(text, at + 1)


def _comma(text: str, at: int) -> int:
    if text[at] != ",":
        raise ValueError(at)
    return _blank(text, at + 1)


def _blank(text: str, at: int) -> int:
    while at < len(text) and text[at] in _BLANK:
        at += 1
    return at


def _closes(text: str, at: int) -> bool:
    try:
        at = _blank(text, at)
        while text[at] != "}":
            _, at = _member(text, _comma(text, at))
            at = _blank(text, _SCAN(text, at)[1])
    except (ValueError, RecursionError, IndexError):
        return False
    return _blank(text, at + 1) == len(text)


def decode_leniently(data: bytes, kind: type[T]) -> T | None:
    """Returns what `data` says, lone surrogates and bad UTF-8 as U+FFFD; None where it is no such thing."""
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, RecursionError):
        pass
    try:
        value = json.loads(data.decode("utf-8", "replace"), strict=False)
        text = mend_surrogates(json.dumps(value, ensure_ascii=False))
        return msgspec.json.decode(text.encode(), type=kind)
    except (ValueError, RecursionError):
        return None


def read_head(data: bytes, frame: Frame) -> Head:
    """Returns what stands before the messages; nothing where it makes no sense."""
    if not frame.opened:
        return Head()
    head = data[: frame.opened].removeprefix(b"\xef\xbb\xbf")
    return decode_leniently(head + b"]}", Head) or Head()


def read_tail(data: bytes, frame: Frame) -> Tail:
    """Returns what stands behind the messages; nothing where the document does not close."""
    if not frame.sound:
        return Tail()
    rest = data[frame.closed :].lstrip()[1:].lstrip().removeprefix(b",")
    return decode_leniently(b"{" + rest, Tail) or Tail()
