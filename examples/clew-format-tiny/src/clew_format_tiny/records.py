"""What a document of Tiny holds: its elements, the facts around them, and where in the bytes each of them lies.

Structs name what is known; whatever else a record holds is left in its bytes.
"""

from __future__ import annotations

import json
from typing import TypeVar

import msgspec

from clew.conversation.text import mend_surrogates
from clew.formats import framing
from clew.formats.framing import Frame
from clew.formats.marks import Mark

T = TypeVar("T")

_NOTHING = Frame(0, (), 0, ends=False, sound=False, facts={})


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
    """What stands behind the messages: the agent writes it anew with every turn."""

    title: str = ""
    updated: int | None = None


class Card(msgspec.Struct, frozen=True):
    """The session's card: the agent lists only sessions that have one."""

    id: str
    title: str
    cwd: str


class Facts(Head, frozen=True):
    """Head and tail as a reader takes them: of both whatever is there."""

    title: str = ""


def frame_document(data: bytes) -> Frame:
    """Returns where things lie in any bytes; what is no document has no elements."""
    return framing.frame_document(data, "messages") or _NOTHING


def read_facts(data: bytes, frame: Frame) -> Facts:
    """Returns what stands around the messages; nothing where it makes no sense."""
    known = [(name, raw) for name, raw in frame.members(data).items() if name in Facts.__struct_fields__]
    members = b",".join(b'"%s":%s' % (name.encode(), bytes(raw)) for name, raw in known)
    return decode_leniently(b"{" + members + b"}", Facts) or Facts()


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
