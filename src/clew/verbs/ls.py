"""`clew ls`: the sessions of a folder or of all, newest first, with what clew keeps of deleted ones.

What a session says of itself is read once and remembered by the facts of its file (time, size); a warm list reads
no session. One bad file is a row with the state `unreadable`, never the end of the list.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal, TypeAlias

import msgspec

from clew.errors import StoreError
from clew.formats.protocol import Format, Found
from clew.formats.registry import all_formats, get_format
from clew.formats.rows import name_rows
from clew.ids import AgentName, ThreadId
from clew.store.protocol import Cached, Capture, FileFacts
from clew.verbs import lineage_rows as rows
from clew.verbs.capture import read_facts
from clew.verbs.context import Context
from clew.verbs.folder import folder_key
from clew.verbs.ps import held_here
from clew.verbs.reading import closed_places
from clew.verbs.summary import Remembered, decode_remembered, encode_remembered, iso, look_at, one_line

State: TypeAlias = Literal["idle", "live", "empty", "archived", "damaged", "unreadable", "gone"]

_BATCH = 256


class Listed(msgspec.Struct, frozen=True):
    """One row of the list (docs/cli.md). Times are ISO 8601 in UTC, empty where the session does not say."""

    agent: str
    id: str
    path: str
    cwd: str
    title: str
    created: str
    updated: str
    messages: int
    model: str
    state: State
    thread: str = ""
    parent: str = ""
    short: str = ""
    detail: str = ""
    helper: bool = False


def ls(
    ctx: Context,
    *,
    agent: str | None = None,
    cwd: str | None = None,
    every_folder: bool = False,
    hidden: bool = False,
    limit: int | None = None,
) -> Iterator[Listed]:
    """Yields sessions newest first: those of the folder `cwd` (the caller's own when None), or of every folder.

    `hidden` also shows empty, archived and helper sessions; `limit` ends the list early.
    """
    hiding: list[str] = []
    listed = list_all(ctx, agent, hiding)
    for form in (get_format(agent),) if agent else all_formats():
        ctx.notes.extend(f"{found.problem}; its sessions are not listed" for found in closed_places(form, ctx.home))
    if not every_folder:
        ctx.notes.extend(hiding)
        wanted = folder_key(str(cwd if cwd is not None else ctx.cwd))
        listed = [row for row in listed if folder_key(row.cwd) == wanted]
    if not hidden:
        listed = [row for row in listed if not row.helper and row.state not in ("empty", "archived")]
    yield from listed[:limit]


def list_all(ctx: Context, agent: str | None = None, hiding: list[str] | None = None) -> list[Listed]:
    """Returns every session of every folder, newest first, deleted ones that clew keeps included.

    What is wrong with databases whose sessions are not seen is added to `hiding`.
    """
    there: list[Listed] = []
    inside: set[tuple[str, str]] = set()
    threads, held = _threads(ctx), _held(ctx)
    for form in (get_format(agent),) if agent else all_formats():
        there += _list_agent(ctx, form, threads, held, inside, hiding if hiding is not None else [])
    there += _gone(ctx, there, threads, agent, inside)
    there.sort(key=lambda row: (row.updated or row.created, row.id), reverse=True)
    return _with_short_ids(there)


def newest_here(ctx: Context, agent: str | None) -> Listed | None:
    """Returns the newest session of the caller's folder by its own last message, or None."""
    return next(ls(ctx, agent=agent), None)


def _list_agent(
    ctx: Context,
    form: Format,
    threads: dict[tuple[str, str], ThreadId],
    held: frozenset[tuple[str, str]],
    inside: set[tuple[str, str]],
    hiding: list[str],
) -> Iterator[Listed]:
    cache = ctx.stores.index
    known = cache.get_all(AgentName(form.name))
    fresh: list[tuple[str, Cached]] = []
    seen: set[str] = set()
    owners = form.resume.owners(ctx.home)
    founds = list(form.locate.find(ctx.home))
    hiding += [f"{found.problem}; its sessions are not listed" for found in founds if found.hides]
    unread = [f for f in founds if _recall(known.get(_cache_key(form, f)), f) is None]
    looks = look_at(ctx, form, unread)
    for found in founds:
        path = _cache_key(form, found)
        seen.add(path)
        remembered = _recall(known.get(path), found)
        if remembered is None:
            remembered = next(looks)
            fresh.append((path, Cached(_facts(found), encode_remembered(remembered))))
            ctx.progress("reading sessions", len(fresh), len(unread))
            if len(fresh) % _BATCH == 0:
                cache.put_many(AgentName(form.name), fresh[-_BATCH:])
        if remembered.named:
            inside.add((form.name, remembered.named))
        thread = str(threads.get((form.name, remembered.id), ""))
        yield _row(form, found, remembered, thread, live=found.id in owners or (form.name, found.id) in held)
    if len(fresh) % _BATCH:
        cache.put_many(AgentName(form.name), fresh[-(len(fresh) % _BATCH) :])
    stale = [path for path in known if path not in seen]
    if stale:
        cache.remove(AgentName(form.name), stale)


def _cache_key(form: Format, found: Found) -> str:
    """Returns the name under which a session is remembered: its file, or its rows in a file that many share."""
    return name_rows(str(found.path), found.id) if form.place_rows is not None else str(found.path)


def _facts(found: Found) -> FileFacts:
    return FileFacts(found.stamp[0], found.stamp[1], 0)


def _recall(cached: Cached | None, found: Found) -> Remembered | None:
    if cached is None or cached.facts != _facts(found) or found.problem:
        return None
    return decode_remembered(cached.body)


def _row(form: Format, found: Found, seen: Remembered, thread: str, *, live: bool) -> Listed:
    state: State = "idle"
    detail = ""
    if seen.problem:
        state, detail = "unreadable", seen.problem
    elif live:
        state = "live"
    elif found.kind == "archived":
        state = "archived"
    elif seen.damaged:
        state, detail = "damaged", f"{seen.damaged} damaged place{'s' * (seen.damaged != 1)}"
    elif seen.messages == 0:
        state = "empty"
    return Listed(
        form.name,
        seen.id,
        str(found.path),
        seen.cwd,
        seen.title,
        iso(seen.created_ms),
        iso(seen.updated_ms),
        seen.messages,
        seen.model,
        state,
        thread,
        seen.parent,
        detail=detail,
        helper=seen.helper or found.kind == "helper",
    )


def _newest(ctx: Context, agent: AgentName | None) -> tuple[Capture, ...]:
    try:
        return ctx.stores.residue.newest(agent=agent)
    except StoreError as error:
        ctx.notes.append(error.message)
        return ()


def _held(ctx: Context) -> frozenset[tuple[str, str]]:
    try:
        return held_here(ctx)
    except StoreError:
        return frozenset()  # `_threads` tells it


def _threads(ctx: Context) -> dict[tuple[str, str], ThreadId]:
    """Returns the threads of sessions; none where clew's records cannot be read: the agents' sessions are listed."""
    try:
        return rows.thread_ids(ctx)
    except StoreError as error:
        ctx.notes.append(error.message)
        return {}


def _gone(
    ctx: Context,
    there: Iterable[Listed],
    threads: dict[tuple[str, str], ThreadId],
    agent: str | None,
    inside: set[tuple[str, str]],
) -> list[Listed]:
    """Returns the captured sessions that their agent no longer has."""
    if not ctx.stores.has_residue:
        return []
    present = inside | {(row.agent, row.id) for row in there}
    gone: dict[tuple[str, str], Listed] = {}
    for capture in _newest(ctx, AgentName(agent) if agent else None):
        key = (str(capture.agent), str(capture.session_id or ""))
        if key in present or not key[1]:
            continue
        facts = read_facts(capture)
        gone[key] = Listed(
            key[0],
            key[1],
            facts.path,
            facts.cwd,
            one_line(facts.title or facts.first),
            iso(facts.created_ms),
            iso(facts.updated_ms),
            capture.message_count,
            facts.model,
            "gone",
            str(threads.get(key, "")),
            detail=f"{key[0]} no longer has it; clew holds capture {capture.id}",
            helper=facts.helper,
        )
    return list(gone.values())


def _with_short_ids(listed: list[Listed]) -> list[Listed]:
    """Gives each row the shortest prefix of its id, at least 4 characters, that no other row's id begins with."""
    ids = sorted({row.id for row in listed})
    short: dict[str, str] = {}
    for number, one in enumerate(ids):
        need = 4
        for other in (ids[number - 1] if number else "", ids[number + 1] if number + 1 < len(ids) else ""):
            common = 0
            while common < min(len(one), len(other)) and one[common] == other[common]:
                common += 1
            need = max(need, common + 1)
        short[one] = one[:need]
    return [msgspec.structs.replace(row, short=short[row.id]) for row in listed]
