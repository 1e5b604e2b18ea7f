"""Messages as the records give them: by id, in the agent's order, with what was taken back or compacted away.

The agent keeps a map: an id that comes again replaces the message in its place, a step back removes a message and all
behind it, and a list in `$set` replaces all of them. Each resume writes such a list with the same messages in it, so it
counts as a compaction only where it leaves messages out. A list of contexts
alone is the start of a process that writes into the same file, and takes nothing away.

In ACP mode the agent keeps all calls of a turn in one message, which it records again with each call: a call that
comes so late is one of the reply that was recorded last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from clew.formats.gemini.records import Record, ToolCall, read_tool_calls

_MODEL = "gemini"


class Entry:
    """One message: what its last record says, the record that created it, and the one that changed it last.

    `late` are calls of it that another message's record holds, by id; `only` the ids of its own calls, where its record
    holds those of later replies as well.
    """

    __slots__ = ("changed", "late", "only", "record", "stamp")

    def __init__(self, record: Record, stamp: int) -> None:
        self.record, self.stamp, self.changed = record, stamp, stamp
        self.late: dict[str, ToolCall] = {}
        self.only: frozenset[str] | None = None


class Tracks:
    """What the model would be sent now, and all that was said."""

    def __init__(self, is_silent: Callable[[Record], bool]) -> None:
        self._is_silent = is_silent
        self.now: dict[str, Entry] = {}
        self._full: dict[str, Entry] | None = None
        self.boundaries: list[int] = []
        self.gone: list[tuple[int, tuple[Entry, ...]]] = []
        self._count = 0

    @property
    def full(self) -> list[Entry]:
        """Returns all entries that were not taken back, in order."""
        return list((self.now if self._full is None else self._full).values())

    def put(self, name: str, record: Record, stamp: int) -> None:
        """Takes a message: a new one at the end, one whose id is known in its place."""
        known = self.now.get(name)
        if known is not None:
            self._change(known, record, stamp)
            return
        self.now[name] = entry = Entry(record, stamp)
        if self._full is not None:
            self._add_full(name, entry)

    def _change(self, known: Entry, record: Record, stamp: int) -> None:
        last = next((entry for entry in reversed(self.now.values()) if entry.record.type == _MODEL), known)
        if last is not known and record.type == _MODEL:
            own = known.only
            if own is None:
                own = frozenset(str(tool.id) for tool in read_tool_calls(known.record.tool_calls))
            elsewhere = {name: entry for entry in self.now.values() for name in entry.late}
            for tool in read_tool_calls(record.tool_calls):
                name = str(tool.id)
                if name not in own:
                    holder = elsewhere.get(name, last)
                    holder.late[name] = tool
                    holder.changed = stamp
            known.only, known.record = own, record
            return
        known.record, known.changed = record, stamp

    def add(self, record: Record, stamp: int) -> None:
        """Takes an element of a document: whatever its id, it is one more message."""
        self._count += 1
        self.put(f"{self._count} of the document", record, stamp)

    def _add_full(self, name: str, entry: Entry) -> None:
        assert self._full is not None, "asked for by the caller"
        while name in self._full:
            name += " again"
        self._full[name] = entry

    def step_back(self, name: str) -> None:
        """Removes a message and all behind it; all of them where the id is unknown."""
        names = list(self.now)
        at = names.index(name) if name in self.now else 0
        removed = {id(self.now[n]): self.now.pop(n) for n in names[at:]}
        if self._full is not None:
            self._full = {n: entry for n, entry in self._full.items() if id(entry) not in removed}
        if removed:
            self.gone.append((len(self.full), tuple(removed.values())))

    def replace(self, records: Iterable[tuple[str, Record]], stamp: int) -> None:
        """Takes a new list of messages in place of all."""
        new = dict(records)
        if self.now and all(self._is_silent(record) for record in new.values()):
            return
        left_out = [n for n, entry in self.now.items() if n not in new and not self._is_silent(entry.record)]
        if left_out:
            self._part_ways(set(new))
        before, self.now = self.now, {}
        for name, record in new.items():
            known = before.get(name)
            if known is None or left_out:
                entry = Entry(record, stamp)
                if self._full is not None and known is None:
                    self._add_full(name, entry)
            else:
                entry = known
                entry.record = record
            self.now[name] = entry

        self._give_back()

    def _give_back(self) -> None:
        """Calls whose reply was left out as an empty one are again those of the message that holds them."""
        held = {name for entry in self.now.values() for name in entry.late}
        for entry in self.now.values():
            if entry.only is not None:
                entry.only = frozenset(str(tool.id) for tool in read_tool_calls(entry.record.tool_calls)) - held

    def _part_ways(self, kept: set[str]) -> None:
        """From here on what the model is sent and what was said are two lists."""
        if self._full is None:
            self._full = dict(self.now)
        names = list(self._full)
        at = len(names)
        while at and names[at - 1] in kept:  # the summary was recorded just before the list that begins with it
            at -= 1
        self.boundaries.append(at)
