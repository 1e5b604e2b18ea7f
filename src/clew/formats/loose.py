"""Values of JSON taken as they come: nothing here raises, whatever the bytes are.

For readers of formats of which little is sure. An object is a dict of undecoded members, a list a list of undecoded
items; what is not of the sort that was asked for is empty. Texts stay slices of the source until somebody looks.
"""

from __future__ import annotations

import json
import re

import msgspec

from clew.conversation.text import JsonString, JsonValue, Lazy, mend_surrogates, text_of

NONE = msgspec.Raw(b"")
"""A value that is not there."""

Members = dict[str, msgspec.Raw]

MEMBERS = msgspec.json.Decoder(Members)
_ITEMS = msgspec.json.Decoder(list[msgspec.Raw])
_VALUE = msgspec.json.Decoder()
_WORD = msgspec.json.Decoder(str)
_FAILS = (msgspec.DecodeError, RecursionError, UnicodeDecodeError, ValueError)
_BLANK = b" \t\r\n"
_HELD = re.compile('"\ufdd0([-+0-9.eE]+)\ufdd1"')


def first_byte(raw: msgspec.Raw) -> int:
    """Returns the first byte of a value, 0 where there is none."""
    if raw is NONE:
        return 0
    view = memoryview(raw)
    return view[0] if len(view) else 0


def members_of(raw: msgspec.Raw) -> Members:
    """Returns the members of an object; none where the value is no object."""
    if first_byte(raw) != 0x7B:
        return {}
    try:
        return MEMBERS.decode(raw)
    except _FAILS:
        mended = mend_json(bytes(raw))
    try:
        return MEMBERS.decode(mended) if mended is not None else {}
    except _FAILS:
        return {}


def items_of(raw: msgspec.Raw) -> list[msgspec.Raw]:
    """Returns the items of a list; none where the value is no list."""
    if first_byte(raw) != 0x5B:
        return []
    try:
        return _ITEMS.decode(raw)
    except _FAILS:
        mended = mend_json(bytes(raw))
    try:
        return _ITEMS.decode(mended) if mended is not None else []
    except _FAILS:
        return []


def mend_json(data: bytes) -> bytes | None:
    """Returns JSON that strict decoders take: bad UTF-8 and lone surrogates are U+FFFD, numbers keep their spelling.

    None for what no lenient parser takes either.
    """
    try:
        value = json.loads(
            data.decode("utf-8", "replace"), strict=False, parse_constant=_refuse, parse_int=_hold, parse_float=_hold
        )
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    except (ValueError, RecursionError):
        return None
    return mend_surrogates(_HELD.sub(r"\1", text)).encode()


def _hold(spelling: str) -> str:
    return f"\ufdd0{spelling}\ufdd1"


def _refuse(name: str) -> object:
    raise ValueError(name)


def is_text(raw: msgspec.Raw) -> bool:
    """Tells whether a value is a string."""
    return first_byte(raw) == 0x22


def text_in(raw: msgspec.Raw) -> Lazy:
    """Returns a string undecoded; nothing where the value is none."""
    return JsonString(raw) if is_text(raw) else ""


def word_in(raw: msgspec.Raw) -> str:
    """Returns a short string decoded; nothing where the value is none."""
    if first_byte(raw) != 0x22:
        return ""
    try:
        return _WORD.decode(raw)
    except _FAILS:
        return mend_surrogates(text_of(JsonString(raw)))


def scalar_in(raw: msgspec.Raw) -> str | int | float | bool | None:
    """Returns a string, a number or a truth value; None for everything else."""
    first = first_byte(raw)
    if first == 0x22:
        return word_in(raw)
    if first in (0, 0x7B, 0x5B):
        return None
    try:
        value: object = _VALUE.decode(raw)
    except _FAILS:
        return None
    return value if isinstance(value, (int, float)) else None


def spelled(raw: msgspec.Raw) -> Lazy:
    """Returns a value as a text: a string's own text, anything else as it is spelled, nothing for null."""
    first = first_byte(raw)
    if first == 0x22:
        return JsonString(raw)
    return "" if first in (0, 0x6E) else JsonValue(raw)


def raw_of(data: bytes | memoryview) -> msgspec.Raw:
    """Returns bytes that name a value as one, without the blanks around it."""
    return msgspec.Raw(bytes(data).strip(_BLANK))
