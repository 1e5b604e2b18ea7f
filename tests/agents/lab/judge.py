"""Judges whether a real agent sent its model the conversation that it should know.

The measure is a list of groups, as plain dicts in order: {role, text, tool_calls: [{name, arguments}], results:
[text], images?}. A group is a message of the user or of the assistant together with the results of its calls.

What an agent is allowed to do on the way, because the conversation stays the same: neighbouring messages of one
role are joined, or one message is sent as several texts; results of one message come in any order; a call without
a result gets an invented one; a filler stands where the API wants a turn. Everything else is a difference.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from agents.lab.seen import Seen

__all__ = ["FILLERS", "Group", "as_groups", "judge_messages", "judge_sees", "to_groups"]

Group = Mapping[str, Any]

FILLERS = ("No response requested.", "(no content)")
"""What Claude Code puts in by itself where a turn is missing."""


def to_groups(messages: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Turns messages with results of their own (role tool, or in a user message) into messages that carry them.

    A result goes to the oldest call before it with that id and no result yet; one without a call is left out. The
    shape is {role, text, tool_calls: [{id, name, arguments}], tool_results: [{call_id, text, is_error}], images},
    results in the order of their calls. A user message that holds results alone becomes none.
    """
    groups: list[dict[str, Any]] = []
    waiting: dict[str, list[tuple[dict[str, Any], int]]] = {}
    for source in messages:
        calls = [dict(call) for call in source.get("tool_calls") or []]
        images = _images(source)
        if not calls and source.get("tool_results"):
            _deliver(source["tool_results"], waiting, images)
            images = []  # they came with the results
        if source["role"] in ("user", "assistant") and (source["text"] or calls or images):
            group = {"role": source["role"], "text": source["text"], "tool_calls": calls}
            group |= {"tool_results": [], "images": images}
            groups.append(group)
            for position, call in enumerate(calls):
                waiting.setdefault(call.get("id") or "", []).append((group, position))
        if calls:
            _deliver(source.get("tool_results") or [], waiting, [])
    for group in groups:
        ordered = sorted(group["tool_results"], key=lambda pair: pair[0])
        group["tool_results"] = [found for _, found in ordered]
    return groups


def _full_name(call: Mapping[str, Any]) -> str:
    space = call.get("namespace")
    return f"{space}.{call['name']}" if space else str(call["name"])


def _images(source: Mapping[str, Any]) -> list[str]:
    found = source.get("images") or []
    return [""] * found if isinstance(found, int) else list(found)


def _deliver(
    results: Iterable[Mapping[str, Any]],
    waiting: dict[str, list[tuple[dict[str, Any], int]]],
    images: list[str],
) -> None:
    for result in results:
        call_id = result.get("call_id", result.get("id")) or ""
        takers = waiting.get(call_id)
        if takers:
            group, position = takers.pop(0)
            found = {"call_id": call_id, "text": result["text"], "is_error": result.get("is_error")}
            group["tool_results"].append((position, found))
            group["images"].extend(images)
            images = []


