"""Patterns over paths: `*`, `?`, `[...]` within one name, `**` over folders, `{a,b}` expanded once; case plays no part.

A pattern without a separator matches a name in any folder; one that ends in a separator matches all below that folder.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from functools import cache, lru_cache
from typing import Literal

from msgspec import Struct

from clew.errors import UsageError

_BRACES = re.compile(r"\{([^{}]*)\}")
_MAX = 256


class _Token(Struct, frozen=True):
    """One piece of a pattern: `folders` and `deep` go over separators, `star` and what takes one character do not."""

    kind: Literal["folders", "deep", "star", "one", "class", "text"]
    chars: frozenset[str] = frozenset()
    ranges: tuple[tuple[str, str], ...] = ()
    negated: bool = False


def matches(pattern: str, path: str) -> bool:
    """Tells whether `path`, with forward slashes, matches `pattern`; raises UsageError for one that is no pattern."""
    return any(_fits(tokens, path) for tokens in _compiled(pattern))


@cache
def _compiled(pattern: str) -> tuple[tuple[_Token, ...], ...]:
    if not pattern.strip("/"):
        raise UsageError(f"{pattern!r} is no pattern", hint="Write one such as src/**/*.py.")
    return tuple(tuple(_tokens(part, pattern)) for part in expand(pattern))


def expand(pattern: str) -> tuple[str, ...]:
    """Returns the patterns that braces stand for; inner braces are not expanded again."""
    pieces = _BRACES.split(pattern)
    # Odd places hold what stood in braces. A single choice is no choice: the braces stand for themselves.
    choices = [
        piece.split(",") if place % 2 and "," in piece else ["{%s}" % piece if place % 2 else piece]  # noqa: UP031
        for place, piece in enumerate(pieces)
    ]
    count = 1
    for choice in choices:
        count *= len(choice)
    if count > _MAX:
        raise UsageError(f"{pattern!r} stands for {count} patterns; {_MAX} are allowed")
    return tuple("".join(parts) for parts in itertools.product(*choices))


def _tokens(part: str, pattern: str) -> Iterator[_Token]:
    if part.startswith(("./", "/")):
        part = part.removeprefix(".").removeprefix("/")
    elif "/" not in part.rstrip("/"):
        part = f"**/{part}"
    if part.endswith("/"):
        part += "**"
    place = 0
    while place < len(part):
        if part.startswith("**/", place) and (place == 0 or part[place - 1] == "/"):
            yield _Token("folders")
            place += 3
        elif part.startswith("**", place):
            yield _Token("deep")
            place += 2
        elif part[place] in "*?":
            yield _Token("star" if part[place] == "*" else "one")
            place += 1
        elif part[place] == "[" and (end := _class_end(part, place)) > 0:
            yield _class(part[place + 1 : end], pattern)
            place = end + 1
        else:
            yield _Token("text", frozenset(_cases(part[place])))
            place += 1


def _class_end(part: str, start: int) -> int:
    # A bracket that closes at once is one of the characters.
    return part.find("]", start + (3 if part.startswith(("[!", "[^"), start) else 2))


def _class(inner: str, pattern: str) -> _Token:
    negated = inner.startswith(("!", "^"))
    inner = inner[1:] if negated else inner
    chars: set[str] = set()
    ranges: list[tuple[str, str]] = []
    place = 0
    while place < len(inner):
        if place + 2 < len(inner) and inner[place + 1] == "-":
            low, high = inner[place], inner[place + 2]
            if low > high:
                raise UsageError(f"{pattern!r} is no pattern: bad range {low}-{high}", hint="Write one such as [a-z]*.")
            ranges.append((low, high))
            place += 3
        else:
            chars.update(_cases(inner[place]))
            place += 1
    return _Token("class", frozenset(chars), tuple(ranges), negated)


def _cases(char: str) -> tuple[str, ...]:
    return char, char.lower(), char.upper()


# A pattern is walked once, token by token, over the set of all places that the path may be at: bit n of a number
# stands for the place before its n-th character. So no pattern takes long, whoever wrote it; a regular expression
# would try all ways in which `**/**/**/x` can be laid over a deep path.


@lru_cache(maxsize=64)
def _places(path: str) -> tuple[dict[str, int], tuple[int, ...]]:
    """Returns where each character stands, and the bits of each name of the path with the place behind it."""
    where: dict[str, int] = {}
    for number, char in enumerate(path):
        where[char] = where.get(char, 0) | 1 << number
    names: list[int] = []
    start = 0
    for name in path.split("/"):
        end = start + len(name)
        names.append((1 << end + 1) - (1 << start))
        start = end + 1
    return where, tuple(names)


def _fits(tokens: tuple[_Token, ...], path: str) -> bool:
    where, names = _places(path)
    whole = (1 << len(path) + 1) - 1
    now = 1
    for token in tokens:
        lowest = now & -now
        if token.kind == "deep":
            now = whole & ~(lowest - 1)
        elif token.kind == "folders":
            now |= where.get("/", 0) << 1 & ~((lowest << 1) - 1)
        elif token.kind == "star":
            now = _spread(now, names)
        else:
            now = (now & _mask(token, where, len(path))) << 1
        if not now:
            return False
    return bool(now >> len(path) & 1)


def _spread(now: int, names: tuple[int, ...]) -> int:
    """Returns the places that are reached from `now` without leaving a name."""
    found = 0
    for name in names:
        here = now & name
        if here:
            found |= name & ~((here & -here) - 1)
    return found


def _mask(token: _Token, where: dict[str, int], length: int) -> int:
    """Returns the places of the characters that a token of one character takes."""
    if token.kind == "text":
        return sum(where.get(char, 0) for char in token.chars)
    other = ((1 << length) - 1) & ~where.get("/", 0)
    if token.kind == "one":
        return other
    taken = 0
    for char, places in where.items():
        cases = _cases(char)
        if not token.chars.isdisjoint(cases) or any(low <= c <= high for low, high in token.ranges for c in cases):
            taken |= places
    return other & ~taken if token.negated else other & taken
