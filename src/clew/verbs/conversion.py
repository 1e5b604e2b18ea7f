"""One conversion that was asked for: what is checked first, the ids it may take, and how its target is written.

It reads lineage and homes and writes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from blake3 import blake3

from clew.conversation.canonical import keys_of
from clew.conversation.model import Message
from clew.errors import FormatError, Refused, UnwritableContent, UsageError
from clew.formats.protocol import Format, Home, WriteOptions
from clew.formats.registry import format_names, get_format
from clew.ids import derive_uuid
from clew.verbs import lineage_rows as rows
from clew.verbs.context import Context
from clew.verbs.own import refuse_held
from clew.verbs.reading import Opened
from clew.verbs.workshop import Workshop

if TYPE_CHECKING:
    from clew.verbs.leases import View


class Job:
    """One conversion that was asked for: the session, the target, and what is found out on the way."""

    def __init__(
        self,
        ctx: Context,
        opened: Opened,
        target: Format,
        cwd: str | None,
        model: str,
        out: Path | None,
        *,
        new: bool,
        full: bool,
        dry_run: bool,
        strict: bool,
    ) -> None:
        self.ctx, self.opened, self.target, self.model = ctx, opened, target, model
        self.new, self.dry_run, self.strict = new, dry_run, strict
        self.full = full
        self.home = Home(out.absolute()) if out is not None else ctx.home
        session = opened.session
        self.messages: tuple[Message, ...] = session.history if full else session.messages
        self.keys = tuple(keys_of(self.messages)) if full else opened.keys
        self.cwd = cwd if cwd is not None else session.cwd
        self._cwd_asked = cwd is not None
        self.view = rows.find_thread(ctx, opened.format, session.id) or self._thread_of_origin()
        self.warnings: list[str] = []
        self._facts: Mapping[str, str] | None = None
        self.held: View | None = None

    def _thread_of_origin(self) -> rows.ThreadView | None:
        """Returns the thread of the session that this one was written from, as its own mark says: an agent that goes
        on under an id of its own making (a fork, an import) stays in it."""
        agent, _, native_id = self.opened.session.foreign.partition(":")
        known = native_id and agent in format_names()
        return rows.find_thread(self.ctx, get_format(agent), native_id) if known else None

    def check(self) -> None:
        """Raises Refused, UnwritableContent, UsageError or FormatError (`--strict`) when it cannot be done as asked."""
        session = self.opened.session
        if not self.messages:
            raise Refused(
                f"session {session.id} has no messages",
                code="nothing_to_convert",
                hint="It can be kept and restored as it is: `clew keep`, `clew restore`.",
                session=session.id,
            )
        if self.target.write is None or not self.target.traits.writes:
            raise UnwritableContent(
                f"sessions of {self.target.title} cannot be written",
                hint="`clew agents` says which agents can be written.",
                agent=self.target.name,
            )
        if self.target.traits.exported and self.home is self.ctx.home:
            raise UsageError(
                f"{self.target.title} is no agent's: no home holds its files",
                hint="--out DIR says where to write it.",
                agent=self.target.name,
            )
        if self.target is self.opened.format and not self.new:
            raise UsageError(
                f"session {session.id} is one of {self.target.title} already",
                hint="--new makes a second session of it (a fork in the thread).",
                session=session.id,
            )
        rows.refuse_unreadable(self.view, self.opened.format, session.id)
        damage = [d for d in session.damage if d.lost]
        if damage:
            self.warnings.append(
                f"{len(damage)} damaged place{'s' * (len(damage) != 1)} in the source; `clew show` names them"
            )
        if self.strict and session.damage:
            first = session.damage[0]
            raise FormatError(
                f"{first.file}: record {first.record} at byte {first.offset}: {first.sort}",
                code="damaged",
                hint="Without --strict the sound part is converted and the damage is reported.",
                session=session.id,
                path=first.file,
                record=first.record,
                offset=first.offset,
            )

    def own_ids(self) -> frozenset[str]:
        """Returns the ids that this conversation has in the target agent: by lineage, marks and derivation."""
        session = self.opened.session
        strand = rows.strand_of(self.view, self.opened.format, session.id)
        own = set(rows.ids_of(self.view, strand, self.target.name))
        if session.foreign.startswith(f"{self.target.name}:"):
            own.add(session.foreign.partition(":")[2])
        if self.target is self.opened.format:
            own.add(session.id)
        if self.target.traits.any_uuid:
            own.add(self.derived(0))
        return frozenset(own)

    def derived(self, number: int) -> str:
        """Returns the id of the number-th session that clew makes of this one in the target."""
        seed = "\x00".join((self.opened.format.name, self.opened.session.id, self.target.name, str(number)))
        derived = derive_uuid(blake3(b"clew-id-v1\x00" + seed.encode()).digest())
        return derived if self.target.make_id is None else self.target.make_id(derived)

    def options(self, session_id: str, *, path: str = "") -> WriteOptions:
        """Returns how a session of this id is written; `path` is that of the stream that is gone on with."""
        now = self.ctx.now_ms()
        seed = f"{session_id}\x00{now}\x00".encode()
        title = self.opened.session.title
        return WriteOptions(
            session_id=session_id,
            cwd=self.cwd,
            now_ms=now,
            new_id=lambda name: derive_uuid(blake3(seed + name.encode()).digest()),
            origin=self.opened.name,
            title=title,
            model=self.model,
            path=path,
            facts=self._surroundings(),
        )

    def _surroundings(self) -> Mapping[str, str]:
        """Returns what the target's writer has to know of its home, looked up once."""
        if self._facts is None:
            look = self.target.surroundings
            self._facts = look(self.home, self.cwd) if look is not None else {}
        return self._facts

    def workshop(self, session_id: str) -> Workshop:
        """Returns where the target is written plainly and read back."""
        source = tuple(self.opened.session.records.streams)
        return Workshop(self.target, self.options(session_id), self.ctx.drafts, beneath=source)

    def refuse_held(self, session_id: str) -> None:
        """Raises LeaseError when somebody owns the session that is to be written, in this home."""
        if self.home is self.ctx.home:
            self.held = refuse_held(self.ctx, self.target, session_id)

    def is_asked_elsewhere(self, cwd: str) -> bool:
        """Tells whether another folder was asked for than the one that the copy of a session would name."""
        return self._cwd_asked and self.cwd != cwd

    def warn_elsewhere(self, name: str, cwd: str) -> None:
        """Tells that a session that is gone on with, or put back, stays in its own folder."""
        if self._cwd_asked and self.cwd != cwd:
            place = f"in {cwd}" if cwd else "without a folder"
            self.warnings.append(f"{name} goes on {place}; --new makes one in {self.cwd}")

    def settle_folder(self) -> None:
        """Takes the folder that one is in where the session names none: agents find their sessions by it."""
        if not self.cwd and not self.target.traits.exported:
            self.cwd, self._facts = str(self.ctx.cwd), None
            self.warnings.append(f"the session names no folder, so it goes on in {self.cwd}; --cwd names another")

    def new_id(self) -> str:
        """Returns the first derived id that nobody has in the target agent, on disk or in clew's store."""
        taken = {found.id for found in self.target.locate.find(self.home)}
        strand = rows.strand_of(self.view, self.opened.format, self.opened.session.id)
        taken |= rows.ids_of(self.view, strand, self.target.name)
        number = 0
        while self.derived(number) in taken:
            number += 1
        return self.derived(number)

    def unsound(self, group: int) -> UnwritableContent:
        """Returns the error that says that a group would not read back."""
        return UnwritableContent(
            f"group {group + 1} would not read back from {self.target.title}'s format; nothing was written",
            code="unsound",
            hint="This is a defect of clew's writer: please report it with the session's damage report.",
            session=self.opened.session.id,
            group=group,
        )
