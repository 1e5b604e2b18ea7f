"""Reads a Claude Code session: bytes to conversation, total, and without decoding what nobody looks at.

One pass over the lines gives the nodes of the tree (`scan`, `tree`), a second one over the nodes that count gives
the messages in normal form (`content`). Context of the agent (attachments, whole reminders, notes of failed
requests) is left out; what somebody said while the model was busy, and notices that carry content, are messages.
Everything odd is reported with record and offset; nothing here raises on any bytes.
"""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable
from typing import cast

import msgspec

from clew.conversation.loss import Damage, Loss
from clew.conversation.model import Message
from clew.conversation.normal import Normal, NormalBuilder, Stray
from clew.conversation.source import Boundary, Branch, Ending, Records, Reference, Session, SideFile, Source, Stream
from clew.conversation.text import mend_surrogates
from clew.formats.claude import records as rec
from clew.formats.claude.content import Content, answered_ids
from clew.formats.claude.ending import State, make_ending, read_state
from clew.formats.claude.folder import HELPERS, folder_name, folder_of, is_helper_path
from clew.formats.claude.scan import Scan, scan_stream
from clew.formats.claude.tree import ASSISTANT, Tree, Twig, grow_tree, link_nodes
from clew.formats.uncollected import uncollected

AGENT = "claude"


def read(source: Source, since: Ending | None = None) -> Session:
    """Reads a session whole, or from `since` on where the file has only grown by a plain continuation."""
    with uncollected():
        continued = _read_on(source, since) if since is not None else None
        return continued if continued is not None else _read_whole(source)


class _Reading:
    """One reading under way: the file, its nodes and their tree."""

    def __init__(self, source: Source, start: int = 0) -> None:
        self.source = source
        self.records = Records()
        self.damage: list[Damage] = []
        self.stream = source.streams[0] if source.streams else Stream("", b"")
        self.helper = is_helper_path(self.stream.path) or source.hint_id.startswith("agent-")
        scan = scan_stream(
            self.records, self.stream, self.damage, growing=source.growing, helper=self.helper, start=start
        )
        if not self.helper and scan.nodes and all(node.side for node in scan.nodes):
            self.helper = True
            for node in scan.nodes:
                node.side = False
        self.scan: Scan = scan
        self.own = self._own_id()
        number = scan.sessions.index(self.own) if self.own in scan.sessions else -1
        breaks = link_nodes(scan.nodes, scan.by_uuid, number)
        self.tree = Tree(scan.nodes, scan.by_uuid, breaks=breaks)
        grow_tree(self.tree, scan.by_uuid.get(scan.named_leaf, -1), self._answers_of, self._preserved)
        self.content = Content()

    def _own_id(self) -> str:
        """Returns the session id that the session's own records carry.

        The file's name rules; where no record carries that (a renamed file, a helper), most records do.
        """
        hint, scan = self.source.hint_id, self.scan
        if hint in scan.sessions or not scan.sessions:
            return hint if hint in scan.sessions else ""
        counts = [0] * len(scan.sessions)
        for node in scan.nodes:
            if node.session >= 0:
                counts[node.session] += 1
        return scan.sessions[max(range(len(counts)), key=lambda n: (counts[n], -n))]

    def _answers_of(self, number: int) -> tuple[str, ...] | None:
        return answered_ids(self.tree.nodes[number])

    def _preserved(self, number: int) -> tuple[str, tuple[str, ...], str, str]:
        kept = rec.read_preserved(self.tree.nodes[number].content)
        uuids = _texts(kept.all_uuids) or _texts(kept.uuids)
        return (_text(kept.anchor_uuid), uuids, _text(kept.head_uuid), _text(kept.tail_uuid))


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _texts(value: object) -> tuple[str, ...]:
    return tuple(item for item in cast(list[object], value) if isinstance(item, str)) if isinstance(value, list) else ()


