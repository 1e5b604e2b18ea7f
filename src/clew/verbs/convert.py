"""`clew convert`: a session in another agent's format, as a continuation of the one made before, or a new one.

The whole way of docs/tour.md: read, capture, choose whose bytes come back, restore and splice or write plainly,
read back, place, capture what was placed, record it in the thread. Nothing is placed that does not read back as the
conversation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from blake3 import blake3

from clew.conversation.canonical import keys_of
from clew.conversation.loss import Loss
from clew.conversation.model import Message
from clew.conversation.source import Session, SideFile, Source, Stream
from clew.conversation.walk import session_keys
from clew.errors import FormatError, Refused, UnwritableContent, UsageError
from clew.formats.protocol import Format, Found, Home, WriteOptions
from clew.formats.registry import format_names, get_format
from clew.ids import CaptureId, ChainKey, derive_uuid
from clew.platform.fs import Expected
from clew.residue.choose import Choice, NoChoice, choose_source
from clew.residue.restore import Restored, RestoreReport, first_difference, restore_conversation
from clew.verbs import lineage_rows as rows
from clew.verbs.capture import candidates_for, capture_session, captured_side, read_facts
from clew.verbs.context import Context
from clew.verbs.own import holding, refuse_held
from clew.verbs.place import (
    Item,
    Rows,
    base_of,
    expected_of,
    make_item,
    path_below,
    place_all,
    present_bytes,
    refuse_live,
    shown_path,
)
from clew.verbs.reading import Opened, find_by_id, load_source, resolver
from clew.verbs.refer import open_session
from clew.verbs.workshop import Workshop

if TYPE_CHECKING:
    from clew.verbs.leases import View


class End(msgspec.Struct, frozen=True):
    """One end of a conversion, as the JSON has it."""

    agent: str
    session_id: str
    path: str = ""
    cwd: str = ""
    paths: tuple[str, ...] = ()


class Command(msgspec.Struct, frozen=True):
    """How the target is resumed: the command line, and the folder to run it in."""

    argv: tuple[str, ...]
    cwd: str


class Report(msgspec.Struct, frozen=True):
    """What was restored, rendered and left out, as the JSON has it. A message counts without its results.

    `messages`, `calls` and `results` are those of the whole conversation.
    """

    mode: str
    restored_messages: int
    rendered_messages: int
    losses: tuple[Loss, ...] = ()
    warnings: tuple[str, ...] = ()
    reason: str = ""
    invented: int = 0
    retries: int = 0
    messages: int = 0
    calls: int = 0
    results: int = 0


class Converted(msgspec.Struct, frozen=True, rename={"from_": "from"}):
    """The answer of `convert` (docs/cli.md)."""

    from_: End
    to: End
    resume: Command
    report: Report
    thread: str
    written: bool = True


def convert(
    ctx: Context,
    ref: str,
    *,
    to: str,
    cwd: str | None = None,
    model: str | None = None,
    out: Path | None = None,
    new: bool = False,
    full: bool = False,
    dry_run: bool = False,
    strict: bool = False,
) -> Converted:
    """Translates a session and places it; raises Refused, UnwritableContent, FormatError or NotFoundError.

    See docs/cli.md for the options. With `dry_run` the answer is the same and nothing is written.
    """
    opened = open_session(ctx, ref)
    return convert_opened(
        ctx, opened, to=to, cwd=cwd, model=model, out=out, new=new, full=full, dry_run=dry_run, strict=strict
    )


def convert_opened(
    ctx: Context,
    opened: Opened,
    *,
    to: str,
    cwd: str | None = None,
    model: str | None = None,
    out: Path | None = None,
    new: bool = False,
    full: bool = False,
    dry_run: bool = False,
    strict: bool = False,
) -> Converted:
    """Translates a session that was read already; the rest as `convert`."""
    job = _Job(ctx, opened, get_format(to), cwd, model or "", out, new=new, full=full, dry_run=dry_run, strict=strict)
    return job.run()


class _Existing(msgspec.Struct, frozen=True):
    """A session of the target agent that carries this conversation already, and how far it goes along with it."""

    opened: Opened
    common: int


class _Job:
    """One conversion, step by step."""

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
        self.view = rows.find_thread(ctx, opened.format, session.id) or self._thread_of_origin()
        self.warnings: list[str] = []
        self._facts: Mapping[str, str] | None = None
        self._held: View | None = None

    def _thread_of_origin(self) -> rows.ThreadView | None:
        """Returns the thread of the session that this one was written from, as its own mark says: an agent that goes
        on under an id of its own making (a fork, an import) stays in it."""
        agent, _, native_id = self.opened.session.foreign.partition(":")
        known = native_id and agent in format_names()
        return rows.find_thread(self.ctx, get_format(agent), native_id) if known else None

    def run(self) -> Converted:
        self._check()
        if not self.dry_run:
            capture_session(self.ctx, self.opened)
        own = self._own_ids()
        existing = None if self.new else self._existing(own)
        if existing is not None:
            return self._continue(existing)
        return self._make(own)

    # --- before anything is written ---------------------------------------------------------------------------

    def _check(self) -> None:
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

    def _own_ids(self) -> frozenset[str]:
        """Returns the ids that this conversation has in the target agent: by lineage, marks and derivation."""
        session = self.opened.session
        strand = rows.strand_of(self.view, self.opened.format, session.id)
        own = set(rows.ids_of(self.view, strand, self.target.name))
        if session.foreign.startswith(f"{self.target.name}:"):
            own.add(session.foreign.partition(":")[2])
        if self.target is self.opened.format:
            own.add(session.id)
        if self.target.traits.any_uuid:
            own.add(self._derived(0))
        return frozenset(own)

    def _derived(self, number: int) -> str:
        """Returns the id of the number-th session that clew makes of this one in the target."""
        seed = "\x00".join((self.opened.format.name, self.opened.session.id, self.target.name, str(number)))
        derived = derive_uuid(blake3(b"clew-id-v1\x00" + seed.encode()).digest())
        return derived if self.target.make_id is None else self.target.make_id(derived)

    def _options(self, session_id: str, *, path: str = "") -> WriteOptions:
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

    def _workshop(self, session_id: str) -> Workshop:
        source = tuple(self.opened.session.records.streams)
        return Workshop(self.target, self._options(session_id), self.ctx.drafts, beneath=source)

    # --- continuing a session that is there -------------------------------------------------------------------

    def _existing(self, own: frozenset[str]) -> _Existing | None:
        """Returns the session to continue: the longest common prefix, then the newest; None when there is none."""
        there: list[_Existing] = []
        for session_id in sorted(own):
            for found in find_by_id(self.target, self.home, session_id):
                opened = self._open(found)
                there.append(_Existing(opened, _common(self.keys, opened.keys)))
        if not there:
            return None
        return max(there, key=lambda e: (e.common, e.opened.session.updated_ms or 0, e.opened.session.id))

    def _open(self, found: Found) -> Opened:
        source = load_source(self.ctx, self.target, found, self.home)
        session = self.target.read(source)
        return Opened(self.target, found, source, session, session_keys(session))

    def _continue(self, existing: _Existing) -> Converted:
        there = existing.opened
        if existing.common < len(there.keys):
            raise self._diverged(existing)
        found = there.found
        assert found is not None, "a session that is continued lies in its agent's home"
        if len(there.keys) == len(self.keys) and self._is_whole(there):
            if not self.dry_run:
                capture_session(self.ctx, there)
            report = RestoreReport("whole", len(self.messages), 0)
            return self._finish(
                there.session,
                report,
                self._workshop(there.session.id),
                (found.path,),
                written=False,
            )
        if not self.dry_run:
            self._refuse_held(there.session.id)
            refuse_live(self.target, found, self.home)
            capture_session(self.ctx, there)
        workshop = Workshop(
            self.target,
            self._options(there.session.id, path=there.session.records.streams[-1].path),
            self.ctx.drafts,
            side=there.source.side,
            resolve=there.source.resolve,
        )
        head_count = len(there.session.messages)
        streams = workshop.splice(there.session, self.messages[head_count:])
        session = workshop.read(streams)
        differs = first_difference(self.keys, session.messages, session.records.streams)
        if differs is not None:
            raise self._unsound(differs)
        report = RestoreReport("prefix", head_count, len(self.messages) - head_count, there.session.id)
        old = {stream.path: stream for stream in there.source.streams}
        base = base_of(self.target, self.home)
        changed = [s for s in streams if s.path not in old or memoryview(s.data) != memoryview(old[s.path].data)]
        items = [make_item(self.target, base, stream, old.get(stream.path)) for stream in changed]
        paths = tuple(shown_path(self.target, base, stream.path) for stream in streams)
        self._place(base, items, workshop)
        return self._finish(session, report, workshop, paths)

    def _refuse_held(self, session_id: str) -> None:
        """Raises LeaseError when somebody owns the session that is to be written, in this home."""
        if self.home is self.ctx.home:
            self._held = refuse_held(self.ctx, self.target, session_id)

    def _is_whole(self, there: Opened) -> bool:
        """Tells whether the files by which the agent finds a session are there: a placing may have been interrupted."""
        names = {file.path.rpartition("/")[2] for file in there.source.side}
        return names.issuperset(self.target.traits.listed_by)

    def _diverged(self, existing: _Existing) -> Refused:
        there = existing.opened
        ours, theirs = len(self.keys) - existing.common, len(there.keys) - existing.common
        if ours:
            what = f"both went on after group {existing.common}: here +{ours}, there +{theirs}"
        else:
            what = f"{self.target.title} went on after group {existing.common}: there +{theirs}"
        assert there.found is not None, "it was found in its agent's home"
        return Refused(
            f"{there.name} carries this conversation, but {what}. Nothing was written",
            code="target_diverged",
            hint="--new makes a second session beside it; `clew resume` goes on with the one that is ahead.",
            session=there.session.id,
            path=str(there.found.path),
            group=existing.common,
            ours=ours,
            theirs=theirs,
        )

    def _unsound(self, group: int) -> UnwritableContent:
        return UnwritableContent(
            f"group {group + 1} would not read back from {self.target.title}'s format; nothing was written",
            code="unsound",
            hint="This is a defect of clew's writer: please report it with the session's damage report.",
            session=self.opened.session.id,
            group=group,
        )

    # --- a session that is not there yet, or no longer --------------------------------------------------------

    def _make(self, own: frozenset[str]) -> Converted:
        choice = self._choose(own)
        if isinstance(choice, Choice):
            done = self._restore(choice)
            if done is not None:
                return done
            reason = "unsound"
        else:
            reason = choice.reason
        session_id = self._new_id()
        workshop = self._workshop(session_id)
        streams = workshop.write(self.messages)
        session = workshop.read(streams)
        differs = first_difference(self.keys, session.messages, session.records.streams)
        if differs is not None:
            raise self._unsound(differs)
        report = RestoreReport("plain", 0, len(self.messages), reason=reason)  # type: ignore[arg-type]
        return self._put(session, streams, report, workshop)

    def _choose(self, own: frozenset[str]) -> Choice | NoChoice:
        candidates = candidates_for(self.ctx, self.target.name, self.keys[0])
        return choose_source(self.keys, candidates, own_ids=own, carries_id=self.target.traits.carries_id)

    def _restore(self, choice: Choice) -> Converted | None:
        """Puts back what was captured in the target's format, with later turns behind; None where it is not sound."""
        capture = self.ctx.stores.residue.capture(CaptureId(choice.candidate.capture))
        session_id = capture.session_id or ""
        if not self.dry_run and not self.new:
            self._refuse_held(session_id)
        facts = read_facts(capture)
        if not self.cwd:
            self.cwd = facts.cwd
        side = captured_side(self.ctx, capture.id)
        workshop = Workshop(
            self.target,
            self._options(session_id, path=capture.streams[-1].path),
            self.ctx.drafts,
            side=side,
            resolve=self._resolver(session_id),
        )
        restored = restore_conversation(self.messages, self.keys, choice, capture.streams, workshop)
        if isinstance(restored, RestoreReport):
            self.warnings += restored.warnings
            return None
        if self.new:
            return self._rebase(restored, workshop)
        self.warnings += restored.report.warnings
        return self._put(restored.session, restored.streams, restored.report, workshop, side=side)

    def _resolver(self, session_id: str) -> Callable[[str], Source | None]:
        """Returns a way to get what the restored session refers to: from the agent's home, else from clew's store."""

        def on_disk(other: str) -> Source | None:
            found = next((f for f in find_by_id(self.target, self.home, other) if not f.problem), None)
            return self.target.locate.load(found, self.home) if found is not None and other != session_id else None

        return resolver(self.ctx, self.target, self.home, on_disk)

    def _rebase(self, restored: Restored, workshop: Workshop) -> Converted | None:
        """Makes the restored text another session: its id, and only that, is changed in the records."""
        if self.target.rebase is None:
            return None
        fresh = Workshop(
            self.target,
            self._options(self._new_id()),
            self.ctx.drafts,
            side=workshop.side,
            resolve=workshop.resolve,
        )
        streams = fresh.take(self.target.rebase(restored.session, fresh.options))
        session = fresh.read(streams)
        if first_difference(self.keys, session.messages, session.records.streams) is not None:
            return None
        report = msgspec.structs.replace(restored.report, mode="rebased")
        return self._put(session, streams, report, fresh)

    def _new_id(self) -> str:
        """Returns the first derived id that nobody has in the target agent, on disk or in clew's store."""
        taken = {found.id for found in self.target.locate.find(self.home)}
        strand = rows.strand_of(self.view, self.opened.format, self.opened.session.id)
        taken |= rows.ids_of(self.view, strand, self.target.name)
        number = 0
        while self._derived(number) in taken:
            number += 1
        return self._derived(number)

    def _put(
        self,
        session: Session,
        streams: Sequence[Stream],
        report: RestoreReport,
        workshop: Workshop,
        side: Sequence[SideFile] = (),
    ) -> Converted:
        base = base_of(self.target, self.home)
        missing = [item for item in (_side_item(base, file) for file in side) if not item.path.exists()]
        items = [*missing, *(make_item(self.target, base, stream, None) for stream in streams)]
        paths = tuple(shown_path(self.target, base, stream.path) for stream in streams)
        self._place(base, items, workshop)
        return self._finish(session, report, workshop, paths)

    # --- placing and telling ----------------------------------------------------------------------------------

    def _place(self, base: Path, items: Sequence[Item | Rows], workshop: Workshop) -> None:
        if self.strict and self._losses(workshop):
            first = self._losses(workshop)[0]
            raise FormatError(
                f"{first.count} {first.what} cannot be carried to {self.target.title}",
                code="losses",
                hint="Without --strict they stay in clew's store and the rest is carried.",
                session=self.opened.session.id,
            )
        if self.dry_run:
            return
        extra = workshop.written.files if workshop.written is not None else ()
        side, index = (
            [
                Item(path_below(base, file.path), file.chunks, file.mode, _expected_at(path_below(base, file.path)))
                for file in extra
                if file.role == role
            ]
            for role in ("side", "index")
        )
        new = {item.path for item in side}
        rest = [item for item in items if item.path not in new]
        with holding(self.ctx, self._held):
            # nothing is named before it is there
            place_all(self.target, self.home, [*side, *rest, *index], self.ctx.now_ms())

    def _losses(self, workshop: Workshop) -> tuple[Loss, ...]:
        return workshop.written.losses if workshop.written is not None else ()

    def _finish(
        self,
        session: Session,
        report: RestoreReport,
        workshop: Workshop,
        paths: tuple[Path, ...],
        *,
        written: bool = True,
    ) -> Converted:
        thread = self._record(session, report, written=written)
        source = self.opened
        found_path = str(source.found.path) if source.found is not None else ""
        argv = self.target.resume.argv(session.id, model=self.model)
        invented = workshop.written.invented if workshop.written is not None else 0
        return Converted(
            End(source.format.name, source.session.id, found_path, source.session.cwd),
            End(
                self.target.name, session.id, str(paths[0]) if paths else "", session.cwd, tuple(str(p) for p in paths)
            ),
            Command(argv, session.cwd or self.cwd),
            self._report(report, self._losses(workshop), invented),
            thread,
            written and not self.dry_run,
        )

    def _report(self, report: RestoreReport, losses: tuple[Loss, ...], invented: int) -> Report:
        """Returns the report as people count: results belong to their message and are counted apart."""
        said = [message.role != "tool" for message in self.messages]
        restored = sum(said[: report.restored_messages])
        return Report(
            report.mode,
            restored,
            sum(said) - restored,
            losses,
            tuple(self.warnings),
            report.reason,
            invented,
            report.retries,
            sum(said),
            sum(len(message.calls) for message in self.messages),
            len(said) - sum(said),
        )

    def _record(self, session: Session, report: RestoreReport, *, written: bool) -> str:
        """Captures what was placed and writes the translation into the thread; returns the thread's id."""
        ctx, source = self.ctx, self.opened
        now = ctx.now_ms()
        origin = "created" if source.session.foreign else "adopted"
        view, one = rows.with_session(self.view, source.format, source.session.id, origin, now)
        if self.dry_run:
            return view.thread.thread_id
        placed = Opened(self.target, None, Source(tuple(session.records.streams), session.side), session, self.keys)
        capture_session(ctx, placed)
        view, other = rows.with_session(view, self.target, session.id, "created", now)
        if written:
            counted = self._report(report, (), 0)
            view = rows.with_edge(
                view,
                "forked" if self.new else "translated",
                one,
                other,
                now_ms=now,
                groups=len(self.keys),
                cut=self.keys[-1] if self.keys else None,
                formats=(source.format.name, self.target.name),
                restored=counted.restored_messages,
                rendered=counted.rendered_messages,
            )
        if self._held is None or not written:
            rows.save_thread(ctx, self.view, view)
            return view.thread.thread_id
        with ctx.leases.transaction():
            rows.save_thread(ctx, self.view, view)
            rows.append_return(ctx, self._held.session_id, self.target, session.id)
        return view.thread.thread_id


def _common(one: Sequence[ChainKey], other: Sequence[ChainKey]) -> int:
    count = 0
    for a, b in zip(one, other, strict=False):
        if a != b:
            break
        count += 1
    return count


def _side_item(base: Path, file: SideFile) -> Item:
    return Item(path_below(base, file.path), lambda: [file.load()], file.mode, expected_of(None))


def _expected_at(path: Path) -> Expected:
    """Returns the expectation that what lies at a path now lies there still at the swap."""
    there = present_bytes(path)
    return expected_of(None if there is None else Stream("", memoryview(there.data)))
