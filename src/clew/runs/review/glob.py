"""Patterns over paths: `*`, `?`, `[...]` within one name, `**` over folders, `{a,b}` expanded once; case plays no part.

A pattern without a separator matches a name in any folder; one that ends in a separator matches all below that folder.
"""

from __future__ import annotations

import itertools
import re
from functools import cache

from clew.errors import UsageError

_BRACES = re.compile(r"\{([^{}]*)\}")
_MAX = 256


def matches(pattern: str, path: str) -> bool:
    """Tells whether `path`, with forward slashes, matches `pattern`; raises UsageError for one that is no pattern."""
    return _compiled(pattern).fullmatch(path) is not None


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    if not pattern.strip("/"):
        raise UsageError(f"{pattern!r} is no pattern", hint="Write one such as src/**/*.py.")
    try:
        return re.compile("|".join(_translate(part) for part in expand(pattern)), re.IGNORECASE | re.DOTALL)
    except re.error as error:
        raise UsageError(f"{pattern!r} is no pattern: {error}", hint="Write one such as src/**/*.py.") from error


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


def _translate(pattern: str) -> str:
    if pattern.startswith(("./", "/")):
        pattern = pattern.removeprefix(".").removeprefix("/")
    elif "/" not in pattern.rstrip("/"):
        pattern = f"**/{pattern}"
    if pattern.endswith("/"):
        pattern += "**"
    out: list[str] = []
    place = 0
    while place < len(pattern):
        if pattern.startswith("**/", place) and (place == 0 or pattern[place - 1] == "/"):
            out.append("(?:.*/)?")
            place += 3
        elif pattern.startswith("**", place):
            out.append(".*")
            place += 2
        elif pattern[place] == "*":
            out.append("[^/]*")
            place += 1
        elif pattern[place] == "?":
            out.append("[^/]")
            place += 1
        elif pattern[place] == "[" and (end := pattern.find("]", place + 2)) > 0:
            inner = pattern[place + 1 : end].replace("\\", "\\\\")
            negated = inner.startswith(("!", "^"))
            out.append(f"(?!/)[{'^' if negated else ''}{inner[1:] if negated else inner}]")
            place = end + 1
        else:
            out.append(re.escape(pattern[place]))
            place += 1
    return "".join(out)
