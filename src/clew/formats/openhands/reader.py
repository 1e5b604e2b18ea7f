"""Reads a conversation of OpenHands: every event is a file, and a file is a record. Total, and lazy.

What the agent sends is read: its events in the order of their numbers up to the first number that is missing, with the
forgotten ones left out where it condensed. A reply of clew's writing whose results are not all there was broken off
while it was placed: neither the agent nor this reader takes it in. The full history keeps what was forgotten, and what
lies behind a gap.
`base_state.json` gives folder, model and title. Everything odd is reported with its file; nothing here raises on any
bytes.
"""

from __future__ import annotations

import msgspec

from clew.conversation.loss import Damage, Loss
from clew.conversation.model import Message
from clew.conversation.normal import Normal, NormalBuilder
from clew.conversation.source import Boundary, Ending, Records, Session, SideFile, Source, Stream
from clew.formats import raws, unmark
from clew.formats.described import damaged_descriptions
from clew.formats.loose import mend_json
from clew.formats.openhands import records as rec
from clew.formats.openhands.content import Content, summary_of
from clew.formats.openhands.folder import STATE, number_of

AGENT = "openhands"
_IDS = msgspec.json.Decoder(list[str]).decode


def read(source: Source, since: Ending | None = None) -> Session:
    """Reads a conversation whole; `since` saves nothing where each event has a file of its own."""
    return _Reading(source).session()


class Sent(msgspec.Struct, frozen=True, gc=False):
    """One event that the model is sent: its id, what it says (None for the system prompt), and its record."""

    id: str
    message: Message | None
    record: int
    reply: str = ""
    call_id: str = ""


