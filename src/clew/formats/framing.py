"""One JSON document with the messages in a list: its records are ranges of bytes.

The document is never parsed as a whole: a scan goes over it member by member, so that every byte has its place also in
one that is cut off. Head, elements (each with what stands before it) and tail, laid end to end, are the document.
"""

from __future__ import annotations

import json

import msgspec

from clew.formats.loose import Members, raw_of

_SCAN = json.JSONDecoder(strict=False, parse_int=str, parse_float=str, parse_constant=str).raw_decode
_BLANK = " \t\r\n"
_BOM = b"\xef\xbb\xbf"
_GIVEN_UP = (ValueError, RecursionError, IndexError)


class Frame(msgspec.Struct, frozen=True):
    """Where things lie in a document, as offsets in bytes.

    `opened` is behind the bracket that opens the list (0: it was not found), `elements` are the values in it without
    commas and blanks, `closed` is behind the last of them, `ends` tells whether the closing bracket follows, `sound`
    whether the document goes on and ends as JSON. `facts` are the spans of the other members' values, by name.
    """

    opened: int
    elements: tuple[tuple[int, int], ...]
    closed: int
    ends: bool
    sound: bool
    facts: dict[str, tuple[int, int]]

    def starts(self, size: int) -> list[int]:
        """Returns where each record begins: the head, each element, the tail."""
        starts = [0] if size else []
        edge = self.opened
        for _, end in self.elements:
            starts.append(edge)
            edge = end
        if 0 < edge < size:
            starts.append(edge)
        return starts

    def members(self, data: bytes) -> Members:
        """Returns the members besides the list, undecoded; of several with one name the first."""
        return {name: raw_of(data[a:b]) for name, (a, b) in self.facts.items()}


def frame_document(data: bytes, name: str) -> Frame | None:
    """Returns where things lie in a document whose list is the member `name`; None where the bytes are no object.

    With no name the document itself is the list, and None stands for bytes that are none.
    """
    text = data.decode("latin-1")  # one character a byte, and none from 0x80 on is structure
    facts: dict[str, tuple[int, int]] = {}
    opened = 0
    try:
        opened = _open(text, len(_BOM) if data.startswith(_BOM) else 0, facts, name)
    except _GIVEN_UP:
        pass
    if not opened:
        return Frame(0, (), 0, ends=False, sound=False, facts=facts) if facts else None
    elements: list[tuple[int, int]] = []
    closed = opened
    try:
        at = _blank(text, opened)
        while text[at] != "]":
            at = _comma(text, at) if elements else at
            _, end = _SCAN(text, at)
            elements.append((at, end))
            closed = end
            at = _blank(text, end)
    except _GIVEN_UP:
        return Frame(opened, tuple(elements), closed, ends=False, sound=False, facts=facts)
    sound = _closes(text, at + 1, facts) if name else _blank(text, at + 1) == len(text)
    return Frame(opened, tuple(elements), closed, ends=True, sound=sound, facts=facts)


def _open(text: str, at: int, facts: dict[str, tuple[int, int]], wanted: str) -> int:
    """Returns the offset behind the bracket that opens the list; notes the members before it."""
    at = _blank(text, at)
    if text[at] != ("{" if wanted else "["):
        raise ValueError(at)
    if not wanted:
        return at + 1
    at = _blank(text, at + 1)
    while True:
        name, at = _member(text, at)
        if name == wanted and text[at] == "[":
            return at + 1
        _, end = _SCAN(text, at)
        facts.setdefault(name, (at, end))
        at = _comma(text, _blank(text, end))


def _closes(text: str, at: int, facts: dict[str, tuple[int, int]]) -> bool:
    try:
        at = _blank(text, at)
        while text[at] != "}":
            name, at = _member(text, _comma(text, at))
            _, end = _SCAN(text, at)
            facts.setdefault(name, (at, end))
            at = _blank(text, end)
    except _GIVEN_UP:
        return False
    return _blank(text, at + 1) == len(text)


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
