"""A thread as a drawing in the terminal: rails, then who, when and what; and as text for graphviz.

Pure: a thread, a look, a moment and a zone in, lines out. Two columns a lane; where the terminal is narrow the times
go first, then what happened is cut. Signs fall back to ASCII (`* | / \\`) where the encoding is not UTF-8.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, tzinfo
from typing import Final

from clew.cli import dates, words
from clew.cli.style import Look, Role
from clew.cli.width import cut, pad, width_of, wrap
from clew.verbs.log import Entry, LogStrand, Parting, ThreadLog
from clew.verbs.rails import RailRow, Step, lay_out

_MIN_LABEL: Final = 24
_ASCII: Final = str.maketrans("○◌●◇│├┤┼─┄╭╮╯╰…", "*o@#|||+-./\\/\\~")
_GONE: Final = {"kept": "kept here", "missing": "gone, and never kept", "unreadable": "unreadable"}
_ROLES: Final[dict[str, Role]] = {"●": "live", "◇": "kept", "◌": "agent", "○": "agent", "x": "muted", "~": "muted"}


def graph_lines(log: ThreadLog, look: Look, now: datetime, zone: tzinfo | None = None) -> Iterator[str]:
    """Yields the drawing, newest below, then where the thread is and where its strands part."""
    now = now.astimezone(zone)
    strands = {strand.id: strand for strand in log.strands}
    entries = [entry for entry in log.entries if entry.strand in strands]
    steps = [_step(entry, strands[entry.strand], log) for entry in entries]
    drawn = lay_out(steps)
    yield from _rows(log, drawn, steps, entries, strands, look, now, zone)
    for role, line in _footer(log, strands, look):
        yield from (look.paint(role, part) for part in wrap(line, look.width))


def dot_lines(log: ThreadLog) -> Iterator[str]:
    """Yields the thread as a graph for graphviz: sessions as nodes, what went over as edges."""
    yield "digraph thread {"
    yield "  rankdir=TB; node [shape=box];"
    for strand in log.strands:
        label = f"{strand.agent} {strand.short}\\n{words.count(strand.messages, 'message')}"
        if strand.state != "there":
            label += f"\\n{strand.state}"
        yield f"  {_dot(strand.id)} [label={_dot(label)}];"
    ids = {strand.id for strand in log.strands}
    for entry in log.entries:
        if entry.source in ids:
            style = ", style=dotted" if entry.what == "forked" else ""
            yield f"  {_dot(entry.source)} -> {_dot(entry.strand)} [label={_dot(_edge_words(entry))}{style}];"
    yield "}"


def _step(entry: Entry, strand: LogStrand, log: ThreadLog) -> Step:
    sign = {"now": "●", "forked": "◌", "superseded": "x"}.get(entry.what, "○")
    if entry.count > 1:
        sign = "~"
    elif sign == "○" and strand.state in ("kept", "missing") and _last_of(entry, log):
        sign = "◇"
    return Step(entry.strand, sign, entry.source or None, entry.what == "forked")


def _last_of(entry: Entry, log: ThreadLog) -> bool:
    return next(other for other in reversed(log.entries) if other.strand == entry.strand) is entry


def _rows(
    log: ThreadLog,
    drawn: tuple[RailRow, ...],
    steps: list[Step],
    entries: list[Entry],
    strands: dict[str, LogStrand],
    look: Look,
    now: datetime,
    zone: tzinfo | None,
) -> Iterator[str]:
    names = {strand.id: look.safe(f"{strand.agent} {strand.short}", line=True) for strand in strands.values()}
    times = [_time(entry, now, zone) for entry in entries]
    rails = 2 * max((len(row.cells) for row in drawn), default=0)
    name_width = max((width_of(names[entry.strand]) for entry in entries), default=0)
    time_width = max(map(len, times), default=0)
    room = look.width - rails - name_width - 2
    if look.width and room - time_width - 2 < _MIN_LABEL:
        time_width = 0
    room = look.width - rails - name_width - 2 - (time_width + 2 if time_width else 0) if look.width else 0
    previous = ""
    for row in drawn:
        if row.step is None:
            yield _rail_text(row, look, "").rstrip()
            continue
        entry, step = entries[row.step], steps[row.step]
        name = names[entry.strand] if entry.strand != previous or entry.what == "now" else ""
        previous = entry.strand
        label = _label(entry, names, look)
        if strands[entry.strand].state in _GONE and _last_of(entry, log):
            label += f" ({_GONE[strands[entry.strand].state]})"
        if row.hidden or row.node_hidden:
            label = f"…+{max(row.hidden, 1)} lanes  {label}"
        label = look.own(label) if look.utf8 else label.translate(_ASCII)
        if look.width:
            label = cut(label, max(room, 8), "…" if look.utf8 else "~")
        parts = [look.paint("agent", pad(name, name_width))]
        if time_width:
            parts.append(look.paint("muted", pad(times[row.step], time_width)))
        line = pad(_rail_text(row, look, step.sign), 0) + " " * (rails - 2 * len(row.cells)) + "  ".join(parts)
        yield f"{line}  {label}".rstrip()


def _rail_text(row: RailRow, look: Look, node: str) -> str:
    text = ""
    for cell, join in zip(row.cells, row.joins, strict=True):
        sign, fill = (cell, join) if look.utf8 else (cell.translate(_ASCII), join.translate(_ASCII))
        role = _ROLES.get(cell, "") if node and cell == node else "muted" if cell.strip() else ""
        text += look.paint(role, sign) + (look.paint("muted", fill) if fill.strip() else fill)
    return text


def _time(entry: Entry, now: datetime, zone: tzinfo | None) -> str:
    return "now" if entry.what == "now" else dates.stamp(dates.read_time(entry.at, zone), now)


def _label(entry: Entry, names: dict[str, str], look: Look) -> str:
    messages = words.count(entry.messages or 0, "message")
    if entry.what in ("created", "adopted"):
        return f"created, {messages}"
    if entry.what == "grown":
        return f"+{messages}"
    if entry.what == "translated":
        came = f"from {names[entry.source]}: " if entry.source in names and not entry.restored else ""
        return look.safe(came + _edge_words(entry), line=True)
    if entry.what == "forked":
        return look.safe(_edge_words(entry), line=True)
    if entry.what == "resumed":
        return f"{entry.count} times resumed" if entry.count > 1 else "resumed"
    if entry.what == "now":
        return look.safe(f"live: {entry.detail}" if entry.detail else "live", line=True)
    if entry.what == "superseded":
        return "superseded: opened, nothing said"
    if entry.what == "replaced":
        return look.safe(f"the agent no longer had it ({entry.detail}); it began anew", line=True)
    return "went on in a new chain"


def _edge_words(entry: Entry) -> str:
    kept = [words.amount(one.count, one.what) for one in entry.losses if one.kept]
    gone = [words.amount(one.count, one.what) for one in entry.losses if not one.kept]
    told = [_carried_words(entry), *(("kept here: " + ", ".join(kept),) if kept else ())]
    return "; ".join([*told, *(("not carried: " + ", ".join(gone),) if gone else ())])


def _carried_words(entry: Entry) -> str:
    if entry.what == "forked":
        return f"forked at message {entry.messages}" if entry.messages is not None else "forked"
    if entry.what != "translated":
        return entry.what.replace("_", " ")
    if entry.restored and entry.rendered:
        return f"{entry.restored:,} home byte for byte, {entry.rendered:,} written"
    if entry.restored:
        return f"{words.count(entry.restored, 'message')} home byte for byte"
    return f"{words.count(entry.rendered, 'message')} written"


def _footer(log: ThreadLog, strands: dict[str, LogStrand], look: Look) -> Iterator[tuple[Role, str]]:
    def name(strand: str) -> str:
        row = strands.get(strand)
        return look.safe(f"{row.agent} {row.short}", line=True) if row is not None else "nowhere"

    if not log.strands:
        yield "muted", f"thread {log.thread}"
        yield "warn", f"! nothing of it can be read by this clew ({words.count(log.unread, 'entry', 'entries')})"
        return
    told = f"thread {log.thread}: began in {name(log.start)}, is now in {name(log.present)}"
    same = {frozenset((p.first, p.second)) for p in log.partings if p.relation == "equal"}
    if log.newest and log.newest != log.present and frozenset((log.newest, log.present)) not in same:
        told += f", last said something in {name(log.newest)}"
    yield "muted", told
    for parting in log.partings:
        text = _parting_words(parting, name(parting.first), name(parting.second))
        if text:
            sign = "Y " if parting.relation == "diverged" else ""
            yield "warn" if sign else "muted", sign + text
    if log.unread:
        yield "warn", f"! {words.count(log.unread, 'entry', 'entries')} of it cannot be read by this clew"


def _parting_words(parting: Parting, first: str, second: str) -> str:
    if parting.relation == "diverged":
        return (
            f"diverged at {parting.common + 1}: {first} +{parting.first_more:,}, {second} +{parting.second_more:,} "
            f"after message {parting.common:,}"
        )
    if parting.relation == "first_behind":
        return f"{first} is {words.count(parting.second_more, 'message')} behind {second}"
    if parting.relation == "second_behind":
        return f"{second} is {words.count(parting.first_more, 'message')} behind {first}"
    return ""


def _dot(text: str) -> str:
    safe = "".join(char if char.isprintable() else "?" for char in text).replace('"', '\\"')
    return f'"{safe}"'
