"""How texts and images are spelled in a written file: strict UTF-8 JSON, in pieces, without decoding the large ones."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from clew.conversation.model import Image
from clew.conversation.text import JsonString, Lazy, has_surrogates, is_empty, mend_surrogates, text_of

_ENCODE = msgspec.json.Encoder().encode
_SEPARATORS = ((b"\xe2\x80\xa8", b"\\u2028"), (b"\xe2\x80\xa9", b"\\u2029"), (b"\xc2\x85", b"\\u0085"))

MEDIA_TYPES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
"""The kinds of image that the Messages API takes; one of another kind would make it refuse the whole session."""

_CONTROL = re.compile(rb"[\x00-\x1f]")


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


def string_pieces(source: Lazy) -> Iterator[bytes]:
    """Yields a text as a JSON string: as it is spelled already where that is plain ASCII, else spelled anew."""
    if isinstance(source, JsonString):
        data = bytes(source.raw)
        if data.startswith(b'"') and data.isascii() and b"\\u" not in data and _CONTROL.search(data) is None:
            yield data
            return
    yield spell(text_of(source))


def can_hold(image: Image) -> bool:
    """Tells whether an image can stand in a message of the API: a known kind with its bytes, or a web address."""
    if is_empty(image.source):
        return image.url.startswith(("https://", "http://"))
    return image.media_type in MEDIA_TYPES
