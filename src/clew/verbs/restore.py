"""`clew restore`: the captured files of a session back in their place, byte for byte, side files included."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
from blake3 import blake3

from clew.conversation.digest import bytes_digest
from clew.conversation.source import SideFile, Source, Stream
from clew.errors import ClewError, NotFoundError, Refused
from clew.formats.protocol import Format, Home, WriteOptions
from clew.formats.registry import get_format
from clew.ids import AgentName, CaptureId, NativeId, derive_uuid
from clew.store.protocol import Capture
from clew.verbs import lineage_rows as rows
from clew.verbs.capture import captured_bytes, captures_at, read_facts
from clew.verbs.context import Context
from clew.verbs.listing import missing_index, place_index
from clew.verbs.own import holding, refuse_held
from clew.verbs.place import Item, base_of, holds_rows, is_same, make_item, place_all, present_stream, shown_path
from clew.verbs.reading import find_sessions, resolver
from clew.verbs.refer import ambiguous, open_session, split_agent


class RestoredFiles(msgspec.Struct, frozen=True):
    """What was put back: which capture of the session (numbers from 1, oldest first), and the files.

    `listed` are files by which the agent finds the session and which were missing: made anew, and no part of `digest`.
    """

    agent: str
    session_id: str
    capture: int
    captures: int
    taken: str
    records: int
    paths: tuple[str, ...]
    unchanged: tuple[str, ...]
    digest: str
    cwd: str = ""
    warnings: tuple[str, ...] = ()
    listed: tuple[str, ...] = ()


def restore(ctx: Context, ref: str, *, to: Path | None = None, capture: int | None = None) -> RestoredFiles:
    """Puts a captured session's files back; `to` stands for the user's home; `capture` counts from 1, oldest first.

    Raises NotFoundError when clew holds no such capture, Refused (`target_diverged`) over other bytes, ClewError
    (`damaged_segment`) when the store cannot give all bytes. Then nothing was written.
    """
    captures = find_captures(ctx, ref)
    chosen = _pick(captures, capture) if capture is not None else _newest(ctx, ref, captures)
    form = get_format(chosen.agent)
    home = Home(to.absolute()) if to is not None else ctx.home
    base = base_of(form, home)
    wanted = (*captured_bytes(ctx, chosen), *_side(ctx, chosen))
    todo, same = _compare(form, home, wanted)
    session_id, facts = chosen.session_id or "", read_facts(chosen)
    index = _index(ctx, form, home, wanted, len(chosen.streams), session_id, facts.cwd)
    held = refuse_held(ctx, form, session_id) if todo and to is None and session_id else None
    with holding(ctx, held):
        place_all(form, home, [make_item(form, base, stream, None) for stream in reversed(todo)], ctx.now_ms())
        listed = place_index(base, index)
    if held is not None:
        with ctx.leases.transaction():
            rows.append_return(ctx, held.session_id, form, session_id)
    return RestoredFiles(
        chosen.agent,
        chosen.session_id or "",
        captures.index(chosen) + 1,
        len(captures),
        chosen.taken_at.isoformat(timespec="seconds"),
        sum(stream.records for stream in chosen.streams),
        tuple(str(shown_path(form, base, stream.path)) for stream in todo),
        tuple(str(shown_path(form, base, stream.path)) for stream in same),
        bytes_digest(b"".join(bytes(s.data) for s in wanted[: len(chosen.streams)])),
        facts.cwd,
        _fuller(ctx, captures, chosen) if capture is None else (),
        tuple(map(str, listed)),
    )


def _index(
    ctx: Context, form: Format, home: Home, wanted: Sequence[Stream], count: int, session_id: str, cwd: str
) -> list[Item]:
    """Returns what the agent needs to list the session and the home lacks; the first `count` files are its streams."""
    if form.splice is None or any(holds_rows(form, stream.path) for stream in wanted):
        return []
    side = tuple(SideFile(s.path, s.mode, len(s.data), lambda s=s: memoryview(s.data)) for s in wanted[count:])
    resolve = resolver(ctx, form, ctx.home, None)
    session = form.read(Source(tuple(wanted[:count]), side, resolve, hint_id=session_id, hint_cwd=cwd))
    cwd = session.cwd or cwd
    options = WriteOptions(
        session_id=session_id,
        cwd=cwd,
        now_ms=ctx.now_ms(),
        new_id=lambda name: derive_uuid(blake3(f"{session_id}\x00{name}".encode()).digest()),
        title=session.title,
        path=wanted[count - 1].path if count else "",
        facts=form.surroundings(home, cwd) if form.surroundings is not None else {},
    )
    return missing_index(form, base_of(form, home), session, options, {stream.path for stream in wanted})


def _fuller(ctx: Context, captures: Sequence[Capture], chosen: Capture) -> tuple[str, ...]:
    """Tells of the capture that holds most where it holds more than the one that was put back.

    A session can be captured after its agent, or somebody, took a part of it away; the newest is what was there last.
    """
    if chosen.message_count < (best := max(captures, key=lambda one: one.message_count)).message_count:
        what = f"{best.message_count} messages, this one {chosen.message_count}"
    else:
        counts = {one.id: len(one.streams) + len(ctx.stores.residue.side_files(CaptureId(one.id))) for one in captures}
        best = max(captures, key=lambda one: counts[one.id])
        if best.message_count < chosen.message_count or counts[best.id] <= counts[chosen.id]:
            return ()
        what = f"{counts[best.id]} files, this one {counts[chosen.id]}"
    number = captures.index(best) + 1
    return (f"capture {number} holds more: {what}. `--capture {number}` puts that one back",)


def find_captures(ctx: Context, ref: str) -> tuple[Capture, ...]:
    """Returns the captures of the session that `ref` means, oldest first; raises NotFoundError or AmbiguousError."""
    agent, text = split_agent(ref or "@")
    store = ctx.stores.residue
    if text == "@" or "/" in text:
        opened = open_session(ctx, ref)
        pairs = {(opened.format.name, opened.session.id)}
    else:
        pairs = {
            (str(c.agent), str(c.session_id))
            for c in store.newest(agent=AgentName(agent) if agent else None)
            if c.session_id and (c.session_id == text or (len(text) >= 4 and c.session_id.startswith(text)))
        }
        exact = {pair for pair in pairs if pair[1] == text}
        pairs = exact or pairs
    if len(pairs) > 1:
        raise ambiguous(text, [f"{a}:{s}" for a, s in sorted(pairs)])
    for name, session_id in pairs:
        captures = store.captures(agent=AgentName(name), session_id=NativeId(session_id))
        if captures:
            return captures
    raise NotFoundError(
        f"clew holds no capture of {text!r}",
        hint="`clew keep` captures sessions; what was never captured cannot be restored."
        + _hint_on_disk(ctx, agent, text),
        session=text,
    )


def _hint_on_disk(ctx: Context, agent: str | None, text: str) -> str:
    for form, found in find_sessions(ctx, agent):
        if found.id.startswith(text):
            return f" The session itself is there: {form.name}:{found.id}."
    return ""


def _newest(ctx: Context, ref: str, captures: tuple[Capture, ...]) -> Capture:
    """Returns the newest capture; where a path was named, the newest of what lay there: one id may have two files."""
    agent, text = split_agent(ref or "@")
    there = {one.id for one in captures_at(ctx, ctx.cwd / text, agent)} if "/" in text else set[int]()
    return next((one for one in reversed(captures) if one.id in there), captures[-1])


def _pick(captures: Sequence[Capture], number: int) -> Capture:
    if not 1 <= number <= len(captures):
        raise NotFoundError(
            f"capture {number} does not exist: this session has {len(captures)}",
            hint=f"Numbers go from 1 (oldest) to {len(captures)}.",
        )
    return captures[number - 1]


def _side(ctx: Context, capture: Capture) -> list[Stream]:
    files: list[Stream] = []
    for entry in ctx.stores.residue.side_files(CaptureId(capture.id)):
        data = ctx.stores.residue.side_data(entry.digest)
        if data is None or bytes_digest(data) != entry.digest:
            raise ClewError(
                f"capture {capture.id}: side file {entry.path} is damaged in clew's store",
                code="damaged_segment",
                hint="`clew store check` lists all damage; an older capture may be whole.",
                session=capture.session_id,
                path=entry.path,
            )
        files.append(Stream(entry.path, data, entry.mode))
    return files


def _compare(form: Format, home: Home, wanted: Sequence[Stream]) -> tuple[list[Stream], list[Stream]]:
    """Splits streams into those to write and those that lie there already; raises Refused over other bytes."""
    base = base_of(form, home)
    todo: list[Stream] = []
    same: list[Stream] = []
    for stream in wanted:
        there = present_stream(form, home, stream.path)
        if there is None:
            todo.append(stream)
        elif is_same(form, stream.path, there, stream.data):
            same.append(stream)
        else:
            path = shown_path(form, base, stream.path)
            raise Refused(
                f"{path} is there with other bytes ({len(there)} where the capture has {len(stream.data)})",
                code="target_diverged",
                hint="Keep it first and move it away, or restore elsewhere: --to DIR. Nothing was written.",
                path=str(path),
            )
    return todo, same
