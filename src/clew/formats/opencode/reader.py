"""Reads OpenCode sessions: the rows of one session, an export, or the files of the older layout.

Promised: every byte falls in exactly one record; whatever is in them, a session comes out and what was odd is
reported. The effective context is what the agent itself would send: from the last compaction on, without what was
taken back, without failed replies, with cleared results cleared. The full history has all of it. An export and files
of the older layout are not where the agent goes on: they are kept whole and given back, but nothing is cut from them
or added to them, so that no record is named as the one that created a message.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from clew.conversation.loss import Damage, Loss
from clew.conversation.model import Message
from clew.conversation.normal import Normal, NormalBuilder
from clew.conversation.source import Boundary, Branch, Ending, Reference, Session, Source
from clew.formats.marks import Mark
from clew.formats.opencode.entries import Entry, Stored, taken_back
from clew.formats.opencode.records import (
    MARK,
    MARKED,
    STATE,
    STATE_METADATA,
    decode,
    is_there,
)
from clew.formats.opencode.turns import Telling, messages_of, model_of, provider_of

AGENT = "opencode"

_DEFAULT_TITLE = re.compile(r"(?:New|Child) session - \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


def read(source: Source, since: Ending | None = None) -> Session:
    """Reads a session. Rows change in place, so that a reading is never taken up again: `since` is passed over."""
    del since
    stored = Stored(source)
    kept, reverted = taken_back(stored)
    context, telling = _in_context(kept), Telling(full=False)
    effective = _normal(context, telling)
    all_of_it = context is kept and not telling.cut
    full = effective.messages if all_of_it else _normal(kept, Telling(full=True)).messages
    for stray in effective.strays:
        if stray.record is not None:
            stream, start, _ = stored.records.place(stray.record)
            stored.damage.append(Damage(stream.path, stray.record, start, "stray result", stray.call_id))
    facts = stored.facts
    replies = [entry for entry in kept if entry.data.role == "assistant"]
    times = [entry.time_ms for entry in kept if entry.time_ms is not None]
    mark = _session_mark(facts.metadata)
    return Session(
        agent=AGENT,
        id=facts.id,
        messages=effective.messages,
        created_by=effective.created_by if stored.in_rows else (None,) * len(effective.messages),
        records=stored.records,
        history=full,
        boundaries=tuple(_boundaries(kept, full)),
        branches=_branches(reverted, full),
        side=source.side,
        cwd=facts.directory,
        title="" if _DEFAULT_TITLE.fullmatch(facts.title) else facts.title,
        model=next((model for entry in reversed(replies) if (model := model_of(entry))), ""),
        provider=next((name for entry in reversed(replies) if (name := provider_of(entry))), ""),
        version=facts.version,
        created_ms=times[0] if times else None,
        updated_ms=times[-1] if times else None,
        damage=tuple(stored.damage),
        losses=_losses(kept),
        references=tuple(_references(stored, kept)),
        helper=bool(facts.parent),
        foreign=mark.from_ if mark is not None else "",
    )


def _session_mark(metadata: msgspec.Raw) -> Mark | None:
    found = decode(MARKED, metadata) if is_there(metadata) else None
    return decode(MARK, found.clew) if found is not None and is_there(found.clew) else None


def _normal(entries: Sequence[Entry], telling: Telling) -> Normal:
    builder = NormalBuilder(telling.renamed)
    for entry in entries:
        for said in messages_of(entry, telling):
            builder.add(said.message, said.record)
    return builder.finish()


# --- what is in the model's context -----------------------------------------------------------------------------


def _compaction(entry: Entry) -> str | None:
    """Returns where what is kept of the past begins: an id, nothing, or None where no compaction was asked for."""
    for piece in entry.parts:
        if piece.data.type == "compaction":
            return piece.data.tail_start_id if isinstance(piece.data.tail_start_id, str) else ""
    return None


def _is_summary(entry: Entry) -> bool:
    data = entry.data
    done = data.role == "assistant" and bool(data.finish) and not is_there(data.error)
    return done and bytes(memoryview(data.summary)) == b"true"


def _in_context(entries: Sequence[Entry]) -> Sequence[Entry]:
    """Returns the messages that the agent sends: from the last finished compaction on, its kept past behind it."""
    if not any(_is_summary(entry) for entry in entries):
        return entries
    first, summarised, until = 0, set[str](), ""
    for at in range(len(entries) - 1, -1, -1):
        entry = entries[at]
        if until:
            if entry.id == until:
                first = at
                break
        elif entry.data.role == "user" and entry.id in summarised:
            tail = _compaction(entry)
            if tail is not None and tail in ("", entry.id):
                first = at
                break
            until = tail or ""
        elif _is_summary(entry) and isinstance(entry.data.parent_id, str):
            summarised.add(entry.data.parent_id)
    return _reordered(entries[first:])


def _reordered(kept: Sequence[Entry]) -> Sequence[Entry]:
    """Puts the kept past behind the summary, as the agent does."""
    asked = next((n for n in range(len(kept) - 1, -1, -1) if kept[n].data.role == "user" and _compaction(kept[n])), -1)
    if asked < 0:
        return kept
    tail, id_ = _compaction(kept[asked]), kept[asked].id
    answer = next((n for n in range(asked + 1, len(kept)) if _answers(kept[n], id_)), -1)
    start = next((n for n, entry in enumerate(kept) if entry.id == tail), -1)
    if 0 <= start < asked < answer:
        return [*kept[asked : answer + 1], *kept[start:asked], *kept[answer + 1 :]]
    return kept


def _answers(entry: Entry, id_: str) -> bool:
    summary = bytes(memoryview(entry.data.summary)) == b"true"
    return entry.data.role == "assistant" and summary and entry.data.parent_id == id_


# --- beside the conversation ------------------------------------------------------------------------------------


def _boundaries(entries: Sequence[Entry], history: Sequence[Message]) -> list[Boundary]:
    """Returns where in the full history a finished compaction stands."""
    summarised = {entry.data.parent_id for entry in entries if _is_summary(entry)}
    found: list[Boundary] = []
    for at, entry in enumerate(entries):
        if entry.id in summarised and _compaction(entry) is not None:
            place = len(_normal(entries[:at], Telling(full=True)).messages)
            if 0 < place <= len(history):
                found.append(Boundary(place))
    return found


def _branches(reverted: Sequence[Entry], history: Sequence[Message]) -> tuple[Branch, ...]:
    messages = _normal(reverted, Telling(full=True)).messages
    return (Branch(1, len(history), messages),) if messages else ()


def _losses(entries: Sequence[Entry]) -> tuple[Loss, ...]:
    """Returns what no other agent can be told: files that are neither text nor image."""
    files = sum(
        piece.data.type == "file"
        and isinstance(piece.data.mime, str)
        and not piece.data.mime.startswith(("image/", "text/plain", "application/x-directory"))
        for entry in entries
        for piece in entry.parts
    )
    return (Loss("attached files", files),) if files else ()


def _references(stored: Stored, entries: Sequence[Entry]) -> list[Reference]:
    """Returns the parent of a helper, and the helpers that the task tool started."""
    found = [Reference("helper_of", stored.facts.parent)] if stored.facts.parent else []
    helpers: dict[str, None] = {}
    for entry in entries:
        for piece in entry.parts:
            if piece.data.type == "tool" and piece.data.tool == "task" and is_there(piece.data.state):
                id_ = _helper_in(piece.data.state)
                helpers |= {id_: None} if id_ else {}
    return found + [Reference("helper", id_) for id_ in helpers]


def _helper_in(state: msgspec.Raw) -> str:
    found = decode(STATE, state)
    noted = decode(STATE_METADATA, found.metadata) if found is not None and is_there(found.metadata) else None
    return noted.session_id if noted is not None and isinstance(noted.session_id, str) else ""
