"""Parameters that several verbs share: SESSION, AGENT, folders; with their completion in a shell.

Completion never fails and never prints: what cannot be listed is not offered. Agents are checked here, so that a
wrong name is a usage error that knows the right ones; sessions are looked up by the verbs.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.shell_completion import CompletionItem

from clew.cli.safe import make_safe
from clew.conversation.text import mend_surrogates
from clew.errors import UsageError

if TYPE_CHECKING:
    _TextType = click.ParamType[str]
else:
    _TextType = click.ParamType  # generic only in newer versions of click

F = TypeVar("F", bound=Callable[..., Any])

_SAFE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*\Z")
_WINDOWS = re.compile(r"[A-Za-z]:[\\/]|\\\\")
_OFFERED = 50


class AgentType(_TextType):
    """The short name of an agent that is registered."""

    name = "agent"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Returns the name; fails with the names that exist."""
        from clew.formats.registry import format_names

        text, names = str(value).lower(), format_names()
        if text not in names:
            self.fail(f"no agent is called {value!r}; known: {', '.join(names)}", param, ctx)
        return text

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Offers the agents that begin so."""
        from clew.formats.registry import format_names

        return [CompletionItem(name) for name in format_names() if name.startswith(incomplete)]


class SessionType(_TextType):
    """A SESSION; any text, looked up by the verb."""

    name = "session"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Returns the text as it is."""
        return str(value)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Offers `@` and the ids of this folder's newest sessions, with their titles."""
        try:
            return _offer_sessions(ctx, incomplete)
        except Exception:  # noqa: BLE001 - at the face: a completion that fails offers nothing
            return []


def _offer_sessions(ctx: click.Context, incomplete: str) -> list[CompletionItem]:
    from clew.cli.group import Invocation, State
    from clew.verbs.ls import ls

    state = ctx.find_object(State)
    if state is None:
        return []
    items = [CompletionItem("@", help="the newest of this folder")]
    with Invocation(state).context() as verbs:
        for row in islice(ls(verbs), _OFFERED):
            text = row.id if len(incomplete) > len(row.short) else row.short
            if _SAFE_ID.match(text):
                items.append(CompletionItem(text, help=f"{row.agent} {make_safe(row.title, line=True)[:60]}"))
    return [item for item in items if str(item.value).startswith(incomplete)]


def session_argument(function: F) -> F:
    """Adds the argument SESSION, `@` when it is left out."""
    return click.argument("session", metavar="[SESSION]", default="@", type=SessionType())(function)


class FolderType(click.Path):
    """A folder to write below; an empty text (a variable that is not set) is no name of the current one."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Returns the text; fails when it is empty."""
        if value == "":
            self.fail("a folder is needed; `.` is the current one", param, ctx)
        return super().convert(value, param, ctx)


def folder_text(cwd: Path, text: str) -> str:
    """Returns a folder named on the command line as an absolute path; a Windows path is taken as it stands.

    Links are followed where the folder exists: agents record the folder that the system tells them. Raises
    UsageError for an empty text: a variable that is not set is no name of the current folder.
    """
    if not text:
        raise UsageError("--cwd names no folder", hint="`.` is the current one.")
    if mend_surrogates(text) != text:
        raise UsageError(
            f"--cwd {make_safe(text, line=True)} is no text", hint="Sessions name their folder in UTF-8; rename it."
        )
    if _WINDOWS.match(text):
        return text
    return os.path.realpath(cwd / text)