def as_groups(messages: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Turns messages, or groups with `tool_results`, into the measure's shape: {role, text, tool_calls, results}."""
    return [
        {
            "role": one["role"],
            "text": one["text"],
            "tool_calls": [{"name": _full_name(call), "arguments": call["arguments"]} for call in one["tool_calls"]],
            "results": [result["text"] for result in one["tool_results"]],
            "images": len(one["images"]),
        }
        for one in to_groups(messages)
    ]


@dataclass
class _Turn:
    """Neighbouring messages of one role, joined; it ends where results come."""

    role: str
    text: str = ""
    calls: list[tuple[str, str]] = field(default_factory=list)
    results: list[str] = field(default_factory=list)
    images: int = 0
    counts_images: bool = True

    def __str__(self) -> str:
        said = self.text if len(self.text) < 60 else f"{self.text[:40]}...{self.text[-12:]}"
        names = "".join(f" +{name}()" for name, _ in self.calls)
        return f"{self.role} {said!r}{names}"


def _turns(groups: Iterable[Group], rename: Callable[[str], str]) -> list[_Turn]:
    turns: list[_Turn] = []
    for group in groups:
        if not turns or turns[-1].role != group["role"] or turns[-1].results:
            turns.append(_Turn(group["role"]))
        turn = turns[-1]
        turn.text += _whole(group["text"])
        for call in group["tool_calls"]:
            turn.calls.append((rename(call["name"]), _plain(call["arguments"])))
        turn.results.extend(_whole(result) for result in group["results"])
        images = group.get("images")
        turn.images += images if isinstance(images, int) else len(images or [])
        turn.counts_images = turn.counts_images and "images" in group
    return turns


def _plain(arguments: Any) -> str:
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except ValueError:
            pass  # free text of a custom tool is compared as text
    # Spelled with their own characters, so that half of a surrogate pair is seen as one.
    return _whole(json.dumps(arguments, sort_keys=True, ensure_ascii=False))


def _whole(text: str) -> str:
    """Puts U+FFFD for lone surrogates: no model is sent any, and the canonical form has none."""
    return re.sub("[\ud800-\udfff]", "\ufffd", text)


def judge_sees(seen: Seen, groups: Iterable[Group], *, rename: Callable[[str], str] = lambda name: name) -> list[str]:
    """Returns the differences between what the model was sent before the prompt, and the groups.

    An agent that did not resume is one difference. `rename` maps a group's tool name to what this agent is given.
    """
    if not seen.resumed:
        return [f"the agent did not resume (exit {seen.exit}): {seen.refusal[:300]}"]
    return judge_messages(seen.history, groups, rename=rename)


def judge_messages(
    messages: Iterable[Mapping[str, Any]],
    groups: Iterable[Group],
    *,
    rename: Callable[[str], str] = lambda name: name,
) -> list[str]:
    """Returns the differences between messages as `Seen` has them, and the groups."""
    groups = list(groups)
    want = _turns(groups, rename)
    known = {group["text"] for group in groups}
    sent = [group for group in as_groups(messages) if not _is_filler(group, known)]
    got = _turns(sent, lambda name: name)
    found: list[str] = []
    at = 0
    for turn in want:
        if at >= len(got):
            found.append(f"missing: {turn}")
            continue
        while at + 1 < len(got) and _goes_on(turn, got[at], got[at + 1]):
            got[at : at + 2] = [_joined(got[at], got[at + 1])]
        differences = _compare(turn, got[at])
        found += differences
        if differences and got[at].role != turn.role:
            return found  # out of step: what follows would only repeat it
        at += 1
    return found + [f"not expected: {turn}" for turn in got[at:]]


def _is_filler(group: Group, known: set[str]) -> bool:
    return group["text"] in FILLERS and group["text"] not in known and not group["tool_calls"]


def _goes_on(want: _Turn, got: _Turn, following: _Turn) -> bool:
    # Codex puts its invented result straight behind a call without one, in between parallel calls.
    unanswered = len(want.results) < len(want.calls)
    same = want.role == got.role == following.role == "assistant"
    return unanswered and same and len(got.calls) < len(want.calls)


def _joined(got: _Turn, following: _Turn) -> _Turn:
    return _Turn(
        got.role,
        got.text + following.text,
        got.calls + following.calls,
        got.results + following.results,
        got.images + following.images,
    )


def _compare(want: _Turn, got: _Turn) -> list[str]:
    if want.role != got.role:
        return [f"expected {want}, got {got}"]
    found: list[str] = []
    if want.text != got.text:
        found.append(f"{want.role} text: expected {_near(want.text, got.text)}")
    if len(want.calls) != len(got.calls) or not all(map(_same_call, want.calls, got.calls)):
        found.append(f"calls of {want}: expected {want.calls}, got {got.calls}")
    short = len(want.results) < len(want.calls)
    missing = Counter(want.results) - Counter(got.results)
    extra = Counter(got.results) - Counter(want.results)
    if missing or (extra and not short):
        lost, more = list(missing)[:2], list(extra)[:2]
        found.append(f"results of {want}: missing {lost!r:.400}, not expected {more!r:.400}")
    if want.counts_images and want.images != got.images:
        found.append(f"images of {want}: expected {want.images}, got {got.images}")
    return found


def _same_call(want: tuple[str, str], got: tuple[str, str]) -> bool:
    # Codex keeps a tool's namespace apart from its name: both spellings name the tool.
    names = (got[0], got[0].rpartition(".")[2])
    return want[0] in names and want[1] == got[1]


def _near(want: str, got: str) -> str:
    at = next((n for n, (a, b) in enumerate(zip(want, got, strict=False)) if a != b), min(len(want), len(got)))
    start = max(0, at - 20)
    return f"{want[start : at + 40]!r} at {at}, got {got[start : at + 40]!r} (lengths {len(want)}, {len(got)})"
