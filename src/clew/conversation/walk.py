"""Walking through a large session with little memory: what was looked at is given back to the system on the way.

The bytes of a large session are a mapping of its file; looking at them brings pages into memory. The pages are let go
every few thousand groups and come from the disk's cache when they are needed again. Nothing here changes a value.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

from clew.conversation.canonical import keys_of
from clew.conversation.source import Session, Stream
from clew.ids import ChainKey

T = TypeVar("T")

_EVERY = 4096


def session_keys(session: Session) -> tuple[ChainKey, ...]:
    """Returns the group keys of a session's effective context."""
    return tuple(letting_go(keys_of(session.messages), session.records.streams))


def letting_go(items: Iterable[T], streams: Iterable[Stream]) -> Iterator[T]:
    """Yields the items and lets go of the streams' pages every few thousand of them, and at the end."""
    releases = [stream.release for stream in streams if stream.release is not None]
    for count, item in enumerate(items, 1):
        yield item
        if count % _EVERY == 0:
            for release in releases:
                release()
    for release in releases:
        release()
