"""Groups: a message and the results that answer it (docs/residue.md, 2)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from clew.conversation.model import Group, Message


def group_messages(messages: Iterable[Message]) -> Iterator[Group]:
    """Yields the groups of a list in order: a result joins the last group, every other message opens one.

    For lists that are not in normal form: a result that comes first of all opens a group of its own, and one
    after a user message joins the user's group.
    """
    head: Message | None = None
    results: list[Message] = []
    for message in messages:
        if message.role == "tool" and head is not None:
            results.append(message)
            continue
        if head is not None:
            yield Group(head, tuple(results))
            results = []
        head = message
    if head is not None:
        yield Group(head, tuple(results))


def head_positions(messages: Iterable[Message]) -> list[int]:
    """Returns for each group the position of its head in `messages`."""
    return [i for i, message in enumerate(messages) if message.role != "tool" or i == 0]
