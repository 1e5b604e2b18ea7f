"""What a call changes in files, as lines with signs: read from the arguments that editing tools of agents take.

Knows an old and a new text, lists of such pairs, a whole new text, and patches in the two usual spellings. What it
does not know is no change. Pure; texts come out as they are in the session, not made safe.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

import msgspec

MAX_COMPARED: Final = 2_000
"""Lines beyond which two texts are not compared line by line: all of the old is out, all of the new is in."""

_PATHS = ("file_path", "path", "notebook_path", "filename", "file")
_FILE_LINE = re.compile(r"\*\*\* (?:Add|Update|Delete) File: (.*)|\+\+\+ (?:b/)?(\S.*)")


class Change(msgspec.Struct, frozen=True):
    """Changed lines of one file, each with its sign: `+`, `-` or a blank."""

    path: str
    lines: tuple[tuple[str, str], ...]

    @property
    def added(self) -> int:
        """Returns how many lines came in."""
        return sum(sign == "+" for sign, _ in self.lines)

    @property
    def removed(self) -> int:
        """Returns how many lines went out."""
        return sum(sign == "-" for sign, _ in self.lines)


def changes_of(arguments: Mapping[str, Any] | str) -> tuple[Change, ...]:
    """Returns what a call with these arguments changes; nothing where it does not edit files."""
    if isinstance(arguments, str):
        return tuple(_patch_changes(arguments)) if "*** Begin Patch" in arguments else ()
    path = path_of(arguments)
    for name in ("patch", "input"):
        text = arguments.get(name)
        if isinstance(text, str) and ("*** Begin Patch" in text or text.startswith("--- ")):
            return tuple(_patch_changes(text))
    if not path:
        return ()
    pairs = list(_pairs(arguments))
    if pairs:
        return (Change(path, tuple(line for old, new in pairs for line in _compare(old, new))),)
    content = arguments.get("content")
    if isinstance(content, str):
        return (Change(path, tuple(("+", line) for line in content.splitlines())),)
    return ()


def path_of(arguments: Mapping[str, Any]) -> str:
    """Returns the file that the arguments name, or nothing."""
    return next((value for name in _PATHS if isinstance(value := arguments.get(name), str)), "")


def _pairs(arguments: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    edits: Any = arguments.get("edits")
    for edit in cast(list[Any], edits) if isinstance(edits, list) else [arguments]:
        if isinstance(edit, dict):
            fields = cast(dict[str, Any], edit)
            old, new = fields.get("old_string", fields.get("oldText")), fields.get("new_string", fields.get("newText"))
            if isinstance(old, str) and isinstance(new, str):
                yield old, new


def _compare(old: str, new: str) -> Iterator[tuple[str, str]]:
    before, after = old.splitlines(), new.splitlines()
    if len(before) + len(after) > MAX_COMPARED:
        yield from (("-", line) for line in before)
        yield from (("+", line) for line in after)
        return
    from difflib import SequenceMatcher

    for tag, i, j, k, m in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if tag == "equal":
            yield from ((" ", line) for line in before[i:j])
        else:
            yield from (("-", line) for line in before[i:j])
            yield from (("+", line) for line in after[k:m])


def _patch_changes(text: str) -> Iterator[Change]:
    path = ""
    lines: list[tuple[str, str]] = []
    for line in text.splitlines():
        named = _FILE_LINE.match(line)
        if named:
            if path and lines:
                yield Change(path, tuple(lines))
            path, lines = named.group(1) or named.group(2), []
        elif line.startswith(("***", "--- ")):
            continue
        elif line.startswith("@@"):
            lines.append((" ", line))
        elif path:
            lines.append((line[0], line[1:]) if line[:1] in ("+", "-", " ") else (" ", line))
    if path:
        yield Change(path, tuple(lines))
