"""A tool call in one line: its name, the argument that matters, what it changed, and how it ended.

Arguments are the agents' own, so the rules are guesses about names that many tools share; what they do not know is
shown as it is written. Pure; texts come out as they are in the session, not made safe.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

import msgspec

from clew.cli.changes import Change, changes_of, path_of
from clew.verbs.show import ShownCall, ShownGroup, ShownResult

GIST: Final = ("command", "cmd", "pattern", "query", "url", "description", "subject", "title", "prompt", "name")
"""Names of arguments, in the order in which one of them says best what a call does (a file's path comes before)."""

_SHELLS = ("bash", "sh", "zsh")


class CallView(msgspec.Struct, frozen=True):
    """One call with its answer. `result` is None where nothing answered; `rest` are arguments that `gist` does not
    show."""

    name: str
    gist: str
    changes: tuple[Change, ...]
    rest: tuple[tuple[str, str], ...]
    result: ShownResult | None

    @property
    def failed(self) -> bool:
        """Tells whether the agent says that the call failed."""
        return self.result is not None and self.result.is_error is True

    @property
    def last_line(self) -> str:
        """Returns the last line of the answer that says something."""
        lines = self.result.text.rstrip().splitlines() if self.result is not None else []
        return lines[-1].strip() if lines else ""

    @property
    def size(self) -> str:
        """Returns how much the call changed: `+3 -2`, or nothing."""
        added, removed = (sum(getattr(c, name) for c in self.changes) for name in ("added", "removed"))
        return " ".join(text for number, text in ((added, f"+{added}"), (removed, f"-{removed}")) if number)


def view_calls(group: ShownGroup, cwd: str = "") -> tuple[tuple[CallView, ...], tuple[ShownResult, ...]]:
    """Returns a group's calls in order, each with its answer, and the results that answer none of them."""
    left = list(group.tool_results)
    views = tuple(view_call(call, _take(left, call.id), cwd) for call in group.tool_calls)
    return views, tuple(left)


def _take(results: list[ShownResult], call_id: str) -> ShownResult | None:
    for position, result in enumerate(results):
        if result.call_id == call_id:
            return results.pop(position)
    return None


def view_call(call: ShownCall, result: ShownResult | None, cwd: str = "") -> CallView:
    """Returns one call as it is shown; `cwd` is the session's folder, which paths are shortened by."""
    arguments = read_arguments(call.arguments)
    changes = changes_of(arguments)
    if isinstance(arguments, str):
        if changes:
            return CallView(call.name, ", ".join(_below(c.path, cwd) for c in changes), changes, (), result)
        first, _, more = arguments.strip().partition("\n")
        return CallView(call.name, first, (), (("input", arguments),) if more else (), result)
    name, gist = _gist(arguments, changes, cwd)
    shown = {name} if "\n" not in gist else set[str]()
    if changes:
        shown |= {"old_string", "new_string", "edits", "content", "patch", "input", "oldText", "newText"}
    rest = tuple((key, as_text(value)) for key, value in arguments.items() if key not in shown)
    return CallView(call.name, gist.strip().partition("\n")[0], changes, rest, result)


def read_arguments(text: str) -> Mapping[str, Any] | str:
    """Returns the arguments as an object, or as the text they are where they are no object."""
    try:
        value: object = json.loads(text) if text.strip() else {}
    except (ValueError, RecursionError):
        return text
    return cast(dict[str, Any], value) if isinstance(value, dict) else text


def as_text(value: object) -> str:
    """Returns one argument as text: a text as itself, a command line as one, everything else as JSON."""
    if isinstance(value, str):
        return value
    if _is_command(value):
        words = cast(Sequence[str], value)
        if len(words) == 3 and words[0].rpartition("/")[2] in _SHELLS and words[1] in ("-c", "-lc"):
            return words[2]
        return shlex.join(words)
    return json.dumps(value, ensure_ascii=False)


def _is_command(value: object) -> bool:
    words = cast(list[object], value) if isinstance(value, list) else []
    return bool(words) and all(isinstance(word, str) for word in words)


def _gist(arguments: Mapping[str, Any], changes: tuple[Change, ...], cwd: str) -> tuple[str, str]:
    """Returns the name and the text of the argument that says what the call does."""
    path = path_of(arguments)
    if path:
        return next(name for name, value in arguments.items() if value == path), _below(path, cwd)
    if changes:
        return "", ", ".join(_below(change.path, cwd) for change in changes)
    for name in GIST:
        if arguments.get(name):
            return name, as_text(arguments[name])
    for name, value in arguments.items():
        if isinstance(value, str) and value:
            return name, value
    return "", ""


def _below(path: str, cwd: str) -> str:
    return path[len(cwd) + 1 :] if cwd and path.startswith(cwd.rstrip("/") + "/") else path
