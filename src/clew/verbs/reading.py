"""Opening sessions: from an agent's place, or from clew's own store when the agent has deleted them."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from clew.conversation.source import Session, Source
from clew.conversation.walk import session_keys
from clew.errors import AmbiguousError, ClewError, UnreadableSource
from clew.formats.folders import PUT_RIGHT, hiding
from clew.formats.protocol import Format, Found, Home
from clew.formats.registry import all_formats, get_format
from clew.formats.rows import database_of, is_rows, session_of
from clew.ids import ChainKey
from clew.platform.mapped import open_source
from clew.verbs.context import Context


class Opened(msgspec.Struct, frozen=True):
    """A session that was read: its format, its place (None when only clew has it), its bytes, and what they say."""

    format: Format
    found: Found | None
    source: Source
    session: Session
    keys: tuple[ChainKey, ...]
    capture: int | None = None
    """The capture it was read from, when the agent no longer has it."""

    @property
    def name(self) -> str:
        """Returns `agent:id`."""
        return f"{self.format.name}:{self.session.id}"


def find_sessions(ctx: Context, agent: str | None = None, home: Home | None = None) -> Iterator[tuple[Format, Found]]:
    """Yields every session that lies in the agents' homes."""
    formats = (get_format(agent),) if agent else all_formats()
    for form in formats:
        for found in form.locate.find(home or ctx.home):
            yield form, found


def find_by_id(form: Format, home: Home, session_id: str) -> tuple[Found, ...]:
    """Returns all sessions of one agent with exactly that id."""
    return tuple(found for found in form.locate.find(home) if found.id == session_id)


def load_source(ctx: Context, form: Format, found: Found, home: Home | None = None) -> Source:
    """Returns the source of a session with its references resolved: on the disk first, then in the store."""
    home = home or ctx.home
    if found.problem:
        raise unreadable(form, found)
    source = form.locate.load(found, home)
    owner = form.resume.owner(found, home) is not None
    return msgspec.structs.replace(source, resolve=resolver(ctx, form, home, source.resolve), growing=owner)


def unreadable(form: Format, found: Found, wanted: str = "") -> UnreadableSource:
    """Returns the error that says what is wrong with a session, or with a database whose sessions are not seen.

    `wanted` is what was asked for ("session X"), where what is wrong may hide it.
    """
    message = found.problem if str(found.path) in found.problem else f"{found.path}: {found.problem}"
    if wanted:
        message += f"; so whether {form.title} has {wanted} cannot be seen"
    return UnreadableSource(
        message,
        hint=found.hint or PUT_RIGHT,
        agent=form.name,
        path=str(found.path),
        session=None if found.hides else found.id,
    )


def refuse_hidden(ctx: Context, agent: str | None, wanted: str) -> None:
    """Raises UnreadableSource where a database or a place cannot be read that may have what was not found."""
    for form, found in find_sessions(ctx, agent):
        if found.hides:
            raise unreadable(form, found, wanted)
    for form in (get_format(agent),) if agent else all_formats():
        for found in closed_places(form, ctx.home):
            raise unreadable(form, found, wanted)


def closed_places(form: Format, home: Home) -> Iterator[Found]:
    """Yields the places of an agent that are there and cannot be looked into, each as an entry that hides sessions."""
    for place in dict.fromkeys((form.locate.base(home), *form.locate.places(home))):
        problem = _closed(place)
        if problem:
            yield hiding(form.name, place, f"{place} {problem}")
            return


def _closed(place: Path) -> str:
    try:
        if not stat.S_ISDIR(place.stat().st_mode):
            return "" if place.suffix else "is no folder, where the agent's sessions should be"
        with os.scandir(place):
            return ""
    except (FileNotFoundError, NotADirectoryError):
        return "is a link that leads nowhere" if place.is_symlink() else ""
    except OSError as error:
        return f"cannot be looked into: {error.strerror}"


def resolver(
    ctx: Context, form: Format, home: Home, first: Callable[[str], Source | None] | None
) -> Callable[[str], Source | None]:
    """Returns a way to get the source of a session that another refers to: the format's own, then clew's captures."""
    from clew.verbs.capture import captured_source

    def resolve(session_id: str) -> Source | None:
        found = first(session_id) if first is not None else None
        if found is not None:
            return msgspec.structs.replace(found, resolve=resolver(ctx, form, home, found.resolve or first))
        return captured_source(ctx, form, session_id)

    return resolve


def open_found(ctx: Context, form: Format, found: Found, home: Home | None = None) -> Opened:
    """Reads a session from its place."""
    source = load_source(ctx, form, found, home)
    session = form.read(source)
    return Opened(form, found, source, session, session_keys(session))


def open_path(ctx: Context, path: Path, agent: str | None = None) -> Opened:
    """Reads the session in a file anywhere; the format is told from the place or the content."""
    path, session_id = _split_rows(path.absolute())
    there: list[tuple[Format, Found]] = []
    for form, found in find_sessions(ctx, agent):
        if path in (found.path, *found.files) and (found.hides or session_id in ("", found.id)):
            if form.place_rows is None:
                return open_found(ctx, form, found)
            there.append((form, found))
    if len(there) == 1:
        return open_found(ctx, *there[0])
    if there:
        raise AmbiguousError(
            f"{path} holds {len(there)} sessions",
            hint=f"Name one of them: by its id, or as {path.name}#ID.",
            path=str(path),
            candidates=[found.id for _, found in there[:8]],
        )
    form = _claimant(path, agent)
    facts = path.stat()
    found = Found(form.name, session_id or path.stem, path, (path,), (facts.st_mtime_ns, facts.st_size))
    return open_found(ctx, form, found)


def _split_rows(path: Path) -> tuple[Path, str]:
    """Splits `DATABASE#ID`, which names one session in a database; any other path stays as it is."""
    text = str(path)
    if not is_rows(text) or path.exists():
        return path, ""
    return Path(database_of(text)), session_of(text)


def _claimant(path: Path, agent: str | None) -> Format:
    """Returns the format that claims a file by its first bytes; raises UnreadableSource when none does."""
    with open_source(path) as there:
        head = bytes(memoryview(there.data)[: 1 << 16])
    if agent:
        return get_format(agent)
    for form in all_formats():
        if form.locate.claims(path, head):
            return form
    what = "is empty" if not head else "is no session of an agent that clew knows"
    raise UnreadableSource(
        f"{path} {what}",
        hint="`clew agents` lists the agents; `AGENT:PATH` says which one it is.",
        path=str(path),
    )


def describe_failure(error: ClewError) -> str:
    """Returns one line on why a session could not be read."""
    return error.message
