"""Compares what a reader makes of a recorded session with what was really said in it."""

from __future__ import annotations

import json
from typing import Any

from clew.conversation.canonical import normal_arguments
from clew.conversation.groups import group_messages
from clew.conversation.source import Session
from clew.formats.protocol import Format, Found, Home
from clew_corpus import Case

__all__ = ["find_in_case", "read_case", "said_in", "wanted_of"]


def find_in_case(form: Format, case: Case) -> Found:
    """Returns the session of a case as its place shows it."""
    return next(f for f in form.locate.find(Home(case.home)) if case.session_id in (f.id, None))


def read_case(form: Format, case: Case) -> Session:
    """Returns the session of a case."""
    return form.read(form.locate.load(find_in_case(form, case), Home(case.home)))


def _plain(arguments: Any) -> str:
    normal = normal_arguments(arguments if isinstance(arguments, str) else json.dumps(arguments))
    return normal if isinstance(normal, str) else bytes(normal).decode()


def said_in(messages: Any) -> list[Any]:
    """Returns groups as (role, text, calls, results)."""
    return [
        (
            group.head.role,
            group.head.text,
            [(call.name, _plain(call.arguments)) for call in group.head.calls],
            [result.text for result in group.results],
        )
        for group in group_messages(messages)
    ]


def wanted_of(messages: Any) -> list[Any]:
    """Returns what a case expects, in the same shape."""
    return [
        (
            one["role"],
            one["text"],
            [(call["name"], _plain(call["arguments"])) for call in one["tool_calls"]],
            [result["text"] for result in one["tool_results"]],
        )
        for one in messages
    ]
