"""The older form: one JSON document with the messages in a list. Its records are ranges of bytes.

The document is never parsed as a whole: a scan goes over it member by member, so that every byte has its place also in
one that is cut off. Head, elements (each with what stands before it) and tail, laid end to end, are the document.
"""

from __future__ import annotations

import json

import msgspec

_SCAN = json.JSONDecoder(strict=False, parse_int=str, parse_float=str, parse_constant=str).raw_decode
_BLANK = " \t\r\n"
_BOM = b"\xef\xbb\xbf"
_GIVEN_UP = (ValueError, RecursionError, IndexError)


class Frame(msgspec.Struct, frozen=True):
    """Where things lie in a document, as offsets in bytes.

    `opened` is behind the bracket that opens `messages`, `elements` are the values in it without commas and blanks,
    `closed` is behind the last of them, `ends` tells whether the closing bracket follows, `sound` whether the document
    goes on and ends as JSON. `facts` are the spans of the other members' values, by name.
    """

    opened: int
    elements: tuple[tuple[int, int], ...]
    closed: int
    ends: bool
    sound: bool
    facts: dict[str, tuple[int, int]]

    def starts(self, size: int) -> list[int]:
        """Returns where each record begins."""
        starts = [0] if size else []
        edge = self.opened
        for _, end in self.elements:
            starts.append(edge)
            edge = end
        if edge < size:
            starts.append(edge)
        return starts


def frame_document(data: bytes) -> Frame | None:
    """Returns where things lie, or None where the bytes are no document with messages."""
    text = data.decode("latin-1")  # one character a byte, and none from 0x80 on is structure
    facts: dict[str, tuple[int, int]] = {}
    try:
        opened = _open(text, len(_BOM) if data.startswith(_BOM) else 0, facts)
    except _GIVEN_UP:
        return None
    if not facts and not opened:
        return None
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
    sound = _closes(text, at + 1, facts)
    return Frame(opened, tuple(elements), closed, ends=True, sound=sound, facts=facts)


def _open(text: str, at: int, facts: dict[str, tuple[int, int]]) -> int:
    """Returns the offset behind the bracket that opens the messages; notes the members before it."""
    at = _blank(text, at)
    if text[at] != "{":
        raise ValueError(at)
    at = _blank(text, at + 1)
    while True:
        name, at = _member(text, at)
        if name == "messages" and text[at] == "[":
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


def is_document(data: bytes | memoryview, path: str) -> bool:
    """Tells whether a file is one document rather than lines.

    Its first line is no whole object; or the file is named as a document and holds nothing but one object.
    """
    head = bytes(data[: 1 << 16]).removeprefix(_BOM).lstrip()
    if not head.startswith(b"{"):
        return False
    line, newline, rest = head.partition(b"\n")
    if newline and _is_opening(line):
        return True
    return path.endswith(".json") and not rest.strip() and b'"messages"' in head


def _is_opening(line: bytes) -> bool:
    """Tells whether a line opens an object that goes on behind it."""
    line = line.strip()
    if line == b"{":
        return True
    if line.endswith(b"}"):
        return False
    try:
        json.loads(line)
    except ValueError:
        return line.endswith((b",", b"[", b"{"))
    return False
