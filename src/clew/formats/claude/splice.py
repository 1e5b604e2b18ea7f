"""Goes on behind restored records: not a byte of them changes, and what comes follows their own dialect.

The first new record names the leaf of the prefix as its parent. Calls that the prefix leaves open are answered
first, marked, because the agent would drop their whole message otherwise. Session id, folder, version and entry point
are those of the prefix; a `last-prompt` is written where the prefix keeps any (a stale one would hide what is new).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import msgspec

from clew.conversation.groups import group_messages
from clew.conversation.model import Call, Message
from clew.conversation.source import Buffer, Session, Source, Stream
from clew.formats.claude import records as rec
from clew.formats.claude.ending import State, read_state
from clew.formats.claude.reader import last_state
from clew.formats.claude.writer import Envelope, Writing, call_names, count_losses
from clew.formats.jsonout import whole_lines
from clew.formats.marks import CallIds
from clew.formats.protocol import WriteOptions, Written, WrittenFile


def splice(prefix: Session, messages: Sequence[Message], options: WriteOptions) -> Written:
    """Appends messages in normal form to a session's restored records."""
    stream = prefix.records.streams[0] if prefix.records.streams else Stream(options.path, b"")
    state = _state(prefix, stream)
    taken, open_calls = _calls(prefix)
    envelope = Envelope(
        session_id=state.own or prefix.id or options.session_id,
        cwd=prefix.cwd or options.cwd,
        version=prefix.version or rec.VERSION,
        entrypoint=state.entrypoint or "cli",
        branch=state.branch,
        parent=state.leaf,
        taken=taken,
        names=call_names((*prefix.messages, *messages)),
        has_prompts=state.has_prompts or not len(stream.data),
        first=len(prefix.records),
    )

    def chunks() -> Iterator[Buffer]:
        yield from whole_lines(stream)
        yield from Writing(messages, options, envelope).pieces(open_calls)

    losses, invented = count_losses(messages)
    file = WrittenFile(stream.path or options.path, chunks, stream.mode)
    return Written(prefix.id or options.session_id, (file,), losses, invented + len(open_calls))


def _state(prefix: Session, stream: Stream) -> State:
    """Returns what the prefix's records end with: from its reading, or by looking at them once more."""
    if prefix.ending is not None and prefix.continues is None:
        known = read_state(prefix.ending.state)
        if known is not None and known.leaf:
            return known
    return last_state(Source((stream,), hint_id=prefix.id))


def _calls(prefix: Session) -> tuple[frozenset[str], tuple[tuple[Call, str], ...]]:
    """Returns the call ids that stand in the prefix's file, and the calls of its last message without an answer.

    An answer that clew's writer made up is one too, although no reading delivers it.
    """
    ids = CallIds("toolu_")
    written: list[tuple[Call, str]] = []
    taken: set[str] = set()
    for group in group_messages(prefix.messages):
        written = [(call, ids.open_call(call.id)) for call in group.head.calls]
        taken.update(name for _, name in written)
        answered = [result.call_id for result in group.results]
        left: list[tuple[Call, str]] = []
        for call, name in written:
            if call.id in answered:
                answered.remove(call.id)
            else:
                left.append((call, name))
        written = left
    return frozenset(taken), tuple((call, name) for call, name in written if not _is_answered(prefix, name))


def _is_answered(prefix: Session, name: str) -> bool:
    """Tells whether a record from the last message on answers the call of that id; in a text it would be escaped."""
    head = max((n for n, message in enumerate(prefix.messages) if message.role != "tool"), default=0)
    record = prefix.created_by[head] or 0
    _, start, _ = prefix.records.place(record)
    answer = re.compile(rb'"tool_use_id"\s*:\s*' + re.escape(msgspec.json.encode(name)))
    return answer.search(prefix.records.streams[0].data, start) is not None
