"""From a document to a session: total, in normal form, with every mark of the writer undone."""

from __future__ import annotations

import re

import msgspec

from clew.conversation.canonical import sort_results
from clew.conversation.groups import group_messages
from clew.conversation.loss import Damage
from clew.conversation.model import Call, Image, Message, Part, Reasoning, Text
from clew.conversation.normal import Normal, NormalBuilder
from clew.conversation.source import Boundary, Ending, Records, Reference, Session, SideFile, Source, Stream
from clew.conversation.text import JsonValue, mend_surrogates
from clew.formats.marks import Mark, is_invented, is_standin, unguard_text, unwrap_arguments
from clew_format_tiny.records import Does, Element, Facts, Frame, decode_leniently, frame_document, read_facts

NOTE = re.compile(r"<tiny-note>.*</tiny-note>", re.DOTALL)
"""A user's text that is one note and nothing else is context: the agent makes it anew at every start."""


def read(source: Source, since: Ending | None = None) -> Session:
    """Reads a document; a document is always read whole, so `since` is not used."""
    return _Reading(source).session()


def looks_like_context(text: str) -> bool:
    """Tells whether a user's text would be taken for the agent's own note."""
    return NOTE.fullmatch(text) is not None


class _Reading:
    """One reading of one source."""

    def __init__(self, source: Source, above: frozenset[str] = frozenset()) -> None:
        self.source, self.above = source, above
        self.records = Records()
        self.damage: list[Damage] = []
        self.now, self.full = NormalBuilder(), NormalBuilder()
        self.boundaries: list[Boundary] = []
        self.ids: dict[str, str] = {}
        self.times: list[int] = []
        self.side = {file.path.rpartition("/")[2]: file for file in source.side}
        self.references: tuple[Reference, ...] = ()

    def session(self) -> Session:
        main = self.source.streams[0] if self.source.streams else Stream("doc.json", b"")
        data = bytes(main.data)
        frame = frame_document(data)
        self.records.add_stream(main).extend(frame.starts(len(data)))
        for other in self.source.streams[1:]:
            self.records.add_stream(other).extend([0] if len(other.data) else [])
        facts = read_facts(data, frame)
        self._parent(facts)
        for number, (begin, end) in enumerate(frame.elements, 1):
            self._element(main.path, number, begin, data[begin:end])
        self._report_shape(main.path, data, frame)
        return self._seal(facts)

    def _seal(self, facts: Facts) -> Session:
        normal = self.now.finish()
        messages, created_by = self._rename(normal)
        whole = self._rename(self.full.finish())[0] if self.boundaries else messages
        for stray in normal.strays:
            self._report("", stray.record if stray.record is not None else -1, 0, "stray result", lost=False)
        mark = facts.clew or Mark()
        return Session(
            agent="tiny",
            id=facts.id or self.source.hint_id,
            messages=messages,
            created_by=created_by,
            records=self.records,
            history=whole,
            boundaries=tuple(self.boundaries),
            side=self.source.side,
            cwd=facts.cwd or self.source.hint_cwd,
            title=facts.title,
            model=facts.model,
            version=facts.version,
            created_ms=min(self.times, default=None),
            updated_ms=max(self.times, default=None),
            damage=tuple(self.damage),
            references=self.references,
            foreign=mark.from_,
            stable_first=self.records[0] if len(self.records) else b"",
        )

    def _rename(self, normal: Normal) -> tuple[tuple[Message, ...], tuple[int | None, ...]]:
        """Gives calls their original ids back; results go by their calls before, since originals may be equal."""
        of = {id(message): record for message, record in zip(normal.messages, normal.created_by, strict=True)}
        ordered = [m for g in group_messages(normal.messages) for m in (g.head, *sort_results(g.head.calls, g.results))]
        return tuple(self._original(message) for message in ordered), tuple(of[id(message)] for message in ordered)

    def _original(self, message: Message) -> Message:
        parts = tuple(
            Call(self.ids.get(p.id, p.id), p.name, p.source) if isinstance(p, Call) else p for p in message.parts
        )
        return msgspec.structs.replace(message, parts=parts, call_id=self.ids.get(message.call_id, message.call_id))

    def _report(self, path: str, record: int, offset: int, sort: str, detail: str = "", *, lost: bool = True) -> None:
        self.damage.append(Damage(path or "doc.json", record, offset, sort, detail, lost=lost))

    def _report_shape(self, path: str, data: bytes, frame: Frame) -> None:
        if not data or frame.sound:
            return
        if not frame.opened:
            self._report(path, 0, 0, "not json")
        else:
            last = len(frame.elements) + (frame.closed < len(data))
            self._report(path, last, min(frame.closed, len(data) - 1), "torn tail", lost=frame.closed < len(data))

    def _parent(self, facts: Facts) -> None:
        parent = facts.parent
        if parent is None:
            return
        found = self.source.resolve(parent.id) if self.source.resolve and parent.id not in self.above else None
        if found is None:
            self._report("", 0, 0, "missing parent", parent.id)
            self.references = (Reference("forked", parent.id, 0),)
            return
        reading = _Reading(found, self.above | {parent.id, facts.id}).session()
        groups = list(group_messages(reading.messages))[: max(parent.take, 0)]
        taken = [message for group in groups for message in (group.head, *group.results)]
        for message in taken:
            self._add(message, 0)
        self.references = (Reference("forked", parent.id, len(taken)),)

    def _add(self, message: Message, record: int) -> None:
        self.now.add(message, record)
        self.full.add(message, record)

    def _element(self, path: str, record: int, offset: int, data: bytes) -> None:
        element = decode_leniently(data, Element)
        if element is None:
            self._report(path, record, offset, "foreign record")
            return
        if element.at is not None:
            self.times.append(element.at)
        if element.who == "user":
            self._user(element, record)
        elif element.who == "bot":
            self._add(self._reply(element), record)
        elif element.who == "tool":
            text = self._text(element, path, record, offset)
            if not (element.clew and element.clew.invented) and not is_invented(text):
                self._add(_result(element, unguard_text(text)), record)
        elif element.who == "cut":
            self.boundaries.append(Boundary(len(self.full.finish().messages)))
            self.now.replace()
            self._add(Message("user", (Text(unguard_text(element.say)),), "agent", "summary", element.at), record)
        elif element.who != "sys":
            self._report(path, record, offset, "foreign record", element.who[:40], lost=False)

    def _user(self, element: Element, record: int) -> None:
        mark = element.clew or Mark()
        if looks_like_context(element.say) and not mark.said:
            return
        parts: list[Part] = [Text(unguard_text(element.say))] if element.say else []
        parts += [self._image(pic.type, pic.file, pic.url) for pic in element.pics]
        origin, kind = mark.origin or "user", mark.kind
        self._add(Message("user", tuple(parts), origin, kind, element.at), record)  # type: ignore[arg-type]

    def _image(self, media_type: str, name: str, url: str) -> Image:
        file = self.side.get(name.rpartition("/")[2]) if name else None
        return Image(media_type, _text_of(file) if file else "", url)

    def _reply(self, element: Element) -> Message:
        parts: list[Part] = [Reasoning(element.mull)] if element.mull else []
        if is_standin(element.say):
            parts.append(Image("image/*"))
        elif element.say:
            parts.append(Text(unguard_text(element.say)))
        parts += [self._call(does) for does in element.does]
        return Message("assistant", tuple(parts), "model", "", element.at, element.model)

    def _call(self, does: Does) -> Call:
        mark = does.clew or Mark()
        if mark.id is not None:
            self.ids[does.id] = mark.id
        name = does.tool if mark.name is None else mark.name
        text = unwrap_arguments(bytes(does.args)) if mark.text else None
        return Call(does.id, name, JsonValue(does.args) if text is None else text)

    def _text(self, element: Element, path: str, record: int, offset: int) -> str:
        if not element.file:
            return element.say
        file = self.side.get(element.file.rpartition("/")[2])
        if file is None:
            self._report(path, record, offset, "broken link", element.file[:100])
            return element.say
        return _text_of(file)


def _text_of(file: SideFile) -> str:
    return mend_surrogates(bytes(file.load()).decode("utf-8", "replace"))


def _result(element: Element, text: str) -> Message:
    parts = (Text(text),) if text else ()
    is_error = {"ok": False, "failed": True}.get(element.status)
    return Message("tool", parts, "agent", "", element.at, "", "", element.answers, is_error)