def last_state(source: Source) -> State:
    """Returns what a file ends with, for a writer that goes on behind it."""
    reading = _Reading(source)
    scan, leaf = reading.scan, reading.tree.leaf
    return State(
        own=reading.own,
        leaf=scan.nodes[leaf].uuid if leaf >= 0 else "",
        entrypoint=scan.entrypoint,
        branch=scan.branch,
        has_prompts=scan.has_prompts,
    )


def _read_whole(source: Source) -> Session:
    reading = _Reading(source)
    tree = reading.tree
    pieces: dict[int, list[Message]] | None = {} if tree.cuts else None
    history = _say(reading, tree.history, keep=pieces)
    context = history
    if pieces is not None:
        context = _say(reading, tree.context, kept=pieces)
    branches, strays = _branches(reading, history)
    _report(reading, (*history.strays, *context.strays, *strays))
    session = _session(reading, context, history, branches)
    return msgspec.structs.replace(session, ending=_ending(reading, session, None))


def _read_on(source: Source, since: Ending) -> Session | None:
    """Reads what lies behind `since`; None where that is no plain continuation of what lay before."""
    state = read_state(since.state)
    if state is None or not source.streams or since.offset <= 0 or not since.holds_for(source):
        return None
    if source.hint_id != state.hint:
        return None
    reading = _Reading(source, since.offset)
    if not _is_plain(reading, state):
        return None
    said = _say(reading, reading.tree.history)
    if said.strays or reading.tree.twigs or (reading.damage and not source.growing):
        return None
    session = _session(reading, said, said, (), state)
    session = msgspec.structs.replace(session, continues=since)
    return msgspec.structs.replace(session, ending=_ending(reading, session, since))


def _is_plain(reading: _Reading, state: State) -> bool:
    """Tells whether the nodes behind an ending form one row that begins where the settled part ended."""
    scan, tree = reading.scan, reading.tree
    if scan.repeated or scan.summaries or tree.cuts or not scan.nodes or any(s != state.own for s in scan.sessions):
        return False
    if reading.helper != state.helper or any(node.side or node.foreign for node in scan.nodes):
        return False
    first = scan.nodes[0]
    if [b.node for b in tree.breaks] != ([0] if state.before else []) or (first.wanted or "") != state.before:
        return False
    if scan.named_leaf and scan.named_leaf not in scan.by_uuid and scan.named_leaf != state.before:
        return False
    if any(node.parent < 0 for node in scan.nodes[1:]):
        return False
    return not state.reply or all(n.reply != state.reply for n in scan.nodes if n.kind == ASSISTANT)


def _say(
    reading: _Reading,
    numbers: Iterable[int],
    *,
    keep: dict[int, list[Message]] | None = None,
    kept: dict[int, list[Message]] | None = None,
) -> Normal:
    """Returns the normal form of what these nodes say, in this order; `keep` remembers it, `kept` has it."""
    nodes, content = reading.tree.nodes, reading.content
    builder = NormalBuilder(content.renamed)
    release, heard = reading.stream.release, 0
    for number in numbers:
        node = nodes[number]
        found = kept.get(number) if kept is not None else None
        if found is None:
            found = content.pieces(node)
            if release is not None:
                heard += len(memoryview(node.content))
                if heard > _RELEASE_EVERY:
                    release()
                    heard = 0
        if keep is not None:
            keep[number] = found
        for message in found:
            builder.add(message, node.record)
    return builder.finish()


_RELEASE_EVERY = 16 << 20


def _branches(reading: _Reading, history: Normal) -> tuple[tuple[Branch, ...], tuple[Stray, ...]]:
    """Returns what was said beside the path, each with the place in the history that it hangs behind; and strays."""
    tree = reading.tree
    if not tree.twigs:
        return (), ()
    places = _Places(tree, history)
    branches: list[Branch] = []
    strays: list[Stray] = []
    for twig in tree.twigs:
        said = _say(reading, twig.nodes)
        strays += said.strays
        if said.messages:
            branches.append(Branch(len(branches) + 1, places.behind(twig), said.messages))
    known = {call.id for message in history.messages for call in message.calls} if strays else set[str]()
    return tuple(branches), tuple(stray for stray in strays if stray.call_id not in known)


