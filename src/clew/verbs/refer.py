"""What a SESSION on the command line means (docs/cli.md).

A native id, a unique prefix of one, a path, a thread id, or `@`: the newest of this folder by its own last message.
`agent:` before an id or `@` narrows it.
"""

from __future__ import annotations

import re
from pathlib import Path

from clew.conversation.walk import session_keys
from clew.errors import AmbiguousError, NotFoundError, UsageError
from clew.formats.protocol import Found
from clew.formats.registry import format_names, get_format
from clew.formats.rows import database_of
from clew.ids import ThreadId
from clew.lineage.thread import latest_strand
from clew.verbs import lineage_rows as rows
from clew.verbs.capture import captured_source, captures_at
from clew.verbs.context import Context
from clew.verbs.ls import Listed, list_all, newest_here
from clew.verbs.reading import Opened, find_sessions, open_found, open_path, refuse_hidden

_THREAD = re.compile(r"t[0-9a-f]{16}\Z")


def open_session(ctx: Context, ref: str) -> Opened:
    """Reads the session that `ref` means; raises NotFoundError, AmbiguousError, UnreadableSource or UsageError."""
    agent, rest = split_agent(ref or "@")
    if rest == "@":
        row = newest_here(ctx, agent)
        if row is None:
            refuse_hidden(ctx, agent, f"a session of {ctx.cwd}")
            who = f" of {agent}" if agent else ""
            raise NotFoundError(
                f"no session{who} in {ctx.cwd}", hint="`clew ls --all` lists those of every folder.", path=str(ctx.cwd)
            )
        return open_listed(ctx, row)
    if _THREAD.match(rest):
        return open_listed(ctx, _of_thread(ctx, ThreadId(rest)))
    if _looks_like_a_path(rest):
        path = Path(rest) if Path(rest).is_absolute() else ctx.cwd / rest
        there = path.exists() or path.is_symlink() or Path(database_of(str(path))).exists()
        if there or "/" in rest:
            if not there:
                return _open_gone(ctx, path, agent)
            return open_path(ctx, path, agent)
    return open_by_id(ctx, agent, rest)


def _open_gone(ctx: Context, path: Path, agent: str | None) -> Opened:
    kept = captures_at(ctx, path, agent)
    if not kept:
        raise NotFoundError(
            f"{path} does not exist, and clew kept no session that lay there",
            hint="`clew ls --all --hidden` lists all that are here or kept.",
            path=str(path),
        )
    return open_captured(ctx, kept[-1].agent, kept[-1].session_id or "", kept[-1].id)


def split_agent(ref: str) -> tuple[str | None, str]:
    """Returns the agent that a reference names, or None, and the rest of it."""
    head, colon, rest = ref.partition(":")
    if colon and head in format_names():
        return head, rest or "@"
    if colon and re.fullmatch(r"[a-z][a-z-]+", head) and not Path(ref).exists():
        raise UsageError(f"no agent is called {head!r}", hint="Known: " + ", ".join(format_names()), agent=head)
    return None, ref


def _looks_like_a_path(text: str) -> bool:
    return "/" in text or database_of(text).endswith((".jsonl", ".json", ".zst", ".db", ".md"))


def open_listed(ctx: Context, row: Listed) -> Opened:
    """Reads the session of a row of the list."""
    form = get_format(row.agent)
    if row.state == "gone":
        return open_captured(ctx, row.agent, row.id)
    for found in form.locate.find(ctx.home):
        if str(found.path) == row.path and found.id == row.id:
            return open_found(ctx, form, found)
    raise NotFoundError(f"session {row.id} is gone from {row.path}", session=row.id, path=row.path)


def open_captured(ctx: Context, agent: str, session_id: str, capture: int | None = None) -> Opened:
    """Reads a session from clew's store; raises NotFoundError when it was never captured."""
    form = get_format(agent)
    source = captured_source(ctx, form, session_id, capture)
    if source is None:
        raise NotFoundError(
            f"{form.title} has no session {session_id}, and clew kept none", session=session_id, agent=agent
        )
    session = form.read(source)
    newest = ctx.stores.residue.captures(agent=agent, session_id=session_id)[-1].id  # type: ignore[arg-type]
    return Opened(form, None, source, session, session_keys(session), capture or newest)


def open_by_id(ctx: Context, agent: str | None, text: str) -> Opened:
    """Reads the session whose id is `text` or begins with it, on the disk or in clew's store."""
    exact: list[tuple[str, Found]] = []
    begins: list[tuple[str, Found]] = []
    for form, found in find_sessions(ctx, agent):
        if found.id == text:
            exact.append((form.name, found))
        elif len(text) >= 4 and found.id.startswith(text):
            begins.append((form.name, found))
    hits = exact or begins
    if len(hits) == 1:
        return open_found(ctx, get_format(hits[0][0]), hits[0][1])
    if len(hits) > 1:
        raise ambiguous(text, [f"{name}:{found.id}  {found.path}" for name, found in hits])
    kept = _kept_ids(ctx, agent, text)
    if len(kept) == 1:
        return open_captured(ctx, *kept[0])
    if kept:
        raise ambiguous(text, [f"{name}:{session}  (kept by clew)" for name, session in kept])
    row = _titled(ctx, agent, text)
    if row is not None:
        return open_listed(ctx, row)
    refuse_hidden(ctx, agent, f"session {text}")
    raise NotFoundError(
        f"no session has the id {text!r}" + (f" in {agent}" if agent else ""),
        hint="`clew ls --all --hidden` lists all; a prefix needs at least 4 characters.",
        session=text,
    )


def _kept_ids(ctx: Context, agent: str | None, text: str) -> list[tuple[str, str]]:
    if not ctx.stores.has_residue:
        return []
    kept = {
        (str(capture.agent), str(capture.session_id))
        for capture in ctx.stores.residue.newest(agent=agent)  # type: ignore[arg-type]
        if capture.session_id
        and (capture.session_id == text or (len(text) >= 4 and capture.session_id.startswith(text)))
    }
    exact = sorted(pair for pair in kept if pair[1] == text)
    return exact or sorted(kept)


def _titled(ctx: Context, agent: str | None, text: str) -> Listed | None:
    """Returns the one session with exactly that title, where somebody named a title instead of an id."""
    if " " not in text:
        return None
    hits = [row for row in list_all(ctx, agent) if row.title == text]
    return hits[0] if len(hits) == 1 else None


def _of_thread(ctx: Context, thread: ThreadId) -> Listed:
    view = rows.load_thread(ctx, thread)
    strand = latest_strand(view.thread) if view is not None else None
    if strand is None or strand.chain.head is None:
        raise NotFoundError(f"no thread {thread}", hint="`clew ls --json` names the threads.", thread=thread)
    native, agent = strand.chain.head.handle.native_id, strand.namespace.agent
    for row in list_all(ctx, agent):
        if row.id == native:
            return row
    refuse_hidden(ctx, agent, f"session {native}")
    raise NotFoundError(f"session {agent}:{native} of thread {thread} is gone and was not kept", thread=thread)


def ambiguous(text: str, names: list[str]) -> AmbiguousError:
    """Returns the refusal that names what answers to `text`."""
    shown = names[:8] + ([f"... and {len(names) - 8} more"] if len(names) > 8 else [])
    return AmbiguousError(
        f"{len(names)} sessions answer to {text!r}:\n  " + "\n  ".join(shown),
        hint="Give more of the id, the agent (`claude:ID`), or the path.",
        session=text,
        candidates=names,
    )
