"""Reads Qwen Code's sessions: the path from the last record to the root, with what hangs beside it.

Promised: every byte falls in exactly one record; whatever is in the file, a session comes out and what was odd is
reported. What a compaction left out is in the history only.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath

import msgspec

from clew.conversation.loss import Damage, Loss
from clew.conversation.model import Message
from clew.conversation.normal import Normal
from clew.conversation.source import Boundary, Branch, Ending, Records, Reference, Session, Source, Stream
from clew.formats.qwen.content import Entry, Spoken, normal_of
from clew.formats.qwen.scan import Scan, scan_stream
from clew.formats.qwen.tree import COMMAND, COMPRESSION, Node, choose_leaf, find_twigs, link_nodes, walk_up
from clew.formats.settled import find_ending

AGENT = "qwen"
HELPERS = "subagents"


class State(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the records before an ending said; `before` is the uuid of the record before the last group."""

    hint: str = ""
    own: str = ""
    before: str = ""
    cwd: str = ""
    title: str = ""
    model: str = ""
    provider: str = ""
    version: str = ""
    foreign: str = ""
    forked_from: str = ""
    created_ms: int | None = None
    helper: bool = False


_STATE = msgspec.json.Decoder(State).decode


def read(source: Source, since: Ending | None = None) -> Session:
    """Reads a session, or goes on from `since` where what was added is a plain continuation."""
    if since is not None and len(source.streams) == 1 and since.offset > 0:
        try:
            state = _STATE(since.state)
        except (msgspec.DecodeError, UnicodeDecodeError):
            state = None
        if state is not None and state.hint == source.hint_id and since.holds_for(source):
            reading = _Reading(source, since, state)
            if reading.is_plain():
                return reading.session()
    return _Reading(source).session()


