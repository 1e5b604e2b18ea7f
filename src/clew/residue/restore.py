"""Restoring: a conversation's verbatim prefix, what came later spliced behind it, and proof by reading back.

Residue spec, section 8. What comes out is either a text whose keys are exactly the conversation's, or nothing, and
then the caller writes plainly. Damage costs the damaged group and what follows it, never what came before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, Protocol, TypeAlias

import msgspec

from clew.conversation.canonical import keys_of
from clew.conversation.groups import head_positions
from clew.conversation.model import Message
from clew.conversation.source import Session, Stream
from clew.conversation.walk import letting_go
from clew.errors import FormatError
from clew.ids import ChainKey
from clew.residue.choose import Choice, is_sound

Mode: TypeAlias = Literal["whole", "prefix", "rebased", "plain"]

Reason: TypeAlias = Literal[
    "", "no_candidate", "ambiguous_source", "other_session_only", "unsound", "unreadable_target", "not_verbatim"
]

MAX_TRIES = 8


class RestoreReport(msgspec.Struct, frozen=True):
    """What was restored and what was rendered. `reason` says why a plain text is plain; `source` and `capture` whose
    bytes were used; `retries` how often a shorter prefix had to be tried."""

    mode: Mode
    restored_messages: int = 0
    rendered_messages: int = 0
    source: str = ""
    capture: int | None = None
    reason: Reason = ""
    retries: int = 0
    warnings: tuple[str, ...] = ()


class StreamShape(Protocol):
    """A stream of a capture: where its records go."""

    @property
    def path(self) -> str: ...
    @property
    def mode(self) -> int: ...
    @property
    def records(self) -> int: ...


class Workshop(Protocol):
    """What restoring needs of a format and of the place where drafts are held."""

    def hold(self, path: str, mode: int, pieces: Iterable[bytes]) -> Stream:
        """Keeps bytes as a stream that can be read."""
        ...

    def read(self, streams: tuple[Stream, ...]) -> Session:
        """Reads streams in the target's format."""
        ...

    def splice(self, prefix: Session, messages: Sequence[Message]) -> tuple[Stream, ...]:
        """Appends messages behind a restored prefix, in the target's format."""
        ...


class Restored(msgspec.Struct, frozen=True):
    """A text that reads back as the conversation, with its reading and the report."""

    streams: tuple[Stream, ...]
    session: Session
    report: RestoreReport


def restore_conversation(
    messages: Sequence[Message],
    keys: Sequence[ChainKey],
    choice: Choice,
    shapes: Sequence[StreamShape],
    workshop: Workshop,
) -> Restored | RestoreReport:
    """Returns the restored text, or a plain report when no prefix of the chosen capture can be used.

    `keys` are the group keys of `messages` (for none at all: none, or key(0)); `shapes` the streams of the chosen
    capture in order. Never raises for what the format refuses: that is a plain report too.
    """
    try:
        return _restore(messages, keys if messages else (), choice, shapes, workshop)
    except FormatError as error:
        return RestoreReport("plain", 0, len(messages), reason="unreadable_target", warnings=(error.message,))


def _restore(
    messages: Sequence[Message],
    keys: Sequence[ChainKey],
    choice: Choice,
    shapes: Sequence[StreamShape],
    workshop: Workshop,
) -> Restored | RestoreReport:
    heads = [*head_positions(messages), len(messages)]
    limit = choice.matched
    warnings: list[str] = []
    for tries in range(MAX_TRIES):
        prefix = _prefix(choice, limit, shapes, workshop)
        if prefix.groups == 0:
            break
        rest = messages[heads[min(prefix.groups, len(heads) - 1)] :]
        whole = prefix.ended and not rest
        streams = prefix.streams if whole else workshop.splice(workshop.read(prefix.streams), rest)
        session = workshop.read(streams)
        differs = first_difference(keys, session.messages, session.records.streams)
        if differs is None:
            mode: Mode = "whole" if whole else "prefix"
            report = RestoreReport(
                mode,
                len(messages) - len(rest),
                len(rest),
                choice.candidate.source_id,
                choice.candidate.capture,
                retries=tries,
                warnings=tuple(warnings),
            )
            return Restored(streams, session, report)
        if differs >= prefix.groups:
            warnings.append(f"group {differs + 1} did not survive the writer of its own format")
        shorter = min(differs, prefix.groups - 1)
        if shorter <= 0 or shorter >= limit:
            break
        limit = shorter
    return RestoreReport("plain", 0, len(messages), reason="unsound", warnings=tuple(warnings))


def first_difference(
    keys: Sequence[ChainKey], messages: Sequence[Message], streams: Sequence[Stream] = ()
) -> int | None:
    """Returns the number (from 0) of the first group whose key differs, or None when all agree in number and order."""
    count = 0
    for count, key in enumerate(letting_go(keys_of(messages), streams), 1):
        if count > len(keys) or keys[count - 1] != key:
            return count - 1
    return None if count == len(keys) else count


class _Prefix(msgspec.Struct, frozen=True):
    streams: tuple[Stream, ...]
    groups: int
    ended: bool


def _prefix(choice: Choice, limit: int, shapes: Sequence[StreamShape], workshop: Workshop) -> _Prefix:
    """Lays the records of the first `limit` segments into streams; stops at the first unsound segment."""
    groups = 0
    ended = False

    def records() -> Iterator[bytes]:
        nonlocal groups, ended
        for segment in choice.candidate.read(0, limit):
            if not is_sound(segment):
                return
            data, at = segment.data or b"", 0
            for length in segment.lengths:
                yield data[at : at + length]
                at += length
            groups += 1
            ended = segment.end_of_source
            if ended:
                return

    streams = lay_streams(records(), shapes, workshop)
    return _Prefix(streams, groups, ended)


def lay_streams(records: Iterator[bytes], shapes: Sequence[StreamShape], workshop: Workshop) -> tuple[Stream, ...]:
    """Returns the streams of a capture filled with `records` in order; streams behind the last record are left out.

    The last stream takes whatever comes. A stream that was empty stays where nothing before it is missing.
    """
    streams: list[Stream] = []
    ahead = next(records, None)
    short = False

    def take(count: int | None) -> Iterator[bytes]:
        nonlocal ahead, short
        while ahead is not None and count != 0:
            yield ahead
            ahead = next(records, None)
            count = None if count is None else count - 1
        short = bool(count)

    for number, shape in enumerate(shapes):
        if streams and ahead is None and (shape.records or short):
            break
        count = None if number == len(shapes) - 1 else shape.records
        streams.append(workshop.hold(shape.path, shape.mode, take(count)))
    return tuple(streams)
