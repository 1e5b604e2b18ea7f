"""Texts that are decoded only when somebody looks: a session of 200 MB is never held as 200 MB of strings.

A text is a `str`, or a slice of a source's bytes that names one. The slices are views into the source's buffer, so
they cost a few dozen bytes each. What comes out is always valid Unicode: a lone surrogate, and a byte that is no
UTF-8, is U+FFFD (docs/residue.md, 2). This module does no I/O.
"""

from __future__ import annotations

import json
import re
from typing import TypeAlias

import msgspec

_DECODE_TEXT = msgspec.json.Decoder(str)
_SURROGATE = re.compile("[\ud800-\udfff]")
_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")


class JsonString(msgspec.Struct, frozen=True, gc=False):
    """A JSON string literal, quotes included, as it stands in a source."""

    raw: msgspec.Raw


class JsonValue(msgspec.Struct, frozen=True, gc=False):
    """A JSON value as it stands in a source; as a text it is its own spelling."""

    raw: msgspec.Raw


Lazy: TypeAlias = str | JsonString | JsonValue
"""A text, decoded or not."""


def text_of(value: Lazy) -> str:
    """Returns the text itself, with U+FFFD for whatever is no Unicode."""
    if isinstance(value, str):
        return value
    if isinstance(value, JsonString):
        try:
            return _DECODE_TEXT.decode(value.raw)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return mend_surrogates(decode_leniently(bytes(value.raw)))
    return bytes(value.raw).decode("utf-8", "replace")


def size_hint(value: Lazy) -> int:
    """Returns about how many bytes the text takes, without decoding it."""
    return len(value) if isinstance(value, str) else len(memoryview(value.raw))


def is_empty(value: Lazy) -> bool:
    """Tells whether the text has no character, without decoding it."""
    if isinstance(value, str):
        return not value
    return len(memoryview(value.raw)) == (2 if isinstance(value, JsonString) else 0)


def decode_leniently(data: bytes) -> str:
    """Returns the text of a JSON string literal that strict decoders refuse; surrogates stay as they are.

    Bytes that are no UTF-8 become U+FFFD; raw control characters are taken as themselves. A literal that is
    beyond that comes back as its own spelling.
    """
    text = data.decode("utf-8", "replace")
    try:
        value = json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return text
    return value if isinstance(value, str) else text


def mend_surrogates(text: str) -> str:
    """Returns `text` with pairs of surrogates joined and lone ones replaced by U+FFFD."""
    if not has_surrogates(text):
        return text
    joined = _PAIR.sub(lambda m: m.group().encode("utf-16-le", "surrogatepass").decode("utf-16-le"), text)
    return _SURROGATE.sub("\ufffd", joined)


def has_surrogates(text: str) -> bool:
    """Tells whether `text` holds code points that no UTF-8 can carry."""
    if text.isascii():
        return False
    try:
        text.encode()  # many times faster than to search for them
    except UnicodeEncodeError:
        return True
    return False
