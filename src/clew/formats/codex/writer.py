"""Writes a conversation as a new rollout, in the legacy history mode: fewer rules, and every version resumes it.

`model_provider` is left out: a thread that names another provider than the configured one is refused. No token
counts are written: with foreign ones the agent would compact the thread before its first turn.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from clew.conversation.model import Message
from clew.formats.codex.lines import Line, Rows, count_losses, count_unanswered, encode_line, time_text
from clew.formats.codex.turns import Turns
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
    for line in Turns(Rows(messages, model=model), options, options.session_id).lines(messages):
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
