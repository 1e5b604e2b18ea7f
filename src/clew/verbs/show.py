"""`clew show`: one conversation, group by group: the effective context, or the full history."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from clew.conversation.canonical import canonical_form, first_key, next_key, sort_results
from clew.conversation.groups import group_messages
from clew.conversation.loss import Damage, Loss
from clew.conversation.model import Group, Message, Reasoning
from clew.errors import NotFoundError, StoreError
from clew.verbs import lineage_rows as rows
from clew.verbs.context import Context
from clew.verbs.reading import Opened
from clew.verbs.refer import open_session
from clew.verbs.summary import iso, title_of


class ShownCall(msgspec.Struct, frozen=True):
    """A tool call with its arguments as text."""

    id: str
    name: str
    arguments: str


class ShownResult(msgspec.Struct, frozen=True):
    """The result of a call; `is_error` is null where the agent does not say."""

    call_id: str
    text: str
    is_error: bool | None
    images: int = 0


class ShownGroup(msgspec.Struct, frozen=True):
    """One group: a message and the results that answer it. `key` is its chain key."""

    role: str
    text: str
    tool_calls: tuple[ShownCall, ...]
    tool_results: tuple[ShownResult, ...]
    key: str
    origin: str
    kind: str
    images: int
    time: str = ""
    reasoning: int = 0


class ShownBoundary(msgspec.Struct, frozen=True):
    """A cut in the full history: groups before number `at` are not in the model's context."""

    at: int
    kind: str
    note: str


class ShownBranch(msgspec.Struct, frozen=True):
    """A branch that is not active: it leaves the history behind group `at`."""

    number: int
    at: int
    messages: tuple[ShownGroup, ...]


class Shown(msgspec.Struct, frozen=True):
    """The answer of `show` (docs/cli.md)."""

    agent: str
    session_id: str
    cwd: str
    title: str
    model: str
    provider: str
    messages: tuple[ShownGroup, ...]
    damage: tuple[Damage, ...]
    losses: tuple[Loss, ...]
    path: str = ""
    created: str = ""
    updated: str = ""
    state: str = "idle"
    thread: str = ""
    boundaries: tuple[ShownBoundary, ...] = ()
    branches: tuple[ShownBranch, ...] = ()
    full: bool = False


def show(ctx: Context, ref: str, *, full: bool = False, branch: int | None = None) -> Shown:
    """Returns a session's conversation; with `branch`, that inactive branch instead (numbers from 1)."""
    opened = open_session(ctx, ref)
    session = opened.session
    messages: Sequence[Message] = session.history if full else session.messages
    if branch is not None:
        chosen = next((b for b in session.branches if b.number == branch), None)
        if chosen is None:
            raise NotFoundError(
                f"session {session.id} has no branch {branch}; it has {len(session.branches)}", session=session.id
            )
        messages = (*session.history[: chosen.at], *chosen.messages)
    thread = _find_thread(ctx, opened)
    state = "gone" if opened.found is None else ("empty" if not session.history else "idle")
    if opened.found is not None and opened.format.resume.owner(opened.found, ctx.home) is not None:
        state = "live"
    return Shown(
        opened.format.name,
        session.id,
        session.cwd,
        title_of(session),
        session.model,
        session.provider,
        show_groups(messages),
        session.damage,
        session.losses,
        str(opened.found.path) if opened.found is not None else "",
        iso(session.created_ms),
        iso(session.updated_ms),
        state,
        thread.thread.thread_id if thread is not None else "",
        tuple(ShownBoundary(_group_at(session.history, b.at), b.kind, b.note) for b in session.boundaries),
        tuple(
            ShownBranch(b.number, _group_at(session.history, b.at), show_groups(b.messages)) for b in session.branches
        ),
        full,
    )


def _find_thread(ctx: Context, opened: Opened) -> rows.ThreadView | None:
    """Returns the session's thread; none where clew's records cannot be read: the rest is shown all the same."""
    try:
        return rows.find_thread(ctx, opened.format, opened.session.id)
    except StoreError as error:
        ctx.notes.append(error.message)
        return None


def show_groups(messages: Sequence[Message]) -> tuple[ShownGroup, ...]:
    """Returns one entry a group, with chain keys counted from the first message given."""
    key = first_key()
    shown: list[ShownGroup] = []
    for group in group_messages(messages):
        key = next_key(key, canonical_form(group))
        shown.append(_show_group(group, key))
    return tuple(shown)


def _show_group(group: Group, key: str) -> ShownGroup:
    head = group.head
    calls = head.calls
    results = sort_results(calls, group.results)
    return ShownGroup(
        head.role,
        head.text,
        tuple(ShownCall(call.id, call.name, call.arguments) for call in calls),
        tuple(ShownResult(r.call_id, r.text, r.is_error, len(r.images)) for r in results),
        key,
        head.origin,
        head.kind,
        len(head.images),
        iso(head.time_ms),
        sum(type(part) is Reasoning for part in head.parts),
    )


def _group_at(messages: Sequence[Message], position: int) -> int:
    return sum(message.role != "tool" for message in messages[:position])
