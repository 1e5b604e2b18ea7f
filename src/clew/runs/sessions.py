"""Runs and agents' sessions: the sessions that `translate` carries, and the threads of those that a run made.

Finding reads only: neither clew's store nor an agent's home is written to.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Iterator

import msgspec

from clew.conversation.source import Stream
from clew.errors import ClewError, Refused, UnreadableSource
from clew.formats.protocol import Format, Found
from clew.formats.registry import format_names, get_format
from clew.lineage.chain import Chain, append
from clew.lineage.link import Fence, Link, make_link_id
from clew.lineage.strand import Strand
from clew.lineage.thread import Thread, add_strand
from clew.runs.fingerprint import field_hash
from clew.runs.log import SessionRef
from clew.runs.operation import Skipped
from clew.runs.translate import StoredSession, Translated
from clew.verbs import lineage_rows as rows
from clew.verbs.context import Context
from clew.verbs.convert import convert_opened
from clew.verbs.folder import folder_key
from clew.verbs.reading import Opened, load_source, open_found


class VerbTranslator:
    """Finds the sessions of one agent, of one folder or of all, and converts them as `clew convert` does.

    Sessions of helper agents are left out: they come along with the session that called them.
    """

    def __init__(
        self,
        ctx: Context,
        source: str,
        target: str,
        *,
        folder: str | None = None,
        cwd: str | None = None,
        model: str | None = None,
        full: bool = False,
    ) -> None:
        self._ctx = ctx
        self._form = get_format(source)
        self._target = get_format(target)
        self._folder = folder
        self._cwd = cwd
        self._model = model
        self._full = full
        self._found: dict[str, Found] = {}

    def find(self) -> Iterator[StoredSession | Skipped]:
        """Yields the sessions in the order of their paths, and what cannot be translated."""
        places = sorted(self._form.locate.find(self._ctx.home), key=lambda found: (str(found.path), found.id))
        for number, found in enumerate(places):
            self._ctx.progress("reading sessions", number, len(places))
            path = self._place(found)
            if found.kind == "helper":
                continue
            try:
                told = self._look(found)
            except (ClewError, OSError) as error:
                yield Skipped(path, f"unreadable: {error}")
                continue
            if told is not None:
                self._found[path] = found
                yield StoredSession(self._form.name, found.id, path, told)

    def translate(self, session: StoredSession) -> Translated | None:
        """Converts one session, if its bytes are still those that were found.

        Raises UnreadableSource where nothing was found to be said because nothing could be read.
        """
        opened = open_found(self._ctx, self._form, self._found[session.path])
        if self._digest(opened) != session.digest:
            return None
        try:
            done = convert_opened(
                self._ctx, opened, to=self._target.name, cwd=self._cwd, model=self._model, full=self._full
            )
        except Refused as error:
            lost = sum(damage.lost for damage in opened.session.damage)
            if error.code == "nothing_to_convert" and lost:
                raise UnreadableSource(
                    f"nothing of session {session.session_id} can be read: {lost} damaged place{'s' * (lost != 1)}",
                    hint="`clew check` names them.",
                    session=session.session_id,
                ) from error
            raise
        return Translated(done.to.session_id, msgspec.to_builtins(done))

    def _place(self, found: Found) -> str:
        """Returns the path below the home that sessions are looked for in, and the id where a file holds several."""
        root = os.path.realpath(self._ctx.home.root)
        path = os.path.realpath(found.path)
        place = os.path.relpath(path, root) if path.startswith(root + os.sep) else path
        return place if found.id in place else f"{place}#{found.id}"

    def _look(self, found: Found) -> str | None:
        """Returns the digest of a session's bytes; None when it belongs to another folder."""
        if self._folder is None:
            source = load_source(self._ctx, self._form, found)
            return _digest(source.streams)
        opened = open_found(self._ctx, self._form, found)
        if folder_key(opened.session.cwd or found.cwd_hint) != folder_key(self._folder):
            return None
        return self._digest(opened)

    def _digest(self, opened: Opened) -> str:
        return _digest(opened.source.streams)


def _digest(streams: tuple[Stream, ...]) -> str:
    """Returns the digest over the streams' paths and bytes, letting go of each after it was read."""
    parts: list[str] = []
    for stream in streams:
        parts += (stream.path, hashlib.sha256(stream.data).hexdigest())
        if stream.release is not None:
            stream.release()
    return field_hash(*parts)


class ThreadLinker:
    """Tells the lineage of every agent's session in which an item was done.

    The session becomes a strand of a thread of its own; its first link names the run and the item (`run`, a member
    that lineage keeps as it is).
    """

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._lock = threading.Lock()

    def __call__(self, run_id: str, item_id: str, session: SessionRef) -> None:
        """Records one session; one that is known already, or of an agent without a format here, is left as it is."""
        if session.agent not in format_names():
            return
        form = get_format(session.agent)
        with self._lock:
            view = rows.find_thread(self._ctx, form, session.session_id)
            if rows.strand_of(view, form, session.session_id) is not None:
                return
            strand = _make_strand(form, session.session_id, self._ctx.now_ms(), run_id, item_id)
            thread = Thread(rows.thread_id_of(form.name, session.session_id))
            after = rows.ThreadView(add_strand(thread, strand), {}, None)
            rows.save_thread(self._ctx, None, after)


def _make_strand(form: Format, native_id: str, now_ms: int, run_id: str, item_id: str) -> Strand:
    handle = rows.handle_of(form, native_id)
    told = msgspec.json.encode({"run": run_id, "item": item_id}).decode()
    link = Link(
        link_id=make_link_id(handle, Fence(0)),
        handle=handle,
        origin="created",
        minted_at_fence=Fence(0),
        observed_at=now_ms,
        extra=(("run", told),),
    )
    return Strand(rows.strand_id_of(form.name, native_id), handle.namespace, append(Chain(), link))