class _Reading:
    """One reading under way: the file, its nodes and what they say."""

    def __init__(self, source: Source, since: Ending | None = None, state: State | None = None) -> None:
        self.source, self.since, self.old = source, since, state or State()
        self.records = Records()
        self.damage: list[Damage] = []
        self.stream = source.streams[0] if source.streams else Stream("", b"")
        start = since.offset if since is not None else 0
        self.scan: Scan = scan_stream(self.records, self.stream, self.damage, growing=source.growing, start=start)
        for other in source.streams[1:]:
            self.records.add_stream(other).extend([0] if len(other.data) else [])
        self.own = self.old.own or self._own_id()
        number = self.scan.sessions.index(self.own) if self.own in self.scan.sessions else -1
        self.number = number
        nodes = self.scan.nodes
        self.broken = link_nodes(nodes, number)
        self.leaf = choose_leaf(nodes, number)
        self.path = walk_up(nodes, self.leaf)
        self.spoken = Spoken(self.stream)
        self.spoken.take(nodes[n] for n in self.path)
        self.helper = self.scan.sided or self.old.helper or HELPERS in PurePosixPath(self.stream.path).parts[:-1]

    def _own_id(self) -> str:
        """Returns the session id that the records carry: the file's name rules where any carries that, else most."""
        sessions, hint = self.scan.sessions, self.source.hint_id
        if hint in sessions or not sessions:
            return hint if hint in sessions else ""
        counts = [0] * len(sessions)
        for node in self.scan.nodes:
            if node.session >= 0:
                counts[node.session] += 1
        return sessions[max(range(len(counts)), key=lambda n: (counts[n], -n))]

    def is_plain(self) -> bool:
        """Tells whether the nodes behind an ending form one row that begins where the settled part ended."""
        scan = self.scan
        if not scan.nodes or scan.fragments or scan.repeated or scan.sessions not in ([self.own], []):
            return False
        if any(node.kind in (COMPRESSION, COMMAND) for node in scan.nodes) or self.path != list(range(len(scan.nodes))):
            return False
        if any(damage.lost for damage in self.damage) or scan.unlinked:
            return False
        first = scan.nodes[0]
        if self.old.before:
            return self.broken == [0] and first.wanted == self.old.before and not self._strays()
        return not self.broken and not self._strays()

    def _normal(self, entries: Sequence[Entry]) -> Normal:
        return normal_of(entries, self.spoken.speech.renamed)

    def _strays(self) -> bool:
        return bool(self._normal(self.spoken.now).strays)

    def session(self) -> Session:
        """Returns the session."""
        normal = self._normal(self.spoken.now)
        history = self._normal(self.spoken.full).messages if self.spoken.cuts else normal.messages
        self._report(normal)
        times = [m.time_ms for m in history if m.time_ms is not None]
        created = self.old.created_ms if self.old.created_ms is not None else (times[0] if times else None)
        scan, old = self.scan, self.old
        state = State(
            hint=self.source.hint_id,
            own=self.own,
            cwd=old.cwd or scan.cwd,
            title=scan.title or old.title,
            model=self.spoken.model or old.model,
            provider=old.provider or scan.provider,
            version=scan.version or old.version,
            foreign=old.foreign or scan.foreign,
            forked_from=old.forked_from or scan.forked_from,
            created_ms=created,
            helper=self.helper,
        )
        return Session(
            agent=AGENT,
            id=self.source.hint_id or self.own,
            messages=normal.messages,
            created_by=normal.created_by,
            records=self.records,
            history=history,
            boundaries=tuple(Boundary(self._place(at)) for at in self.spoken.cuts),
            branches=self._branches(history),
            side=self.source.side,
            cwd=state.cwd or self.source.hint_cwd,
            title=state.title,
            model=state.model,
            provider=state.provider,
            version=state.version,
            created_ms=created,
            updated_ms=times[-1] if times else created,
            damage=tuple(self.damage),
            losses=tuple(Loss(what, count) for what, count in sorted(self.spoken.speech.skipped.items())),
            references=self._references(state),
            helper=self.helper,
            foreign=state.foreign,
            stable_first=self.records[0] if len(self.records) and self.since is None else b"",
            ending=self._ending(normal, state),
            continues=self.since,
        )

    def _place(self, at: int) -> int:
        return len(self._normal(self.spoken.full[:at]).messages)

    def _ending(self, normal: Normal, state: State) -> Ending | None:
        """Returns where the last group begins, where all of the path before it lies before it in the file."""
        found = find_ending(normal, self.records, b"", self.since)
        if found is None:
            return None
        record = found.records - (self.since.records - 1 if self.since is not None else 0)
        nodes, path = self.scan.nodes, self.path
        row = [n for n in path if nodes[n].record >= record]
        before = path[: len(path) - len(row)]
        behind = [n for n, node in enumerate(nodes) if node.record >= record]
        if not row or path[len(before) :] != row or behind != row or any(nodes[n].more for n in row):
            return None
        if any(nodes[n].kind in (COMPRESSION, COMMAND) for n in row):
            return None
        last = nodes[before[-1]].uuid if before else self.old.before
        return msgspec.structs.replace(found, state=msgspec.json.encode(msgspec.structs.replace(state, before=last)))

    def _branches(self, history: tuple[Message, ...]) -> tuple[Branch, ...]:
        nodes = self.scan.nodes
        found: list[Branch] = []
        for twig in find_twigs(nodes, self.path, self.number):
            spoken = Spoken()
            spoken.take(nodes[n] for n in twig.nodes)
            messages = normal_of(spoken.full, spoken.speech.renamed).messages
            if messages:
                found.append(Branch(len(found) + 1, self._branch_place(twig.at, history), messages))
        return tuple(found)

    def _branch_place(self, at: int, history: tuple[Message, ...]) -> int:
        """Returns behind which message of the history a row hangs on a node."""
        if at < 0:
            return 0
        records = {self.scan.nodes[n].record for n in self.path[: self.path.index(at) + 1]}
        place = len(self._normal([entry for entry in self.spoken.full if entry.record in records]).messages)
        return min(place, len(history))

    def _references(self, state: State) -> tuple[Reference, ...]:
        found: list[Reference] = []
        if self.helper and self.own:
            found.append(Reference("helper_of", self.own))
        if state.forked_from and state.forked_from not in (self.own, self.source.hint_id):
            found.append(Reference("forked", state.forked_from))
        paths = (PurePosixPath(file.path) for file in self.source.side)
        found += [Reference("helper", p.stem) for p in paths if p.suffix == ".jsonl" and HELPERS in p.parts[:-1]]
        return tuple(found)

    def _report(self, normal: Normal) -> None:
        """Adds what is odd in the tree to the damage."""
        nodes = self.scan.nodes
        for number in self.broken:
            node = nodes[number]
            if self.since is not None and number == 0:
                continue
            where = (
                f"joined to record {nodes[node.parent].record}" if node.parent >= 0 else "the conversation begins here"
            )
            self._add(node, "broken link", f"its parent {node.wanted} is not in this file; {where}", lost=False)
        for node in nodes:
            if node.session not in (self.number, -1):
                self._add(node, "foreign record", f"of session {self.scan.sessions[node.session]}", lost=True)
        for record, line in self.scan.repeated:
            self._at(record, line, "repeated record", "it stands earlier in this file; it counts there", lost=False)
        for record, line in self.scan.unlinked:
            self._at(record, line, "foreign record", "a message without a uuid; the agent leaves it out", lost=True)
        for stray in dict.fromkeys(normal.strays):
            detail = f"a result for the call {stray.call_id!r}, which is not open here"
            self._at(stray.record or 0, 0, "stray result", detail, lost=True)
        self.damage.sort(key=lambda damage: (damage.record, damage.offset))

    def _add(self, node: Node, sort: str, detail: str, *, lost: bool) -> None:
        self._at(node.record, node.line, sort, detail, lost=lost)

    def _at(self, record: int, line: int, sort: str, detail: str, *, lost: bool) -> None:
        offset = self.records.place(record)[1]
        self.damage.append(Damage(self.stream.path, record, offset, sort, detail, line, lost))


class Tail(msgspec.Struct, frozen=True):
    """What a file ends with, for a writer that goes on behind it: the ids are those in the file."""

    own: str
    leaf: str
    cwd: str
    version: str
    ids: frozenset[str]
    open_calls: tuple[tuple[str, str], ...]


def read_tail(stream: Stream, hint_id: str) -> Tail:
    """Reads a file once more for what it ends with."""
    reading = _Reading(Source((stream,), hint_id=hint_id))
    leaf = reading.scan.nodes[reading.leaf].uuid if reading.leaf >= 0 else ""
    spoken, scan = reading.spoken, reading.scan
    waiting = tuple(spoken.waiting.items())
    return Tail(reading.own, leaf, scan.cwd, scan.version, frozenset(spoken.ids), waiting)
