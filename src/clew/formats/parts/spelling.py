"""How contents are spelled in a written file, in pieces, and how a member deeper in a record is changed.

Line separators are always escaped: the agents read their files through a reader that takes U+2028 and U+2029 for ends
of lines.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import msgspec

from clew.conversation.model import Image
from clew.conversation.text import Lazy, is_empty
from clew.formats.spelling import escape_separators, spell, spell_lazily

Pieces = Iterator[bytes]


def encode_value(value: object) -> bytes:
    """Returns a small value as JSON."""
    return escape_separators(msgspec.json.encode(value))


def string_pieces(source: Lazy) -> Pieces:
    """Yields a text as a JSON string."""
    yield spell_lazily(source)


def can_hold(image: Image, kinds: frozenset[str]) -> bool:
    """Tells whether a picture can stand in a content: its bytes are there, and of a kind that the API takes."""
    return not is_empty(image.source) and image.media_type in kinds


def image_pieces(image: Image) -> Pieces:
    """Yields a picture as a part with its bytes in place."""
    yield b'{"inlineData":{"mimeType":' + spell(image.media_type) + b',"data":'
    yield from string_pieces(image.source)
    yield b"}}"


def once(data: bytes) -> Pieces:
    """Yields the data."""
    yield data


def around(head: bytes, body: Pieces, foot: bytes) -> Pieces:
    """Yields head, body and foot."""
    yield head
    yield from body
    yield foot


# --- changing one member of a record byte for byte ----------------------------------------------------------------

_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}]', re.DOTALL)
_COLON = re.compile(rb"[ \t\r\n]*:[ \t\r\n]*")


def change_member(
    record: bytes, name: bytes, old: bytes, new: bytes, wanted: Callable[[tuple[bytes, ...]], bool]
) -> Pieces:
    """Yields a record in which each member `name` (a JSON string) whose value is `old` has the value `new`.

    `wanted` says for a place (the names of the members around it, outermost first, b"" for a list) whether members
    there count. Nothing else changes.
    """
    start = 0
    if name in record and old in record:
        for begin, end, place in _members(record, name):
            if record[begin:end] == old and wanted(place):
                yield record[start:begin]
                yield new
                start = end
    yield record[start:]


def _members(record: bytes, name: bytes) -> Iterator[tuple[int, int, tuple[bytes, ...]]]:
    """Yields where the text values of members `name` begin and end, and the members around them."""
    place: list[bytes] = []
    last = b""
    after = -1
    for token in _TOKEN.finditer(record):
        begin = token.start()
        sign = record[begin]
        if sign == 0x22:
            if begin == after:
                if last == name:
                    yield begin, token.end(), tuple(place[1:])
                after = -1
                continue
            colon = _COLON.match(record, token.end())
            if colon is not None:
                last, after = token.group(), colon.end()
        elif sign in b"[{":
            place.append(last if begin == after else b"")
        elif place:
            place.pop()