class _Places:
    """Tells how many messages of the history stand before what hangs beside it."""

    def __init__(self, tree: Tree, history: Normal) -> None:
        self._tree, self._history = tree, history
        self._place = {number: at for at, number in enumerate(tree.history)}
        by_record = {tree.nodes[number].record: at for at, number in enumerate(tree.history)}
        self._records = sorted(r for r in history.created_by if r is not None)
        self._order = sorted(by_record.get(r, -1) for r in self._records)

    def behind(self, twig: Twig) -> int:
        if twig.at >= 0:
            at = bisect_right(self._order, self._place[twig.at])
        else:  # it hangs on nothing: it stands behind what the file has before it
            at = bisect_left(self._records, self._tree.nodes[twig.nodes[0]].record)
        messages = self._history.messages
        while at < len(messages) and messages[at].role == "tool":
            at += 1
        return at


def _report(reading: _Reading, strays: Iterable[Stray]) -> None:
    """Adds what is odd in the tree to the damage."""
    nodes, damage, records = reading.tree.nodes, reading.damage, reading.records
    path = reading.stream.path

    def add(record: int, line: int, sort: str, detail: str, lost: bool) -> None:
        damage.append(Damage(path, record, records.place(record)[1], sort, detail, line, lost))

    _report_breaks(reading, add)
    for record, line in reading.scan.repeated:
        add(record, line, "repeated record", "its uuid stands earlier in this file; it counts there", False)
    lines: dict[int, int] = {}
    for node in nodes:
        lines[node.record] = node.line
        if node.foreign:
            add(node.record, node.line, "foreign record", f"of session {reading.scan.sessions[node.session]}", False)
    for stray in dict.fromkeys(strays):
        if stray.record is not None:
            detail = f"a result for the call {stray.call_id!r}, which is not open here"
            add(stray.record, lines.get(stray.record, 0), "stray result", detail, True)
    damage.sort(key=lambda d: (d.record, d.offset))


def _report_breaks(reading: _Reading, add: Callable[[int, int, str, str, bool], None]) -> None:
    """Reports each broken link; one that a lost record before it explains is told with that loss."""
    nodes, damage = reading.tree.nodes, reading.damage
    lost = sorted((d.record, at) for at, d in enumerate(damage) if d.lost)
    told: set[int] = set()
    silent = False
    for found in reading.tree.breaks:
        node = nodes[found.node]
        if node.wanted is None:
            if found.joined >= 0 and not silent:
                silent = True
                add(node.record, node.line, "broken link", "records that name no parent are taken in file order", False)
            continue
        earlier = nodes[found.joined].record if found.joined >= 0 else -1
        note = f"record {node.record} is joined to record {earlier}" if earlier >= 0 else "the conversation begins here"
        place = bisect_right(lost, (earlier, len(damage)))
        cause = lost[place][1] if place < len(lost) and lost[place][0] < node.record else -1
        if cause < 0:
            add(node.record, node.line, "broken link", f"its parent {node.wanted} is not in this file; {note}", False)
        elif cause not in told:
            told.add(cause)
            detail = f"{damage[cause].detail}; {note}" if damage[cause].detail else note
            damage[cause] = msgspec.structs.replace(damage[cause], detail=detail)