class _Reading:
    """One reading under way."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.records = Records()
        self.damage: list[Damage] = []
        self.content = Content()
        self.view: list[Sent] = []
        self.full: list[Sent] = []
        self.condensed: list[int] = []
        self.state = read_state(source.side)
        self._next, self._broken = 0, False
        for place, stream in enumerate(source.streams):
            number = len(self.records)
            view = memoryview(stream.data)
            self.records.add_stream(stream).extend([0] if len(view) else [])
            behind = self._broken
            if self._is_due(stream, number) or self._broken:
                behind = behind or self._broken
                self._take(stream, number, last=place + 1 == len(source.streams), behind=behind)

    def _report(self, stream: Stream, number: int, sort: str, detail: str = "", *, lost: bool = True) -> None:
        record = number if len(memoryview(stream.data)) else -1
        self.damage.append(Damage(stream.path, record, 0, sort, detail, 0, lost))

    def _is_due(self, stream: Stream, number: int) -> bool:
        """Tells whether the agent would read this event: one after the other, up to the first gap."""
        there = number_of(stream.path)
        if there is None:  # a name that is no event's: one file by itself
            return True
        if self._broken:
            return False
        if there == self._next:
            self._next += 1
            return True
        if there < self._next:
            self._report(stream, number, "foreign record", f"a second event with the number {there}")
        else:
            self._broken = True
            detail = f"event {self._next} is missing; the agent reads nothing behind it"
            self._report(stream, number, "broken link", detail)
        return False

    def _take(self, stream: Stream, number: int, *, last: bool, behind: bool) -> None:
        """Takes an event in; what lies `behind` a gap is history, and not sent."""
        event = self._decode(stream, number, last=last)
        if event is None:
            return
        if event.kind == rec.CONDENSATION:
            if not behind:
                self._condense(event, number)
        elif raws.as_word(event.kind) in rec.SENT:
            message = self.content.message(event)
            calls = message.calls if message is not None else ()
            call_id = calls[0].id if calls else message.call_id if message is not None else ""
            if event.kind in rec.ANSWERS:
                call_id = raws.as_word(event.tool_call_id)
            reply = raws.as_word(event.llm_response_id) if event.kind == rec.ACTION else ""
            sent = Sent(raws.as_word(event.id), message, number, reply, call_id)
            if not behind:
                self.view.append(sent)
            self.full.append(sent)

    def _decode(self, stream: Stream, number: int, *, last: bool) -> rec.Event | None:
        view = memoryview(stream.data)
        if not len(view):
            self._report(stream, number, "torn tail", "an empty file", lost=not self.source.growing)
            return None
        try:
            event = rec.EVENTS.decode(view)
        except raws.DECODE_ERRORS:
            return self._mend(stream, number, last=last)
        data = bytes(view)
        if not data.isascii() and not _is_utf8(data):
            self._report(stream, number, "bad utf-8")
        return event

    def _mend(self, stream: Stream, number: int, *, last: bool) -> rec.Event | None:
        """Returns what a file says that the fast way refused."""
        data = bytes(stream.data).strip(b" \t\r\n\x00").removeprefix(b"\xef\xbb\xbf")
        try:
            return rec.ODD_EVENTS.decode(data)
        except raws.DECODE_ERRORS:
            mended = mend_json(data)
        try:
            if mended is not None:
                event = rec.ODD_EVENTS.decode(mended)
                self._report(stream, number, "bad utf-8")
                return event
        except raws.DECODE_ERRORS:
            self._report(stream, number, "foreign record", "no event")
            return None
        growing = self.source.growing and last
        sort = "still being written" if growing else "torn tail" if data.startswith(b"{") else "not json"
        self._report(stream, number, sort, lost=not growing)
        return None

    def _condense(self, event: rec.Event, number: int) -> None:
        """Leaves out the events that are forgotten, and puts the summary where the agent puts it."""
        forgotten: set[str] = set()
        if event.forgotten_event_ids is not raws.NONE:
            try:
                forgotten.update(_IDS(event.forgotten_event_ids))
            except raws.DECODE_ERRORS:
                self._report(self.records.streams[-1], number, "foreign record", "no list of forgotten events")
        self.condensed.append(len(self.full))
        self.view = [sent for sent in self.view if sent.id not in forgotten]
        if not raws.is_text(event.summary):
            return
        summary = Sent(f"{raws.as_word(event.id)}-summary", summary_of(event), number)
        self.full.append(summary)
        if isinstance(event.summary_offset, int):
            self.view.insert(max(event.summary_offset, 0), summary)

    def _torn(self, sent: list[Sent]) -> set[str]:
        """Returns the calls of replies whose results are not all there: the agent leaves those replies out."""
        promised = self.content.promised
        answered = {one.call_id for one in sent if not one.reply}
        asked = {one.reply for one in sent}
        torn = {reply for call_id, reply in promised.items() if call_id not in answered and reply in asked}
        return {call_id for call_id, reply in promised.items() if reply in torn}

    def _drop_torn(self) -> None:
        """Leaves out replies whose results were not all placed, as the agent does."""
        torn = self._torn(self.view)
        for one in self.view:
            if one.reply and one.call_id in torn:
                stream = self.records.place(one.record)[0]
                self._report(stream, one.record, "torn tail", "the results of this reply were never placed", lost=False)
        self.view = [one for one in self.view if one.call_id not in torn]
        torn = self._torn(self.full)
        self.full = [one for one in self.full if one.call_id not in torn]

    def _normal(self, sent: list[Sent]) -> Normal:
        builder = NormalBuilder()
        for one in sent:
            if one.message is not None:
                builder.add(one.message, one.record)
        return unmark.with_originals(builder.finish(), self.content.renamed)

    def session(self) -> Session:
        """Returns the session of what was read."""
        names = [file.path for file in self.source.side if file.path.rpartition("/")[2] == STATE]
        self.damage += damaged_descriptions(self.source.side, names)
        self._drop_torn()
        normal = self._normal(self.view)
        for stray in normal.strays:
            if stray.record is not None:
                stream = self.records.place(stray.record)[0]
                detail = f"a result for the call {stray.call_id!r}, which is not open here"
                self._report(stream, stray.record, "stray result", detail)
        history = self._normal(self.full).messages if self.condensed or self._broken else normal.messages
        boundaries = tuple(Boundary(len(self._normal(self.full[:at]).messages)) for at in self.condensed)
        times = [m.time_ms for m in history if m.time_ms is not None]
        models = [m.model for m in history if m.model]
        source, state = self.source, self.state
        tags = tags_of(state)
        model = state.agent.llm.model if state.agent is not None and state.agent.llm is not None else None
        model = "" if model == rec.NO_MODEL else raws.as_word(model)
        folder = state.workspace.working_dir if state.workspace is not None else None
        return Session(
            agent=AGENT,
            id=source.hint_id or raws.as_word(state.id),
            messages=normal.messages,
            created_by=normal.created_by,
            records=self.records,
            history=history,
            boundaries=boundaries,
            side=source.side,
            cwd=raws.as_word(folder) or source.hint_cwd,
            title=tags.get("title", ""),
            model=models[-1] if models else model,
            created_ms=times[0] if times else None,
            updated_ms=max(times) if times else None,
            damage=tuple(sorted(self.damage, key=lambda d: (d.record, d.offset))),
            losses=tuple(Loss(what, count) for what, count in sorted(self.content.skipped.items())),
            foreign=self.content.foreign or tags.get("clew", ""),
            stable_first=bytes(self.records[0]) if len(self.records) else b"",
        )


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def read_state(side: tuple[SideFile, ...]) -> rec.State:
    """Returns the conversation's state; an empty one where there is none or it cannot be had."""
    for file in side:
        if file.path.rpartition("/")[2] == STATE:
            try:
                data = bytes(file.load()).strip()
            except Exception:  # noqa: BLE001 - whatever a store or a disk raises, the conversation is read
                return rec.State()
            return (rec.STATES.one(msgspec.Raw(data)) if data else None) or rec.State()
    return rec.State()


def tags_of(state: rec.State) -> dict[str, str]:
    """Returns the words that a conversation is tagged with."""
    tags: object = state.tags
    if not isinstance(tags, dict):
        return {}
    return {str(name): value for name, value in tags.items() if isinstance(value, str)}  # type: ignore[misc]
