"""Reads Grok's sessions: the history is what the model is sent; the stream for display fills what the history lost.

Promised: every byte of the history falls in exactly one record; whatever is in the files, a session comes out and what
was odd is reported. A session without a history is read from its stream for display, as the agent itself does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from clew.conversation.loss import Damage
from clew.conversation.model import Message, Reasoning
from clew.conversation.normal import Normal, NormalBuilder
from clew.conversation.source import (
    Boundary,
    Ending,
    Records,
    Reference,
    Session,
    SideFile,
    Source,
    Stream,
)
from clew.formats.described import damaged_descriptions
from clew.formats.grok import records as rec
from clew.formats.grok.content import Content
from clew.formats.grok.display import COMPACTED, Kept, message_of, read_shown
from clew.formats.jsonl import JsonLines
from clew.formats.settled import find_ending

AGENT = "grok"
HISTORY, DISPLAY, SUMMARY, HELPERS = "chat_history.jsonl", "updates.jsonl", "summary.json", "subagents"

_KNOWN_FORMAT = 1


def read(source: Source, since: Ending | None = None) -> Session:
    """Reads a session whole, or goes on from `since` where the history still begins as it did."""
    if since is not None and since.offset > 0 and len(source.streams) == 1 and since.holds_for(source):
        known = rec.decode(since.state, Known)
        if known.model is not None:
            session = _Reading(source, since, known).session()
            if session is not None:
                return session
    session = _Reading(source).session()
    assert session is not None, "only a reading that goes on can fail"
    return session


class Known(msgspec.Struct, omit_defaults=True):
    """What the lines before an ending said of the session; `model` is None where an ending is not ours."""

    model: str | None = None
    foreign: str = ""


class _Reading:
    """One reading of one session."""

    def __init__(self, source: Source, since: Ending | None = None, known: Known | None = None) -> None:
        self.source, self.since = source, since
        self.records = Records()
        self.damage: list[Damage] = []
        self.content = Content(Kept(lambda: _display_of(source)))
        if known is not None:
            self.content.model, self.content.foreign = known.model or "", known.foreign
        self.said: list[tuple[Message, int]] = []
        for place, stream in enumerate(source.streams):
            last = place + 1 == len(source.streams)
            self._take(stream, growing=source.growing and last)

    def _take(self, stream: Stream, *, growing: bool) -> None:
        if stream.path.rsplit("/", 1)[-1] == DISPLAY:
            for number, shown, time_ms in read_shown(self.records, stream, self.damage, growing=growing):
                message = message_of(shown, time_ms)
                if message is not None:
                    self.said.append((message, number))
            return
        start = self.since.offset if self.since is not None else 0
        lines = JsonLines(self.records, stream, rec.ITEM, self.damage, growing=growing, start=start)
        thoughts: list[tuple[Message, int]] = []
        for number, item in lines:
            for message in self.content.messages(item) if item is not None else ():
                if message.role == "assistant" and _only_thinks(message):
                    thoughts.append((message, number))  # they stand before the reply that they belong to
                    continue
                model = message.model if message.role == "assistant" else ""
                if thoughts:
                    self.said += [(msgspec.structs.replace(m, model=model or m.model), n) for m, n in thoughts]
                    thoughts = []
                self.said.append((message, number))
        self.said += thoughts

    def session(self) -> Session | None:
        """Returns what was read; None where it does not go on plainly."""
        normal = _normal(self.said, self.content.renamed)
        if self.since is not None and normal.strays:
            return None
        for stray in normal.strays:
            record = stray.record or 0
            stream, start, _ = self.records.place(record)
            self.damage.append(Damage(stream.path, record, start, "stray result", stray.call_id))
        source, summary = self.source, read_summary(self.source.side, self._path)
        info = rec.decode(summary.info, rec.Info)
        self._look_at(summary)
        self.damage += damaged_descriptions(source.side, (folder_of(self._path) + SUMMARY,))
        history, boundaries = self._history(normal)
        known = msgspec.json.encode(Known(self.content.model, self.content.foreign))
        created = rec.time_of(summary.created_at)
        kind = rec.text(summary.kind)
        return Session(
            agent=AGENT,
            id=source.hint_id or rec.text(info.id),
            messages=normal.messages,
            created_by=normal.created_by,
            records=self.records,
            history=history,
            boundaries=boundaries,
            side=source.side,
            cwd=rec.text(info.cwd) or source.hint_cwd,
            title=rec.text(summary.generated_title).strip(),
            model=self.content.model or rec.text(summary.model),
            version="",
            created_ms=created,
            updated_ms=rec.time_of(summary.last_active_at) or rec.time_of(summary.updated_at) or created,
            damage=tuple(self.damage),
            references=_references(source.side, summary),
            helper=kind.startswith("subagent"),
            foreign=self.content.foreign,
            stable_first=b"",  # the agent writes its first line anew at every start
            ending=find_ending(normal, self.records, known, self.since),
            continues=self.since,
        )

    @property
    def _path(self) -> str:
        return self.source.streams[0].path if self.source.streams else ""

    def _look_at(self, summary: rec.Summary) -> None:
        version = rec.number(summary.format)
        if version is not None and version > _KNOWN_FORMAT:
            detail = f"chat_format_version {version}; clew knows formats up to {_KNOWN_FORMAT}"
            self.damage.append(Damage(folder_of(self._path) + SUMMARY, -1, 0, "unknown version", detail))

    def _history(self, normal: Normal) -> tuple[tuple[Message, ...], tuple[Boundary, ...]]:
        """Returns the full history: what was displayed before a compaction, then what follows its summary."""
        at = next((n for n, m in enumerate(normal.messages) if m.role == "user" and m.kind == "summary"), None)
        display = _display_of(self.source) if at is not None and self.since is None else None
        if display is None:
            return normal.messages, ()
        before: list[tuple[Message, int]] = []
        places: list[int] = []
        for number, shown, time_ms in read_shown(Records(), display, []):
            message = message_of(shown, time_ms)
            if message is not None:
                before.append((message, number))
            elif shown.type == COMPACTED:
                places.append(len(before))
        if not places:
            return normal.messages, ()
        boundaries = tuple(Boundary(len(_normal(before[:place]).messages)) for place in places)
        return (*_normal(before[: places[-1]]).messages, *normal.messages[at:]), boundaries


def _only_thinks(message: Message) -> bool:
    parts = message.parts
    return not parts or (type(parts[0]) is Reasoning and all(type(part) is Reasoning for part in parts))


def _normal(said: list[tuple[Message, int]], renamed: Mapping[str, str] = {}) -> Normal:
    builder = NormalBuilder(renamed)
    for message, record in said:
        builder.add(message, record)
    return builder.finish()


def folder_of(path: str) -> str:
    """Returns the folder of a stream with a slash behind it, or nothing."""
    folder, slash, _ = path.rpartition("/")
    return folder + slash


def side_file(side: tuple[SideFile, ...], path: str) -> SideFile | None:
    """Returns the side file at a path."""
    return next((file for file in side if file.path == path), None)


def read_summary(side: tuple[SideFile, ...], stream: str) -> rec.Summary:
    """Returns the session's own description; an empty one where there is none."""
    file = side_file(side, folder_of(stream) + SUMMARY)
    return rec.Summary() if file is None else rec.decode(bytes(file.load()), rec.Summary)


def _display_of(source: Source) -> Stream | None:
    """Returns the stream for display where it is not what is read itself."""
    path = source.streams[0].path if source.streams else ""
    file = side_file(source.side, folder_of(path) + DISPLAY)
    return None if file is None else Stream(file.path, file.load(), file.mode)


def _references(side: tuple[SideFile, ...], summary: rec.Summary) -> tuple[Reference, ...]:
    parent = rec.text(summary.parent)
    found = [Reference("forked", parent)] if parent else []
    return (*found, *(Reference("helper", name) for name in dict.fromkeys(_helpers(side))))


def _helpers(side: tuple[SideFile, ...]) -> Iterator[str]:
    for file in side:
        parts = file.path.split("/")
        if len(parts) > 2 and parts[-3] == HELPERS:
            yield parts[-2]
