"""How texts are spelled in a written file of JSON, and how a member of a record is changed without touching the rest.

Promised: strict UTF-8, no half of a surrogate pair, no raw separator that some reader takes for the end of a line;
large texts pass through in the spelling they have, where that is plain. Nothing here knows an agent.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from clew.conversation.model import Image
from clew.conversation.text import JsonString, Lazy, has_surrogates, is_empty, mend_surrogates, text_of

_ENCODE = msgspec.json.Encoder().encode
_SEPARATORS = ((b"\xe2\x80\xa8", b"\\u2028"), (b"\xe2\x80\xa9", b"\\u2029"), (b"\xc2\x85", b"\\u0085"))
_CONTROL = re.compile(rb"[\x00-\x1f]")

MEDIA_TYPES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
"""The kinds of image that every model API takes; one of another kind makes them refuse the whole conversation."""


def spell(text: str) -> bytes:
    """Returns a text as a JSON string; lone surrogates are U+FFFD, U+2028, U+2029 and U+0085 are escaped."""
    return escape_separators(_ENCODE(mend_surrogates(text) if has_surrogates(text) else text))


def escape_separators(data: bytes) -> bytes:
    """Escapes the separators that some readers take for ends of lines. The data is JSON."""
    if data.isascii():
        return data
    for sign, escape in _SEPARATORS:
        if sign in data:
            data = data.replace(sign, escape)
    return data


def spell_lazily(source: Lazy) -> bytes:
    """Returns a text as a JSON string: as it is spelled already where that is plain ASCII, else spelled anew."""
    if isinstance(source, JsonString):
        data = bytes(source.raw)
        if data.startswith(b'"') and data.isascii() and b"\\u" not in data and _CONTROL.search(data) is None:
            return data
    return spell(text_of(source))


def holds_bytes(image: Image) -> bool:
    """Tells whether an image is of a known kind and has its bytes with it."""
    return not is_empty(image.source) and image.media_type in MEDIA_TYPES


_OURS = re.compile(r"\\*\[clew: ")
_OURS_SPELLED = re.compile(rb'"(?:\\\\)*\[clew: ')
_OPENING_SIGNS = 7
_HEAD_BYTES = 256


def is_like_ours(source: Lazy) -> bool:
    """Tells whether a text begins as a sentence of clew does, guarded or not; looks only at its beginning."""
    if isinstance(source, JsonString):
        head = bytes(memoryview(source.raw)[:_HEAD_BYTES])
        if b"\\u" not in head and len(head.lstrip(b'"\\')) > _OPENING_SIGNS:
            return _OURS_SPELLED.match(head) is not None
    elif not isinstance(source, str):
        return False
    return _OURS.match(text_of(source)) is not None


_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}]', re.DOTALL)
_COLON = re.compile(rb"[ \t\r\n]*:[ \t\r\n]*")


def change_member(record: bytes, name: bytes, old: frozenset[bytes], new: bytes) -> Iterator[bytes]:
    """Yields a record with each top-level member `name` (a JSON string) whose value is one of `old` set to `new`.

    Values are JSON strings as they are spelled. Nothing else changes; nothing is serialised anew.
    """
    start = 0
    if name in record:
        for begin, end in _values(record, name):
            if record[begin:end] in old:
                yield record[start:begin]
                yield new
                start = end
    yield record[start:]


def _values(record: bytes, name: bytes) -> Iterator[tuple[int, int]]:
    """Yields where the string values of top-level members `name` begin and end."""
    depth = 0
    for token in _TOKEN.finditer(record):
        sign = record[token.start()]
        if sign == 0x22:
            if depth == 1 and token.group() == name:
                colon = _COLON.match(record, token.end())
                value = _TOKEN.match(record, colon.end()) if colon is not None else None
                if value is not None and record[value.start()] == 0x22:
                    yield value.start(), value.end()
        else:
            depth += 1 if sign in b"[{" else -1
