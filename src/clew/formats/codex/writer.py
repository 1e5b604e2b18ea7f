"""Writes a conversation as a new rollout, in the legacy history mode: fewer rules, and every version resumes it.

Besides the items, which are what the model gets, there are the events that the agent lists and shows a thread by:
without one `user_message` event it can be resumed by its id, but is in no list. `model_provider` is left out: a
thread that names another provider than the configured one is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from clew.conversation.model import Message
from clew.formats.codex.lines import Line, Rows, count_losses, count_unanswered, encode_line, spoken, time_text
from clew.formats.marks import Mark
from clew.formats.protocol import WriteOptions, Written, WrittenFile
from clew.ids import is_safe_name

VERSION = "0.171.0"
"""The version of the agent that resumed what is written here."""


def write(messages: Sequence[Message], options: WriteOptions) -> Written:
    """Writes a conversation in normal form as a new thread."""
    return Written(
        session_id=options.session_id,
        files=(WrittenFile(file_name(options.session_id, options.now_ms), lambda: _chunks(messages, options)),),
        losses=count_losses(messages),
        invented=count_unanswered(messages),
    )


def file_name(session_id: str, now_ms: int) -> str:
    """Returns the path of a thread's file below the agent's base folder; times in names are UTC.

    Asserts that the id may be part of a file's name.
    """
    assert is_safe_name(session_id), "the caller gives ids of clew's own making"
    moment = time_text(now_ms)
    day = moment[:10].replace("-", "/")
    return f"sessions/{day}/rollout-{moment[:19].replace(':', '-')}-{session_id}.jsonl"


def _chunks(messages: Sequence[Message], options: WriteOptions) -> Iterator[bytes]:
    now = options.now_ms
    model = options.model or next((m.model for m in reversed(messages) if m.model), "")
    yield encode_line(_meta(options, model), now)
    for line in conversation_lines(messages, Rows(messages, model=model), options.title):
        yield encode_line(line, now)


def _meta(options: WriteOptions, model: str) -> Line:
    payload: dict[str, object] = {
        "id": options.session_id,
        "timestamp": time_text(options.now_ms),
        "cwd": options.cwd,
        "originator": "clew",
        "cli_version": VERSION,
        "source": "cli",
    }
    return Line("session_meta", payload, Mark(from_=options.origin, model=model))


def conversation_lines(
    messages: Sequence[Message], rows: Rows, title: str = "", *, listed: bool = False
) -> Iterator[Line]:
    """Yields the lines of a conversation in legacy mode: items, and beside them the events for lists and display.

    Where nobody says anything and the thread is not `listed` by an earlier line, the first message stands in.
    """
    listed = listed or any(_is_said(message) for message in messages)
    for message in messages:
        if message.role == "tool":
            line = rows.of_result(message)
            if line is not None:
                yield line
            continue
        yield from rows.invented(message.time_ms)
        if message.role == "user":
            if _is_said(message) or not listed:
                listed = True
                yield user_event(message.text, message.time_ms)
            yield rows.of_user(message)
            continue
        if not listed:
            listed = True
            yield user_event(title, message.time_ms)
        for line in rows.of_assistant(message):
            text = spoken(line)
            if text:
                yield Line("event_msg", {"type": "agent_message", "message": text}, time_ms=line.time_ms)
            yield line
    yield from rows.invented(None)


def _is_said(message: Message) -> bool:
    return message.role == "user" and message.origin == "user"


def user_event(text: str, time_ms: int | None) -> Line:
    """Returns the event by which a thread is listed; it has to hold some text."""
    return Line("event_msg", {"type": "user_message", "message": text or "(no text)", "kind": "plain"}, time_ms=time_ms)
