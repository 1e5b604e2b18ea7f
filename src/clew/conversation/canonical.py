"""The canonical form of a group, and the chain of keys over a conversation (docs/residue.md, 3 and 4).

The form is `[role, text, [[name, arguments], ...], [result, ...]]` as JSON without spaces, keys sorted by code
point, non-ASCII as itself, UTF-8. A key is BLAKE3 over the key before it (as hex text) and the form. Changing
anything here means a new domain string: old segments are then not found, never misread.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from decimal import Decimal, InvalidOperation
from typing import Any, cast

import msgspec
from blake3 import blake3

from clew.conversation.groups import group_messages
from clew.conversation.model import Call, Group, Message
from clew.conversation.text import has_surrogates, mend_surrogates
from clew.ids import ChainKey

DOMAIN = b"clew-residue-v1"

MAX_DEPTH = 200
"""How deep arguments may be nested and still count as JSON."""

_ENCODE = msgspec.json.Encoder(order="sorted").encode
_DECODE = msgspec.json.Decoder().decode
_MAYBE_FLOAT = re.compile(r"[0-9][.eE]")
_BRACKET = re.compile(r'"(?:[^"\\]++|\\.)*+"?|[\[\]{}]', re.DOTALL)
_EMPTY_OBJECT = msgspec.Raw(b"{}")


def first_key() -> ChainKey:
    """Returns key(0), the key of the empty conversation."""
    return ChainKey(blake3(DOMAIN).hexdigest())


def next_key(previous: ChainKey, form: bytes) -> ChainKey:
    """Returns the key of a group from the key before it and the group's canonical form."""
    return ChainKey(blake3(previous.encode() + form).hexdigest())


def keys_of(messages: Iterable[Message], start: ChainKey | None = None) -> Iterator[ChainKey]:
    """Yields one key a group, in order, going on from `start` (key(0) when None)."""
    key = start or first_key()
    for group in group_messages(messages):
        key = next_key(key, canonical_form(group))
        yield key


def canonical_form(group: Group) -> bytes:
    """Returns the canonical form of a group as UTF-8 JSON."""
    head = group.head
    calls = head.calls
    form = (
        head.role,
        _clean(head.text),
        [(_clean(call.name), normal_arguments(call.arguments)) for call in calls],
        [_clean(result.text) for result in sort_results(calls, group.results)],
    )
    return _ENCODE(form)


def sort_results(calls: tuple[Call, ...], results: tuple[Message, ...]) -> list[Message]:
    """Returns the results in the order of the calls they answer; those answering none go last, ties keep order.

    Where several calls have one id, the first result with it answers the first of them, and so on.
    """
    if len(results) < 2:
        return list(results)
    places: dict[str, list[int]] = {}
    for position, call in enumerate(calls):
        places.setdefault(call.id, []).append(position)
    ranked: list[tuple[int, int, Message]] = []
    for order, result in enumerate(results):
        open_places = places.get(result.call_id)
        ranked.append((open_places.pop(0) if open_places else len(calls), order, result))
    return [result for _, _, result in sorted(ranked, key=lambda r: r[:2])]


def normal_arguments(text: str) -> msgspec.Raw | str:
    """Returns the arguments as normal JSON, or the text itself where it is no strict JSON.

    An empty or blank text equals `{}`. Objects have sorted keys, the last of duplicates wins; integers are exact;
    every other number is the double that it names as ECMAScript writes it. What is nested deeper than MAX_DEPTH is
    no JSON here: how deep a parser follows must not depend on who calls it.
    """
    if not text or text.isspace():
        return _EMPTY_OBJECT
    if text[0] not in '{["-0123456789tfn \t\r\n' or _is_too_deep(text):
        return _clean(text)
    try:
        value = _DECODE(text)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return _normal_slowly(text)
    if _MAYBE_FLOAT.search(text):
        return _normal_slowly(text)
    return msgspec.Raw(_ENCODE(value))


def _is_too_deep(text: str) -> bool:
    if text.count("[") + text.count("{") <= MAX_DEPTH:
        return False
    depth = 0
    for match in _BRACKET.finditer(text):
        sign = text[match.start()]
        if sign in "[{":
            depth += 1
            if depth > MAX_DEPTH:
                return True
        elif sign in "]}":
            depth -= 1
    return False


def _clean(text: str) -> str:
    return mend_surrogates(text) if has_surrogates(text) else text


class _NotJson(ValueError):
    pass


def _normal_slowly(text: str) -> msgspec.Raw | str:
    """The same through the standard library: floats, huge integers, surrogates, odd nesting."""
    try:
        value = json.loads(
            text,
            parse_int=_Number,
            parse_float=_make_double,
            parse_constant=_refuse_constant,
            object_pairs_hook=_make_object,
            strict=True,
        )
        out: list[str] = []
        _write(value, out)
    except (_NotJson, ValueError, RecursionError):
        return _clean(text)
    return msgspec.Raw("".join(out).encode())


def _make_object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    return {_clean(name): value for name, value in pairs}  # names that differ by lone surrogates alone are equal


class _Number(str):
    """A number in its final spelling."""

    __slots__ = ()


def _refuse_constant(name: str) -> object:
    raise _NotJson(name)


def _make_double(text: str) -> _Number:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise _NotJson(text)
    return _Number(ecma_number(value))


def ecma_number(value: float) -> str:
    """Returns a finite double as ECMAScript's Number::toString writes it."""
    if value == 0:
        return "0"
    try:
        sign, digits, exponent = Decimal(repr(value)).as_tuple()
    except InvalidOperation as error:  # pragma: no cover - repr of a finite float is a decimal
        raise _NotJson(repr(value)) from error
    assert isinstance(exponent, int), "a finite double has a finite exponent"
    text = "".join(map(str, digits)).rstrip("0")
    exponent += len(digits) - len(text)
    point = len(text) + exponent  # the value is 0.text times ten to the point
    if 0 < point <= 21:
        body = text.ljust(point, "0") if exponent >= 0 else f"{text[:point]}.{text[point:]}"
    elif -6 < point <= 0:
        body = "0." + "0" * -point + text
    else:
        mantissa = text if len(text) == 1 else f"{text[0]}.{text[1:]}"
        body = f"{mantissa}e{'+' if point > 0 else '-'}{abs(point - 1)}"
    return ("-" if sign else "") + body


def _write(value: Any, out: list[str]) -> None:
    if isinstance(value, _Number):
        out.append("0" if value == "-0" else value)
    elif isinstance(value, dict):
        out.append("{")
        items = cast(dict[str, Any], value)
        for number, name in enumerate(sorted(items)):
            out.append(("," if number else "") + _ENCODE(name).decode() + ":")
            _write(items[name], out)
        out.append("}")
    elif isinstance(value, list):
        out.append("[")
        for number, item in enumerate(cast(list[Any], value)):
            if number:
                out.append(",")
            _write(item, out)
        out.append("]")
    else:
        out.append(_ENCODE(_clean(value) if isinstance(value, str) else value).decode())