def _session(
    reading: _Reading,
    context: Normal,
    history: Normal,
    branches: tuple[Branch, ...],
    state: State | None = None,
) -> Session:
    scan, source, tree = reading.scan, reading.source, reading.tree
    times = [m.time_ms for m in history.messages if m.time_ms is not None]
    created = state.created_ms if state is not None and state.created_ms is not None else None
    if created is None and times:
        created = times[0]
    first = next((m for m in map(_mark_of(reading), tree.history) if m), "")
    return Session(
        agent=AGENT,
        id=source.hint_id or reading.own,
        messages=context.messages,
        created_by=context.created_by,
        records=reading.records,
        history=history.messages,
        boundaries=_boundaries(reading, history),
        branches=branches,
        side=source.side,
        cwd=state.cwd if state else _cwd(reading),
        title=_title(scan, state),
        model=reading.content.model or (state.model if state else ""),
        provider="anthropic" if scan.asked or (state and state.asked) else "",
        version=scan.version or (state.version if state else ""),
        created_ms=created,
        updated_ms=times[-1] if times else created,
        damage=tuple(reading.damage),
        losses=_losses(reading, context),
        references=_references(reading),
        helper=reading.helper,
        foreign=first or (state.foreign if state else ""),
        stable_first=bytes(reading.records[0]) if len(reading.records) and state is None else b"",
    )


def _losses(reading: _Reading, context: Normal) -> tuple[Loss, ...]:
    """Returns what of the conversation the model in the middle cannot say."""
    counts = dict(reading.content.skipped)
    mended = set(reading.scan.mended).intersection(r for r in context.created_by if r is not None)
    signs = sum(_lone_surrogates(bytes(reading.records[record])) for record in mended)
    if signs:
        counts["lone surrogates"] = signs
    return tuple(Loss(what, count) for what, count in sorted(counts.items()))


def _lone_surrogates(record: bytes) -> int:
    """Counts the halves of pairs in what a record says; each of them is U+FFFD wherever it goes."""
    try:
        found = json.loads(record.decode("utf-8", "replace"), strict=False)
        text = json.dumps(found.get("message"), ensure_ascii=False)
    except (ValueError, RecursionError, AttributeError):
        return 0
    return len(mend_surrogates(text)) - len(mend_surrogates(text).replace("\ufffd", "")) - text.count("\ufffd")


def _mark_of(reading: _Reading) -> Callable[[int], str]:
    def origin(number: int) -> str:
        raw = reading.tree.nodes[number].mark
        mark = rec.read_mark(raw) if raw is not None else None
        return mark.from_ if mark is not None else ""

    return origin


def _boundaries(reading: _Reading, history: Normal) -> tuple[Boundary, ...]:
    tree = reading.tree
    if not tree.cuts:
        return ()
    place = {tree.nodes[number].record: at for at, number in enumerate(tree.history)}
    order = sorted(place.get(r, -1) for r in history.created_by if r is not None)
    return tuple(Boundary(bisect_left(order, cut)) for cut in tree.cuts)


def _cwd(reading: _Reading) -> str:
    """Returns the folder that the session is of: of those recorded the one that its place is named after."""
    cwds = list(reading.scan.cwds)
    place = folder_of(reading.stream.path)
    fitting = (cwd for cwd in cwds if folder_name(cwd) == place)
    return next(fitting, cwds[0] if cwds else reading.source.hint_cwd)


def _title(scan: Scan, state: State | None) -> str:
    if state is not None and scan.title_rank < state.title_rank:
        return state.title
    if scan.title_rank:
        return scan.title
    summary = next((text for leaf, text in reversed(scan.summaries) if leaf in scan.by_uuid), "")
    return summary or (state.title if state is not None else "")


def _references(reading: _Reading) -> tuple[Reference, ...]:
    found: list[Reference] = []
    if reading.helper and reading.own:
        found.append(Reference("helper_of", reading.own))
    asked_in = reading.scan.asked_in
    if asked_in and asked_in not in (reading.own, reading.source.hint_id):
        found.append(Reference("forked", asked_in))
    found += [Reference("helper", stem) for stem in _helper_stems(reading.source.side)]
    return tuple(found)


def _helper_stems(side: tuple[SideFile, ...]) -> list[str]:
    names = [f.path.split("/") for f in side if f.path.endswith(".jsonl")]
    return [parts[-1].removesuffix(".jsonl") for parts in names if HELPERS in parts[:-1]]


def _ending(reading: _Reading, session: Session, since: Ending | None) -> Ending | None:
    return make_ending(reading.tree, reading.scan, reading.stream, session, reading.own, reading.source.hint_id, since)
